//! Tokens: how one is made, what is kept of it, and how a presented one is taken apart.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use rand::distr::{Alphanumeric, SampleString as _};
use sha2::{Digest as _, Sha256};
use stargate_base::Secret;
use subtle::{Choice, ConstantTimeEq as _};

use crate::error::{Error, Result};
use crate::grant::Grant;

/// What every token begins with, so that scanners for leaked secrets can know it.
pub const PREFIX: &str = "sg_";
/// Letters and digits of the public part: 71 bits, so that two never meet.
pub const ID_CHARS: usize = 12;
/// Letters and digits of the secret part: 43 of 62 make 256 bits.
pub const SECRET_CHARS: usize = 43;
/// How many grants a token may have.
pub const GRANTS_MAX: usize = 100;
/// How long a token's name may be.
pub const NAME_BYTES_MAX: usize = 100;
/// How long a token may be good for: ten years.
pub const LIFE_MAX: Duration = Duration::from_secs(10 * 366 * 86_400);

const TEXT_CHARS: usize = PREFIX.len() + ID_CHARS + 1 + SECRET_CHARS;

/// The public part of a token: finds its row and names it to people.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TokenId(String);

impl TokenId {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id in a presented text, for a log: it proves nothing. None if the text does not have the form of a token.
    pub fn claimed(presented: &Secret) -> Option<Self> {
        Presented::read(presented).map(|presented| presented.id)
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for TokenId {
    type Err = Error;

    /// The text is not repeated in the error: people paste whole tokens where an id belongs.
    fn from_str(text: &str) -> Result<Self> {
        if text.len() == ID_CHARS && text.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return Ok(Self(text.to_owned()));
        }
        let problem = format!("is not the id of a token: {ID_CHARS} letters and digits, as listed");
        Err(Error::invalid("id", problem))
    }
}

/// What is kept of a token's text.
#[derive(Clone, Copy)]
pub struct SecretHash([u8; 32]);

impl SecretHash {
    /// What no text has, to compare with when there is no row.
    pub(crate) const NOBODY: Self = Self([0; 32]);

    /// A hash as the store kept it.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, for the store.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn of(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }

    /// Compares in a time that tells nothing.
    pub(crate) fn same(&self, other: &Self) -> Choice {
        self.0.ct_eq(&other.0)
    }
}

impl fmt::Debug for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A token to be kept.
#[derive(Debug, Clone)]
pub struct NewToken {
    /// The public part.
    pub id: TokenId,
    /// What is kept of the text.
    pub hash: SecretHash,
    /// What it is for, in the words of whoever made it.
    pub name: String,
    /// What it allows.
    pub grants: Vec<Grant>,
    /// How long it is good for, by the store's clock; for ever when absent.
    pub life: Option<Duration>,
}

impl NewToken {
    /// Makes a token. Its text is in the second answer and nowhere else.
    pub fn issue(name: &str, grants: Vec<Grant>, life: Option<Duration>) -> Result<(Self, Secret)> {
        let mut random = rand::rng();
        let id = Alphanumeric.sample_string(&mut random, ID_CHARS);
        let text = format!("{PREFIX}{id}_{}", Alphanumeric.sample_string(&mut random, SECRET_CHARS));
        let token =
            Self { id: TokenId(id), hash: SecretHash::of(&text), name: name.to_owned(), grants, life };
        token.check()?;
        Ok((token, Secret::new(text)))
    }

