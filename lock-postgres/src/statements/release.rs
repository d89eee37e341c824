use std::time::Duration;

use distlock_api::exchange::Lane;
use distlock_api::{LeaseId, Release};
use sqlx::PgConnection;

use super::{Request, Statements, micros, safe};

/// Ends a lease, or lets it rest.
pub(crate) struct Released<'a> {
    pub(crate) lease: &'a LeaseId,
    pub(crate) linger: Duration,
}

/// The columns of `release.sql`: released, the present holder, whether the row was out of date.
type Row = (bool, Option<String>, bool);

impl Request for Released<'_> {
    type Answer = Release;
    const CHECKED: bool = true;
    const LANE: Lane = Lane::Holding;

    async fn send(
        &self,
        statements: &Statements,
        connection: &mut PgConnection,
    ) -> sqlx::Result<Release> {
        let mut by = None;
        for _ in 0..2 {
            let row: Option<Row> = sqlx::query_as(safe(&statements.release))
                .bind(self.lease.name.as_str())
                .bind(self.lease.token.as_bytes().as_slice())
                .bind(micros(self.linger))
                .fetch_optional(&mut *connection)
                .await?;
            match row {
                Some((true, ..)) => return Ok(Release::Released),
                // It was changed under our hands; a second look tells by whom.
                Some((false, _, true)) => {}
                Some((false, holder, false)) => {
                    by = holder;
                    break;
                }
                None => break,
            }
        }
        Ok(Release::NotHeld { by })
    }
}
