//! `stargate job list`: a page of jobs.

use clap::Args;
use comfy_table::{Cell, Table};
use jiff::Timestamp;
use stargate_queue::store::{JobFilter, PAGE_MAX, Store};
use stargate_queue::{Job, JobId, Stage, State};

use super::select::Selection;
use crate::argument;
use crate::failure::Result;
use crate::output::{self, Output};
use crate::view::{JobView, cut};

/// `job list`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stargate job list --state failed --since 1h
  stargate job list --kind mail --state queued,processing
  stargate job list --state failed --code HTTP_REJECTED
  stargate job list --search ann@example.org --until 2d
  stargate job list --limit 100 --before 4200      the page before job 4200

--search and --code look at jobs one by one, at most 20 000 at a time, and tell where to go on. With
--state failed, --code alone finds them in an index.")]
pub(crate) struct List {
    #[command(flatten)]
    selection: Selection,
    /// At most so many, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=i64::from(PAGE_MAX)))]
    limit: u32,
    /// Only jobs with a smaller id: the next page
    #[arg(long, value_name = "JOB", value_parser = argument::job_id)]
    before: Option<JobId>,
}

impl List {
    pub(super) async fn run(&self, store: &dyn Store, out: Output) -> Result<()> {
        let filter =
            JobFilter { before: self.before, limit: self.limit, ..self.selection.filter(store).await? };
        let found = store.jobs_found(filter).await?;
        if out.json {
            out.json(&found.jobs.iter().map(JobView::from).collect::<Vec<_>>());
        } else {
            let narrows = self.selection.narrows() || self.before.is_some();
            let empty = if narrows { "no jobs match" } else { "no jobs yet" };
            out.table(&table(&found.jobs, store.now().await?), empty);
        }
        match found.next_before {
            Some(next) if !found.scanned_all => out.note(output::dim(format!(
                "looked at the jobs from {next} on and not further: go on with --before {next}"
            ))),
            Some(next) => out.note(output::dim(format!("there may be more: add --before {next}"))),
            None => {}
        }
        Ok(())
    }
}

/// Jobs, one a line.
pub(super) fn table(jobs: &[Job], now: Timestamp) -> Table {
    let mut table = output::table(&["id", "kind", "queue", "state", "attempt", "created", ""]);
    for job in jobs {
        table.add_row(vec![
            Cell::new(job.id),
            Cell::new(&job.kind),
            Cell::new(&job.queue),
            output::state_cell(job.state),
            Cell::new(format!("{}/{}", job.attempt_count, job.max_attempts)),
            Cell::new(output::when(job.created_at, now)),
            Cell::new(remark(job, now)),
        ]);
    }
    table
}

/// What is worth knowing about a job in a listing.
fn remark(job: &Job, now: Timestamp) -> String {
    match (job.state, job.stage) {
        (State::Queued, Some(Stage::Delayed)) => match &job.error {
            Some(error) => {
                format!("retry {} after {}", output::when(job.run_at, now), cut(&error.message, 50))
            }
            None => format!("due {}", output::when(job.run_at, now)),
        },
        (State::Queued, Some(Stage::Blocked)) => "waits for other jobs".to_owned(),
        (State::Processing, _) if job.cancel_requested => "cancelling".to_owned(),
        (State::Processing, _) => format!("{} %", job.percent()),
        (State::Failed, _) => job
            .error
            .as_ref()
            .map_or_else(String::new, |error| cut(&format!("{}: {}", error.code, error.message), 70)),
        _ => String::new(),
    }
}
