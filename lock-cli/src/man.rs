//! The manual: what `--help` says below the options, and the page that `distlock man` prints.

use std::io;

use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::args;
use crate::exit::{Exit, Failure};
use crate::output;

/// Below `distlock --help`, which fits on a screen.
pub(crate) const STORES: &str = "\
Stores: postgres://USER@HOST/DATABASE (mysql: and mariadb: likewise),
redis://HOST, sqlite://PATH, memory:. Default: $DISTLOCK_STORE, else a SQLite
file of this user's. A URL with a password belongs in a file (--store-file) or
in the environment. More: distlock COMMAND --help, distlock man | man -l -";

type Pairs = [(&'static str, &'static str)];

const STORE_URLS: &Pairs = &[
    (
        "postgres://USER@HOST/DATABASE",
        "A table in PostgreSQL, which distlock migrate makes. With ?lock_table=NAME and &lock_schema=NAME, another table.",
    ),
    (
        "mysql://USER@HOST/DATABASE, mariadb://USER@HOST/DATABASE",
        "The same in MySQL or MariaDB.",
    ),
    (
        "redis://HOST, rediss://HOST",
        "Keys in Redis or Valkey. With ?lock_prefix=TEXT, other keys than those that begin with lock:.",
    ),
    (
        "sqlite://PATH",
        "A file, for the processes of one machine, which distlock migrate makes.",
    ),
    ("memory:", "This process alone; for trying things out."),
];

const RUN_EXITS: &Pairs = &[
    ("the command's own", "It ended by itself."),
    ("128+n", "Signal n ended it, or came before it was started."),
    (
        "0, or CODE of -E",
        "The lock is held or resting, or with --if-unavailable skip the store is down: the command was not started.",
    ),
    (
        "124",
        "The lock was lost or its time was up, and the command was stopped.",
    ),
    ("125", "distlock itself failed; usage errors too."),
    ("126", "The command cannot be executed."),
    ("127", "The command was not found."),
];

const OTHER_EXITS: &Pairs = &[
    (
        "0",
        "Done. Also where a lock that is to be released is not held.",
    ),
    (
        "1",
        "The answer is no. check: there is a fault (with --strict: or a warning). release: the lock is held, and was left alone.",
    ),
    (
        "125",
        "distlock itself failed, or the store did; usage errors too. Also where no store was named and there is no default one yet.",
    ),
];

const ENVIRONMENT: &Pairs = &[
    (
        "DISTLOCK_STORE",
        "The store's URL, without --store and --store-file. The command under a lock does not get it.",
    ),
    (
        "XDG_STATE_HOME, HOME",
        "Without a URL, the store is the SQLite file distlock/locks.db in $XDG_STATE_HOME or ~/.local/state, which run and migrate make. Whatever uses it says so on stderr.",
    ),
    (
        "TZ",
        "The time zone of the local times that are shown. No lock depends on it.",
    ),
];

const CHILD_ENVIRONMENT: &Pairs = &[
    ("DISTLOCK_NAME", "The lock's name."),
    (
        "DISTLOCK_FENCING_TOKEN",
        "The number that grows with each grant of the lock: what the command writes to can refuse smaller ones. Not where it runs without the lock (--if-unavailable run).",
    ),
    (
        "DISTLOCK_OWNER",
        "Who holds the lock, as list and show tell it. Not where the command runs without the lock.",
    ),
    (
        "DISTLOCK_NESTED",
        "1: a distlock within the command that names no store fails, instead of locking in another one.",
    ),
];

const RUN_NOTES: &str = "\
The command finds DISTLOCK_NAME, DISTLOCK_FENCING_TOKEN and DISTLOCK_OWNER in its environment, and not the store's URL. \
Where it runs without the lock, it finds the name alone.
The lock is given back when the command itself has ended; what it left running in the background is not waited for.
If distlock is killed with KILL, the command lives on and the lock ends with its lease.";

const PASSWORDS: &str = "\
Everybody on a machine can read its command lines: a URL with a password belongs in a file that only its user can read \
(--store-file) or in the environment. distlock prints no password, and hands none on to the command, except for what \
PostgreSQL's own variables hold (PGPASSWORD). A command that must not get at the password runs as another user: root \
reads everything, and a user's processes can read the store file and the environment of the shell that started \
distlock.";

const JSON: &str = "\
With --json the answer is one JSON document on stdout. An error leaves stdout empty and is one line of JSON on stderr: \
error.kind, error.effect (none: nothing was changed; unknown: it may have been done all the same), error.retryable, \
error.text.";

const EXAMPLES: &Pairs = &[
    (
        "distlock run --name nightly --at-most 2h --at-least 5m -- ./nightly.sh",
        "In the crontab of every machine: one of them runs it.",
    ),
    (
        "distlock check --strict && deploy",
        "Deploy only where the store is as it should be.",
    ),
    (
        "distlock release nightly",
        "Says who would lose the lock, and what to type.",
    ),
    (
        "distlock purge --older-than 720h",
        "Forgets the locks that nobody has had for 30 days.",
    ),
];

