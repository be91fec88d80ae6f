//! The one place that says yes or no.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use stargate_base::clock::Moment;
use stargate_base::{ErrorClass, Secret, Tasks};

use crate::cache::Cache;
use crate::error::Error;
use crate::grant::{Grant, Role};
use crate::token::{Presented, SecretHash, Token, TokenId};
use crate::tokens::{Found, Tokens};

/// How long a row of the store is believed: what a revocation takes to be felt.
pub const ROW_AGE_MAX: Duration = Duration::from_secs(5);

/// Who gets in without a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Everybody, for as long as the store has never held a token. For addresses that only this machine can reach; from
    /// the first token on it is as [`Policy::Tokens`].
    Open,
    /// Nobody.
    Tokens,
}

impl Policy {
    /// What is right for an address to listen on. An address that others can reach, with nothing to keep them out, is
    /// refused: `any` tells whether there is a token.
    pub fn at_start(address: IpAddr, any: bool) -> Result<Self, Error> {
        match (address.to_canonical().is_loopback(), any) {
            (true, _) => Ok(Self::Open),
            (false, true) => Ok(Self::Tokens),
            (false, false) => Err(Error::OpenToOthers { address: address.to_string() }),
        }
    }
}

/// Somebody who was let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The token presented; none where everybody gets in.
    pub token: Option<TokenId>,
    /// The token's name, to be written beside what is done; `anonymous` where everybody gets in.
    pub name: String,
    /// What they may do.
    pub grants: Vec<Grant>,
}

impl Principal {
    /// Whether this is allowed too.
    pub fn may(&self, need: Role, repo: Option<&str>) -> bool {
        self.grants.iter().any(|grant| grant.allows(need, repo))
    }

    fn anonymous() -> Self {
        Self { token: None, name: "anonymous".to_owned(), grants: vec![Grant::EVERYTHING] }
    }
}

/// Why somebody was not let in. The text may be shown to them.
#[derive(Debug, thiserror::Error)]
pub enum Denied {
    /// Nothing was presented.
    #[error("a token is needed; git takes it as the password, with any user")]
    Missing,
    /// What was presented is not the text of a token: a wrong id or a wrong secret.
    #[error("the token is not known")]
    Unknown,
    /// It was good once.
    #[error("the token has expired; ask for a new one")]
    Expired,
    /// It was taken back.
    #[error("the token was revoked; ask for a new one")]
    Revoked,
    /// It is good, but not for this.
    #[error("the token does not give the right to {need} here")]
    Insufficient {
        /// What would be needed.
        need: Role,
    },
    /// The store could not be asked.
    #[error("tokens cannot be checked now; try again")]
    Unavailable(#[source] Error),
}

impl Denied {
    /// How retry code is to treat it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Unavailable(error) => error.class(),
            _ => ErrorClass::ValidationFailure,
        }
    }

    /// The stable code that clients match on. A wrong id, a wrong secret and no token at all have the same.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Missing | Self::Unknown => "UNAUTHENTICATED",
            Self::Expired => "TOKEN_EXPIRED",
            Self::Revoked => "TOKEN_REVOKED",
            Self::Insufficient { .. } => "FORBIDDEN",
            Self::Unavailable(_) => "STORE_UNAVAILABLE",
        }
    }
}

/// Says who may do what, asking the store when it does not remember.
#[derive(Debug)]
pub struct Authority {
    tokens: Arc<dyn Tokens>,
    policy: Policy,
    cache: Mutex<Cache>,
    /// The beginning of the time that the cache counts in.
    began: Moment,
    tasks: Tasks,
}

impl Authority {
    /// An authority over the tokens of a store. What it writes down beside its answers runs as `tasks`.
    pub fn new(tokens: Arc<dyn Tokens>, policy: Policy, tasks: Tasks) -> Self {
        Self::remembering(ROW_AGE_MAX, tokens, policy, tasks)
    }

    /// As [`Authority::new`], but rows are believed for so long, and no longer than [`ROW_AGE_MAX`].
    pub fn remembering(age_max: Duration, tokens: Arc<dyn Tokens>, policy: Policy, tasks: Tasks) -> Self {
        let cache = Mutex::new(Cache::new(age_max.min(ROW_AGE_MAX)));
        Self { tokens, policy, cache, began: Moment::now(), tasks }
    }

    /// Whether who presents this may do what needs this role, on a repository (named without `.git`) or on what belongs
    /// to none.
    pub async fn authorize(
        &self,
        presented: Option<&Secret>,
        need: Role,
        repo: Option<&str>,
    ) -> Result<Principal, Denied> {
        if self.is_open().await? {
            return Ok(Principal::anonymous());
        }
        let presented = Presented::read(presented.ok_or(Denied::Missing)?).ok_or(Denied::Unknown)?;
        let found = self.find(&presented.id).await?;
        let principal = judge(&found, &presented.hash, need, repo)?;
        self.touch(presented.id, found.now);
        Ok(principal)
    }

    /// Whether everybody gets in, because there has never been a token where only this machine can reach.
    pub async fn is_open(&self) -> Result<bool, Denied> {
        Ok(self.policy == Policy::Open && !self.any().await?)
    }

    async fn any(&self) -> Result<bool, Denied> {
        let asked_at = self.began.age();
        if let Some(any) = self.cache().any(asked_at) {
            return Ok(any);
        }
        let any = self.tokens.any().await.map_err(Denied::Unavailable)?;
        self.cache().put_any(any, asked_at);
        Ok(any)
    }

    async fn find(&self, id: &TokenId) -> Result<Found, Denied> {
        let asked_at = self.began.age();
        if let Some(found) = self.cache().get(id, asked_at) {
            return Ok(found);
        }
        let found = self.tokens.find(id).await.map_err(Denied::Unavailable)?;
        self.cache().put(id.clone(), found.clone(), asked_at, self.began.age());
        Ok(found)
    }

    /// Nobody waits for the note about the last use, and nothing depends on it.
    fn touch(&self, id: TokenId, now: Timestamp) {
        if !self.cache().wants_touch(&id, now) {
            return;
        }
        let tokens = Arc::clone(&self.tokens);
        self.tasks.spawn(async move {
            if let Err(error) = tokens.touch(&id).await {
                tracing::debug!(
                    token = %id,
                    error = &error as &dyn std::error::Error,
                    "cannot write down that a token was used"
                );
            }
        });
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Decides. The secret comes first: who does not have it learns nothing about the token, not even that there is one.
fn judge(found: &Found, presented: &SecretHash, need: Role, repo: Option<&str>) -> Result<Principal, Denied> {
    let kept = found.token.as_ref().map_or(&SecretHash::NOBODY, |token| &token.hash);
    let same = bool::from(kept.same(presented));
    let Some(token) = found.token.as_ref().filter(|_| same) else { return Err(Denied::Unknown) };
    if token.revoked_at.is_some() {
        return Err(Denied::Revoked);
    }
    if token.expires_at.is_some_and(|end| end <= found.now) {
        return Err(Denied::Expired);
    }
    let principal = principal(token);
    if principal.may(need, repo) { Ok(principal) } else { Err(Denied::Insufficient { need }) }
}

fn principal(token: &Token) -> Principal {
    Principal { token: Some(token.id.clone()), name: token.name.clone(), grants: token.grants.clone() }
}

#[cfg(test)]
mod tests;
