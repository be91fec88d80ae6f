//! The activities: each executes the seven steps for a stretch and tells the workflow where the run stands.

use std::sync::Arc;
use std::time::Duration;

use stargate_base::ErrorClass;
use stargate_directive::file::{Directive, Source};
use stargate_directive::steps::{self, Assignment, Ended, Progress, Trouble};
use stargate_directive::{End, Outcome, RunId, SharedDirectives};
use temporalio_macros::activities;
use temporalio_sdk::activities::{ActivityContext, ActivityError};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::failure;
use crate::given::GivenSources;
use crate::plan::{Begun, Close, Fetch, Of, Plan, Retry, Stand, Stretch, Summary, millis};
use crate::{ENGINE, workflow_id};

/// How often a stretch says where it is, besides with every batch. The answers tell whether it is to stop.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(1);
/// Runs of a directive that are looked through for orphans.
const ORPHANS_MAX: u32 = 20;
/// A workflow was started under a wrong id.
const WORKFLOW_ID: &str = "TEMPORAL_WORKFLOW_ID";
/// Nobody goes on with the run.
const RUN_ABANDONED: &str = "RUN_ABANDONED";

/// What the activities get from the program.
pub trait Host: Send + Sync {
    /// The directive of a name, as its file is now.
    fn plan(&self, directive: &str) -> Result<Directive, Trouble>;

    /// What an execution of it needs, with engine [`ENGINE`].
    fn assignment(&self, directive: Directive, run: RunId, attempt: u32) -> Result<Assignment, Trouble>;

    /// Where runs are kept.
    fn store(&self) -> SharedDirectives;
}

/// The activities of a worker.
pub(crate) struct Activities {
    pub(crate) host: Arc<dyn Host>,
    /// Pages of an activity.
    pub(crate) pages_per_activity: u64,
    pub(crate) history_events_max: Option<u32>,
    /// Whether the cluster knows our search attributes.
    pub(crate) searchable: bool,
    /// The worker stops.
    pub(crate) stop: CancellationToken,
}

#[activities]
impl Activities {
    /// Steps 1 and 2: the directive is read, the run entered, its cursor resolved.
    #[activity(name = "stargate.directive.begin")]
    pub(crate) async fn begin(self: Arc<Self>, ctx: ActivityContext, of: Of) -> Result<Begun, ActivityError> {
        check_name(&ctx, &of)?;
        self.end_orphans(&of).await;
        let directive = self.directive(&of.directive, &of.run).await?;
        let plan = self.plan_of(&directive);
        let stretch =
            Stretch { directive: of.directive, run: of.run, pages_max: Some(0), page_size: None, page: None };
        let stand = self.execute(&ctx, directive, stretch).await?;
        Ok(Begun { plan, stand })
    }

    /// Steps 3 to 7, for a stretch of pages.
    #[activity(name = "stargate.directive.pages")]
    pub(crate) async fn pages(
        self: Arc<Self>,
        ctx: ActivityContext,
        stretch: Stretch,
    ) -> Result<Stand, ActivityError> {
        if let Ok(Some(progress)) = ctx.heartbeat_details().deserialize::<Progress>() {
            // For the record: the cursor that counts is the store's.
            tracing::info!(agent = "meta-worker", directive = stretch.directive, run_id = %stretch.run,
                attempt = ctx.info().attempt, pages = progress.pages, cursor_version = progress.cursor_version,
                "taking up after the last heartbeat");
        }
        let directive = self.directive(&stretch.directive, &stretch.run).await?;
        self.execute(&ctx, directive, stretch).await
    }

    /// Records how a run ended whose workflow was cancelled or has failed. The answer is how it ended, whoever said so;
    /// none if it had never begun.
    #[activity(name = "stargate.directive.end")]
    pub(crate) async fn end(
        self: Arc<Self>,
        _ctx: ActivityContext,
        close: Close,
    ) -> Result<Option<Summary>, ActivityError> {
        let store = self.host.store();
        let retry = |error: stargate_queue::Error| failure::wait(HEARTBEAT_EVERY, &error.into());
        let Some(run) = store.run(&close.run).await.map_err(retry)? else {
            tracing::info!(agent = "meta-worker", directive = close.directive, run_id = %close.run,
                outcome = close.outcome.as_str(), "the workflow ends before its run began");
            return Ok(None);
        };
        if run.outcome.is_none() {
            let end = End { outcome: close.outcome, error: close.error };
            steps::end_abandoned(&store, &run, end).await.map_err(retry)?;
        }
        let run = store.run(&close.run).await.map_err(retry)?.unwrap_or(run);
        Ok(run.outcome.map(|outcome| Summary::of(&run, outcome)))
    }
}

/// One run of a directive at a time is kept by the workflow's id: under another one, two would end each other's runs.
fn check_name(ctx: &ActivityContext, of: &Of) -> Result<(), ActivityError> {
    let expected = workflow_id(&of.directive);
    match ctx.info().workflow_id.as_deref() {
        Some(found) if found != expected => {
            let message =
                format!("a workflow of directive {} has the id {expected}, not {found}", of.directive);
            Err(failure::fatal(&Trouble::new(ErrorClass::Fatal, WORKFLOW_ID, message)))
        }
        _ => Ok(()),
    }
}

