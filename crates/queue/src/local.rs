//! What this process holds: the buffer of claimed jobs, and for every job the means to stop it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stargate_base::clock::Moment;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::job::{Fence, JobId};
use crate::store::ClaimedJob;

/// Why an execution must stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// It took longer than its kind allows.
    Timeout = 1,
    /// An operator asked.
    Cancelled = 2,
    /// The process shuts down.
    Shutdown = 3,
    /// The lease is gone, or so old that another worker may take it any moment.
    Lost = 4,
}

/// Stops one execution; the first reason counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop {
    token: CancellationToken,
    reason: Arc<AtomicU8>,
}

impl Stop {
    pub(crate) fn request(&self, reason: StopReason) {
        let _ = self.reason.compare_exchange(0, reason as u8, Ordering::AcqRel, Ordering::Acquire);
        self.token.cancel();
    }

    pub(crate) fn reason(&self) -> Option<StopReason> {
        use StopReason::{Cancelled, Lost, Shutdown, Timeout};
        let number = self.reason.load(Ordering::Acquire);
        [Timeout, Cancelled, Shutdown, Lost].into_iter().find(|reason| *reason as u8 == number)
    }

    pub(crate) fn token(&self) -> &CancellationToken {
        &self.token
    }
}

/// A job this process holds, from the claim until its settlement is recorded.
#[derive(Debug, Clone)]
pub(crate) struct HeldJob {
    pub(crate) fence: Fence,
    pub(crate) kind: Arc<str>,
    pub(crate) lease: Duration,
    /// When it was claimed.
    pub(crate) since: Moment,
    pub(crate) stop: Stop,
}

/// Everything this process holds.
#[derive(Debug, Default)]
pub(crate) struct Held(Mutex<HashMap<JobId, HeldJob>>);

impl Held {
    pub(crate) fn insert(&self, jobs: impl Iterator<Item = HeldJob>) {
        let mut held = self.lock();
        for job in jobs {
            // The same job can come back while an old execution of it is still being wound up here: that one has
            // lost its lease.
            if let Some(old) = held.insert(job.fence.job, job) {
                old.stop.request(StopReason::Lost);
            }
        }
    }

    /// Forgets an execution; one of the same job that came later stays.
    pub(crate) fn remove(&self, fences: impl Iterator<Item = Fence>) {
        let mut held = self.lock();
        for fence in fences {
            if held.get(&fence.job).is_some_and(|job| job.fence == fence) {
                held.remove(&fence.job);
            }
        }
    }

    pub(crate) fn stop(&self, fence: Fence, reason: StopReason) {
        if let Some(job) = self.lock().get(&fence.job).filter(|job| job.fence == fence) {
            job.stop.request(reason);
        }
    }

    pub(crate) fn stop_job(&self, job: JobId, reason: StopReason) {
        if let Some(job) = self.lock().get(&job) {
            job.stop.request(reason);
        }
    }

    /// Stops all executions for which `which` holds; answers how many.
    pub(crate) fn stop_where(&self, reason: StopReason, which: impl Fn(&HeldJob) -> bool) -> usize {
        self.lock().values().filter(|job| which(job)).map(|job| job.stop.request(reason)).count()
    }

    pub(crate) fn contains(&self, fence: Fence) -> bool {
        self.lock().get(&fence.job).is_some_and(|job| job.fence == fence)
    }

    pub(crate) fn count_of(&self, kind: &str) -> usize {
        self.lock().values().filter(|job| *job.kind == *kind).count()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<JobId, HeldJob>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A claimed job that waits for a free handler.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) job: ClaimedJob,
    pub(crate) stop: Stop,
}

/// Claimed jobs that wait for a free handler: filled by the one claimer, emptied by the slots.
#[derive(Debug)]
pub(crate) struct Buffer {
    jobs: Mutex<VecDeque<Waiting>>,
    available: Semaphore,
    len: AtomicUsize,
    /// Jobs that were put in and have not been finished or handed back: those that wait and those in a slot's hands.
    occupied: AtomicUsize,
    popped: AtomicU64,
}

