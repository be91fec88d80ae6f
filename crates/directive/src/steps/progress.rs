//! How far a run has come, for those who watch it or go on with it.

use serde::{Deserialize, Serialize};

use super::Execution;
use crate::cursor::{Cursor, Pointer};
use crate::item::Counts;
use crate::run::Step;

/// How far a run has come.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Where it is.
    pub step: Option<Step>,
    /// Pages accounted for.
    pub pages: u64,
    /// What became of its items.
    pub counts: Counts,
    /// The cursor as it is kept.
    pub cursor: Option<Cursor>,
    /// Its version; 0 if there is none.
    pub cursor_version: u64,
    /// Where the source goes on.
    pub pointer: Pointer,
    /// Records that the next page is to have.
    pub page_size: u32,
}

impl Execution {
    pub(super) fn progress(&self) -> Progress {
        let beat = self.heart.beat();
        Progress {
            step: beat.step,
            pages: self.run.pages,
            counts: self.run.counts,
            cursor: self.position.cursor.clone(),
            cursor_version: self.position.version(),
            pointer: self.position.pointer.clone(),
            page_size: beat.page_size.unwrap_or(u32::MAX).min(self.page_size_max()),
        }
    }

    pub(super) fn tell_progress(&self) {
        if let Some(listener) = &self.given.progress {
            listener.send_replace(self.progress());
        }
    }

    /// Records of a page at most.
    pub(super) fn page_size_max(&self) -> u32 {
        self.given.page_size.unwrap_or(self.given.directive.page_size)
    }
}