    /// Refuses impossible values, naming the field.
    pub fn check(&self) -> Result<()> {
        let fits = !self.name.is_empty() && self.name.len() <= NAME_BYTES_MAX;
        if !fits || self.name.chars().any(char::is_control) {
            let problem = format!("is to have 1 to {NAME_BYTES_MAX} bytes without control characters");
            return Err(Error::invalid("name", problem));
        }
        if self.name.contains(PREFIX) {
            return Err(Error::invalid("name", "looks like a token; a name is shown to everybody"));
        }
        if !(1..=GRANTS_MAX).contains(&self.grants.len()) {
            let problem = format!("are {}; allowed are 1 to {GRANTS_MAX}", self.grants.len());
            return Err(Error::invalid("grants", problem));
        }
        if self.life.is_some_and(|life| life.is_zero() || life > LIFE_MAX) {
            return Err(Error::invalid(
                "expires",
                "is out of range; allowed are more than 0 and at most 10 years",
            ));
        }
        Ok(())
    }
}

/// A token as the store knows it.
#[derive(Debug, Clone)]
pub struct Token {
    /// The public part.
    pub id: TokenId,
    /// What is kept of the text.
    pub hash: SecretHash,
    /// What it is for.
    pub name: String,
    /// What it allows.
    pub grants: Vec<Grant>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it stops being good, if ever.
    pub expires_at: Option<Timestamp>,
    /// When it was last used, give or take [`TOUCH_EVERY`](crate::tokens::TOUCH_EVERY).
    pub last_used_at: Option<Timestamp>,
    /// When it was taken back, if it was.
    pub revoked_at: Option<Timestamp>,
}

/// A presented text that has the form of a token.
#[derive(Debug)]
pub(crate) struct Presented {
    pub(crate) id: TokenId,
    pub(crate) hash: SecretHash,
}

impl Presented {
    /// Takes a text apart; none if it does not have the form.
    pub(crate) fn read(secret: &Secret) -> Option<Self> {
        let text = secret.reveal();
        if text.len() != TEXT_CHARS || !text.is_ascii() {
            return None;
        }
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        if !secret.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return None;
        }
        Some(Self { id: id.parse().ok()?, hash: SecretHash::of(text) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issue() -> (NewToken, Secret) {
        NewToken::issue("ci", vec![Grant::EVERYTHING], None).unwrap()
    }

    #[test]
    fn a_token_is_known_again_by_its_text_and_no_two_are_the_same() {
        let (token, text) = issue();
        assert_eq!(text.reveal().len(), TEXT_CHARS);
        let presented = Presented::read(&text).unwrap();
        assert_eq!(presented.id, token.id);
        assert!(bool::from(presented.hash.same(&token.hash)));
        let (other, _) = issue();
        assert_ne!(other.id, token.id);
        assert!(!bool::from(other.hash.same(&token.hash)));
    }

    #[test]
    fn the_hash_covers_the_id_too() {
        let ((token, text), (other, _)) = (issue(), issue());
        let forged = text.reveal().replace(token.id.as_str(), other.id.as_str());
        let presented = Presented::read(&Secret::new(forged)).unwrap();
        assert!(!bool::from(presented.hash.same(&token.hash)));
    }

    #[test]
    fn what_is_kept_and_what_is_printed_does_not_hold_the_text() {
        let (token, text) = issue();
        let secret = &text.reveal()[TEXT_CHARS - SECRET_CHARS..];
        let printed = format!("{token:?} {text:?} {text} {:?}", Presented::read(&text));
        assert!(!printed.contains(secret), "{printed}");
        assert!(printed.contains("***"));
    }

    #[test]
    fn what_does_not_have_the_form_is_no_token() {
        let (_, text) = issue();
        let text = text.reveal();
        let cut = &text[..text.len() - 1];
        let (long, no_prefix) = (format!("{text}A"), text.replace("sg_", "gh_"));
        let (odd, wide) = (format!("{cut}-"), format!("{}é", &text[..text.len() - 2]));
        let moved = format!("sg_{}{}", &text[4..], "A");
        for bad in ["", "sg_", cut, &long, &no_prefix, &odd, &wide, &moved] {
            assert!(Presented::read(&Secret::new(bad)).is_none(), "{bad:?} was taken for a token");
        }
    }

    #[test]
    fn impossible_tokens_are_refused_by_field_and_without_the_value() {
        let all = || vec![Grant::EVERYTHING];
        let (_, text) = issue();
        let day = Duration::from_secs(86_400);
        let bad = [
            NewToken::issue("", all(), None),
            NewToken::issue("a\nb", all(), None),
            NewToken::issue(&"x".repeat(NAME_BYTES_MAX + 1), all(), None),
            NewToken::issue(text.reveal(), all(), None),
            NewToken::issue("ci", Vec::new(), None),
            NewToken::issue("ci", vec![Grant::EVERYTHING; GRANTS_MAX + 1], None),
            NewToken::issue("ci", all(), Some(Duration::ZERO)),
            NewToken::issue("ci", all(), Some(LIFE_MAX + day)),
        ];
        for refused in bad {
            let error = refused.unwrap_err();
            assert_eq!(error.code(), "INVALID");
            assert!(!format!("{error} {error:?}").contains(text.reveal()), "{error:?}");
        }
        let pasted = text.reveal().parse::<TokenId>().unwrap_err();
        assert!(!format!("{pasted} {pasted:?}").contains(&text.reveal()[20..]));
    }
}
