//! `stargate job enqueue`: one job from the command line.

use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use stargate_base::trace::{self, Context, Kind, Span, Start};
use stargate_queue::store::{Enqueued, Once, Store};
use stargate_queue::{Due, Error, JobId, NewJob};

use crate::argument;
use crate::assemble;
use crate::config::interval;
use crate::failure::Result;
use crate::follow::{self, Audience};
use crate::payload;
use crate::run::App;
use crate::view::JobView;

/// `job enqueue`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stargate job enqueue thumbnail '{\"image\": \"cat.png\", \"size\": 200}'
  stargate job enqueue clip '{\"source\": \"talk.mp4\", \"start\": 12.5, \"end\": \"00:00:42\"}' --wait
  stargate job enqueue report @report.json --queue slow --priority 5
  echo '{\"to\": \"ann\"}' | stargate job enqueue mail - --delay 10m
  stargate job enqueue deploy --after 41 --after 42 --wait

Prints the id of the job, alone, on standard output.")]
pub(crate) struct Enqueue {
    /// What is to be done; a kind of stargate.toml or of a running worker
    kind: String,
    /// The payload: JSON, @FILE, or - for standard input [default: {}]
    #[arg(value_name = "JSON|@FILE|-")]
    payload: Option<String>,
    /// The queue it waits in
    #[arg(long, default_value = "default")]
    queue: String,
    /// 0 to 9999; higher runs first
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(i16).range(0..=9999))]
    priority: i16,
    /// Run it so long from now: 30s, 10m, 1h30m
    #[arg(long, value_name = "TIME", value_parser = interval::parse, conflicts_with = "run_at", allow_hyphen_values = true)]
    delay: Option<Duration>,
    /// Run it at this instant: 2026-12-24T18:00:00Z
    #[arg(long, value_name = "INSTANT", value_parser = argument::instant)]
    run_at: Option<Timestamp>,
    /// While an unfinished job has this key, answer that job instead of making another
    #[arg(long, value_name = "KEY")]
    unique_key: Option<String>,
    /// Executions allowed [default: the kind's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    max_attempts: Option<u16>,
    /// Whose limits it falls under: a tenant, a host
    #[arg(long, value_name = "KEY")]
    limit_key: Option<String>,
    /// Run it only when these jobs are done, repeatable
    #[arg(long, value_name = "JOB", value_delimiter = ',', value_parser = argument::job_id)]
    after: Vec<JobId>,
    /// Repeating the command with this key within 24 h answers the first job
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Follow the job; exit 0 when it is done, 1 when it failed
    #[arg(long)]
    wait: bool,
    /// With --wait: give up after so long and exit 10
    #[arg(long, value_name = "TIME", value_parser = interval::parse, requires = "wait")]
    timeout: Option<Duration>,
}

impl Enqueue {
    /// Enqueues, prints the id, follows if asked.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        let mut job = self.job()?;
        // Ends when this function does: following a job is not accepting it, but belongs to it.
        let _traced = trace_enqueue(&mut job);
        let store = app.jobs().await?;
        let accepted = match self.accept(store.as_ref(), &job).await {
            // A kind that this configuration describes need not wait for the first worker. What a node serves is its own
            // affair.
            Err(Error::UnknownKind { kind, mut known }) if app.remote.is_none() => {
                let ours = assemble::specs(&app.settings)?;
                if !ours.iter().any(|spec| spec.name == kind) {
                    known.extend(ours.into_iter().map(|spec| spec.name));
                    known.sort();
                    known.dedup();
                    return Err(Error::UnknownKind { kind, known }.into());
                }
                store.kinds_register(ours).await?;
                self.accept(store.as_ref(), &job).await?
            }
            other => other?,
        };
        match (app.out.json, self.wait) {
            (false, _) => app.out.line(accepted.id),
            (true, false) => {
                app.out.json(&serde_json::json!({ "id": accepted.id, "existing": accepted.existing }))
            }
            (true, true) => {}
        }
        if accepted.existing {
            app.out.note(format!("job {} was there already and stands for this one", accepted.id));
        }
        if !self.wait {
            return Ok(());
        }
        let audience = if app.out.json { Audience::Nobody } else { Audience::Person };
        let jobs = follow::follow(store.as_ref(), &[accepted.id], self.timeout, audience, app.out).await?;
        if app.out.json {
            jobs.iter().for_each(|job| app.out.json(&JobView::from(job)));
        }
        follow::verdict(&jobs)
    }

    fn job(&self) -> Result<NewJob> {
        let due = match (self.delay, self.run_at) {
            (Some(delay), _) => Due::In(delay),
            (None, Some(at)) => Due::At(at),
            (None, None) => Due::Now,
        };
        Ok(NewJob {
            queue: self.queue.clone(),
            priority: self.priority,
            due,
            max_attempts: self.max_attempts,
            unique_key: self.unique_key.clone(),
            limit_key: self.limit_key.clone(),
            after: self.after.clone(),
            ..NewJob::new(self.kind.clone(), payload::read(self.payload.as_deref())?)
        })
    }

    async fn accept(&self, store: &dyn Store, job: &NewJob) -> Result<Enqueued, Error> {
        let jobs = vec![job.clone()];
        let answers = match &self.idempotency_key {
            Some(key) => {
                store.enqueue_once(Once { key: key.clone(), fingerprint: fingerprint(job) }, jobs).await?
            }
            None => store.enqueue(jobs).await?,
        };
        answers
            .first()
            .copied()
            .ok_or_else(|| Error::Conflict { problem: "the store did not answer the job".to_owned() })
    }
}

/// Makes the job part of the trace that this command is part of (`TRACEPARENT`), if it is, or begins one if traces are
/// collected.
fn trace_enqueue(job: &mut NewJob) -> Option<Box<dyn Span>> {
    let parent = std::env::var("TRACEPARENT").ok().and_then(|text| Context::parse(&text));
    job.trace_id = parent.map(|parent| parent.to_string());
    let span = trace::start(|| Start {
        name: format!("enqueue {}", job.kind),
        kind: Kind::Producer,
        parent,
        attributes: vec![
            ("messaging.system", "stargate".into()),
            ("messaging.operation.type", "send".into()),
            ("messaging.destination.name", job.queue.as_str().into()),
            ("stargate.kind", job.kind.as_str().into()),
        ],
    })?;
    job.trace_id = Some(span.context().to_string());
    Some(span)
}

/// What makes two requests the same: everything that was asked for. A delay counts as it was written.
fn fingerprint(job: &NewJob) -> String {
    use sha2::Digest as _;
    let due = match job.due {
        Due::Now => "now".to_owned(),
        Due::In(delay) => interval::show(delay),
        Due::At(at) => at.to_string(),
    };
    let asked = serde_json::json!([
        job.kind,
        job.queue,
        job.payload,
        job.priority,
        due,
        job.max_attempts,
        job.unique_key,
        job.limit_key,
        job.after,
    ]);
    sha2::Sha256::digest(asked.to_string()).iter().map(|byte| format!("{byte:02x}")).collect()
}
