//! No lock at all: this node always leads. For a single node that says so (`backend = "none"`).

use async_trait::async_trait;

use crate::error::Result;
use crate::lease::{Acquired, Bid, Inspection, Lease, Released, Renewed};

/// Grants everything. The epoch is still issued and compared, so a second node started by mistake deposes the first
/// one instead of writing beside it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unlocked;

#[async_trait]
impl Lease for Unlocked {
    fn place(&self) -> String {
        "no lock".to_owned()
    }

    fn is_shared(&self) -> bool {
        false
    }

    async fn acquire(&self, _bid: &Bid) -> Result<Acquired> {
        Ok(Acquired::Granted)
    }

    async fn renew(&self, _bid: &Bid) -> Result<Renewed> {
        Ok(Renewed::Extended)
    }

    async fn release(&self, _bid: &Bid) -> Result<Released> {
        Ok(Released::Freed)
    }

    async fn inspect(&self) -> Result<Inspection> {
        Ok(Inspection { server: None, incumbent: None })
    }
}
