//! What an operator wants to know about a cluster.

use std::time::{Duration, SystemTime};

use temporalio_client::NamespacedClient as _;
use temporalio_client::tonic::IntoRequest as _;
use temporalio_common::protos::temporal::api::enums::v1::{NamespaceState, TaskQueueType};
use temporalio_common::protos::temporal::api::taskqueue::v1::{PollerInfo, TaskQueue};
use temporalio_common::protos::temporal::api::workflowservice::v1::{
    DescribeNamespaceRequest, DescribeTaskQueueRequest, GetSystemInfoRequest,
};

use crate::cluster::Cluster;
use crate::error::Result;
use crate::{search, steps_queue};

/// What the identity of a worker ends with that serves for one run only: nobody may rely on it.
pub const LENT: &str = "/run";

/// A poll lasts a minute at most; who has not asked for longer is gone, though the cluster lists it for a while.
const POLL_MAX: Duration = Duration::from_secs(70);

/// A cluster as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// Its version.
    pub server_version: String,
    /// The namespace.
    pub namespace: String,
    /// Whether the namespace takes new workflows.
    pub namespace_is_active: bool,
    /// How long closed workflows are kept.
    pub retention: Option<Duration>,
    /// Who polls which queue.
    pub polled: Vec<Polled>,
    /// Search attributes of ours that it does not know.
    pub search_attributes_missing: Vec<String>,
}

/// Who polls a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Polled {
    /// The directives' queue.
    pub queue: String,
    /// Who asks for tasks of workflows.
    pub workflow_pollers: Vec<String>,
    /// Who asks for activities of other languages.
    pub activity_pollers: Vec<String>,
    /// Who asks for the steps.
    pub steps_pollers: Vec<String>,
}

impl Polled {
    /// Whether runs of directives with this queue get on.
    pub fn is_served(&self) -> bool {
        !self.workflow_pollers.is_empty() && !self.steps_pollers.is_empty()
    }
}

impl Cluster {
    /// The cluster, and who polls these queues.
    pub async fn describe(&self, queues: &[String]) -> Result<Description> {
        self.timely("describing the cluster", self.ask(queues)).await?
    }

    async fn ask(&self, queues: &[String]) -> Result<Description> {
        let mut service = self.client.connection().workflow_service();
        let system = service.get_system_info(GetSystemInfoRequest::default().into_request()).await;
        let system =
            system.map_err(|status| self.place.error("asking for the version", &status))?.into_inner();
        let namespace = self.client.namespace();
        let ask = DescribeNamespaceRequest { namespace: namespace.clone(), ..Default::default() };
        let answer = service.describe_namespace(ask.into_request()).await;
        let answer =
            answer.map_err(|status| self.place.error("describing the namespace", &status))?.into_inner();
        let state = answer.namespace_info.as_ref().map(|info| info.state());
        let retention = answer.config.and_then(|config| config.workflow_execution_retention_ttl);
        let mut polled = Vec::new();
        for queue in queues {
            polled.push(Polled {
                queue: queue.clone(),
                workflow_pollers: self.pollers(queue, TaskQueueType::Workflow).await?,
                activity_pollers: self.pollers(queue, TaskQueueType::Activity).await?,
                steps_pollers: self.pollers(&steps_queue(queue), TaskQueueType::Activity).await?,
            });
        }
        Ok(Description {
            server_version: system.server_version,
            namespace,
            namespace_is_active: state == Some(NamespaceState::Registered),
            retention: retention.and_then(|retention| retention.try_into().ok()),
            polled,
            // A hosted cluster may not say.
            search_attributes_missing: search::missing(&self.client, &self.place).await.unwrap_or_default(),
        })
    }

    async fn pollers(&self, queue: &str, kind: TaskQueueType) -> Result<Vec<String>> {
        let ask = DescribeTaskQueueRequest {
            namespace: self.client.namespace(),
            task_queue: Some(TaskQueue { name: queue.to_owned(), ..Default::default() }),
            task_queue_type: kind as i32,
            ..Default::default()
        };
        let answer =
            self.client.connection().workflow_service().describe_task_queue(ask.into_request()).await;
        let answer =
            answer.map_err(|status| self.place.error("describing a task queue", &status))?.into_inner();
        let is_there = |poller: &PollerInfo| {
            let asked = poller.last_access_time.and_then(|at| SystemTime::try_from(at).ok());
            let age = asked.and_then(|asked| asked.elapsed().ok());
            age.is_none_or(|age| age < POLL_MAX) && !poller.identity.ends_with(LENT)
        };
        let pollers = answer.pollers.into_iter().filter(is_there);
        let mut pollers: Vec<String> = pollers.map(|poller| poller.identity).collect();
        pollers.sort();
        pollers.dedup();
        Ok(pollers)
    }
}