impl Activities {
    fn plan_of(&self, directive: &Directive) -> Plan {
        let fetch = match &directive.source {
            Source::Activity(source) => Some(Fetch {
                activity: source.activity.clone(),
                task_queue: source.task_queue.clone(),
                args: source.args.clone(),
                retry: Retry {
                    first_ms: millis(directive.retry.transient.first),
                    factor: directive.retry.transient.factor,
                    cap_ms: millis(directive.retry.transient.cap),
                    attempts_max: directive.retry.transient_max.map_or(0, |most| most.saturating_add(1)),
                },
            }),
            _ => None,
        };
        // A tap begins anew whenever it is started: it is not started for every few pages.
        let is_whole = matches!(directive.source, Source::Singer(_));
        Plan {
            tenant: directive.tenant.clone(),
            project: directive.project.clone(),
            searchable: self.searchable,
            heartbeat_ms: millis(directive.heartbeat),
            page_size: directive.page_size,
            pages_per_activity: (!is_whole).then_some(self.pages_per_activity),
            history_events_max: self.history_events_max,
            fetch,
        }
    }

    /// The directive as it is now. A run whose directive is gone or broken cannot go on: it fails, if it had begun.
    async fn directive(&self, name: &str, run: &RunId) -> Result<Directive, ActivityError> {
        let trouble = match self.host.plan(name) {
            Ok(directive) => return Ok(directive),
            Err(trouble) => trouble,
        };
        tracing::error!(agent = "meta-worker", severity = "FATAL", directive = name, run_id = %run,
            code = trouble.code, error = trouble.message, "the directive cannot be read");
        Err(self.fail(run, &trouble).await)
    }

    /// Records that a run failed outside its steps.
    async fn fail(&self, run: &RunId, trouble: &Trouble) -> ActivityError {
        let store = self.host.store();
        let error = Some(format!("{}: {}", trouble.code, trouble.message));
        let end = End { outcome: Outcome::Failed, error };
        let ended = match store.run(run).await {
            Ok(Some(run)) if run.outcome.is_none() => steps::end_abandoned(&store, &run, end).await.map(drop),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        match ended {
            Ok(()) => failure::fatal(trouble),
            // Then the outcome is still to be recorded.
            Err(error) => failure::wait(HEARTBEAT_EVERY, &error.into()),
        }
    }

    async fn execute(
        &self,
        ctx: &ActivityContext,
        directive: Directive,
        stretch: Stretch,
    ) -> Result<Stand, ActivityError> {
        let assignment = self.host.assignment(directive, stretch.run.clone(), ctx.info().attempt);
        let mut assignment = match assignment {
            Ok(assignment) => assignment,
            Err(trouble) => return Err(self.fail(&stretch.run, &trouble).await),
        };
        let stopping = CancellationToken::new();
        // Until it knows better it says what the execution before it said last.
        let last = ctx.heartbeat_details().deserialize::<Progress>().ok().flatten();
        let (progress, told) = watch::channel(last.unwrap_or_default());
        assignment.progress = Some(progress);
        assignment.pages_max = stretch.pages_max;
        assignment.page_size = stretch.page_size;
        let given = stretch
            .page
            .map(|given| Arc::new(GivenSources::new(given, assignment.sources.clone(), stopping.clone())));
        if let Some(given) = &given {
            assignment.sources = given.clone();
            assignment.pages_max = Some(1);
        }
        let ended = self.beating(ctx, assignment, &stopping, told.clone()).await;
        let progress = told.borrow().clone();
        match ended {
            Ended::Finished(run) => {
                Ok(Stand::Ended(Summary::of(&run, run.outcome.unwrap_or(Outcome::Succeeded))))
            }
            Ended::More(progress) => Ok(Stand::More(*progress)),
            Ended::Stopped if given.is_some_and(|given| given.is_past()) => Ok(Stand::More(progress)),
            // Why it is cancelled is not known here: the workflow knows.
            Ended::Stopped if ctx.is_cancelled() && !self.stop.is_cancelled() => {
                Err(ActivityError::cancelled_with_details(progress))
            }
            Ended::Stopped => Err(failure::stopped()),
            Ended::Wait { after, trouble } => {
                stargate_directive::metrics::retry(&trouble.code, trouble.class);
                Err(failure::wait(after, &trouble))
            }
            Ended::Failed(trouble) => Err(failure::fatal(&trouble)),
        }
    }

    /// Executes the steps, tells the cluster how far they are, and stops them when it says so.
    async fn beating(
        &self,
        ctx: &ActivityContext,
        assignment: Assignment,
        stopping: &CancellationToken,
        mut told: watch::Receiver<Progress>,
    ) -> Ended {
        let never = || false;
        let mut work = std::pin::pin!(steps::execute(assignment, stopping, &never));
        let mut beat = tokio::time::interval(HEARTBEAT_EVERY);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                ended = &mut work => return ended,
                () = ctx.cancelled(), if !stopping.is_cancelled() => stopping.cancel(),
                () = self.stop.cancelled(), if !stopping.is_cancelled() => stopping.cancel(),
                _ = told.changed(), if told.has_changed().is_ok() => {}
                _ = beat.tick() => {}
            }
            let progress = told.borrow_and_update().clone();
            if let Err(error) = ctx.record_heartbeat(progress).await {
                tracing::warn!(agent = "meta-worker", %error, "a heartbeat could not be written");
            }
        }
    }

    /// Other runs of the directive on this engine: their workflow has the same id as ours, so it has ended, and without
    /// them. Nobody goes on with them, and their leases would only be in the way.
    async fn end_orphans(&self, of: &Of) {
        let store = self.host.store();
        let Ok(runs) = store.runs(Some(&of.directive), None, ORPHANS_MAX).await else { return };
        for run in runs.iter().filter(|run| run.outcome.is_none() && run.id != of.run && run.engine == ENGINE)
        {
            let error = Some(format!("{RUN_ABANDONED}: the workflow of the run ended without it"));
            let end = End { outcome: Outcome::Failed, error };
            if let Err(error) = steps::end_abandoned(&store, run, end).await {
                tracing::warn!(run_id = %run.id, %error, "a run that nobody goes on with could not be ended");
            }
        }
    }
}
