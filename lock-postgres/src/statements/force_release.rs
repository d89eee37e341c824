use distlock_api::exchange::Lane;
use distlock_api::{Effect, FencingToken, ForceRelease, LockName};

use super::{Request, Statements, fencing_token};
use crate::session::Session;
use crate::value::Value;

/// Frees a lock whoever holds it.
pub(crate) struct Forced<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) only_if: Option<FencingToken>,
}

/// The columns of `force_release.sql`: freed, the holder, its fencing token.
type Row = (bool, String, i64);

impl Request for Forced<'_> {
    type Answer = ForceRelease;
    const CHECKED: bool = true;
    const LANE: Lane = Lane::Taking;

    async fn send(
        &self,
        statements: &Statements,
        session: &mut Session,
    ) -> sqlx::Result<ForceRelease> {
        // A number that the column cannot hold is no lock's: the greatest that it can hold is not reached either.
        let only_if = self
            .only_if
            .map(|fence| i64::try_from(fence.value()).unwrap_or(i64::MAX));
        for _ in 0..2 {
            let values = [self.name.as_str().into(), Value::Bigint(only_if)];
            let mut rows: Vec<Row> = session.ask(&statements.force_release, &values).await?;
            match rows.pop() {
                Some((true, was, _)) => return Ok(ForceRelease::Freed { was }),
                Some((false, _, fence)) if only_if.is_some_and(|asked| asked != fence) => {
                    return Ok(ForceRelease::OtherFence {
                        current: Some(fencing_token(self.name.as_str(), fence, Effect::None)?),
                    });
                }
                // It fits and was not freed: it was changed under our hands, so look again.
                Some(_) => {}
                None => break,
            }
        }
        Ok(ForceRelease::NotHeld)
    }
}
