use std::time::Duration;

use jiff::SignedDuration;

/// Parses `500ms`, `30s`, `10m`, `1h30m` or ISO 8601's `PT10M`.
///
/// Bare numbers are refused, because nobody can know their unit; so are units that have no fixed length.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return Err("a unit is missing: such as 500ms, 30s, 10m or PT10M".to_owned());
    }
    let parsed: SignedDuration = text.parse().map_err(|_| {
        "not a duration: give hours, minutes, seconds or milliseconds, such as 500ms, 30s, 10m, 1h30m or PT10M"
            .to_owned()
    })?;
    if parsed.is_negative() {
        return Err("a duration cannot be negative".to_owned());
    }
    if parsed.is_zero() {
        return Err("a duration must be longer than zero".to_owned());
    }
    Ok(parsed.unsigned_abs())
}

/// The duration as people write it: `1h 30m`, `3.2s`.
pub(crate) fn show(duration: Duration) -> String {
    match SignedDuration::try_from(duration) {
        Ok(duration) => format!("{duration:#}"),
        Err(_) => format!("{} s", duration.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, millis) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("10m", 600_000),
            ("1h30m", 5_400_000),
            ("1.5s", 1_500),
            ("PT10M", 600_000),
            ("PT0.5S", 500),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_has_no_certain_length_is_refused_with_the_reason() {
        for (text, reason) in [
            ("10", "a unit is missing"),
            ("", "a unit is missing"),
            ("0", "a unit is missing"),
            ("1mo", "not a duration"),
            ("2 months", "not a duration"),
            ("1y", "not a duration"),
            ("P1M", "not a duration"),
            ("P1Y", "not a duration"),
            ("10M", "not a duration"),
            ("1.5", "not a duration"),
            ("soon", "not a duration"),
            ("99999999999999999999s", "not a duration"),
            ("-5s", "negative"),
            ("5s ago", "negative"),
            ("0s", "longer than zero"),
            ("PT0S", "longer than zero"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