/// Below `distlock run --help`.
pub(crate) fn run_notes() -> String {
    let width = RUN_EXITS.iter().map(|(code, _)| code.len()).max();
    let width = width.unwrap_or(0);
    let lines = RUN_EXITS.iter();
    let lines = lines.map(|(code, meaning)| format!("  {code:width$}  {meaning}\n"));
    format!("Exit codes:\n{}\n{RUN_NOTES}", lines.collect::<String>())
}

/// Prints the manual page. Touches no store.
pub(crate) fn man() -> Result<Exit, Failure> {
    let page = page().map_err(|error| Failure::new(format!("cannot make the page: {error}")))?;
    output::print(&page)?;
    Ok(Exit::Done)
}

/// One page with all commands.
fn page() -> io::Result<String> {
    let mut grammar = args::grammar();
    grammar.build();
    let man = Man::new(grammar.clone()).manual("distlock");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    page.extend(synopsis(&grammar).render().into_bytes());
    for command in grammar.get_subcommands() {
        page.extend(section(command)?.into_bytes());
    }
    page.extend(rest().render().into_bytes());
    Ok(String::from_utf8_lossy(&page).into_owned())
}

fn synopsis(grammar: &clap::Command) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    for command in grammar.get_subcommands() {
        let usage = command.clone().render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ").to_owned();
        roff.text([bold(usage)]);
        roff.control("br", []);
    }
    roff
}

/// One command: clap's description and options, under a heading of its own.
fn section(command: &clap::Command) -> io::Result<String> {
    // Every command has --help, and nobody looks for it here.
    let command = command.clone().mut_arg("help", |help| help.hide(true));
    let title = format!("distlock {}", command.get_name()).to_uppercase();
    let man = Man::new(command);
    let mut heading = Roff::new();
    heading.control("SH", [&*title]);
    let mut body = Vec::new();
    man.render_description_section(&mut body)?;
    man.render_options_section(&mut body)?;
    let body = String::from_utf8_lossy(&body).into_owned();
    let own_heading = |line: &&str| !line.starts_with(".SH ");
    let lines = body.lines().filter(own_heading);
    Ok(heading.render() + &lines.map(|line| format!("{line}\n")).collect::<String>())
}

/// What concerns several commands.
fn rest() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["STORES"]);
    pairs(&mut roff, STORE_URLS);
    paragraph(&mut roff, PASSWORDS);
    roff.control("SH", ["JSON"]);
    roff.text([roman(JSON)]);
    roff.control("SH", ["EXIT STATUS"]);
    roff.control("SS", ["Of distlock run"]);
    pairs(&mut roff, RUN_EXITS);
    roff.control("SS", ["Of the other commands"]);
    pairs(&mut roff, OTHER_EXITS);
    roff.control("SH", ["ENVIRONMENT"]);
    roff.control("SS", ["That distlock reads"]);
    pairs(&mut roff, ENVIRONMENT);
    roff.control("SS", ["That the command under a lock is given"]);
    pairs(&mut roff, CHILD_ENVIRONMENT);
    roff.control("SH", ["NOTES"]);
    for note in RUN_NOTES.lines() {
        paragraph(&mut roff, note);
    }
    roff.control("SH", ["EXAMPLES"]);
    pairs(&mut roff, EXAMPLES);
    roff
}

fn pairs(roff: &mut Roff, pairs: &Pairs) {
    for (term, meaning) in pairs {
        roff.control("TP", []);
        roff.text([bold(*term)]);
        roff.text([roman(*meaning)]);
    }
}

fn paragraph(roff: &mut Roff, text: &str) {
    roff.control("PP", []);
    roff.text([roman(text)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_command_and_every_option() {
        let page = page().unwrap().replace('\\', "");
        for command in args::grammar().get_subcommands() {
            let name = command.get_name().to_uppercase();
            let start = page.find(&format!(".SH \"DISTLOCK {name}\""));
            let section = &page[start.expect(&name)..];
            let end = section[1..].find("\n.SH").expect("more follows");
            for argument in command.get_arguments() {
                let option = argument.get_long().map(|long| format!("--{long}"));
                let text = option.unwrap_or_else(|| argument.get_id().as_str().to_uppercase());
                assert!(section[..end].contains(&text), "{name}: {text}");
            }
        }
    }

    #[test]
    fn the_help_of_the_program_fits_on_a_screen() {
        let help = args::grammar().try_get_matches_from(["distlock", "--help"]);
        let help = help.unwrap_err().render().to_string();
        assert!(help.lines().count() <= 24, "{help}");
        let width = help.lines().map(|line| line.chars().count()).max();
        assert!(width <= Some(80), "{help}");
    }
}
