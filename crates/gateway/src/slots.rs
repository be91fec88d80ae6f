//! How many fetches and pushes run at once. Who finds no free slot waits a little, in a queue that has an end too.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::gate::Access;
use crate::refusal::Refusal;
use crate::settings::Settings;

/// When to come back after no slot became free: about the time that a fetch takes.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The slots of one gateway.
#[derive(Debug)]
pub(crate) struct Slots {
    fetches: Pool,
    pushes: Pool,
}

/// A slot; free again when dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    _permit: OwnedSemaphorePermit,
}

impl Slots {
    pub(crate) fn new(settings: &Settings) -> Self {
        let pool = |size| Pool {
            free: Arc::new(Semaphore::new(size)),
            chairs: Semaphore::new(settings.waiting_max),
            wait_max: settings.wait_max,
        };
        Self { fetches: pool(settings.fetches_max), pushes: pool(settings.pushes_max) }
    }

    /// Takes a slot, at once or after a short wait.
    pub(crate) async fn take(&self, access: Access) -> Result<Slot, Refusal> {
        let pool = match access {
            Access::Read => &self.fetches,
            Access::Write => &self.pushes,
        };
        pool.take().await.map(|permit| Slot { _permit: permit })
    }
}

#[derive(Debug)]
struct Pool {
    free: Arc<Semaphore>,
    /// Where requests wait.
    chairs: Semaphore,
    wait_max: Duration,
}

impl Pool {
    async fn take(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
            return Ok(permit);
        }
        let busy = Refusal::Busy { retry_after: RETRY_AFTER };
        let Ok(_chair) = self.chairs.try_acquire() else { return Err(busy) };
        // The semaphore is fair: who waits longest is next.
        let waited = tokio::time::timeout(self.wait_max, Arc::clone(&self.free).acquire_owned()).await;
        waited.ok().and_then(Result::ok).ok_or(busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots() -> Slots {
        let wait_max = Duration::from_secs(10);
        Slots::new(&Settings {
            fetches_max: 1,
            pushes_max: 1,
            waiting_max: 1,
            wait_max,
            ..Settings::default()
        })
    }

    #[tokio::test(start_paused = true)]
    async fn who_finds_no_slot_waits_and_is_refused_after_a_while() {
        let slots = slots();
        let held = slots.take(Access::Read).await.unwrap();
        assert!(matches!(slots.take(Access::Read).await, Err(Refusal::Busy { .. })));
        let (next, ()) = tokio::join!(slots.take(Access::Read), async { drop(held) });
        next.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_queue_has_an_end_and_pushes_have_slots_of_their_own() {
        let slots = slots();
        let _held = slots.take(Access::Read).await.unwrap();
        let started = tokio::time::Instant::now();
        let waiting = slots.take(Access::Read);
        let further = async {
            tokio::task::yield_now().await;
            let refused = slots.take(Access::Read).await;
            assert!(matches!(refused, Err(Refusal::Busy { .. })) && started.elapsed().is_zero());
            slots.take(Access::Write).await.unwrap()
        };
        let (waited, _push) = tokio::join!(waiting, further);
        assert!(waited.is_err());
    }
}
