//! Whether the demo's jobs ended as they should.

use std::time::Duration;

use comfy_table::{Cell, Color};
use serde::Serialize;
use stargate_artifact::{Found, Key};
use stargate_base::{Tasks, chain};
use stargate_jobs::clip;
use stargate_queue::event;
use stargate_queue::store::Store;
use stargate_queue::{Job, JobId, State};

use super::Cast;
use crate::assemble;
use crate::config::Settings;
use crate::config::size::words;
use crate::failure::{Failure, Result};
use crate::output::{self, Output};
use crate::view::cut;

/// What happens to a clip, each event once.
const CLIP_TIMELINE: [&str; 6] = ["created", "processing", "source:ready", "progress", "uploaded", "done"];

/// What one part of the demo showed.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) shows: &'static str,
    pub(super) jobs: Vec<JobId>,
    pub(super) ok: bool,
    pub(super) found: String,
}

/// Compares what happened with what should have.
pub(super) async fn outcomes(
    store: &dyn Store,
    cast: &Cast,
    jobs: &[Job],
    ticks: &[Job],
    calls: u64,
) -> Result<Vec<Outcome>> {
    let job = |id: JobId| jobs.iter().find(|job| job.id == id);
    let state = |id: JobId| job(id).map_or(State::Queued, |job| job.state);
    let result = |id: JobId| {
        job(id).and_then(|job| job.result.as_ref()).map_or("no result", |json| json.get()).to_owned()
    };
    let mut outcomes = Vec::new();
    let mut add = |shows: &'static str, jobs: Vec<JobId>, ok: bool, found: String| {
        outcomes.push(Outcome { shows, jobs, ok, found });
    };

    let events = store.events(cast.thumbnail, 0, 100).await?;
    let reports = events.iter().filter(|event| event.event == event::PROGRESS).count();
    let ok = state(cast.thumbnail) == State::Done
        && reports >= 3
        && result(cast.thumbnail).contains("cat-200.png");
    let found = format!("{}, {reports} progress reports, {}", state(cast.thumbnail), result(cast.thumbnail));
    add("a program with progress and result", vec![cast.thumbnail], ok, found);

    let ok = state(cast.notify) == State::Done && calls >= 2;
    let found = format!("{}, {}", state(cast.notify), result(cast.notify));
    add("a call to a server", vec![cast.notify], ok, found);

    let late = job(cast.delayed).and_then(|job| Some(seconds(job.run_at, job.started_at?)));
    let ok = state(cast.delayed) == State::Done && late.is_some_and(|late| (-0.01..5.0).contains(&late));
    let found = format!(
        "{}, started {:.0} ms after its due time",
        state(cast.delayed),
        late.unwrap_or(f64::NAN) * 1e3
    );
    add("a job that is due later", vec![cast.delayed], ok, found);

    let [parent, child] = cast.chain;
    let order = job(parent)
        .zip(job(child))
        .and_then(|(parent, child)| Some(child.started_at? >= parent.finished_at?));
    let ok = state(child) == State::Done && order == Some(true);
    add(
        "a chain: one runs after the other",
        vec![parent, child],
        ok,
        format!("{} then {}", state(parent), state(child)),
    );

    let attempts = job(cast.flaky).map_or(0, |job| job.attempt_count);
    let ok = state(cast.flaky) == State::Done && attempts == 3;
    add(
        "two failures, then success",
        vec![cast.flaky],
        ok,
        format!("{} after {attempts} attempts", state(cast.flaky)),
    );

    let error = job(cast.poison).and_then(|job| job.error.as_ref());
    let ok =
        state(cast.poison) == State::Failed && job(cast.poison).is_some_and(|job| job.attempt_count == 1);
    let found =
        error.map_or_else(|| "no error".to_owned(), |error| format!("{}: {}", error.code, error.message));
    add("poison: a dead letter at once", vec![cast.poison], ok, format!("{}, {found}", state(cast.poison)));

    let spread = spread(cast.tenants.iter().filter_map(|id| job(*id)));
    let done = cast.tenants.iter().all(|id| state(*id) == State::Done);
    // Two at once, then one each half second: the fourth starts a second after the first.
    let ok = done && spread >= Duration::from_millis(900);
    let found = format!("{} of each tenant, started over {}", cast.tenants.len() / 2, output::short(spread));
    add("two tenants held to two starts a second", cast.tenants.clone(), ok, found);

    let mut ids: Vec<JobId> = ticks.iter().map(|tick| tick.id).collect();
    ids.sort_unstable();
    add("a schedule", ids, !ticks.is_empty(), format!("fired, {} so far", ticks.len()));
    Ok(outcomes)
}

/// The clip's file is whole and its timeline the documented one.
pub(super) async fn clip(store: &dyn Store, settings: &Settings, jobs: [JobId; 2]) -> Result<Outcome> {
    let [_, id] = jobs;
    let state = store.job(id).await?.map_or(State::Queued, |job| job.state);
    let key = Key::result(id, clip::ARTIFACT).map_err(|error| Failure::input(chain(&error)))?;
    let (whole, file) = match assemble::artifacts(settings, &Tasks::new())?.find(&key).await {
        Ok(Found::Valid(made)) => (true, format!("{}, SHA-256 {}", words(made.size), cut(&made.sha256, 8))),
        Ok(Found::Absent) => (false, "no file".to_owned()),
        Ok(Found::Damaged(problem)) => (false, problem),
        Err(error) => (false, chain(&error)),
    };
    let events = store.events(id, 0, 1000).await?;
    let mut names: Vec<String> = events.into_iter().map(|event| event.event).collect();
    names.dedup();
    let ordered = names == CLIP_TIMELINE;
    let timeline = if ordered { "events in order".to_owned() } else { names.join(", ") };
    let ok = state == State::Done && whole && ordered;
    let found = format!("{state}, {file}, {timeline}");
    Ok(Outcome { shows: "a clip cut out of a video", jobs: jobs.to_vec(), ok, found })
}

fn seconds(from: jiff::Timestamp, to: jiff::Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64()
}

/// Time between the first and the last start.
fn spread<'a>(jobs: impl Iterator<Item = &'a Job>) -> Duration {
    let starts: Vec<jiff::Timestamp> = jobs.filter_map(|job| job.started_at).collect();
    match (starts.iter().min(), starts.iter().max()) {
        (Some(first), Some(last)) => Duration::from_secs_f64(seconds(*first, *last).max(0.0)),
        _ => Duration::ZERO,
    }
}

/// Shows the outcomes.
pub(super) fn print(outcomes: &[Outcome], out: Output) {
    if out.json {
        out.json(outcomes);
        return;
    }
    let mut table = output::table(&["", "what it shows", "jobs", "outcome"]);
    for outcome in outcomes {
        let (word, colour) = if outcome.ok { ("ok", Color::Green) } else { ("NO", Color::Red) };
        let jobs = match outcome.jobs.as_slice() {
            [first, .., last] => format!("{first}-{last}"),
            [one] => one.to_string(),
            [] => "-".to_owned(),
        };
        table.add_row(vec![
            Cell::new(word).fg(colour),
            Cell::new(outcome.shows),
            Cell::new(jobs),
            Cell::new(&outcome.found),
        ]);
    }
    out.line("");
    out.table(&table, "nothing happened");
}
