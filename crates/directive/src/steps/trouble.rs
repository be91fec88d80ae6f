//! Why a step did not work.

use std::time::Duration;

use stargate_base::{ErrorClass, chain};
use stargate_queue::Error;

use crate::source::SourceError;

/// Why a step did not work, and how that is to be treated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Trouble {
    /// How it is to be treated.
    pub class: ErrorClass,
    /// A stable code.
    pub code: String,
    /// What happened and what to do about it.
    pub message: String,
    /// When the source wants to be asked again.
    pub retry_after: Option<Duration>,
    /// Whether the source asks for less.
    pub limited: bool,
    /// Whether the source must be read from its beginning.
    pub restart: bool,
}

impl Trouble {
    /// Trouble of a class.
    pub fn new(class: ErrorClass, code: &str, message: impl Into<String>) -> Self {
        Self {
            class,
            code: code.to_owned(),
            message: message.into(),
            retry_after: None,
            limited: false,
            restart: false,
        }
    }
}

impl From<SourceError> for Trouble {
    fn from(error: SourceError) -> Self {
        Self {
            class: error.class,
            code: error.code.to_owned(),
            message: error.message,
            retry_after: error.retry_after,
            limited: error.limited,
            restart: error.restart,
        }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::new(error.class(), error.code(), chain(&error))
    }
}
