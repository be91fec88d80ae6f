//! The store and the model side by side, and the comparison of the two.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use stargate_queue::limits::Limit;
use stargate_queue::store::{JobFilter, Outcome, PAGE_MAX, PauseTarget, Verdict};
use stargate_queue::{Fence, Job, JobId, State, WorkerId};

use super::model::Model;
use crate::Fixture;
use crate::fixture::{LEASE, OTHER, WORK};

/// The kinds with attempts and crashes allowed.
pub(super) const KINDS: [(&str, u16, u16); 2] = [(WORK, 5, 3), (OTHER, 3, 2)];
/// The queues.
pub(super) const QUEUES: [&str; 2] = ["default", "side"];
/// The limit keys of seeds that use them, each with two jobs at once.
pub(super) const KEYS: [&str; 3] = ["key:a", "key:b", "key:c"];
/// Jobs at once of each key.
pub(super) const KEY_CONCURRENCY: u32 = 2;
/// Workers at once.
const SLOTS: usize = 4;

/// One worker and what is known of its last beat. After a clock that went back the contract leaves open whether the
/// later or the earlier beat counts, so both are kept.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) id: WorkerId,
    pub(super) beat_low: Timestamp,
    pub(super) beat_high: Timestamp,
    pub(super) may_be_gone: bool,
    pub(super) must_be_gone: bool,
}

/// What has happened, for the failure's text.
#[derive(Debug, Clone, Default)]
pub(super) struct History(Arc<Mutex<Vec<String>>>);

impl History {
    pub(super) fn lines(&self) -> Vec<String> {
        self.0.lock().map(|lines| lines.clone()).unwrap_or_default()
    }

    fn add(&self, line: String) {
        if let Ok(mut lines) = self.0.lock() {
            lines.push(line);
        }
    }
}

/// The store and the model side by side.
pub(super) struct World<'a> {
    pub(super) f: &'a Fixture,
    pub(super) dice: StdRng,
    pub(super) model: Model,
    pub(super) slots: Vec<Slot>,
    pub(super) pauses: BTreeSet<PauseTarget>,
    /// Whether jobs have limit keys; without them the order of a claim is known exactly.
    pub(super) keyed: bool,
    /// Answers that workers will send at some later time, perhaps too late.
    pub(super) late: Vec<(Fence, Outcome)>,
    /// Every fence ever given out.
    pub(super) fences: Vec<Fence>,
    pub(super) latest: Timestamp,
    pub(super) once: HashMap<String, Vec<JobId>>,
    history: History,
    step: u32,
}

impl<'a> World<'a> {
    pub(super) async fn new(f: &'a Fixture, seed: u64) -> Self {
        for (kind, attempts, crashes) in KINDS {
            f.kind(kind, attempts, crashes).await;
        }
        let keyed = seed.is_multiple_of(2);
        if keyed {
            let concurrency = Some(KEY_CONCURRENCY);
            let limit = Limit { pattern: "key:*".into(), concurrency, rate: None, weight: 1 };
            f.store.limit_set(limit).await.unwrap();
        }
        let mut world = Self {
            f,
            dice: StdRng::seed_from_u64(seed),
            model: Model::default(),
            slots: Vec::new(),
            pauses: BTreeSet::new(),
            keyed,
            late: Vec::new(),
            fences: Vec::new(),
            latest: f.now(),
            once: HashMap::new(),
            history: History::default(),
            step: 0,
        };
        for number in 0..SLOTS {
            let slot = world.fresh_slot(number).await;
            world.slots.push(slot);
        }
        world
    }

    pub(super) fn history(&self) -> History {
        self.history.clone()
    }

    pub(super) fn tell(&self, line: impl AsRef<str>) {
        let since = self.f.now().duration_since(crate::start_of_time()).as_secs_f64();
        self.history.add(format!("step {} at {since:+.1} s: {}", self.step, line.as_ref()));
    }

    pub(super) fn next_step(&mut self) {
        self.step += 1;
        self.latest = self.latest.max(self.f.now());
    }

    pub(super) async fn fresh_slot(&self, number: usize) -> Slot {
        let id = self.f.worker(&format!("slot {number}")).await;
        let now = self.f.now();
        Slot { id, beat_low: now, beat_high: now, may_be_gone: false, must_be_gone: false }
    }

    pub(super) fn roll(&mut self, sides: usize) -> usize {
        self.dice.random_range(0..sides)
    }

    pub(super) fn some_job(&mut self) -> Option<JobId> {
        let count = self.model.jobs.len();
        if count == 0 {
            return None;
        }
        let nth = self.roll(count);
        self.model.jobs.keys().nth(nth).copied()
    }

    async fn every_job(&self) -> Vec<Job> {
        let mut all: Vec<Job> = Vec::new();
        loop {
            let before = all.last().map(|job| job.id);
            let filter = JobFilter { before, limit: PAGE_MAX, ..JobFilter::default() };
            let page = self.f.store.jobs(filter).await.unwrap();
            if page.is_empty() {
                return all;
            }
            all.extend(page);
        }
    }

