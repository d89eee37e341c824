//! Leases as databases are asked for them: many in one statement.

use std::time::Duration;

use crate::{Effect, Error, ErrorKind, LeaseId};

/// Each lease once, with the longest time asked for it, in ascending order of name and token: whoever changes the same rows
/// locks them in the same order.
pub fn distinct(leases: &[(LeaseId, Duration)]) -> Vec<(&LeaseId, Duration)> {
    let mut asked: Vec<_> = leases.iter().map(|(lease, ttl)| (lease, *ttl)).collect();
    asked.sort_by(|(one, one_ttl), (other, other_ttl)| {
        let order = one.name.cmp(&other.name);
        let order = order.then_with(|| one.token.as_bytes().cmp(other.token.as_bytes()));
        order.then_with(|| other_ttl.cmp(one_ttl))
    });
    asked.dedup_by(|(later, _), (first, _)| later == first);
    asked
}

/// That the row of a lease is locked by another session, and that its renewal does not wait for it.
pub fn row_locked() -> Error {
    let text = "another session has the row locked, and a renewal does not wait for it: if this goes on, end that session";
    Error::new(ErrorKind::Timeout, text)
        .with_effect(Effect::None)
        .with_store_up()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LockName, Token};

    fn lease(name: &str) -> LeaseId {
        LeaseId {
            name: LockName::new(name).unwrap(),
            token: Token::from_bytes([7; 16]),
        }
    }

    #[test]
    fn the_longest_time_is_kept_and_names_ascend() {
        let seconds = Duration::from_secs;
        let (a, b) = (lease("a"), lease("b"));
        let asked = [
            (b.clone(), seconds(1)),
            (a.clone(), seconds(2)),
            (a.clone(), seconds(3)),
            (a.clone(), seconds(1)),
        ];
        assert_eq!(distinct(&asked), [(&a, seconds(3)), (&b, seconds(1))]);
    }
}
