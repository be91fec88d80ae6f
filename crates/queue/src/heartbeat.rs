//! Keeping leases alive, from a thread that a busy handler cannot block.
//!
//! One beat keeps all leases of the process. The thread has its own single-threaded runtime: handlers that hog
//! the main one cannot delay it. A worker that could not beat for two thirds of a lease stops its own job before
//! another worker may take it. One that did not run at all for a lease, because the process was stopped or the machine
//! was suspended, stops its jobs before anything else: the store does not take what they write any more, and a beat
//! does not bring the leases back.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stargate_base::chain;
use stargate_base::clock::Moment;
use tokio_util::sync::CancellationToken;

use crate::error::Result;
use crate::job::JobId;
use crate::local::{HeldJob, StopReason};
use crate::pool::Engine;
use crate::store::Beat;

/// Failed beats in a row after which the operator is told.
const FAILURES_TOLERATED: u32 = 3;
/// Calls for attention lead to a look for cancellations no more often than this.
const CALL_GAP: Duration = Duration::from_millis(500);

/// Starts the thread; it ends when `stop` is cancelled.
pub(crate) fn start(engine: Arc<Engine>, stop: CancellationToken) -> Option<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name("stargate-heartbeat".to_owned());
    let spawned =
        thread.spawn(move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(Heart { engine, failures: 0, looked: Instant::now() }.run(stop)),
            Err(error) => tracing::error!(%error, "cannot start the heartbeat runtime; leases will expire"),
        });
    spawned
        .inspect_err(|error| tracing::error!(%error, "cannot start the heartbeat thread; leases will expire"))
        .ok()
}

struct Heart {
    engine: Arc<Engine>,
    failures: u32,
    /// When the store was last asked for cancellations.
    looked: Instant,
}

impl Heart {
    async fn run(mut self, stop: CancellationToken) {
        let mut wakes = self.engine.store.wakes();
        let interval = self.engine.config.heartbeat;
        let mut next = Instant::now() + interval;
        let mut look = None;
        loop {
            let first = look.map_or(next, |look: Instant| look.min(next));
            let can_listen = look.is_none() && !self.engine.held.is_empty() && self.failures == 0;
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep_until(first.into()) => {}
                // A call may be a cancellation of one of our jobs. Most are about new jobs: a beat for each would write a row
                // twice a second for nothing.
                changed = wakes.changed(), if can_listen => {
                    if changed.is_err() { return }
                    look = Some((self.looked + CALL_GAP).max(Instant::now()));
                    continue;
                }
            }
            look = None;
            self.looked = Instant::now();
            if self.looked < next {
                // A look that hangs does not hold up the beat.
                self.look_for_cancellations(next - self.looked).await;
                continue;
            }
            self.beat_once(self.patience(interval)).await;
            // After a failure the next beat comes sooner: the lease is running.
            let soon = interval / 4;
            next = Instant::now() + if self.failures == 0 { interval } else { soon.min(self.patience(soon)) };
        }
    }

    /// How long to wait, so that a job is stopped no later than when two thirds of its lease are gone.
    fn patience(&self, most: Duration) -> Duration {
        let trusted = self.engine.lease_min() * 2 / 3;
        match trusted.checked_sub(self.engine.last_beat.age()) {
            Some(rest) if !rest.is_zero() => rest.min(most),
            _ => most,
        }
    }

    async fn beat_once(&mut self, patience: Duration) {
        self.stop_what_is_lost();
        let before = Moment::now();
        self.engine.last_try.set(before);
        let beat = tokio::time::timeout(patience, self.engine.store.beat(self.engine.worker())).await;
        match beat {
            Ok(Ok(beat)) => self.good(before, beat).await,
            Ok(Err(error)) => self.bad(&chain(&error)),
            Err(_) => self.bad("no answer within a heartbeat"),
        }
        self.fence_ourselves();
    }

    /// What fails here the next beat tells.
    async fn look_for_cancellations(&self, patience: Duration) {
        let engine = &self.engine;
        match tokio::time::timeout(patience, engine.store.cancellations(engine.worker())).await {
            Ok(Ok(jobs)) => jobs.into_iter().for_each(|job| self.cancel(job)),
            Ok(Err(error)) => {
                tracing::debug!(error = chain(&error), "cancellations could not be looked for");
            }
            Err(_) => tracing::debug!("no answer to a look for cancellations"),
        }
    }

    fn cancel(&self, job: JobId) {
        self.engine.held.stop_job(job, StopReason::Cancelled);
    }

    async fn good(&mut self, before: Moment, beat: Beat) {
        let engine = &self.engine;
        let silence = engine.last_beat.age();
        if !beat.known {
            let lost = engine.held.stop_where(StopReason::Lost, |_| true);
            tracing::warn!(lost, "the store has given this worker up; entering again");
            if let Err(error) = self.enter_again().await {
                self.bad(&chain(&error));
            }
            return;
        }
        engine.last_beat.set(before);
        engine.metrics.heartbeats.increment(1);
        if self.failures > FAILURES_TOLERATED {
            tracing::info!(failures = self.failures, "heartbeats get through again");
        }
        self.failures = 0;
        engine.degraded.store(false, Ordering::Relaxed);
        for job in &beat.cancels {
            self.cancel(*job);
        }
        for recovered in &beat.recovered {
            engine.metrics.recovered_stale.increment(1);
            tracing::warn!(job = %recovered.job, kind = recovered.kind, became = %recovered.became,
                "recovered a job of this worker whose lease had run out");
        }
        // Leases shorter than the silence are lost; which ones, the store knows better than this host's clock.
        if silence >= engine.lease_min() || !beat.recovered.is_empty() {
            engine.compare.store(true, Ordering::Release);
        }
    }

    async fn enter_again(&self) -> Result<()> {
        self.engine.register().await
    }

    fn bad(&mut self, error: &str) {
        self.failures += 1;
        if self.failures == FAILURES_TOLERATED + 1 {
            self.engine.degraded.store(true, Ordering::Relaxed);
            tracing::warn!(
                code = "HEARTBEAT_DEGRADED",
                failures = self.failures,
                error,
                "heartbeats do not get through"
            );
        } else {
            tracing::debug!(failures = self.failures, error, "a heartbeat did not get through");
        }
    }

    /// Stops executions whose lease has run out; what was claimed since has a younger one.
    fn stop_what_is_lost(&self) {
        let silence = self.engine.last_beat.age();
        let lost = |job: &HeldJob| silence.min(job.since.age()) >= job.lease;
        let stopped = self.engine.held.stop_where(StopReason::Lost, lost);
        if stopped > 0 {
            let silence_ms = silence.as_millis();
            tracing::warn!(stopped, silence_ms, "no heartbeat for a whole lease; own jobs are lost");
        }
    }

    /// Stops executions whose lease is two thirds gone: another worker may take them soon.
    fn fence_ourselves(&self) {
        let silence = self.engine.last_beat.age();
        let stopped = self.engine.held.stop_where(StopReason::Lost, |job| silence >= job.lease * 2 / 3);
        if stopped > 0 {
            let silence_ms = silence.as_millis();
            tracing::warn!(
                stopped,
                silence_ms,
                "no good heartbeat for two thirds of the lease; stopping own jobs"
            );
        }
    }
}
