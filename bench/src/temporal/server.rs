//! A development server that keeps everything in memory, and what it says about workflows.

use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use temporalio_client::{
    Client, ClientOptions, Connection, ConnectionOptions, Url, WorkflowDescribeOptions,
    WorkflowExecutionInfo, WorkflowHandle,
};
use temporalio_common::UntypedWorkflow;
use tokio::process::Child;

use crate::git::client::{answer, program};

pub(super) const NAMESPACE: &str = "default";
/// How long it may take to answer.
const READY_DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);

/// Killed when dropped.
pub(super) struct Server {
    pub(super) address: String,
    pub(super) client: Client,
    _child: Child,
}

impl Server {
    pub(super) async fn start(temporal: &Path, folder: &Path) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let log = folder.join("temporal.log");
        let file = std::fs::File::create(&log)?;
        let mut command = program(temporal);
        command.args(["server", "start-dev", "--headless", "--ip", "127.0.0.1", "--log-level", "warn"]);
        command.args(["--port", &port.to_string()]).env("HOME", folder);
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let mut child = command.spawn().with_context(|| format!("cannot run {}", temporal.display()))?;
        let address = format!("127.0.0.1:{port}");
        let began = Instant::now();
        while !knows_namespace(temporal, folder, &address).await {
            let ended = child.try_wait()?;
            let said = || std::fs::read_to_string(&log).unwrap_or_default();
            ensure!(ended.is_none(), "the server ended ({ended:?}):\n{}", said());
            ensure!(began.elapsed() < READY_DEADLINE, "the server does not answer:\n{}", said());
            tokio::time::sleep(POLL).await;
        }
        let options = ConnectionOptions::new(Url::parse(&format!("http://{address}"))?);
        let connection = Connection::connect(options.identity("stargate-bench".to_owned()).build()).await?;
        let client = Client::new(connection, ClientOptions::new(NAMESPACE).build())?;
        Ok(Self { address, client, _child: child })
    }

    /// What the program calls itself.
    pub(super) async fn version(&self, temporal: &Path) -> Result<String> {
        let mut command = program(temporal);
        command.arg("--version");
        answer(command).await
    }

    /// Seconds from the start of a workflow until its chain of executions closed, as the server has written them down.
    pub(super) async fn took(&self, workflow: &str, first_run: &str) -> Result<f64> {
        let (began, _) = self.times(workflow, Some(first_run)).await?;
        let (_, closed) = self.times(workflow, None).await?;
        let closed = closed.with_context(|| format!("{workflow} goes on"))?;
        Ok(closed - began)
    }

    async fn times(&self, workflow: &str, run: Option<&str>) -> Result<(f64, Option<f64>)> {
        let info = WorkflowExecutionInfo::builder()
            .namespace(NAMESPACE)
            .workflow_id(workflow)
            .maybe_run_id(run.map(str::to_owned))
            .build();
        let handle: WorkflowHandle<Client, UntypedWorkflow> = WorkflowHandle::new(self.client.clone(), info);
        let described = handle.describe(WorkflowDescribeOptions::default()).await?;
        let info = described.raw().workflow_execution_info.as_ref().context("nothing is said of it")?;
        let began = info.start_time.as_ref().context("it has no start")?;
        let seconds = |seconds: i64, nanos: i32| seconds as f64 + f64::from(nanos) / 1e9;
        let closed = info.close_time.as_ref().map(|time| seconds(time.seconds, time.nanos));
        Ok((seconds(began.seconds, began.nanos), closed))
    }
}

async fn knows_namespace(temporal: &Path, folder: &Path, address: &str) -> bool {
    let mut command = program(temporal);
    command.args(["operator", "namespace", "describe", "--address", address, "--namespace", NAMESPACE]);
    command.env("HOME", folder);
    answer(command).await.is_ok()
}
