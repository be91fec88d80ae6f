//! What a client asks of a cluster.

use std::future::Future;
use std::time::Duration;

use futures::StreamExt as _;
use stargate_base::chain;
use stargate_directive::RunId;
use stargate_directive::file::Directive;
use stargate_directive::steps::Progress;
use temporalio_client::errors::{
    WorkflowGetResultError, WorkflowInteractionError, WorkflowQueryError, WorkflowStartError,
};
use temporalio_client::tonic::Code;
use temporalio_client::{
    Client, NamespacedClient as _, QueryRejectCondition, WorkflowCancelOptions, WorkflowDescribeOptions,
    WorkflowExecutionInfo, WorkflowGetResultOptions, WorkflowHandle, WorkflowIdConflictPolicy,
    WorkflowIdReusePolicy, WorkflowListOptions, WorkflowQueryOptions, WorkflowSignalOptions,
    WorkflowStartOptions,
};

use crate::connect::{self, Settings};
use crate::error::{Error, Place, Result, status_of};
use crate::plan::{Input, WORKFLOW};
use crate::view::{Closed, Status, Workflow};
use crate::workflow::DirectiveWorkflow;
use crate::workflow_id;

/// How long the cluster may take for an answer, tries again included.
const CALL_MAX: Duration = Duration::from_secs(20);
/// Workflows that are listed.
const LIST_MAX: usize = 500;
/// What the cluster keeps as the reason of a cancellation.
const CANCEL_REASON: &str = "asked by an operator";

/// A connection to a cluster. Cloning it is cheap.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) client: Client,
    pub(crate) place: Place,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Cluster").field(&self.place).finish()
    }
}

/// A run that was started, or goes on already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// The run.
    pub run: RunId,
    /// Whether it went on before.
    pub existing: bool,
}

type Handle = WorkflowHandle<Client, DirectiveWorkflow>;

impl Cluster {
    /// Connects.
    pub async fn connect(settings: &Settings) -> Result<Self> {
        let (client, place) = connect::connect(settings).await?;
        Ok(Self { client, place })
    }

    /// Where it is.
    pub fn address(&self) -> &str {
        &self.place.address
    }

    /// Starts a run of a directive. If one goes on it stands for it.
    pub async fn start(&self, directive: &Directive) -> Result<Started> {
        let options = WorkflowStartOptions::new(directive.queue.clone(), workflow_id(&directive.name))
            .id_conflict_policy(WorkflowIdConflictPolicy::Fail)
            .id_reuse_policy(WorkflowIdReusePolicy::AllowDuplicate)
            .build();
        let input = Input::new(&directive.name);
        let started = self.client.start_workflow(DirectiveWorkflow::run, input, options);
        let run_id = match self.timely("starting a run", started).await? {
            Ok(handle) => {
                let run = RunId(handle.run_id().unwrap_or_default().to_owned());
                return Ok(Started { run, existing: false });
            }
            Err(WorkflowStartError::AlreadyStarted { run_id, .. }) => run_id,
            Err(error) => return Err(self.error("starting a run", &error)),
        };
        // The one that goes on may be a later execution of its chain.
        let of = self.described(&self.handle(&directive.name, run_id.clone())).await?;
        let run = of.map(|workflow| workflow.run).unwrap_or(RunId(run_id.unwrap_or_default()));
        Ok(Started { run, existing: true })
    }

    /// Asks a run to stop; false if none goes on.
    pub async fn cancel(&self, name: &str) -> Result<bool> {
        if !self.workflow(name).await?.is_some_and(|workflow| workflow.status == Status::Running) {
            return Ok(false);
        }
        let handle = self.handle(name, None);
        let options = WorkflowCancelOptions::builder().reason(CANCEL_REASON).build();
        match self.timely("cancelling a run", handle.cancel(options)).await? {
            Ok(()) => Ok(true),
            Err(WorkflowInteractionError::NotFound(_)) => Ok(false),
            Err(error) => Err(self.error("cancelling a run", &error)),
        }
    }

    /// The latest workflow of a directive.
    pub async fn workflow(&self, name: &str) -> Result<Option<Workflow>> {
        let handle = self.handle(name, None);
        let Some(mut workflow) = self.described(&handle).await? else { return Ok(None) };
        if workflow.status == Status::Failed {
            workflow.error = self.close_of(&handle).await?.and_then(|closed| closed.error);
        }
        Ok(Some(workflow))
    }

