//! Contests between processes under random faults, judged by what each of them saw (promises 1, 5, 6 and 7).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use distlock_api::clock::{self, Instant};
use distlock_api::{LockName, Token};
use tokio::task::JoinHandle;

use crate::context::Context;
use crate::dice::Dice;
use crate::failure::{Checked, Failure, ensure};
use crate::history::{self, Contest};
use crate::link::{Condition, Link, Way};
use crate::process::{Remote, Setting};
use crate::rule::rules;

rules! {
    "H.1" frozen_and_killed [Processes Fencing]
        "While processes are frozen, continued and killed at random, no two are under one lock, fences grow, and nothing written is lost.";
    "H.2" bad_links [Processes Link Fencing]
        "While links are held up, reset, forgotten and slow at random, no two are under one lock, fences grow, and nothing written is lost.";
}

const CONTENDERS: u32 = 4;

/// Fewer grants than this in a contest prove little.
const FEWEST_GRANTS: usize = 10;

async fn frozen_and_killed(cx: Context) -> Checked {
    let mut arena = Arena::open(&cx).await?;
    let mut contenders = Vec::new();
    for _ in 0..CONTENDERS {
        contenders.push(arena.enter(None).await?);
    }
    while !arena.is_over() {
        clock::sleep(arena.pause()).await;
        let chosen = arena.dice.roll(CONTENDERS) as usize;
        match arena.dice.roll(3) {
            0 => {
                contenders[chosen].kill().await?;
                contenders[chosen] = arena.enter(None).await?;
            }
            _ => {
                contenders[chosen].remote.freeze()?;
                let frozen = arena.ttl * arena.dice.roll(200) / 100;
                clock::sleep(frozen).await;
                contenders[chosen].remote.thaw()?;
            }
        }
    }
    arena.judge(contenders).await
}

async fn bad_links(cx: Context) -> Checked {
    let mut arena = Arena::open(&cx).await?;
    let mut contenders = Vec::new();
    for _ in 0..CONTENDERS {
        contenders.push(arena.enter(Some(cx.link().await?)).await?);
    }
    while !arena.is_over() {
        clock::sleep(arena.pause()).await;
        let chosen = &contenders[arena.dice.roll(CONTENDERS) as usize];
        let Some(link) = &chosen.link else { continue };
        match arena.dice.roll(6) {
            0 => link.set(Condition::Held(Way::Both)),
            1 => link.set(Condition::Held(Way::ToServer)),
            2 => link.set(Condition::Held(Way::ToClient)),
            3 => link.set(Condition::Slow(arena.ttl / 8)),
            4 => link.forget(),
            _ => link.reset(),
        }
        clock::sleep(arena.ttl * arena.dice.roll(200) / 100).await;
        link.set(Condition::Open);
    }
    arena.judge(contenders).await
}

/// A lock that processes contend for, and the folder that their histories go to.
struct Arena<'a> {
    cx: &'a Context,
    name: LockName,
    ttl: Duration,
    folder: PathBuf,
    dice: Dice,
    begun: Instant,
    entered: u32,
}

struct Contender {
    remote: Arc<Remote>,
    link: Option<Link>,
    contending: JoinHandle<distlock_api::Result<crate::process::Done>>,
}

impl Contender {
    async fn kill(&self) -> Checked {
        self.contending.abort();
        self.remote.kill().await
    }
}

impl<'a> Arena<'a> {
    async fn open(cx: &'a Context) -> Checked<Self> {
        let name = cx.name()?;
        let folder = std::env::temp_dir().join(format!("distlock-history-{name}"));
        std::fs::create_dir_all(&folder)?;
        let [a, b, c, d, ..] = *Token::random().as_bytes();
        Ok(Self {
            cx,
            name,
            ttl: cx.lease(600),
            folder,
            dice: Dice(u64::from(u32::from_be_bytes([a, b, c, d]))),
            begun: Instant::now(),
            entered: 0,
        })
    }

    fn is_over(&self) -> bool {
        self.begun.elapsed() >= history::length()
    }

    /// Between two faults: now and then long enough for everything to be well again.
    fn pause(&mut self) -> Duration {
        self.ttl * self.dice.roll(100) / 100
    }

    /// One more process takes part until the contest is over.
    async fn enter(&mut self, link: Option<Link>) -> Checked<Contender> {
        let setting = Setting {
            link: link.as_ref().map(Link::address),
            ..Setting::default()
        };
        let remote = Arc::new(self.cx.holder(setting).await?);
        self.entered += 1;
        let contest = Contest {
            name: self.name.clone(),
            ttl: self.ttl,
            length: history::length().saturating_sub(self.begun.elapsed()),
            by: self.entered,
            folder: self.folder.clone(),
        };
        let of = Arc::clone(&remote);
        Ok(Contender {
            remote,
            link,
            contending: tokio::spawn(async move { of.contend(contest).await }),
        })
    }

    /// Whether what they saw can have been right, and whether the lock is free when they are gone.
    async fn judge(self, contenders: Vec<Contender>) -> Checked {
        for contender in contenders {
            let ended = contender.contending.await?;
            ended.map_err(|error| Failure::broken(format!("a contender: {error}")))?;
        }
        let events = history::read(&self.folder)?;
        let violations = history::violations(&events);
        ensure!(
            violations.is_empty(),
            "the history in {} cannot be right:\n {}",
            self.folder.display(),
            violations.join("\n ")
        );
        std::fs::remove_dir_all(&self.folder)?;
        let grants = history::grants(&events);
        if grants < FEWEST_GRANTS {
            return Err(Failure::stalled(format!("{grants} grants in all")));
        }
        let client = self.cx.client().await?;
        let request = self.cx.request(&self.name, self.cx.lease(1000));
        let grant = client.take_when_free(&request).await?;
        client.free(&grant).await
    }
}
