//! The wait for a server that was started, until it answers or has ended.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::progress::{Stopwatch, say};

/// A first start on a slow disk takes longest; past this, something is wrong.
const START_LIMIT: Duration = Duration::from_secs(120);
const BETWEEN_PINGS: Duration = Duration::from_millis(50);

/// What was started: a process or a container.
pub(crate) trait Life {
    fn name(&self) -> &str;

    fn since(&self) -> Stopwatch;

    /// Fails, and shows the end of the log, once it has ended.
    async fn still_runs(&mut self) -> Result<()>;

    fn log_tail(&self) -> String;
}

/// Waits until `ping` says that the server answers.
pub(crate) async fn ready(server: &mut impl Life, ping: impl AsyncFn() -> bool) -> Result<()> {
    loop {
        // Asked before and after: a stranger on our port must not pass for our server.
        server.still_runs().await?;
        let (name, since) = (server.name().to_owned(), server.since());
        if ping().await {
            server.still_runs().await?;
            say(format_args!("{name} ready after {since}"));
            return Ok(());
        }
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
pub(crate) fn log_tail(name: &str, log: &[u8]) -> String {
    let log = String::from_utf8_lossy(log);
    format!("end of the log of {name}:\n{}", last_lines(&log))
}

const LOG_LINES: usize = 40;

pub(crate) fn last_lines(text: &str) -> String {
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
