//! Who asks, what was done, and how errors look.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// What every error looks like.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ErrorEnvelope {
    /// What went wrong.
    pub error: ErrorBody,
}

/// What went wrong.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// A stable code; docs/errors has a page for each.
    pub code: String,
    /// One line for people.
    pub message: String,
    /// The request, as in the header x-request-id and in the log.
    pub request_id: String,
}

/// Who asks.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Whoami {
    /// The token's name; `local` where nobody needs one.
    pub name: String,
    /// `read`, `write`, `operate` or `admin`; null for a token that is for some repositories only.
    pub role: Option<String>,
    /// Whether this node refuses every change, whoever asks.
    pub read_only: bool,
}

/// What somebody did.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Action {
    /// Its number.
    pub id: i64,
    /// When it began.
    pub at: Timestamp,
    /// Who: a token's name, `local`, or `cli:USER@HOST`.
    pub actor: String,
    /// The token's id.
    pub token: Option<String>,
    /// The role that was used.
    pub role: Option<String>,
    /// What, such as `job.retry`.
    pub action: String,
    /// To what.
    pub target: String,
    /// More about it.
    #[schema(value_type = Value)]
    pub detail: Value,
    /// The request.
    pub request_id: Option<String>,
    /// `api`, `page` or `cli`.
    pub source: String,
    /// `ok`, or the code of an error; null if nobody knows: it was begun, and the process died.
    pub outcome: Option<String>,
    /// When that was known.
    pub finished_at: Option<Timestamp>,
}

/// A page of what was done.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Actions {
    /// Newest first.
    pub actions: Vec<Action>,
    /// What to pass as `before` for the next page; null on the last.
    pub next_before: Option<i64>,
}
