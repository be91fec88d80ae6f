//! Runs as JSON.

use jiff::Timestamp;
use serde::Serialize;
use stargate_directive::{Cursor, Run, Step};

/// A run with the stable fields of the documentation.
#[derive(Debug, Serialize)]
pub(crate) struct RunView<'r> {
    run_id: &'r str,
    directive: &'r str,
    engine: &'r str,
    /// Null while it goes on.
    outcome: Option<&'static str>,
    pages: u64,
    created: u64,
    updated: u64,
    unchanged: u64,
    failed: u64,
    cursor: Option<&'r Cursor>,
    error: Option<&'r str>,
    tenant_id: &'r str,
    project_id: &'r str,
    workflow_id: &'r str,
    step: Option<Step>,
    page_size: Option<u32>,
    waiting_for: Option<&'r str>,
    cancel_asked: bool,
    started_at: Timestamp,
    updated_at: Timestamp,
    ended_at: Option<Timestamp>,
}

impl<'r> From<&'r Run> for RunView<'r> {
    fn from(run: &'r Run) -> Self {
        Self {
            run_id: &run.id.0,
            directive: &run.directive,
            engine: &run.engine,
            outcome: run.outcome.map(|outcome| outcome.as_str()),
            pages: run.pages,
            created: run.counts.created,
            updated: run.counts.updated,
            unchanged: run.counts.unchanged,
            failed: run.counts.failed,
            cursor: run.cursor.as_ref(),
            error: run.error.as_deref(),
            tenant_id: &run.tenant,
            project_id: &run.project,
            workflow_id: &run.workflow_id,
            step: run.beat.step.filter(|_| run.outcome.is_none()),
            page_size: run.beat.page_size,
            waiting_for: run.beat.waiting_for.as_deref().filter(|_| run.outcome.is_none()),
            cancel_asked: run.cancel_asked,
            started_at: run.started_at,
            updated_at: run.updated_at,
            ended_at: run.ended_at,
        }
    }
}
