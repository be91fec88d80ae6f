//! Keeps claims from slowing down while a large backlog is drained.
//!
//! Jobs leave the index of ready jobs at its front, and their dead entries stay there until a vacuum: each claim steps
//! over all of them again. Autovacuum looks once a minute at best, in which time a million jobs can go through. While a
//! transaction that is held open keeps the dead where they are, a vacuum only reads them all: then the next waits until
//! there are half as many again, and claims step around them (floors.rs).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stargate_queue::Result;

use super::connect::Line;
use super::{Inner, sql};

/// Jobs claimed by this process between two vacuums.
const CLAIMED_MAX: u64 = 100_000;
/// The same if the last one was [`STEADY`] ago: a backlog that is never gone, at a moderate rate.
const CLAIMED_STEADY_MAX: u64 = 20_000;
const STEADY: Duration = Duration::from_secs(30);
/// The same once the backlog is gone: so many dead entries cost a claim a few hundredths of a millisecond.
const CLAIMED_AT_REST_MAX: u64 = 2000;
/// How long one may take.
const TIMEOUT: Duration = Duration::from_secs(600);

/// When the next vacuum is due.
#[derive(Debug)]
pub(super) struct Vacuum {
    claimed: AtomicU64,
    /// When the last one was begun, or the process.
    last: Mutex<Instant>,
    /// Jobs to be claimed before the next, because the last one could not remove what is dead.
    in_vain: AtomicU64,
    running: AtomicBool,
    /// Whether this process knows how many dead it has found here.
    counted: AtomicBool,
}

impl Default for Vacuum {
    fn default() -> Self {
        Self {
            claimed: AtomicU64::default(),
            last: Mutex::new(Instant::now()),
            in_vain: AtomicU64::default(),
            running: AtomicBool::default(),
            counted: AtomicBool::default(),
        }
    }
}

impl Vacuum {
    fn last(&self) -> MutexGuard<'_, Instant> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Running(Arc<Inner>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.vacuum.running.store(false, Ordering::Relaxed);
    }
}

/// Counts claimed jobs and begins a vacuum when it is due.
pub(super) fn count(inner: &Arc<Inner>, claimed: usize) {
    let vacuum = &inner.vacuum;
    let before = vacuum.claimed.fetch_add(claimed as u64, Ordering::Relaxed);
    if !vacuum.counted.swap(true, Ordering::Relaxed) {
        let running = Running(inner.clone());
        vacuum.running.store(true, Ordering::Relaxed);
        spawn(running, Work::Count);
    }
    let most = if vacuum.last().elapsed() < STEADY { CLAIMED_MAX } else { CLAIMED_STEADY_MAX };
    begin_after(inner, before + claimed as u64, most);
}

/// The backlog is gone: a good moment, because the next single job should start without stepping over the dead.
pub(super) fn caught_up(inner: &Arc<Inner>) {
    begin_after(inner, inner.vacuum.claimed.load(Ordering::Relaxed), CLAIMED_AT_REST_MAX);
}

fn begin_after(inner: &Arc<Inner>, claimed: u64, most: u64) {
    let most = most.max(inner.vacuum.in_vain.load(Ordering::Relaxed));
    if claimed < most || inner.vacuum.running.swap(true, Ordering::Relaxed) {
        return;
    }
    inner.vacuum.claimed.store(0, Ordering::Relaxed);
    *inner.vacuum.last() = Instant::now();
    spawn(Running(inner.clone()), Work::Vacuum);
}

/// What is done in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// A process that begins where others had no success need not try that first.
    Count,
    Vacuum,
}

fn spawn(running: Running, work: Work) {
    let tasks = running.0.tasks.clone();
    tasks.spawn(async move {
        let stop = running.0.tasks.stopping();
        tokio::select! {
            () = stop.cancelled() => {}
            dead = run(&running.0.spare, work) => note(&running.0, work, dead),
        }
    });
}

/// Does it; how many dead rows are left.
async fn run(line: &Line, work: Work) -> Result<i64> {
    let mut session = line.session().await?;
    if work == Work::Vacuum {
        session.batch_within(TIMEOUT, "vacuum the jobs", sql!("job_vacuum")).await?;
    }
    session.value("count the dead rows", sql!("job_dead"), &[]).await
}

fn note(inner: &Inner, work: Work, dead: Result<i64>) {
    match dead {
        Ok(dead) => {
            let kept = inner.floors.found_dead(dead);
            let in_vain = if kept && work == Work::Vacuum { dead.unsigned_abs() / 2 } else { 0 };
            inner.vacuum.in_vain.store(in_vain, Ordering::Relaxed);
        }
        // Only slower, not wrong; autovacuum does it later.
        Err(error) => {
            tracing::debug!(error = &error as &dyn std::error::Error, "cannot vacuum the jobs");
        }
    }
}
