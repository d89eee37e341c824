use std::sync::{Arc, mpsc};
use std::time::Duration;

use distlock_api::Capabilities;
use tokio::runtime::Builder;

use crate::context::Context;
use crate::drops;
use crate::failure::{Checked, Failure};
use crate::history;
use crate::rule::Rule;
use crate::store::Store;
use crate::suite::Suite;

/// How long one try of a rule may take: a backend that hangs fails, and does not hang the run.
const LIMIT: Duration = Duration::from_secs(60);

/// How much longer leases are than written, try by try. A further try is made only where the machine was so slow that
/// the one before proved nothing; a broken rule is never tried again.
const STRETCHES: [u32; 4] = [1, 3, 9, 18];

/// Tries one rule, on a runtime of its own.
pub(crate) fn try_rule(rule: &'static Rule, suite: &Suite) -> Result<(), String> {
    let mut stalls = Vec::new();
    let limit = LIMIT + history::length() + drops::length();
    for stretch in STRETCHES {
        let context = Context {
            store: Arc::new(suite.store.clone()),
            rule: rule.id,
            patience: suite.patience,
            stretch,
        };
        match within(limit, (rule.check)(context)) {
            Some(Ok(())) => return Ok(()),
            Some(Err(Failure::Stalled(how))) => stalls.push(how),
            Some(Err(Failure::Broken(how))) => return Err(format!("{} {how}", says(rule))),
            None => return Err(format!("{} no end within {limit:?}", says(rule))),
        }
    }
    Err(format!(
        "{} machine or store are too slow to tell:\n {}",
        says(rule),
        stalls.join("\n ")
    ))
}

/// The claims of the store, and whether it has operators' tools; `None` where it cannot be opened.
pub(crate) fn look_at(store: &Store) -> Option<(Capabilities, bool)> {
    let open = store.open.clone();
    let opened = within(LIMIT, async move { open(()).await.map_err(Failure::from) })?.ok()?;
    Some((opened.backend.capabilities(), opened.admin.is_some()))
}

/// Which server it is, where the suite was told how to ask.
pub(crate) fn ask_server(store: &Store) -> Result<Option<String>, String> {
    let Some(ask) = store.server.clone() else {
        return Ok(None);
    };
    match within(LIMIT, async move { ask(()).await.map_err(Failure::from) }) {
        Some(Ok(server)) => Ok(Some(server)),
        Some(Err(Failure::Stalled(how) | Failure::Broken(how))) => Err(how),
        None => Err(format!("no answer within {LIMIT:?}")),
    }
}

fn says(rule: &Rule) -> String {
    format!("{} {}\n", rule.id, rule.title)
}

/// Runs a future on a runtime of its own; `None` if it does not end in time, be it that it blocks its thread.
fn within<T: Send + 'static>(
    limit: Duration,
    work: impl Future<Output = Checked<T>> + Send + 'static,
) -> Option<Checked<T>> {
    let runtime = match Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return Some(Err(error.into())),
    };
    let (done, end) = mpsc::channel();
    let task = runtime.spawn(work);
    runtime.spawn(async move {
        let _ = done.send(task.await.unwrap_or_else(|died| Err(died.into())));
    });
    let outcome = end.recv_timeout(limit).ok();
    runtime.shutdown_background();
    outcome
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use distlock_api::MemoryBackend;

    use super::*;
    use crate::StoreError;

    static TRIES: AtomicU32 = AtomicU32::new(0);

    fn rule(check: fn(Context) -> crate::store::BoxFuture<Checked>) -> &'static Rule {
        Box::leak(Box::new(Rule {
            id: "0.0",
            name: "made_up",
            title: "Made up.",
            needs: &[],
            check,
        }))
    }

    fn suite() -> Suite {
        Suite::new("memory", || async {
            Ok::<_, StoreError>(MemoryBackend::new())
        })
    }

    #[test]
    fn a_stalled_rule_is_tried_again_with_longer_leases() {
        let stalls_twice = rule(|cx| {
            Box::pin(async move {
                let long_enough = cx.lease(10) >= Duration::from_millis(90);
                long_enough.then_some(()).ok_or(Failure::stalled("slow"))
            })
        });
        assert_eq!(try_rule(stalls_twice, &suite()), Ok(()));
        let stalls = rule(|_| Box::pin(async { Err(Failure::stalled("slow")) }));
        let how = try_rule(stalls, &suite()).unwrap_err();
        assert!(how.contains("too slow"), "{how}");
    }

    #[test]
    fn a_broken_rule_is_not_tried_again() {
        let broken = rule(|_| {
            TRIES.fetch_add(1, Ordering::SeqCst);
            Box::pin(async { Err(Failure::broken("no")) })
        });
        assert!(try_rule(broken, &suite()).is_err());
        assert_eq!(TRIES.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_rule_that_panics_has_failed() {
        let panics = rule(|_| Box::pin(async { std::panic::resume_unwind(Box::new("made up")) }));
        let how = try_rule(panics, &suite()).unwrap_err();
        assert!(how.contains("died"), "{how}");
    }

    #[test]
    fn what_hangs_is_given_up_even_if_it_blocks_its_thread() {
        let limit = Duration::from_millis(50);
        assert!(within::<()>(limit, std::future::pending()).is_none());
        let (keep, never) = mpsc::channel::<()>();
        let blocks = async move {
            let _ = never.recv();
            Ok(())
        };
        assert!(within(limit, blocks).is_none());
        drop(keep);
    }
}
