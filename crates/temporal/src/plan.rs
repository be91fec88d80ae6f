//! What the workflow and its activities say to each other. All of it stands in histories that are replayed after an
//! upgrade: fields are added with a default, never renamed and never removed.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use stargate_directive::steps::Progress;
use stargate_directive::{Counts, Cursor, Outcome, Pointer, Run, RunId};
use stargate_queue::job::Json;

/// The type of the workflow.
pub const WORKFLOW: &str = "stargate.directive";
/// The type of what a schedule starts, which starts the workflow.
pub const SCHEDULED: &str = "stargate.directive.scheduled";

/// What a workflow is started with. Whoever starts one by hand gives only the directive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// The directive.
    pub directive: String,
    /// Whether it is to wait for the signal `resume`.
    #[serde(default)]
    pub paused: bool,
    /// Records of a page, in the place of what the directive says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_size: Option<u32>,
    /// How far the executions before it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
}

impl Input {
    /// A run of a directive.
    pub fn new(directive: &str) -> Self {
        Self { directive: directive.to_owned(), paused: false, page_size: None, progress: None }
    }
}

/// Which run is meant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Of {
    /// The directive.
    pub directive: String,
    /// The run.
    pub run: RunId,
}

/// The answer of `begin`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Begun {
    /// How the workflow goes about it.
    pub plan: Plan,
    /// Where the run stands.
    pub stand: Stand,
}

/// How the workflow goes about a run: what it decides by, besides signals, is all in here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Whose data it is.
    pub tenant: String,
    /// Of which project.
    pub project: String,
    /// Whether the cluster knows our search attributes.
    #[serde(default)]
    pub searchable: bool,
    /// How often a run says that it lives.
    pub heartbeat_ms: u64,
    /// Records of a page.
    pub page_size: u32,
    /// Pages of an activity; none is to the end of the source.
    #[serde(default)]
    pub pages_per_activity: Option<u64>,
    /// The history after which it continues as new, besides when the cluster suggests it.
    #[serde(default)]
    pub history_events_max: Option<u32>,
    /// The activity that gives pages, if the source is one.
    #[serde(default)]
    pub fetch: Option<Fetch>,
}

/// An activity elsewhere that gives pages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fetch {
    /// Its name.
    pub activity: String,
    /// Where it is served.
    pub task_queue: String,
    /// Given to it as it stands.
    pub args: serde_json::Value,
    /// How its failures are retried.
    pub retry: Retry,
}

/// How failures of a foreign activity are retried: what the directive says about transient ones.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Retry {
    /// After the first.
    pub first_ms: u64,
    /// Each time longer by this.
    pub factor: f64,
    /// At most.
    pub cap_ms: u64,
    /// Tries at most; 0 is without end.
    pub attempts_max: u32,
}

/// What a foreign activity is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ask {
    /// The directive.
    pub directive: String,
    /// Whose data it is.
    pub tenant: String,
    /// Of which project.
    pub project: String,
    /// As the directive has them.
    pub args: serde_json::Value,
    /// Where the page begins; null is the beginning of the source.
    pub pointer: Pointer,
    /// About so many records.
    pub page_size: u32,
}

/// What a foreign activity answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Fetched {
    /// The records in the source's order.
    pub records: Vec<Json>,
    /// Where to go on after this page.
    #[serde(default)]
    pub next: Option<Pointer>,
    /// Whether there is nothing after it.
    #[serde(default)]
    pub is_last: bool,
}

impl Fetched {
    /// What its records take, about.
    pub fn bytes(&self) -> usize {
        self.records.iter().map(|record| record.get().len() + 1).sum()
    }
}

/// A page that was fetched by somebody else.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Given {
    /// Where it begins.
    pub from: Pointer,
    /// The page.
    pub page: Fetched,
}

/// What `pages` is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stretch {
    /// The directive.
    pub directive: String,
    /// The run.
    pub run: RunId,
    /// Pages at most; none is to the end of the source.
    #[serde(default)]
    pub pages_max: Option<u64>,
    /// Records of a page, in the place of what the directive says.
    #[serde(default)]
    pub page_size: Option<u32>,
    /// The page, if the source is an activity.
    #[serde(default)]
    pub page: Option<Given>,
}

/// What `end` is to record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Close {
    /// The directive.
    pub directive: String,
    /// The run.
    pub run: RunId,
    /// How it ended.
    pub outcome: Outcome,
    /// Why.
    #[serde(default)]
    pub error: Option<String>,
}

/// Where a run stands after an activity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stand {
    /// It goes on.
    More(Progress),
    /// It has ended.
    Ended(Summary),
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The run.
    pub run: RunId,
    /// How.
    pub outcome: Outcome,
    /// Pages accounted for.
    pub pages: u64,
    /// What became of its items.
    pub counts: Counts,
    /// The cursor it left.
    pub cursor: Option<Cursor>,
    /// Why it failed.
    #[serde(default)]
    pub error: Option<String>,
}

impl Summary {
    /// Of a run that has ended.
    pub fn of(run: &Run, outcome: Outcome) -> Self {
        Self {
            run: run.id.clone(),
            outcome,
            pages: run.pages,
            counts: run.counts,
            cursor: run.cursor.clone(),
            error: run.error.clone(),
        }
    }
}

/// What a failure says besides its message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Details {
    /// The stable code.
    pub code: String,
    /// How it is treated.
    pub class: String,
}

/// A whole number of milliseconds.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
