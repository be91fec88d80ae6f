//! The settings of leadership, checked together: most of them are safe only in relation to each other.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::lease::{Holder, NAME_BYTES_MAX};

/// The shortest and the longest time to live.
pub const TTL_RANGE: (Duration, Duration) = (Duration::from_millis(300), Duration::from_secs(3600));

/// The time to live that the other defaults were made for. They shrink with a shorter one.
const TTL_USUAL: Duration = Duration::from_secs(30);

/// Settings as they come from the outside.
#[derive(Debug, Clone)]
pub struct Settings {
    /// This node: its name and the address where clients reach it.
    pub holder: Holder,
    /// How long the lock lives without renewal. A dead leader is replaced after this time. Default 30 s.
    /// Since v0.2.
    pub ttl: Duration,
    /// How often the leader renews. Less than half the time to live. Default 10 s. Since v0.2.
    pub renew_every: Duration,
    /// How often a standby tries while another holds the lock, and the first pause while the lock cannot be
    /// reached. Default 5 s. Since v0.2.
    pub retry_every: Duration,
    /// Where the pause stops doubling while the lock cannot be reached. Default 60 s, and never less than
    /// `retry_every`. Since v0.2.
    pub retry_max: Duration,
    /// Pauses before the further tries of a failed renewal; after the last of them the leader steps down. Default
    /// 500 ms, 1 s, 2 s, shrunk in proportion for a time to live below 30 s. Since v0.2.
    pub renew_retries: Option<Vec<Duration>>,
    /// Goes on trying to renew until the lease runs out, with the last of `renew_retries` as pause. Nobody else can
    /// lead before, so this is as safe and avoids a gap without leader. Default false. Since v0.2.
    pub renew_until_deadline: bool,
    /// How much earlier than the lock itself our trust in it ends. Covers clocks that run at different speed and the
    /// way from a check to what it was for. Default 2 s or 5 % of the time to live, whichever is more; for a time
    /// to live below 30 s a fifteenth of it. Since v0.2.
    pub margin: Option<Duration>,
    /// How long one request may take. Default 1 s, at most a tenth of the time to live. Close to the deadline it is
    /// less: half of what is left. Since v0.2.
    pub call_timeout: Option<Duration>,
    /// Grants nothing while the server of the lock has been up for less than the time to live, or was replaced
    /// within it: it may have forgotten a lock that its owner still trusts. Default true. Since v0.2.
    pub startup_guard: bool,
}

impl Settings {
    /// The defaults for a node.
    pub fn of(holder: Holder) -> Self {
        Self {
            holder,
            ttl: TTL_USUAL,
            renew_every: Duration::from_secs(10),
            retry_every: Duration::from_secs(5),
            retry_max: Duration::from_secs(60),
            renew_retries: None,
            renew_until_deadline: false,
            margin: None,
            call_timeout: None,
            startup_guard: true,
        }
    }
}

/// Settings that work together.
#[derive(Debug, Clone)]
pub struct Config {
    pub(crate) holder: Holder,
    pub(crate) ttl: Duration,
    pub(crate) renew_every: Duration,
    pub(crate) retry_every: Duration,
    pub(crate) retry_max: Duration,
    pub(crate) renew_retries: Vec<Duration>,
    pub(crate) renew_until_deadline: bool,
    pub(crate) margin: Duration,
    pub(crate) call_timeout: Duration,
    pub(crate) startup_guard: bool,
}

impl Config {
    /// Fills in defaults and refuses combinations that would elect two leaders or none.
    ///
    /// ```
    /// use std::time::Duration;
    /// use stargate_leader::{Config, Holder, Settings};
    ///
    /// let mut settings = Settings::of(Holder { instance: "node-1".to_owned(), address: None });
    /// assert!(Config::new(settings.clone()).is_ok());
    /// settings.renew_every = Duration::from_secs(20);
    /// let error = Config::new(settings).unwrap_err().to_string();
    /// assert!(error.starts_with("leader.ttl, leader.renew_every: "), "{error}");
    /// ```
    pub fn new(settings: Settings) -> Result<Self> {
        check_holder(&settings.holder)?;
        let ttl = settings.ttl;
        if ttl < TTL_RANGE.0 || ttl > TTL_RANGE.1 {
            let problem = format!("{ttl:?} is not between {:?} and {:?}", TTL_RANGE.0, TTL_RANGE.1);
            return Err(Error::invalid("leader.ttl", problem));
        }
        let config = Self {
            holder: settings.holder,
            ttl,
            renew_every: settings.renew_every,
            retry_every: settings.retry_every,
            retry_max: settings.retry_max.max(settings.retry_every),
            renew_retries: settings.renew_retries.unwrap_or_else(|| retries_of(ttl)),
            renew_until_deadline: settings.renew_until_deadline,
            margin: settings.margin.unwrap_or_else(|| margin_of(ttl)),
            call_timeout: settings.call_timeout.unwrap_or_else(|| Duration::from_secs(1).min(ttl / 10)),
            startup_guard: settings.startup_guard,
        };
        config.check_times()?;
        config.check_retries()?;
        Ok(config)
    }

