//! The one claimer of a process: when to ask the store for jobs, and for how many.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rand::RngExt as _;
use stargate_base::clock::Moment;
use stargate_base::{Backoff, chain};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::error::Result;
use crate::local::{Buffer, HeldJob, Stop, StopReason, Waiting};
use crate::pool::Engine;
use crate::store::{CLAIM_MAX, Claim, ClaimRequest, ClaimedJob, KindSlots, Outcome, Settlement};

/// A buffer that did not move for so long is handed back: its jobs could run elsewhere.
const BUFFER_IDLE_MAX: Duration = Duration::from_secs(2);
/// How often what the store believes is compared with what is held, without any reason.
const COMPARE_EVERY: Duration = Duration::from_secs(60);
/// How long the claimer is waited for at shutdown: a claim that is under way, and what a store that is away keeps it from saying.
pub(crate) const CLAIMER_AT_STOP_MAX: Duration = Duration::from_secs(3);
/// How long a claim that is under way at shutdown is waited for.
const CLAIM_AT_STOP_MAX: Duration = Duration::from_secs(2);
/// The shortest wait for a due time or lease that the store announced.
const LOOK_MIN: Duration = Duration::from_millis(1);

/// Why the claimer woke up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Woken {
    /// Somebody enqueued something.
    ByCall,
    /// A due time, a lease expiry or the backstop poll.
    ByTimer,
    Stop,
}

/// Since when the buffer has not moved.
struct Motion {
    popped: u64,
    since: Instant,
}

impl Motion {
    fn of(buffer: &Buffer) -> Self {
        Self { popped: buffer.popped(), since: Instant::now() }
    }

    /// For how long nothing has been taken from what waits; what is put in meanwhile waits behind it. Nothing if nothing waits.
    fn still_for(&mut self, buffer: &Buffer) -> Duration {
        if buffer.len() == 0 || buffer.popped() != self.popped {
            *self = Self::of(buffer);
        }
        self.since.elapsed()
    }
}

impl Engine {
    /// Claims until `stop` is cancelled. A backlog is claimed at once at boot.
    pub(crate) async fn run_claimer(&self, stop: &CancellationToken) {
        let mut wakes = self.store.wakes();
        let mut failures = 0;
        let mut woken = Woken::ByTimer;
        let mut compared = Instant::now();
        let mut motion = Motion::of(&self.buffer);
        while !stop.is_cancelled() {
            let Some(limit) = self.wait_for_room(&mut motion, stop).await else { return };
            if !self.bear_pressure(stop).await {
                return;
            }
            if compared.elapsed() > COMPARE_EVERY || self.compare.swap(false, Ordering::AcqRel) {
                compared = Instant::now();
                self.compare_holdings().await;
            }
            // Calls that arrive while the claim is under way must lead to another look.
            wakes.mark_unchanged();
            let request = self.request(limit);
            // A kind at its own bound may have more jobs waiting; they can be taken when one of its jobs has ended.
            let at_bound =
                request.kinds.len() < self.kinds.len() || request.kinds.iter().any(|k| k.slots < limit);
            let Some(answer) = self.ask(request, stop).await else { return };
            match answer {
                Ok(claim) => {
                    failures = 0;
                    let found = claim.jobs.len();
                    let next_look = claim.next_look;
                    if found == 0 && woken == Woken::ByCall {
                        self.metrics.acquire_fails.increment(1);
                    }
                    self.take(claim);
                    if found < limit as usize {
                        woken = self.rest(next_look, at_bound, &mut wakes, stop).await;
                    }
                }
                Err(error) => {
                    failures += 1;
                    // The claim may have been carried out although the answer was lost.
                    self.compare.store(true, Ordering::Release);
                    if failures == 1 || failures % 20 == 0 {
                        tracing::warn!(failures, error = chain(&error), "cannot claim jobs; will try again");
                    }
                    let delay = Backoff::RECONNECT.delay(failures);
                    let _ = tokio::time::timeout(delay, stop.cancelled()).await;
                }
            }
        }
    }

    /// Asks the store. A claim under way at shutdown is waited for a little, because its jobs are then handed back
    /// at once; otherwise their lease has to run out. `None` when that took too long.
    async fn ask(&self, request: ClaimRequest, stop: &CancellationToken) -> Option<Result<Claim>> {
        let claim = self.store.claim(request);
        tokio::pin!(claim);
        tokio::select! {
            answer = &mut claim => Some(answer),
            () = stop.cancelled() => tokio::time::timeout(CLAIM_AT_STOP_MAX, claim).await.ok(),
        }
    }

    /// How many jobs to ask for, as soon as there is room for any; `None` at shutdown.
    async fn wait_for_room(&self, motion: &mut Motion, stop: &CancellationToken) -> Option<u32> {
        loop {
            let room = self.room.notified();
            let still = motion.still_for(&self.buffer);
            if still >= BUFFER_IDLE_MAX {
                // The handlers turned slow: what is buffered here could run elsewhere.
                self.pace.record(BUFFER_IDLE_MAX * 100);
                self.hand_back().await;
            }
            let limit = self.capacity();
            if limit > 0 {
                return Some(u32::try_from(limit).map_or(CLAIM_MAX, |limit| limit.min(CLAIM_MAX)));
            }
            tokio::select! {
                // The end of a job makes room too, but at shutdown nothing is claimed for it.
                biased;
                () = stop.cancelled() => return None,
                () = room => {}
                () = tokio::time::sleep(BUFFER_IDLE_MAX.saturating_sub(still).max(LOOK_MIN)) => {}
            }
        }
    }

