use std::error::Error;
use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::output::may_be_secret;

/// clap's paragraphs as one line: what is wrong, without the usage that follows it.
pub(crate) fn line(error: &clap::Error, mut args: impl Iterator<Item = OsString>) -> String {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let end = text
        .find("\nUsage:")
        .or(text.find("\nFor more information"));
    let words = text[..end.unwrap_or(text.len())].split_whitespace();
    let mut line = words.collect::<Vec<_>>().join(" ");
    // A word that is out of place may also be the rest of a URL with a blank in it.
    let is_rest = is_word_out_of_place(error)
        && args.any(|argument| may_be_secret(&argument.to_string_lossy()));
    if is_rest || may_be_secret(&line) {
        line = without_values(error);
    }
    match error.kind() {
        ErrorKind::UnknownArgument => {
            format!("{line} ({}; try distlock --help)", place(error))
        }
        _ => format!("{line} (try distlock --help)"),
    }
}

/// Where a word may stand that was taken for an option, or for one too many.
fn place(error: &clap::Error) -> &'static str {
    let word = context(error, ContextKind::InvalidArg);
    match word.is_some_and(|word| word.starts_with('-')) {
        true => "a name or a command that begins with - goes after --",
        false => "a command to run goes after --",
    }
}

fn is_word_out_of_place(error: &clap::Error) -> bool {
    match error.kind() {
        ErrorKind::UnknownArgument => {
            context(error, ContextKind::InvalidArg).is_some_and(|word| !word.starts_with('-'))
        }
        kind => kind == ErrorKind::InvalidSubcommand,
    }
}

/// What is wrong, without a word of what was given.
fn without_values(error: &clap::Error) -> String {
    let what = error.kind().as_str().unwrap_or("wrong usage");
    let mut line = format!("{what}, not shown because it may be part of a URL with a password");
    if matches!(
        error.kind(),
        ErrorKind::InvalidValue | ErrorKind::ValueValidation
    ) {
        line += &context(error, ContextKind::InvalidArg)
            .map_or_else(String::new, |option| format!(": {option}"));
        line += &error
            .source()
            .map_or_else(String::new, |reason| format!(": {reason}"));
    }
    line
}

fn context(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;

    /// What is said of `distlock run --name n` with these arguments.
    fn refused(args: &[&str]) -> String {
        let run = ["distlock", "run", "--name", "n"];
        let all = run.iter().chain(args).map(OsString::from);
        let error = args::grammar().try_get_matches_from(all.clone());
        line(&error.expect_err("wrong arguments"), all)
    }

    #[test]
    fn a_usage_error_shows_nothing_that_may_be_a_password() {
        for args in [
            &["postgres://me:canary@host/db?password=canary"][..],
            &["postgres://me:can canary@host/db"],
            &["me:canary@host"],
            &["canary", "me@host"],
            &["--store", "postgres://me:blank", "canary", "word@host"],
            &["--at-most", "postgres://me:canary"],
            &["--postgres://me:canary@host"],
            &["-E", "canary@1"],
        ] {
            let error = refused(args);
            assert!(!error.contains("canary"), "{args:?}: {error}");
            assert!(!error.contains("postgres"), "{args:?}: {error}");
            assert!(error.contains("not shown"), "{args:?}: {error}");
        }
    }

    #[test]
    fn a_usage_error_names_what_cannot_be_a_password() {
        for (args, part) in [
            (&["--store", "redis://host", "--wat"][..], "--wat"),
            (&["word"], "word"),
            (
                &["--at-most", "me@9"],
                "--at-most <DURATION>: not a duration",
            ),
        ] {
            let error = refused(args);
            assert!(error.contains(part), "{error}");
        }
    }
}
