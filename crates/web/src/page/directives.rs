//! Directives: what is read, where it stands, its runs, and what did not fit.

use askama::Template;
use axum::extract::Path;
use axum::http::{Method, StatusCode};
use serde::Serialize;
use serde_json::value::RawValue;

use super::call::{Answer, Failed};
use super::fields::{Fields, Sent};
use super::frame::{Frame, Shown, Visit, ask};
use super::html::{self, Html, counted, encode};
use super::json;
use crate::api::types::directives::{
    CursorDetail, CursorMoved, Directive, DirectiveDetail, Directives, Quarantine, QuarantineResolved,
    QuarantineRetried, Run, RunStarted, Runs,
};

const HERE: &str = "/directives";
/// Quarantined records that are shown.
const RECORDS: u32 = 50;

/// A directive with its newest run.
struct Row {
    directive: Directive,
    run: Option<Run>,
}

#[derive(Template)]
#[template(path = "directives.html")]
struct DirectiveList {
    frame: Frame,
    engine: String,
    rows: Vec<Row>,
}

/// `GET /directives`
pub(crate) async fn list(visit: Visit) -> Shown {
    let (found, runs) =
        futures::join!(visit.api.get::<Directives>("/directives"), visit.api.get::<Runs>("/runs?limit=200"));
    let found = ask!(visit, found);
    let mut runs = runs.map(|runs| runs.runs).unwrap_or_default();
    let row = |directive: Directive| {
        // Newest first, so the first is the newest of this one.
        let at = runs.iter().position(|run| run.directive == directive.name);
        Row { run: at.map(|at| runs.swap_remove(at)), directive }
    };
    let page = DirectiveList {
        frame: visit.frame("Directives", HERE),
        engine: found.engine,
        rows: found.directives.into_iter().map(row).collect(),
    };
    visit.show(&page)
}

/// A record that did not fit.
struct Record {
    id: i64,
    entity: String,
    cause: String,
    reason: String,
    seen: u64,
    at: Html,
    record: Html,
}

#[derive(Template)]
#[template(path = "directive.html")]
struct DirectivePage {
    frame: Frame,
    directive: DirectiveDetail,
    cursor: Option<Html>,
    partial: Option<Html>,
    records: Vec<Record>,
}

/// `GET /directives/{name}`
pub(crate) async fn show(visit: Visit, Path(name): Path<String>) -> Shown {
    let path = format!("/directives/{}", encode(&name));
    let records_path = format!("{path}/quarantine?limit={RECORDS}");
    let (directive, quarantine) =
        futures::join!(visit.api.get::<DirectiveDetail>(&path), visit.api.get::<Quarantine>(&records_path));
    let directive = ask!(visit, directive);
    let records = quarantine.map(|found| found.records).unwrap_or_default().into_iter().map(|found| Record {
        id: found.id,
        entity: found.entity_id.unwrap_or_else(|| "unknown".to_owned()),
        cause: found.cause,
        reason: found.reason,
        seen: found.seen,
        at: html::ago(&found.created_at),
        record: json::pretty(found.record.get()),
    });
    let page = DirectivePage {
        frame: visit.frame(&directive.name, HERE),
        records: records.collect(),
        cursor: directive.cursor.as_ref().map(|cursor| json::pretty(cursor.get())),
        partial: directive.partial.as_ref().map(|partial| json::pretty(partial.get())),
        directive,
    };
    visit.show(&page)
}

/// `POST /directives/{name}/run`
pub(crate) async fn run(visit: Visit, Path(name): Path<String>) -> Shown {
    let path = format!("/directives/{}", encode(&name));
    let done: Answer<RunStarted> = visit.api.post(&format!("{path}/runs")).await;
    visit.after(&path, done, |done| match done.existing {
        true => format!("Run {} goes on already.", done.run_id),
        false => format!("Run {} is asked for.", done.run_id),
    })
}

