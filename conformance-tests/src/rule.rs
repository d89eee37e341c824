use std::fmt;

use distlock_api::{Capabilities, Scope};

use crate::context::Context;
use crate::failure::Checked;
use crate::store::{BoxFuture, Store};

/// One numbered rule: a promise, or a part of one, and the check that a backend keeps it.
pub(crate) struct Rule {
    /// The promise's number and the rule's within it: `1.3`.
    pub(crate) id: &'static str,
    /// The check's name, which is the test's too.
    pub(crate) name: &'static str,
    /// What the rule says, as a sentence.
    pub(crate) title: &'static str,
    /// What a store must have for the rule to apply.
    pub(crate) needs: &'static [Need],
    pub(crate) check: fn(Context) -> BoxFuture<Checked>,
}

/// What a rule needs of the store or of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// The backend has tools for operators.
    Admin,
    /// The backend gives fencing tokens.
    Fencing,
    /// The backend grants ticks.
    Ticks,
    /// Records of free locks stay.
    Records,
    /// Other processes can share a lock.
    Processes,
    /// The program `faketime`.
    Faketime,
    /// The hook that deletes what the store knows of one lock.
    Forget,
    /// The hooks that open and empty another store of the same kind.
    Flush,
    /// The server is reached over a network address, and clients can be led over another.
    Link,
}

/// What the suite knows of a store when it lists its rules.
pub(crate) struct Known<'a> {
    pub(crate) store: &'a Store,
    /// The backend's claims and whether it has tools for operators; `None` where no client could be opened.
    pub(crate) client: Option<(Capabilities, bool)>,
}

impl Rule {
    /// Why the rule does not apply to a store, or `None` where it does.
    ///
    /// A store that could not be opened is excused from nothing.
    pub(crate) fn skip(&self, known: &Known<'_>) -> Option<&'static str> {
        let mut needs = self.needs.iter();
        needs.find_map(|need| need.missing(known))
    }

    /// `1.3_between_processes`
    pub(crate) fn test_name(&self) -> String {
        format!("{}_{}", self.id, self.name)
    }
}

impl Need {
    fn missing(self, known: &Known<'_>) -> Option<&'static str> {
        let (capabilities, admin) = known.client.as_ref()?;
        let (met, reason) = match self {
            Self::Admin => (*admin, "the backend has no LockAdmin"),
            Self::Fencing => (capabilities.fencing, "the backend gives no fencing tokens"),
            Self::Ticks => (capabilities.ticks, "the backend grants no ticks"),
            Self::Records => (
                capabilities.keeps_records,
                "the store keeps no records of free locks",
            ),
            Self::Processes => (
                capabilities.scope != Scope::Process,
                "the scope is one process",
            ),
            Self::Faketime => (
                program_exists("faketime"),
                "the program faketime is not installed",
            ),
            Self::Forget => (known.store.forget.is_some(), "no `forget` hook was given"),
            Self::Flush => (
                known.store.disposable.is_some(),
                "no `flush` hooks were given",
            ),
            Self::Link => (known.store.linked.is_some(), "no `link` was given"),
        };
        (!met).then_some(reason)
    }
}

fn program_exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rule").field(&self.test_name()).finish()
    }
}

/// A table of rules: id, check, what it needs, and what it says.
macro_rules! rules {
    ($($id:literal $check:ident [$($need:ident)*] $title:literal;)+) => {
        pub(super) const RULES: &[$crate::rule::Rule] = &[$($crate::rule::Rule {
            id: $id,
            name: stringify!($check),
            title: $title,
            needs: &[$($crate::rule::Need::$need),*],
            check: |context| Box::pin($check(context)),
        }),+];
    };
}

pub(crate) use rules;
