//! The bounds of the gateway, each with a default that suits one machine.

use std::time::Duration;

use crate::error::{Error, Result};

/// The bounds of the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Fetches that run at once, the listing of refs included. Default 64.
    pub fetches_max: usize,
    /// Pushes that run at once, the listing of refs included. Default 16.
    pub pushes_max: usize,
    /// Requests of one sort that may wait for their turn; further ones are refused at once. Default 256.
    pub waiting_max: usize,
    /// How long a request waits for its turn before it is refused. Default 10 s.
    pub wait_max: Duration,
    /// Bytes of a fetch request after unpacking: what the client wants and has. Default 64 MiB.
    pub fetch_request_bytes_max: u64,
    /// Bytes of a push after unpacking. Default 4 GiB.
    pub push_bytes_max: u64,
    /// How long a client may neither send nor take anything when it is its turn. Default 2 min.
    pub idle_max: Duration,
    /// How long a fetch or push may take in all. Default 1 h.
    pub time_max: Duration,
    /// How long a push whose hooks run is given to end after its client has gone. Default 5 min.
    pub finish_max: Duration,
    /// How long open requests may go on once the process is to stop. Default 5 s; then they are ended, and a push whose
    /// hooks run has as much time again.
    pub drain_max: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            fetches_max: 64,
            pushes_max: 16,
            waiting_max: 256,
            wait_max: Duration::from_secs(10),
            fetch_request_bytes_max: 64 << 20,
            push_bytes_max: 4 << 30,
            idle_max: Duration::from_secs(120),
            time_max: Duration::from_secs(3600),
            finish_max: Duration::from_secs(300),
            drain_max: Duration::from_secs(5),
        }
    }
}

/// Requests of one sort at most, running or waiting: each costs a process or a connection.
const REQUESTS_MAX: usize = 10_000;

impl Settings {
    /// Refuses bounds with which nothing would be served.
    pub fn check(&self) -> Result<()> {
        let range = |setting, value: usize, least| {
            if (least..=REQUESTS_MAX).contains(&value) {
                return Ok(());
            }
            let problem = format!("is {value}; allowed is {least} to {REQUESTS_MAX}");
            Err(Error::Setting { setting, problem })
        };
        range("fetches_max", self.fetches_max, 1)?;
        range("pushes_max", self.pushes_max, 1)?;
        range("waiting_max", self.waiting_max, 0)?;
        for (setting, value) in
            [("idle_max", self.idle_max), ("time_max", self.time_max), ("finish_max", self.finish_max)]
        {
            if value < Duration::from_secs(1) {
                let problem = format!("is {value:?}; allowed is 1 s and more");
                return Err(Error::Setting { setting, problem });
            }
        }
        for (setting, value) in [
            ("fetch_request_bytes_max", self.fetch_request_bytes_max),
            ("push_bytes_max", self.push_bytes_max),
        ] {
            // The first lines of either request are longer than that.
            if value < 1024 {
                let problem = format!("is {value}; allowed is 1024 and more");
                return Err(Error::Setting { setting, problem });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_allowed_and_nonsense_is_named() {
        let defaults = Settings::default();
        defaults.check().unwrap();
        let refused = |settings: Settings| settings.check().unwrap_err().to_string();
        assert!(refused(Settings { pushes_max: 0, ..defaults.clone() }).contains("pushes_max is 0"));
        assert!(refused(Settings { push_bytes_max: 9, ..defaults.clone() }).contains("push_bytes_max is 9"));
        assert!(refused(Settings { idle_max: Duration::ZERO, ..defaults }).contains("idle_max"));
    }
}
