//! What is stored under the keys, to the byte.

use distlock_api::Token;

/// How the value of a lock key begins: the token in hexadecimal digits.
pub(crate) fn token(token: Token) -> String {
    with_token(token, &[])
}

/// How the value of a held lock begins: token, `h`.
pub(crate) fn held_by(holder: Token) -> String {
    with_token(holder, &["h"])
}

/// The value of a held lock: token, `h`, owner.
pub(crate) fn held(holder: Token, owner: &str) -> String {
    with_token(holder, &["h", owner])
}

fn with_token(token: Token, rest: &[&str]) -> String {
    let length = rest.iter().map(|part| part.len()).sum::<usize>();
    let mut value = String::with_capacity(32 + length);
    for byte in token.as_bytes() {
        for digit in [byte >> 4, byte & 15] {
            value.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
        }
    }
    value.extend(rest.iter().copied());
    value
}

/// Who has a lock, as its value tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// It was taken by this library.
    Known {
        /// The owner text.
        owner: String,
        /// It was released, and `at_least_for` is not over.
        resting: bool,
    },
    /// It was taken by something else, such as another library's SET NX.
    Unknown,
}

impl Holder {
    pub(crate) fn parse(value: &[u8]) -> Self {
        Self::known(value).unwrap_or(Self::Unknown)
    }

    fn known(value: &[u8]) -> Option<Self> {
        let (token, rest) = value.split_at_checked(32)?;
        let (state, owner) = rest.split_first()?;
        let owner = std::str::from_utf8(owner).ok()?;
        let hexadecimal = |b: &u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        let ours = token.iter().all(hexadecimal)
            && matches!(state, b'h' | b'r')
            && !owner.contains(char::is_control);
        ours.then(|| Self::Known {
            owner: owner.to_owned(),
            resting: *state == b'r',
        })
    }

    pub(crate) fn is_resting(&self) -> bool {
        matches!(self, Self::Known { resting: true, .. })
    }

    pub(crate) fn into_owner(self) -> Option<String> {
        match self {
            Self::Known { owner, .. } => Some(owner),
            Self::Unknown => None,
        }
    }
}

/// A tick as 20 digits that stand in the ticks' order, so that Lua can compare them as text.
pub(crate) fn tick(tick: i64) -> String {
    format!("{:020}", tick.cast_unsigned() ^ (1 << 63))
}

/// The tick that was stored, if it was stored by this library.
pub(crate) fn parse_tick(digits: &[u8]) -> Option<i64> {
    let digits = std::str::from_utf8(digits).ok()?;
    let number: u64 = digits.parse().ok().filter(|_| digits.len() == 20)?;
    Some((number ^ (1 << 63)).cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_as_they_always_were() {
        let token =
            Token::from_bytes(*b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\xff");
        assert_eq!(
            held(token, "host/7"),
            "000102030405060708090a0b0c0d0effhhost/7"
        );
    }

    #[test]
    fn a_value_tells_its_holder() {
        let value = held(Token::random(), "jöb");
        let known = |resting| Holder::Known {
            owner: "jöb".to_owned(),
            resting,
        };
        assert_eq!(Holder::parse(value.as_bytes()), known(false));
        let resting = format!("{}r{}", &value[..32], &value[33..]);
        assert_eq!(Holder::parse(resting.as_bytes()), known(true));
    }

    #[test]
    fn values_of_others_have_no_known_holder() {
        let ours = "000102030405060708090a0b0c0d0eff";
        for value in [
            "",
            "1",
            ours,
            &format!("{ours}x"),
            &format!("{ours}ha\nb"),
            &ours.to_uppercase(),
            &format!("{}hjob", ours.to_uppercase()),
        ] {
            assert_eq!(Holder::parse(value.as_bytes()), Holder::Unknown, "{value}");
        }
        assert_eq!(Holder::parse(b"\xff\xff"), Holder::Unknown);
    }

    #[test]
    fn ticks_stand_in_order_and_come_back() {
        let ticks = [i64::MIN, -1, 0, 1, (1 << 53) + 1, (1 << 53) + 2, i64::MAX];
        assert!(ticks.is_sorted_by(|a, b| tick(*a) < tick(*b)));
        for t in ticks {
            assert_eq!(parse_tick(tick(t).as_bytes()), Some(t));
        }
        assert_eq!(tick(i64::MIN), "0".repeat(20));
        assert_eq!(parse_tick(b"7"), None);
    }
}
