//! Directives and their runs as they go over the wire.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use stargate_queue::job::Json;
use utoipa::ToSchema;

/// A directive. Of a file that is wrong only its name, its path and its first problem are known.
#[derive(Debug, Default, Clone, Serialize, Deserialize, ToSchema)]
pub struct Directive {
    /// Its name.
    pub name: String,
    /// The queue its runs wait in.
    pub queue: Option<String>,
    /// Whose data it is.
    pub tenant: Option<String>,
    /// Of which project.
    pub project: Option<String>,
    /// Where records come from: `http`, `singer`, `file`, `sql` or `activity`.
    pub source: Option<String>,
    /// When it runs by itself.
    pub schedule: Option<String>,
    /// The zone that is read in.
    pub time_zone: Option<String>,
    /// The table its items go to.
    pub table: Option<String>,
    /// The topic under which changes are announced.
    pub outbox: Option<String>,
    /// Where announcements are delivered to.
    pub delivered_to: Option<String>,
    /// Its file.
    pub path: String,
    /// What is wrong with it.
    pub problem: Option<String>,
    /// Its newest workflow; only with the engine temporal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<Workflow>,
}

/// All directives.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Directives {
    /// What executes them: `embedded` or `temporal`.
    pub engine: String,
    /// By name.
    pub directives: Vec<Directive>,
}

/// A directive with how it stands.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DirectiveDetail {
    /// Its name.
    pub name: String,
    /// The queue its runs wait in.
    pub queue: String,
    /// Whose data it is.
    pub tenant_id: String,
    /// Of which project.
    pub project_id: String,
    /// Where records come from.
    pub source: String,
    /// The table its items go to.
    pub table: String,
    /// The topic under which changes are announced.
    pub outbox: Option<String>,
    /// When it runs by itself.
    pub schedule: Option<String>,
    /// The zone that is read in.
    pub time_zone: Option<String>,
    /// Its file.
    pub path: String,
    /// Where it stands; null before its first batch.
    #[schema(value_type = Option<Value>)]
    pub cursor: Option<Json>,
    /// How often that was written.
    pub cursor_version: Option<u64>,
    /// When that was written.
    pub cursor_updated_at: Option<Timestamp>,
    /// What was written beyond it.
    #[schema(value_type = Option<Value>)]
    pub partial: Option<Json>,
    /// Records that wait for somebody, counted to 1000.
    pub quarantined: usize,
    /// Its newest workflow; only with the engine temporal.
    pub workflow: Option<Workflow>,
    /// Its last runs, newest first.
    pub runs: Vec<Run>,
}

/// A workflow on Temporal.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Workflow {
    /// Its id.
    pub workflow_id: String,
    /// Its run.
    pub run_id: String,
    /// How it stands.
    pub status: String,
    /// When it began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub closed_at: Option<Timestamp>,
    /// How long its history is.
    pub history_events: u64,
    /// What is under way or waits to be tried again.
    pub pending: Vec<PendingActivity>,
}

/// An activity that is under way or waits to be tried again.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PendingActivity {
    /// Its name.
    pub activity: String,
    /// How often it was tried.
    pub attempt: u32,
    /// Why it failed last.
    pub last_failure: Option<String>,
    /// When it is tried next.
    pub next_attempt_at: Option<Timestamp>,
    /// What its last heartbeat said.
    #[schema(value_type = Option<Value>)]
    pub heartbeat: Option<Value>,
}

/// A run of a directive.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Run {
    /// Its name.
    pub run_id: String,
    /// The directive.
    pub directive: String,
    /// `embedded` or `temporal`.
    pub engine: String,
    /// `succeeded`, `failed` or `cancelled`; null while it goes on.
    pub outcome: Option<String>,
    /// Pages accounted for.
    pub pages: u64,
    /// Items that are new.
    pub created: u64,
    /// Items that have changed.
    pub updated: u64,
    /// Items that have not.
    pub unchanged: u64,
    /// Records that were kept aside.
    pub failed: u64,
    /// The cursor it wrote last.
    #[schema(value_type = Option<Value>)]
    pub cursor: Option<Json>,
    /// Why it failed.
    pub error: Option<String>,
    /// Whose data it is.
    pub tenant_id: String,
    /// Of which project.
    pub project_id: String,
    /// The workflow or job it is an execution of.
    pub workflow_id: String,
    /// Where it is, while it goes on.
    pub step: Option<String>,
    /// Items a page has at the moment.
    pub page_size: Option<u32>,
    /// Why it waits, if it does.
    pub waiting_for: Option<String>,
    /// Whether somebody asked it to stop.
    pub cancel_asked: bool,
    /// When it began.
    pub started_at: Timestamp,
    /// When it was heard of last.
    pub updated_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

