//! The Lua scripts. Each is one command on the wire, whatever it does at the server.

use std::sync::LazyLock;

use redis::{Cmd, Script};

macro_rules! statements {
    ($($name:ident = $file:literal;)*) => {
        $(pub(crate) static $name: LazyLock<Statement> =
            LazyLock::new(|| Statement::new(include_str!(concat!("statements/", $file))));)*
    };
}

statements! {
    ACQUIRE = "acquire.lua";
    CHECK = "check.lua";
    FORCE_RELEASE = "force_release.lua";
    INSPECT = "inspect.lua";
    LIST = "list.lua";
    RELEASE = "release.lua";
    RENEW = "renew.lua";
}

/// A script, and the digest by which a server that has seen it knows it.
#[derive(Debug)]
pub(crate) struct Statement {
    text: &'static str,
    digest: String,
}

impl Statement {
    fn new(text: &'static str) -> Self {
        Self {
            digest: Script::new(text).get_hash().to_owned(),
            text,
        }
    }
}

/// One run of a script, on the keys of one lock.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    statement: &'static Statement,
    key: Option<String>,
    arguments: Vec<Vec<u8>>,
    in_full: bool,
}

impl Call {
    pub(crate) fn on(key: String, statement: &'static Statement) -> Self {
        Self {
            statement,
            key: Some(key),
            arguments: Vec::new(),
            in_full: false,
        }
    }

    pub(crate) fn without_key(statement: &'static Statement) -> Self {
        Self {
            statement,
            key: None,
            arguments: Vec::new(),
            in_full: false,
        }
    }

    pub(crate) fn arg(mut self, argument: impl Into<Vec<u8>>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Sends the text at once, without a try whether the server knows it.
    pub(crate) fn in_full(mut self) -> Self {
        self.in_full = true;
        self
    }

    /// The key that the call is about, for errors.
    pub(crate) fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    pub(crate) fn first_try(&self) -> Cmd {
        match self.in_full {
            true => self.by_text(),
            false => self.by_digest(),
        }
    }

    pub(crate) fn by_digest(&self) -> Cmd {
        self.command("EVALSHA", &self.statement.digest)
    }

    /// Sends the whole text, which the server then knows by its digest.
    pub(crate) fn by_text(&self) -> Cmd {
        self.command("EVAL", self.statement.text)
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let parts = self.arguments.iter().map(Vec::len);
        let key = self.key.as_ref().map_or(0, String::len);
        let size = name.len() + script.len() + "1".len() + key + parts.sum::<usize>();
        let mut command = Cmd::with_capacity(4 + self.arguments.len(), size);
        command.arg(name).arg(script);
        command.arg(usize::from(self.key.is_some()));
        command.arg(&self.key).arg(&self.arguments);
        command
    }
}