    /// The workflows there are, newest first; of a chain only the last execution.
    pub async fn workflows(&self) -> Result<Vec<Workflow>> {
        let query = format!("WorkflowType = '{WORKFLOW}' AND ExecutionStatus != 'ContinuedAsNew'");
        let options = WorkflowListOptions::builder().limit(LIST_MAX).build();
        let listed = self.client.list_workflows(query, options).collect::<Vec<_>>();
        let mut workflows = Vec::new();
        for execution in self.timely("listing runs", listed).await? {
            let execution = execution.map_err(|error| self.error("listing runs", &error))?;
            workflows.extend(Workflow::listed(&execution));
        }
        workflows.sort_by_key(|workflow| std::cmp::Reverse(workflow.started_at));
        Ok(workflows)
    }

    /// How the chain of a run closed; none while it goes on, or if the cluster has forgotten it.
    pub async fn ended(&self, name: &str, run: &RunId) -> Result<Option<Closed>> {
        let latest = self.described(&self.handle(name, None)).await?;
        let goes_on = |latest: &Workflow| latest.run == *run && latest.status == Status::Running;
        if latest.as_ref().is_some_and(goes_on) {
            return Ok(None);
        }
        self.close_of(&self.handle(name, Some(run.0.clone()))).await
    }

    /// How far the run was after its last stretch. Needs a worker that answers.
    pub async fn progress(&self, name: &str) -> Result<Progress> {
        let handle = self.handle(name, None);
        let options = WorkflowQueryOptions::builder().reject_condition(QueryRejectCondition::NotOpen).build();
        let asked = handle.query(DirectiveWorkflow::progress, (), options);
        match self.timely("asking for progress", asked).await? {
            Ok(progress) => Ok(progress),
            Err(WorkflowQueryError::NotFound(_) | WorkflowQueryError::Rejected { .. }) => {
                Err(not_running(name))
            }
            Err(error) => Err(self.error("asking for progress", &error)),
        }
    }

    /// Tells a run to wait after the batch that is being written.
    pub async fn pause(&self, name: &str) -> Result<()> {
        let handle = self.handle(name, None);
        self.signalled(name, handle.signal(DirectiveWorkflow::pause, (), signal())).await
    }

    /// Tells a run to go on.
    pub async fn resume(&self, name: &str) -> Result<()> {
        let handle = self.handle(name, None);
        self.signalled(name, handle.signal(DirectiveWorkflow::resume, (), signal())).await
    }

    /// Tells a run to ask for pages of so many records.
    pub async fn page_size(&self, name: &str, records: u32) -> Result<()> {
        let handle = self.handle(name, None);
        self.signalled(name, handle.signal(DirectiveWorkflow::page_size, records, signal())).await
    }

    async fn signalled(
        &self,
        name: &str,
        sent: impl Future<Output = Result<(), WorkflowInteractionError>>,
    ) -> Result<()> {
        match self.timely("signalling a run", sent).await? {
            Ok(()) => Ok(()),
            Err(WorkflowInteractionError::NotFound(_)) => Err(not_running(name)),
            Err(error) => Err(self.error("signalling a run", &error)),
        }
    }

    async fn described(&self, handle: &Handle) -> Result<Option<Workflow>> {
        match self.timely("describing a run", handle.describe(WorkflowDescribeOptions::default())).await? {
            Ok(description) => Ok(Workflow::described(description.raw())),
            Err(WorkflowInteractionError::NotFound(_)) => Ok(None),
            Err(error) => Err(self.error("describing a run", &error)),
        }
    }

    /// How a chain that has closed did so.
    async fn close_of(&self, handle: &Handle) -> Result<Option<Closed>> {
        let result =
            self.timely("reading the end of a run", handle.get_result(WorkflowGetResultOptions::default()));
        match Closed::of(result.await?) {
            Ok(closed) => Ok(Some(closed)),
            Err(WorkflowGetResultError::NotFound(_)) => Ok(None),
            Err(error) => Err(self.error("reading the end of a run", &error)),
        }
    }

    fn handle(&self, name: &str, run_id: Option<String>) -> Handle {
        let info = WorkflowExecutionInfo::builder()
            .namespace(self.client.namespace())
            .workflow_id(workflow_id(name))
            .maybe_run_id(run_id)
            .build();
        WorkflowHandle::new(self.client.clone(), info)
    }

    pub(crate) async fn timely<T>(&self, request: &'static str, asked: impl Future<Output = T>) -> Result<T> {
        tokio::time::timeout(CALL_MAX, asked).await.map_err(|_| self.place.late(request, CALL_MAX))
    }

    pub(crate) fn error(&self, request: &'static str, error: &(dyn std::error::Error + 'static)) -> Error {
        match status_of(error) {
            Some(status) => self.place.error(request, status),
            None => Error::Rejected { request, code: Code::Unknown, problem: chain(error) },
        }
    }
}

fn signal() -> WorkflowSignalOptions {
    WorkflowSignalOptions::default()
}

fn not_running(name: &str) -> Error {
    Error::NotRunning { directive: name.to_owned() }
}
