//! What `top` shows: one look at everything, and the problems in it.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use stargate_queue::store::{Activity, FailureGroup, JobFilter, PauseTarget, QueueCounts, Store, WorkerRow};
use stargate_queue::{Job, State};

use crate::cmd::leader::view::{self, LeaderView};
use crate::cmd::mirror::overview::{self, MirrorLine};
use crate::failure::Failure;
use crate::output::{grouped, short};
use crate::run::App;

/// What is shown of the past, and in how many steps.
pub(super) const WINDOW: Duration = Duration::from_secs(3600);
pub(super) const BUCKETS: u32 = 60;
/// The steps that a forecast is made from.
const RECENT: usize = 5;
/// Running jobs and groups of failures that are shown at most.
const RUNNING_MAX: u32 = 200;
const GROUPS_MAX: u32 = 100;
/// Claimable jobs that have waited longer than this are a problem.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// A mirror that is further behind than this is a problem.
const LAG_MAX: Duration = Duration::from_secs(300);

/// One look at everything.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) at: Timestamp,
    pub(super) queues: Vec<QueueCounts>,
    pub(super) paused_kinds: Vec<String>,
    pub(super) running: Vec<Job>,
    pub(super) failures: Vec<FailureGroup>,
    pub(super) activity: Vec<Activity>,
    pub(super) workers: Vec<WorkerRow>,
    pub(super) oldest_ready: Option<Duration>,
    /// Absent when nobody could be asked.
    pub(super) leader: Option<LeaderView>,
    pub(super) mirrors: Vec<MirrorLine>,
}

/// Jobs of all queues together.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Totals {
    pub(super) ready: u64,
    pub(super) delayed: u64,
    pub(super) blocked: u64,
    pub(super) processing: u64,
    pub(super) failed: u64,
}

/// Something that somebody should look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Problem {
    pub(super) is_severe: bool,
    pub(super) text: String,
    /// What tells more.
    pub(super) command: String,
}

impl Snapshot {
    /// Looks at everything. Who leads and what is mirrored may be missing: jobs are shown all the same.
    pub(super) async fn take(app: &App, store: &dyn Store) -> Result<Self, Failure> {
        let running =
            JobFilter { states: vec![State::Processing], limit: RUNNING_MAX, ..JobFilter::default() };
        let (at, queues, pauses, running, failures, activity, workers, oldest_ready) = tokio::try_join!(
            store.now(),
            store.queues(),
            store.pauses(),
            store.jobs(running),
            store.failures(GROUPS_MAX),
            store.activity(WINDOW, BUCKETS),
            store.workers(),
            store.oldest_ready(),
        )?;
        let paused_kinds = pauses.into_iter().filter_map(|target| match target {
            PauseTarget::Kind(kind) => Some(kind),
            PauseTarget::Queue(_) => None,
        });
        Ok(Self {
            at,
            queues,
            paused_kinds: paused_kinds.collect(),
            running,
            failures,
            activity,
            workers,
            oldest_ready,
            leader: leader(app, store).await,
            mirrors: overview::mirrors(app).await.unwrap_or_default(),
        })
    }

