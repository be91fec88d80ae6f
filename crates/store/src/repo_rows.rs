//! What both adapters share about repositories, pushes and tokens.

use stargate_access::{Grant, NewToken};
use stargate_base::Epoch;
use stargate_queue::{Error, NewJob, Result};
use stargate_repo::branch::{Applied, Verdict, decide, end};
use stargate_repo::handlers::process_job;
use stargate_repo::reconcile::is_fill;
use stargate_repo::store::PAGE_MAX;
use stargate_repo::webhook::HOOKS_MAX;
use stargate_repo::{NewPush, Occasion, PushEvent, PushEventId};

/// What a repository's row tells about its default branch.
#[derive(Debug)]
pub(crate) struct DefaultBranch {
    /// The repository.
    pub(crate) repo: i64,
    pub(crate) name: String,
    pub(crate) oid: Option<String>,
    /// The event it was taken from, and where that began.
    pub(crate) event: Option<i64>,
    pub(crate) old_oid: Option<String>,
}

/// Whether an event moves the default branch, and where to: none where it deletes it.
pub(crate) fn default_move<'e>(branch: &DefaultBranch, event: &'e PushEvent) -> Option<Option<&'e str>> {
    // What was recorded of a hole is no news of where the branch is.
    if event.update.ref_name != branch.name || is_fill(&event.request_id) {
        return None;
    }
    let applied = branch.event.map(|id| Applied { id: PushEventId(id), old: branch.old_oid.as_deref() });
    match decide(branch.oid.as_deref(), applied, event.id, &event.update) {
        Verdict::Moves => Some(end(&event.update.new_oid)),
        Verdict::Stays => None,
    }
}

/// A push, and a job like those it will make, checked before the store is bothered.
pub(crate) fn checked(push: &NewPush) -> Result<NewJob> {
    push.check()?;
    process_job(PushEventId(0), push.trace_id.as_deref())
}

/// An event that is not there.
pub(crate) fn no_event(id: PushEventId) -> Error {
    Error::NotFound { what: "push event", name: id.to_string() }
}

/// A repository that a hook is to be for is not there.
pub(crate) fn no_repo(name: &str) -> Error {
    Error::NotFound { what: "repository", name: name.to_owned() }
}

/// Refuses one hook too many; `others` are there beside it.
pub(crate) fn check_room(others: i64) -> Result<()> {
    if others < i64::from(HOOKS_MAX) {
        return Ok(());
    }
    Err(Error::invalid("webhook", format!("would be the {}th; at most {HOOKS_MAX} are allowed", others + 1)))
}

/// A page's size as statements take it.
pub(crate) fn page(limit: u32) -> i64 {
    i64::from(limit.clamp(1, PAGE_MAX))
}

/// An epoch as its column keeps it.
pub(crate) fn epoch_column(epoch: Option<Epoch>) -> Option<i64> {
    epoch.map(|epoch| i64::try_from(epoch.get()).unwrap_or(i64::MAX))
}

/// An epoch from its column.
pub(crate) fn epoch(column: Option<i64>) -> Option<Epoch> {
    column.map(|number| Epoch::new(number.unsigned_abs()))
}

/// Sizes are kept in signed columns.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// What a hook wants to hear of, as its column keeps it.
pub(crate) fn occasions_json(events: &[Occasion]) -> String {
    serde_json::to_string(events).expect("enums always serialise")
}

/// What a hook wants to hear of, from its column.
pub(crate) fn occasions(text: &str) -> serde_json::Result<Vec<Occasion>> {
    serde_json::from_str(text)
}

/// What a token allows, as its column keeps it.
pub(crate) fn grants_json(grants: &[Grant]) -> String {
    serde_json::to_string(grants).expect("texts always serialise")
}

/// What a token allows, from its column.
pub(crate) fn grants(text: &str) -> serde_json::Result<Vec<Grant>> {
    serde_json::from_str(text)
}

/// How long a token is good for, in microseconds.
pub(crate) fn life_micros(token: &NewToken) -> Option<i64> {
    token.life.map(|life| i64::try_from(life.as_micros()).unwrap_or(i64::MAX / 4))
}

/// An error of the store as those who ask for tokens see it.
pub(crate) fn token_error(error: Error) -> stargate_access::Error {
    stargate_access::Error::Store { class: error.class(), source: Box::new(error) }
}

/// A token with that id is there already.
pub(crate) fn token_taken() -> stargate_access::Error {
    stargate_access::Error::Invalid { field: "id", problem: "is taken; make another token".to_owned() }
}

/// What an action is to be, and with what it is to begin: one of them, or none.
pub(crate) fn action_pattern(wanted: Option<&str>) -> (Option<&str>, Option<&str>) {
    match wanted {
        Some(text) => match text.strip_suffix('*') {
            Some(prefix) => (None, Some(prefix)),
            None => (Some(text), None),
        },
        None => (None, None),
    }
}
