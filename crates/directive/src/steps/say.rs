//! What is logged about a run. Every record says whose it is and where the cursor stands.

use std::fmt;
use std::time::Duration;

use super::Assignment;
use crate::cursor::Cursor;

/// Which run a log record is about.
#[derive(Debug, Clone)]
pub(super) struct Who {
    pub(super) directive: String,
    pub(super) workflow_id: String,
    pub(super) run_id: String,
    pub(super) tenant: String,
    pub(super) project: String,
}

impl Who {
    pub(super) fn of(given: &Assignment) -> Self {
        let directive = &given.directive;
        Self {
            directive: directive.name.clone(),
            workflow_id: given.workflow_id.clone(),
            run_id: given.run.to_string(),
            tenant: directive.tenant.clone(),
            project: directive.project.clone(),
        }
    }
}

/// The cursor in a log record.
pub(super) struct Shown<'c>(pub(super) Option<&'c Cursor>);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("null"),
            Some(cursor) => f.write_str(&serde_json::to_string(cursor).map_err(|_| fmt::Error)?),
        }
    }
}

/// As a number; the log writes wider ones as text.
pub(super) fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// Logs with the fields that every record of a run has.
macro_rules! say {
    ($level:ident, $who:expr, $cursor:expr, $($rest:tt)*) => {
        tracing::event!(
            tracing::Level::$level,
            agent = "meta-worker",
            directive = $who.directive,
            workflow_id = $who.workflow_id,
            run_id = $who.run_id,
            tenant_id = $who.tenant,
            project_id = $who.project,
            cursor = %$crate::steps::say::Shown($cursor),
            $($rest)*
        )
    };
}

pub(super) use say;
