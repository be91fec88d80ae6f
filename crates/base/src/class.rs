//! The four classes every error answers. Retry code looks at the class and at nothing else.

use serde::{Deserialize, Serialize};

/// How an error is to be treated.
///
/// The words are used everywhere: in handlers, in the queue, in directives, in metrics and in the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ErrorClass {
    /// Might succeed later without anyone changing anything: network, timeouts, a busy server.
    RetryableTransient,
    /// Somebody else changed the same thing first; look again, then retry.
    Conflict,
    /// The input is wrong and will stay wrong. Poison: failed at once.
    ValidationFailure,
    /// Needs an operator. Poison: failed at once.
    Fatal,
}

impl ErrorClass {
    /// Every class, in the order of the documentation.
    pub const ALL: [Self; 4] =
        [Self::RetryableTransient, Self::Conflict, Self::ValidationFailure, Self::Fatal];

    /// The name that appears in JSON, metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RetryableTransient => "RetryableTransient",
            Self::Conflict => "Conflict",
            Self::ValidationFailure => "ValidationFailure",
            Self::Fatal => "Fatal",
        }
    }

    /// Poison is never retried: trying again cannot help.
    pub fn is_poison(self) -> bool {
        matches!(self, Self::ValidationFailure | Self::Fatal)
    }
}

impl std::fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for ErrorClass {
    type Err = UnknownClass;

    fn from_str(name: &str) -> Result<Self, UnknownClass> {
        Self::ALL
            .into_iter()
            .find(|class| class.as_str() == name)
            .ok_or_else(|| UnknownClass(name.to_owned()))
    }
}

/// A class name that is not one of the four.
#[derive(Debug, thiserror::Error)]
#[error("unknown error class {0:?}; known are RetryableTransient, Conflict, ValidationFailure, Fatal")]
pub struct UnknownClass(String);
