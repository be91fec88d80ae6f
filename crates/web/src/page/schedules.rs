//! Schedules: in words, with their next times.

use askama::Template;
use axum::extract::Path;
use axum::http::Method;
use serde::Serialize;
use serde_json::value::RawValue;

use super::call::{Answer, Failed};
use super::fields::{Fields, Sent};
use super::frame::{Frame, Shown, Visit, ask};
use super::html::{self, encode, word};
use super::job::Confirm;
use super::json;
use crate::api::types::Enqueued;
use crate::api::types::plans::{Removed, Schedule, Schedules};

const HERE: &str = "/schedules";

#[derive(Template)]
#[template(path = "schedules.html")]
struct SchedulesPage {
    frame: Frame,
    schedules: Vec<Schedule>,
    asked: Fields,
    problem: Option<Failed>,
}

/// `GET /schedules`
pub(crate) async fn show(visit: Visit) -> Shown {
    page(visit, Fields::default(), None).await
}

async fn page(visit: Visit, asked: Fields, problem: Option<Failed>) -> Shown {
    let schedules = ask!(visit, visit.api.get::<Schedules>("/schedules").await).schedules;
    let status = problem.as_ref().map_or(axum::http::StatusCode::OK, |problem| problem.status);
    let page = SchedulesPage { frame: visit.frame("Schedules", HERE), schedules, asked, problem };
    Ok(visit.show_as(status, &page))
}

#[derive(Serialize)]
struct NewSchedule<'a> {
    cron: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_zone: Option<&'a str>,
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<&'a str>,
    payload: &'a RawValue,
}

/// `POST /schedules`
pub(crate) async fn put(visit: Visit, Sent(fields): Sent) -> Shown {
    match try_put(&visit, &fields).await {
        Ok(done) => visit.done(HERE, format!("The schedule {} is kept: {}.", done.name, done.description)),
        Err(failed) => page(visit, fields, Some(failed)).await,
    }
}

async fn try_put(visit: &Visit, fields: &Fields) -> Answer<Schedule> {
    let payload: &RawValue = serde_json::from_str(fields.get("payload").unwrap_or("{}"))
        .map_err(|error| Failed::invalid(format!("the payload is not JSON: {error}")))?;
    let new = NewSchedule {
        cron: fields.text("cron"),
        time_zone: fields.get("time_zone"),
        kind: fields.text("kind"),
        queue: fields.get("queue"),
        payload,
    };
    visit.api.change(Method::PUT, &format!("/schedules/{}", encode(fields.text("name"))), &new).await
}

/// `POST /schedules/{name}/fire`
pub(crate) async fn fire(visit: Visit, Path(name): Path<String>) -> Shown {
    match visit.api.post::<Enqueued>(&format!("/schedules/{}/fire", encode(&name))).await {
        Ok(done) => {
            visit.done(&format!("/jobs/{}", done.id), format!("The schedule {name} was fired by hand."))
        }
        Err(failed) => visit.refused(HERE, &failed),
    }
}

/// `GET /schedules/{name}/remove`
pub(crate) async fn ask_remove(visit: Visit, Path(name): Path<String>) -> Shown {
    let page = Confirm {
        frame: visit.frame(format!("Remove the schedule {name}"), HERE),
        what: format!("The schedule {name} is removed."),
        consequence: "It enqueues no more jobs. Jobs that it enqueued before stay as they are.".to_owned(),
        action: format!("/schedules/{}/remove", encode(&name)),
        button: "Remove the schedule",
        is_danger: true,
        fields: Vec::new(),
        back: HERE.to_owned(),
        twin: format!("stargate schedule remove {}", word(&name)),
    };
    visit.show(&page)
}

/// `POST /schedules/{name}/remove`
pub(crate) async fn remove(visit: Visit, Path(name): Path<String>) -> Shown {
    let done: Answer<Removed> = visit.api.delete(&format!("/schedules/{}", encode(&name))).await;
    visit.after(HERE, done, |done| format!("The schedule {} is removed.", done.name))
}
