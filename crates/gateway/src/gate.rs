//! Who may do what, asked before anything is started. The binary answers: it knows tokens and who leads.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use stargate_base::Secret;
use stargate_git::Service;
use tokio_util::sync::CancellationToken;

use crate::name::RepoName;

/// What a client wants to do with a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// Fetch, clone, list refs.
    Read,
    /// Push.
    Write,
}

impl From<Service> for Access {
    fn from(service: Service) -> Self {
        match service {
            Service::UploadPack => Self::Read,
            Service::ReceivePack => Self::Write,
        }
    }
}

/// What a client says about itself. Nothing of it has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    /// Nothing.
    None,
    /// A name and a password; git sends a token as the password.
    Basic {
        /// The name, which often means nothing.
        user: String,
        /// The password or token.
        password: Secret,
    },
    /// A token alone.
    Bearer(Secret),
    /// The key that OpenSSH has already accepted, by the name under which it is known to us.
    Key(String),
}

/// Decides who may read and who may push.
///
/// 1. It is asked for every request, the first one of a push too; an answer is not kept.
/// 2. It is asked before the repository is looked up. A client without rights is to learn nothing: what it may not
///    even know of is [`Denied::NotFound`], whether it exists or not.
/// 3. [`Access::Write`] is admitted on the leader only. `pre-receive` asks again, right before refs move, and the term
///    is held until git has ended.
/// 4. Nothing of the credentials appears in a [`Denied`].
#[async_trait]
pub trait Gate: Send + Sync + 'static {
    /// Admits or denies a request.
    async fn admit(
        &self,
        repo: &RepoName,
        access: Access,
        credentials: &Credentials,
    ) -> Result<Admission, Denied>;
}

/// An admitted request: what the hooks of a push will know about it.
#[derive(Debug, Clone, Default)]
pub struct Admission {
    /// Who pushes, as the journal names it.
    pub pusher: Option<String>,
    /// The epoch of the term under which the push was admitted.
    pub epoch: Option<u64>,
    /// That term, held: refs are moved in it or not at all. None where the one who admits is not the one who leads.
    pub hold: Option<Hold>,
}

/// A term that waits for a push: who leads steps down when the last hold is dropped. Cheap to clone.
#[derive(Clone)]
pub struct Hold {
    stopping: CancellationToken,
    over: CancellationToken,
    _held: Arc<dyn Any + Send + Sync>,
}

/// When a term is over so soon after it was to end, nobody waits for what was begun in it: another may lead by now.
const LOST_WITHIN: Duration = Duration::from_millis(100);

impl Hold {
    /// `stopping` is cancelled when the term is to end; `over` when it has, with `stopping` if it is lost. `held` is
    /// what keeps it from ending.
    pub fn new(
        stopping: CancellationToken,
        over: CancellationToken,
        held: impl Send + Sync + 'static,
    ) -> Self {
        Self { stopping, over, _held: Arc::new(held) }
    }

    /// Ends when the term is to end.
    pub(crate) async fn stopping(&self) {
        self.stopping.cancelled().await;
    }

    /// Ends when what cannot be taken back must have ended as well: `patience` after the term was to end, or at once if
    /// it is lost. To be asked before the term is to end: a term that is over for a while looks like one that was lost.
    pub(crate) async fn exhausted(&self, patience: Duration) {
        self.stopping().await;
        if tokio::time::timeout(LOST_WITHIN, self.over.cancelled()).await.is_err() {
            tokio::time::sleep(patience).await;
        }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("stopping", &self.stopping.is_cancelled()).finish_non_exhaustive()
    }
}

/// Why a request is denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied {
    /// No credentials, or none that can be read; git asks its user for some.
    Unauthenticated,
    /// A token that is not known: a wrong one looks the same whether there is one like it or not.
    UnknownToken,
    /// A token that was good once. Only who has its secret is told.
    ExpiredToken,
    /// A token that was taken back. Only who has its secret is told.
    RevokedToken,
    /// Known, but without this right.
    Forbidden(String),
    /// There is no such repository, or this client may not know of it.
    NotFound,
    /// Pushes go to another node.
    NotLeader {
        /// The address of the leader, if it is known.
        leader: Option<String>,
        /// When to try again here.
        retry_after: Duration,
    },
    /// It cannot be decided now.
    Unavailable {
        /// What is missing, without secrets.
        problem: String,
        /// When to try again.
        retry_after: Duration,
    },
}
