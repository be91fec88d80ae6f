//! The workflow of a directive. It decides only by its input, the answers of activities and signals, so that it comes to
//! the same whenever its history is replayed.

mod fetch;
mod options;
mod scheduled;

use stargate_directive::pace::PAGE_SIZE;
use stargate_directive::steps::Progress;
use stargate_directive::{Cursor, Outcome, RunId};
use temporalio_common::error::IncomingError;
use temporalio_macros::{workflow, workflow_methods};
use temporalio_sdk::workflows::select;
use temporalio_sdk::{
    ActivityExecutionError, ApplicationFailure, ContinueAsNewOptions, SyncWorkflowContext,
    WorkflowCancellationToken, WorkflowContext, WorkflowContextView, WorkflowResult, WorkflowTermination,
};

use crate::activities::Activities;
use crate::failure;
use crate::plan::{Begun, Close, Input, Of, Plan, Stand, Stretch, Summary};
use crate::{search, steps_queue};

pub use self::scheduled::ScheduledWorkflow;

type Context = WorkflowContext<DirectiveWorkflow>;

/// The workflow of a directive.
#[workflow]
pub struct DirectiveWorkflow {
    directive: String,
    paused: bool,
    /// Records of a page, if somebody wants another number than the directive.
    page_size: Option<u32>,
    progress: Progress,
}

#[workflow_methods]
impl DirectiveWorkflow {
    /// Takes its input.
    #[init]
    pub fn new(_: &WorkflowContextView, input: Input) -> Self {
        Self {
            directive: input.directive,
            paused: input.paused,
            page_size: input.page_size,
            progress: input.progress.unwrap_or_default(),
        }
    }

    /// Carries a run to its end.
    #[run(name = "stargate.directive")]
    pub async fn run(ctx: &mut WorkflowContext<Self>) -> WorkflowResult<Summary> {
        let of = Of {
            directive: ctx.state(|state| state.directive.clone()),
            run: RunId(ctx.info().first_execution_run_id().to_owned()),
        };
        match carry(ctx, &of).await {
            Ok(summary) => close(summary),
            Err(Stop::Leave(termination)) => Err(termination),
            Err(Stop::Cancelled) => abandon(ctx, &of, None).await,
            Err(Stop::Failed(error)) => abandon(ctx, &of, Some(*error)).await,
        }
    }

    /// Stops after the batch that is being written, until `resume`.
    #[signal(name = "pause")]
    pub fn pause(&mut self, _: &mut SyncWorkflowContext<Self>) {
        self.paused = true;
    }

    /// Goes on after `pause`.
    #[signal(name = "resume")]
    pub fn resume(&mut self, _: &mut SyncWorkflowContext<Self>) {
        self.paused = false;
    }

    /// Asks for pages of so many records from the next stretch on.
    #[signal(name = "page_size")]
    pub fn page_size(&mut self, _: &mut SyncWorkflowContext<Self>, records: u32) {
        self.page_size = Some(records.clamp(1, *PAGE_SIZE.end()));
    }

    /// How far the run was after its last stretch.
    #[query(name = "progress")]
    pub fn progress(&self, _: &WorkflowContextView) -> Progress {
        self.progress.clone()
    }

    /// The cursor after its last stretch.
    #[query(name = "cursor")]
    pub fn cursor(&self, _: &WorkflowContextView) -> Option<Cursor> {
        self.progress.cursor.clone()
    }

    /// Whether it waits for `resume`.
    #[query(name = "paused")]
    pub fn paused(&self, _: &WorkflowContextView) -> bool {
        self.paused
    }
}

impl DirectiveWorkflow {
    /// A stretch that was broken off before it had read the cursor knows less than what is known.
    fn came_to(&mut self, progress: Progress) {
        if progress.cursor_version >= self.progress.cursor_version && progress.pages >= self.progress.pages {
            self.progress = progress;
        }
    }
}

/// Why a run is not carried further.
enum Stop {
    /// Somebody cancelled the workflow.
    Cancelled,
    /// An activity failed for good.
    Failed(Box<WorkflowTermination>),
    /// The workflow ends without the run: it continues as new.
    Leave(WorkflowTermination),
}

async fn carry(ctx: &mut Context, of: &Of) -> Result<Summary, Stop> {
    let Begun { plan, mut stand } = begin(ctx, of).await?;
    set_search_attributes(ctx, of, &plan);
    loop {
        match stand {
            Stand::Ended(summary) => return Ok(summary),
            Stand::More(progress) => ctx.state_mut(|state| state.progress = progress),
        }
        stand = loop {
            wait_while_paused(ctx).await?;
            continue_if_long(ctx, &plan)?;
            // A stretch that was broken off by a pause says how far it came; the next one finds it out anyway.
            if let Some(stand) = stretch(ctx, of, &plan).await? {
                break stand;
            }
        };
    }
}

async fn begin(ctx: &mut Context, of: &Of) -> Result<Begun, Stop> {
    let options = options::begin(steps_queue(ctx.task_queue()));
    let begun = ctx.execute_activity(Activities::begin, of.clone(), options).await;
    begun.map_err(|error| stop(ctx, error))
}