    /// This node.
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// How long the lock lives without renewal.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// How much earlier than the lock itself our trust in it ends.
    pub fn margin(&self) -> Duration {
        self.margin
    }

    /// How long the trust in a lock lasts, from before the request that got or renewed it.
    pub fn trust(&self) -> Duration {
        self.ttl - self.margin
    }

    fn check_times(&self) -> Result<()> {
        let Self { ttl, renew_every, retry_every, margin, call_timeout, .. } = self;
        if *renew_every >= *ttl / 2 || renew_every.is_zero() {
            let problem = format!("renewing every {renew_every:?} must be less than half of {ttl:?}");
            return Err(Error::invalid("leader.ttl, leader.renew_every", problem));
        }
        if *margin < *ttl / 50 || *margin > *ttl / 2 {
            let problem = format!("{margin:?} is not between 2 % and 50 % of {ttl:?}");
            return Err(Error::invalid("leader.ttl, leader.margin", problem));
        }
        if *retry_every < Duration::from_millis(10) || *retry_every > Duration::from_secs(3600) {
            let problem = format!("{retry_every:?} is not between 10 ms and 1 h");
            return Err(Error::invalid("leader.retry_every", problem));
        }
        if *call_timeout < Duration::from_millis(10) || *call_timeout > Duration::from_secs(1).min(*ttl / 4) {
            let problem = format!("{call_timeout:?} is not between 10 ms and 1 s or a quarter of {ttl:?}");
            return Err(Error::invalid("leader.ttl, leader.call_timeout", problem));
        }
        Ok(())
    }

    /// The last try of a failing renewal must end while the lease is still trusted, or stepping down comes too late
    /// to be orderly.
    fn check_retries(&self) -> Result<()> {
        if self.renew_retries.is_empty() || self.renew_retries.len() > 10 {
            let problem = format!("{} tries; 1 to 10 are allowed", self.renew_retries.len());
            return Err(Error::invalid("leader.renew_retries", problem));
        }
        if self.renew_retries.iter().any(|pause| *pause < Duration::from_millis(1)) {
            return Err(Error::invalid("leader.renew_retries", "each pause must be at least 1 ms"));
        }
        let tries = u32::try_from(self.renew_retries.len() + 1).unwrap_or(u32::MAX);
        let pauses = self.renew_retries.iter().fold(Duration::ZERO, |sum, pause| sum.saturating_add(*pause));
        let asking = self.renew_every + self.call_timeout * tries + self.margin;
        let needed = pauses.saturating_add(asking);
        if needed > self.ttl && !self.renew_until_deadline {
            let problem = format!(
                "retries outlive the lease: renewing after {:?}, {tries} tries of {:?}, pauses of {pauses:?} and a \
                 margin of {:?} make {needed:?}, the time to live is {:?}",
                self.renew_every, self.call_timeout, self.margin, self.ttl
            );
            let settings =
                "leader.ttl, leader.renew_every, leader.renew_retries, leader.call_timeout, leader.margin";
            return Err(Error::invalid(settings, problem));
        }
        Ok(())
    }
}

/// A name that can stand in the lock, in a log line and in a header.
fn check_holder(holder: &Holder) -> Result<()> {
    let fits = |text: &str| !text.is_empty() && text.len() <= NAME_BYTES_MAX;
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if !fits(&holder.instance) || !holder.instance.chars().all(plain) {
        let problem = format!(
            "{:?} is not a name of 1 to {NAME_BYTES_MAX} letters, digits, dots, dashes and underscores",
            holder.instance
        );
        return Err(Error::invalid("leader.instance", problem));
    }
    let Some(address) = &holder.address else { return Ok(()) };
    if !fits(address) || !address.chars().all(|c| c.is_ascii_graphic()) {
        let problem =
            format!("{address:?} is not an address of 1 to {NAME_BYTES_MAX} printable ASCII characters");
        return Err(Error::invalid("leader.address", problem));
    }
    Ok(())
}