    /// Free slots plus the stock that handlers of this speed need; 0 while at least half of the stock is there.
    fn capacity(&self) -> usize {
        let slots = self.config.concurrency;
        let stock = self.pace.stock(slots, self.config.buffer_max);
        let buffered = self.buffer.len();
        if stock > 0 && buffered > stock / 2 {
            return 0;
        }
        (slots + stock).saturating_sub(self.buffer.occupied())
    }

    /// Pauses once while depth and load are both high, then lets one claim through. False at shutdown.
    async fn bear_pressure(&self, stop: &CancellationToken) -> bool {
        let Some(reading) = self.pressure.reading_if_high(&*self.store).await else {
            self.pressure.ease();
            self.metrics.paused.set(0.0);
            return true;
        };
        self.pressure.pause();
        self.metrics.pauses.increment(1);
        self.metrics.paused.set(1.0);
        tracing::info!(
            load = reading.load,
            depth = reading.depth,
            "claiming pauses: deep queue, loaded machine"
        );
        tokio::time::timeout(self.pressure.interval(), stop.cancelled()).await.is_err()
    }

    fn request(&self, limit: u32) -> ClaimRequest {
        let kinds = self.kinds.iter().map(|(kind, entry)| {
            let slots = match entry.profile.concurrency {
                Some(most) => {
                    u32::try_from(most.saturating_sub(self.held.count_of(kind))).unwrap_or(u32::MAX)
                }
                None => limit,
            };
            KindSlots { kind: kind.to_string(), slots: slots.min(limit), lease: self.lease_of(entry) }
        });
        ClaimRequest {
            worker: self.worker(),
            limit,
            queues: self.config.queues.clone(),
            kinds: kinds.filter(|kind| kind.slots > 0).collect(),
        }
    }

    fn take(&self, claim: Claim) {
        for recovered in &claim.recovered {
            self.metrics.recovered_stale.increment(1);
            tracing::warn!(job = %recovered.job, kind = recovered.kind, became = %recovered.became,
                "recovered a job whose worker fell silent");
        }
        if claim.jobs.is_empty() {
            return;
        }
        let waiting: Vec<Waiting> =
            claim.jobs.into_iter().map(|job| Waiting { job, stop: Stop::default() }).collect();
        self.held.insert(waiting.iter().map(|waiting| self.held_job(&waiting.job, &waiting.stop)));
        self.buffer.push(waiting);
        self.metrics.buffered.set(self.buffer.len() as f64);
    }

    fn held_job(&self, job: &ClaimedJob, stop: &Stop) -> HeldJob {
        let lease = self.kinds.get(&job.kind).map_or(self.config.lease, |entry| self.lease_of(entry));
        HeldJob { fence: job.fence, kind: job.kind.clone(), lease, since: Moment::now(), stop: stop.clone() }
    }

    /// Nothing more to claim for now: waits for a call, a due time or the backstop poll.
    async fn rest(
        &self,
        next_look: Option<Duration>,
        at_bound: bool,
        wakes: &mut watch::Receiver<u64>,
        stop: &CancellationToken,
    ) -> Woken {
        self.metrics.buffered.set(self.buffer.len() as f64);
        let poll = self.config.poll.mul_f64(rand::rng().random_range(0.8..1.2));
        let wait = next_look.map_or(poll, |look| look.max(LOOK_MIN).min(poll));
        // What waits here may have to be handed back.
        let wait = if self.buffer.len() > 0 { wait.min(BUFFER_IDLE_MAX) } else { wait };
        tokio::select! {
            _ = wakes.changed() => Woken::ByCall,
            () = self.room.notified(), if at_bound => Woken::ByTimer,
            () = tokio::time::sleep(wait) => Woken::ByTimer,
            () = stop.cancelled() => Woken::Stop,
        }
    }

    /// Compares what the store believes this worker holds with what it holds.
    ///
    /// A claim whose answer was lost leaves jobs that the heartbeats would keep alive for ever; they are given
    /// back. An execution that the store no longer counts as ours is stopped. Runs between two claims, so no job
    /// can be on its way here.
    async fn compare_holdings(&self) {
        let owned = match self.store.owned(self.worker()).await {
            Ok(owned) => owned.into_iter().collect::<HashSet<_>>(),
            Err(error) => {
                self.compare.store(true, Ordering::Release);
                tracing::debug!(error = chain(&error), "cannot compare holdings");
                return;
            }
        };
        let lost = self.held.stop_where(StopReason::Lost, |job| !owned.contains(&job.fence));
        if lost > 0 {
            tracing::debug!(lost, "executions that the store does not count as ours any more");
        }
        for fence in owned.into_iter().filter(|fence| !self.held.contains(*fence)) {
            tracing::info!(job = %fence.job, "giving back a job whose claim went unanswered");
            self.reporter.settle(Settlement { fence, outcome: Outcome::Released }).await;
        }
    }
}
