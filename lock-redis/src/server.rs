//! The connection to the server: one, shared by all calls, opened when needed and again when it broke.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use distlock_api::exchange::{Answered, Doubt};
use distlock_api::{Effect, Error, ErrorKind, Findings, Result, Severity, clock};
use redis::Value;

use crate::connection::{Connection, Source};
use crate::error;
use crate::statements::Call;

/// The server, as far as there is a connection to it.
pub(crate) struct Server {
    source: Source,
    limit: Duration,
    kept: Mutex<Option<Arc<Connection>>>,
    opening: tokio::sync::Mutex<()>,
}

/// The answers to several calls, in their order. The doubt is about all of them.
pub(crate) type Answers = Answered<Vec<Result<Value>>>;

impl Server {
    /// `limit` is what a call may take, for the connecting and for the answer.
    pub(crate) fn new(source: Source, limit: Duration) -> Self {
        Self {
            source,
            limit,
            kept: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Whose rights count, where that is known.
    pub(crate) fn user(&self) -> Option<&str> {
        match &self.source {
            Source::Client(client) => {
                let settings = client.get_connection_info().redis_settings();
                Some(settings.username().unwrap_or("default"))
            }
            Source::Pool(_) | Source::Given(_) => None,
        }
    }

    pub(crate) fn has_own_connections(&self) -> bool {
        !matches!(self.source, Source::Given(_))
    }

    /// Makes sure that there is a connection.
    pub(crate) async fn connect(&self) -> Result<()> {
        self.connection().await.map(|_| ())
    }

    /// Sends the calls in one go. They are sent once more if a connection that was open before turns out dead, and
    /// must give the same then.
    ///
    /// # Cancel safety
    ///
    /// Safe for the connection: the driver drops an answer that nobody waits for.
    pub(crate) async fn run(&self, calls: &[Call]) -> Result<Answers> {
        let (connection, fresh) = self.connection().await?;
        match self.send(&connection, calls).await {
            Ok(answer) => Ok(Answers {
                answer,
                doubt: None,
            }),
            Err(first) if fresh || first.kind() == ErrorKind::Timeout => Err(first),
            Err(first) if !self.has_own_connections() => Err(first),
            Err(first) => {
                let again = async {
                    let (connection, _) = self.connection().await?;
                    self.send(&connection, calls).await
                };
                let answer = again.await.map_err(|e| e.with_effect(Effect::Unknown))?;
                Ok(Answers {
                    answer,
                    doubt: Some(Doubt {
                        error: first,
                        // It was sent, and no answer came.
                        may_still_run: true,
                    }),
                })
            }
        }
    }

    async fn send(
        &self,
        connection: &Arc<Connection>,
        calls: &[Call],
    ) -> Result<Vec<Result<Value>>> {
        let sent = async {
            let mut values = connection.ask(calls.iter().map(Call::first_try)).await?;
            let unknown: Vec<usize> = (0..calls.len())
                .filter(|i| is_unknown_script(&values[*i]))
                .collect();
            if let Some((first, others)) = unknown.split_first() {
                let first = calls[*first].by_text();
                let others = others.iter().map(|i| calls[*i].by_digest());
                let again = connection.ask(std::iter::once(first).chain(others)).await?;
                for (i, value) in unknown.into_iter().zip(again) {
                    values[i] = value;
                }
            }
            Ok(values)
        };
        let values = match sent.await {
            Ok(values) => values,
            Err(error) => {
                self.forget(connection);
                return Err(self.no_answer(&error));
            }
        };
        let results: Vec<_> = values
            .into_iter()
            .zip(calls)
            .map(|(value, call)| error::answer(value, call.key()))
            .collect();
        let errors = results.iter().filter_map(|result| result.as_ref().err());
        if errors.map(Error::kind).any(is_wrong_server) {
            self.forget(connection);
        }
        Ok(results)
    }

    /// Lets the next call open another connection, if the server may be the wrong one for what was found.
    pub(crate) fn judge(&self, findings: &Findings) {
        let mut faults = findings.iter().filter(|f| f.severity == Severity::Fault);
        if faults.any(|fault| is_wrong_server(fault.kind)) {
            *self.kept() = None;
        }
    }

    fn no_answer(&self, error: &redis::RedisError) -> Error {
        match self.source {
            Source::Given(_) if !error.is_timeout() => Error::new(
                ErrorKind::Unavailable,
                format!(
                    "the connection that the backend was given broke, and it cannot open another: {error}"
                ),
            ),
            _ => error::no_answer(error),
        }
    }

    /// The connection, and whether it was opened for this call.
    async fn connection(&self) -> Result<(Arc<Connection>, bool)> {
        if let Some(connection) = self.alive() {
            return Ok((connection, false));
        }
        let open = async {
            let _one_at_a_time = self.opening.lock().await;
            if let Some(connection) = self.alive() {
                return Ok((connection, false));
            }
            let connection = Arc::new(self.source.open(self.limit).await?);
            *self.kept() = Some(Arc::clone(&connection));
            Ok((connection, true))
        };
        // A little earlier than whoever limits the call, so that they learn that nothing was sent.
        let limit = self.limit - self.limit / 10;
        clock::timeout(limit, open)
            .await
            .unwrap_or_else(|| Err(error::not_connected_within(limit)))
    }

    /// The kept connection, unless it has been silent for too long and there can be another.
    fn alive(&self) -> Option<Arc<Connection>> {
        let usable = |c: &&Arc<Connection>| !(c.is_silent() && self.has_own_connections());
        self.kept().as_ref().filter(usable).cloned()
    }

    fn forget(&self, connection: &Arc<Connection>) {
        let mut kept = self.kept();
        if kept.as_ref().is_some_and(|k| Arc::ptr_eq(k, connection)) {
            *kept = None;
        }
    }

    fn kept(&self) -> MutexGuard<'_, Option<Arc<Connection>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_unknown_script(value: &Value) -> bool {
    matches!(value, Value::ServerError(error) if error.code() == "NOSCRIPT")
}

/// After a failover or a change of passwords the address may lead to a better server.
fn is_wrong_server(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ReadOnly | ErrorKind::Denied)
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = match &self.source {
            Source::Client(client) => client.get_connection_info().addr().to_string(),
            Source::Pool(_) => "of a pool".to_owned(),
            Source::Given(_) => "of a given connection".to_owned(),
        };
        f.debug_struct("Server")
            .field("address", &address)
            .field("connected", &self.kept().is_some())
            .field("limit", &self.limit)
            .finish()
    }
}