    /// The store must say what the model says, job by job.
    pub(super) async fn compare(&mut self) {
        let stored = self.every_job().await;
        let listed: BTreeSet<JobId> = stored.iter().map(|job| job.id).collect();
        let accepted: BTreeSet<JobId> = self.model.jobs.keys().copied().collect();
        assert_eq!(listed, accepted, "the store lists exactly the accepted jobs");
        for job in &stored {
            let model = self.model.jobs.get_mut(&job.id).expect("compared above");
            let told = (job.state, job.attempt_count, job.max_attempts, job.crash_count, job.progress);
            let expected = (model.state, model.attempt, model.max_attempts, model.crashes, model.progress);
            assert_eq!(
                told, expected,
                "job {}: (state, attempts, of, crashes, progress), store against model; {model:?}",
                job.id
            );
            if job.state == State::Processing {
                assert_eq!(
                    job.cancel_requested, model.cancel_requested,
                    "cancel_requested of job {}",
                    job.id
                );
            }
            model.run_at = job.run_at;
            model.stage = job.stage;
        }
        if self.step.is_multiple_of(10) {
            self.compare_counts().await;
        }
        if let Some(id) = self.some_job() {
            self.compare_events(id).await;
        }
    }

    async fn compare_counts(&self) {
        let told = self.f.store.queues().await.unwrap();
        for queue in QUEUES {
            let counts = told.iter().find(|counts| counts.queue == queue).cloned().unwrap_or_default();
            let of = |state| {
                self.model.jobs.values().filter(|job| job.queue == queue && job.state == state).count() as u64
            };
            let waiting = counts.ready + counts.delayed + counts.blocked;
            let expected = (of(State::Queued), of(State::Processing), of(State::Failed));
            assert_eq!(
                (waiting, counts.processing, counts.failed),
                expected,
                "counts of queue {queue}: {counts:?}"
            );
        }
        for (number, slot) in self.slots.iter().enumerate() {
            let mut owned = self.f.store.owned(slot.id).await.unwrap();
            owned.sort_by_key(|fence| fence.job);
            let held = self.model.jobs.values().filter_map(|job| job.held).filter(|held| held.slot == number);
            let lasts = |fence: &Fence| match self.verdict(*fence) {
                Some(verdict) => verdict == Verdict::Accepted,
                None => owned.contains(fence),
            };
            let expected: Vec<Fence> = held.map(|held| held.fence).filter(lasts).collect();
            assert_eq!(owned, expected, "what slot {number} holds");
            for fence in &owned {
                assert!(self.f.store.holds(*fence).await.unwrap(), "{fence:?} of slot {number} is owned");
            }
        }
        let running = self.model.running_of_key();
        for key in KEYS {
            let told = self.f.store.limit_state(key).await.unwrap().map_or(0, |state| state.running);
            assert_eq!(told, running.get(key).copied().unwrap_or(0), "running jobs of {key}");
        }
    }

    async fn compare_events(&self, id: JobId) {
        let events = self.f.events(id).await;
        let names: Vec<&str> = events.iter().map(|event| event.event.as_str()).collect();
        let model = &self.model.jobs[&id];
        assert_eq!(names, model.events, "timeline of job {id}");
        let mut state = State::Queued;
        for name in &names[1..] {
            let next = match *name {
                "processing" => State::Processing,
                "done" => State::Done,
                "failed" => State::Failed,
                "cancelled" => State::Cancelled,
                name if name.starts_with("requeued:") || name == "aborted:shutdown" => State::Queued,
                _ => continue,
            };
            assert!(state.may_become(next), "job {id} went from {state} to {next}: {names:?}");
            state = next;
        }
        assert_eq!(state, model.state, "where the timeline of job {id} ends: {names:?}");
    }

    /// Lets good workers finish everything.
    pub(super) async fn drain(&mut self) {
        for target in std::mem::take(&mut self.pauses) {
            assert!(self.f.store.resume(target.clone()).await.unwrap(), "{target:?} was paused");
        }
        self.f.clock.set(self.latest);
        for round in 0.. {
            let open = self.model.jobs.values().filter(|job| !job.state.is_finished()).count();
            if open == 0 {
                break;
            }
            assert!(round < 300, "{open} jobs do not end however long good workers work");
            self.next_step();
            self.f.advance(Duration::from_secs(60));
            let slot = self.fresh_slot(0).await;
            self.slots.push(slot);
            let number = self.slots.len() - 1;
            let fences = self.claim_as(number, 50, &[WORK, OTHER], &[], [50, 50]).await;
            for fence in fences {
                self.settle_and_check(fence, Outcome::Done { result: None }).await;
            }
            self.compare().await;
        }
    }

    /// Everything has ended once; late answers change nothing; nothing is left over.
    pub(super) async fn check_the_end(&mut self) {
        self.next_step();
        for fence in self.fences.clone() {
            self.settle_and_check(fence, Outcome::Done { result: None }).await;
        }
        self.f.advance(LEASE * 10);
        let worker = self.f.worker("last").await;
        let claim = self.f.claim(worker, 100).await;
        assert!(claim.jobs.is_empty() && claim.recovered.is_empty(), "everything has ended, yet: {claim:?}");
        self.compare().await;
        let ids: Vec<JobId> = self.model.jobs.keys().copied().collect();
        for id in ids {
            self.compare_events(id).await;
        }
        for key in KEYS {
            let running = self.f.store.limit_state(key).await.unwrap().map_or(0, |state| state.running);
            assert_eq!(running, 0, "places of {key} that nobody will free");
        }
        assert_eq!(self.f.store.depth(10).await.unwrap(), 0, "nothing waits");
    }
}
