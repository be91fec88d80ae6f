//! Where tokens are kept: what a store promises.
//!
//! # Rules
//!
//! 1. When `add` has answered, the token survives any crash, and `find` finds it, in every process. A token is added once:
//!    the same id again is refused with `Invalid` and changes nothing.
//! 2. `revoke` is for good: when it has answered, every later `find` tells it. Revoking again changes nothing, not even
//!    the time, and is answered with false. An id that nobody has is `NotFound`.
//! 3. `find` answers the row and the store's time from the same look, so that nobody compares two clocks (INV-6).
//! 4. Expired and revoked tokens stay listed; nothing here decides whether a token is good.
//! 5. `touch` raises the last use only if that is at least [`TOUCH_EVERY`] old, and never lowers it. It makes no row.
//! 6. `list` goes by id, in pages of at most [`PAGE_MAX`].
//! 7. `any` is true from the first token on, whatever became of it.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use crate::error::Result;
use crate::token::{NewToken, Token, TokenId};

/// How exact the last use of a token is kept: a write a minute is enough to find the forgotten ones.
pub const TOUCH_EVERY: Duration = Duration::from_secs(60);
/// The largest page.
pub const PAGE_MAX: u32 = 1000;

/// Where tokens are kept. The module text has the rules.
#[async_trait]
pub trait Tokens: Send + Sync + Debug + 'static {
    /// Keeps a new token.
    async fn add(&self, token: NewToken) -> Result<()>;

    /// A page of tokens by id, from after the one named.
    async fn list(&self, after: Option<&TokenId>, limit: u32) -> Result<Vec<Token>>;

    /// Takes a token back; false if it was already.
    async fn revoke(&self, id: &TokenId) -> Result<bool>;

    /// The token with this id, if there is one, and the store's time.
    async fn find(&self, id: &TokenId) -> Result<Found>;

    /// Notes that a token was used now.
    async fn touch(&self, id: &TokenId) -> Result<()>;

    /// Whether there ever was a token.
    async fn any(&self) -> Result<bool>;
}

/// The answer to a look for a token.
#[derive(Debug, Clone)]
pub struct Found {
    /// The token, if there is one.
    pub token: Option<Token>,
    /// The store's time at the look.
    pub now: Timestamp,
}
