//! The rules in their simplest form: jobs in a map, no storage, no concurrency.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use jiff::Timestamp;
use stargate_queue::event;
use stargate_queue::store::Outcome;
use stargate_queue::{Fence, JobId, Stage, State};

/// A job as the rules see it.
#[derive(Debug, Clone)]
pub(super) struct ModelJob {
    pub(super) kind: &'static str,
    pub(super) queue: &'static str,
    pub(super) key: Option<&'static str>,
    pub(super) unique: Option<String>,
    pub(super) priority: i16,
    pub(super) state: State,
    pub(super) attempt: u16,
    pub(super) max_attempts: u16,
    pub(super) max_crashes: u16,
    pub(super) crashes: u16,
    pub(super) progress: u8,
    pub(super) cancel_requested: bool,
    pub(super) held: Option<Held>,
    pub(super) parents: Vec<JobId>,
    pub(super) failed_by_parent: bool,
    pub(super) events: Vec<String>,
    /// As the store told after the last step; checked when it was set.
    pub(super) run_at: Timestamp,
    pub(super) stage: Option<Stage>,
}

/// Who holds a running job.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    pub(super) fence: Fence,
    pub(super) slot: usize,
    pub(super) lease: Duration,
}

/// All jobs.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) jobs: BTreeMap<JobId, ModelJob>,
}

impl Model {
    /// The job a fence names, if that execution is the current one.
    fn current(&mut self, fence: Fence) -> Option<&mut ModelJob> {
        self.jobs.get_mut(&fence.job).filter(|job| job.held.is_some_and(|held| held.fence == fence))
    }

    pub(super) fn holder_of_unique(&self, key: &str) -> Option<JobId> {
        let holds = |job: &ModelJob| !job.state.is_finished() && job.unique.as_deref() == Some(key);
        self.jobs.iter().find(|(_, job)| holds(job)).map(|(id, _)| *id)
    }

    pub(super) fn enqueue(&mut self, id: JobId, mut job: ModelJob) {
        let ended_badly = |parent| matches!(self.jobs[parent].state, State::Failed | State::Cancelled);
        let lost = job.parents.iter().any(ended_badly);
        job.events = vec![event::CREATED.to_owned()];
        self.jobs.insert(id, job);
        if lost {
            self.fail_by_parent(id);
        }
    }

    pub(super) fn is_blocked(&self, job: &ModelJob) -> bool {
        job.parents.iter().any(|parent| self.jobs[parent].state != State::Done)
    }

    pub(super) fn claim(&mut self, held: Held) {
        let id = held.fence.job;
        let job = self.jobs.get_mut(&id).expect("a claimed job that was accepted");
        to(job, id, State::Processing);
        job.attempt += 1;
        assert_eq!(held.fence.attempt, job.attempt, "the attempt in the fence of job {id}");
        job.held = Some(held);
        job.events.push(event::PROCESSING.to_owned());
    }

    /// An execution ended.
    pub(super) fn settle(&mut self, fence: Fence, outcome: &Outcome) {
        let Some(job) = self.current(fence) else { return };
        let ended = match outcome {
            Outcome::Done { .. } => Some(State::Done),
            Outcome::Failed { .. } => Some(State::Failed),
            Outcome::Cancelled => Some(State::Cancelled),
            // Asked to end, and the worker gave it back: it must not run again.
            _ if job.cancel_requested => Some(State::Cancelled),
            _ => None,
        };
        if let Some(state) = ended {
            self.end(fence.job, state);
            return;
        }
        match outcome {
            Outcome::Retry { .. } => job.events.push(event::REQUEUED_RETRY.to_owned()),
            Outcome::Aborted => {
                job.attempt -= 1;
                job.events.push(event::ABORTED_SHUTDOWN.to_owned());
            }
            _ => {
                job.attempt -= 1;
                let started = job.events.iter().rposition(|name| name == event::PROCESSING);
                // Handed back before it started: the claim leaves no trace.
                job.events.truncate(started.expect("a held job was started"));
            }
        }
        to(job, fence.job, State::Queued);
        job.held = None;
    }

    /// An execution reported something.
    pub(super) fn note(&mut self, fence: Fence, progress: Option<u8>, event: Option<&str>) {
        let Some(job) = self.current(fence) else { return };
        job.progress = progress.unwrap_or(job.progress);
        job.events.extend(event.map(ToOwned::to_owned));
    }

    /// The lease of a job has ended; what becomes of it.
    pub(super) fn recover(&mut self, id: JobId) -> State {
        let job = self.jobs.get_mut(&id).expect("a recovered job that was accepted");
        job.crashes += 1;
        if job.cancel_requested {
            self.end(id, State::Cancelled);
            return State::Cancelled;
        }
        if job.crashes >= job.max_crashes || job.attempt >= job.max_attempts {
            self.end(id, State::Failed);
            return State::Failed;
        }
        to(job, id, State::Queued);
        job.held = None;
        job.events.push(event::REQUEUED_STALE.to_owned());
        State::Queued
    }

    /// An operator wants its end; whether it ended at once.
    pub(super) fn cancel(&mut self, id: JobId) -> bool {
        let job = self.jobs.get_mut(&id).expect("a known job");
        if job.state == State::Queued {
            self.end(id, State::Cancelled);
            return true;
        }
        if !job.cancel_requested {
            job.cancel_requested = true;
            job.events.push(event::CANCEL_REQUESTED.to_owned());
        }
        false
    }

    pub(super) fn retry(&mut self, id: JobId) {
        let job = self.jobs.get_mut(&id).expect("a known job");
        to(job, id, State::Queued);
        job.cancel_requested = false;
        job.events.push(event::REQUEUED_OPERATOR.to_owned());
    }

    pub(super) fn running_of_key(&self) -> HashMap<&'static str, u32> {
        let mut running = HashMap::new();
        for job in self.jobs.values().filter(|job| job.held.is_some()) {
            if let Some(key) = job.key {
                *running.entry(key).or_default() += 1;
            }
        }
        running
    }

    fn end(&mut self, id: JobId, state: State) {
        let job = self.jobs.get_mut(&id).expect("a known job");
        to(job, id, state);
        job.held = None;
        job.events.push(state.as_str().to_owned());
        if state != State::Done {
            let waits = |job: &ModelJob| job.state == State::Queued && job.parents.contains(&id);
            let children: Vec<JobId> =
                self.jobs.iter().filter(|(_, job)| waits(job)).map(|(id, _)| *id).collect();
            for child in children {
                self.fail_by_parent(child);
            }
        }
    }

    fn fail_by_parent(&mut self, id: JobId) {
        // Two ways may lead to the same descendant.
        if self.jobs[&id].state == State::Queued {
            self.jobs.get_mut(&id).expect("a known job").failed_by_parent = true;
            self.end(id, State::Failed);
        }
    }
}

/// The one place where the model changes a state.
fn to(job: &mut ModelJob, id: JobId, next: State) {
    assert!(job.state.may_become(next), "job {id} may not go from {} to {next}: {job:?}", job.state);
    job.state = next;
}
