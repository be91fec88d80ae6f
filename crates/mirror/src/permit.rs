//! Whether this node may push at all: only the leader's mirror does.

/// Asked right before each push. A node that stands still between the answer and the push can still be late; then the
/// lease on the watermark refuses it.
pub trait Permit: Send + Sync {
    /// Whether this node may push now.
    fn may_push(&self) -> bool;
}

impl<F: Fn() -> bool + Send + Sync> Permit for F {
    fn may_push(&self) -> bool {
        self()
    }
}

/// For a node that is alone.
#[derive(Debug, Clone, Copy, Default)]
pub struct Always;

impl Permit for Always {
    fn may_push(&self) -> bool {
        true
    }
}
