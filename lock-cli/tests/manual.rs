//! The manual page and the shells' completions.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::process::Command;

use common::{distlock, finish};

const COMMANDS: [&str; 10] = [
    "run",
    "list",
    "show",
    "release",
    "check",
    "migrate",
    "schema",
    "purge",
    "completions",
    "man",
];

#[test]
fn the_page_tells_all_commands_exit_codes_and_variables() {
    let done = finish(distlock().arg("man"));
    assert_eq!((done.code, &*done.stderr), (Some(0), ""), "{done:?}");
    let page = done.stdout.replace('\\', "");
    assert!(page.contains("\n.TH distlock 1 "), "{page}");
    for command in COMMANDS {
        let heading = format!("\n.SH \"DISTLOCK {}\"\n", command.to_uppercase());
        assert!(page.contains(&heading), "{command}");
    }
    for code in [0, 1, 124, 125, 126, 127] {
        assert!(page.contains(&format!("\nfB{code}")), "{code}: {page}");
    }
    for variable in ["STORE", "NAME", "FENCING_TOKEN", "OWNER", "NESTED"] {
        let term = format!("\nfBDISTLOCK_{variable}fR\n");
        assert!(page.contains(&term), "{variable}: {page}");
    }
}

#[test]
fn every_shell_gets_completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let done = finish(distlock().args(["completions", shell]));
        assert_eq!((done.code, &*done.stderr), (Some(0), ""), "{done:?}");
        for word in COMMANDS.into_iter().chain(["older-than", "only-if"]) {
            assert!(done.stdout.contains(word), "{shell}: {word}");
        }
    }
}

#[test]
fn bash_completes_with_them() {
    let program = env!("CARGO_BIN_EXE_distlock");
    for (words, completion) in [
        ("distlock rel", "release"),
        ("distlock purge --older", "--older-than"),
        ("distlock completions zs", "zsh"),
    ] {
        let script = format!(
            "source <({program} completions bash); COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
             _distlock distlock \"${{COMP_WORDS[-1]}}\" \"${{COMP_WORDS[-2]}}\"; echo \"${{COMPREPLY[@]}}\""
        );
        let done = finish(Command::new("bash").args(["--norc", "-c", &script]));
        assert_eq!(done.stdout, format!("{completion}\n"), "{done:?}");
    }
}
