//! The seven steps, written once. An engine calls [`execute`] and does what its answer says.

mod again;
mod ahead;
mod begin;
mod ending;
mod heart;
mod persist;
mod progress;
mod say;
mod trouble;

use std::sync::Arc;
use std::time::Duration;

use stargate_base::{ErrorClass, Tasks};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use self::again::{Retried, retry_quarantined};
use self::ahead::{Ahead, Reading};
use self::begin::acquire_context;
pub use self::ending::{CONFLICT_EXHAUSTED, end_abandoned};
use self::heart::{BEATS_PER_LEASE, Halt, Heart};
pub use self::progress::Progress;
use self::say::{Who, say};
pub use self::trouble::Trouble;
use crate::cursor::{Cursor, Partial, Pointer};
use crate::file::Directive;
use crate::item::Table;
use crate::kv::{Entry, Expected, Keys};
use crate::pace::Pace;
use crate::run::{Lease, Outcome, Run, RunId, Step};
use crate::source::{ForeignSink, Sources};
use crate::store::SharedDirectives;
use crate::transform::Mapping;

/// Another run of the directive goes on.
pub const RUN_HELD: &str = "RUN_HELD";
/// The run has ended as failed already.
pub const RUN_ENDED: &str = "RUN_ENDED";
/// What lies at the cursor's key is none.
pub const CURSOR_CORRUPT: &str = "CURSOR_CORRUPT";
/// The run took longer than its directive allows.
pub const DEADLINE_EXCEEDED: &str = "DEADLINE_EXCEEDED";

/// How long a source may give nothing. Taps may have to compute for long before their first record.
const SILENCE_MAX: Duration = Duration::from_secs(3600);

/// Is told of every step, when it has been taken: for tests that end or stop the process right there.
pub trait Watch: Send + Sync + std::fmt::Debug {
    /// The step has been taken. Of `Persist` it is told before, when all is ready to be written.
    fn reached(&self, step: Step);
}

/// What an execution needs.
#[derive(Debug)]
pub struct Assignment {
    /// The directive.
    pub directive: Arc<Directive>,
    /// How its records become items.
    pub mapping: Arc<Mapping>,
    /// Where it writes.
    pub store: SharedDirectives,
    /// Where it reads.
    pub sources: Arc<dyn Sources>,
    /// The run, the same at each execution of it.
    pub run: RunId,
    /// The job or workflow.
    pub workflow_id: String,
    /// `embedded` or `temporal`.
    pub engine: &'static str,
    /// Who executes it.
    pub worker: String,
    /// Which execution of the run it is, from 1: what keeps a run from beginning is counted by it.
    pub attempt: u32,
    /// Owns what runs beside it: the heartbeat, and what reads ahead.
    pub tasks: Tasks,
    /// Who is told of every step, if anybody is.
    pub watch: Option<Arc<dyn Watch>>,
    /// Whether this is the last time the engine will call: what would wait fails instead.
    pub is_last_try: bool,
    /// Pages after which the execution ends with [`Ended::More`], about: pages that are written together are not parted.
    /// With none it only tells where the run stands. `None` is to the end of the source.
    pub pages_max: Option<u64>,
    /// In the place of the directive's page size, if somebody wants another.
    pub page_size: Option<u32>,
    /// Hears of every batch that was written.
    pub progress: Option<watch::Sender<Progress>>,
}

/// What becomes of a run after an execution of it.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    /// It ended, and that is recorded.
    Finished(Box<Run>),
    /// It failed, and that is recorded.
    Failed(Trouble),
    /// It is to be executed again after a while.
    Wait {
        /// How long.
        after: Duration,
        /// Why.
        trouble: Trouble,
    },
    /// It was told to stop and is to be executed again, by whom ever.
    Stopped,
    /// It came as far as it was to ([`Assignment::pages_max`]), and is to be executed again.
    More(Box<Progress>),
}

/// Whether stopping is meant for the run and not only for this execution of it.
pub type IsCancel = dyn Fn() -> bool + Send + Sync;

/// Executes a run from where it stands to its end, or to what keeps it from going on.
///
/// When `stopping` is cancelled, `is_cancel` is asked whether that is meant for the run itself; otherwise it is taken up
/// by the next execution.
pub async fn execute(assignment: Assignment, stopping: &CancellationToken, is_cancel: &IsCancel) -> Ended {
    let execution = match acquire_context(assignment).await {
        Ok(execution) => execution,
        Err(early) => return early,
    };
    execution.run(stopping, is_cancel).await
}

/// Where a run stands.
#[derive(Debug, Clone)]
pub(crate) struct Position {
    /// As it is kept; `None` if there is none.
    pub(crate) cursor: Option<Cursor>,
    expected: Expected,
    /// Where the source goes on.
    pointer: Pointer,
    processed: u64,
    pub(crate) checksum: String,
    pub(crate) partial: Option<Partial>,
}

