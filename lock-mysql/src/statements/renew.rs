use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use distlock_api::exchange::Lane;
use distlock_api::micros;
use distlock_api::{LeaseId, Renewal, Result};
use sqlx::MySqlConnection;

use super::{Request, Statements, safe, text};
use crate::error;
use crate::schema::Table;

/// Moves the ends of leases, up to [`BATCH`](Self::BATCH) of them in one statement. A lease whose row is locked gets an
/// error of its own.
pub(crate) struct Renew<'a>(pub(crate) &'a [(LeaseId, Duration)]);

/// Texts for 1, 2, 4, 8 … leases, so that each size is prepared once and not each number.
pub(super) struct Texts {
    renew: Vec<Arc<str>>,
    holders: Vec<Arc<str>>,
}

type Asked<'a> = (&'a LeaseId, Duration);

/// The columns of `holders.sql`.
type Row = (String, Vec<u8>, String, bool, i64);

impl Request for Renew<'_> {
    type Answer = Vec<Result<Renewal>>;
    const CHECKED: bool = true;
    const LANE: Lane = Lane::Holding;

    async fn send(
        &self,
        statements: &Statements,
        connection: &mut MySqlConnection,
    ) -> sqlx::Result<Vec<Result<Renewal>>> {
        let asked = self.distinct();
        let mut others = HashMap::new();
        for batch in asked.chunks(Self::BATCH) {
            let done = renew(&statements.renew, connection, batch).await?;
            if done.leases < batch.len() as u64 {
                others.extend(not_renewed(&statements.renew, connection, batch, done.at).await?);
            }
        }
        let answers = self.0.iter().map(|(lease, _)| match others.get(lease) {
            Some(answer) => answer.clone(),
            None => Ok(Renewal::Renewed),
        });
        Ok(answers.collect())
    }
}

impl Renew<'_> {
    /// How many in one statement: their rows stay locked for as long as it takes.
    const BATCH: usize = 256;

    /// Each lease once, with the longest time asked for it, in the order of the primary key.
    fn distinct(&self) -> Vec<Asked<'_>> {
        let mut asked: Vec<_> = self.0.iter().map(|(lease, ttl)| (lease, *ttl)).collect();
        asked.sort_by(|(one, one_ttl), (other, other_ttl)| {
            let order = one.name.cmp(&other.name);
            let order = order.then_with(|| one.token.as_bytes().cmp(other.token.as_bytes()));
            order.then_with(|| other_ttl.cmp(one_ttl))
        });
        asked.dedup_by(|(later, _), (first, _)| later == first);
        asked
    }
}

/// What the server says of one statement.
struct Done {
    leases: u64,
    /// In microseconds, by the server's clock.
    at: i64,
}

/// Renews those that are in force and whose rows are not locked.
async fn renew(
    texts: &Texts,
    connection: &mut MySqlConnection,
    batch: &[Asked<'_>],
) -> sqlx::Result<Done> {
    let (size, filled) = fill(batch);
    let mut query = sqlx::query(safe(&texts.renew[size]));
    for (lease, _) in filled.clone() {
        let token = lease.token.as_bytes().as_slice();
        query = query.bind(lease.name.as_str()).bind(token);
    }
    for (lease, ttl) in filled {
        let token = lease.token.as_bytes().as_slice();
        query = query
            .bind(lease.name.as_str())
            .bind(token)
            .bind(micros::up(*ttl));
    }
    let done = query.execute(connection).await?;
    Ok(Done {
        leases: done.rows_affected(),
        at: i64::try_from(done.last_insert_id()).unwrap_or(i64::MAX),
    })
}

/// Those that were not renewed at that time, and why. A lease that is over never comes back, so that one which is found in
/// force was so before: it ends as late as was asked for, or its row was locked.
async fn not_renewed(
    texts: &Texts,
    connection: &mut MySqlConnection,
    batch: &[Asked<'_>],
    at: i64,
) -> sqlx::Result<Vec<(LeaseId, Result<Renewal>)>> {
    let (size, filled) = fill(batch);
    let mut query = sqlx::query_as(safe(&texts.holders[size]));
    for (lease, _) in filled {
        query = query.bind(lease.name.as_str());
    }
    let rows: Vec<Row> = query.fetch_all(connection).await?;
    let holders: HashMap<_, _> = rows.iter().map(|row| (&*row.0, row)).collect();
    let others = batch.iter().filter_map(|(lease, ttl)| {
        let answer = match holders.get(lease.name.as_str()) {
            Some((_, token, _, false, until)) if *token == lease.token.as_bytes() => {
                if *until >= at.saturating_add(micros::up(*ttl)) {
                    return None;
                }
                Err(error::row_locked())
            }
            Some((_, _, owner, ..)) => Ok(Renewal::Lost {
                to: Some(owner.clone()),
            }),
            None => Ok(Renewal::Lost { to: None }),
        };
        Some(((*lease).clone(), answer))
    });
    Ok(others.collect())
}

/// Which text fits, and the leases for all its places: the last one stands in those that are left over.
fn fill<'a>(batch: &'a [Asked<'a>]) -> (usize, impl Iterator<Item = &'a Asked<'a>> + Clone) {
    let places = batch.len().next_power_of_two();
    let last = &batch[batch.len() - 1];
    let filled = batch.iter().chain(std::iter::repeat(last)).take(places);
    (places.ilog2() as usize, filled)
}

impl Texts {
    pub(super) fn new(table: &Table) -> Self {
        let sizes = || (0..=Renew::BATCH.ilog2()).map(|power| 1 << power);
        let renew = |leases: usize| {
            let times = vec!["WHEN ours.name = ? AND ours.token = ? THEN ?"; leases].join(" ");
            let pairs = vec!["name = ? AND token = ?"; leases].join(" OR ");
            let template = include_str!("renew.sql").replace("{times}", &times);
            let template = template.replace("{leases}", &pairs);
            text(&template.replace("{most}", &leases.to_string()), table).into()
        };
        let holders = |leases: usize| {
            let names = vec!["?"; leases].join(", ");
            let template = include_str!("holders.sql").replace("{names}", &names);
            text(&template, table).into()
        };
        Self {
            renew: sizes().map(renew).collect(),
            holders: sizes().map(holders).collect(),
        }
    }
}
