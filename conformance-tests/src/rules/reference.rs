//! The memory backend is the reference: whatever order calls come in, every other answers as it does.

use std::time::Duration;

use distlock_api::clock::Instant;
use distlock_api::{
    AcquireRequest, Attempt, LeaseId, LockAdmin, LockName, LockState, MemoryBackend, Token,
};

use crate::context::{Context, ensure_young};
use crate::dice::Dice;
use crate::failure::{Checked, ensure};
use crate::rule::rules;

rules! {
    "C.5" random_calls [Admin Ticks Records]
        "Random calls get the answers of the reference, and leave the records that it has.";
}

/// Times are whole hours, and compared by the nearest hour: what passes meanwhile makes no difference.
const HOUR: Duration = Duration::from_secs(3600);

/// A round has locks of its own and is short, because other rules may purge a lock that is free for long.
const ROUNDS: u64 = 20;
const CALLS: u64 = 50;

async fn random_calls(cx: Context) -> Checked {
    let client = cx.client().await?;
    let store = client.admin()?;
    for round in 0..ROUNDS {
        let reference = MemoryBackend::new();
        let names = [cx.name()?, cx.name()?];
        let (mut one, mut other) = (Dice(round), Dice(round));
        let since = Instant::now();
        for call in 0..CALLS {
            let answer = step(store, &names, &mut one).await?;
            let right = step(&reference, &names, &mut other).await?;
            let records = (
                records(store, &names).await?,
                records(&reference, &names).await?,
            );
            if (&answer, &records.0) != (&right, &records.1) {
                ensure_young(&since)?;
            }
            ensure!(
                answer == right,
                "call {call} of round {round} was answered {answer}; right is {right}"
            );
            ensure!(
                records.0 == records.1,
                "after call {call} of round {round} the records are {}; right is {}",
                records.0,
                records.1
            );
        }
    }
    Ok(())
}

/// One random call; its answer as text, without what depends on the moment.
async fn step(backend: &dyn LockAdmin, names: &[LockName; 2], dice: &mut Dice) -> Checked<String> {
    let lease = lease(names, dice);
    let linger = HOUR * dice.roll(2);
    Ok(match dice.roll(8) {
        0..=2 => {
            let owner = format!("rule C.5 {:?}", lease.token.as_bytes()[0]);
            let mut request = AcquireRequest::new(lease.name, owner, HOUR * (1 + dice.roll(2)));
            request.token = lease.token;
            request.tick = (dice.roll(2) == 0).then(|| i64::from(dice.roll(40)) - 20);
            match backend.try_acquire(&request).await? {
                Attempt::Acquired { .. } => "acquired".to_owned(),
                Attempt::Held(held) => format!(
                    "held {:?} {} {:?}",
                    held.by,
                    held.resting,
                    held.remaining.map(hours)
                ),
                done => format!("{done:?}"),
            }
        }
        3 | 4 => format!("{:?}", backend.release(&lease, linger).await?),
        5 | 6 => {
            let other = self::lease(names, dice);
            let leases = [(lease.clone(), linger), (other, linger), (lease, HOUR * 3)];
            format!("{:?}", backend.renew(&leases).await)
        }
        _ => format!("{:?}", backend.force_release(&lease.name, None).await?),
    })
}

/// Of one of two locks and one of three tokens.
fn lease(names: &[LockName; 2], dice: &mut Dice) -> LeaseId {
    let name = if dice.roll(2) == 0 { 0 } else { 1 };
    LeaseId {
        name: names[name].clone(),
        token: Token::from_bytes([dice.roll(3).to_le_bytes()[0]; 16]),
    }
}

/// What is known of the locks, without what depends on the moment.
async fn records(backend: &dyn LockAdmin, names: &[LockName; 2]) -> Checked<String> {
    let mut known = String::new();
    for name in names {
        known += &match backend.inspect(name).await? {
            Some(record) => format!(
                "{} {:?} {} h {:?}; ",
                record.state,
                record.owner,
                match record.state {
                    LockState::Free => 0,
                    _ => hours(record.remaining),
                },
                record.last_tick
            ),
            None => "unknown; ".to_owned(),
        };
    }
    Ok(known)
}

fn hours(duration: Duration) -> u64 {
    (duration + HOUR / 2).as_secs() / HOUR.as_secs()
}
