//! What can go wrong between us and a cluster.

use stargate_base::ErrorClass;
use temporalio_client::errors::{
    ClientConnectError, WorkflowGetResultError, WorkflowInteractionError, WorkflowQueryError,
};
use temporalio_client::tonic::{Code, Status};

/// The result of asking a cluster.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong between us and a cluster.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting that will stay wrong.
    #[error("{field} {problem}")]
    Setting {
        /// The setting.
        field: &'static str,
        /// What is wrong with it and what would be right.
        problem: String,
    },
    /// Nobody answers, or not in time.
    #[error(
        "the Temporal cluster at {address} (namespace {namespace}) does not answer: {problem}; see that it runs there and can be reached, and that TLS is set as it is on the cluster"
    )]
    Unreachable {
        /// Where it is to be.
        address: String,
        /// The namespace.
        namespace: String,
        /// What happened.
        problem: String,
    },
    /// It answered and does not let us.
    #[error(
        "the Temporal cluster at {address} does not let us into namespace {namespace}: {problem}; see the API key or the certificate"
    )]
    Refused {
        /// Where it is.
        address: String,
        /// The namespace.
        namespace: String,
        /// What it said.
        problem: String,
    },
    /// There is no such namespace.
    #[error(
        "the Temporal cluster at {address} has no namespace {namespace}; create it with 'temporal operator namespace create'"
    )]
    NamespaceMissing {
        /// Where it is.
        address: String,
        /// The namespace.
        namespace: String,
    },
    /// The directive has no workflow, or none that goes on.
    #[error("no run of directive {directive} goes on at the Temporal cluster")]
    NotRunning {
        /// The directive.
        directive: String,
    },
    /// It said no to a request.
    #[error("the Temporal cluster answered {code:?} to {request}: {problem}")]
    Rejected {
        /// What was asked.
        request: &'static str,
        /// Its code.
        code: Code,
        /// What it said.
        problem: String,
    },
    /// A worker ended by itself.
    #[error("a worker of task queue {queue} ended: {problem}")]
    Worker {
        /// Its queue.
        queue: String,
        /// Why.
        problem: String,
    },
}

impl Error {
    /// How retry code is to treat it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Setting { .. } => ErrorClass::ValidationFailure,
            Self::Unreachable { .. } | Self::Worker { .. } => ErrorClass::RetryableTransient,
            Self::Refused { .. } | Self::NamespaceMissing { .. } => ErrorClass::Fatal,
            Self::NotRunning { .. } => ErrorClass::Conflict,
            Self::Rejected { code, .. } if is_passing(*code) => ErrorClass::RetryableTransient,
            Self::Rejected { .. } => ErrorClass::Fatal,
        }
    }

    /// The stable code that clients match on.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Setting { .. } => "INVALID",
            Self::Unreachable { .. } => "TEMPORAL_UNREACHABLE",
            Self::Refused { .. } => "TEMPORAL_REFUSED",
            Self::NamespaceMissing { .. } => "TEMPORAL_NAMESPACE_MISSING",
            Self::NotRunning { .. } => "TEMPORAL_NOT_RUNNING",
            Self::Rejected { .. } => "TEMPORAL_REJECTED",
            Self::Worker { .. } => "TEMPORAL_WORKER",
        }
    }

    pub(crate) fn worker(queue: &str, problem: impl std::fmt::Display) -> Self {
        Self::Worker { queue: queue.to_owned(), problem: problem.to_string() }
    }
}

/// Whether a request with this answer may succeed later.
fn is_passing(code: Code) -> bool {
    matches!(
        code,
        Code::Unavailable
            | Code::DeadlineExceeded
            | Code::ResourceExhausted
            | Code::Aborted
            | Code::Cancelled
            | Code::Internal
            | Code::Unknown
    )
}

/// Who is asked; errors name it.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) address: String,
    pub(crate) namespace: String,
}

impl Place {
    /// What an answer means.
    pub(crate) fn error(&self, request: &'static str, status: &Status) -> Error {
        let Self { address, namespace } = self.clone();
        let problem = status.message().to_owned();
        match status.code() {
            Code::Unavailable | Code::DeadlineExceeded => {
                Error::Unreachable { address, namespace, problem: format!("{request}: {problem}") }
            }
            Code::PermissionDenied | Code::Unauthenticated => Error::Refused { address, namespace, problem },
            // The only thing of which the cluster says it like this.
            Code::NotFound if problem.starts_with("Namespace") => {
                Error::NamespaceMissing { address, namespace }
            }
            code => Error::Rejected { request, code, problem },
        }
    }

    /// It took too long.
    pub(crate) fn late(&self, request: &'static str, after: std::time::Duration) -> Error {
        let Self { address, namespace } = self.clone();
        Error::Unreachable { address, namespace, problem: format!("{request}: no answer within {after:?}") }
    }
}

/// The answer inside an error of the client; `None` if there is none in it. Some of them do not name it as their source.
pub(crate) fn status_of<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Status> {
    let mut inner = Some(error);
    while let Some(error) = inner {
        let unnamed = match () {
            () if error.is::<WorkflowInteractionError>() => match error.downcast_ref() {
                Some(WorkflowInteractionError::Rpc(status)) => Some(status),
                _ => None,
            },
            () if error.is::<WorkflowQueryError>() => match error.downcast_ref() {
                Some(WorkflowQueryError::Rpc(status)) => Some(status),
                _ => None,
            },
            () if error.is::<WorkflowGetResultError>() => match error.downcast_ref() {
                Some(WorkflowGetResultError::Rpc(status)) => Some(status),
                _ => None,
            },
            () if error.is::<ClientConnectError>() => match error.downcast_ref() {
                Some(ClientConnectError::SystemInfoCallError(status)) => Some(status),
                _ => None,
            },
            () => error.downcast_ref::<Status>(),
        };
        if unnamed.is_some() {
            return unnamed;
        }
        inner = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        Place { address: "http://127.0.0.1:7233".to_owned(), namespace: "default".to_owned() }
    }

    #[test]
    fn what_the_cluster_answers_says_how_it_is_treated() {
        let of = |code, text: &str| {
            let error = place().error("start", &Status::new(code, text));
            (error.code(), error.class())
        };
        assert_eq!(of(Code::Unavailable, "x"), ("TEMPORAL_UNREACHABLE", ErrorClass::RetryableTransient));
        assert_eq!(of(Code::PermissionDenied, "x"), ("TEMPORAL_REFUSED", ErrorClass::Fatal));
        assert_eq!(
            of(Code::NotFound, "Namespace x is not found."),
            ("TEMPORAL_NAMESPACE_MISSING", ErrorClass::Fatal)
        );
        assert_eq!(of(Code::ResourceExhausted, "x"), ("TEMPORAL_REJECTED", ErrorClass::RetryableTransient));
        assert_eq!(of(Code::InvalidArgument, "x"), ("TEMPORAL_REJECTED", ErrorClass::Fatal));
    }

    #[test]
    fn an_error_names_where_and_what_to_do() {
        let text = place().late("connecting", std::time::Duration::from_secs(10)).to_string();
        assert!(
            text.contains("http://127.0.0.1:7233") && text.contains("default") && text.contains("10s"),
            "{text}"
        );
    }
}
