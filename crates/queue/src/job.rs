//! What a job is: its identity, its states, the one list of legal transitions, and how a new one is described.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use stargate_base::ErrorClass;

use crate::error::{Error, Result};

/// JSON kept as the text it came as, so that large numbers and key order survive.
pub type Json = Box<RawValue>;

/// The largest payload or result that is accepted: 1 MiB.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// How deep a payload or result may be nested: Postgres gives up somewhere beyond, SQLite at 1000.
pub const NESTING_MAX: usize = 500;
/// The highest priority; 0 is the lowest and the default.
pub const PRIORITY_MAX: i16 = 9999;
/// How far in the past a due time may lie and still count as "now": clocks of producers differ.
pub const RUN_AT_PAST_MAX: Duration = Duration::from_secs(60);
/// How far ahead a due time may lie: ten years.
pub const RUN_AT_AHEAD_MAX: Duration = Duration::from_secs(10 * 366 * 86_400);
/// How many parents a job may wait for.
pub const PARENTS_MAX: usize = 1000;
/// The highest number of attempts a job may be given.
pub const ATTEMPTS_MAX: u16 = 1000;

/// Makes the type of a number that names a row. Whoever uses it depends on `serde`.
///
/// ```
/// stargate_queue::id! {
///     /// Names a parcel.
///     ParcelId
/// }
/// assert_eq!("7".parse(), Ok(ParcelId(7)));
/// ```
#[macro_export]
macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, ::serde::Serialize, ::serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub i64);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = std::num::ParseIntError;

            fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }
    };
}

id! {
    /// Names a job; rises with the order of enqueueing within one producer.
    JobId
}
id! {
    /// Names one incarnation of a worker process. A restarted process gets another.
    WorkerId
}
id! {
    /// Random number given out with every claim. Not a sequence: a database that lost its last moments in a
    /// crash could give the same number out twice.
    LeaseToken
}

/// Where a job is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Waits: for a worker, for its due time, or for its parents.
    Queued,
    /// A worker holds its lease.
    Processing,
    /// Ended well.
    Done,
    /// Ended badly; an operator may retry it.
    Failed,
    /// Ended by an operator.
    Cancelled,
}

impl State {
    /// Every state, in the order of life.
    pub const ALL: [Self; 5] = [Self::Queued, Self::Processing, Self::Done, Self::Failed, Self::Cancelled];

    /// The name in JSON, in SQL and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Processing => "processing",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Finished jobs have left the hot table.
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }

    /// The one list of legal transitions.
    pub fn may_become(self, next: Self) -> bool {
        use State::{Cancelled, Done, Failed, Processing, Queued};
        matches!(
            (self, next),
            (Queued, Processing)            // claimed
                | (Queued, Cancelled)       // by an operator, before it started
                | (Queued, Failed)          // a parent failed
                | (Processing, Queued)      // retry, stale lease, shutdown
                | (Processing, Done | Failed | Cancelled)
                | (Failed, Queued) // retried by an operator
        )
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for State {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name).ok_or_else(|| {
            Error::invalid(
                "state",
                format!("{name:?} is none of queued, processing, done, failed, cancelled"),
            )
        })
    }
}

/// What a row of the hot table waits for. To the outside the first three are all `queued`; apart they keep jobs
/// that cannot run out of the index that the claim reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(i16)]
pub enum Stage {
    /// Claimable now.
    Ready = 0,
    /// Due later.
    Delayed = 1,
    /// Waits for its parents.
    Blocked = 2,
    /// A worker holds its lease.
    Processing = 3,
}

impl Stage {
    /// The stage with this number in the database.
    pub fn from_number(number: i16) -> Option<Self> {
        [Self::Ready, Self::Delayed, Self::Blocked, Self::Processing]
            .into_iter()
            .find(|s| *s as i16 == number)
    }

    /// What the outside sees.
    pub fn state(self) -> State {
        match self {
            Self::Ready | Self::Delayed | Self::Blocked => State::Queued,
            Self::Processing => State::Processing,
        }
    }
}

