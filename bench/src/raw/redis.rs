use anyhow::{Context, Result, ensure};
use redis::Script;
use redis::aio::MultiplexedConnection;
use url::Url;

use super::{NAME, Served, TABLE};

/// What everybody writes who locks by hand: `SET NX PX`, and the script that deletes the key if it is still theirs.
const COMPARE_AND_DELETE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                                      return redis.call('DEL', KEYS[1]) \
                                  end \
                                  return 0";

const TOKEN: &str = "000102030405060708090a0b0c0d0e0f";

pub(crate) struct RawRedis {
    connection: MultiplexedConnection,
    key: String,
    digest: String,
}

impl RawRedis {
    pub(super) async fn open(url: &Url) -> Result<Self> {
        let client = redis::Client::open(url.as_str())?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let digest: String = redis::cmd("SCRIPT")
            .arg("LOAD")
            .arg(COMPARE_AND_DELETE)
            .query_async(&mut connection)
            .await?;
        debug_assert_eq!(digest, Script::new(COMPARE_AND_DELETE).get_hash());
        Ok(Self {
            connection,
            key: format!("{TABLE}:{{{NAME}}}"),
            digest,
        })
    }

    pub(super) async fn cycle(&mut self) -> Result<()> {
        let set: Option<String> = redis::cmd("SET")
            .arg(&self.key)
            .arg(TOKEN)
            .arg("NX")
            .arg("PX")
            .arg(30_000)
            .query_async(&mut self.connection)
            .await?;
        ensure!(set.is_some(), "the raw key is there already");
        let deleted: i64 = redis::cmd("EVALSHA")
            .arg(&self.digest)
            .arg(1)
            .arg(&self.key)
            .arg(TOKEN)
            .query_async(&mut self.connection)
            .await?;
        ensure!(deleted == 1, "the raw key was gone");
        Ok(())
    }

    pub(super) async fn version(&mut self) -> Result<String> {
        let info = self.info("server").await?;
        let version = field(&info, "redis_version").context("no version")?;
        Ok(format!("Redis {version}"))
    }

    pub(super) async fn served(&mut self) -> Result<Served> {
        let info = self.info("commandstats").await?;
        // Nothing before the first.
        let calls = field(&info, "cmdstat_evalsha").and_then(|stats| {
            let calls = stats.split(',').next()?;
            calls.strip_prefix("calls=")?.parse().ok()
        });
        Ok(Served {
            unit: "EVALSHA",
            count: calls.unwrap_or(0),
        })
    }

    pub(super) async fn drop_all(&mut self, named: &str) -> Result<()> {
        let mut cursor = 0;
        loop {
            let (next, keys): (u64, Vec<String>) = redis::cmd("SCAN")
                .arg(cursor)
                .arg("MATCH")
                .arg(format!("{named}*"))
                .arg("COUNT")
                .arg(1000)
                .query_async(&mut self.connection)
                .await?;
            if !keys.is_empty() {
                let mut unlink = redis::cmd("UNLINK");
                unlink.arg(keys).exec_async(&mut self.connection).await?;
            }
            if next == 0 {
                return Ok(());
            }
            cursor = next;
        }
    }

    async fn info(&mut self, section: &str) -> Result<String> {
        let mut info = redis::cmd("INFO");
        Ok(info.arg(section).query_async(&mut self.connection).await?)
    }
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let fields = info.lines().filter_map(|line| line.split_once(':'));
    fields
        .filter(|(field, _)| *field == name)
        .map(|(_, value)| value)
        .next()
}
