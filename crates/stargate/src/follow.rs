//! Follows jobs until they end: a bar for each on a terminal, plain lines elsewhere, JSON lines for programs.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use stargate_queue::event::{self, Event};
use stargate_queue::store::Store;
use stargate_queue::{Error, Job, JobId, State};

use crate::failure::{Exit, Failure, Result};
use crate::output::{self, Output};
use crate::remote;
use crate::view::{EventLine, clock_time, event_in_words};

/// How often to look. Fast enough for the eye, slow enough for the store.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often to ask a node, which others ask too.
const ASK_EVERY: Duration = Duration::from_millis(300);
/// A job that has not begun by then may never: the person is told where to look.
const HINT_AFTER: Duration = Duration::from_secs(3);
/// Events read at a time.
const EVENTS_PAGE: u32 = 500;

/// Who sees what happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Events as JSON lines on standard output.
    Program,
    /// Bars on a terminal, lines elsewhere, on standard error.
    Person,
    /// Lines on standard error.
    Lines,
    /// Nobody.
    Nobody,
}

/// Follows jobs to their end and answers them as they ended, in the order asked.
pub(crate) async fn follow(
    store: &dyn Store,
    ids: &[JobId],
    timeout: Option<Duration>,
    audience: Audience,
    out: Output,
) -> Result<Vec<Job>> {
    let started = Instant::now();
    let look_every = if store.facts().name == remote::NAME { ASK_EVERY } else { LOOK_EVERY };
    let mut screen = Screen::new(audience, out, ids.len());
    let mut last_seq: BTreeMap<JobId, u32> = ids.iter().map(|id| (*id, 0)).collect();
    let mut ended: BTreeMap<JobId, Job> = BTreeMap::new();
    let mut hinted = false;
    loop {
        let mut news: Vec<(Event, Job)> = Vec::new();
        let mut finished = Vec::new();
        for (id, seen) in last_seq.iter_mut().filter(|(id, _)| !ended.contains_key(id)) {
            // The job is read first: events up to its end are then there to be read.
            let job = store.job(*id).await?.ok_or(Error::NotFound { what: "job", name: id.to_string() })?;
            let events = new_events(store, *id, seen).await?;
            news.extend(events.into_iter().map(|event| (event, job.clone())));
            screen.job(&job);
            if job.state.is_finished() {
                finished.push(job);
            }
        }
        // Several jobs are told as one story.
        news.sort_by_key(|(event, _)| event.at);
        news.iter().for_each(|(event, job)| screen.event(job, event));
        ended.extend(finished.into_iter().map(|job| (job.id, job)));
        if ended.len() == last_seq.len() {
            screen.end();
            return Ok(ids.iter().filter_map(|id| ended.get(id).cloned()).collect());
        }
        if !hinted && started.elapsed() >= HINT_AFTER {
            hinted = true;
            screen.hint(
                last_seq.iter().find(|(id, seq)| **seq <= 1 && !ended.contains_key(id)).map(|(id, _)| *id),
            );
        }
        if timeout.is_some_and(|timeout| started.elapsed() >= timeout) {
            screen.end();
            return Err(timed_out(ids, &ended, started.elapsed()));
        }
        tokio::time::sleep(look_every).await;
    }
}

/// All events after the last one seen.
async fn new_events(store: &dyn Store, id: JobId, seen: &mut u32) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    loop {
        let page = store.events(id, *seen, EVENTS_PAGE).await?;
        let full = page.len() >= usize::try_from(EVENTS_PAGE).unwrap_or(usize::MAX);
        *seen = page.last().map_or(*seen, |event| event.seq);
        events.extend(page);
        if !full {
            return Ok(events);
        }
    }
}

/// Exit 0 when all are done; else the failure of the first that is not.
pub(crate) fn verdict(jobs: &[Job]) -> Result<()> {
    let Some(job) = jobs.iter().find(|job| job.state != State::Done) else { return Ok(()) };
    let failure = match (&job.error, job.state) {
        (Some(error), State::Failed) => {
            Failure::failed(&error.code, format!("job {} failed: {}: {}", job.id, error.code, error.message))
                .help(format!(
                    "'stargate job show {0}' has the details, 'stargate job retry {0}' runs it again",
                    job.id
                ))
        }
        _ => Failure::failed("NOT_DONE", format!("job {} ended {}", job.id, job.state)),
    };
    Err(failure)
}

