//! The lock server of the simulation: one primary, perhaps a replica, each with a run of its own.

use std::time::Duration;

use stargate_leader::lease::{
    Acquired, Bid, Incumbent, Inspection, Released, Renewed, Server as Identity, Value,
};
use stargate_leader::{Error, Result};

/// One server process.
#[derive(Debug, Clone)]
struct Process {
    run: u32,
    started: u64,
    /// Value and end, in the server's own time.
    key: Option<(String, u64)>,
}

impl Process {
    fn incumbent(&self, local: u64) -> Option<Incumbent> {
        self.key.as_ref().filter(|(_, end)| local < *end).map(|(value, end)| Incumbent {
            value: Value::parse(value),
            left: Some(Duration::from_nanos(end - local)),
        })
    }
}

/// The lock server: process 0 or 1 is the primary, the other one, if there is one, follows it.
#[derive(Debug)]
pub(super) struct Server {
    processes: Vec<Process>,
    pub(super) primary: usize,
    /// Whether the replica hears the primary.
    pub(super) linked: bool,
    runs: u32,
    /// Parts in a million by which its clock is fast.
    drift: i64,
    waits: bool,
    bare_delete: bool,
}

impl Server {
    pub(super) fn new(replicated: bool, drift: i64, waits: bool, bare_delete: bool) -> Self {
        // Old enough to be trusted by nodes that start now.
        let process = |run| Process { run, started: 0, key: None };
        let count = if replicated { 2 } else { 1 };
        Self {
            processes: (0..count).map(process).collect(),
            primary: 0,
            linked: true,
            runs: count,
            drift,
            waits,
            bare_delete,
        }
    }

    pub(super) fn replicated(&self) -> bool {
        self.processes.len() > 1
    }

    /// The primary dies and comes back with nothing.
    pub(super) fn restart_empty(&mut self, now: u64) {
        let run = self.runs;
        self.runs += 1;
        self.processes[self.primary] = Process { run, started: self.local(now), key: None };
    }

    /// The replica takes over with what it has. The old primary keeps what it had, cut off.
    pub(super) fn fail_over(&mut self) {
        self.linked = false;
        self.primary = 1 - self.primary;
    }

    /// The replica takes over what the primary has.
    pub(super) fn link(&mut self) {
        self.linked = true;
        if self.replicated() {
            self.processes[1 - self.primary].key = self.processes[self.primary].key.clone();
        }
    }

    /// What a read finds now.
    pub(super) fn inspect(&self, at: usize, now: u64) -> Inspection {
        let (local, process) = (self.local(now), &self.processes[at]);
        let uptime = Duration::from_nanos(local - process.started);
        let server = Some(Identity { run: process.run.to_string(), uptime });
        Inspection { server, incumbent: process.incumbent(local) }
    }

    pub(super) fn acquire(&mut self, at: usize, now: u64, bid: &Bid) -> Result<Acquired> {
        self.writable(at)?;
        let local = self.local(now);
        let process = &mut self.processes[at];
        let incumbent = process.incumbent(local);
        let run = process.run.to_string();
        if bid.approved.as_deref() != Some(&run) {
            let uptime = Duration::from_secs(Duration::from_nanos(local - process.started).as_secs());
            return Ok(Acquired::Unapproved(Identity { run, uptime }, incumbent));
        }
        if let Some(incumbent) = incumbent {
            return Ok(Acquired::Held(incumbent));
        }
        process.key = Some((bid.value(), local + nanos(bid.ttl)));
        Ok(match self.replicate(at) {
            (reached, expected) if reached < expected => Acquired::Unreplicated { reached, expected },
            _ => Acquired::Granted,
        })
    }

    pub(super) fn renew(&mut self, at: usize, now: u64, bid: &Bid) -> Result<Renewed> {
        self.writable(at)?;
        let local = self.local(now);
        match &mut self.processes[at].key {
            Some((value, end)) if local < *end && *value == bid.value() => *end = local + nanos(bid.ttl),
            _ => return Ok(Renewed::Lost),
        }
        Ok(match self.replicate(at) {
            (reached, expected) if reached < expected => Renewed::Unreplicated { reached, expected },
            _ => Renewed::Extended,
        })
    }

    pub(super) fn release(&mut self, at: usize, bid: &Bid) -> Result<Released> {
        self.writable(at)?;
        let bare = self.bare_delete;
        let key = &mut self.processes[at].key;
        match key.take_if(|(value, _)| bare || *value == bid.value()) {
            Some(_) => {
                self.replicate(at);
                Ok(Released::Freed)
            }
            None => Ok(Released::NotOurs),
        }
    }

    /// A replica that hears its primary refuses to write; one that is cut off may still think it is a primary.
    fn writable(&self, at: usize) -> Result<()> {
        if at != self.primary && self.linked {
            let problem = "READONLY".to_owned();
            return Err(Error::Unreachable { operation: "ask", place: "replica".to_owned(), problem });
        }
        Ok(())
    }

    fn replicate(&mut self, at: usize) -> (usize, usize) {
        if !self.replicated() || !self.waits {
            if self.linked && self.replicated() && at == self.primary {
                self.link();
            }
            return (0, 0);
        }
        if self.linked && at == self.primary {
            self.link();
            return (1, 1);
        }
        (0, 1)
    }

    fn local(&self, now: u64) -> u64 {
        super::world::run_fast(now, self.drift)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("times of a simulation are short")
}
