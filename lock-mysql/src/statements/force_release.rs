use distlock_api::exchange::Lane;
use distlock_api::{FencingToken, ForceRelease, LockName};
use sqlx::MySqlConnection;

use super::holder::Holder;
use super::{Request, Statements, safe};

/// Frees a lock whoever holds it.
pub(crate) struct Forced<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) only_if: Option<FencingToken>,
}

impl Request for Forced<'_> {
    type Answer = ForceRelease;
    const CHECKED: bool = true;
    const LANE: Lane = Lane::Taking;

    /// Reads who has it, and frees it from that one only: each grant has a fencing token of its own.
    async fn send(
        &self,
        statements: &Statements,
        connection: &mut MySqlConnection,
    ) -> sqlx::Result<ForceRelease> {
        let mut holder = Holder::read(statements, connection, self.name).await?;
        while let Some(found) = holder.filter(Holder::is_in_force) {
            let current = FencingToken::new(found.fence);
            if self.only_if.is_some_and(|fence| fence != current) {
                return Ok(ForceRelease::OtherFence {
                    current: Some(current),
                });
            }
            let done = sqlx::query(safe(&statements.force_release))
                .bind(self.name.as_str())
                .bind(found.fence)
                .execute(&mut *connection)
                .await?;
            if done.rows_affected() > 0 {
                return Ok(ForceRelease::Freed { was: found.owner });
            }
            // It changed hands meanwhile, so look again. A lock that does so all the time has no need of force.
            holder = Holder::read(statements, connection, self.name).await?;
        }
        Ok(ForceRelease::NotHeld)
    }
}