/// Why a job failed, as stored and shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobError {
    /// Stable code with a page in `docs/errors/`, e.g. `RETRIES_EXHAUSTED`.
    pub code: String,
    /// Which of the four classes.
    pub class: ErrorClass,
    /// One line for people.
    pub message: String,
    /// More of it: the last 64 KiB of a program's stderr, a panic's text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl JobError {
    /// An error without detail.
    pub fn new(code: impl Into<String>, class: ErrorClass, message: impl Into<String>) -> Self {
        Self { code: code.into(), class, message: message.into(), detail: None }
    }

    /// The JSON that stores keep. Texts of programs may hold U+0000, which Postgres can keep but not look into: it is
    /// replaced. In the texts and not in the JSON, where an escaped backslash before `u0000` looks the same.
    pub fn to_kept(&self) -> String {
        let without = |text: &str| text.replace('\0', "\u{fffd}");
        let kept = Self {
            code: without(&self.code),
            class: self.class,
            message: without(&self.message),
            detail: self.detail.as_deref().map(without),
        };
        serde_json::to_string(&kept).expect("text and an enum always serialise")
    }
}

/// When a new job is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Due {
    /// At once.
    #[default]
    Now,
    /// So long after the store accepted it, by the store's clock.
    In(Duration),
    /// At this instant.
    At(Timestamp),
}

/// A job to be enqueued.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// What is to be done; decides the handler and its profile.
    pub kind: String,
    /// Which queue it waits in.
    pub queue: String,
    /// The handler's input.
    pub payload: Json,
    /// Higher runs first; 0 to [`PRIORITY_MAX`].
    pub priority: i16,
    /// When it is due.
    pub due: Due,
    /// Executions allowed; the kind's profile decides when absent.
    pub max_attempts: Option<u16>,
    /// While an unfinished job with this key exists, enqueueing answers that job instead of making another.
    pub unique_key: Option<String>,
    /// Whose limits (concurrency, rate, fair share) it falls under: a tenant, a host, an account.
    pub limit_key: Option<String>,
    /// Runs only when all of these are done.
    pub after: Vec<JobId>,
    /// W3C trace context of the enqueuer, handed to the handler.
    pub trace_id: Option<String>,
}

impl NewJob {
    /// A job of this kind with this payload and everything else by default.
    pub fn new(kind: impl Into<String>, payload: Json) -> Self {
        Self {
            kind: kind.into(),
            queue: "default".to_owned(),
            payload,
            priority: 0,
            due: Due::Now,
            max_attempts: None,
            unique_key: None,
            limit_key: None,
            after: Vec::new(),
            trace_id: None,
        }
    }

    /// As [`NewJob::new`], from anything that serialises.
    pub fn of<T: Serialize>(kind: impl Into<String>, payload: &T) -> Result<Self> {
        let json = serde_json::value::to_raw_value(payload)
            .map_err(|e| Error::invalid("payload", format!("cannot be written as JSON: {e}")))?;
        Ok(Self::new(kind, json))
    }

    /// Checks everything that can be checked without the store; `now` is the store's time.
    pub fn check(&self, now: Timestamp) -> Result<()> {
        check_name("kind", &self.kind)?;
        check_name("queue", &self.queue)?;
        check_json_size("payload", self.payload.get())?;
        if !(0..=PRIORITY_MAX).contains(&self.priority) {
            let problem =
                format!("is {}; allowed are 0 (lowest) to {PRIORITY_MAX} (runs first)", self.priority);
            return Err(Error::invalid("priority", problem));
        }
        if let Some(max) = self.max_attempts
            && !(1..=ATTEMPTS_MAX).contains(&max)
        {
            return Err(Error::invalid("max_attempts", format!("is {max}; allowed are 1 to {ATTEMPTS_MAX}")));
        }
        if self.after.len() > PARENTS_MAX {
            let problem = format!("names {} jobs; at most {PARENTS_MAX} are allowed", self.after.len());
            return Err(Error::invalid("after", problem));
        }
        check_key("unique_key", self.unique_key.as_deref())?;
        check_key("limit_key", self.limit_key.as_deref())?;
        check_key("trace_id", self.trace_id.as_deref())?;
        check_due(self.due, now)
    }
}

