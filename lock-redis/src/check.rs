//! What keeps the server from holding locks, or weakens a promise. It touches no lock.

use distlock_api::{Effect, Error, ErrorKind, Finding, Findings, Result};
use redis::{FromRedisValue, Value};

use crate::backend::RedisBackend;
use crate::error;
use crate::statements::{CHECK, Call};

/// The oldest server whose scripts do what ours need.
const OLDEST: (u32, u32) = (6, 2);

/// What is right on a server that does not have it, and denied on one that has it.
const OPTIONAL: &str = "pexpiretime";

impl RedisBackend {
    /// Looks at the server: one round trip, or two where the keys may not be used.
    pub(crate) async fn look(&self) -> Result<Findings> {
        self.look_by(&["eval", "evalsha"]).await
    }

    /// The same by one call, for the first lock call: it finds out for itself whether scripts may be sent by their digests.
    pub(crate) async fn look_first(&self) -> Result<Findings> {
        self.look_by(&["eval"]).await
    }

    async fn look_by(&self, commands: &[&str]) -> Result<Findings> {
        let findings = self.look_at_all(commands).await;
        let findings = findings.map_err(|e| e.with_effect(Effect::None))?;
        self.server.judge(&findings);
        Ok(findings)
    }

    /// Sends the script by each of these commands.
    async fn look_at_all(&self, commands: &[&str]) -> Result<Findings> {
        let mut rights = Rights::default();
        let mut findings = Findings::default();
        let call = || Call::on(self.prefix.spare_key(), &CHECK);
        // By its text first, so that the right to send that is not found missing when the server has forgotten a script.
        let calls = [call().in_full(), call()];
        let values = self.ask_all(&calls[..commands.len()]).await?;
        let mut seen = None;
        for (command, value) in commands.iter().zip(values) {
            match value {
                Ok(value) => seen = Some(value),
                Err(error) => match Refusal::of(&error) {
                    Refusal::Command => rights.commands.push((*command).to_owned()),
                    Refusal::Keys => rights.keys = true,
                    Refusal::Other(fault) => add(&mut findings, fault),
                    Refusal::NotNow => return Err(error),
                },
            }
        }
        if rights.keys {
            seen = self.look_without_key().await?;
        }
        let seen = seen.map(Seen::read).transpose()?;
        if let Some(seen) = &seen {
            seen.faults(&mut rights, &mut findings);
        }
        findings.extend(rights.missing(self));
        if let Some(seen) = &seen {
            seen.warnings(&rights, self, &mut findings);
        }
        Ok(findings)
    }

    /// What is to be seen where the keys may not be used.
    async fn look_without_key(&self) -> Result<Option<Value>> {
        let call = Call::without_key(&CHECK).arg(self.prefix.spare_key());
        let value = self.ask_all(&[call]).await?.into_iter().next();
        Ok(value.and_then(Result::ok))
    }

    /// What grants these rights, also after the server's next start.
    fn grant(&self, rights: &[String]) -> String {
        let rights = rights.join(" ");
        let grant = match self.server.user() {
            Some(user) => format!("ACL SETUSER {} {rights}", user.escape_debug()),
            None => format!("grant the connection's user {rights}, by ACL SETUSER"),
        };
        format!("{grant}\nthen make it last: ACL SAVE, or CONFIG REWRITE where no aclfile is set")
    }

    /// What grants the right to the keys of locks.
    fn grant_keys(&self) -> String {
        match self.prefix.rights() {
            Some(pattern) => self.grant(&[pattern]),
            None => "no right to keys can have a blank in it: choose a lock_prefix without blanks"
                .to_owned(),
        }
    }
}

/// Faults of one cause are told once.
fn add(findings: &mut Findings, fault: Finding) {
    if findings.iter().all(|finding| *finding != fault) {
        findings.push(fault);
    }
}

/// Why the script was not run.
enum Refusal {
    /// The user may not run this command.
    Command,
    /// The user may not use these keys.
    Keys,
    /// What has to be mended first.
    Other(Finding),
    /// The server cannot be looked at: it does not let us in, or is not ready.
    NotNow,
}