/// A page of runs.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Runs {
    /// Newest first.
    pub runs: Vec<Run>,
    /// What to pass as `before` for the next page; null on the last.
    pub next_before: Option<String>,
}

/// A run that was asked for.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RunStarted {
    /// Its name.
    pub run_id: String,
    /// Whether one goes on already, which this is.
    pub existing: bool,
}

/// A value that a directive keeps.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CursorEntry {
    /// Where it is kept.
    pub key: String,
    /// The cursor.
    #[schema(value_type = Value)]
    pub value: Json,
    /// How often it was written.
    pub version: u64,
    /// The request that wrote it.
    pub request_id: String,
    /// Who wrote it.
    pub last_writer: String,
    /// Why, if it was moved by hand.
    pub spec_ref: Option<String>,
    /// When it was written.
    pub updated_at: Timestamp,
}

/// A move by hand.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CursorMove {
    /// When.
    pub at: Timestamp,
    /// By whom.
    pub writer: String,
    /// Why.
    pub spec_ref: String,
    /// From where.
    #[schema(value_type = Option<Value>)]
    pub before: Option<Json>,
    /// To where.
    #[schema(value_type = Option<Value>)]
    pub after: Option<Json>,
    /// The version it made.
    pub version: u64,
}

/// Where a directive stands.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CursorDetail {
    /// Null before its first batch.
    pub cursor: Option<CursorEntry>,
    /// What was written beyond it.
    #[schema(value_type = Option<Value>)]
    pub partial: Option<Json>,
    /// Moves by hand, newest first.
    pub moves: Vec<CursorMove>,
}

/// Where a directive is to go on.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewCursor {
    /// Where the source is to go on: `source_pointer` of a cursor. Either this or `beginning`.
    #[schema(value_type = Option<Value>)]
    pub pointer: Option<Box<RawValue>>,
    /// Back to the beginning of the source.
    #[serde(default)]
    pub beginning: bool,
    /// Why: an issue, a decision, a document.
    #[schema(min_length = 1, max_length = 500)]
    pub spec_ref: String,
    /// Only if the cursor still has this version; 0 if there is none.
    pub expected_version: Option<u64>,
}

/// That a cursor was moved.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CursorMoved {
    /// The directive.
    pub directive: String,
    /// The version it has now.
    pub version: u64,
    /// Where it stands now.
    #[schema(value_type = Value)]
    pub cursor: Json,
}

/// A record that could not become an item.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Quarantined {
    /// Its number.
    pub id: i64,
    /// The directive.
    pub directive: String,
    /// Whose data it is.
    pub tenant_id: String,
    /// Of which project.
    pub project_id: String,
    /// The run that kept it aside first.
    pub run_id: String,
    /// The entity, if that much could be read.
    pub entity_id: Option<String>,
    /// A stable word.
    pub cause: String,
    /// What is wrong with it.
    pub reason: String,
    /// How often it came.
    pub seen: u64,
    /// The record.
    #[schema(value_type = Value)]
    pub record: Json,
    /// When it came first.
    pub created_at: Timestamp,
    /// When it was dealt with.
    pub resolved_at: Option<Timestamp>,
}

/// A page of records that could not become items.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Quarantine {
    /// Newest first.
    pub records: Vec<Quarantined>,
    /// What to pass as `before` for the next page; null on the last.
    pub next_before: Option<i64>,
}

/// Which records to list.
#[derive(Debug, Clone, Default)]
pub struct QuarantineAsked {
    /// Only of this directive.
    pub directive: Option<String>,
    /// Also those that were dealt with.
    pub all: bool,
    /// Only with a smaller number.
    pub before: Option<i64>,
    /// Page size.
    pub limit: u32,
}

/// Which records to try again.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RetryQuarantined {
    /// Only these; all by default.
    #[serde(default)]
    #[schema(max_items = 1000)]
    pub ids: Vec<i64>,
}

/// What became of records that were tried again.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct QuarantineRetried {
    /// The directive.
    pub directive: String,
    /// Records that became items.
    pub resolved: u64,
    /// Records that still do not fit.
    pub failed: u64,
}

/// That a record was dealt with.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct QuarantineResolved {
    /// Its number.
    pub id: i64,
    /// True.
    pub resolved: bool,
}