fn timed_out(ids: &[JobId], ended: &BTreeMap<JobId, Job>, waited: Duration) -> Failure {
    let open: Vec<String> =
        ids.iter().filter(|id| !ended.contains_key(id)).map(ToString::to_string).collect();
    let first = open.first().cloned().unwrap_or_default();
    let message = format!("not ended after {}: job {}", output::short(waited), open.join(", "));
    Failure::new(Exit::TimedOut, "TIMED_OUT", message)
        .help(format!("'stargate explain {first}' tells what it waits for"))
}

/// Where events and progress are drawn.
struct Screen {
    audience: Audience,
    out: Output,
    /// With several jobs each line names its job.
    several: bool,
    bars: Option<MultiProgress>,
    bar_of: BTreeMap<JobId, ProgressBar>,
}

impl Screen {
    fn new(audience: Audience, out: Output, jobs: usize) -> Self {
        let drawn = audience == Audience::Person && std::io::stderr().is_terminal();
        Self {
            audience,
            out,
            several: jobs > 1,
            bars: drawn.then(MultiProgress::new),
            bar_of: BTreeMap::new(),
        }
    }

    fn event(&self, job: &Job, event: &Event) {
        match self.audience {
            Audience::Nobody => {}
            Audience::Program => self.out.json_line(&EventLine { job: job.id, event }),
            Audience::Person | Audience::Lines => {
                // The bar shows progress already.
                if self.bars.is_some() && event.event == event::PROGRESS {
                    return;
                }
                let line = event_line(job, event, self.several);
                match &self.bars {
                    Some(bars) => drop(bars.println(output::for_stderr(line))),
                    None => self.out.note(line),
                }
            }
        }
    }

    fn hint(&self, waiting: Option<JobId>) {
        if let (Some(id), Audience::Person) = (waiting, self.audience) {
            let line = output::dim(format!("job {id} still waits; 'stargate explain {id}' tells why"));
            match &self.bars {
                Some(bars) => drop(bars.println(output::for_stderr(line))),
                None => self.out.note(line),
            }
        }
    }

    fn job(&mut self, job: &Job) {
        let Some(bars) = &self.bars else { return };
        let bar = self.bar_of.entry(job.id).or_insert_with(|| {
            let template = match output::stderr_has_colours() {
                true => "{prefix:>12} {bar:32.cyan/dim} {pos:>3} %  {msg} {elapsed:.dim}",
                false => "{prefix:>12} {bar:32} {pos:>3} %  {msg} {elapsed}",
            };
            let style = ProgressStyle::with_template(template);
            let bar = ProgressBar::new(100).with_prefix(format!("job {}", job.id));
            bars.add(bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())))
        });
        bar.set_position(if job.state == State::Done { 100 } else { u64::from(job.progress) });
        bar.set_message(job.state.as_str());
        if job.state.is_finished() {
            bar.abandon();
        }
    }

    fn end(&self) {
        for bar in self.bar_of.values() {
            bar.abandon();
        }
    }
}

/// One line for one event: time, event, details.
pub(crate) fn event_line(job: &Job, event: &Event, with_job: bool) -> String {
    use owo_colors::OwoColorize as _;
    let words = event_in_words(event);
    let name = if words.is_empty() { event.event.clone() } else { format!("{:<16}  ", event.event) };
    let name = match event.event.as_str() {
        event::DONE => name.green().to_string(),
        event::FAILED => name.red().to_string(),
        event::CANCELLED | event::CANCEL_REQUESTED | event::REQUEUED_STALE | event::REQUEUED_RETRY => {
            name.yellow().to_string()
        }
        _ => name.cyan().to_string(),
    };
    let who = if with_job { format!("job {:<3} {:<10} ", job.id, job.kind) } else { String::new() };
    format!("{}  {who}{name}{words}", output::dim(clock_time(event.at)))
}
