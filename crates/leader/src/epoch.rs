//! Where the numbers of terms come from: the store that is to be protected issues them.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;

use crate::elector::Reason;
use crate::error::{Error, Result};
use crate::lease::Holder;

pub use stargate_base::Epoch;

/// Issues epochs and keeps the history of terms. The rules:
///
/// 1. Each epoch issued is higher than every one issued before, by whomever.
/// 2. From the moment an epoch is issued, guarded writes with a lower one are refused.
/// 3. An issue that takes effect late, after its caller has given up, must not depose a later term: it raises the
///    epoch only from the one that was current when the call began, and fails if another was issued since.
/// 4. Issuing begins a term in the history and ends the one before it, if its node did not.
/// 5. The end of a term is recorded once; a report about an older term, or a second one, changes nothing.
#[async_trait]
pub trait Epochs: fmt::Debug + Send + Sync {
    /// Begins a term of `holder`. Dropped when it takes too long; an epoch issued then is never used.
    async fn issue(&self, holder: &Holder) -> Result<Epoch>;

    /// Records that a term has ended and why. The history only: correctness does not depend on it.
    async fn ended(&self, epoch: Epoch, reason: Reason) -> Result<()>;
}

/// One term, as the history knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its number.
    pub epoch: Epoch,
    /// Whose it was.
    pub holder: Holder,
    /// How it ended; `None` while it goes on, or when its node could not tell.
    pub ended: Option<Reason>,
}

/// Epochs in memory, for tests and for a single node that protects nothing.
#[derive(Debug, Default)]
pub struct MemoryEpochs(Mutex<Vec<Record>>);

impl MemoryEpochs {
    /// All terms, oldest first.
    pub fn records(&self) -> Vec<Record> {
        self.lock().clone()
    }

    /// Whether a write with this epoch would be accepted.
    pub fn accepts(&self, epoch: Epoch) -> bool {
        self.lock().last().is_some_and(|last| epoch == last.epoch)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Record>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Epochs for MemoryEpochs {
    async fn issue(&self, holder: &Holder) -> Result<Epoch> {
        let mut records = self.lock();
        let last = records.last().map_or(0, |record| record.epoch.get());
        let next =
            last.checked_add(1).ok_or_else(|| Error::Epoch { problem: "no numbers left".to_owned() })?;
        records.push(Record { epoch: Epoch::new(next), holder: holder.clone(), ended: None });
        Ok(Epoch::new(next))
    }

    async fn ended(&self, epoch: Epoch, reason: Reason) -> Result<()> {
        if let Some(record) = self.lock().iter_mut().find(|r| r.epoch == epoch && r.ended.is_none()) {
            record.ended = Some(reason);
        }
        Ok(())
    }
}
