//! What every topic uses.

pub(super) use std::collections::{HashMap, HashSet};
pub(super) use std::time::Duration;

pub(super) use serde_json::value::RawValue;
pub(super) use serde_json::{Value, json};
pub(super) use stargate_base::ErrorClass;
pub(super) use stargate_queue::job::PAYLOAD_BYTES_MAX;
pub(super) use stargate_queue::limits::Limit;
pub(super) use stargate_queue::schedule::Schedule;
pub(super) use stargate_queue::store::{
    Beat, Cancelled, ClaimedJob, Counted, Enqueued, JobFilter, Note, Once, Outcome, PAGE_MAX, PauseTarget,
    PurgeReport, PurgeRequest, QueueCounts, Recovered, SCAN_MAX, Settlement, Verdict, WakeMethod, WorkerRow,
    WorkerSpec,
};
pub(super) use stargate_queue::{
    Due, Fence, Job, JobError, JobId, Json, KindSpec, LeaseToken, NewJob, Stage, State, WorkerId,
};

pub(super) use crate::eventually;
pub(super) use crate::fixture::{
    Fixture, LEASE, OTHER, RECOVERY_SLACK, WORK, claim_request, every_outcome, failed, ids, job, keyed, race,
    retry_in, transient, worker_spec,
};

/// JSON as a value, to compare what two stores may write differently.
pub(super) fn value(json: &Json) -> Value {
    serde_json::from_str(json.get()).unwrap_or_else(|error| panic!("{:?} is not JSON: {error}", json.get()))
}

/// A value as the store takes it.
pub(super) fn raw(value: &Value) -> Json {
    serde_json::value::to_raw_value(value).expect("a value that serialises")
}

/// One of each kind of note.
pub(super) fn every_note(fence: Fence) -> Vec<Note> {
    let event = || Some(("forged".to_owned(), raw(&json!({ "forged": true }))));
    vec![
        Note { fence, progress: Some(99), event: None },
        Note { fence, progress: None, event: event() },
        Note { fence, progress: Some(99), event: event() },
    ]
}