fn retries_of(ttl: Duration) -> Vec<Duration> {
    let scale = (ttl.as_secs_f64() / TTL_USUAL.as_secs_f64()).min(1.0);
    [500, 1000, 2000].map(|ms| Duration::from_millis(ms).mul_f64(scale)).to_vec()
}

fn margin_of(ttl: Duration) -> Duration {
    Duration::from_secs(2).min(ttl / 15).max(ttl / 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(ttl: u64, renew_every: u64) -> Settings {
        let holder = Holder { instance: "a".to_owned(), address: None };
        Settings {
            ttl: Duration::from_millis(ttl),
            renew_every: Duration::from_millis(renew_every),
            ..Settings::of(holder)
        }
    }

    fn problem(settings: Settings) -> String {
        Config::new(settings).unwrap_err().to_string()
    }

    #[test]
    fn the_defaults_are_those_of_the_contract() {
        let config = Config::new(settings(30_000, 10_000)).unwrap();
        assert_eq!(config.renew_retries, [500, 1000, 2000].map(Duration::from_millis));
        assert_eq!(config.margin, Duration::from_secs(2));
        assert_eq!(config.call_timeout, Duration::from_secs(1));
        assert_eq!(config.trust(), Duration::from_secs(28));
    }

    #[test]
    fn a_long_lease_has_a_margin_of_five_percent_and_a_short_one_a_fifteenth() {
        assert_eq!(Config::new(settings(100_000, 10_000)).unwrap().margin, Duration::from_secs(5));
        assert_eq!(Config::new(settings(3_000, 1_000)).unwrap().margin, Duration::from_millis(200));
    }

    #[test]
    fn a_short_lease_shrinks_the_pauses_between_retries() {
        for ttl in [600, 1_000, 5_000, 10_000] {
            let config = Config::new(settings(ttl, ttl / 3)).unwrap();
            assert_eq!(config.renew_retries[0].as_millis(), u128::from(ttl / 60));
        }
    }

    #[test]
    fn renewing_too_rarely_is_refused() {
        assert!(problem(settings(20_000, 10_000)).contains("leader.renew_every"));
        assert!(problem(settings(20_000, 0)).contains("leader.renew_every"));
        assert!(problem(settings(5_000, 10_000)).contains("less than half of 5s"));
    }

    #[test]
    fn retries_that_outlive_the_lease_are_refused_and_the_settings_named() {
        let mut long = settings(30_000, 10_000);
        long.renew_retries = Some(vec![Duration::from_secs(5); 3]);
        let message = problem(long.clone());
        assert!(
            message.contains("outlive the lease") && message.contains("leader.renew_retries"),
            "{message}"
        );
        // They end with the lease then.
        long.renew_until_deadline = true;
        assert!(Config::new(long).is_ok());
    }

    #[test]
    fn margins_timeouts_and_retries_out_of_range_are_refused() {
        let with = |change: fn(&mut Settings)| {
            let mut settings = settings(30_000, 10_000);
            change(&mut settings);
            problem(settings)
        };
        assert!(with(|s| s.margin = Some(Duration::ZERO)).contains("leader.margin"));
        assert!(with(|s| s.margin = Some(Duration::from_secs(16))).contains("leader.margin"));
        assert!(with(|s| s.call_timeout = Some(Duration::from_secs(2))).contains("leader.call_timeout"));
        assert!(with(|s| s.retry_every = Duration::ZERO).contains("leader.retry_every"));
        assert!(with(|s| s.renew_retries = Some(vec![])).contains("leader.renew_retries"));
        assert!(with(|s| s.renew_retries = Some(vec![Duration::MAX; 2])).contains("leader.renew_retries"));
        assert!(with(|s| s.ttl = Duration::from_millis(1)).contains("leader.ttl"));
    }

    #[test]
    fn names_that_do_not_fit_into_the_lock_are_refused() {
        for name in ["", "a:b", "a b", "ä", &"x".repeat(256)] {
            let mut settings = settings(30_000, 10_000);
            settings.holder.instance = name.to_owned();
            assert!(problem(settings).starts_with("leader.instance: "), "{name:?}");
        }
        for address in ["", "http://a b", "http://a\n"] {
            let mut settings = settings(30_000, 10_000);
            settings.holder.address = Some(address.to_owned());
            assert!(problem(settings).starts_with("leader.address: "), "{address:?}");
        }
    }
}