impl Buffer {
    pub(crate) fn new() -> Self {
        Self {
            jobs: Mutex::default(),
            available: Semaphore::new(0),
            len: AtomicUsize::new(0),
            occupied: AtomicUsize::new(0),
            popped: AtomicU64::new(0),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// How many jobs wait here or are in a slot's hands. One count of both: a job on its way from the buffer into a
    /// slot would be missing from a sum of two, and another be claimed for a slot that is not free.
    pub(crate) fn occupied(&self) -> usize {
        self.occupied.load(Ordering::Acquire)
    }

    /// How many jobs were ever taken out: tells whether the buffer moves.
    pub(crate) fn popped(&self) -> u64 {
        self.popped.load(Ordering::Relaxed)
    }

    pub(crate) fn push(&self, jobs: Vec<Waiting>) {
        let count = jobs.len();
        self.lock().extend(jobs);
        self.len.fetch_add(count, Ordering::AcqRel);
        self.occupied.fetch_add(count, Ordering::AcqRel);
        self.available.add_permits(count);
    }

    /// The next job, to be followed by [`Self::finished`]; `None` when the buffer was closed.
    pub(crate) async fn pop(&self) -> Option<Waiting> {
        self.available.acquire().await.ok()?.forget();
        let job = self.lock().pop_front()?;
        self.len.fetch_sub(1, Ordering::AcqRel);
        self.popped.fetch_add(1, Ordering::Relaxed);
        Some(job)
    }

    /// A job that was taken out needs its slot no longer.
    pub(crate) fn finished(&self) {
        self.occupied.fetch_sub(1, Ordering::AcqRel);
    }

    /// Takes out what no slot has begun, to hand it back.
    pub(crate) fn take_all(&self) -> Vec<Waiting> {
        // Permits are taken first: a slot that already holds one must find its job.
        let taken = self.available.forget_permits(usize::MAX >> 4);
        let mut jobs = self.lock();
        let keep = jobs.len().saturating_sub(taken);
        let rest: Vec<Waiting> = jobs.drain(keep..).collect();
        self.forget(rest.len());
        rest
    }

    /// No slot gets another job; answers those that none has begun.
    ///
    /// A slot that was promised one and has not taken it yet is told that there is none: whoever closes hands
    /// back all of them.
    pub(crate) fn close(&self) -> Vec<Waiting> {
        self.available.close();
        let rest: Vec<Waiting> = self.lock().drain(..).collect();
        self.forget(rest.len());
        rest
    }

    fn forget(&self, count: usize) {
        self.len.fetch_sub(count, Ordering::AcqRel);
        self.occupied.fetch_sub(count, Ordering::AcqRel);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How fast handlers are, to decide how many jobs to hold ready.
///
/// Fast handlers need a stock, or every job waits for a claim. Slow ones must not have one: a job in this
/// process' buffer is a job that no idle worker elsewhere can take.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    average_us: AtomicU64,
}

impl Pace {
    /// The stock is what the slots work off in so long.
    const STOCK: Duration = Duration::from_millis(100);

    pub(crate) fn record(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
        let old = self.average_us.load(Ordering::Relaxed);
        let new = if old == 0 { took } else { old - old / 8 + took / 8 };
        self.average_us.store(new.max(1), Ordering::Relaxed);
    }

    pub(crate) fn stock(&self, slots: usize, stock_max: usize) -> usize {
        match self.average_us.load(Ordering::Relaxed) {
            0 => 0,
            average => {
                let per_slot = u64::try_from(Self::STOCK.as_micros()).unwrap_or(u64::MAX) / average;
                usize::try_from(per_slot).unwrap_or(usize::MAX).saturating_mul(slots).min(stock_max)
            }
        }
    }
}

/// When the last good beat was.
#[derive(Debug)]
pub(crate) struct LastBeat(Mutex<Moment>);

impl LastBeat {
    pub(crate) fn at(moment: Moment) -> Self {
        Self(Mutex::new(moment))
    }

    pub(crate) fn set(&self, moment: Moment) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = moment;
    }

    pub(crate) fn age(&self) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).age()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use crate::job::LeaseToken;

    #[test]
    fn fast_handlers_get_a_stock_and_slow_ones_none() {
        let pace = Pace::default();
        assert_eq!(pace.stock(4, 1000), 0, "nothing is known yet");
        pace.record(Duration::from_micros(5));
        assert_eq!(pace.stock(4, 1000), 1000);
        let pace = Pace::default();
        pace.record(Duration::from_secs(1));
        assert_eq!(pace.stock(4, 1000), 0);
        let pace = Pace::default();
        pace.record(Duration::from_millis(10));
        assert_eq!(pace.stock(4, 1000), 40);
    }

    fn waiting(id: i64) -> Waiting {
        let fence = Fence { job: JobId(id), attempt: 1, token: LeaseToken(1) };
        let payload = serde_json::value::RawValue::from_string("{}".to_owned()).unwrap();
        let (kind, queue): (Arc<str>, Arc<str>) = ("a".into(), "default".into());
        let job = ClaimedJob {
            fence,
            kind,
            queue,
            payload,
            max_attempts: 1,
            progress: 0,
            waited: Duration::ZERO,
            trace_id: None,
        };
        Waiting { job, stop: Stop::default() }
    }

    /// The slot has its place in front of the buffer and is woken, but has not run yet, when the buffer is closed.
    #[test]
    fn a_job_that_was_promised_to_a_slot_comes_back_when_the_buffer_is_closed() {
        let buffer = Buffer::new();
        let mut slot = Box::pin(buffer.pop());
        assert!(slot.as_mut().now_or_never().is_none());
        buffer.push(vec![waiting(1), waiting(2)]);
        let rest: Vec<JobId> = buffer.close().iter().map(|waiting| waiting.job.fence.job).collect();
        assert_eq!(rest, [JobId(1), JobId(2)]);
        assert!(slot.now_or_never().unwrap().is_none(), "the slot ends");
        assert_eq!((buffer.len(), buffer.occupied()), (0, 0));
    }

    #[test]
    fn a_job_on_its_way_into_a_slot_is_counted_all_the_time() {
        let buffer = Buffer::new();
        buffer.push(vec![waiting(1), waiting(2)]);
        assert!(buffer.pop().now_or_never().flatten().is_some());
        assert_eq!((buffer.len(), buffer.occupied()), (1, 2));
        buffer.finished();
        assert_eq!((buffer.len(), buffer.occupied()), (1, 1));
        assert_eq!(buffer.take_all().len(), 1);
        assert_eq!((buffer.len(), buffer.occupied()), (0, 0));
    }

    #[test]
    fn the_first_reason_to_stop_counts() {
        let stop = Stop::default();
        assert_eq!(stop.reason(), None);
        stop.request(StopReason::Cancelled);
        stop.request(StopReason::Lost);
        assert_eq!(stop.reason(), Some(StopReason::Cancelled));
        assert!(stop.token().is_cancelled());
    }
}