    pub(super) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for queue in &self.queues {
            totals.ready += queue.ready;
            totals.delayed += queue.delayed;
            totals.blocked += queue.blocked;
            totals.processing += queue.processing;
            totals.failed += queue.failed;
        }
        totals
    }

    /// Workers that are alive, the jobs they hold, and how many they could.
    pub(super) fn capacity(&self) -> (usize, u64, usize) {
        let alive: Vec<&WorkerRow> = self.workers.iter().filter(|worker| worker.alive).collect();
        let holding = alive.iter().map(|worker| worker.holding).sum();
        (alive.len(), holding, alive.iter().map(|worker| worker.concurrency).sum())
    }

    /// Jobs done per minute, lately.
    pub(super) fn per_minute(&self) -> f64 {
        let recent = &self.activity[self.activity.len().saturating_sub(RECENT)..];
        if recent.is_empty() {
            return 0.0;
        }
        let minutes = WINDOW.as_secs_f64() / 60.0 / f64::from(BUCKETS) * recent.len() as f64;
        recent.iter().map(|bucket| bucket.done as f64).sum::<f64>() / minutes
    }

    /// When nothing will be ready any more, if nothing comes in.
    pub(super) fn empty_in(&self) -> Option<Duration> {
        let (ready, speed) = (self.totals().ready, self.per_minute());
        if ready == 0 || speed <= 0.0 {
            return None;
        }
        Duration::try_from_secs_f64(ready as f64 / speed * 60.0).ok()
    }

    /// How long nineteen of twenty waited at most that ran last.
    pub(super) fn wait_p95(&self) -> Option<Duration> {
        let last = self.activity.iter().rev().find_map(|bucket| bucket.wait_p95_ms);
        last.map(Duration::from_millis)
    }

    /// What somebody should look at, the worst first.
    pub(super) fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut add = |is_severe: bool, text: String, command: String| {
            problems.push(Problem { is_severe, text, command });
        };
        let totals = self.totals();
        let (alive, ..) = self.capacity();
        if alive == 0 && totals.ready + totals.processing > 0 {
            add(true, "jobs wait and no worker is alive".to_owned(), "stargate worker".to_owned());
        }
        for worker in self.workers.iter().filter(|worker| !worker.alive) {
            let text = format!("worker {} is silent and holds {} jobs", worker.name, worker.holding);
            add(worker.holding > 0, text, "stargate workers".to_owned());
        }
        if let Some(age) = self.oldest_ready.filter(|age| *age > WAIT_MAX) {
            let text = format!("a job that could run has waited for {}", short(age));
            add(true, text, "stargate queue list".to_owned());
        }
        for queue in self.queues.iter().filter(|queue| queue.paused) {
            let text = format!("queue {} is paused; {} jobs wait in it", queue.queue, grouped(queue.ready));
            add(false, text, format!("stargate queue resume {}", queue.queue));
        }
        for kind in &self.paused_kinds {
            let command = format!("stargate queue resume --kind {kind}");
            add(false, format!("kind {kind} is paused"), command);
        }
        let failed: u64 = self.activity.iter().map(|bucket| bucket.failed).sum();
        if failed > 0 {
            let text = format!("{} jobs failed within the last hour", grouped(failed));
            add(false, text, "stargate failures".to_owned());
        }
        if let Some(trouble) = self.leader.as_ref().and_then(|leader| leader.trouble.as_ref()) {
            add(true, format!("leadership: {trouble}"), "stargate leader status".to_owned());
        }
        if self.leader.as_ref().is_some_and(|leader| leader.leader.is_none() && !leader.terms.is_empty()) {
            add(true, "nobody leads".to_owned(), "stargate leader status".to_owned());
        }
        for mirror in self.mirrors.iter().filter(|mirror| mirror.is_away() || mirror.lag > LAG_MAX) {
            let text = format!("mirror {}: {}, {} behind", mirror.repo, mirror.standing, short(mirror.lag));
            add(mirror.is_away(), text, format!("stargate mirror status --repo {}", mirror.repo));
        }
        let letters: usize = self.mirrors.iter().map(|mirror| mirror.dead_letters).sum();
        if letters > 0 {
            let text = format!("mirrors have given up {letters} entries");
            add(false, text, "stargate mirror status".to_owned());
        }
        problems.sort_by_key(|problem| !problem.is_severe);
        problems
    }

    /// The stable fields of `--json`.
    pub(super) fn to_json(&self) -> serde_json::Value {
        let (alive, holding, capacity) = self.capacity();
        serde_json::json!({
            "at": self.at,
            "jobs": self.totals(),
            "oldest_ready_sec": self.oldest_ready.map(|age| age.as_secs_f64()),
            "done_per_minute": self.per_minute(),
            "empty_in_sec": self.empty_in().map(|left| left.as_secs_f64()),
            "wait_p95_ms": self.wait_p95().map(|wait| wait.as_millis() as u64),
            "workers_alive": alive,
            "holding": holding,
            "capacity": capacity,
            "problems": self.problems(),
            "failures": self.failures,
            "leader": self.leader,
            "mirrors": self.mirrors,
        })
    }
}

/// Who leads, as the node says; beside the store and without a node, as the store says.
async fn leader(app: &App, store: &dyn Store) -> Option<LeaderView> {
    if let Ok(node) = app.node()
        && let Ok(view) = view::ask(&node, 10).await
    {
        return Some(view);
    }
    let rows = store.terms(10).await.ok()?;
    Some(LeaderView::of_store(&rows, app.settings.leader.backend.name().as_str()))
}
