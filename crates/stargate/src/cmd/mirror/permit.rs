//! Whether a command may push: only the leader's mirror does.
//!
//! The node of this configuration is asked first. Where none answers, the leader lock is looked at: somebody who holds it
//! leads, here or on another machine. Where nobody leads, whoever calls has decided. In any case the lock of the repository
//! keeps two of this machine apart, and the lease on the watermark those of two machines.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use stargate_base::{Tasks, chain};
use stargate_leader::lease::Incumbent;
use stargate_leader::{FileLease, Lease};
use tokio_util::sync::CancellationToken;

use crate::candidate;
use crate::config::Settings;
use crate::config::leader::Backend;
use crate::failure::{Exit, Failure, Result};
use crate::node::Node;
use crate::run::App;

/// How often it is asked whether pushing is still allowed.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// How long a node or a lock may take to answer. One that was stopped takes connections and never answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether this process may push, as of the last time somebody was asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodePermit(Arc<Mutex<Option<Refusal>>>);

/// Why not.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Refusal {
    /// The node says that it does not lead.
    Standby { node: String },
    /// Somebody else has the leader lock.
    Elsewhere { leader: String, place: String },
    /// Nobody can tell.
    Unknown { problem: String },
}

/// Who is asked.
struct Oracle {
    node: Node,
    lease: Option<Arc<dyn Lease>>,
    /// The file of the lock, if it is one. Before it is there nobody has ever led, and it is not made for a look.
    file: Option<PathBuf>,
}

impl NodePermit {
    /// Asks once, and fails if the node of this configuration does not lead.
    pub(super) async fn ask(app: &App) -> Result<Self> {
        let refusal = Oracle::new(&app.settings)?.ask().await;
        let permit = Self(Arc::new(Mutex::new(refusal)));
        match permit.refusal() {
            Some(Refusal::Standby { node }) => Err(Refusal::Standby { node }.failure()),
            // Told later: a process of this machine that has the lock of the repository is the better answer.
            _ => Ok(permit),
        }
    }

    /// Asks again and again until `stop`.
    pub(super) fn watch(&self, app: &App, tasks: &Tasks, stop: CancellationToken) -> Result<()> {
        let (permit, oracle) = (self.clone(), Oracle::new(&app.settings)?);
        tasks.spawn(async move {
            while stop.run_until_cancelled(tokio::time::sleep(ASK_EVERY)).await.is_some() {
                let Some(refusal) = stop.run_until_cancelled(oracle.ask()).await else { return };
                // A lock that does not answer for a moment says nothing new.
                if !matches!(refusal, Some(Refusal::Unknown { .. })) {
                    *permit.0.lock().unwrap_or_else(PoisonError::into_inner) = refusal;
                }
            }
        });
        Ok(())
    }

    /// Why it may not push, if that is so.
    pub(super) fn failure(&self) -> Option<Failure> {
        self.refusal().map(|refusal| refusal.failure())
    }

    fn refusal(&self) -> Option<Refusal> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl stargate_mirror::Permit for NodePermit {
    fn may_push(&self) -> bool {
        self.refusal().is_none()
    }
}

impl Refusal {
    fn failure(&self) -> Failure {
        match self {
            Self::Standby { node } => {
                let message =
                    format!("the node at {node} does not lead, and only the leader's mirror pushes");
                Failure::new(Exit::NotLeader, "NOT_LEADER", message)
                    .help("run it where the leader is: 'stargate leader status' tells where")
            }
            Self::Elsewhere { leader, place } => {
                let message = format!("{leader} leads (lock {place}), and only the leader's mirror pushes");
                Failure::new(Exit::NotLeader, "NOT_LEADER", message)
                    .help("let it do the work, or run this where it is, with api.listen of that node")
            }
            Self::Unknown { problem } => {
                let message = format!("nobody can tell whether a node leads: {problem}");
                Failure::new(Exit::Input, "LEADER_LOCK_UNREACHABLE", message)
                    .help("only the leader's mirror pushes, so this one does not; 'stargate doctor' checks the lock")
            }
        }
    }
}

impl Oracle {
    fn new(settings: &Settings) -> Result<Self> {
        let (lease, file): (Option<Arc<dyn Lease>>, _) = match &settings.leader.backend {
            Backend::File => {
                let path = candidate::lock_file(settings);
                (Some(Arc::new(FileLease::new(path.clone()))), Some(path))
            }
            Backend::Redis(_) => (Some(candidate::lease(settings)?), None),
            Backend::None => (None, None),
        };
        Ok(Self { node: Node::of(settings)?, lease, file })
    }

    async fn ask(&self) -> Option<Refusal> {
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, self.node.get("/healthz")).await;
        // A node that takes no part in leadership has no role.
        let role =
            answer.ok().and_then(Result::ok).and_then(|answer| answer.text("/role").map(str::to_owned));
        match role.as_deref() {
            Some("leader") => return None,
            Some(_) => return Some(Refusal::Standby { node: self.node.to_string() }),
            None => {}
        }
        if self.file.as_ref().is_some_and(|file| !file.exists()) {
            return None;
        }
        let lease = self.lease.as_ref()?;
        match tokio::time::timeout(ANSWER_TIMEOUT, lease.inspect()).await {
            Ok(Ok(seen)) => seen.incumbent.map(|Incumbent { value, .. }| Refusal::Elsewhere {
                leader: value.holder.to_string(),
                place: lease.place(),
            }),
            Ok(Err(error)) => Some(Refusal::Unknown { problem: chain(&error) }),
            Err(_) => Some(Refusal::Unknown { problem: format!("{} does not answer", lease.place()) }),
        }
    }
}
