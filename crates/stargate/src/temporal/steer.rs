//! Workflows of directives, looked at and ended.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use stargate_directive::steps::Progress;
use stargate_temporal::Workflow;

use crate::config::Settings;
use crate::failure::Result;

/// A workflow with the stable fields of the documentation.
#[derive(Debug, Serialize)]
pub(crate) struct WorkflowView {
    pub(crate) workflow_id: String,
    pub(crate) run_id: String,
    pub(crate) status: &'static str,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) closed_at: Option<Timestamp>,
    pub(crate) history_events: u64,
    pub(crate) pending: Vec<PendingView>,
}

/// An activity that is under way or waits to be tried again.
#[derive(Debug, Serialize)]
pub(crate) struct PendingView {
    pub(crate) activity: String,
    pub(crate) attempt: u32,
    pub(crate) last_failure: Option<String>,
    pub(crate) next_attempt_at: Option<Timestamp>,
    /// What its last heartbeat said.
    pub(crate) heartbeat: Option<Progress>,
}

/// The newest workflow of each directive.
pub(crate) async fn states(settings: &Settings) -> Result<BTreeMap<String, WorkflowView>> {
    let cluster = super::connect(settings).await?;
    let mut newest = BTreeMap::new();
    for workflow in cluster.workflows().await? {
        newest.entry(workflow.directive.clone()).or_insert_with(|| view(workflow));
    }
    Ok(newest)
}

/// The newest workflow of a directive.
pub(crate) async fn state(settings: &Settings, name: &str) -> Result<Option<WorkflowView>> {
    Ok(super::connect(settings).await?.workflow(name).await?.map(view))
}

/// Asks the workflow of a directive to end where its cursor is; false if there is none.
pub(crate) async fn cancel(settings: &Settings, name: &str) -> Result<bool> {
    Ok(super::connect(settings).await?.cancel(name).await?)
}

fn view(workflow: Workflow) -> WorkflowView {
    let pending = workflow.pending.into_iter().map(|pending| PendingView {
        activity: pending.activity,
        attempt: pending.attempt,
        last_failure: pending.last_failure,
        next_attempt_at: pending.next_attempt_at,
        heartbeat: pending.heartbeat,
    });
    WorkflowView {
        workflow_id: workflow.workflow_id,
        run_id: workflow.run.0,
        status: workflow.status.as_str(),
        started_at: workflow.started_at,
        closed_at: workflow.closed_at,
        history_events: workflow.history_events,
        pending: pending.collect(),
    }
}
