//! Keeps the lease of a run while it works, and hears when it is to end.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use stargate_base::Tasks;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::run::{Beat, Lease};
use crate::store::{SharedDirectives, Standing};

/// Beats without an answer after which the lease must be taken for lost: as many as it lasts for.
pub(super) const BEATS_PER_LEASE: u32 = 3;

/// Why a run is to end before its source does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Halt {
    /// Somebody asked.
    Cancelled,
    /// Another execution has its lease, or nobody knows.
    Lost,
}

/// Beats until dropped.
#[derive(Debug)]
pub(super) struct Heart {
    shared: Arc<Shared>,
    begun: Instant,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    store: SharedDirectives,
    lease: Lease,
    every: Duration,
    beat: Mutex<Beat>,
    halt: Mutex<Option<Halt>>,
    halted: CancellationToken,
}

impl Heart {
    /// Begins to beat.
    pub(super) fn start(
        tasks: &Tasks,
        store: SharedDirectives,
        lease: Lease,
        every: Duration,
        beat: Beat,
    ) -> Self {
        let shared = Arc::new(Shared {
            store,
            lease,
            every,
            beat: Mutex::new(beat),
            halt: Mutex::new(None),
            halted: CancellationToken::new(),
        });
        let task = tasks.spawn(run(shared.clone()));
        Self { shared, begun: Instant::now(), task }
    }

    /// How long it beats.
    pub(super) fn age(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Cancelled when the run is to end.
    pub(super) fn halted(&self) -> &CancellationToken {
        &self.shared.halted
    }

    /// Why it is to end, if it is.
    pub(super) fn halt(&self) -> Option<Halt> {
        *lock(&self.shared.halt)
    }

    /// The run is to end, as somebody else heard.
    pub(super) fn stop_for(&self, halt: Halt) {
        self.shared.stop_for(halt);
    }

    /// Changes what the next beat says.
    pub(super) fn say(&self, change: impl FnOnce(&mut Beat)) {
        change(&mut lock(&self.shared.beat));
    }

    /// What the next beat says.
    pub(super) fn beat(&self) -> Beat {
        lock(&self.shared.beat).clone()
    }

    /// Beats now, for a lease of this length.
    pub(super) async fn beat_for(&self, lease_for: Duration) -> stargate_queue::Result<Standing> {
        self.shared.beat_for(lease_for).await
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn stop_for(&self, halt: Halt) {
        lock(&self.halt).get_or_insert(halt);
        self.halted.cancel();
    }

    async fn beat_for(&self, lease_for: Duration) -> stargate_queue::Result<Standing> {
        let beat = lock(&self.beat).clone();
        self.store.run_beat(&self.lease, lease_for, beat).await
    }
}

async fn run(shared: Arc<Shared>) {
    let lease_for = shared.every * BEATS_PER_LEASE;
    let mut heard = Instant::now();
    loop {
        tokio::time::sleep(shared.every).await;
        let asked = Instant::now();
        match shared.beat_for(lease_for).await {
            Ok(Standing::Held) => heard = asked,
            Ok(Standing::CancelAsked) => {
                heard = asked;
                shared.stop_for(Halt::Cancelled);
            }
            Ok(Standing::Lost) => return shared.stop_for(Halt::Lost),
            // A store that is away for shorter than the lease is nothing to the run.
            Err(error) if heard.elapsed() + shared.every < lease_for => {
                tracing::warn!(%error, "the run's heartbeat did not get through");
            }
            Err(error) => {
                tracing::warn!(%error, "the run's heartbeats do not get through; it stops before its lease ends");
                return shared.stop_for(Halt::Lost);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
