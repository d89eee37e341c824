use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use distlock::{Held, LockRecord, clock};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::exit::Failure;

/// One line on stderr, written at once so that it stays one among those of others. Nothing is left to do where that
/// fails.
pub(crate) fn complain(text: &str) {
    let line = format!("distlock: {}\n", one_line(text));
    let _ = io::stderr().write_all(line.as_bytes());
}

/// One line of JSON on stderr.
pub(crate) fn complain_in_json(value: &impl Serialize) {
    // What is told there has no keys but texts, so that JSON can be made of it.
    let line = serde_json::to_string(value).unwrap_or_default() + "\n";
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Text on stdout. A reader that has gone away, such as `head`, is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

/// A value as JSON on stdout.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::new(format!("cannot write JSON: {error}")))?;
    print(&(text + "\n"))
}

/// Columns as wide as their widest cell, two spaces apart.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// Foreign text with its control and invisible characters escaped.
pub(crate) fn visible(text: &str) -> String {
    let parts = text.split('\'').map(|part| part.escape_debug().to_string());
    parts.collect::<Vec<_>>().join("'")
}

/// A name as one word of a shell; where that would hide something, a place for it.
pub(crate) fn word(name: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+,:@%=".contains(c);
    let is_visible = |c: char| c.escape_debug().len() == 1 || "'\"\\".contains(c);
    if name.chars().all(is_plain) {
        name.to_owned()
    } else if name.chars().all(is_visible) {
        format!("'{}'", name.replace('\'', r"'\''"))
    } else {
        "NAME".to_owned()
    }
}

/// Foreign lines as one, with control characters escaped.
pub(crate) fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines.collect::<Vec<_>>().join("; ");
    let escape = |c: char| match c.is_control() {
        true => c.escape_debug().to_string(),
        false => c.to_string(),
    };
    line.chars().map(escape).collect()
}

/// Whether a text may be a URL, or a piece of one, with a password in it.
pub(crate) fn may_be_secret(text: &str) -> bool {
    text.contains("://") || text.contains('@')
}

/// An instant as UTC and as the local clock shows it: `2026-12-01T00:10:00Z (local 01:10:00 +01:00)`, with the local
/// date where that is another.
pub(crate) fn instant(at: SystemTime) -> String {
    match Timestamp::try_from(at) {
        Ok(at) => instant_in(at, TimeZone::system()),
        Err(_) => "beyond the calendar".to_owned(),
    }
}

fn instant_in(at: Timestamp, zone: TimeZone) -> String {
    let (utc, local) = (
        at.to_zoned_datetime(TimeZone::UTC),
        at.to_zoned_datetime(zone),
    );
    let local = match utc.date() == local.date() {
        true => local.strftime("%H:%M:%S %:z"),
        false => local.strftime("%Y-%m-%d %H:%M:%S %:z"),
    };
    format!("{at:.0} (local {local})")
}

/// `"nightly" is held by web1/42 until 2026-12-01T00:10:00Z (local …), 3.2 s left`
pub(crate) fn holding(name: &str, held: &Held) -> String {
    let by = held.by.as_deref().map(visible);
    let (state, end) = match (held.resting, by) {
        (false, Some(by)) => (format!("held by {by}"), ""),
        (false, None) => ("held".to_owned(), ", and the store does not say by whom"),
        (true, Some(by)) => (format!("resting after a run of {by}"), ""),
        (true, None) => ("resting after a run".to_owned(), ""),
    };
    let until = held.remaining.map_or_else(String::new, |remaining| {
        let until = instant(clock::wall() + remaining);
        format!(" until {until}, {} left", left(remaining))
    });
    format!("\"{}\" is {state}{until}{end}", visible(name))
}

/// What is left of something, for people: `3.2 s`, `1h 30m 5s`.
pub(crate) fn left(remaining: Duration) -> String {
    if remaining < Duration::from_secs(60) {
        return format!("{:.1} s", remaining.as_secs_f64());
    }
    match SignedDuration::try_from(Duration::from_secs(remaining.as_secs())) {
        Ok(whole) => format!("{whole:#}"),
        Err(_) => format!("{} s", remaining.as_secs()),
    }
}

/// A lock as `--json` shows it. Without a record in the store, all but the name and the state is null.
#[derive(Serialize)]
pub(crate) struct JsonRecord<'a> {
    name: &'a str,
    state: &'static str,
    owner: Option<&'a str>,
    since: Option<JsonInstant>,
    until: Option<JsonInstant>,
    remaining_ms: u64,
    fencing_token: Option<u64>,
    last_tick: Option<i64>,
}

#[derive(Serialize)]
struct JsonInstant {
    utc: String,
    local: String,
}

impl<'a> From<&'a LockRecord> for JsonRecord<'a> {
    fn from(record: &'a LockRecord) -> Self {
        Self {
            name: record.name.as_str(),
            state: record.state.as_str(),
            owner: record.owner.as_deref(),
            since: record.locked_at.and_then(json_instant),
            until: record.lock_until.and_then(json_instant),
            remaining_ms: u64::try_from(record.remaining.as_millis()).unwrap_or(u64::MAX),
            fencing_token: record.fencing_token.map(|token| token.value()),
            last_tick: record.last_tick,
        }
    }
}

fn json_instant(at: SystemTime) -> Option<JsonInstant> {
    let at = Timestamp::try_from(at).ok()?;
    let local = at.to_zoned_datetime(TimeZone::system());
    Some(JsonInstant {
        utc: format!("{at:.3}"),
        local: local.strftime("%Y-%m-%dT%H:%M:%S%.3f%:z").to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_one_line_without_control_characters() {
        assert_eq!(one_line("a\n\n  b\x1b[31m\tc\n"), r"a; b\u{1b}[31m\tc");
    }

    #[test]
    fn foreign_text_hides_nothing() {
        assert_eq!(visible("it's\u{202e}\x07"), r"it's\u{202e}\u{7}");
        assert_eq!(visible("jöb 😀"), "jöb 😀");
    }

    #[test]
    fn columns_line_up() {
        let rows = [["NAME", "STATE"], ["jöb", "held"]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(table(&rows), "NAME  STATE\njöb   held\n");
    }

    #[test]
    fn instants_are_shown_in_utc_and_local_time() {
        let at = Timestamp::from_millisecond(1_796_083_800_400).unwrap();
        for (hours, local) in [
            (0, "00:10:00 +00:00"),
            (1, "01:10:00 +01:00"),
            (-1, "2026-11-30 23:10:00 -01:00"),
        ] {
            let zone = TimeZone::fixed(jiff::tz::offset(hours));
            let text = format!("2026-12-01T00:10:00Z (local {local})");
            assert_eq!(instant_in(at, zone), text);
        }
    }

    #[test]
    fn what_is_left_is_short() {
        assert_eq!(left(Duration::from_millis(3210)), "3.2 s");
        assert_eq!(left(Duration::from_millis(5_405_900)), "1h 30m 5s");
    }

    #[test]
    fn what_the_store_does_not_say_is_not_made_up() {
        let mut held = Held::default();
        let text = "\"n\" is held, and the store does not say by whom";
        assert_eq!(holding("n", &held), text);
        held.remaining = Some(Duration::from_secs(3));
        let text = holding("n", &held);
        let end = ", 3.0 s left, and the store does not say by whom";
        assert!(text.starts_with("\"n\" is held until 2"), "{text}");
        assert!(text.ends_with(end), "{text}");
    }
}
