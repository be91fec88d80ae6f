//! The store as the place that issues epochs to leaders.

use async_trait::async_trait;
use stargate_base::Epoch;
use stargate_leader::elector::Reason;
use stargate_leader::{Epochs, Holder};
use stargate_queue::{Error, SharedStore};

/// Terms that the history keeps.
pub(crate) const TERMS_KEPT: i64 = 10_000;

/// Has a store issue the epochs of leaders, so that it can refuse the writes of those whose term is over.
#[derive(Debug, Clone)]
pub struct Terms(pub SharedStore);

impl Terms {
    /// Epochs issued by this store.
    pub fn new(store: SharedStore) -> Self {
        Self(store)
    }
}

#[async_trait]
impl Epochs for Terms {
    async fn issue(&self, holder: &Holder) -> stargate_leader::Result<Epoch> {
        // What is current when the call begins: if this takes effect late, after a later term has begun, it fails.
        let expected = self.0.epoch().await.map_err(failed)?;
        self.0.term_begin(&holder.instance, holder.address.as_deref(), expected).await.map_err(failed)
    }

    async fn ended(&self, epoch: Epoch, reason: Reason) -> stargate_leader::Result<()> {
        self.0.term_end(epoch, reason.as_str()).await.map_err(failed)
    }
}

/// What the store said, with its causes: the leader's error has no room for the error itself.
fn failed(error: Error) -> stargate_leader::Error {
    let mut problem = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        problem = format!("{problem}: {error}");
        cause = error.source();
    }
    stargate_leader::Error::Epoch { problem }
}

/// The epoch of a column; there is none before the first term.
pub(crate) fn number(column: i64) -> Option<Epoch> {
    u64::try_from(column).ok().filter(|number| *number > 0).map(Epoch::new)
}

/// The column of an epoch. No store issues numbers beyond its range.
pub(crate) fn column(epoch: Option<Epoch>) -> i64 {
    epoch.map_or(0, |epoch| i64::try_from(epoch.get()).unwrap_or(i64::MAX))
}

/// The answer to a beginning that came too late.
pub(crate) fn overtaken(expected: Option<Epoch>) -> Error {
    let since = expected.map_or_else(|| "nobody led".to_owned(), |epoch| format!("epoch {epoch}"));
    Error::Conflict { problem: format!("another term has begun since {since}") }
}
