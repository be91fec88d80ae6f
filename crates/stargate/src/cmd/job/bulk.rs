//! Many jobs at once, by what they are: counted and shown first, then done in pieces.
//!
//! Beside the store a page of jobs is one transaction. Through a node the node does it, as its API does for the page.

use indicatif::{ProgressBar, ProgressStyle};
use reqwest::Method;
use stargate_queue::bulk::BULK_MAX;
use stargate_queue::store::{JobFilter, PAGE_MAX, Store};
use stargate_queue::{Job, JobId, SharedStore, State};

use super::list;
use super::select::Selection;
use crate::auditing::Desk;
use crate::consent::Consent;
use crate::failure::{Exit, Failure, Result};
use crate::node::Node;
use crate::output::{self, grouped};
use crate::remote;
use crate::run::App;
use crate::view::JobView;

/// How far jobs are counted before they are touched.
const COUNTED_MAX: u64 = 100_000;
/// Jobs that are shown.
const SAMPLE: u32 = 5;
/// Jobs that a node is asked to change with one request.
const REQUEST_MAX: u32 = 10_000;

const _: () = assert!(PAGE_MAX as usize <= BULK_MAX, "a page is what one transaction takes");

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Retry,
    Cancel,
}

impl Action {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Cancel => "cancel",
        }
    }

    /// The states in which it can be done.
    fn states(self) -> &'static [State] {
        match self {
            Self::Retry => &[State::Failed],
            Self::Cancel => &[State::Queued, State::Processing],
        }
    }

    /// Only jobs with which it can be done. States that exclude that are a mistake, not an empty answer.
    fn narrowed(self, mut filter: JobFilter) -> Result<JobFilter> {
        let asked = std::mem::take(&mut filter.states);
        let fits = |state: &&State| asked.is_empty() || asked.contains(state);
        filter.states = self.states().iter().filter(fits).copied().collect();
        if filter.states.is_empty() {
            let allowed: Vec<&str> = self.states().iter().map(|state| state.as_str()).collect();
            let message = format!("only {} jobs can be {}", allowed.join(" and "), self.done());
            return Err(Failure::new(Exit::Usage, "USAGE", message).help("leave --state out"));
        }
        Ok(filter)
    }

    fn done(self) -> &'static str {
        match self {
            Self::Retry => "retried",
            Self::Cancel => "cancelled",
        }
    }
}

/// What matches, before anything is changed.
struct Preview {
    matched: u64,
    /// Whether it was not counted to the end.
    more: bool,
    sample: Vec<Job>,
}

impl Preview {
    fn count(&self) -> String {
        let (about, jobs) =
            (if self.more { "over " } else { "" }, if self.matched == 1 { "job" } else { "jobs" });
        format!("{about}{} {jobs}", grouped(self.matched))
    }
}

/// Counts, shows, asks, does and tells.
pub(crate) async fn run(app: &App, action: Action, selection: &Selection, consent: Consent) -> Result<()> {
    let desk = Desk::open(app).await?;
    let filter = action.narrowed(selection.filter(desk.jobs.as_ref()).await?)?;
    let preview = match &app.remote {
        Some(node) => through(node, action, &filter, true).await?.preview,
        None => preview(desk.jobs.as_ref(), &filter).await?,
    };
    show(app, action, &preview, &desk.jobs).await?;
    let Some(newest) = preview.sample.first().map(|job| job.id) else {
        tell(app, action, &preview, None);
        return Ok(());
    };
    if consent.dry_run {
        tell(app, action, &preview, None);
        return Ok(());
    }
    consent.ask(app.out, &format!("{} {}", action.as_str(), preview.count()))?;
    let changed = match &app.remote {
        Some(node) => ask_node(node, action, &filter).await?,
        None => {
            let detail = serde_json::json!({ "filter": filter });
            // What comes to match only now was not shown, and is left alone.
            let filter = JobFilter { before: Some(JobId(newest.0.saturating_add(1))), ..filter };
            let work = carry_out(&desk.jobs, action, filter, preview.matched);
            desk.act(&format!("jobs.{}", action.as_str()), preview.count(), detail, work).await?
        }
    };
    tell(app, action, &preview, Some(changed));
    Ok(())
}

async fn preview(store: &dyn Store, filter: &JobFilter) -> Result<Preview> {
    let sample = store.jobs_found(JobFilter { limit: SAMPLE, ..filter.clone() }).await?;
    if !filter.scans() {
        let matched = store.jobs_count(filter.clone(), COUNTED_MAX).await?.count;
        return Ok(Preview { matched, more: matched >= COUNTED_MAX, sample: sample.jobs });
    }
    // A count ends where a look does, so the looks are counted.
    let (mut matched, mut before, mut jobs) = (0, None, sample.jobs);
    loop {
        let found = store.jobs_found(JobFilter { limit: PAGE_MAX, before, ..filter.clone() }).await?;
        matched += found.jobs.len() as u64;
        let missing = (SAMPLE as usize).saturating_sub(jobs.len());
        let known: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
        jobs.extend(found.jobs.into_iter().filter(|job| !known.contains(&job.id)).take(missing));
        before = found.next_before;
        if before.is_none() || matched >= COUNTED_MAX {
            return Ok(Preview { matched, more: before.is_some(), sample: jobs });
        }
    }
}

