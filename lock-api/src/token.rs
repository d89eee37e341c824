use std::fmt;

/// 128 random bits that name one acquisition. Release and renew act only where the stored token is this one.
///
/// A token is made for each acquisition and never used again; it is no secret, but whoever knows it can release
/// the lock, so that `Debug` shows its first four bytes only.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token([u8; 16]);

impl Token {
    /// A new token from the operating system's random source.
    ///
    /// # Panics
    ///
    /// Where the operating system has no randomness to give, which no supported system does after boot.
    pub fn random() -> Self {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
        Self(bytes)
    }

    /// A token from stored bytes, for backends and tests.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes, to be stored.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.0;
        write!(f, "Token({a:02x}{b:02x}{c:02x}{d:02x}…)")
    }
}

/// A number that is strictly greater for every later grant of the same lock name.
///
/// Hand it to the resource that the lock protects: a resource that refuses numbers smaller than the greatest it
/// has seen is safe even from a holder that was frozen past the end of its lease. The idea is described in
/// [How to do distributed locking](https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// A fencing token from a stored number, for backends and for resources that compare them.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// The number. It fits an `i64`, so that every database can store it.
    pub const fn value(self) -> u64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_debug_does_not_give_them_away() {
        let (one, two) = (Token::random(), Token::random());
        assert_ne!(one, two);
        assert!(format!("{one:?}").len() < 20);
    }
}
