use std::collections::HashMap;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use distlock_api::exchange::Lane;
use distlock_api::{LeaseId, Renewal, Result, leases, micros};
use sqlx::MySqlConnection;

use super::{Request, Statements, safe, text};
use crate::schema::Table;

/// Moves the ends of leases, up to [`BATCH`](Self::BATCH) of them in one statement. A lease whose row is locked gets an
/// error of its own.
pub(crate) struct Renew<'a>(pub(crate) &'a [(LeaseId, Duration)]);

/// Texts for 1, 4, 16 … leases, so that each size is prepared once and not each number.
pub(super) struct Texts {
    renew: [Arc<str>; SIZES.len()],
    holders: [Arc<str>; SIZES.len()],
}

/// How many leases the texts are for.
const SIZES: [usize; 5] = [1, 4, 16, 64, Renew::BATCH];

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
        let asked = leases::distinct(self.0);
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
    let (size, places) = places(batch);
    let mut query = sqlx::query(safe(&texts.renew[size]));
    for place in places {
        query = query
            .bind(place.map(|(lease, _)| lease.name.as_str()))
            .bind(place.map(|(lease, _)| lease.token.as_bytes().as_slice()))
            .bind(place.map(|(_, ttl)| micros::up(*ttl)));
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
    let (size, places) = places(batch);
    let mut query = sqlx::query_as(safe(&texts.holders[size]));
    for place in places {
        query = query.bind(place.map(|(lease, _)| lease.name.as_str()));
    }
    let rows: Vec<Row> = query.fetch_all(connection).await?;
    let holders: HashMap<_, _> = rows.iter().map(|row| (&*row.0, row)).collect();
    let others = batch.iter().filter_map(|(lease, ttl)| {
        let answer = match holders.get(lease.name.as_str()) {
            Some((_, token, _, false, until)) if *token == lease.token.as_bytes() => {
                if *until >= at.saturating_add(micros::up(*ttl)) {
                    return None;
                }
                Err(leases::row_locked())
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

/// Which text fits, and what is in each of its places: nothing in those that are left over.
fn places<'a>(batch: &'a [Asked<'a>]) -> (usize, impl Iterator<Item = Option<&'a Asked<'a>>>) {
    let fits = SIZES.iter().position(|size| *size >= batch.len());
    let size = fits.unwrap_or(SIZES.len() - 1);
    let leases = batch.iter().map(Some).chain(iter::repeat(None));
    (size, leases.take(SIZES[size]))
}

impl Texts {
    pub(super) fn new(table: &Table) -> Self {
        let renew = |leases: usize| {
            // With types, which servers would have to guess at otherwise.
            let first = "SELECT CAST(? AS CHAR(255)) AS name, CAST(? AS BINARY(16)) AS token, CAST(? AS SIGNED) AS ttl";
            let next =
                " UNION ALL SELECT CAST(? AS CHAR(255)), CAST(? AS BINARY(16)), CAST(? AS SIGNED)";
            let asked = first.to_owned() + &next.repeat(leases - 1);
            let template = include_str!("renew.sql").replace("{leases}", &asked);
            text(&template.replace("{most}", &leases.to_string()), table).into()
        };
        let holders = |leases: usize| {
            let names = vec!["?"; leases].join(", ");
            let template = include_str!("holders.sql").replace("{names}", &names);
            text(&template, table).into()
        };
        Self {
            renew: SIZES.map(renew),
            holders: SIZES.map(holders),
        }
    }
}
