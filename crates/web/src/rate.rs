//! How often somebody may change something: so many times a second, and some more at once after a quiet time.
//!
//! Per token; failed attempts to get in count by address. Where nobody needs a token there is no limit: only this machine
//! can reach it.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock as _, DefaultClock};
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};
use stargate_access::TokenId;

use crate::error::{Problem, Result};

/// Those who are kept apart at most; beyond, all others share what one may do.
const KEYS_MAX: usize = 10_000;

/// How often somebody may change something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// So many times in `per`.
    pub count: NonZeroU32,
    /// In which time.
    pub per: Duration,
    /// So many at once after a quiet time.
    pub burst: NonZeroU32,
}

/// Where a connection comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// Who is counted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// Who has a token.
    Token(TokenId),
    /// Who has none, where they come from.
    Address(Option<IpAddr>),
    /// Everybody for whom there is no room.
    Others,
}

/// Counts.
#[derive(Debug)]
pub(crate) struct Limiter(Option<RateLimiter<Key, HashMapStateStore<Key>, DefaultClock>>);

impl Limiter {
    /// Without a limit nothing is counted.
    pub(crate) fn new(limit: Option<RateLimit>) -> Self {
        let quota = limit.and_then(|limit| {
            let every = limit.per.checked_div(limit.count.get())?;
            Some(Quota::with_period(every)?.allow_burst(limit.burst))
        });
        Self(quota.map(RateLimiter::hashmap))
    }

    /// Counts once, or refuses.
    pub(crate) fn check(&self, key: &Key) -> Result<()> {
        let Some(limiter) = &self.0 else { return Ok(()) };
        if limiter.len() >= KEYS_MAX {
            limiter.retain_recent();
        }
        let key = if limiter.len() >= KEYS_MAX { &Key::Others } else { key };
        limiter.check_key(key).map_err(|not_until| {
            let wait = not_until.wait_time_from(DefaultClock::default().now());
            Problem::too_many(u16::try_from(wait.as_secs() + 1).unwrap_or(u16::MAX))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter() -> Limiter {
        let (count, burst) = (NonZeroU32::new(1).unwrap(), NonZeroU32::new(3).unwrap());
        Limiter::new(Some(RateLimit { count, per: Duration::from_secs(3600), burst }))
    }

    #[test]
    fn a_burst_is_let_through_and_then_it_is_said_when_to_come_back() {
        let limiter = limiter();
        let key = Key::Address(None);
        for _ in 0..3 {
            limiter.check(&key).unwrap();
        }
        let refused = limiter.check(&key).unwrap_err();
        assert_eq!((refused.status.as_u16(), &*refused.code), (429, "RATE_LIMITED"));
        assert!(refused.retry_after_sec.unwrap() > 3000, "{refused:?}");
        limiter.check(&Key::Address(Some([127, 0, 0, 1].into()))).unwrap();
    }

    #[test]
    fn however_many_come_the_memory_is_bounded() {
        let limiter = limiter();
        for n in 0..=u32::try_from(KEYS_MAX).unwrap() {
            limiter.check(&Key::Address(Some(std::net::Ipv4Addr::from_bits(n).into()))).unwrap();
        }
        assert!(limiter.0.as_ref().unwrap().len() <= KEYS_MAX + 1);
    }

    #[test]
    fn without_a_limit_everything_is_let_through() {
        let limiter = Limiter::new(None);
        (0..1000).for_each(|_| limiter.check(&Key::Others).unwrap());
    }
}
