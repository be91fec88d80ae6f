//! The settings of a mirror.

use std::time::Duration;

use stargate_base::Backoff;
use stargate_git::RemoteName;

use crate::breaker::PROBES;
use crate::error::{Error, Result};
use crate::lock::Claim;
use crate::routes::Routes;

/// The remote if none is named.
pub const REMOTE: &str = "github-origin";

/// The settings of a mirror. Since v0.1.
#[derive(Debug, Clone)]
pub struct Config {
    /// The name of the remote in the repository's configuration.
    pub remote: RemoteName,
    /// Which refs are mirrored and how they are called there.
    pub routes: Routes,
    /// What a push is given (`PUSH_TIMEOUT`); then its process group is ended. 30 s.
    pub push_timeout: Duration,
    /// How often an entry is pushed before it is given up, the first time included. 3.
    pub push_tries: u32,
    /// From one try to the next: 500 ms, doubling, up to 10 s.
    pub push_backoff: Backoff,
    /// How often a line that cannot be understood is read again. 3.
    pub malformed_rereads: u32,
    /// From one reading to the next: 100 ms, doubling, up to 1 s.
    pub malformed_backoff: Backoff,
    /// From one probe of a remote that is away to the next: 1 s, doubling, up to 60 s.
    pub probes: Backoff,
    /// Whether consecutive entries of a ref go as one push of the newest. No.
    pub coalesce: bool,
    /// How often local refs are compared with the remote's. 60 s.
    pub reconcile_every: Duration,
    /// How often to look for new lines when nobody says that there are some. 100 ms.
    pub poll_every: Duration,
    /// How long full segments of the journal are kept once they are accounted for. 7 days.
    pub journal_retention: Duration,
    /// What this node is called, for the lock.
    pub instance: String,
    /// The term in which this node leads, for the lock; none for a command.
    pub epoch: Option<u64>,
    /// Whether to take the lock from a leader of an earlier term that does not let go. No.
    pub take_over: bool,
}

impl Config {
    /// The defaults.
    pub fn new() -> Result<Self> {
        let backoff = |first, cap| Backoff { first, factor: 2.0, cap, jitter: 0.0 };
        Ok(Self {
            remote: RemoteName::parse(REMOTE)?,
            routes: Routes::standard()?,
            push_timeout: Duration::from_secs(30),
            push_tries: 3,
            push_backoff: backoff(Duration::from_millis(500), Duration::from_secs(10)),
            malformed_rereads: 3,
            malformed_backoff: backoff(Duration::from_millis(100), Duration::from_secs(1)),
            probes: PROBES,
            coalesce: false,
            reconcile_every: Duration::from_secs(60),
            poll_every: Duration::from_millis(100),
            journal_retention: Duration::from_secs(7 * 24 * 60 * 60),
            instance: "stargate".to_owned(),
            epoch: None,
            take_over: false,
        })
    }

    /// Who wants the lock of a repository.
    pub fn claim(&self) -> Claim<'_> {
        Claim { instance: &self.instance, epoch: self.epoch, take_over: self.take_over }
    }

    /// Refuses what cannot work.
    pub fn check(&self) -> Result<()> {
        let within = |setting, value: Duration, min: Duration, max: Duration| {
            if value < min || value > max {
                return Err(Error::invalid(setting, format!("{value:?} is not between {min:?} and {max:?}")));
            }
            Ok(())
        };
        let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
        within("PUSH_TIMEOUT", self.push_timeout, second, hour)?;
        within("mirror.reconcile_every", self.reconcile_every, second, hour * 24)?;
        within("mirror.poll_every", self.poll_every, Duration::from_millis(1), second * 60)?;
        if !(1..=10).contains(&self.push_tries) {
            return Err(Error::invalid("mirror.push_tries", "must be between 1 and 10"));
        }
        if self.malformed_rereads > 10 {
            return Err(Error::invalid("mirror.malformed_rereads", "must be between 0 and 10"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_contract() {
        let config = Config::new().unwrap();
        config.check().unwrap();
        assert_eq!(config.remote.as_str(), "github-origin");
        let tries: Vec<u128> = (1..=7).map(|n| config.push_backoff.base_delay(n).as_millis()).collect();
        assert_eq!(tries, [500, 1000, 2000, 4000, 8000, 10_000, 10_000]);
        let rereads: Vec<u128> =
            (1..=5).map(|n| config.malformed_backoff.base_delay(n).as_millis()).collect();
        assert_eq!(rereads, [100, 200, 400, 800, 1000]);
        assert_eq!((config.push_tries, config.push_timeout.as_secs()), (3, 30));
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let config = || Config::new().unwrap();
        assert!(Config { push_timeout: Duration::ZERO, ..config() }.check().is_err());
        assert!(Config { push_tries: 0, ..config() }.check().is_err());
        assert!(Config { reconcile_every: Duration::ZERO, ..config() }.check().is_err());
    }
}
