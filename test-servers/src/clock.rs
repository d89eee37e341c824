//! A clock that can be shifted while the program that lives on it runs.

use std::env;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

const SHIM: &str = "libdistlock_clock_shim.so";

/// The clocks of the programs that were [started](Self::rules) on it. Every other program has the machine's.
#[derive(Debug)]
pub struct Clock {
    shim: PathBuf,
    path: PathBuf,
    file: File,
}

/// The places of the numbers that the shim reads.
#[derive(Clone, Copy)]
enum Number {
    Wall,
    Boot,
    Faster,
    SinceMonotonic,
    SinceBoot,
}

impl Clock {
    /// A clock that is right. Its files are in `folder`, for a program of another user may not see where cargo builds.
    pub fn new(folder: &Path) -> Result<Self> {
        let (shim, path) = (folder.join(SHIM), folder.join("clock"));
        fs::copy(built_shim()?, &shim).context("cannot copy the clock shim")?;
        fs::write(&path, [0; 5 * 8])?;
        for file in [&shim, &path] {
            fs::set_permissions(file, fs::Permissions::from_mode(0o644))?;
        }
        let file = File::options().write(true).open(&path)?;
        Ok(Self { shim, path, file })
    }

    /// Lets a program, and all that it starts, live on this clock.
    pub fn rules<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("LD_PRELOAD", &self.shim)
            .env("DISTLOCK_TEST_CLOCK", &self.path)
    }

    /// Sets the wall clock this much ahead of the right time.
    pub fn set_ahead(&self, by: Duration) -> Result<()> {
        self.write(Number::Wall, nanos(by)?)
    }

    /// Sets the wall clock this much behind the right time.
    pub fn set_behind(&self, by: Duration) -> Result<()> {
        self.write(Number::Wall, -nanos(by)?)
    }

    /// As if the machine had been suspended for so long: its boot-time clock went on, its monotonic clock did not.
    pub fn suspend(&self, time: Duration) -> Result<()> {
        self.write(Number::Boot, nanos(time)?)
    }

    /// Lets the steady clocks run at this many hundredths of their speed from now on. To be called once.
    pub fn run_at(&self, percent: i64) -> Result<()> {
        use nix::time::{ClockId, clock_gettime};
        for (number, clock) in [
            (Number::SinceMonotonic, ClockId::CLOCK_MONOTONIC),
            (Number::SinceBoot, ClockId::CLOCK_BOOTTIME),
        ] {
            let now = Duration::from(clock_gettime(clock)?);
            self.write(number, nanos(now)?)?;
        }
        self.write(Number::Faster, (percent - 100) * 10_000)
    }

    fn write(&self, number: Number, value: i64) -> Result<()> {
        let place = number as u64 * 8;
        Ok(self.file.write_all_at(&value.to_ne_bytes(), place)?)
    }
}

fn nanos(time: Duration) -> Result<i64> {
    Ok(time.as_nanos().try_into()?)
}

/// Where cargo puts the library that this package depends on: beside the test program, or in a folder beside it.
fn built_shim() -> Result<PathBuf> {
    let program = env::current_exe()?;
    let mut places = program
        .ancestors()
        .map(|folder| folder.join("deps").join(SHIM));
    places.find(|place| place.exists()).with_context(|| {
        let program = program.display();
        format!("{SHIM} was not built with {program}: let cargo build and run the tests")
    })
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    /// The seconds that a program sees on this clock, and those that we see.
    fn seconds(clock: &Clock) -> (u64, u64) {
        let output = clock.rules(Command::new("date").arg("+%s")).output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        let ours = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        (text.trim().parse().unwrap(), ours.unwrap().as_secs())
    }

    #[test]
    fn a_program_sees_the_wall_clock_that_it_is_given() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::new(folder.path()).unwrap();
        let hour = Duration::from_secs(3600);
        let (right, now) = seconds(&clock);
        assert!(now - right < 60, "{right} {now}");
        clock.set_ahead(hour).unwrap();
        let (ahead, now) = seconds(&clock);
        assert!(ahead > now + 3000, "{ahead} {now}");
        clock.set_behind(hour).unwrap();
        let (behind, now) = seconds(&clock);
        assert!(behind + 3600 <= now, "{behind} {now}");
    }
}
