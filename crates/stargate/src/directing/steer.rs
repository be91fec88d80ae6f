//! What an operator does about directives, for the commands and the API alike: begins and ends runs, moves cursors, tries
//! records again.

use stargate_base::Tasks;
use stargate_directive::file::Directive;
use stargate_directive::kv::{Keys, Purpose};
use stargate_directive::quarantine::{QuarantineFilter, QuarantineId, Quarantined};
use stargate_directive::steps::{self, Retried};
use stargate_directive::store::PAGE_MAX;
use stargate_directive::{
    Cursor, Directives, End, Expected, Outcome, Pointer, Put, PutAnswer, Run, RunId, SharedDirectives,
};
use stargate_queue::store::Cancelled;
use stargate_queue::{Error, JobId, Store};

use super::Runner;
use crate::assemble;
use crate::cmd::directive::{failed, found};
use crate::config::Settings;
use crate::config::directives::Engine;
use crate::failure::{Exit, Failure, Result};
use crate::{payload, temporal};

/// Has a run begun, unless one goes on: its name, and whether it does.
pub(crate) async fn begin(
    settings: &Settings,
    jobs: &dyn Store,
    directive: &Directive,
) -> Result<(String, bool)> {
    match settings.directives.engine {
        Engine::Embedded => {
            jobs.kinds_register(assemble::specs(settings)?).await?;
            let accepted = jobs.enqueue(vec![super::job(directive)?]).await?;
            let accepted = accepted.first().copied();
            let accepted = accepted.ok_or_else(|| Failure::input("the store did not answer the job"))?;
            Ok((accepted.id.to_string(), accepted.existing))
        }
        Engine::Temporal => temporal::begin(settings, directive).await,
    }
}

/// Asks a run to end where its cursor is. One that nobody executes has ended then.
pub(crate) async fn ask_to_end(
    settings: &Settings,
    jobs: &dyn Store,
    store: &SharedDirectives,
    run: &Run,
) -> Result<()> {
    store.run_cancel(&run.id).await?;
    let is_executed = match run.engine == Engine::Temporal.as_str() {
        true => temporal::cancel(settings, &run.directive).await?,
        false => is_executed(jobs, run).await?,
    };
    if !is_executed {
        let end = End { outcome: Outcome::Cancelled, error: None };
        steps::end_abandoned(store, run, end).await?;
    }
    Ok(())
}

/// Asks the job of a run to end; false if nobody executes it now.
async fn is_executed(jobs: &dyn Store, run: &Run) -> Result<bool> {
    // What is no job is a command that tries quarantined records again, and may be gone.
    let Ok(job) = run.id.0.parse::<JobId>() else { return Ok(false) };
    match jobs.cancel(job).await {
        Ok(Cancelled::Requested) => Ok(true),
        Ok(Cancelled::Ended) | Err(Error::NotFound { .. } | Error::WrongState { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Where a directive is to go on, and why.
#[derive(Debug)]
pub(crate) struct Move {
    pub(crate) pointer: Pointer,
    pub(crate) spec_ref: String,
    pub(crate) expected_version: Option<u64>,
}

/// Moves a cursor by hand: the version it has now, and the cursor.
pub(crate) async fn move_cursor(
    store: &dyn Directives,
    keys: &Keys,
    name: &str,
    wanted: Move,
) -> Result<(u64, Cursor)> {
    if wanted.spec_ref.trim().is_empty() {
        return Err(
            Failure::input("--spec-ref is empty").help("name what asks for this: an issue, a decision")
        );
    }
    let entry = store.kv_get(&keys.cursor).await?;
    let found = entry.as_ref().map_or(0, |entry| entry.version);
    if let Some(expected) = wanted.expected_version.filter(|expected| *expected != found) {
        return Err(moved(&format!("the cursor has version {found}, not {expected}")));
    }
    let expected = entry.map_or(Expected::Absent, |entry| Expected::Version(entry.version));
    let cursor = Cursor {
        source_pointer: wanted.pointer,
        processed_count: 0,
        checksum: String::new(),
        batch_id: None,
        spec_ref: Some(wanted.spec_ref.clone()),
    };
    let put = Put {
        key: keys.cursor.clone(),
        value: Some(payload::of(&cursor)?),
        expected,
        request_id: format!("operator/{found}/{}", ulid::Ulid::generate()),
        writer: format!("operator:{name}"),
        purpose: Purpose::Cursor,
        spec_ref: Some(wanted.spec_ref),
        ttl: None,
    };
    forget_partial(store, keys).await?;
    match store.kv_put(put).await? {
        PutAnswer::Stored { version } => Ok((version, cursor)),
        PutAnswer::Conflict { .. } => Err(moved("the cursor was moved meanwhile")),
    }
}

/// What was noted beyond the old place means nothing at the new one.
async fn forget_partial(store: &dyn Directives, keys: &Keys) -> Result<()> {
    let Some(partial) = store.kv_get(&keys.partial).await? else { return Ok(()) };
    let put = Put {
        key: keys.partial.clone(),
        value: None,
        expected: Expected::Version(partial.version),
        request_id: format!("operator/{}/{}", partial.version, ulid::Ulid::generate()),
        writer: "operator".to_owned(),
        purpose: Purpose::Checkpoint,
        spec_ref: None,
        ttl: None,
    };
    store.kv_put(put).await?;
    Ok(())
}

fn moved(message: &str) -> Failure {
    Failure::new(Exit::Conflict, "CONFLICT", message)
        .help("look with 'stargate directive cursor show', then decide")
}

/// The quarantined record of a number.
pub(crate) async fn record(store: &dyn Directives, id: i64) -> Result<Quarantined> {
    let before = Some(QuarantineId(id.saturating_add(1)));
    let filter = QuarantineFilter { directive: None, resolved: true, before, limit: 1 };
    let found = store.quarantine(filter).await?.into_iter().find(|record| record.id.0 == id);
    found.ok_or_else(|| {
        Failure::new(Exit::NotFound, "NOT_FOUND", format!("no quarantined record {id}"))
            .help("'stargate directive quarantine list --all' shows what there is")
    })
}

/// How many records of a directive wait for somebody; counted up to a page.
pub(crate) async fn waiting(store: &dyn Directives, name: &str) -> Result<usize> {
    let directive = Some(name.to_owned());
    let filter = QuarantineFilter { directive, resolved: false, before: None, limit: PAGE_MAX };
    Ok(store.quarantine(filter).await?.len())
}

/// Tries records of a directive again: these, or all.
pub(crate) async fn retry_records(
    settings: &Settings,
    store: &SharedDirectives,
    tasks: &Tasks,
    name: &str,
    ids: &[i64],
) -> Result<Retried> {
    let runner = Runner::new(settings, store, tasks);
    let directive = found(runner.catalogue.find(name))?;
    let run = RunId(format!("quarantine-{}", ulid::Ulid::generate()));
    let assignment = found(runner.assignment(directive, run, Engine::Embedded, 1))?;
    for id in ids {
        record(store.as_ref(), *id).await?;
    }
    let only: Vec<QuarantineId> = ids.iter().copied().map(QuarantineId).collect();
    steps::retry_quarantined(assignment, &only).await.map_err(failed)
}

/// Marks a record as dealt with. One that was already stays so.
pub(crate) async fn resolve(store: &dyn Directives, id: i64) -> Result<()> {
    if !store.quarantine_resolve(QuarantineId(id)).await? {
        record(store, id).await?;
    }
    Ok(())
}
