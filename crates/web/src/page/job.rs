//! One job: why it failed or waits first, then what can be done, then all there is to know.

use askama::Template;
use axum::extract::Path;
use axum::http::{Method, StatusCode};
use serde::Serialize;
use serde_json::value::RawValue;

use super::call::{Answer, Failed, parse};
use super::fields::Sent;
use super::frame::{Frame, Shown, Visit, ask};
use super::html::{self, Html, encode};
use super::json;
use super::timeline::{self, Attempt, Line};
use crate::api::types::{Cancelled, EventPage, Explanation, Job};

/// Events that are shown; the API has the rest.
const EVENTS_SHOWN: usize = 1000;

#[derive(Template)]
#[template(path = "job.html")]
struct JobDetail {
    frame: Frame,
    job: Job,
    explanation: Option<Explanation>,
    attempts: Vec<Attempt>,
    lines: Vec<Line>,
    more_events: bool,
    payload: Html,
    payload_bytes: usize,
    result: Option<Html>,
    took: Option<String>,
    waited: Option<String>,
    announce: String,
    is_open: bool,
}

/// `GET /jobs/{id}`
pub(crate) async fn show(visit: Visit, Path(id): Path<String>) -> Shown {
    let path = format!("/jobs/{}", encode(&id));
    let events_path = format!("{path}/events?limit={EVENTS_SHOWN}");
    let explain_path = format!("{path}/explain");
    let api = &visit.api;
    let (job, events, explanation) = futures::join!(
        api.bytes(&path),
        api.get::<EventPage>(&events_path),
        api.get::<Explanation>(&explain_path)
    );
    // Its events come with it, but only the last.
    let job: Job = ask!(visit, job.and_then(|bytes| parse(&bytes)));
    let events = ask!(visit, events).events;
    let is_open = matches!(job.state.as_str(), "queued" | "processing");
    let page = JobDetail {
        frame: visit.frame(format!("Job {}", job.id), "/jobs"),
        explanation: explanation.ok().filter(|_| is_open),
        attempts: timeline::attempts(&events),
        more_events: events.len() >= EVENTS_SHOWN,
        lines: timeline::lines(&events),
        payload: json::pretty(job.payload.get()),
        payload_bytes: job.payload.get().len(),
        result: job.result.as_ref().map(|result| json::pretty(result.get())),
        took: job.started_at.as_ref().zip(job.finished_at.as_ref()).map(|(from, to)| html::between(from, to)),
        waited: job
            .started_at
            .as_ref()
            .filter(|at| **at >= job.run_at)
            .map(|at| html::between(&job.run_at, at)),
        announce: match job.state.as_str() {
            "processing" => format!("Job {} is running", job.id),
            state => format!("Job {} is {state}", job.id),
        },
        is_open,
        job,
    };
    visit.show(&page)
}

#[derive(Template)]
#[template(path = "job_edit.html")]
struct Edit {
    frame: Frame,
    job: Job,
    payload: String,
    problem: Option<Failed>,
    hidden: bool,
}

/// `GET /jobs/{id}/retry`: with another payload.
pub(crate) async fn edit(visit: Visit, Path(id): Path<String>) -> Shown {
    let job: Job = ask!(visit, visit.api.get(&format!("/jobs/{}", encode(&id))).await);
    let payload = json::indented(job.payload.get());
    edit_form(&visit, job, payload, None)
}

fn edit_form(visit: &Visit, job: Job, payload: String, problem: Option<Failed>) -> Shown {
    let status = problem.as_ref().map_or(StatusCode::OK, |problem| problem.status);
    let page = Edit {
        frame: visit.frame(format!("Edit and retry job {}", job.id), "/jobs"),
        // Whoever does not see all of it would replace what they do not see.
        hidden: job.payload.get().contains("\"[redacted]\""),
        job,
        payload,
        problem,
    };
    Ok(visit.show_as(status, &page))
}

#[derive(Serialize)]
struct Retry<'a> {
    payload: &'a RawValue,
}

/// `POST /jobs/{id}/retry`, with a payload or without.
pub(crate) async fn retry(visit: Visit, Path(id): Path<String>, Sent(fields): Sent) -> Shown {
    let path = format!("/jobs/{}", encode(&id));
    let Some(text) = fields.get("payload") else {
        let done: Answer<Job> = visit.api.post(&format!("{path}/retry")).await;
        return visit.after(&path, done, |job| format!("Job {} runs again.", job.id));
    };
    match retry_edited(&visit, &path, text).await {
        Ok(job) => visit.done(&path, format!("Job {} runs again, with the new payload.", job.id)),
        Err(failed) => {
            let job: Job = ask!(visit, visit.api.get(&path).await);
            edit_form(&visit, job, text.to_owned(), Some(failed))
        }
    }
}

async fn retry_edited(visit: &Visit, path: &str, text: &str) -> Answer<Job> {
    let payload: &RawValue = serde_json::from_str(text)
        .map_err(|error| Failed::invalid(format!("the payload is not JSON: {error}")))?;
    visit.api.change(Method::POST, &format!("{path}/retry"), &Retry { payload }).await
}

#[derive(Template)]
#[template(path = "confirm.html")]
pub(crate) struct Confirm {
    pub(crate) frame: Frame,
    pub(crate) what: String,
    pub(crate) consequence: String,
    pub(crate) action: String,
    pub(crate) button: &'static str,
    pub(crate) is_danger: bool,
    pub(crate) fields: Vec<(&'static str, String)>,
    pub(crate) back: String,
    pub(crate) twin: String,
}

/// `GET /jobs/{id}/cancel`
pub(crate) async fn ask_cancel(visit: Visit, Path(id): Path<String>) -> Shown {
    let job: Job = ask!(visit, visit.api.get(&format!("/jobs/{}", encode(&id))).await);
    let consequence = match job.state.as_str() {
        "queued" => {
            "It ends at once and does not come back. Jobs that wait for it fail with DEPENDENCY_FAILED."
        }
        "processing" => "Its worker is asked to stop it, which can take as long as a heartbeat.",
        _ => "It has ended already, so there is nothing to cancel.",
    };
    let page = Confirm {
        frame: visit.frame(format!("Cancel job {}", job.id), "/jobs"),
        what: format!("Job {}, {} in {}, is {}.", job.id, job.kind, job.queue, job.state),
        consequence: consequence.to_owned(),
        action: format!("/jobs/{}/cancel", job.id),
        button: "Cancel the job",
        is_danger: true,
        fields: Vec::new(),
        back: format!("/jobs/{}", job.id),
        twin: format!("stargate job cancel {}", job.id),
    };
    visit.show(&page)
}

/// `POST /jobs/{id}/cancel`
pub(crate) async fn cancel(visit: Visit, Path(id): Path<String>) -> Shown {
    let path = format!("/jobs/{}", encode(&id));
    let done: Answer<Cancelled> = visit.api.post(&format!("{path}/cancel")).await;
    visit.after(&path, done, |done| match done.outcome.as_str() {
        "ended" => format!("Job {} is cancelled.", done.id),
        _ => format!("The worker of job {} has been asked to stop it.", done.id),
    })
}
