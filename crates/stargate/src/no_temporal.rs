//! In the place of Temporal, in a program that was built without it.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use stargate_base::Tasks;
use stargate_directive::file::Directive;
use stargate_directive::{Run, SharedDirectives};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::assemble::Stores;
use crate::cmd::doctor::Check;
use crate::config::Settings;
use crate::failure::{Failure, Result};
use crate::run::App;

/// There are none.
#[derive(Debug, Serialize)]
pub(crate) struct WorkflowView {
    pub(crate) workflow_id: String,
    pub(crate) run_id: String,
    pub(crate) status: &'static str,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) history_events: u64,
    pub(crate) pending: Vec<PendingView>,
}

/// There are none.
#[derive(Debug, Serialize)]
pub(crate) struct PendingView {
    pub(crate) activity: String,
    pub(crate) attempt: u32,
    pub(crate) last_failure: Option<String>,
    pub(crate) next_attempt_at: Option<Timestamp>,
}

pub(crate) fn start(
    _: &Settings,
    _: &SharedDirectives,
    _: &Tasks,
    _: CancellationToken,
) -> Result<JoinHandle<Result<()>>> {
    Err(absent())
}

pub(crate) async fn run(_: &App, _: &Stores, _: &Directive, _: Option<Duration>) -> Result<Run> {
    Err(absent())
}

pub(crate) async fn begin(_: &Settings, _: &Directive) -> Result<(String, bool)> {
    Err(absent())
}

pub(crate) async fn states(_: &Settings) -> Result<BTreeMap<String, WorkflowView>> {
    Err(absent())
}

pub(crate) async fn state(_: &Settings, _: &str) -> Result<Option<WorkflowView>> {
    Err(absent())
}

pub(crate) async fn cancel(_: &Settings, _: &str) -> Result<bool> {
    Err(absent())
}

pub(crate) async fn checks(_: &Settings) -> Vec<Check> {
    let failure = absent();
    vec![Check::fail("temporal", failure.message, failure.help.unwrap_or_default())]
}

fn absent() -> Failure {
    Failure::config("directives.engine is temporal, but this stargate was built without it")
        .help("use one that was built with the feature 'temporal', or --engine embedded")
}
