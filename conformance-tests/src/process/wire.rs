//! Questions and answers as lines of text. Names and owners have no control characters, so that tabs part the fields.

use std::fmt::Write as _;
use std::time::Duration;

use distlock_api::{
    AcquireRequest, Attempt, Error, ErrorKind, FencingToken, Held, LeaseId, LockName, Release,
    Renewal, Result, Token,
};

use crate::history::Contest;

/// What a second process is asked to do.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    Acquire(AcquireRequest),
    Renew(LeaseId, Duration),
    Release(LeaseId, Duration),
    /// To take a free lock and to hold it, with a watchdog of this ttl.
    Hold(LockName, Duration),
    /// What its lock is to the holder.
    Look,
    Contend(Contest),
}

/// What a holder says of its lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) remaining: Duration,
    /// Why, if it is lost.
    pub(crate) lost: Option<String>,
}

/// That it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done;

impl Question {
    pub(crate) fn write(&self) -> String {
        match self {
            Self::Acquire(request) => {
                let lease = write_lease(&request.lease_id(), request.lease);
                format!(
                    "acquire\t{lease}\t{}\t{}",
                    request.owner,
                    write_option(request.tick)
                )
            }
            Self::Renew(lease, ttl) => format!("renew\t{}", write_lease(lease, *ttl)),
            Self::Release(lease, linger) => format!("release\t{}", write_lease(lease, *linger)),
            Self::Hold(name, ttl) => format!("hold\t{name}\t{}", ttl.as_micros()),
            Self::Look => "look".to_owned(),
            Self::Contend(contest) => format!(
                "contend\t{}\t{}\t{}\t{}\t{}",
                contest.name,
                contest.ttl.as_micros(),
                contest.length.as_micros(),
                contest.by,
                contest.folder.display()
            ),
        }
    }

    pub(crate) fn read(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split('\t').collect();
        match fields.as_slice() {
            ["look"] => Some(Self::Look),
            ["hold", name, ttl] => Some(Self::Hold(LockName::new(name).ok()?, read_time(ttl)?)),
            ["contend", name, ttl, length, by, folder] => Some(Self::Contend(Contest {
                name: LockName::new(name).ok()?,
                ttl: read_time(ttl)?,
                length: read_time(length)?,
                by: by.parse().ok()?,
                folder: folder.into(),
            })),
            [verb, name, token, micros, rest @ ..] => {
                let lease = LeaseId {
                    name: LockName::new(name).ok()?,
                    token: Token::from_bytes(u128::from_str_radix(token, 16).ok()?.to_be_bytes()),
                };
                Self::about(verb, lease, read_time(micros)?, rest)
            }
            _ => None,
        }
    }

    /// A call about one lease.
    fn about(verb: &str, lease: LeaseId, length: Duration, rest: &[&str]) -> Option<Self> {
        match (verb, rest) {
            ("acquire", [owner, tick]) => {
                let mut request = AcquireRequest::new(lease.name, *owner, length);
                request.token = lease.token;
                request.tick = read_option(tick)?;
                Some(Self::Acquire(request))
            }
            ("renew", []) => Some(Self::Renew(lease, length)),
            ("release", []) => Some(Self::Release(lease, length)),
            _ => None,
        }
    }
}

/// An answer of the store as a line, and back.
pub(crate) trait Answer: Sized {
    fn write(&self) -> String;
    fn read(fields: &[&str]) -> Option<Self>;
}

impl Answer for Attempt {
    fn write(&self) -> String {
        match self {
            Self::Acquired { fencing_token } => {
                let fence = fencing_token.map(FencingToken::value);
                format!("acquired\t{}", write_option(fence))
            }
            Self::Held(held) => {
                let left = held.remaining.map(|left| left.as_micros());
                let (by, left) = (write_option(held.by.as_ref()), write_option(left));
                format!("held\t{by}\t{left}\t{}", held.resting)
            }
            Self::TickDone { last } => format!("tick_done\t{last}"),
        }
    }

    fn read(fields: &[&str]) -> Option<Self> {
        Some(match fields {
            ["acquired", fence] => Self::Acquired {
                fencing_token: read_option(fence)?.map(FencingToken::new),
            },
            ["held", by, left, resting] => Self::Held(Held {
                by: read_option(by)?,
                remaining: read_option(left)?.map(Duration::from_micros),
                resting: resting.parse().ok()?,
            }),
            ["tick_done", last] => Self::TickDone {
                last: last.parse().ok()?,
            },
            _ => return None,
        })
    }
}

impl Answer for Renewal {
    fn write(&self) -> String {
        match self {
            Self::Renewed => "renewed".to_owned(),
            Self::Lost { to } => format!("lost\t{}", write_option(to.as_ref())),
        }
    }

    fn read(fields: &[&str]) -> Option<Self> {
        Some(match fields {
            ["renewed"] => Self::Renewed,
            ["lost", to] => Self::Lost {
                to: read_option(to)?,
            },
            _ => return None,
        })
    }
}

