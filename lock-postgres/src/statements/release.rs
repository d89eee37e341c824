use std::time::Duration;

use distlock_api::exchange::Lane;
use distlock_api::micros;
use distlock_api::{LeaseId, Release};

use super::{Request, Statements};
use crate::session::Session;

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

    async fn send(&self, statements: &Statements, session: &mut Session) -> sqlx::Result<Release> {
        let mut by = None;
        for _ in 0..2 {
            let values = [
                self.lease.name.as_str().into(),
                self.lease.token.as_bytes().into(),
                micros::up(self.linger).into(),
            ];
            let mut rows: Vec<Row> = session.ask(&statements.release, &values).await?;
            match rows.pop() {
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
