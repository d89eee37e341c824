use std::time::Duration;

use distlock_api::{AcquireRequest, Token};

/// Requests that are like another one.
pub(crate) trait Like {
    /// The same, by somebody else: with a token of its own.
    fn with_new_token(&self) -> Self;
    /// The same, for this tick.
    fn with_tick(&self, tick: i64) -> Self;
    /// The same, for this long.
    fn with_lease(&self, lease: Duration) -> Self;
    /// The same, by this owner.
    fn with_owner(&self, owner: &str) -> Self;
}

impl Like for AcquireRequest {
    fn with_new_token(&self) -> Self {
        let mut request = self.clone();
        request.token = Token::random();
        request
    }

    fn with_tick(&self, tick: i64) -> Self {
        let mut request = self.with_new_token();
        request.tick = Some(tick);
        request
    }

    fn with_lease(&self, lease: Duration) -> Self {
        let mut request = self.clone();
        request.lease = lease;
        request
    }

    fn with_owner(&self, owner: &str) -> Self {
        let mut request = self.with_new_token();
        owner.clone_into(&mut request.owner);
        request
    }
}