/// Names of kinds, queues and schedules: 1 to 100 of letters, digits and `. _ : / -`.
pub fn check_name(field: &'static str, name: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._:/-".contains(c);
    if name.is_empty() || name.len() > 100 || !name.chars().all(fits) {
        let problem = format!("{name:?} is not a name: 1 to 100 letters, digits and . _ : / - are allowed");
        return Err(Error::invalid(field, problem));
    }
    Ok(())
}

/// Refuses a payload or result over the limit.
pub fn check_json_size(field: &'static str, json: &str) -> Result<()> {
    if json.len() > PAYLOAD_BYTES_MAX {
        return Err(Error::TooLarge { field, bytes: json.len(), bytes_max: PAYLOAD_BYTES_MAX });
    }
    // Postgres' jsonb cannot hold it, and both stores answer alike (INV-9).
    if json.contains("\\u0000") && holds_nul(json) {
        return Err(Error::invalid(field, "contains the character U+0000, which Postgres cannot store"));
    }
    // Every level takes two bytes at least, so most payloads need no look.
    if json.len() > 2 * NESTING_MAX && nesting(json) > NESTING_MAX {
        return Err(Error::invalid(field, format!("is nested more than {NESTING_MAX} levels deep")));
    }
    Ok(())
}

/// How deep a valid JSON text is nested.
fn nesting(json: &str) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Whether the text has an escaped NUL that is not itself behind an escaped backslash.
fn holds_nul(json: &str) -> bool {
    json.match_indices("\\u0000").any(|(at, _)| {
        let backslashes_before = json[..at].bytes().rev().take_while(|b| *b == b'\\').count();
        backslashes_before % 2 == 0
    })
}

fn check_key(field: &'static str, key: Option<&str>) -> Result<()> {
    match key {
        Some(key) if key.is_empty() || key.len() > 255 || key.contains('\0') => Err(Error::invalid(
            field,
            format!("{key:?} has {} bytes; allowed are 1 to 255 without NUL", key.len()),
        )),
        _ => Ok(()),
    }
}

fn check_due(due: Due, now: Timestamp) -> Result<()> {
    let ahead = match due {
        Due::Now => return Ok(()),
        Due::In(delay) => delay.as_secs_f64(),
        Due::At(at) => at.duration_since(now).as_secs_f64(),
    };
    if ahead < -RUN_AT_PAST_MAX.as_secs_f64() {
        let problem = format!("lies {:.0} s in the past; leave it out to run the job at once", -ahead);
        return Err(Error::invalid("run_at", problem));
    }
    if ahead > RUN_AT_AHEAD_MAX.as_secs_f64() {
        return Err(Error::invalid("run_at", "lies more than ten years ahead; is it in milliseconds?"));
    }
    Ok(())
}

/// What names one execution: every write about a running job carries it, and a write whose fence no longer
/// matches the row changes nothing (INV-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fence {
    /// The job.
    pub job: JobId,
    /// Which execution of it, counted from 1.
    pub attempt: u16,
    /// The lease given out with the claim.
    pub token: LeaseToken,
}

/// A job as read from the store.
#[derive(Debug, Clone)]
pub struct Job {
    /// Its name.
    pub id: JobId,
    /// What is to be done.
    pub kind: String,
    /// Where it waits.
    pub queue: String,
    /// Where it is in its life.
    pub state: State,
    /// What it waits for; absent when finished.
    pub stage: Option<Stage>,
    /// Higher runs first.
    pub priority: i16,
    /// Executions started so far.
    pub attempt_count: u16,
    /// Executions allowed.
    pub max_attempts: u16,
    /// Workers lost while running it.
    pub crash_count: u16,
    /// Last reported percentage.
    pub progress: u8,
    /// Input.
    pub payload: Json,
    /// Output, when done.
    pub result: Option<Json>,
    /// The last error, also while it waits for a retry.
    pub error: Option<JobError>,
    /// Name of the worker that runs it or ran it last.
    pub worker: Option<String>,
    /// When it is or was due.
    pub run_at: Timestamp,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When its last execution was claimed.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// When its lease ends unless the worker beats again.
    pub lease_expires_at: Option<Timestamp>,
    /// Deduplicates while unfinished.
    pub unique_key: Option<String>,
    /// Whose limits it falls under.
    pub limit_key: Option<String>,
    /// Trace context of the enqueuer.
    pub trace_id: Option<String>,
    /// An operator asked for its end; the worker has not answered yet.
    pub cancel_requested: bool,
}

