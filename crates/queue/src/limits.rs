//! Limits per key: how many jobs at once, how many per second, and which share of the workers.
//!
//! A key is whatever a producer names in `limit_key`: a tenant, a remote host, an account. The store enforces the
//! limits inside the claim, over all workers. Keys without a limit still share fairly, with weight 1.

use std::time::Duration;

use crate::error::{Error, Result};

/// What holds for all keys that match a pattern.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    /// A key, or a prefix that ends in `*`. The longest match wins; `*` alone matches every key.
    pub pattern: String,
    /// Jobs of one key at once, over all workers.
    pub concurrency: Option<u32>,
    /// Starts of one key per unit of time, over all workers.
    pub rate: Option<Rate>,
    /// Share relative to other keys, 1 to 1000. Default 1.
    pub weight: u32,
}

/// So many in such a time; up to `count` may start at once after a quiet time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// How many.
    pub count: u32,
    /// In which time.
    pub per: Duration,
}

impl Rate {
    /// Starts per second.
    pub fn per_second(&self) -> f64 {
        f64::from(self.count) / self.per.as_secs_f64()
    }
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.per.as_secs() {
            1 => write!(f, "{}/s", self.count),
            60 => write!(f, "{}/m", self.count),
            3600 => write!(f, "{}/h", self.count),
            _ => write!(f, "{}/{}s", self.count, self.per.as_secs_f64()),
        }
    }
}

impl std::str::FromStr for Rate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::invalid("rate", format!("{text:?} is not a rate; write 10/s, 100/m or 1000/h"));
        let (count, unit) = text.split_once('/').ok_or_else(wrong)?;
        let count = count.trim().parse().ok().filter(|n| *n > 0).ok_or_else(wrong)?;
        let per = match unit.trim() {
            "s" | "sec" | "second" => 1,
            "m" | "min" | "minute" => 60,
            "h" | "hour" => 3600,
            _ => return Err(wrong()),
        };
        Ok(Self { count, per: Duration::from_secs(per) })
    }
}

impl Limit {
    /// Refuses impossible values.
    pub fn check(&self) -> Result<()> {
        let star = self.pattern.find('*');
        if self.pattern.is_empty()
            || self.pattern.len() > 255
            || star.is_some_and(|at| at + 1 != self.pattern.len())
        {
            let problem = format!("{:?} is not a pattern: a key, or a prefix that ends in *", self.pattern);
            return Err(Error::invalid("limit", problem));
        }
        if !(1..=1000).contains(&self.weight) {
            return Err(Error::invalid("weight", format!("is {}; allowed are 1 to 1000", self.weight)));
        }
        if self.concurrency == Some(0) {
            return Err(Error::invalid(
                "concurrency",
                "is 0; to stop a key altogether pause its queue or kind",
            ));
        }
        Ok(())
    }

    /// Whether the pattern covers a key.
    pub fn matches(&self, key: &str) -> bool {
        match self.pattern.strip_suffix('*') {
            Some(prefix) => key.starts_with(prefix),
            None => key == self.pattern,
        }
    }
}

/// The limit that holds for a key: an exact one, else the longest prefix.
pub fn applying<'a>(limits: &'a [Limit], key: &str) -> Option<&'a Limit> {
    limits
        .iter()
        .filter(|limit| limit.matches(key))
        .max_by_key(|limit| (!limit.pattern.ends_with('*'), limit.pattern.len()))
}

/// The present use of one key.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitState {
    /// The key.
    pub key: String,
    /// Jobs of it held by workers.
    pub running: u32,
    /// Jobs at once allowed.
    pub concurrency: Option<u32>,
    /// Starts allowed per time.
    pub rate: Option<Rate>,
    /// Starts available now under the rate.
    pub tokens: Option<f64>,
    /// Share relative to other keys.
    pub weight: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(pattern: &str) -> Limit {
        Limit { pattern: pattern.to_owned(), concurrency: None, rate: None, weight: 1 }
    }

    #[test]
    fn the_most_specific_pattern_wins() {
        let limits = [limit("*"), limit("tenant:*"), limit("tenant:a"), limit("tenant:ab*")];
        let pattern = |key| applying(&limits, key).map(|l| l.pattern.as_str());
        assert_eq!(pattern("tenant:a"), Some("tenant:a"));
        assert_eq!(pattern("tenant:abc"), Some("tenant:ab*"));
        assert_eq!(pattern("tenant:x"), Some("tenant:*"));
        assert_eq!(pattern("other"), Some("*"));
    }

    #[test]
    fn rates_are_read_and_nonsense_is_refused_with_an_example() {
        assert_eq!("10/s".parse::<Rate>().unwrap(), Rate { count: 10, per: Duration::from_secs(1) });
        assert_eq!("90/m".parse::<Rate>().unwrap().to_string(), "90/m");
        for bad in ["", "10", "0/s", "-1/s", "10/fortnight", "x/s"] {
            assert!(bad.parse::<Rate>().unwrap_err().to_string().contains("10/s"), "{bad:?}");
        }
    }

    #[test]
    fn a_star_is_allowed_at_the_end_only() {
        assert!(limit("a*b").check().is_err());
        assert!(limit("a*").check().is_ok());
        assert!(limit("").check().is_err());
    }
}
