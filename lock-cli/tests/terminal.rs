//! Job control: an interactive shell on a pseudo-terminal, as `script` makes it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use common::{PATIENCE, Store, finish};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";
const CTRL_Z: &str = "\x1a";

#[test]
fn a_command_stops_and_goes_on_with_the_terminal() {
    let store = Store::sqlite();
    let mut shell = Shell::start(&store);
    shell.send("distlock run --name n --at-most 60s -- sed -u s/^/got:/\n");
    shell.send("one\n");
    shell.expect("got:one");
    shell.send(CTRL_Z);
    shell.expect("Stopped");
    shell.send("echo in_the_sh\"\"ell\n");
    shell.expect("in_the_shell");
    shell.send("fg\n");
    shell.send("two\n");
    shell.expect("got:two");
    shell.send(CTRL_D);
    shell.expect_code(0);
}

/// The 5th field of its stat is a process's group, the 8th the group in the foreground of its terminal.
#[test]
fn a_command_has_the_foreground_without_asking_for_it() {
    let store = Store::sqlite();
    let mut shell = Shell::start(&store);
    let script = "until cut -d \" \" -f 5,8 /proc/$$/stat | grep -E \"(.+) \\1\"; do :; done; echo re\"\"ady";
    shell.send(&format!(
        "distlock run --name n --at-most 60s -- sh -c '{script}'\n"
    ));
    shell.expect("ready");
    shell.expect_code(0);
}

#[test]
fn ctrl_c_ends_the_command_and_the_shell_has_its_terminal_back() {
    let store = Store::sqlite();
    let mut shell = Shell::start(&store);
    shell.send("distlock run --name n --at-most 60s -- sh -c 'echo re\"\"ady; exec sleep 1000'\n");
    shell.expect("ready");
    shell.send(CTRL_C);
    shell.expect_code(130);
}

#[test]
fn a_command_whose_lock_is_lost_while_it_is_stopped_never_goes_on() {
    let store = Store::sqlite();
    let mut shell = Shell::start(&store);
    let run = format!(
        "distlock run --name {} --at-most 3s -- sed -u s/^/got:/\n",
        store.name()
    );
    shell.send(&run);
    shell.send("one\n");
    shell.expect("got:one");
    shell.send(CTRL_Z);
    shell.expect("Stopped");
    assert_eq!(store.run_when_free(&["true"]).code, Some(0));
    shell.send("fg\n");
    shell.expect("the command was stopped");
    shell.expect_code(124);
}

/// The terminal stops `sh`, but not what it has started.
#[test]
fn what_ignores_the_terminals_stop_does_not_run_on_under_the_next_holder() {
    let store = Store::sqlite();
    let (name, log) = (store.name(), store.path("log"));
    let mut shell = Shell::start(&store);
    let worker = format!(
        "trap \"\" TSTP; echo x > {log}; echo re\"\"ady; while echo x >> {log}; do sleep 0.05; done"
    );
    shell.send(&format!(
        "distlock run --name {name} --at-most 4s -k 1s -- sh -c '({worker}) & wait'\n"
    ));
    shell.expect("ready");
    shell.send(CTRL_Z);
    shell.expect("Stopped");
    let script = format!("wc -l < {log}; sleep 1; wc -l < {log}");
    let next = store.run_when_free(&["sh", "-c", &script]);
    let lines: Vec<&str> = next.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{next:?}");
    assert_eq!(lines[0], lines[1], "lines, before and after a second");
    shell.send("fg\n");
    shell.expect("the command was stopped");
    shell.expect_code(124);
}

/// The stop is an administrator's, not job control.
#[test]
fn a_command_that_is_stopped_by_sigstop_does_not_keep_distlock_from_watching_the_time() {
    let store = Store::sqlite();
    let file = store.path("pid");
    let mut shell = Shell::start(&store);
    shell.send(&format!(
        "distlock run --name n --at-most 6s -k 1s -- sh -c 'echo $$ > {file}; echo re\"\"ady; exec sleep 1000'\n"
    ));
    shell.expect("ready");
    let pid = std::fs::read_to_string(file).unwrap();
    let pid = Pid::from_raw(pid.trim().parse().unwrap());
    kill(pid, Signal::SIGSTOP).unwrap();
    let status = format!("/proc/{pid}/status");
    while !std::fs::read_to_string(&status)
        .unwrap()
        .contains("State:\tT")
    {}
    // Time enough for distlock to see it.
    assert_eq!(finish(&mut store.command(&["show", "n"])).code, Some(0));
    kill(pid, Signal::SIGCONT).unwrap();
    shell.expect("the command was stopped");
    shell.expect_code(124);
    assert!(!shell.seen.contains("Stopped"), "{}", shell.seen);
}

