//! Pages of an activity in another language.

use stargate_directive::Pointer;
use temporalio_common::ActivityDefinition;
use temporalio_common::error::IncomingError;
use temporalio_sdk::workflows::select;
use temporalio_sdk::{ActivityExecutionError, ApplicationFailure};

use super::{Context, Stop, options, or_paused};
use crate::plan::{Ask, Details, Fetch, Fetched, Given, Of, Plan};

/// What a page may take. The cluster refuses what is larger than 2 MiB, and the page travels on with a few words around
/// it.
const PAGE_BYTES_MAX: usize = 1_500_000;

/// An activity whose name stands in a directive.
struct Foreign(String);

impl ActivityDefinition for Foreign {
    type Input = Ask;
    type Output = Fetched;

    fn name(&self) -> &str {
        &self.0
    }
}

/// The page at the cursor; none if a pause came between. A page that is too large is asked for again with half as many
/// records.
pub(super) async fn page(
    ctx: &mut Context,
    of: &Of,
    plan: &Plan,
    source: &Fetch,
) -> Result<Option<Given>, Stop> {
    loop {
        let (from, size) = ctx.state(|state| {
            (state.progress.pointer.clone(), state.page_size.unwrap_or(plan.page_size).max(1))
        });
        let fetched = match ask(ctx, of, plan, source, from.clone(), size).await {
            Asked::Page(page) if page.bytes() <= PAGE_BYTES_MAX => page,
            Asked::Page(_) | Asked::TooLarge if size > 1 => {
                ctx.state_mut(|state| state.page_size = Some(size / 2));
                continue;
            }
            Asked::Page(_) | Asked::TooLarge => {
                let message = format!(
                    "one record of activity {} is larger than {PAGE_BYTES_MAX} bytes",
                    source.activity
                );
                return Err(failed("SOURCE_TOO_LARGE", message));
            }
            Asked::Broken => return Ok(None),
            Asked::Stop(stop) => return Err(stop),
        };
        check(source, &from, &fetched)?;
        return Ok(Some(Given { from, page: fetched }));
    }
}

enum Asked {
    Page(Fetched),
    TooLarge,
    /// A pause came between.
    Broken,
    Stop(Stop),
}

async fn ask(
    ctx: &mut Context,
    of: &Of,
    plan: &Plan,
    source: &Fetch,
    pointer: Pointer,
    page_size: u32,
) -> Asked {
    let ask = Ask {
        directive: of.directive.clone(),
        tenant: plan.tenant.clone(),
        project: plan.project.clone(),
        args: source.args.clone(),
        pointer,
        page_size,
    };
    let breaking = ctx.cancellation_token().child_token();
    let options = options::fetch(source, plan, breaking.clone());
    let mut work = std::pin::pin!(ctx.execute_activity(Foreign(source.activity.clone()), ask, options));
    let worked = select! {
        worked = work => worked,
        _ = ctx.wait_condition(|state| state.paused) => {
            breaking.cancel();
            work.await
        }
    };
    match worked {
        Err(error) if is_too_large(&error) => Asked::TooLarge,
        Err(ActivityExecutionError::Serialization(error)) => {
            let message =
                format!("activity {} answered something else than a page: {error}", source.activity);
            Asked::Stop(failed("SOURCE_SHAPE", message))
        }
        worked => match or_paused(ctx, &breaking, worked) {
            Ok(Some(page)) => Asked::Page(page),
            Ok(None) => Asked::Broken,
            Err(stop) => Asked::Stop(stop),
        },
    }
}

/// Refuses a page after which nobody could go on.
fn check(source: &Fetch, from: &Pointer, page: &Fetched) -> Result<(), Stop> {
    match &page.next {
        _ if page.is_last => Ok(()),
        None => {
            let message = format!(
                "activity {} says neither where to go on nor that it is the last page",
                source.activity
            );
            Err(failed("SOURCE_SHAPE", message))
        }
        Some(next) if next == from => {
            let message = format!("activity {} says that the page after {from} is itself", source.activity);
            Err(failed("SOURCE_LOOP", message))
        }
        Some(_) => Ok(()),
    }
}

fn failed(code: &str, message: String) -> Stop {
    let class = "ValidationFailure";
    let failure = ApplicationFailure::builder(format!("{code}: {message}"))
        .type_name(class.to_owned())
        .non_retryable(true)
        .details(Details { code: code.to_owned(), class: class.to_owned() })
        .build();
    Stop::Failed(Box::new(failure.into()))
}

/// Whether the answer did not get through the cluster: its worker says so, or the cluster itself.
fn is_too_large(error: &ActivityExecutionError) -> bool {
    let mut cause = error.cause();
    while let Some(error) = cause {
        let is_so = match error {
            IncomingError::Application(failure) => failure.type_name() == Some(options::TOO_LARGE),
            IncomingError::Server(_) => error.to_string().contains("exceeds size limit"),
            _ => false,
        };
        if is_so {
            return true;
        }
        cause = error.cause();
    }
    false
}
