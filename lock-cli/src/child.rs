use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpgrp};

use crate::exit::{Exit, Failure};
use crate::output::visible;
use crate::terminal::Terminal;

/// The process under the lock.
pub(crate) struct Child {
    pid: Pid,
    /// Its own process group, unless it runs in distlock's.
    group: Option<Pid>,
    terminal: Option<Terminal>,
}

impl Child {
    /// Starts the command: in a process group of its own, so that a signal reaches whatever it starts in turn, and in
    /// the terminal's foreground; or with `foreground` in distlock's group.
    pub(crate) fn spawn(mut command: Command, foreground: bool) -> Result<Self, Failure> {
        if !foreground {
            command.process_group(0);
        }
        let spawned = command.spawn().map_err(|error| refused(&command, &error))?;
        let pid = Pid::from_raw(spawned.id().cast_signed());
        let mut child = Self {
            pid,
            group: (!foreground).then_some(pid),
            terminal: Terminal::open(),
        };
        if let (Some(group), Some(terminal)) = (child.group, &mut child.terminal)
            && terminal.is_ours_alone()
        {
            terminal.lend_to(group);
        }
        Ok(child)
    }

    /// Sends a signal to the child's group. That it has just ended is no failure.
    pub(crate) fn send(&self, signal: Signal) {
        let _ = match self.group {
            Some(group) => killpg(group, signal),
            None => kill(self.pid, signal),
        };
    }

    /// Whether anything in the child's own group is left: for when the child itself has ended.
    pub(crate) fn group_is_left(&self) -> bool {
        self.group.is_some_and(|group| {
            reap(group);
            killpg(group, None).is_ok()
        })
    }

    /// Goes through what happened to the child since the last time; how it ended, if it has.
    ///
    /// A child that the terminal has stopped takes distlock with it, as the shell that started distlock expects.
    pub(crate) fn catch_up(&mut self) -> Result<Option<Exit>, Failure> {
        loop {
            match waitpid(
                self.pid,
                Some(WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED),
            ) {
                Ok(WaitStatus::Exited(_, code)) => {
                    return Ok(Some(Exit::Child(u8::try_from(code).unwrap_or(u8::MAX))));
                }
                Ok(WaitStatus::Signaled(_, signal, _)) => {
                    return Ok(Some(Exit::Signal(signal as i32)));
                }
                Ok(WaitStatus::Stopped(_, by)) => self.stopped(by),
                Ok(_) => return Ok(None),
                Err(Errno::EINTR) => {}
                Err(error) => {
                    return Err(Failure::new(format!(
                        "cannot wait for the command: {error}"
                    )));
                }
            }
        }
    }

    /// distlock was continued, and so is the child.
    pub(crate) fn resume(&mut self) {
        let terminal = self.terminal.as_mut();
        if let (Some(group), Some(terminal)) = (self.group, terminal) {
            terminal.lend_to(group);
        }
        self.send(Signal::SIGCONT);
    }

    fn stopped(&mut self, by: Signal) {
        let wants_terminal = matches!(by, Signal::SIGTTIN | Signal::SIGTTOU);
        // SIGSTOP is an administrator's or a debugger's, not job control: no shell waits for us to stop as well.
        if by != Signal::SIGTSTP && !wants_terminal {
            return;
        }
        // Without a terminal there is no shell that could continue us, and the end of the lock must be watched.
        let Some(terminal) = &mut self.terminal else {
            return;
        };
        let group = self.group.unwrap_or_else(getpgrp);
        if wants_terminal && terminal.lend_to(group) {
            return self.send(Signal::SIGCONT);
        }
        // While we are stopped nobody watches the end of the lock: a member that ignores the terminal's stop must not
        // run on.
        self.send(Signal::SIGSTOP);
        if !self.terminal.as_mut().is_some_and(Terminal::stop_ourselves) {
            self.resume();
        }
    }
}

/// As process 1, or as a "subreaper", distlock is the parent of every orphan: those of the group that have ended would
/// stay in it.
fn reap(group: Pid) {
    let any_member = Pid::from_raw(-group.as_raw());
    loop {
        match waitpid(any_member, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}

/// Why a command could not be started, in the terms of every shell: 127 not found, 126 found but not executable.
fn refused(command: &Command, error: &io::Error) -> Failure {
    let program = visible(&command.get_program().to_string_lossy());
    let (exit, text) = match error.kind() {
        io::ErrorKind::NotFound => (
            Exit::NotFound,
            format!(
                "\"{program}\" was not found: check the name, PATH and the interpreter in its first line"
            ),
        ),
        _ => (
            Exit::NotExecutable,
            format!("\"{program}\" cannot be executed: {error}"),
        ),
    };
    Failure::ending(exit, text)
}