impl Job {
    /// The percentage to show. A handler's last report is at most 99; 100 means done and recorded.
    pub fn percent(&self) -> u8 {
        if self.state == State::Done { 100 } else { self.progress }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> NewJob {
        NewJob::of("kind", &1).unwrap()
    }

    #[test]
    fn only_the_listed_transitions_are_legal() {
        let legal: Vec<String> = State::ALL
            .iter()
            .flat_map(|from| State::ALL.iter().map(move |to| (*from, *to)))
            .filter(|(from, to)| from.may_become(*to))
            .map(|(from, to)| format!("{from}>{to}"))
            .collect();
        let expected = "queued>processing queued>failed queued>cancelled processing>queued processing>done \
                        processing>failed processing>cancelled failed>queued";
        assert_eq!(legal.join(" "), expected);
    }

    #[test]
    fn due_times_far_in_the_past_or_absurdly_ahead_are_refused() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let at = |text: &str| NewJob { due: Due::At(text.parse().unwrap()), ..job() }.check(now);
        assert!(at("2025-12-31T23:59:30Z").is_ok(), "half a minute is clock skew");
        assert!(at("2025-12-31T23:58:30Z").unwrap_err().to_string().contains("in the past"));
        assert!(at("2035-12-31T00:00:00Z").is_ok());
        assert!(at("2036-12-31T00:00:00Z").unwrap_err().to_string().contains("ten years"));
    }

    #[test]
    fn a_payload_of_one_mebibyte_fits_and_one_byte_more_does_not() {
        let fits = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX - 2));
        assert!(check_json_size("payload", &fits).is_ok());
        assert!(matches!(check_json_size("payload", &format!("{fits} ")), Err(Error::TooLarge { .. })));
    }

    #[test]
    fn an_escaped_nul_is_found_and_an_escaped_backslash_before_u0000_is_not_one() {
        assert!(check_json_size("payload", r#""a\u0000b""#).is_err());
        assert!(check_json_size("payload", r#""a\\u0000b""#).is_ok());
        assert!(check_json_size("payload", r#""a\\\u0000b""#).is_err());
    }

    #[test]
    fn an_error_is_kept_without_nul() {
        let error = JobError::new("A", ErrorClass::Fatal, "a\0b \\u0000 \\\0");
        let kept: JobError = serde_json::from_str(&error.to_kept()).unwrap();
        assert_eq!(kept.message, "a\u{fffd}b \\u0000 \\\u{fffd}");
        let plain = JobError::new("A", ErrorClass::Fatal, "é \"q\"");
        assert_eq!(serde_json::from_str::<JobError>(&plain.to_kept()).unwrap(), plain);
    }

    #[test]
    fn nesting_is_counted_outside_strings_and_bounded() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(check_json_size("payload", &nested(NESTING_MAX)).is_ok());
        assert!(check_json_size("payload", &nested(NESTING_MAX + 1)).is_err());
        assert!(check_json_size("payload", &format!("[{}]", vec!["[]"; 1000].join(","))).is_ok());
        assert!(check_json_size("payload", &format!("\"\\\"{}\"", "[".repeat(1000))).is_ok());
    }

    #[test]
    fn names_keys_and_priorities_out_of_range_are_refused_by_field() {
        let now = Timestamp::UNIX_EPOCH;
        let field = |job: NewJob| job.check(now).unwrap_err().to_string();
        assert!(field(NewJob { kind: "no spaces".into(), ..job() }).contains("kind"));
        assert!(field(NewJob { queue: String::new(), ..job() }).contains("queue"));
        assert!(field(NewJob { priority: -1, ..job() }).contains("priority"));
        assert!(field(NewJob { max_attempts: Some(0), ..job() }).contains("max_attempts"));
        assert!(field(NewJob { unique_key: Some(String::new()), ..job() }).contains("unique_key"));
    }
}