/// What an activity's failure means for the workflow.
fn stop(ctx: &Context, error: ActivityExecutionError) -> Stop {
    match ctx.cancellation_token().is_cancelled() {
        true => Stop::Cancelled,
        false => Stop::Failed(Box::new(error.into())),
    }
}

/// So that runs are found by whose they are, whoever started them.
fn set_search_attributes(ctx: &Context, of: &Of, plan: &Plan) {
    if plan.searchable && !search::is_set(&ctx.search_attributes()) {
        ctx.upsert_search_attributes(search::values(&of.directive, plan));
    }
}

async fn wait_while_paused(ctx: &Context) -> Result<(), Stop> {
    let resumed = ctx.wait_condition(|state| !state.paused).await;
    if resumed.is_err() || ctx.cancellation_token().is_cancelled() {
        return Err(Stop::Cancelled);
    }
    Ok(())
}

/// A long history makes each replay of it long.
fn continue_if_long(ctx: &Context, plan: &Plan) -> Result<(), Stop> {
    let is_long = plan.history_events_max.is_some_and(|most| ctx.history_length() >= most);
    if !is_long && !ctx.continue_as_new_suggested() {
        return Ok(());
    }
    let input = ctx.state(|state| Input {
        directive: state.directive.clone(),
        paused: state.paused,
        page_size: state.page_size,
        progress: Some(state.progress.clone()),
    });
    match ctx.continue_as_new(input, ContinueAsNewOptions::default()) {
        Err(termination) => Err(Stop::Leave(termination)),
        Ok(never) => match never {},
    }
}

/// The next pages; none if a pause broke them off.
async fn stretch(ctx: &mut Context, of: &Of, plan: &Plan) -> Result<Option<Stand>, Stop> {
    let page = match &plan.fetch {
        None => None,
        Some(source) => match fetch::page(ctx, of, plan, source).await? {
            Some(page) => Some(page),
            None => return Ok(None),
        },
    };
    let stretch = Stretch {
        directive: of.directive.clone(),
        run: of.run.clone(),
        pages_max: plan.pages_per_activity,
        page_size: ctx.state(|state| state.page_size),
        page,
    };
    let breaking = ctx.cancellation_token().child_token();
    let options = options::pages(steps_queue(ctx.task_queue()), plan, breaking.clone());
    let mut work = std::pin::pin!(ctx.execute_activity(Activities::pages, stretch, options));
    let worked = select! {
        worked = work => worked,
        _ = ctx.wait_condition(|state| state.paused) => {
            breaking.cancel();
            work.await
        }
    };
    if let Err(ActivityExecutionError::Cancelled(cancelled)) = &worked
        && let Ok(Some(progress)) = cancelled.details::<Progress>()
    {
        ctx.state_mut(|state| state.came_to(progress));
    }
    or_paused(ctx, &breaking, worked)
}

/// A stretch or a page, or none if a pause broke it off.
fn or_paused<T>(
    ctx: &Context,
    breaking: &WorkflowCancellationToken,
    worked: Result<T, ActivityExecutionError>,
) -> Result<Option<T>, Stop> {
    match worked {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if ctx.cancellation_token().is_cancelled() => Err(stop(ctx, error)),
        Err(error) if breaking.is_cancelled() && !is_final(&error) => Ok(None),
        Err(error) => Err(stop(ctx, error)),
    }
}

/// Whether a failure is the end of a run, whatever came between.
fn is_final(error: &ActivityExecutionError) -> bool {
    matches!(error.cause(), Some(IncomingError::Application(failure)) if failure.is_non_retryable())
}

/// The end of a workflow whose run has ended.
fn close(summary: Summary) -> WorkflowResult<Summary> {
    match summary.outcome {
        Outcome::Succeeded => Ok(summary),
        Outcome::Cancelled => Err(WorkflowTermination::cancelled_with_details(summary)),
        Outcome::Failed => {
            let error = summary.error.unwrap_or_default();
            Err(ApplicationFailure::non_retryable(error).into())
        }
    }
}

/// Records the end of a run that is carried no further, whatever happens to the workflow meanwhile.
async fn abandon(ctx: &mut Context, of: &Of, failed: Option<WorkflowTermination>) -> WorkflowResult<Summary> {
    let (outcome, error) = match &failed {
        None => (Outcome::Cancelled, None),
        Some(termination) => (Outcome::Failed, Some(failure::cut(stargate_base::chain(termination)))),
    };
    let close_as = Close { directive: of.directive.clone(), run: of.run.clone(), outcome, error };
    let options = options::end(steps_queue(ctx.task_queue()));
    let ended = ctx.execute_activity(Activities::end, close_as, options).await?;
    match (failed, ended) {
        (Some(termination), _) => Err(termination),
        // The run may have come to its end while it was being cancelled.
        (None, Some(summary)) => close(summary),
        (None, None) => Err(WorkflowTermination::cancelled()),
    }
}