impl Refusal {
    fn of(error: &Error) -> Self {
        let Some(text) = error.driver_error().map(ToString::to_string) else {
            return Self::NotNow;
        };
        match error.kind() {
            ErrorKind::Denied if !text.starts_with("NOPERM") => Self::NotNow,
            ErrorKind::Denied if is_about_keys(&text) => Self::Keys,
            ErrorKind::Denied => Self::Command,
            ErrorKind::Config | ErrorKind::ReadOnly => Self::Other(error::fault(&text)),
            _ => Self::NotNow,
        }
    }
}

/// What servers say of keys that may not be used: Redis since 7.2 and Valkey, Redis 6.2 to 7.0 of scripts, and of commands.
/// A user's name may be in the text, and has no blank in it.
const ABOUT_KEYS: [&str; 3] = [
    "permissions to access a key",
    "can't access at least one of the keys",
    "permissions to access one of the keys",
];

fn is_about_keys(text: &str) -> bool {
    ABOUT_KEYS.iter().any(|part| text.contains(part))
}

/// The rights that the user lacks.
#[derive(Default)]
struct Rights {
    keys: bool,
    commands: Vec<String>,
    /// The user may not run the command that is used only where there is one.
    optional: bool,
}

impl Rights {
    fn missing(&self, backend: &RedisBackend) -> Vec<Finding> {
        let mut missing = Vec::new();
        if !self.commands.is_empty() {
            let rights: Vec<_> = self.commands.iter().map(|c| format!("+{c}")).collect();
            missing.push(Finding::fault(
                ErrorKind::Denied,
                format!("the user may not run {}", self.commands.join(", ")),
                backend.grant(&rights),
            ));
        }
        if self.keys {
            let keys = backend.prefix.pattern_of_all();
            missing.push(Finding::fault(
                ErrorKind::Denied,
                format!("the user may not use the keys {keys}"),
                backend.grant_keys(),
            ));
        }
        missing
    }
}

/// What `check.lua` saw.
struct Seen {
    info: Option<String>,
    /// Why there is no INFO.
    refusal: Option<String>,
    /// Commands, and why they failed.
    failures: Vec<(String, String)>,
}

impl Seen {
    fn read(value: Value) -> Result<Self> {
        let read =
            <(Option<String>, Option<String>, Vec<(String, String)>)>::from_redis_value(value);
        let (info, refusal, failures) = read.map_err(|e| error::no_answer(&e.into()))?;
        Ok(Self {
            info,
            refusal,
            failures,
        })
    }

    fn faults(&self, rights: &mut Rights, findings: &mut Findings) {
        findings.extend(self.info.iter().flat_map(|info| faults_of(info)));
        for (command, text) in &self.failures {
            match error::kind(text) {
                Some(ErrorKind::Denied) if is_about_keys(text) => rights.keys = true,
                Some(ErrorKind::Denied) if command == OPTIONAL => rights.optional = true,
                Some(ErrorKind::Denied) => rights.commands.push(command.clone()),
                _ if command == OPTIONAL => {}
                _ => add(findings, error::fault(text)),
            }
        }
    }

    fn warnings(&self, rights: &Rights, backend: &RedisBackend, findings: &mut Findings) {
        if rights.optional {
            findings.push(Finding::warning(
                format!("the user may not run {OPTIONAL}, so that each grant adds to the ACL log"),
                backend.grant(&[format!("+{OPTIONAL}")]),
            ));
        }
        if let Some(info) = &self.info {
            findings.extend(warnings_of(info));
        } else {
            let refusal = self.refusal.as_deref().unwrap_or("no answer");
            let look = "see for yourself that it is a primary with appendonly yes and maxmemory-policy noeviction";
            let fix = match error::kind(refusal) {
                Some(ErrorKind::Denied) => {
                    format!("{}\nor {look}", backend.grant(&["+info".to_owned()]))
                }
                // It has no INFO, for whoever it may be.
                _ => look.to_owned(),
            };
            let what = format!("the server does not show its settings ({refusal})");
            findings.push(Finding::warning(what, fix));
        }
    }
}

fn faults_of(info: &str) -> Vec<Finding> {
    let mut faults = Vec::new();
    if field(info, "role") == Some("slave") {
        faults.push(Finding::fault(
            ErrorKind::ReadOnly,
            "the server is a replica",
            "use the primary",
        ));
    }
    let version = field(info, "redis_version").unwrap_or_default();
    if numbers(version).is_some_and(|numbers| numbers < OLDEST) {
        let (major, minor) = OLDEST;
        faults.push(Finding::fault(
            ErrorKind::Config,
            format!("the server is Redis {version}, which is too old"),
            format!("install Redis {major}.{minor} or newer, or Valkey"),
        ));
    }
    faults
}

