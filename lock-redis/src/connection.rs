//! A connection: where it comes from, how it is opened, and what is sent on it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use deadpool::managed::Manager;
use distlock_api::clock::Instant;
use distlock_api::options::MAX_IDLE;
use distlock_api::{Effect, Result};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, Pipeline, ProtocolVersion,
    RedisConnectionInfo, RedisResult, Value,
};

use crate::error;

/// After this long without any answer a connection is left to those who wait on it, and the next call opens another:
/// packets that vanish would hold it up for minutes.
const SILENCE: Duration = Duration::from_secs(1);

/// Where connections come from.
#[derive(Clone)]
pub(crate) enum Source {
    /// Opened by us.
    Client(Client),
    /// Opened as the pool would, but never taken from it: its users cannot hold us up, nor we them.
    Pool(deadpool_redis::Pool),
    /// The one that was given.
    Given(MultiplexedConnection),
}

impl Source {
    /// What to call the server in an error.
    fn server(&self) -> String {
        match self {
            Self::Client(client) => client.get_connection_info().addr().to_string(),
            Self::Pool(_) | Self::Given(_) => "the server".to_owned(),
        }
    }

    /// Opens a connection on which the server has answered, and that waits for answers no longer than `limit`.
    pub(crate) async fn open(&self, limit: Duration) -> Result<Connection> {
        let (opened, log_in) = match self {
            Self::Client(client) => (open(client, limit).await, log_in(client)),
            Self::Pool(pool) => (pool.manager().create().await, Vec::new()),
            Self::Given(driver) => return Ok(Connection::new(driver.clone(), limit)),
        };
        let server = self.server();
        let driver = opened.map_err(|e| error::not_connected(&e, &server))?;
        let connection = Connection::new(driver, limit);
        let greeted = connection.greet(log_in, &server).await;
        greeted.map_err(|e| e.with_effect(Effect::None))?;
        Ok(connection)
    }
}

impl Talk {
    /// Whether packets seem to vanish, or would: what lies between may have forgotten an idle connection.
    fn is_silent(&self) -> bool {
        match self.unanswered_since {
            Some(since) => since.elapsed() > SILENCE,
            None => self.answered.elapsed() > MAX_IDLE,
        }
    }
}

/// An open connection. Requests of many calls are under way on it at a time, answered in their order.
pub(crate) struct Connection {
    driver: MultiplexedConnection,
    talk: Mutex<Talk>,
}

struct Talk {
    /// When the first request left that no answer has followed, of this call or another.
    unanswered_since: Option<Instant>,
    /// When the last answer came.
    answered: Instant,
}

impl Connection {
    fn new(mut driver: MultiplexedConnection, limit: Duration) -> Self {
        driver.set_response_timeout(limit);
        Self {
            driver,
            talk: Mutex::new(Talk {
                unanswered_since: None,
                answered: Instant::now(),
            }),
        }
    }

    /// One write, and as many answers as there are commands. An error that the server answers with is a value.
    pub(crate) async fn ask(&self, commands: impl Iterator<Item = Cmd>) -> RedisResult<Vec<Value>> {
        self.talk()
            .unanswered_since
            .get_or_insert_with(Instant::now);
        let answers = self.send(commands).await?;
        *self.talk() = Talk {
            unanswered_since: None,
            answered: Instant::now(),
        };
        Ok(answers)
    }

    async fn send(&self, commands: impl Iterator<Item = Cmd>) -> RedisResult<Vec<Value>> {
        let mut driver = self.driver.clone();
        let mut commands: Vec<_> = commands.collect();
        // A single command is less work for the driver.
        if let [command] = &*commands {
            return Ok(vec![driver.send_packed_command(command).await?]);
        }
        let mut pipeline = Pipeline::with_capacity(commands.len());
        for command in commands.drain(..) {
            pipeline.add_command(command);
        }
        driver
            .send_packed_commands(&pipeline, 0, pipeline.len())
            .await
    }

    /// Logs in, and finds out whether somebody answers.
    async fn greet(&self, log_in: Vec<Cmd>, server: &str) -> Result<()> {
        let greeting = log_in.into_iter().chain([redis::cmd("PING")]);
        let answers = self.ask(greeting).await;
        let mut answers = answers.map_err(|e| error::not_connected(&e, server))?;
        let pong = answers.pop();
        for answer in answers {
            error::answer(answer, None)?;
        }
        match pong {
            // An answer is an answer: PING is not among the rights that locks need.
            Some(Value::ServerError(error)) if error.code() == "NOPERM" => Ok(()),
            pong => error::answer(pong.unwrap_or(Value::Nil), None).map(|_| ()),
        }
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.talk().is_silent()
    }

    fn talk(&self) -> MutexGuard<'_, Talk> {
        self.talk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn open(client: &Client, limit: Duration) -> RedisResult<MultiplexedConnection> {
    let info = client.get_connection_info();
    if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
        // Fails where the program has chosen another provider, which is then used.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(limit))
        .set_response_timeout(Some(limit));
    if !logs_in_by_itself(client) {
        let bare = RedisConnectionInfo::default().set_skip_set_lib_name();
        let client = Client::open(info.clone().set_redis_settings(bare))?;
        let opened = client.get_multiplexed_async_connection_with_config(&config);
        return opened.await;
    }
    let opened = client.get_multiplexed_async_connection_with_config(&config);
    opened.await
}

/// With RESP2 the driver hides why it was not let in, so that we do it.
fn logs_in_by_itself(client: &Client) -> bool {
    let settings = client.get_connection_info().redis_settings();
    settings.protocol() != ProtocolVersion::RESP2
}

/// What the driver was kept from sending.
fn log_in(client: &Client) -> Vec<Cmd> {
    let mut commands = Vec::new();
    let settings = client.get_connection_info().redis_settings();
    if logs_in_by_itself(client) {
        return commands;
    }
    if let Some(password) = settings.password() {
        let mut auth = redis::cmd("AUTH");
        auth.arg(settings.username()).arg(password);
        commands.push(auth);
    }
    if settings.db() != 0 {
        let mut select = redis::cmd("SELECT");
        select.arg(settings.db());
        commands.push(select);
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;
    use distlock_api::clock::sleep;

    #[tokio::test(start_paused = true)]
    async fn neither_silence_nor_a_long_pause_is_trusted() {
        let mut talk = Talk {
            unanswered_since: None,
            answered: Instant::now(),
        };
        sleep(MAX_IDLE - SILENCE).await;
        assert!(!talk.is_silent());
        talk.unanswered_since = Some(Instant::now());
        sleep(SILENCE * 2).await;
        assert!(talk.is_silent());
        talk.unanswered_since = None;
        assert!(talk.is_silent());
    }
}
