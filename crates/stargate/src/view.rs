//! Jobs and events as JSON and as text.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use stargate_queue::event::{self, Event};
use stargate_queue::{Job, JobError, JobId, State};

use crate::config::size;

/// What handlers call the event that their source can be read.
const SOURCE_READY: &str = "source:ready";
/// What handlers call the event that their artifact has been published.
const UPLOADED: &str = "uploaded";

/// A job with the stable fields of the documentation.
#[derive(Debug, Serialize)]
pub(crate) struct JobView<'a> {
    id: JobId,
    kind: &'a str,
    queue: &'a str,
    state: State,
    priority: i16,
    attempt_count: u16,
    max_attempts: u16,
    crash_count: u16,
    progress: u8,
    payload: &'a RawValue,
    result: Option<&'a RawValue>,
    error: Option<&'a JobError>,
    worker: Option<&'a str>,
    run_at: Timestamp,
    created_at: Timestamp,
    started_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
    lease_expires_at: Option<Timestamp>,
    unique_key: Option<&'a str>,
    limit_key: Option<&'a str>,
    trace_id: Option<&'a str>,
}

impl<'a> From<&'a Job> for JobView<'a> {
    fn from(job: &'a Job) -> Self {
        Self {
            id: job.id,
            kind: &job.kind,
            queue: &job.queue,
            state: job.state,
            priority: job.priority,
            attempt_count: job.attempt_count,
            max_attempts: job.max_attempts,
            crash_count: job.crash_count,
            progress: job.percent(),
            payload: &job.payload,
            result: job.result.as_deref(),
            error: job.error.as_ref(),
            worker: job.worker.as_deref(),
            run_at: job.run_at,
            created_at: job.created_at,
            started_at: job.started_at,
            finished_at: job.finished_at,
            lease_expires_at: job.lease_expires_at,
            unique_key: job.unique_key.as_deref(),
            limit_key: job.limit_key.as_deref(),
            trace_id: job.trace_id.as_deref(),
        }
    }
}

/// An event with the job it belongs to.
#[derive(Debug, Serialize)]
pub(crate) struct EventLine<'a> {
    pub(crate) job: JobId,
    #[serde(flatten)]
    pub(crate) event: &'a Event,
}

/// What an event says beyond its name: `40 %`, `attempt 2 on web-1`, `EXEC_FAILED: …; again in 5 s`.
pub(crate) fn event_in_words(event: &Event) -> String {
    let Ok(serde_json::Value::Object(data)) = serde_json::from_str(event.data.get()) else {
        return event.data.get().to_owned();
    };
    let word = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let field = |name: &str| data.get(name).filter(|value| !value.is_null()).map(word);
    let number = |name: &str| data.get(name).and_then(serde_json::Value::as_u64);
    let known = match event.event.as_str() {
        event::CREATED => field("queue").map(|queue| format!("in queue {queue}")),
        event::PROCESSING => field("attempt").map(|attempt| match field("worker") {
            Some(worker) => format!("attempt {attempt} on {worker}"),
            None => format!("attempt {attempt}"),
        }),
        event::PROGRESS => field("pct").map(|percent| format!("{percent} %")),
        event::FAILED => {
            field("code").zip(field("message")).map(|(code, message)| format!("{code}: {message}"))
        }
        event::REQUEUED_RETRY => field("code").zip(field("message")).map(|(code, message)| {
            let delay = data.get("delay_ms").and_then(serde_json::Value::as_u64).unwrap_or_default();
            let delay = crate::output::short(std::time::Duration::from_millis(delay));
            format!("{code}: {message}; again in {delay}")
        }),
        SOURCE_READY => field("durationSec").map(|seconds| match number("bytes") {
            Some(bytes) => format!("{seconds} s long, {}", size::words(bytes)),
            None => format!("{seconds} s long"),
        }),
        UPLOADED => field("key").map(|key| match (number("size"), data.get("adopted")) {
            (_, Some(serde_json::Value::Bool(true))) => format!("{key}, already there and whole"),
            (Some(bytes), _) => format!("{key}, {}", size::words(bytes)),
            (None, _) => key,
        }),
        _ => None,
    };
    known.unwrap_or_else(|| {
        let words = data.iter().filter(|(_, value)| !value.is_null());
        words.map(|(name, value)| format!("{name} {}", word(value))).collect::<Vec<_>>().join(", ")
    })
}

/// Cuts a text to a number of characters, in one line.
pub(crate) fn cut(text: &str, length: usize) -> String {
    let text = text.replace(['\n', '\r', '\t'], " ");
    match text.char_indices().nth(length) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// The time of day in the local zone, for lines that appear as things happen.
pub(crate) fn clock_time(at: Timestamp) -> String {
    at.to_zoned(jiff::tz::TimeZone::system()).strftime("%H:%M:%S%.3f").to_string()
}