impl Position {
    fn beginning() -> Self {
        Self {
            cursor: None,
            expected: Expected::Absent,
            pointer: Pointer::Null,
            processed: 0,
            checksum: String::new(),
            partial: None,
        }
    }

    /// Records beyond the cursor that were accounted for before.
    fn replayed(&self) -> u64 {
        self.partial.as_ref().map_or(0, |partial| partial.accounted)
    }

    /// The version of the cursor; 0 if there is none.
    fn version(&self) -> u64 {
        match self.expected {
            Expected::Absent => 0,
            Expected::Version(version) => version,
        }
    }
}

struct Execution {
    given: Assignment,
    who: Who,
    keys: Keys,
    lease: Lease,
    run: Run,
    heart: Heart,
    table: Arc<Table>,
    position: Position,
    /// Batches so far, which gives them their names.
    batches: u64,
    /// Pages of this execution so far.
    pages: u64,
    sink: Option<Box<dyn ForeignSink>>,
}

/// How far the pages went without trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reached {
    /// To the end of the source.
    End,
    /// As far as this execution was to go.
    Enough,
}

/// Why the pages ended before the source did.
enum Broken {
    Trouble(Trouble),
    Halted,
}

impl<T: Into<Trouble>> From<T> for Broken {
    fn from(trouble: T) -> Self {
        Self::Trouble(trouble.into())
    }
}

fn silent() -> Trouble {
    let message = format!("the source gave nothing for {SILENCE_MAX:?}; the run is taken up again");
    Trouble::new(ErrorClass::RetryableTransient, "SOURCE_TIMEOUT", message)
}

fn reached(watch: Option<&dyn Watch>, step: Step) {
    if let Some(watch) = watch {
        watch.reached(step);
    }
}

impl Execution {
    async fn run(mut self, stopping: &CancellationToken, is_cancel: &IsCancel) -> Ended {
        if self.run.cancel_asked {
            self.heart.stop_for(Halt::Cancelled);
        }
        let worked = self.work_patiently(stopping).await;
        if stopping.is_cancelled() && is_cancel() {
            self.heart.stop_for(Halt::Cancelled);
        }
        match (worked, self.heart.halt()) {
            (_, Some(Halt::Lost)) => self.lost(),
            (Ok(Reached::End), _) => self.finalize(Outcome::Succeeded, None).await,
            (Ok(Reached::Enough), _) => self.leave().await,
            (Err(_), Some(Halt::Cancelled)) => self.finalize(Outcome::Cancelled, None).await,
            (Err(Broken::Halted), None) => {
                let cursor = self.position.cursor.as_ref();
                say!(INFO, self.who, cursor, "stopped; the run is taken up where its cursor is");
                Ended::Stopped
            }
            (Err(Broken::Trouble(trouble)), None) => self.after(trouble).await,
        }
    }

    /// The same again after failures for which it is worth staying.
    async fn work_patiently(&mut self, stopping: &CancellationToken) -> Result<Reached, Broken> {
        loop {
            let worked = self.work(stopping).await;
            let Err(Broken::Trouble(trouble)) = &worked else { return worked };
            let Some(after) = self.short_wait(trouble) else { return worked };
            tokio::select! {
                () = stopping.cancelled() => return Err(Broken::Halted),
                () = self.heart.halted().cancelled() => return Err(Broken::Halted),
                () = tokio::time::sleep(after) => {}
            }
        }
    }

    /// From the cursor to the end of the source, or as far as it is to go.
    async fn work(&mut self, stopping: &CancellationToken) -> Result<Reached, Broken> {
        self.resolve_cursor().await?;
        self.tell_progress();
        if self.run.source_ended {
            return Ok(Reached::End);
        }
        if self.has_enough() {
            return Ok(Reached::Enough);
        }
        self.check_deadline()?;
        self.say(Step::FetchSourceData);
        let halted = self.heart.halted().clone();
        let directive = self.given.directive.clone();
        let opened = async {
            self.sink = self.given.sources.sink(&directive).await?;
            self.given.sources.open(&directive, &self.position.pointer).await
        };
        let feed = tokio::select! {
            () = stopping.cancelled() => return Err(Broken::Halted),
            () = halted.cancelled() => return Err(Broken::Halted),
            feed = opened => feed?,
        };
        let pace = Pace::resumed(self.page_size_max(), self.heart.beat().page_size);
        let mapping = self.given.mapping.clone();
        let watch = self.given.watch.clone();
        // What is read ahead of the last page of this execution would be read again by the next.
        let concurrency =
            u64::from(directive.concurrency).min(self.given.pages_max.unwrap_or(u64::MAX)) as usize;
        let reading = Reading { feed, mapping, pace, concurrency, watch };
        let mut ahead = Ahead::start(&self.given.tasks, reading, self.who.clone(), &self.position);
        let worked = self.pages(&mut ahead, stopping).await;
        ahead.close().await;
        worked
    }

