use std::time::Duration;

use distlock_api::exchange::Lane;
use distlock_api::micros;
use distlock_api::{LeaseId, Release};
use sqlx::MySqlConnection;

use super::holder::Holder;
use super::{Request, Statements, safe};

/// Ends a lease, or lets it rest.
pub(crate) struct Released<'a> {
    pub(crate) lease: &'a LeaseId,
    pub(crate) linger: Duration,
}

impl Request for Released<'_> {
    type Answer = Release;
    const CHECKED: bool = true;
    const LANE: Lane = Lane::Holding;

    async fn send(
        &self,
        statements: &Statements,
        connection: &mut MySqlConnection,
    ) -> sqlx::Result<Release> {
        for _ in 0..2 {
            if self.update(statements, connection).await? {
                return Ok(Release::Released);
            }
            let holder = Holder::read(statements, connection, &self.lease.name).await?;
            let Some(holder) = holder.filter(Holder::is_in_force) else {
                break;
            };
            match (holder.has(&self.lease.token), holder.is_resting) {
                // It was released before.
                (true, true) => return Ok(Release::Released),
                // A try of the same token that was under way was granted in between, so that there is something to
                // release now.
                (true, false) => {}
                (false, _) => {
                    let by = Some(holder.owner);
                    return Ok(Release::NotHeld { by });
                }
            }
        }
        Ok(Release::NotHeld { by: None })
    }
}

impl Released<'_> {
    /// Whether it was ours, and no longer is.
    async fn update(
        &self,
        statements: &Statements,
        connection: &mut MySqlConnection,
    ) -> sqlx::Result<bool> {
        let Self { lease, linger } = self;
        let done = sqlx::query(safe(&statements.release))
            .bind(micros::up(*linger))
            .bind(!linger.is_zero())
            .bind(lease.name.as_str())
            .bind(lease.token.as_bytes().as_slice())
            .execute(connection)
            .await?;
        Ok(done.rows_affected() > 0)
    }
}
