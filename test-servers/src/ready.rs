//! The wait for a server that was started, until it answers or has ended.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::Stopwatch;

/// A first start on a slow disk takes longest; past this, something is wrong.
const START_LIMIT: Duration = Duration::from_secs(120);
const BETWEEN_PINGS: Duration = Duration::from_millis(20);

/// What was started: a process or a container.
#[allow(async_fn_in_trait, reason = "nobody outside of the workspace uses it")]
pub trait Life {
    /// What people call it, with its version.
    fn name(&self) -> &str;

    /// When it was started.
    fn since(&self) -> Stopwatch;

    /// Fails, and shows the end of the log, once it has ended.
    async fn still_runs(&mut self) -> Result<()>;

    /// The end of its log.
    fn log_tail(&self) -> String;
}

/// Waits until `ping` says that the server answers.
pub async fn ready(server: &mut impl Life, ping: impl AsyncFn() -> bool) -> Result<()> {
    loop {
        // Asked before and after: a stranger on our port must not pass for our server.
        server.still_runs().await?;
        if ping().await {
            return server.still_runs().await;
        }
        let (name, since) = (server.name(), server.since());
        if since.elapsed() > START_LIMIT {
            bail!(
                "{name} does not answer after {since}\n{}",
                server.log_tail()
            );
        }
        tokio::time::sleep(BETWEEN_PINGS).await;
    }
}

/// The end of a log, as it is shown to people.
pub fn log_tail(name: &str, log: &[u8]) -> String {
    let log = String::from_utf8_lossy(log);
    format!("end of the log of {name}:\n{}", last_lines(&log))
}

const LOG_LINES: usize = 40;

/// The last lines of what a program printed.
pub fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    let first = lines.len().saturating_sub(LOG_LINES);
    lines[first..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_cut_at_its_start() {
        let log: String = (1..=50).map(|n| format!("line {n}\n")).collect();
        let tail = last_lines(&log);
        assert!(tail.starts_with("line 11\n") && tail.ends_with("line 50"));
        assert_eq!(last_lines("one"), "one");
    }
}