#[derive(Template)]
#[template(path = "cursor.html")]
struct CursorPage {
    frame: Frame,
    name: String,
    detail: CursorDetail,
    value: Option<Html>,
    pointer: String,
    spec_ref: String,
    version: u64,
    problem: Option<Failed>,
}

/// `GET /directives/{name}/cursor`
pub(crate) async fn edit_cursor(visit: Visit, Path(name): Path<String>) -> Shown {
    cursor_form(visit, name, &Fields::default(), None).await
}

async fn cursor_form(visit: Visit, name: String, sent: &Fields, problem: Option<Failed>) -> Shown {
    let detail: CursorDetail =
        ask!(visit, visit.api.get(&format!("/directives/{}/cursor", encode(&name))).await);
    let status = problem.as_ref().map_or(StatusCode::OK, |problem| problem.status);
    let page = CursorPage {
        frame: visit.frame(format!("Cursor of {name}"), HERE),
        value: detail.cursor.as_ref().map(|found| json::pretty(found.value.get())),
        version: detail.cursor.as_ref().map_or(0, |found| found.version),
        pointer: sent.text("pointer").to_owned(),
        spec_ref: sent.text("spec_ref").to_owned(),
        detail,
        name,
        problem,
    };
    Ok(visit.show_as(status, &page))
}

#[derive(Serialize)]
struct NewCursor<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pointer: Option<&'a RawValue>,
    beginning: bool,
    spec_ref: &'a str,
    expected_version: Option<u64>,
}

/// `POST /directives/{name}/cursor`
pub(crate) async fn move_cursor(visit: Visit, Path(name): Path<String>, Sent(fields): Sent) -> Shown {
    match try_move(&visit, &name, &fields).await {
        Ok(moved) => {
            let to = format!("/directives/{}", encode(&name));
            visit.done(
                &to,
                format!("The cursor of {} is moved; it has version {} now.", moved.directive, moved.version),
            )
        }
        Err(failed) => cursor_form(visit, name, &fields, Some(failed)).await,
    }
}

async fn try_move(visit: &Visit, name: &str, fields: &Fields) -> Answer<CursorMoved> {
    let beginning = fields.text("to") == "beginning";
    let pointer: Option<&RawValue> = match fields.get("pointer").filter(|_| !beginning) {
        Some(text) => Some(
            serde_json::from_str(text)
                .map_err(|error| Failed::invalid(format!("the pointer is not JSON: {error}")))?,
        ),
        None => None,
    };
    let body = NewCursor {
        pointer,
        beginning,
        spec_ref: fields.text("spec_ref"),
        expected_version: fields.number("expected_version")?,
    };
    visit.api.change(Method::PUT, &format!("/directives/{}/cursor", encode(name)), &body).await
}

#[derive(Serialize)]
struct RetryQuarantined {
    ids: Vec<i64>,
}

/// `POST /directives/{name}/quarantine/retry`
pub(crate) async fn retry_quarantined(visit: Visit, Path(name): Path<String>, Sent(fields): Sent) -> Shown {
    let path = format!("/directives/{}", encode(&name));
    let ids = fields.all("ids").filter_map(|id| id.parse().ok()).collect();
    let done: Answer<QuarantineRetried> =
        visit.api.change(Method::POST, &format!("{path}/quarantine/retry"), &RetryQuarantined { ids }).await;
    visit.after(&path, done, |done| {
        format!(
            "{} fit now, {} still do not.",
            counted(done.resolved, "record", "records"),
            html::count(done.failed)
        )
    })
}

/// `POST /directives/{name}/quarantine/{id}/resolve`
pub(crate) async fn resolve(visit: Visit, Path((name, id)): Path<(String, String)>) -> Shown {
    let done: Answer<QuarantineResolved> =
        visit.api.post(&format!("/quarantine/{}/resolve", encode(&id))).await;
    visit.after(&format!("/directives/{}", encode(&name)), done, |done| {
        format!("Record {} counts as dealt with.", done.id)
    })
}
