use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Event, What};

/// One acquisition that was granted, as its holder saw it.
#[derive(Clone, Debug, Default)]
struct Grant {
    by: u32,
    asked: Duration,
    acquired: Duration,
    fence: u64,
    /// The last moment at which the holder looked and its lock was valid.
    last_valid: Option<Duration>,
    lost: Option<Duration>,
    writes: Vec<u64>,
}

/// How many acquisitions were granted.
pub(crate) fn grants(events: &[Event]) -> usize {
    all_grants(events).len()
}

/// What cannot have been right, in words. Events are in the order of their times.
pub(crate) fn violations(events: &[Event]) -> Vec<String> {
    let grants = all_grants(events);
    let mut violations = overlaps(&grants);
    violations.extend(fences(&grants));
    violations.extend(revivals(events));
    violations.extend(lost_updates(&grants));
    violations
}

fn all_grants(events: &[Event]) -> Vec<Grant> {
    let mut asked = BTreeMap::new();
    let mut grants = BTreeMap::<_, Grant>::new();
    for event in events {
        let key = (event.by, event.acquisition);
        match &event.what {
            What::Asked => drop(asked.insert(key, event.at)),
            What::Acquired { fence } => {
                let grant = Grant {
                    by: event.by,
                    asked: asked.get(&key).copied().unwrap_or_default(),
                    acquired: event.at,
                    fence: *fence,
                    ..Grant::default()
                };
                grants.insert(key, grant);
            }
            _ => {
                let Some(grant) = grants.get_mut(&key) else {
                    continue;
                };
                match &event.what {
                    What::Valid => grant.last_valid = Some(event.at),
                    What::Lost(_) => grant.lost = Some(event.at),
                    What::Wrote { value } => grant.writes.push(*value),
                    _ => {}
                }
            }
        }
    }
    let mut grants: Vec<_> = grants.into_values().collect();
    grants.sort_by_key(|grant| grant.acquired);
    grants
}

/// Two at a time: a holder still found its lock valid when a later one knew that it had been granted the lock.
fn overlaps(grants: &[Grant]) -> Vec<String> {
    let mut violations = Vec::new();
    let mut longest: Option<&Grant> = None;
    for grant in grants {
        if let Some(earlier) = longest
            && let Some(valid) = earlier.last_valid
            && valid > grant.acquired
        {
            violations.push(format!(
                "process {} was granted the lock at {:?}, and process {} still found its own valid at {valid:?}",
                grant.by, grant.acquired, earlier.by
            ));
        }
        if longest.is_none_or(|earlier| earlier.last_valid < grant.last_valid) {
            longest = Some(grant);
        }
    }
    violations
}

/// Who asked when another had been granted the lock has the greater fencing token, and no two have the same.
fn fences(grants: &[Grant]) -> Vec<String> {
    let mut violations = Vec::new();
    let mut seen = BTreeSet::new();
    for grant in grants {
        if !seen.insert(grant.fence) {
            violations.push(format!("two grants have the fencing token {}", grant.fence));
        }
        let before = grants
            .iter()
            .take_while(|earlier| earlier.acquired < grant.asked);
        let greatest = before.map(|earlier| earlier.fence).max();
        if greatest.is_some_and(|greatest| greatest >= grant.fence) {
            violations.push(format!(
                "the fencing token {} came after {greatest:?}",
                grant.fence
            ));
        }
    }
    violations
}

/// What is lost stays lost.
fn revivals(events: &[Event]) -> Vec<String> {
    let mut lost = BTreeSet::new();
    let mut violations = Vec::new();
    for event in events {
        let key = (event.by, event.acquisition);
        match event.what {
            What::Lost(_) => drop(lost.insert(key)),
            What::Valid if lost.contains(&key) => {
                violations.push(format!(
                    "process {} lost its lock and had it again",
                    event.by
                ));
            }
            _ => {}
        }
    }
    violations
}

/// Two writes of the same number: one of them counted from what the other had overwritten.
fn lost_updates(grants: &[Grant]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let writes = grants.iter().flat_map(|grant| &grant.writes);
    let twice = writes.filter(|value| !seen.insert(**value));
    twice
        .map(|value| format!("the resource was counted to {value} twice"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Milliseconds, process, and what: each process acquires once.
    fn history(events: &[(u64, u32, What)]) -> Vec<Event> {
        let event = |(at, by, what): &(u64, u32, What)| Event {
            at: Duration::from_millis(*at),
            by: *by,
            acquisition: 1,
            what: what.clone(),
        };
        events.iter().map(event).collect()
    }

    fn acquired(fence: u64) -> What {
        What::Acquired { fence }
    }

    #[test]
    fn a_right_history_has_no_violations() {
        let events = history(&[
            (0, 1, What::Asked),
            (1, 1, acquired(5)),
            (2, 1, What::Valid),
            (3, 2, What::Asked),
            (4, 1, What::Wrote { value: 1 }),
            (6, 2, acquired(7)),
            (7, 1, What::Lost(String::new())),
            (8, 2, What::Wrote { value: 2 }),
        ]);
        assert_eq!(violations(&events), Vec::<String>::new());
        assert_eq!(grants(&events), 2);
    }

    #[test]
    fn two_at_a_time_are_found_even_with_a_third_between() {
        let events = history(&[
            (0, 1, What::Asked),
            (0, 2, What::Asked),
            (0, 3, What::Asked),
            (1, 1, acquired(1)),
            (2, 2, acquired(2)),
            (3, 3, acquired(3)),
            (4, 1, What::Valid),
        ]);
        assert_eq!(violations(&events).len(), 2, "2 and 3 came while 1 was in");
    }

    #[test]
    fn a_fence_that_does_not_grow_is_found() {
        let one_after_the_other = |first, second| {
            violations(&history(&[
                (0, 1, What::Asked),
                (1, 1, acquired(first)),
                (2, 2, What::Asked),
                (3, 2, acquired(second)),
            ]))
        };
        assert_eq!(one_after_the_other(5, 6).len(), 0);
        assert_eq!(one_after_the_other(5, 4).len(), 1);
        assert_eq!(one_after_the_other(5, 5).len(), 2);
    }

    #[test]
    fn a_lock_that_comes_back_is_found() {
        let events = history(&[
            (0, 1, What::Asked),
            (1, 1, acquired(1)),
            (2, 1, What::Lost(String::new())),
            (3, 1, What::Valid),
        ]);
        assert_eq!(violations(&events).len(), 1);
    }

    #[test]
    fn a_lost_update_is_found() {
        let events = history(&[
            (0, 1, What::Asked),
            (1, 1, acquired(1)),
            (2, 1, What::Wrote { value: 1 }),
            (3, 2, What::Asked),
            (4, 2, acquired(2)),
            (5, 2, What::Wrote { value: 1 }),
        ]);
        assert_eq!(violations(&events).len(), 1);
    }
}
