//! `stargate job retry` and `cancel`: named jobs one by one, or all that match.

use clap::Args;
use stargate_queue::store::Cancelled;
use stargate_queue::{Error, JobId, State};

use super::bulk::{self, Action};
use super::select::Selection;
use crate::argument;
use crate::auditing::Desk;
use crate::consent::Consent;
use crate::failure::{Exit, Failure, Result};
use crate::output::Output;
use crate::payload;
use crate::run::App;

/// `job retry`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stargate job retry 41 42
  stargate job retry 41 --payload @corrected.json
  stargate job retry --kind mail --since 1h                   shows what matches, then asks
  stargate job retry --code HTTP_UNAVAILABLE --dry-run
  stargate job retry --queue reports --search ann --yes

A job gets as many further attempts as it had been given, and keeps its history. With
--payload the timeline keeps what the payload was.")]
pub(crate) struct Retry {
    /// Ids of jobs
    #[arg(value_name = "JOB", value_parser = argument::job_id)]
    #[arg(required_unless_present = "Selection", conflicts_with = "Selection")]
    jobs: Vec<JobId>,
    /// Run the one job with another payload: JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON|@FILE|-", conflicts_with = "Selection")]
    payload: Option<String>,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    consent: Consent,
}

/// `job cancel`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stargate job cancel 41 42
  stargate job cancel --queue imports --state queued          shows what matches, then asks
  stargate job cancel --kind thumbnail --since 10m --yes

Jobs that wait end at once; the workers of running ones are asked to stop.")]
pub(crate) struct Cancel {
    /// Ids of jobs
    #[arg(value_name = "JOB", value_parser = argument::job_id)]
    #[arg(required_unless_present = "Selection", conflicts_with = "Selection")]
    jobs: Vec<JobId>,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    consent: Consent,
}

impl Retry {
    pub(super) async fn run(&self, app: &App) -> Result<()> {
        if self.jobs.is_empty() {
            return bulk::run(app, Action::Retry, &self.selection, self.consent).await;
        }
        refuse_dry_run(self.consent)?;
        let payload = match (&self.payload, self.jobs.len()) {
            (None, _) => None,
            (Some(text), 1) => Some(payload::read(Some(text))?),
            (Some(_), _) => {
                return Err(Failure::new(Exit::Usage, "USAGE", "--payload is for one job at a time"));
            }
        };
        let desk = &Desk::open(app).await?;
        let bytes = payload.as_ref().map(|payload| payload.get().len());
        let (action, detail) = match bytes {
            Some(_) => ("job.edit", serde_json::json!({ "payload_bytes": bytes })),
            None => ("job.retry", serde_json::Value::Null),
        };
        let retry = async |id: JobId| {
            let work = async {
                match payload.clone() {
                    Some(payload) => desk.jobs.retry_edited(id, payload).await,
                    None => desk.jobs.retry(id).await,
                }
            };
            desk.act(action, id, detail.clone(), work).await?;
            Ok((State::Queued, "will run again"))
        };
        each(&self.jobs, app.out, retry).await
    }
}

impl Cancel {
    pub(super) async fn run(&self, app: &App) -> Result<()> {
        if self.jobs.is_empty() {
            return bulk::run(app, Action::Cancel, &self.selection, self.consent).await;
        }
        refuse_dry_run(self.consent)?;
        let desk = &Desk::open(app).await?;
        let cancel = async |id: JobId| {
            let work = desk.jobs.cancel(id);
            Ok(match desk.act("job.cancel", id, serde_json::Value::Null, work).await? {
                Cancelled::Ended => (State::Cancelled, "is cancelled"),
                Cancelled::Requested => (State::Processing, "is running; its worker has been asked to stop"),
            })
        };
        each(&self.jobs, app.out, cancel).await
    }
}

/// Jobs that were named are not counted and shown before, so there is nothing that a dry run could do.
fn refuse_dry_run(consent: Consent) -> Result<()> {
    match consent.dry_run {
        true => {
            Err(Failure::new(Exit::Usage, "USAGE", "--dry-run is for jobs that match, not for named ones")
                .help("'stargate job show' tells about one job"))
        }
        false => Ok(()),
    }
}

/// Does it to every job. One that refuses does not keep the others from their turn; the first refusal decides about
/// the exit code.
async fn each(
    jobs: &[JobId],
    out: Output,
    action: impl AsyncFn(JobId) -> stargate_queue::Result<(State, &'static str)>,
) -> Result<()> {
    let (mut answers, mut refusals) = (Vec::new(), Vec::new());
    for id in jobs {
        match action(*id).await {
            Ok((state, words)) => {
                answers.push(serde_json::json!({ "id": id, "state": state }));
                if !out.json {
                    out.line(format!("job {id} {words}"));
                }
            }
            Err(error @ (Error::NotFound { .. } | Error::WrongState { .. })) => {
                refusals.push(Failure::from(error));
            }
            Err(error) => return Err(error.into()),
        }
    }
    if out.json && !answers.is_empty() {
        out.json(&answers);
    }
    let mut refusals = refusals.into_iter();
    let Some(mut refusal) = refusals.next() else { return Ok(()) };
    let exit = refusal.exit;
    // Programs get one error and see from the answers which jobs it was done to.
    for next in refusals.take_while(|_| !out.json) {
        out.failure(&refusal);
        refusal = next;
        refusal.exit = exit;
    }
    Err(refusal)
}
