use std::fs::File;
use std::io::{self, IsTerminal};

use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::{Pid, getpgrp, getpid, getppid, getsid, tcgetpgrp, tcsetpgrp};

/// The terminal that distlock was started on, and whose foreground it lends to the child's process group.
///
/// Dropping it takes the foreground back.
pub(crate) struct Terminal {
    tty: File,
    own: Pid,
    lent: bool,
}

impl Terminal {
    /// `None` where there is no terminal.
    pub(crate) fn open() -> Option<Self> {
        let tty = File::options()
            .read(true)
            .write(true)
            .open("/dev/tty")
            .ok()?;
        Some(Self {
            tty,
            own: getpgrp(),
            lent: false,
        })
    }

    /// Whether the child should get the foreground without having asked for it.
    ///
    /// In a script or a pipeline the others need the foreground as well, for Ctrl-C among other things. There the
    /// child gets it when it reads from the terminal or changes its settings.
    pub(crate) fn is_ours_alone(&self) -> bool {
        getpid() == self.own && io::stdin().is_terminal() && io::stdout().is_terminal()
    }

    /// Makes the group the foreground one, if that is ours to give; says whether the group now is.
    pub(crate) fn lend_to(&mut self, group: Pid) -> bool {
        match tcgetpgrp(&self.tty) {
            Ok(present) if present == group => true,
            Ok(present) if present == self.own => {
                self.lent = self.set_foreground(group);
                self.lent
            }
            _ => {
                // Somebody else, such as the shell, has taken it: it is not ours to take back.
                self.lent = false;
                false
            }
        }
    }

    /// Makes distlock's own group the foreground one again, if it had lent it.
    fn take_back(&mut self) {
        if self.lent {
            self.lent = !self.set_foreground(self.own);
        }
    }

    /// Takes the foreground back and stops distlock's own group, as Ctrl-Z does, until somebody continues it. Returns
    /// whether that was possible: without a shell above us nobody would.
    pub(crate) fn stop_ourselves(&mut self) -> bool {
        self.take_back();
        let (parent, own) = (getsid(Some(getppid())), getsid(None));
        let under_a_shell = own != Ok(getpid()) && parent == own;
        under_a_shell && kill(Pid::from_raw(0), Signal::SIGSTOP).is_ok()
    }

    /// A process in the background that does this gets SIGTTOU, and is stopped by it unless it blocks it.
    fn set_foreground(&self, group: Pid) -> bool {
        let mut ttou = SigSet::empty();
        ttou.add(Signal::SIGTTOU);
        let blocked = ttou.thread_block();
        let done = tcsetpgrp(&self.tty, group);
        if blocked.is_ok() {
            let _ = ttou.thread_unblock();
        }
        done.is_ok()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take_back();
    }
}