impl Answer for Release {
    fn write(&self) -> String {
        match self {
            Self::Released => "released".to_owned(),
            Self::NotHeld { by } => format!("not_held\t{}", write_option(by.as_ref())),
        }
    }

    fn read(fields: &[&str]) -> Option<Self> {
        Some(match fields {
            ["released"] => Self::Released,
            ["not_held", by] => Self::NotHeld {
                by: read_option(by)?,
            },
            _ => return None,
        })
    }
}

impl Answer for Look {
    fn write(&self) -> String {
        let lost = write_option(self.lost.as_ref());
        format!("look\t{}\t{lost}", self.remaining.as_micros())
    }

    fn read(fields: &[&str]) -> Option<Self> {
        match fields {
            ["look", remaining, lost] => Some(Self {
                remaining: read_time(remaining)?,
                lost: read_option(lost)?,
            }),
            _ => None,
        }
    }
}

impl Answer for Done {
    fn write(&self) -> String {
        "done".to_owned()
    }

    fn read(fields: &[&str]) -> Option<Self> {
        (fields == ["done"]).then_some(Self)
    }
}

/// An answer as it is, or an error, of which only this much is told: whether the call ran into its limit.
pub(crate) fn write_result(answer: Result<String>) -> String {
    answer.unwrap_or_else(|error| match error.kind() {
        ErrorKind::Timeout => format!("timeout\t{error}"),
        _ => format!("error\t{error}"),
    })
}

pub(crate) fn read_result(line: &str) -> Result<&str> {
    match line.split_once('\t') {
        Some(("timeout", text)) => Err(Error::new(ErrorKind::Timeout, text)),
        Some(("error", text)) => Err(Error::new(ErrorKind::Unexpected, text)),
        _ => Ok(line),
    }
}

fn write_lease(lease: &LeaseId, length: Duration) -> String {
    let token = u128::from_be_bytes(*lease.token.as_bytes());
    format!("{}\t{token:032x}\t{}", lease.name, length.as_micros())
}

fn read_time(micros: &str) -> Option<Duration> {
    Some(Duration::from_micros(micros.parse().ok()?))
}

/// `-` for nothing, and `=` before whatever there is.
fn write_option(value: Option<impl std::fmt::Display>) -> String {
    let mut text = String::from("-");
    if let Some(value) = value {
        text.clear();
        let _ = write!(text, "={value}");
    }
    text
}

fn read_option<T: std::str::FromStr>(field: &str) -> Option<Option<T>> {
    match field.strip_prefix('=') {
        Some(value) => value.parse().ok().map(Some),
        None => (field == "-").then_some(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_survive_the_way() {
        let name = LockName::new("a b=-\u{1f512}").unwrap();
        let mut request = AcquireRequest::new(name, "-", Duration::from_micros(7));
        request.tick = Some(i64::MIN);
        let lease = request.lease_id();
        let line = Question::Acquire(request).write();
        let Some(Question::Acquire(read)) = Question::read(&line) else {
            panic!("{line}");
        };
        assert_eq!((read.lease_id(), read.owner.as_str()), (lease, "-"));
        assert_eq!(
            (read.lease, read.tick),
            (Duration::from_micros(7), Some(i64::MIN))
        );
    }

    #[test]
    fn questions_to_a_holder_survive_the_way() {
        let name = LockName::new("a b").unwrap();
        let contest = Contest {
            name: name.clone(),
            ttl: Duration::from_micros(1),
            length: Duration::from_micros(2),
            by: 3,
            folder: "/a folder/with spaces".into(),
        };
        let line = Question::Contend(contest.clone()).write();
        assert!(matches!(Question::read(&line), Some(Question::Contend(read)) if read == contest));
        let line = Question::Hold(name.clone(), Duration::from_micros(4)).write();
        assert!(matches!(Question::read(&line), Some(Question::Hold(read, _)) if read == name));
        assert!(matches!(
            Question::read(&Question::Look.write()),
            Some(Question::Look)
        ));
    }

    #[test]
    fn errors_survive_the_way() {
        for kind in [ErrorKind::Timeout, ErrorKind::Unexpected] {
            let line = write_result(Err(Error::new(kind, "too bad")));
            let error = read_result(&line).unwrap_err();
            assert_eq!(error.kind(), kind);
            assert!(error.message().starts_with("too bad"), "{error}");
        }
        assert_eq!(read_result("released").ok(), Some("released"));
    }

    #[test]
    fn answers_survive_the_way() {
        let held = Attempt::Held(Held {
            by: Some("=-".to_owned()),
            remaining: Some(Duration::from_micros(3)),
            resting: true,
        });
        for attempt in [
            held,
            Attempt::Held(Held::default()),
            Attempt::TickDone { last: -1 },
        ] {
            let line = attempt.write();
            let fields: Vec<_> = line.split('\t').collect();
            assert_eq!(Attempt::read(&fields), Some(attempt));
        }
    }
}