    async fn pages(&mut self, ahead: &mut Ahead, stopping: &CancellationToken) -> Result<Reached, Broken> {
        let halted = self.heart.halted().clone();
        loop {
            // A batch that is being written is never given up half-way; only waiting for the next one is.
            let patience = self.left().unwrap_or(SILENCE_MAX).min(SILENCE_MAX);
            let next = tokio::select! {
                biased;
                () = stopping.cancelled() => return Err(Broken::Halted),
                () = halted.cancelled() => return Err(Broken::Halted),
                next = ahead.next() => next,
                () = tokio::time::sleep(patience) => {
                    self.check_deadline()?;
                    return Err(silent().into());
                }
            };
            let Some(piece) = next else {
                let message = "the source was closed before its end";
                let trouble = Trouble::new(ErrorClass::RetryableTransient, "SOURCE_UNREACHABLE", message);
                return Err(Broken::Trouble(trouble));
            };
            if self.persist(piece?).await? {
                return Ok(Reached::End);
            }
            if self.has_enough() {
                return Ok(Reached::Enough);
            }
            self.check_deadline()?;
        }
    }

    /// Step 2: where the run goes on.
    async fn resolve_cursor(&mut self) -> Result<(), Trouble> {
        let store = &self.given.store;
        let cursor = store.kv_get(&self.keys.cursor).await?;
        let partial = store.kv_get(&self.keys.partial).await?;
        self.position = resolve(cursor, partial)?;
        let (run, version) = (&self.lease.run.0, self.position.version());
        self.position.partial = self
            .position
            .partial
            .take()
            .filter(|partial| partial.run == *run && partial.cursor_version == version);
        let Position { cursor, partial, .. } = &self.position;
        say!(
            INFO,
            self.who,
            cursor.as_ref(),
            step = Step::ResolveCursor.as_str(),
            partial = partial.as_ref().map(|partial| partial.accounted),
            "resolved the cursor"
        );
        reached(self.given.watch.as_deref(), Step::ResolveCursor);
        Ok(())
    }

    /// How long the run goes on, waits included.
    fn age(&self) -> Duration {
        let before = self.run.updated_at.duration_since(self.run.started_at);
        Duration::try_from(before).unwrap_or_default() + self.heart.age()
    }

    /// What is left of its deadline.
    fn left(&self) -> Option<Duration> {
        Some(self.given.directive.deadline?.saturating_sub(self.age()))
    }

    fn check_deadline(&self) -> Result<(), Trouble> {
        let (Some(deadline), age) = (self.given.directive.deadline, self.age()) else { return Ok(()) };
        if age < deadline {
            return Ok(());
        }
        let message = format!("the run goes on for {age:?}; its directive allows {deadline:?}");
        Err(Trouble::new(ErrorClass::Fatal, DEADLINE_EXCEEDED, message))
    }

    fn has_enough(&self) -> bool {
        self.given.pages_max.is_some_and(|most| self.pages >= most)
    }

    fn say(&self, step: Step) {
        self.heart.say(|beat| beat.step = Some(step));
    }
}

/// Where a run goes on, by what is kept. Something that is no cursor needs an operator: to begin anew instead would
/// ingest everything again.
fn resolve(cursor: Option<Entry>, partial: Option<Entry>) -> Result<Position, Trouble> {
    let corrupt = |entry: &Entry, error: serde_json::Error| {
        let message = format!(
            "the value at {} is not what a run can go on with ({error}); set it with 'stargate directive cursor set'",
            entry.key
        );
        Trouble::new(ErrorClass::Fatal, CURSOR_CORRUPT, message)
    };
    let expected = cursor.as_ref().map_or(Expected::Absent, |entry| Expected::Version(entry.version));
    let read =
        |entry: &Entry| serde_json::from_str::<Cursor>(entry.value.get()).map_err(|e| corrupt(entry, e));
    let cursor = cursor.as_ref().map(read).transpose()?;
    let read =
        |entry: &Entry| serde_json::from_str::<Partial>(entry.value.get()).map_err(|e| corrupt(entry, e));
    let partial = partial.as_ref().map(read).transpose()?;
    // At the beginning of the source nothing has been processed yet, whatever a run before came to.
    let (pointer, processed, checksum) = match &cursor {
        Some(cursor) if !cursor.source_pointer.is_null() => {
            (cursor.source_pointer.clone(), cursor.processed_count, cursor.checksum.clone())
        }
        _ => (Pointer::Null, 0, String::new()),
    };
    Ok(Position { cursor, expected, pointer, processed, checksum, partial })
}
