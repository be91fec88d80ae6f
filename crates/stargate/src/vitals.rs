//! How this process is: what `/healthz` and `/readyz` say about it, and what the supervisor is told.

use std::time::Duration;

use stargate_leader::Leadership;
use stargate_queue::pool::PoolHandle;
use stargate_web::{Check, Health};
use tokio_util::sync::CancellationToken;

use crate::mirroring::supervise::Mirrors;

/// What is known about this process, at any moment and at once.
pub(crate) struct Vitals {
    /// Absent in a process that only serves the API.
    pub(crate) pool: Option<PoolHandle>,
    /// Absent in a process that takes no part.
    pub(crate) leadership: Option<Leading>,
    /// What this process mirrors while it leads.
    pub(crate) mirrors: Mirrors,
    pub(crate) stop: CancellationToken,
    pub(crate) lease: Duration,
}

/// The part that this process takes in leadership.
pub(crate) struct Leading {
    pub(crate) handle: Leadership,
    /// Cancelled when it takes part no more.
    pub(crate) over: CancellationToken,
}

impl Vitals {
    /// Whether `/healthz` is 200.
    pub(crate) fn is_well(&self) -> bool {
        self.checks().iter().all(|check| check.ok)
    }

    /// One short line for people.
    pub(crate) fn summary(&self) -> String {
        let stopping = if self.stop.is_cancelled() { "stopping: " } else { "" };
        let role = match &self.leadership {
            Some(leading) if leading.handle.is_leader() => ", leader",
            Some(_) => ", standby",
            None => "",
        };
        let Some(pool) = &self.pool else { return format!("{stopping}serving the API{role}") };
        let status = pool.status();
        let paused = if status.paused_by_pressure { ", claiming pauses under load" } else { "" };
        let degraded = if status.degraded { ", heartbeats do not get through" } else { "" };
        format!("{stopping}{} running, {} buffered{paused}{degraded}{role}", status.running, status.buffered)
    }
}

impl Health for Vitals {
    /// A store that is away is no reason to restart this process: it would come back to the same store. So what counts
    /// here is that beats are tried.
    fn checks(&self) -> Vec<Check> {
        if self.stop.is_cancelled() {
            return vec![Check::passed("process")];
        }
        if self.leadership.as_ref().is_some_and(|leading| leading.over.is_cancelled()) {
            return vec![Check::failed("process", "the thread of leadership died; restart this process")];
        }
        let age = self.pool.as_ref().map(|pool| pool.status().try_age).unwrap_or_default();
        match age > self.lease {
            true => vec![Check::failed("process", format!("no beat was tried for {} s", age.as_secs()))],
            false => vec![Check::passed("process")],
        }
    }

    fn measure(&self) {
        if let Some(pool) = &self.pool {
            metrics::gauge!(stargate_queue::metrics::BEAT_AGE).set(pool.status().beat_age.as_secs_f64());
        }
        if let Some(leading) = &self.leadership {
            let left = leading.handle.standing().lease_left.unwrap_or_default();
            metrics::gauge!(stargate_leader::metrics::LEASE).set(left.as_secs_f64());
        }
    }

    fn ready_checks(&self) -> Vec<Check> {
        let running = match self.stop.is_cancelled() {
            true => Check::failed("running", "shutting down"),
            false => Check::passed("running"),
        };
        let heartbeat = self.pool.iter().map(|pool| {
            let age = pool.status().beat_age;
            match age > self.lease && !self.stop.is_cancelled() {
                true => Check::failed("heartbeat", format!("no good beat for {} s", age.as_secs())),
                false => Check::passed("heartbeat"),
            }
        });
        // A pause is no failure: taking this process out of service would not make the machine less loaded.
        let pressure = self.pool.iter().map(|pool| Check::told("pressure", pool.pressure().to_string()));
        // Neither is a remote that is away: nothing is lost, and another node would not reach it either.
        let leads = self.leadership.as_ref().is_some_and(|leading| leading.handle.is_leader());
        let mirror = leads.then(|| Check::told("mirror", self.mirrors.summary()));
        [running].into_iter().chain(heartbeat).chain(pressure).chain(mirror).collect()
    }
}
