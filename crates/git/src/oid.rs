//! Object ids: what is pushed, instead of names that may mean something else a moment later.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Hex digits of a SHA-1 id.
pub const SHA1_DIGITS: usize = 40;
/// Hex digits of a SHA-256 id.
pub const SHA256_DIGITS: usize = 64;

/// An object id: 40 or 64 lower-case hex digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Oid(Box<str>);

impl Oid {
    /// Reads an id; upper-case digits are not accepted, because git never writes them.
    pub fn parse(text: &str) -> Result<Self, BadOid> {
        if !matches!(text.len(), SHA1_DIGITS | SHA256_DIGITS) {
            return Err(BadOid::Length(text.len()));
        }
        if !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(BadOid::Digit);
        }
        Ok(Self(text.into()))
    }

    /// The id that stands for "no object": all zeros, as many as `self` has digits.
    #[must_use]
    pub fn zero_like(&self) -> Self {
        Self("0".repeat(self.0.len()).into())
    }

    /// Whether it stands for "no object".
    pub fn is_zero(&self) -> bool {
        self.0.bytes().all(|byte| byte == b'0')
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Oid {
    type Err = BadOid;

    fn from_str(text: &str) -> Result<Self, BadOid> {
        Self::parse(text)
    }
}

impl TryFrom<String> for Oid {
    type Error = BadOid;

    fn try_from(text: String) -> Result<Self, BadOid> {
        Self::parse(&text)
    }
}

impl From<Oid> for String {
    fn from(oid: Oid) -> Self {
        oid.0.into()
    }
}

/// Why a text is no object id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadOid {
    /// Neither 40 nor 64 digits.
    #[error("an object id has 40 or 64 hex digits, not {0}")]
    Length(usize),
    /// Something else than a lower-case hex digit.
    #[error("an object id has lower-case hex digits only")]
    Digit,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_lengths_are_read_and_nothing_else() {
        for digits in [SHA1_DIGITS, SHA256_DIGITS] {
            let text = "a1".repeat(digits / 2);
            assert_eq!(Oid::parse(&text).unwrap().as_str(), text);
            assert_eq!(Oid::parse(&text.to_uppercase()), Err(BadOid::Digit));
        }
        for text in ["", "a1", &"a".repeat(41), "--receive-pack=x", &"g".repeat(40)] {
            assert!(Oid::parse(text).is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn zero_is_known_in_both_lengths() {
        assert!(Oid::parse(&"0".repeat(40)).unwrap().is_zero());
        let other = Oid::parse(&"1".repeat(64)).unwrap();
        assert!(!other.is_zero());
        assert!(other.zero_like().is_zero() && other.zero_like().as_str().len() == 64);
    }
}
