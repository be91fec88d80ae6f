//! The one owner of background tasks: nothing starts behind our back, and shutdown waits for all of it.

use std::future::Future;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Owns tasks and the token that asks them to stop.
#[derive(Debug, Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Tasks {
    /// An owner without tasks.
    pub fn new() -> Self {
        Self::default()
    }

    /// The token that [`Tasks::stop`] cancels.
    pub fn stopping(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Starts a task that [`Tasks::join`] waits for.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tracker.spawn(task)
    }

    /// Asks every task to stop.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Asks every task to stop and waits until all have.
    pub async fn join(&self) {
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}
