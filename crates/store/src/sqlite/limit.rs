//! Limits per key: the rules, and the present use of each key.

use rusqlite::{Connection, OptionalExtension as _};
use stargate_queue::limits::{Limit, LimitState, applying};

use super::error::Step;
use super::rows::rate;
use super::session::{Session, limits, millis, sql};

/// A row of `limit_key`.
#[derive(Debug, Clone)]
pub(super) struct Key {
    concurrency: Option<u32>,
    rate_count: Option<u32>,
    rate_per_ms: Option<i64>,
    pub(super) weight: i64,
    running: u32,
    tokens: f64,
    refilled_at: i64,
    pub(super) vtime: i64,
}

impl Default for Key {
    fn default() -> Self {
        Self {
            concurrency: None,
            rate_count: None,
            rate_per_ms: None,
            weight: 1,
            running: 0,
            tokens: 0.0,
            refilled_at: 0,
            vtime: 0,
        }
    }
}

impl Key {
    /// How many jobs may start now.
    pub(super) fn room(&self, now: i64) -> u32 {
        let concurrency = self.concurrency.map_or(u32::MAX, |most| most.saturating_sub(self.running));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the cast saturates, as it should"
        )]
        let rate = self.per_micro().map_or(u32::MAX, |_| (self.tokens(now) + 1e-6) as u32);
        concurrency.min(rate)
    }

    /// Starts available under the rate; 0 without one.
    #[expect(clippy::cast_precision_loss, reason = "elapsed microseconds are far below 2^52")]
    pub(super) fn tokens(&self, now: i64) -> f64 {
        let (Some(burst), Some(per_micro)) = (self.rate_count, self.per_micro()) else { return 0.0 };
        let elapsed = now.saturating_sub(self.refilled_at).max(0) as f64;
        (self.tokens + elapsed * per_micro).min(f64::from(burst))
    }

    /// When the next start is allowed after `taken` more, if the rate is what holds the key up.
    #[expect(clippy::cast_possible_truncation, reason = "a wait in microseconds")]
    pub(super) fn next_token(&self, now: i64, taken: u32) -> Option<i64> {
        let missing = 1.0 - (self.tokens(now) - f64::from(taken));
        let per_micro = self.per_micro().filter(|_| missing > 1e-6)?;
        Some(now + (missing / per_micro).ceil() as i64)
    }

    #[expect(clippy::cast_precision_loss, reason = "milliseconds of a rate are far below 2^52")]
    fn per_micro(&self) -> Option<f64> {
        Some(f64::from(self.rate_count?) / (self.rate_per_ms?.max(1) as f64 * 1000.0))
    }
}

/// The row of a key.
pub(super) fn key(conn: &Connection, key: &str) -> Step<Option<Key>> {
    let mut get = conn.prepare_cached(sql!("limit_key_get"))?;
    let found = get.query_row([key], |row| {
        Ok(Key {
            concurrency: row.get(0)?,
            rate_count: row.get(1)?,
            rate_per_ms: row.get(2)?,
            weight: row.get(3)?,
            running: row.get(4)?,
            tokens: row.get(5)?,
            refilled_at: row.get(6)?,
            vtime: row.get(7)?,
        })
    });
    Ok(found.optional()?)
}

/// The present use of a key.
pub(super) fn state(conn: &Connection, name: &str, now: i64) -> Step<Option<LimitState>> {
    let Some(found) = key(conn, name)?.filter(|_| !name.is_empty()) else { return Ok(None) };
    Ok(Some(LimitState {
        key: name.to_owned(),
        running: found.running,
        concurrency: found.concurrency,
        rate: rate(found.rate_count, found.rate_per_ms),
        tokens: found.rate_count.map(|_| found.tokens(now)),
        weight: u32::try_from(found.weight).unwrap_or(1),
    }))
}

/// Adds or replaces a rule.
pub(super) fn set(s: &mut Session<'_>, limit: &Limit) -> Step<()> {
    s.conn.prepare_cached(sql!("limit_rule_put"))?.execute((
        &limit.pattern,
        limit.concurrency,
        limit.rate.map(|rate| rate.count),
        limit.rate.map(|rate| millis(rate.per)),
        limit.weight,
    ))?;
    refresh(s, &|key| limit.matches(key))
}

/// Removes a rule; false if there was none.
pub(super) fn remove(s: &mut Session<'_>, pattern: &str) -> Step<bool> {
    let removed = s.conn.prepare_cached(sql!("limit_rule_remove"))?.execute([pattern])? > 0;
    if removed {
        let gone = Limit { pattern: pattern.to_owned(), concurrency: None, rate: None, weight: 1 };
        refresh(s, &|key| gone.matches(key))?;
    }
    Ok(removed)
}

/// Gives the keys that a changed rule covers the rule that applies to them now.
fn refresh(s: &mut Session<'_>, covered: &dyn Fn(&str) -> bool) -> Step<()> {
    let rules = limits(s.conn)?;
    let keys: Vec<String> = {
        let mut list = s.conn.prepare_cached(sql!("limit_key_list"))?;
        list.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?
    };
    let mut write = s.conn.prepare_cached(sql!("limit_key_refresh"))?;
    for name in keys.iter().filter(|name| covered(name)) {
        let Some(old) = key(s.conn, name)? else { continue };
        let rule = applying(&rules, name);
        let rate = rule.and_then(|rule| rule.rate);
        // A key that gets its first rate starts with a full bucket, one that had a rate keeps what it has.
        let tokens = match (rate, old.rate_count) {
            (Some(rate), Some(_)) => old.tokens(s.now).min(f64::from(rate.count)),
            (Some(rate), None) => f64::from(rate.count),
            (None, _) => 0.0,
        };
        write.execute((
            name,
            rule.and_then(|rule| rule.concurrency),
            rate.map(|rate| rate.count),
            rate.map(|rate| millis(rate.per)),
            rule.map_or(1, |rule| rule.weight),
            tokens,
            s.now,
        ))?;
    }
    s.wake = true;
    Ok(())
}
