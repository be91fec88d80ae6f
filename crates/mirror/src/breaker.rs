//! The breaker of a remote: while it cannot be reached, entries wait instead of being given up one by one.
//!
//! ```text
//!            tries spent: away, or unclear             time for a probe
//!  Closed ─────────────────────────────▶ Open ─────────────────────────▶ Probing
//!     ▲                                    ▲                                │
//!     │                                    └──── failed: wait longer ───────┤
//!     └───────────────── something got through: the letters go back ────────┘
//! ```
//!
//! Only what opened it is dead-lettered: an entry, or those of one transaction. What is tried while probing is tried
//! once and, if the remote is still away, stays where it is. Pure: the time comes from the caller.

use std::time::Duration;

use stargate_base::Backoff;

/// From one probe to the next: 1 s, doubling, up to a minute.
pub const PROBES: Backoff =
    Backoff { first: Duration::from_secs(1), factor: 2.0, cap: Duration::from_secs(60), jitter: 0.0 };

/// How many letters of an outage are remembered. An entry or a transaction makes them; what is more is requeued when
/// refs are compared.
const LETTERS_MAX: usize = 1000;

/// Whether a remote can be reached, as far as we know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It can.
    Closed,
    /// It cannot; the next probe is due then, on the caller's clock.
    Open {
        /// When to probe.
        until: Duration,
    },
    /// A probe is under way.
    Probing,
}

impl State {
    /// A word for it.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open { .. } => "open",
            Self::Probing => "probing",
        }
    }
}

/// What may be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// Push, with all tries.
    Push,
    /// Push once, or ask: it is a probe.
    Probe,
    /// Wait for so long.
    Wait(Duration),
}

/// The breaker of one remote.
#[derive(Debug, Clone)]
pub struct Breaker {
    state: State,
    probes: Backoff,
    /// Probes that failed since it opened.
    failures: u32,
    /// What was given up because of this outage.
    letters: Vec<String>,
}

impl Breaker {
    /// A closed one.
    pub fn new(probes: Backoff) -> Self {
        Self { state: State::Closed, probes, failures: 0, letters: Vec::new() }
    }

    /// One that finds letters of an outage that an earlier worker gave up: nobody knows yet whether it is over.
    #[must_use]
    pub fn with_letters(mut self, letters: Vec<String>, now: Duration) -> Self {
        if !letters.is_empty() {
            self.state = State::Open { until: now };
            self.letters = letters;
            self.letters.truncate(LETTERS_MAX);
        }
        self
    }

    /// Whether the remote can be reached, as far as we know.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Probes that failed since it opened.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// What may be done now.
    pub fn ask(&mut self, now: Duration) -> Leave {
        match self.state {
            State::Closed => Leave::Push,
            State::Probing => Leave::Probe,
            State::Open { until } if until > now => Leave::Wait(until - now),
            State::Open { .. } => {
                self.state = State::Probing;
                Leave::Probe
            }
        }
    }

    /// The remote is away. `letters` is what was given up because of it, if something was.
    pub fn failed(&mut self, now: Duration, letters: Vec<String>) {
        self.failures = self.failures.saturating_add(1);
        self.letters.extend(letters);
        self.letters.truncate(LETTERS_MAX);
        self.state = State::Open { until: now + self.probes.base_delay(self.failures) };
    }

    /// The remote answered. The letters to be requeued, which are then no longer remembered.
    pub fn answered(&mut self) -> Vec<String> {
        self.state = State::Closed;
        self.failures = 0;
        std::mem::take(&mut self.letters)
    }

    /// The letters to be requeued, while it is not known yet whether pushes get through.
    pub fn take_letters(&mut self) -> Vec<String> {
        std::mem::take(&mut self.letters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn probes_come_after_1_2_4_up_to_60_seconds() {
        let mut breaker = Breaker::new(PROBES);
        assert_eq!(breaker.ask(s(0)), Leave::Push);
        let mut now = s(0);
        let mut waits = Vec::new();
        for _ in 0..9 {
            breaker.failed(now, Vec::new());
            let Leave::Wait(wait) = breaker.ask(now) else { panic!("not open") };
            waits.push(wait.as_secs());
            now += wait;
            assert_eq!(breaker.ask(now), Leave::Probe);
            assert_eq!(breaker.ask(now), Leave::Probe, "still the same probe");
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }

    #[test]
    fn what_was_given_up_goes_back_when_it_closes_and_only_once() {
        let mut breaker = Breaker::new(PROBES);
        breaker.failed(s(0), vec!["a".to_owned(), "b".to_owned()]);
        assert_eq!(breaker.failures(), 1, "however many were given up together");
        breaker.failed(s(1), Vec::new());
        assert_eq!(breaker.answered(), ["a", "b"]);
        assert_eq!(breaker.state(), &State::Closed);
        breaker.failed(s(9), Vec::new());
        assert_eq!(breaker.ask(s(9)), Leave::Wait(s(1)), "a new outage begins anew");
        assert!(breaker.answered().is_empty());
    }

    #[test]
    fn letters_of_an_earlier_worker_make_it_probe_first() {
        let mut breaker = Breaker::new(PROBES).with_letters(vec!["old".to_owned()], s(5));
        assert_eq!(breaker.ask(s(5)), Leave::Probe);
        assert_eq!(breaker.answered(), ["old"]);
        let mut none = Breaker::new(PROBES).with_letters(Vec::new(), s(5));
        assert_eq!(none.ask(s(5)), Leave::Push);
    }
}
