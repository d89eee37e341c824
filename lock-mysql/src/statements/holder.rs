use distlock_api::micros;
use distlock_api::{Held, LockName, Token};
use sqlx::MySqlConnection;

use super::{Statements, safe};

/// Who has a lock or had it last, as of one moment.
pub(super) struct Holder {
    token: Vec<u8>,
    pub(super) owner: String,
    left: i64,
    pub(super) is_resting: bool,
    pub(super) last_tick: Option<i64>,
    pub(super) fence: u64,
}

/// The columns of `holder.sql`.
type Row = (Vec<u8>, String, Option<i64>, bool, Option<i64>, u64);

impl Holder {
    /// `None` where the name is unknown.
    pub(super) async fn read(
        statements: &Statements,
        connection: &mut MySqlConnection,
        name: &LockName,
    ) -> sqlx::Result<Option<Self>> {
        let row: Option<Row> = sqlx::query_as(safe(&statements.holder))
            .bind(name.as_str())
            .fetch_optional(connection)
            .await?;
        Ok(
            row.map(|(token, owner, left, is_resting, last_tick, fence)| Self {
                token,
                owner,
                left: left.unwrap_or(0),
                is_resting,
                last_tick,
                fence,
            }),
        )
    }

    /// The lease, or the rest, is not over.
    pub(super) fn is_in_force(&self) -> bool {
        self.left > 0
    }

    pub(super) fn has(&self, token: &Token) -> bool {
        self.token == token.as_bytes()
    }

    /// As the answer to one who was refused.
    pub(super) fn held(self) -> Held {
        Held {
            by: Some(self.owner),
            remaining: Some(micros::remaining(self.left)),
            resting: self.is_resting,
        }
    }
}
