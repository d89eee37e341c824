//! The program that tests start as a Redis of their own, where Redis runs in containers.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use anyhow::Result;
use tempfile::TempDir;

use distlock_test_servers::own_folder;

/// Where tests look for the program; without it they take `redis-server`.
pub(super) const VARIABLE: &str = "DISTLOCK_TEST_REDIS_SERVER";

const SCRIPT: &str = include_str!("containers/own_redis.sh");

pub(super) struct OwnRedis {
    program: String,
    _folder: TempDir,
}

impl OwnRedis {
    /// `label`: of the containers that must not outlive this run.
    pub(super) fn new(image: &str, label: &str) -> Result<Self> {
        let folder = own_folder("own-redis")?;
        let program: PathBuf = folder.path().join("redis-server");
        fs::write(
            &program,
            format!("#!/bin/sh\nimage={image}\nlabel={label}\n{SCRIPT}"),
        )?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        Ok(Self {
            program: program.display().to_string(),
            _folder: folder,
        })
    }

    pub(super) fn program(&self) -> &str {
        &self.program
    }
}
