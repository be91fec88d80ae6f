//! Histories that a real server wrote are replayed: a workflow that came to decide otherwise would get stuck after an
//! upgrade. `tests/cluster` records them.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::path::PathBuf;

use stargate_temporal::plan::{Input, Summary};
use stargate_temporal::workflow::{DirectiveWorkflow, ScheduledWorkflow};
use temporalio_client::WorkflowHistory;
use temporalio_common::UntypedActivity;
use temporalio_common::data_converters::RawValue;
use temporalio_macros::{workflow, workflow_methods};
use temporalio_sdk::workflow_replayer::{
    WorkflowReplayError, WorkflowReplayFailure, WorkflowReplayer, WorkflowReplayerOptions,
};
use temporalio_sdk::{
    ActivityOptions, WorkflowContext, WorkflowContextView, WorkflowResult, WorkflowTermination,
};

/// What `tests/cluster` records. A file that is missing is a test that is missing.
const HISTORIES: [&str; 11] = [
    "run",
    "retry",
    "failed",
    "cancel",
    "pause",
    "continued-first",
    "continued-last",
    "activity",
    "activity-large",
    "scheduled",
    "scheduled-skipped",
];

fn history(name: &str) -> WorkflowHistory {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/histories").join(format!("{name}.json"));
    let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    WorkflowHistory::from_json(&text).unwrap()
}

#[tokio::test]
async fn every_recorded_history_is_replayed_to_its_end() {
    let options = WorkflowReplayerOptions::new().register_workflow::<DirectiveWorkflow>().unwrap();
    let options = options.register_workflow::<ScheduledWorkflow>().unwrap().build();
    let replayer = WorkflowReplayer::new(options).unwrap();
    for name in HISTORIES {
        let replayed = replayer.replay_workflow(history(name)).await;
        assert!(replayed.is_ok(), "{name}: {replayed:?}");
    }
}

#[tokio::test]
async fn no_history_is_left_out() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/histories");
    let files = std::fs::read_dir(folder).unwrap();
    let stem = |file: std::fs::DirEntry| file.path().file_stem().unwrap().to_string_lossy().into_owned();
    let mut found: Vec<String> = files.map(|file| stem(file.unwrap())).collect();
    found.sort();
    let mut known = HISTORIES.map(str::to_owned);
    known.sort();
    assert_eq!(found, known);
}

/// The workflow after a change that nobody thought through: it ends the run before it begins it.
#[workflow]
struct Changed;

#[workflow_methods]
impl Changed {
    #[init]
    fn new(_: &WorkflowContextView, _: Input) -> Self {
        Self
    }

    #[run(name = "stargate.directive")]
    async fn run(ctx: &mut WorkflowContext<Self>) -> WorkflowResult<Summary> {
        for name in ["stargate.directive.end", "stargate.directive.begin"] {
            let options = ActivityOptions::start_to_close_timeout(std::time::Duration::from_secs(1));
            ctx.execute_activity(UntypedActivity::new(name), RawValue::default(), options).await?;
        }
        Err(WorkflowTermination::cancelled())
    }
}

#[tokio::test]
async fn a_workflow_that_decides_otherwise_is_refused() {
    let options = WorkflowReplayerOptions::new().register_workflow::<Changed>().unwrap().build();
    let replayer = WorkflowReplayer::new(options).unwrap();
    for name in HISTORIES.into_iter().filter(|name| !name.starts_with("scheduled")) {
        let error = replayer.replay_workflow(history(name)).await.unwrap_err();
        let is_seen =
            matches!(error, WorkflowReplayError::Replay(WorkflowReplayFailure::Nondeterminism { .. }));
        assert!(is_seen, "{name}: {error:?}");
    }
}
