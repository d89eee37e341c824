use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::FencingToken;

/// A value in this process that refuses holders whose lock has been granted to somebody else since.
///
/// It remembers the greatest fencing token that was let in, and lets in nobody with a smaller one. The same token may
/// come as often as it likes. Who is in keeps all others out until the guard is dropped, so that a holder that was
/// frozen half-way cannot write over its successor.
///
/// One value, one lock name: tokens of different names, or of one name in different stores, cannot be compared.
///
/// ```
/// use distlock_api::{Fenced, FencingToken};
///
/// let ledger = Fenced::new(Vec::new());
/// ledger.enter(FencingToken::new(7))?.push("paid");
/// let stale = ledger.enter(FencingToken::new(6)).unwrap_err();
/// assert_eq!(stale.to_string(), "fencing token 6 is stale: 7 was seen already");
/// # Ok::<(), distlock_api::StaleToken>(())
/// ```
pub struct Fenced<T>(Mutex<Inner<T>>);

struct Inner<T> {
    seen: FencingToken,
    value: T,
}

impl<T> Fenced<T> {
    /// A value that nobody has entered yet.
    pub fn new(value: T) -> Self {
        let seen = FencingToken::new(0);
        Self(Mutex::new(Inner { seen, value }))
    }

    /// Enters, after waiting for whoever is in. As with any [`Mutex`], the wait blocks the thread, a thread that is in already
    /// must not enter again, and the guard is not [`Send`]: do not keep it across an `.await`. A panic inside leaves the
    /// value as it was at that moment, open to the next.
    ///
    /// # Errors
    ///
    /// [`StaleToken`] for a token smaller than the greatest that was let in.
    pub fn enter(&self, token: FencingToken) -> Result<FencedGuard<'_, T>, StaleToken> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if token < inner.seen {
            let seen = inner.seen;
            return Err(StaleToken { token, seen });
        }
        inner.seen = token;
        Ok(FencedGuard(inner))
    }

    /// The value, for whoever owns it all.
    pub fn into_inner(self) -> T {
        let inner = self.0.into_inner();
        inner.unwrap_or_else(PoisonError::into_inner).value
    }
}

impl<T: Default> Default for Fenced<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> fmt::Debug for Fenced<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fenced").finish_non_exhaustive()
    }
}

/// The inside of a [`Fenced`] value, until it is dropped.
#[must_use = "others are let in as soon as it is dropped"]
pub struct FencedGuard<'a, T>(MutexGuard<'a, Inner<T>>);

impl<T> Deref for FencedGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T> DerefMut for FencedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0.value
    }
}

impl<T> fmt::Debug for FencedGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencedGuard")
            .field("seen", &self.0.seen)
            .finish_non_exhaustive()
    }
}

/// What a protected resource says to a fencing token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a stale token must not go on"]
pub enum Admission {
    /// None greater was seen. From now on smaller ones are refused.
    Admitted,
    /// A greater one was seen: the lock was granted to somebody else since. Nothing was changed.
    Stale(StaleToken),
}

impl Admission {
    /// The refusal as an error, for `?`.
    ///
    /// # Errors
    ///
    /// [`StaleToken`] where it was refused.
    pub fn admitted(self) -> Result<(), StaleToken> {
        match self {
            Self::Admitted => Ok(()),
            Self::Stale(stale) => Err(stale),
        }
    }
}

/// A fencing token that came too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleToken {
    /// The token that was refused.
    pub token: FencingToken,
    /// The greatest one that the resource has seen.
    pub seen: FencingToken,
}

impl fmt::Display for StaleToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { token, seen } = self;
        write!(f, "fencing token {token} is stale: {seen} was seen already")
    }
}

impl std::error::Error for StaleToken {}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(value: u64) -> FencingToken {
        FencingToken::new(value)
    }

    #[test]
    fn a_stale_holder_is_kept_out_and_the_same_one_may_come_again() {
        let value = Fenced::new(0);
        for (fence, new) in [(5, 1), (5, 2), (9, 3)] {
            *value.enter(token(fence)).unwrap() = new;
        }
        let stale = value.enter(token(8)).unwrap_err();
        assert_eq!((stale.token, stale.seen), (token(8), token(9)));
        assert_eq!(value.into_inner(), 3);
    }

    #[test]
    fn a_panic_inside_does_not_close_it() {
        let value = Fenced::new(0);
        let work = || {
            let _guard = value.enter(token(1)).unwrap();
            panic!("half-way");
        };
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_err();
        assert!(value.enter(token(1)).is_ok());
    }
}