#[test]
fn a_background_job_that_reads_is_stopped_until_it_has_the_foreground() {
    let store = Store::sqlite();
    let mut shell = Shell::start(&store);
    shell.send("distlock run --name n --at-most 60s -- sed -u s/^/got:/ &\n");
    shell.send("until jobs | grep Stop; do :; done\n");
    shell.expect("Stopped");
    shell.send("fg\n");
    shell.send("one\n");
    shell.expect("got:one");
    shell.send(CTRL_D);
    shell.expect_code(0);
}

#[test]
fn ctrl_c_in_a_script_ends_the_script_as_well() {
    let store = Store::sqlite();
    let mut shell = Shell::start(&store);
    shell.send("sh -c 'distlock run --name n --at-most 60s -- sh -c \"echo re\\\"\\\"ady; exec sleep 1000\"; echo wentt\"\"hrough'\n");
    shell.expect("ready");
    shell.send(CTRL_C);
    shell.expect_code(130);
    assert!(!shell.seen.contains("wentthrough"), "{}", shell.seen);
}

#[test]
fn a_command_in_a_script_can_use_the_terminal_stop_and_go_on() {
    let store = Store::sqlite();
    let mut shell = Shell::start(&store);
    shell.send(
        "sh -c 'distlock run --name n --at-most 60s -- sed -u s/^/got:/; echo wentt\"\"hrough'\n",
    );
    shell.send("one\n");
    shell.expect("got:one");
    shell.send(CTRL_Z);
    shell.expect("Stopped");
    shell.send("fg\n");
    shell.send("two\n");
    shell.expect("got:two");
    shell.send(CTRL_D);
    shell.expect("wentthrough");
}

#[test]
fn ctrl_z_in_a_script_stops_the_command_as_well() {
    let store = Store::sqlite();
    let file = store.path("pid");
    let mut shell = Shell::start(&store);
    let child = format!("echo \\$\\$ > {file}; echo re\\\"\\\"ady; exec sleep 1000");
    shell.send(&format!(
        "sh -c 'distlock run --name n --at-most 60s -- sh -c \"{child}\"; :'\n"
    ));
    shell.expect("ready");
    shell.send(CTRL_Z);
    shell.expect("Stopped");
    // The script is stopped by the terminal, the command by distlock, a moment later.
    shell.send(&format!(
        "until grep 'State:.T' /proc/$(cat {file})/status; do :; done\n"
    ));
    shell.expect("(stopped)");
}

#[test]
fn with_foreground_the_command_is_one_of_the_shells_own_job() {
    let store = Store::sqlite();
    let mut shell = Shell::start(&store);
    shell.send("distlock run --foreground --name n --at-most 60s -- sed -u s/^/got:/\n");
    shell.send("one\n");
    shell.expect("got:one");
    shell.send(CTRL_Z);
    shell.expect("Stopped");
    shell.send("fg\n");
    shell.send("two\n");
    shell.expect("got:two");
    shell.send(CTRL_D);
    shell.expect_code(0);
}

/// bash on a terminal of its own.
struct Shell {
    script: Child,
    keyboard: ChildStdin,
    screen: Receiver<Vec<u8>>,
    seen: String,
    /// Up to where the text was expected already.
    read: usize,
}

impl Shell {
    fn start(store: &Store) -> Self {
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_distlock"));
        let path = format!(
            "{}:{}",
            program.parent().unwrap().display(),
            std::env::var("PATH").unwrap()
        );
        let mut script = Command::new("env")
            .args([
                "--default-signal",
                "script",
                "-qec",
                "bash --norc --noprofile -i",
                "/dev/null",
            ])
            .env("DISTLOCK_STORE", &store.url)
            .env("TERM", "dumb")
            .env("PATH", path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script, of bsdutils, is there");
        let (sender, screen) = channel();
        let mut output = script.stdout.take().unwrap();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                let _ = sender.send(bytes[..count].to_vec());
            }
        });
        let keyboard = script.stdin.take().unwrap();
        let mut shell = Self {
            script,
            keyboard,
            screen,
            seen: String::new(),
            read: 0,
        };
        // Before its first prompt, bash may drop what was typed.
        shell.expect("bash-");
        shell.send("PS1='prompt''> '\n");
        shell.expect("prompt> ");
        shell
    }

    fn send(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the text is on the screen, below what was expected before.
    fn expect(&mut self, text: &str) {
        loop {
            if let Some(at) = self.seen[self.read..].find(text) {
                self.read += at + text.len();
                return;
            }
            let Ok(bytes) = self.screen.recv_timeout(PATIENCE) else {
                panic!("no {text:?} on the screen:\n{}", self.seen);
            };
            self.seen += &String::from_utf8_lossy(&bytes);
        }
    }

    /// Waits for the prompt, which shows that the shell is in the foreground again, and asks for the exit code.
    fn expect_code(&mut self, code: i32) {
        self.expect("prompt> ");
        self.send("echo code=$?.\n");
        self.expect(&format!("code={code}."));
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}
