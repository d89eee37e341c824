use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use distlock_api::exchange::Lane;
use distlock_api::micros;
use distlock_api::{LeaseId, Renewal};
use sqlx::MySqlConnection;

use super::{Request, Statements, safe, text};
use crate::schema::Table;

/// Moves the ends of leases, up to [`BATCH`](Self::BATCH) of them in one statement.
pub(crate) struct Renew<'a>(pub(crate) &'a [(LeaseId, Duration)]);

/// Texts for 1, 2, 4, 8 … leases, so that each size is prepared once and not each number.
pub(super) struct Texts {
    renew: Vec<Arc<str>>,
    holders: Vec<Arc<str>>,
}

type Asked<'a> = (&'a LeaseId, Duration);

/// The columns of `holders.sql`.
type Row = (String, Vec<u8>, String, bool);

impl Request for Renew<'_> {
    type Answer = Vec<Renewal>;
    const CHECKED: bool = true;
    const LANE: Lane = Lane::Holding;

    async fn send(
        &self,
        statements: &Statements,
        connection: &mut MySqlConnection,
    ) -> sqlx::Result<Vec<Renewal>> {
        let asked = self.distinct();
        let mut lost = HashMap::new();
        for batch in asked.chunks(Self::BATCH) {
            let found = renew(&statements.renew, connection, batch).await?;
            if found < batch.len() as u64 {
                lost.extend(losses(&statements.renew, connection, batch).await?);
            }
        }
        let answers = self.0.iter().map(|(lease, _)| match lost.get(lease) {
            Some(to) => Renewal::Lost { to: to.clone() },
            None => Renewal::Renewed,
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

/// How many of them are in force, and so were renewed.
async fn renew(
    texts: &Texts,
    connection: &mut MySqlConnection,
    batch: &[Asked<'_>],
) -> sqlx::Result<u64> {
    let (size, filled) = fill(batch);
    let mut query = sqlx::query(safe(&texts.renew[size]));
    for (lease, ttl) in filled.clone() {
        let token = lease.token.as_bytes().as_slice();
        query = query
            .bind(lease.name.as_str())
            .bind(token)
            .bind(micros::up(*ttl));
    }
    for (lease, _) in filled {
        let token = lease.token.as_bytes().as_slice();
        query = query.bind(lease.name.as_str()).bind(token);
    }
    Ok(query.execute(connection).await?.rows_affected())
}

/// Those that are not in force any more, and who has the lock instead. A lease that is over never comes back, so that one
/// which is found in force was so before, and was renewed.
async fn losses(
    texts: &Texts,
    connection: &mut MySqlConnection,
    batch: &[Asked<'_>],
) -> sqlx::Result<Vec<(LeaseId, Option<String>)>> {
    let (size, filled) = fill(batch);
    let mut query = sqlx::query_as(safe(&texts.holders[size]));
    for (lease, _) in filled {
        query = query.bind(lease.name.as_str());
    }
    let rows: Vec<Row> = query.fetch_all(connection).await?;
    let holders = rows
        .iter()
        .map(|(name, token, owner, resting)| (&**name, (token, owner, *resting)));
    let holders: HashMap<_, _> = holders.collect();
    let lost = batch.iter().filter_map(|(lease, _)| {
        let to = match holders.get(lease.name.as_str()) {
            Some((token, _, false)) if *token == lease.token.as_bytes() => return None,
            Some((_, owner, _)) => Some((*owner).clone()),
            None => None,
        };
        Some(((*lease).clone(), to))
    });
    Ok(lost.collect())
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
            let times = vec!["WHEN name = ? AND token = ? THEN ?"; leases].join(" ");
            let pairs = vec!["name = ? AND token = ?"; leases].join(" OR ");
            let template = include_str!("renew.sql").replace("{times}", &times);
            text(&template.replace("{leases}", &pairs), table).into()
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
