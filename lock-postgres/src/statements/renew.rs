use std::collections::HashMap;
use std::time::Duration;

use distlock_api::exchange::Lane;
use distlock_api::{LeaseId, Renewal, Result, leases, micros};

use super::{Request, Statements};
use crate::session::Session;
use crate::value::Value;

/// Moves the ends of leases, all in one statement. A lease whose row is locked gets an error of its own.
pub(crate) struct Renew<'a>(pub(crate) &'a [(LeaseId, Duration)]);

/// The columns of `renew.sql`.
type Row = (String, Vec<u8>, bool, bool, Option<String>);

impl Request for Renew<'_> {
    type Answer = Vec<Result<Renewal>>;
    const CHECKED: bool = true;
    const LANE: Lane = Lane::Holding;

    async fn send(
        &self,
        statements: &Statements,
        session: &mut Session,
    ) -> sqlx::Result<Vec<Result<Renewal>>> {
        let asked = leases::distinct(self.0);
        let names = asked.iter().map(|(lease, _)| lease.name.as_str());
        let tokens = asked
            .iter()
            .map(|(lease, _)| lease.token.as_bytes().as_slice());
        let ttls = asked.iter().map(|(_, ttl)| micros::up(*ttl));
        let values = [
            Value::Texts(names.collect()),
            Value::Byteses(tokens.collect()),
            Value::Bigints(ttls.collect()),
        ];
        let rows: Vec<Row> = session.ask(&statements.renew, &values).await?;
        let answers: HashMap<_, _> = rows
            .iter()
            .map(|(name, token, renewed, locked, by)| {
                ((&**name, &**token), (*renewed, *locked, by))
            })
            .collect();
        self.0
            .iter()
            .map(|(lease, _)| {
                match answers.get(&(lease.name.as_str(), lease.token.as_bytes().as_slice())) {
                    Some((true, ..)) => Ok(Ok(Renewal::Renewed)),
                    Some((false, true, _)) => Ok(Err(leases::row_locked())),
                    Some((false, false, by)) => Ok(Ok(Renewal::Lost { to: (*by).clone() })),
                    None => Err(sqlx::Error::RowNotFound),
                }
            })
            .collect()
    }
}
