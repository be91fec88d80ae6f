//! Rows of the store remembered for a moment. Time is handed in: nothing here waits or looks at a clock.

use std::collections::HashMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::token::TokenId;
use crate::tokens::{Found, TOUCH_EVERY};

/// Rows remembered at most, those of ids that nobody has included.
pub(crate) const ROWS_MAX: usize = 4096;

/// Rows by id, each with the time before it was asked for.
#[derive(Debug)]
pub(crate) struct Cache {
    age_max: Duration,
    rows: HashMap<TokenId, Row>,
    /// The store is known to hold a token; it never ceases to.
    any: bool,
    none_at: Option<Duration>,
}

#[derive(Debug)]
struct Row {
    asked_at: Duration,
    found: Found,
    touched: bool,
}

impl Cache {
    pub(crate) fn new(age_max: Duration) -> Self {
        Self { age_max, rows: HashMap::new(), any: false, none_at: None }
    }

    /// The row of an id, if it is young enough, with the store's time as it must be by now.
    pub(crate) fn get(&self, id: &TokenId, now: Duration) -> Option<Found> {
        let row = self.rows.get(id).filter(|row| self.is_young(row.asked_at, now))?;
        let gone = SignedDuration::try_from(now.saturating_sub(row.asked_at)).ok()?;
        let now = row.found.now.saturating_add(gone).unwrap_or(Timestamp::MAX);
        Some(Found { token: row.found.token.clone(), now })
    }

    /// Remembers a row that was asked for at `asked_at`: a revocation after that may be missing in it.
    pub(crate) fn put(&mut self, id: TokenId, found: Found, asked_at: Duration, now: Duration) {
        if self.rows.len() >= ROWS_MAX && !self.rows.contains_key(&id) {
            let age_max = self.age_max;
            self.rows.retain(|_, row| now.saturating_sub(row.asked_at) < age_max);
            // Somebody presents ids faster than they age. Asking the store again is all that it costs.
            if self.rows.len() >= ROWS_MAX {
                self.rows.clear();
            }
        }
        self.rows.insert(id, Row { asked_at, found, touched: false });
    }

    /// Whether the use of a token is to be written down now; true once for each row.
    pub(crate) fn wants_touch(&mut self, id: &TokenId, now: Timestamp) -> bool {
        let Some(row) = self.rows.get_mut(id) else { return false };
        let used = row.found.token.as_ref().and_then(|token| token.last_used_at);
        let old = |used: Timestamp| {
            Duration::try_from(now.duration_since(used)).is_ok_and(|age| age >= TOUCH_EVERY)
        };
        !row.touched && used.is_none_or(old) && {
            row.touched = true;
            true
        }
    }

    /// Whether the store holds a token, if that is known.
    pub(crate) fn any(&self, now: Duration) -> Option<bool> {
        let young = self.none_at.is_some_and(|at| self.is_young(at, now));
        if self.any { Some(true) } else { young.then_some(false) }
    }

    /// Remembers whether the store holds a token.
    pub(crate) fn put_any(&mut self, any: bool, asked_at: Duration) {
        self.any |= any;
        self.none_at = Some(asked_at);
    }

    fn is_young(&self, asked_at: Duration, now: Duration) -> bool {
        now.saturating_sub(asked_at) < self.age_max
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grant::Grant;
    use crate::token::{NewToken, Token};

    const AGE: Duration = Duration::from_secs(5);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn nobody() -> Found {
        Found { token: None, now: Timestamp::UNIX_EPOCH }
    }

    fn used(last_used_at: Option<Timestamp>) -> (TokenId, Found) {
        let (new, _) = NewToken::issue("a", vec![Grant::EVERYTHING], None).unwrap();
        let token = Token {
            id: new.id.clone(),
            hash: new.hash,
            name: new.name,
            grants: new.grants,
            created_at: Timestamp::UNIX_EPOCH,
            expires_at: None,
            last_used_at,
            revoked_at: None,
        };
        (new.id, Found { token: Some(token), now: Timestamp::UNIX_EPOCH })
    }

    fn id(n: usize) -> TokenId {
        format!("{n:012}").parse().unwrap()
    }

    #[test]
    fn a_row_is_good_for_its_time_counted_from_before_it_was_asked_for() {
        let mut cache = Cache::new(AGE);
        cache.put(id(1), nobody(), at(10), at(13));
        let found = cache.get(&id(1), at(14)).unwrap();
        assert_eq!(found.now, Timestamp::from_second(4).unwrap(), "the store's clock went on meanwhile");
        assert!(cache.get(&id(1), at(15)).is_none());
        assert!(cache.get(&id(2), at(10)).is_none());
    }

    #[test]
    fn it_never_grows_beyond_its_bound_and_old_rows_go_first() {
        let mut cache = Cache::new(AGE);
        for n in 0..ROWS_MAX {
            cache.put(id(n), nobody(), at(u64::from(n >= 10) * 4), at(4));
        }
        cache.put(id(ROWS_MAX), nobody(), at(6), at(6));
        assert_eq!(cache.len(), ROWS_MAX - 9, "ten old ones went");
        for n in 0..3 * ROWS_MAX {
            cache.put(id(n), nobody(), at(7), at(7));
            assert!(cache.len() <= ROWS_MAX);
        }
    }

    #[test]
    fn a_use_is_written_down_once_a_row_and_only_if_the_last_is_old() {
        let mut cache = Cache::new(AGE);
        let now = Timestamp::from_second(100).unwrap();
        let (never, found) = used(None);
        cache.put(never.clone(), found, at(0), at(0));
        assert!(cache.wants_touch(&never, now));
        assert!(!cache.wants_touch(&never, now), "once");
        for (second, expected) in [(40, true), (41, false), (100, false), (200, false)] {
            let (id, found) = used(Some(Timestamp::from_second(second).unwrap()));
            cache.put(id.clone(), found, at(0), at(0));
            assert_eq!(cache.wants_touch(&id, now), expected, "used at {second}");
        }
        assert!(!cache.wants_touch(&id(1), now), "nobody");
    }

    #[test]
    fn that_there_is_a_token_is_never_forgotten_and_that_there_is_none_soon() {
        let mut cache = Cache::new(AGE);
        assert_eq!(cache.any(at(0)), None);
        cache.put_any(false, at(0));
        assert_eq!((cache.any(at(4)), cache.any(at(5))), (Some(false), None));
        cache.put_any(true, at(5));
        cache.put_any(false, at(6));
        assert_eq!(cache.any(at(1000)), Some(true));
    }
}