/// Goes through what matches, newest first. What is retried or cancelled leaves the pages that are still to come as they
/// are.
async fn carry_out(
    store: &SharedStore,
    action: Action,
    mut filter: JobFilter,
    matched: u64,
) -> stargate_queue::Result<u64> {
    let bar = bar(matched);
    filter.limit = PAGE_MAX;
    let mut changed = 0;
    loop {
        let found = store.jobs_found(filter.clone()).await?;
        let ids: Vec<JobId> = found.jobs.iter().map(|job| job.id).collect();
        let looked_at = ids.len() as u64;
        changed += match action {
            Action::Retry => store.retry_many(ids).await?.len(),
            Action::Cancel => store.cancel_many(ids).await?.len(),
        } as u64;
        bar.inc(looked_at);
        filter.before = found.next_before;
        if filter.before.is_none() {
            bar.finish_and_clear();
            return Ok(changed);
        }
    }
}

fn bar(length: u64) -> ProgressBar {
    // What is done with one page needs none.
    if length <= u64::from(PAGE_MAX) {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:32} {human_pos} of {human_len} jobs");
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// What a node answered.
struct Answered {
    preview: Preview,
    changed: u64,
}

/// Has a node look, or look and change.
async fn through(node: &Node, action: Action, filter: &JobFilter, dry_run: bool) -> Result<Answered> {
    let body = serde_json::json!({
        "action": action.as_str(),
        "filter": remote::bulk_filter(filter),
        "limit": REQUEST_MAX,
        "dry_run": dry_run,
    });
    let done: remote::BulkDone = node.change(Method::POST, &["jobs", "bulk"], Some(&body)).await?;
    let sample = done.sample.into_iter().map(Job::from).collect();
    Ok(Answered {
        preview: Preview { matched: done.matched, more: done.more, sample },
        changed: done.changed,
    })
}

/// Has a node change all that matches, in as many requests as it takes.
async fn ask_node(node: &Node, action: Action, filter: &JobFilter) -> Result<u64> {
    let mut changed = 0;
    // Jobs that run go on matching after they were asked to stop: one request reaches all of them.
    for state in &filter.states {
        let filter = JobFilter { states: vec![*state], ..filter.clone() };
        loop {
            let answered = through(node, action, &filter, false).await?;
            changed += answered.changed;
            if *state == State::Processing || !answered.preview.more || answered.changed == 0 {
                break;
            }
        }
    }
    Ok(changed)
}

async fn show(app: &App, action: Action, preview: &Preview, store: &SharedStore) -> Result<()> {
    if app.out.json {
        return Ok(());
    }
    let empty = format!("no jobs match that could be {}", action.done());
    let shown = &preview.sample[..preview.sample.len().min(SAMPLE as usize)];
    app.out.table(&list::table(shown, store.now().await?), &empty);
    let rest = preview.matched.saturating_sub(shown.len() as u64);
    if rest > 0 {
        app.out.note(output::dim(format!(
            "… and {} more{}",
            grouped(rest),
            if preview.more { ", at least" } else { "" }
        )));
    }
    Ok(())
}

/// What was done, or would be.
fn tell(app: &App, action: Action, preview: &Preview, changed: Option<u64>) {
    if app.out.json {
        app.out.json(&serde_json::json!({
            "action": action.as_str(),
            "matched": preview.matched,
            "more": preview.more,
            "changed": changed.unwrap_or_default(),
            "dry_run": changed.is_none(),
            "sample": preview.sample.iter().map(JobView::from).collect::<Vec<_>>(),
        }));
        return;
    }
    match changed {
        None if preview.matched == 0 => {}
        None => app.out.line(format!("would {} {}; nothing was changed", action.as_str(), preview.count())),
        Some(changed) => {
            let jobs = if changed == 1 { "job" } else { "jobs" };
            app.out.line(format!("{} {} {jobs}", action.done(), grouped(changed)));
            if changed < preview.matched {
                app.out.note(output::dim("the others had changed meanwhile"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_states_in_which_it_can_be_done_are_looked_for() {
        let narrowed = |action: Action, states: &[State]| {
            action.narrowed(JobFilter { states: states.to_vec(), ..JobFilter::default() }).map(|f| f.states)
        };
        assert_eq!(narrowed(Action::Retry, &[]).unwrap(), [State::Failed]);
        assert_eq!(narrowed(Action::Cancel, &[]).unwrap(), [State::Queued, State::Processing]);
        assert_eq!(narrowed(Action::Cancel, &[State::Processing]).unwrap(), [State::Processing]);
        let refused = narrowed(Action::Retry, &[State::Done]).unwrap_err();
        assert_eq!(refused.message, "only failed jobs can be retried");
    }
}
