//! One server in a container: started by testcontainers, gone when dropped.

use std::collections::HashMap;

use anyhow::{Context, Result, bail};
use distlock_test_servers::ready::{Life, log_tail};
use testcontainers::bollard::models::PortBinding;
use testcontainers::core::IntoContainerPort;
use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerAsync, GenericImage, ImageExt};

use super::{Docker, reaper};
use crate::progress::{Stopwatch, say};

/// What to run.
pub(crate) struct Request<'a> {
    /// For people.
    pub(crate) name: String,
    /// `NAME:TAG`.
    pub(crate) image: String,
    /// Run by `sh` instead of what the image would run, so that one script serves everybody's images.
    pub(crate) script: &'a str,
    pub(crate) variables: Vec<(&'static str, String)>,
    /// Published on free ports of 127.0.0.1.
    pub(crate) ports: &'static [u16],
    /// The id of the container whose network this one shares.
    pub(crate) beside: Option<&'a str>,
}

pub(crate) struct Container {
    name: String,
    inner: ContainerAsync<GenericImage>,
    since: Stopwatch,
}

impl Container {
    pub(crate) async fn start(docker: &Docker, request: Request<'_>) -> Result<Self> {
        let since = Stopwatch::start();
        let (image, tag) = request
            .image
            .rsplit_once(':')
            .context("an image has a tag")?;
        say(format_args!(
            "{}: container of {}",
            request.name, request.image
        ));
        let ports = request.ports;
        let mut container = GenericImage::new(image, tag)
            .with_entrypoint("sh")
            .with_cmd(["-c", request.script])
            .with_label(reaper::LABEL, docker.reaper.run())
            .with_host_config_modifier(move |host| {
                host.publish_all_ports = Some(false);
                host.port_bindings = Some(on_loopback(ports));
            });
        for (name, value) in request.variables {
            container = container.with_env_var(name, value);
        }
        if let Some(id) = request.beside {
            container = container.with_network(format!("container:{id}"));
        } else {
            for port in ports {
                container = container.with_mapped_port(0, port.tcp());
            }
        }
        let inner = container
            .start()
            .await
            .with_context(|| format!("cannot start {}", request.name))?;
        Ok(Self {
            name: request.name,
            inner,
            since,
        })
    }

    pub(crate) fn id(&self) -> &str {
        self.inner.id()
    }

    /// Where a port of the container is on this machine.
    pub(crate) async fn port(&self, inside: u16) -> Result<u16> {
        let port = self.inner.get_host_port_ipv4(inside.tcp()).await;
        port.with_context(|| format!("{} publishes no port {inside}", self.name))
    }
}

/// Docker's default is every address of the machine.
fn on_loopback(ports: &[u16]) -> HashMap<String, Option<Vec<PortBinding>>> {
    let binding = PortBinding {
        host_ip: Some("127.0.0.1".to_owned()),
        // It chooses a free one.
        host_port: Some(String::new()),
    };
    let ports = ports.iter();
    ports
        .map(|port| (format!("{port}/tcp"), Some(vec![binding.clone()])))
        .collect()
}

impl Life for Container {
    fn name(&self) -> &str {
        &self.name
    }

    fn since(&self) -> Stopwatch {
        self.since
    }

    async fn still_runs(&mut self) -> Result<()> {
        if self.inner.is_running().await? {
            return Ok(());
        }
        bail!("{} ended\n{}", self.name, self.log_tail())
    }

    fn log_tail(&self) -> String {
        // With both of its streams, in the order of time.
        let log = std::process::Command::new("sh")
            .args(["-c", "docker logs --tail 40 \"$1\" 2>&1", "log", self.id()])
            .output()
            .map(|output| output.stdout)
            .unwrap_or_default();
        log_tail(&self.name, &log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_published_on_this_machine_only() {
        let bindings = on_loopback(&[5432, 6432]);
        assert_eq!(bindings.len(), 2);
        for binding in bindings.values().flatten().flatten() {
            assert_eq!(binding.host_ip.as_deref(), Some("127.0.0.1"));
        }
        assert!(bindings.contains_key("6432/tcp"));
    }
}
