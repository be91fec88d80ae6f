//! Keeps claims from slowing down while a large backlog is drained.
//!
//! Jobs leave the index of ready jobs at its front, and their dead entries stay there until a vacuum: each claim steps
//! over all of them again. Autovacuum looks once a minute at best, in which time a million jobs can go through.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::connect::Line;
use super::{Inner, sql};

/// Jobs claimed by this process between two vacuums.
const CLAIMED_MAX: u64 = 100_000;
/// The same once the backlog is gone: so many dead entries cost a claim a few hundredths of a millisecond.
const CLAIMED_AT_REST_MAX: u64 = 2000;
/// How long one may take.
const TIMEOUT: Duration = Duration::from_secs(600);

/// When the next vacuum is due.
#[derive(Debug, Default)]
pub(super) struct Vacuum {
    claimed: AtomicU64,
    running: AtomicBool,
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
    begin_after(inner, before + claimed as u64, CLAIMED_MAX);
}

/// The backlog is gone: a good moment, because the next single job should start without stepping over the dead.
pub(super) fn caught_up(inner: &Arc<Inner>) {
    begin_after(inner, inner.vacuum.claimed.load(Ordering::Relaxed), CLAIMED_AT_REST_MAX);
}

fn begin_after(inner: &Arc<Inner>, claimed: u64, most: u64) {
    if claimed < most || inner.vacuum.running.swap(true, Ordering::Relaxed) {
        return;
    }
    inner.vacuum.claimed.store(0, Ordering::Relaxed);
    let running = Running(inner.clone());
    inner.tasks.spawn(async move {
        let stop = running.0.tasks.stopping();
        tokio::select! {
            () = stop.cancelled() => {}
            () = run(&running.0.spare) => {}
        }
    });
}

async fn run(line: &Line) {
    let result = match line.session().await {
        Ok(mut session) => session.batch_within(TIMEOUT, "vacuum the jobs", sql!("job_vacuum")).await,
        Err(error) => Err(error),
    };
    if let Err(error) = result {
        // Only slower, not wrong; autovacuum does it later.
        tracing::debug!(error = &error as &dyn std::error::Error, "cannot vacuum the jobs");
    }
}