/// Said of what can be seen with the right to INFO alone, and only where something can be done about it: that a failover to
/// a replica may forget locks is so wherever there is one.
fn warnings_of(info: &str) -> Vec<Finding> {
    let mut warnings = Vec::new();
    let policy = field(info, "maxmemory_policy").unwrap_or("noeviction");
    let is_bounded = field(info, "maxmemory").is_some_and(|bytes| bytes != "0");
    if is_bounded && policy != "noeviction" {
        warnings.push(Finding::warning(
            format!(
                "the server throws keys away when its memory is full, locks too (maxmemory-policy {policy})"
            ),
            "CONFIG SET maxmemory-policy noeviction\nand set the same in redis.conf",
        ));
    }
    if field(info, "aof_enabled") == Some("0") {
        warnings.push(Finding::warning(
            "the server logs no writes, so that a crash makes it forget the locks granted since its last snapshot, if it makes any (appendonly no)",
            "CONFIG SET appendonly yes\nand set the same in redis.conf",
        ));
    }
    if field(info, "cluster_enabled") == Some("1") {
        warnings.push(Finding::warning(
            "the server is a node of a cluster, and locks whose keys live on other nodes fail unless a cluster proxy stands before it",
            "connect through a cluster proxy, or give the locks a server of their own",
        ));
    }
    warnings
}

/// A line of INFO.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let value = |line: &'a str| line.strip_prefix(name)?.strip_prefix(':');
    info.lines().find_map(value).map(str::trim)
}

fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the servers say it, from a script and without one. The newer ones tell whose right it is.
    #[test]
    fn keys_are_missed_where_the_server_says_so_and_not_where_a_user_is_named_after_them() {
        for (text, is_of_keys) in [
            (
                "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments script: 0a, on @user_script:9.",
                true,
            ),
            (
                "NOPERM this user has no permissions to access one of the keys used as arguments",
                true,
            ),
            (
                "ERR ACL failure in script: No permissions to access a key script: 0a, on @user_script:9.",
                true,
            ),
            ("NOPERM No permissions to access a key", true),
            (
                "ERR The user executing the script can't run this command or subcommand script: 0a, on @user_script:9.",
                false,
            ),
            (
                "NOPERM this user has no permissions to run the 'get' command or its subcommand",
                false,
            ),
            (
                "ERR ACL failure in script: User keycloak has no permissions to run the 'get' command script: 0a, on @user_script:9.",
                false,
            ),
            (
                "NOPERM User can't-access-a-key has no permissions to run the 'eval' command",
                false,
            ),
        ] {
            assert_eq!(error::kind(text), Some(ErrorKind::Denied), "{text}");
            assert_eq!(is_about_keys(text), is_of_keys, "{text}");
        }
    }

    #[test]
    fn a_version_is_too_old_only_if_it_can_be_read_and_is() {
        for (version, is_too_old) in [
            ("5.0.14", true),
            ("6.0.16", true),
            ("6.2.0", false),
            ("7.0.15", false),
            ("10.1.0", false),
            ("unstable", false),
        ] {
            let faults = faults_of(&format!("# Server\r\nredis_version:{version}\r\n"));
            assert_eq!(!faults.is_empty(), is_too_old, "{version}");
        }
        let faults = faults_of("redis_version:6.0.16\r\n");
        assert_eq!(
            faults[0].to_string(),
            "the server is Redis 6.0.16, which is too old: install Redis 6.2 or newer, or Valkey"
        );
    }

    #[test]
    fn a_server_that_says_nothing_of_its_settings_is_not_complained_about() {
        assert_eq!(faults_of(""), []);
        assert_eq!(warnings_of(""), []);
    }

    #[test]
    fn eviction_matters_only_where_memory_is_bounded() {
        let policy = "maxmemory_policy:volatile-ttl\r\n";
        assert_eq!(warnings_of(&format!("maxmemory:0\r\n{policy}")), []);
        assert_eq!(warnings_of(&format!("maxmemory:1\r\n{policy}")).len(), 1);
    }
}
