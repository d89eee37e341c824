use distlock_api::{FencingToken, StaleToken};
use redis::aio::ConnectionLike;
use redis::{
    Cmd, ErrorKind, FromRedisValue, ParsingError, RedisError, RedisResult, Script, ServerErrorKind,
    ToRedisArgs, Value,
};

/// A Lua script that changes something in Redis, and refuses holders whose lock has been granted to somebody else since.
///
/// A holder can be frozen between its last look at the lock and its write, longer than the lease. The server then still
/// gets the write, and only the fencing token tells that it comes too late. So the script remembers the greatest token
/// that was let in, under a key of its own, the fence, and runs its body only for a token that is not smaller. Both are
/// one step at the server. The same token may come as often as it likes.
///
/// ```no_run
/// use distlock_api::FencingToken;
/// use distlock_redis::{FencedScript, redis};
///
/// # async fn example(token: FencingToken) -> Result<(), Box<dyn std::error::Error>> {
/// let take = FencedScript::new(
///     "if tonumber(redis.call('GET', KEYS[1]) or 0) < tonumber(ARGV[1]) then
///          return false
///      end
///      return redis.call('DECRBY', KEYS[1], ARGV[1])",
/// );
/// let client = redis::Client::open("redis://127.0.0.1/")?;
/// let mut connection = client.get_multiplexed_async_connection().await?;
///
/// let call = take.call("{stock:42}:fence", token).key("{stock:42}").arg(3);
/// let left: Option<i64> = call.run(&mut connection).await??; // the second ? is for a stale token
/// # Ok(())
/// # }
/// ```
///
/// # The fence
///
/// One fence, one lock name: tokens of different names, or of one name in different stores, cannot be compared. All that
/// the lock protects is to be written under its fence. The key has no end: it has to live as long as what it protects,
/// so delete both together, and keep them on a server that throws no keys away (`maxmemory-policy noeviction`). Tokens
/// are compared digit by digit, exactly up to the greatest `u64`.
///
/// In a cluster all keys of a call have to share a hash tag, the fence too, as `{stock:42}:fence` and `{stock:42}` do.
///
/// # The body
///
/// Any [script](https://redis.io/docs/latest/develop/programmability/eval-intro/), without a `#!` line. `KEYS` and
/// `ARGV` are its own, from 1. What it did before it failed stays done, as ever in Redis. It needs the rights to
/// `evalsha`, `eval`, `get` and `set`, and to what it runs itself.
///
/// Where what is protected is a hash that nobody else writes, the token can be a field of it, compared and set by a
/// script of your own: take care that Lua's numbers are exact to 2^53 only.
#[derive(Debug)]
pub struct FencedScript {
    text: String,
    digest: String,
}

impl FencedScript {
    /// A script with this body.
    pub fn new(body: &str) -> Self {
        let text = include_str!("statements/fenced.lua").replace("{body}", body);
        Self {
            digest: Script::new(&text).get_hash().to_owned(),
            text,
        }
    }

    /// Sets a key to a value, which it then holds without an end. Give each call that key and that value, and nothing
    /// else; the answer is `OK`, which `()` takes as well:
    ///
    /// ```no_run
    /// # async fn example(token: distlock_api::FencingToken, connection: &mut distlock_redis::redis::aio::MultiplexedConnection)
    /// #     -> Result<(), Box<dyn std::error::Error>> {
    /// let set = distlock_redis::FencedScript::set();
    /// let call = set.call("{stock:42}:fence", token).key("{stock:42}").arg(7);
    /// let () = call.run(connection).await??;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set() -> Self {
        Self::new("return redis.call('SET', KEYS[1], ARGV[1])")
    }

    /// A call for the holder of this token, behind the fence at this key.
    pub fn call(&self, fence: impl AsRef<[u8]>, token: FencingToken) -> FencedCall<'_> {
        FencedCall {
            script: self,
            token,
            keys: vec![fence.as_ref().to_owned()],
            arguments: vec![token.to_string().into_bytes()],
        }
    }
}

/// A call of a [`FencedScript`].
#[derive(Clone)]
#[must_use = "a call does nothing until it is run"]
pub struct FencedCall<'a> {
    script: &'a FencedScript,
    token: FencingToken,
    keys: Vec<Vec<u8>>,
    arguments: Vec<Vec<u8>>,
}

impl FencedCall<'_> {
    /// Adds a key, or several: the first is the body's `KEYS[1]`.
    pub fn key(mut self, key: impl ToRedisArgs) -> Self {
        key.write_redis_args(&mut self.keys);
        self
    }

    /// Adds an argument, or several: the first is the body's `ARGV[1]`.
    pub fn arg(mut self, argument: impl ToRedisArgs) -> Self {
        argument.write_redis_args(&mut self.arguments);
        self
    }

    /// Runs it on a connection of yours: what the body returned, or that the token is stale and nothing was changed.
    ///
    /// # Errors
    ///
    /// Those of the connection, the server and the body, and the server's `FENCE …` where the fence's key holds something
    /// else. After an error the body may have been run, wholly or in part: run it again, with the same token, if it may
    /// be run twice.
    ///
    /// # Cancel safety
    ///
    /// The connection stays good. The body may have been run.
    pub async fn run<T: FromRedisValue>(
        &self,
        connection: &mut impl ConnectionLike,
    ) -> RedisResult<Result<T, StaleToken>> {
        let by_digest = self.command("EVALSHA", &self.script.digest);
        let value = match by_digest.query_async(connection).await {
            // Not by SCRIPT LOAD, which would be a round trip and a right more.
            Err(error) if is_unknown_script(&error) => {
                let by_text = self.command("EVAL", &self.script.text);
                by_text.query_async(connection).await?
            }
            answered => answered?,
        };
        self.answer(value)
    }

    fn command(&self, command: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(command);
        command.arg(script).arg(self.keys.len());
        command.arg(&self.keys).arg(&self.arguments);
        command
    }

    fn answer<T: FromRedisValue>(&self, value: Value) -> RedisResult<Result<T, StaleToken>> {
        let (admitted, value) = match value {
            Value::Array(parts) => {
                let mut parts = parts.into_iter();
                // A body that returns nothing leaves the second out.
                (parts.next(), parts.next().unwrap_or(Value::Nil))
            }
            other => (Some(other), Value::Nil),
        };
        match admitted {
            Some(Value::Int(1)) => Ok(Ok(T::from_redis_value(value)?)),
            Some(Value::Int(0)) => Ok(Err(StaleToken {
                token: self.token,
                seen: FencingToken::new(u64::from_redis_value(value)?),
            })),
            _ => Err(ParsingError::from("the answer is none of a fenced script").into()),
        }
    }
}

fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// Without keys and arguments, which may be secret.
impl std::fmt::Debug for FencedCall<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FencedCall")
            .field("token", &self.token)
            .field("keys", &self.keys.len())
            .field("arguments", &self.arguments.len())
            .finish_non_exhaustive()
    }
}
