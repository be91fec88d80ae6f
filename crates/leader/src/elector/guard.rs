//! Which server may grant the lock: not one that may have forgotten it.
//!
//! A server that restarts without its data, or a replica that took over without having heard of the lock, would
//! grant it a second time while the first owner still trusts it. Whatever was granted before ends within a time to
//! live, so waiting that long makes the forgotten lock harmless.

use std::time::Duration;

use crate::boot::Instant;
use crate::lease::Server;

/// Remembers which server runs were seen and since when.
#[derive(Debug)]
pub(super) struct ServerGuard {
    enabled: bool,
    ttl: Duration,
    approved: Option<String>,
    /// Whether any run was ever approved: the first one cannot be a replacement.
    settled: bool,
    candidate: Option<Candidate>,
}

#[derive(Debug)]
struct Candidate {
    run: String,
    since: Instant,
    replaces: bool,
}

impl ServerGuard {
    pub(super) fn new(enabled: bool, ttl: Duration) -> Self {
        Self { enabled, ttl, approved: None, settled: false, candidate: None }
    }

    /// The run that may grant.
    pub(super) fn approved(&self) -> Option<String> {
        self.approved.clone()
    }

    /// Judges a run that is not approved: zero approves it, anything else is how long to wait.
    pub(super) fn judge(&mut self, now: Instant, server: &Server) -> Duration {
        // The old run is not approved any more either: two servers that take turns must not both grant.
        self.approved = None;
        let candidate = match self.candidate.take() {
            Some(candidate) if candidate.run == server.run => candidate,
            earlier => Candidate {
                run: server.run.clone(),
                since: now,
                replaces: self.settled || earlier.is_some_and(|e| e.replaces || e.since < now),
            },
        };
        let young = self.ttl.saturating_sub(server.uptime);
        let replaced =
            if candidate.replaces { now.until(candidate.since + self.ttl) } else { Duration::ZERO };
        let wait = if self.enabled { young.max(replaced) } else { Duration::ZERO };
        if wait.is_zero() {
            self.approved = Some(candidate.run);
            self.settled = true;
        } else {
            self.candidate = Some(candidate);
        }
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Instant {
        Instant::since_boot(Duration::from_secs(seconds))
    }

    fn server(run: &str, uptime: u64) -> Server {
        Server { run: run.to_owned(), uptime: Duration::from_secs(uptime) }
    }

    #[test]
    fn a_server_that_has_been_up_for_long_is_approved_at_first_sight() {
        let mut guard = ServerGuard::new(true, TTL);
        assert_eq!(guard.judge(at(0), &server("a", 30)), Duration::ZERO);
        assert_eq!(guard.approved().as_deref(), Some("a"));
    }

    #[test]
    fn a_young_server_must_reach_the_age_of_a_lease() {
        let mut guard = ServerGuard::new(true, TTL);
        assert_eq!(guard.judge(at(0), &server("a", 1)), Duration::from_secs(29));
        assert_eq!(guard.approved(), None);
        assert_eq!(guard.judge(at(29), &server("a", 30)), Duration::ZERO);
    }

    #[test]
    fn a_replacement_waits_for_a_lease_however_old_it_is() {
        let mut guard = ServerGuard::new(true, TTL);
        guard.judge(at(0), &server("a", 1000));
        assert_eq!(guard.judge(at(100), &server("b", 5000)), TTL);
        assert_eq!(guard.approved(), None);
        assert_eq!(guard.judge(at(120), &server("b", 5020)), Duration::from_secs(10));
        assert_eq!(guard.judge(at(130), &server("b", 5030)), Duration::ZERO);
    }

    #[test]
    fn a_server_that_comes_back_is_a_replacement_too() {
        let mut guard = ServerGuard::new(true, TTL);
        guard.judge(at(0), &server("a", 1000));
        guard.judge(at(100), &server("b", 5000));
        assert_eq!(guard.judge(at(101), &server("a", 1101)), TTL);
        assert_eq!(guard.judge(at(102), &server("b", 5002)), TTL, "the wait begins anew");
    }

    #[test]
    fn without_the_guard_every_server_is_approved() {
        let mut guard = ServerGuard::new(false, TTL);
        assert_eq!(guard.judge(at(0), &server("a", 0)), Duration::ZERO);
        assert_eq!(guard.judge(at(1), &server("b", 0)), Duration::ZERO);
        assert_eq!(guard.approved().as_deref(), Some("b"));
    }
}
