//! What a schedule starts. The cluster adds the time to the name of a workflow that it starts by itself, and a directive
//! has one workflow, whoever starts it: so this one only starts that.

use serde::{Deserialize, Serialize};
use stargate_directive::RunId;
use temporalio_macros::{workflow, workflow_methods};
use temporalio_sdk::{
    ApplicationFailure, ChildWorkflowOptions, ChildWorkflowStartError, ParentClosePolicy,
    StartChildWorkflowExecutionFailedCause, WorkflowContext, WorkflowContextView, WorkflowResult,
};

use super::DirectiveWorkflow;
use crate::plan::Input;
use crate::workflow_id;

/// The workflow that a schedule starts.
#[workflow]
pub struct ScheduledWorkflow {
    input: Input,
}

/// What became of the wish of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fired {
    /// The run that was started; none if one went on.
    pub run: Option<RunId>,
}

#[workflow_methods]
impl ScheduledWorkflow {
    /// Takes its input.
    #[init]
    pub fn new(_: &WorkflowContextView, input: Input) -> Self {
        Self { input }
    }

    /// Starts the workflow of the directive. One that goes on stands for it.
    #[run(name = "stargate.directive.scheduled")]
    pub async fn run(ctx: &mut WorkflowContext<Self>) -> WorkflowResult<Fired> {
        let input = ctx.state(|state| state.input.clone());
        let options = ChildWorkflowOptions::builder()
            .workflow_id(workflow_id(&input.directive))
            .parent_close_policy(ParentClosePolicy::Abandon)
            .build();
        match ctx.start_child_workflow(DirectiveWorkflow::run, input, options).await {
            Ok(started) => Ok(Fired { run: Some(RunId(started.run_id)) }),
            Err(ChildWorkflowStartError::StartFailed {
                cause: StartChildWorkflowExecutionFailedCause::WorkflowAlreadyExists,
                ..
            }) => Ok(Fired { run: None }),
            Err(error) => Err(ApplicationFailure::non_retryable(error).into()),
        }
    }
}
