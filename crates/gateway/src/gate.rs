//! Who may do what, asked before anything is started. The binary answers: it knows tokens and who leads.

use std::time::Duration;

use async_trait::async_trait;
use stargate_base::Secret;
use stargate_git::Service;

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
/// 3. [`Access::Write`] is admitted on the leader only. `pre-receive` asks again, right before refs move.
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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Admission {
    /// Who pushes, as the journal names it.
    pub pusher: Option<String>,
    /// The epoch of the term under which the push was admitted.
    pub epoch: Option<u64>,
}

/// Why a request is denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied {
    /// No credentials, or none that are known; git asks its user for some.
    Unauthenticated,
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
