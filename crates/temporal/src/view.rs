//! A workflow as the cluster shows it.

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use stargate_directive::RunId;
use stargate_directive::steps::Progress;
use temporalio_client::errors::WorkflowGetResultError;
use temporalio_client::{WorkflowExecution, WorkflowExecutionStatus};
use temporalio_common::error::IncomingError;
use temporalio_common::protos::temporal::api::common::v1::Payloads;
use temporalio_common::protos::temporal::api::failure::v1::Failure;
use temporalio_common::protos::temporal::api::workflow::v1::{PendingActivityInfo, WorkflowExecutionInfo};
use temporalio_common::protos::temporal::api::workflowservice::v1::DescribeWorkflowExecutionResponse;

use crate::WORKFLOW_ID_PREFIX;
use crate::plan::{Details, Summary};

/// How a workflow is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It goes on.
    Running,
    /// It ended well.
    Completed,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// Somebody ended it without asking it.
    Terminated,
    /// It took longer than it may.
    TimedOut,
    /// It goes on under another run.
    ContinuedAsNew,
    /// Something that this version does not know.
    Other,
}

impl Status {
    /// The word for people and for JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Terminated => "terminated",
            Self::TimedOut => "timed_out",
            Self::ContinuedAsNew => "continued_as_new",
            Self::Other => "unknown",
        }
    }
}

impl From<WorkflowExecutionStatus> for Status {
    fn from(status: WorkflowExecutionStatus) -> Self {
        match status {
            WorkflowExecutionStatus::Running | WorkflowExecutionStatus::Paused => Self::Running,
            WorkflowExecutionStatus::Completed => Self::Completed,
            WorkflowExecutionStatus::Failed => Self::Failed,
            WorkflowExecutionStatus::Canceled => Self::Cancelled,
            WorkflowExecutionStatus::Terminated => Self::Terminated,
            WorkflowExecutionStatus::TimedOut => Self::TimedOut,
            WorkflowExecutionStatus::ContinuedAsNew => Self::ContinuedAsNew,
            _ => Self::Other,
        }
    }
}

/// A workflow of a directive.
#[derive(Debug, Clone, PartialEq)]
pub struct Workflow {
    /// The directive.
    pub directive: String,
    /// What the cluster calls it.
    pub workflow_id: String,
    /// The run: the first execution of the chain.
    pub run: RunId,
    /// How it is.
    pub status: Status,
    /// When this execution of the chain began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub closed_at: Option<Timestamp>,
    /// Events in its history.
    pub history_events: u64,
    /// Activities that go on or wait.
    pub pending: Vec<Pending>,
    /// Why it failed.
    pub error: Option<String>,
}

/// An activity that goes on or waits.
#[derive(Debug, Clone, PartialEq)]
pub struct Pending {
    /// Its type.
    pub activity: String,
    /// Which try it is, from 1.
    pub attempt: u32,
    /// Why the one before it failed.
    pub last_failure: Option<String>,
    /// When it is tried again, if it waits for that.
    pub next_attempt_at: Option<Timestamp>,
    /// What its last heartbeat said.
    pub heartbeat: Option<Progress>,
}

/// How a chain of executions closed.
#[derive(Debug, Clone, PartialEq)]
pub struct Closed {
    /// How.
    pub status: Status,
    /// What its run came to, if it says so.
    pub summary: Option<Summary>,
    /// The code of why it failed.
    pub code: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
}

impl Workflow {
    /// As it is described.
    pub(crate) fn described(answer: &DescribeWorkflowExecutionResponse) -> Option<Self> {
        let mut workflow = Self::of(answer.workflow_execution_info.as_ref()?)?;
        workflow.pending = answer.pending_activities.iter().map(Pending::of).collect();
        Some(workflow)
    }

    /// As it is listed.
    pub(crate) fn listed(execution: &WorkflowExecution) -> Option<Self> {
        Self::of(execution.raw())
    }

    fn of(info: &WorkflowExecutionInfo) -> Option<Self> {
        let execution = info.execution.as_ref()?;
        let directive = execution.workflow_id.strip_prefix(WORKFLOW_ID_PREFIX)?.to_owned();
        let first = match info.first_run_id.is_empty() {
            true => &execution.run_id,
            false => &info.first_run_id,
        };
        Some(Self {
            directive,
            workflow_id: execution.workflow_id.clone(),
            run: RunId(first.clone()),
            status: WorkflowExecutionStatus::from(info.status()).into(),
            started_at: info.start_time.and_then(time),
            closed_at: info.close_time.and_then(time),
            history_events: u64::try_from(info.history_length).unwrap_or_default(),
            pending: Vec::new(),
            error: None,
        })
    }
}

impl Pending {
    fn of(info: &PendingActivityInfo) -> Self {
        Self {
            activity: info.activity_type.as_ref().map(|kind| kind.name.clone()).unwrap_or_default(),
            attempt: u32::try_from(info.attempt).unwrap_or_default(),
            last_failure: info.last_failure.as_ref().map(message),
            next_attempt_at: info.next_attempt_schedule_time.and_then(time),
            heartbeat: info.heartbeat_details.as_ref().and_then(first_json),
        }
    }
}

impl Closed {
    /// What the end of a chain says.
    pub(crate) fn of(
        result: Result<Summary, WorkflowGetResultError>,
    ) -> Result<Self, WorkflowGetResultError> {
        let plain = |status| Self { status, summary: None, code: None, error: None };
        match result {
            Ok(summary) => Ok(Self { summary: Some(summary), ..plain(Status::Completed) }),
            Err(WorkflowGetResultError::Failed(error)) => {
                let (code, text) = reason(&error);
                Ok(Self { code, error: Some(text), ..plain(Status::Failed) })
            }
            Err(WorkflowGetResultError::Cancelled { details }) => {
                let summary =
                    details.raw().first().and_then(|payload| serde_json::from_slice(&payload.data).ok());
                Ok(Self { summary, ..plain(Status::Cancelled) })
            }
            Err(WorkflowGetResultError::Terminated { .. }) => Ok(plain(Status::Terminated)),
            Err(WorkflowGetResultError::TimedOut) => Ok(plain(Status::TimedOut)),
            Err(other) => Err(other),
        }
    }
}

/// The innermost reason of a failure: what is around it only says where.
fn reason(error: &IncomingError) -> (Option<String>, String) {
    let mut innermost = error;
    while let Some(cause) = innermost.cause() {
        innermost = cause;
    }
    let code = match innermost {
        IncomingError::Application(failure) => {
            failure.details::<Details>().ok().flatten().map(|details| details.code)
        }
        _ => None,
    };
    (code, innermost.failure().message.clone())
}

/// The innermost message of a failure.
fn message(failure: &Failure) -> String {
    let mut innermost = failure;
    while let Some(cause) = innermost.cause.as_deref() {
        innermost = cause;
    }
    innermost.message.clone()
}

fn first_json<T: DeserializeOwned>(payloads: &Payloads) -> Option<T> {
    serde_json::from_slice(&payloads.payloads.first()?.data).ok()
}

fn time<T: TryInto<std::time::SystemTime>>(timestamp: T) -> Option<Timestamp> {
    Timestamp::try_from(timestamp.try_into().ok()?).ok()
}
