//! One run of a directive: where it is, what it wrote, why it waits.

use askama::Template;
use axum::extract::Path;

use super::call::Answer;
use super::frame::{Frame, Shown, Visit, ask};
use super::html::{self, Html, encode};
use super::json;
use crate::api::types::directives::Run;

/// The steps, in their order.
const STEPS: [&str; 7] = [
    "AcquireContext",
    "ResolveCursor",
    "FetchSourceData",
    "Transform",
    "Persist",
    "AdvanceCursor",
    "Finalize",
];

/// A step and how it stands.
struct Step {
    name: &'static str,
    class: &'static str,
}

fn steps(run: &Run) -> Vec<Step> {
    let at = run.step.as_deref().and_then(|step| STEPS.iter().position(|name| *name == step));
    let class = |index: usize| match (run.outcome.as_deref(), at) {
        (Some("succeeded"), _) => "past",
        (_, Some(at)) if index < at => "past",
        (None, Some(at)) if index == at => "now",
        (Some(_), Some(at)) if index == at => "stuck",
        _ => "",
    };
    STEPS.iter().enumerate().map(|(index, name)| Step { name, class: class(index) }).collect()
}

#[derive(Template)]
#[template(path = "run.html")]
struct RunPage {
    frame: Frame,
    steps: Vec<Step>,
    cursor: Option<Html>,
    took: String,
    /// The job it is, if it is one.
    job: Option<String>,
    run: Run,
    announce: String,
}

/// `GET /runs/{id}`
pub(crate) async fn show(visit: Visit, Path(id): Path<String>) -> Shown {
    let run: Run = ask!(visit, visit.api.get(&format!("/runs/{}", encode(&id))).await);
    let frame = visit.frame(format!("Run of {}", run.directive), "/directives");
    let page = RunPage {
        steps: steps(&run),
        cursor: run.cursor.as_ref().map(|cursor| json::pretty(cursor.get())),
        took: html::between(&run.started_at, &run.ended_at.unwrap_or(frame.now)),
        job: Some(run.workflow_id.clone())
            .filter(|id| run.engine == "embedded" && id.bytes().all(|byte| byte.is_ascii_digit())),
        announce: run.outcome.as_deref().map_or_else(
            || format!("Run of {} goes on", run.directive),
            |outcome| format!("Run of {} has {outcome}", run.directive),
        ),
        run,
        frame,
    };
    visit.show(&page)
}

/// `POST /runs/{id}/cancel`
pub(crate) async fn cancel(visit: Visit, Path(id): Path<String>) -> Shown {
    let path = format!("/runs/{}", encode(&id));
    let done: Answer<Run> = visit.api.post(&format!("{path}/cancel")).await;
    visit.after(&path, done, |run| format!("Run {} was asked to stop where its cursor is.", run.run_id))
}
