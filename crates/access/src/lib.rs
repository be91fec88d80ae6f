//! Who may do what, and who did: tokens, the roles they give, the repositories they are for, and the audited actions.
//!
//! ```text
//!   Authorization header ──▶ header::presented ──▶ Authority::authorize(need, repo) ──▶ Principal | Denied
//!                                                     │ id              ▲
//!                                                     ▼                 │ row, at most 5 s old
//!                                                  Tokens (the store) ──┘
//! ```
//!
//! A token is `sg_<id>_<secret>`. The id is public: it finds the row, and names the token to people. Of the rest only
//! a SHA-256 is kept. A slow hash would be wrong here: passwords need one because they can be guessed, and 256 random
//! bits cannot; it would only let anybody burn our processors by presenting nonsense.
//!
//! What holds:
//!
//! 1. The text of a token exists once, in the answer to its creation. No error, log line or row holds it (INV-8).
//! 2. Hashes are compared in constant time, and an id that nobody has is compared too: neither time nor message tells a
//!    wrong id from a wrong secret.
//! 3. Only who presents the right secret is told that a token was revoked or has expired.
//! 4. A revocation, and the first token of an open store, takes effect within [`authority::ROW_AGE_MAX`]; an expiry at
//!    once, by the store's clock.
//! 5. A store that does not answer lets nobody in who was not let in within that time.
//! 6. A right on some repositories is no right on what belongs to none: without a repository only grants on `*` count.

pub mod audit;
pub mod authority;
mod cache;
pub mod error;
pub mod grant;
pub mod header;
pub mod token;
pub mod tokens;

pub use audit::{ActionFilter, ActionId, ActionRow, Audit, NewAction, SharedAudit};
pub use authority::{Authority, Denied, Policy, Principal};
pub use error::{Error, Result};
pub use grant::{Grant, RepoPattern, Role};
pub use token::{NewToken, SecretHash, Token, TokenId};
pub use tokens::{Found, Tokens};
