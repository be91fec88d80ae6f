//! Many jobs at once: first what would be done, with a sample, then the button.

use askama::Template;
use axum::http::Method;
use serde::Serialize;

use super::call::{Answer, Failed};
use super::fields::{Fields, Sent};
use super::frame::{Frame, Shown, Visit, ask};
use super::html::{self, counted, word};
use super::jobs::{Filter, Row};
use crate::api::types::bulk::BulkDone;

/// The most that is done at once.
const LIMIT: u32 = 10_000;

/// What the API takes; its own type reads, and does not write.
#[derive(Debug, Serialize)]
struct Body<'a> {
    action: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<serde_json::Map<String, serde_json::Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ids: Option<Vec<i64>>,
    limit: u32,
    dry_run: bool,
    glance: bool,
}

/// What was asked for.
#[derive(Debug)]
struct Asked {
    action: &'static str,
    ids: Vec<i64>,
    filter: Filter,
}

impl Asked {
    fn of(fields: &Fields) -> Answer<Self> {
        let action = match fields.text("action") {
            "retry" => "retry",
            "cancel" => "cancel",
            other => {
                return Err(Failed::invalid(format!(
                    "there is no action {other:?}; there are retry and cancel"
                )));
            }
        };
        let number =
            |text: &str| text.parse().map_err(|_| Failed::invalid(format!("{text:?} is not a job's id")));
        let ids = fields.all("ids").map(number).collect::<Answer<Vec<i64>>>()?;
        if ids.is_empty() && fields.get("all").is_none() {
            return Err(Failed::invalid("select at least one job, or take all that match"));
        }
        Ok(Self { action, ids, filter: Filter::of(fields) })
    }

    async fn send(&self, visit: &Visit, dry_run: bool) -> Answer<BulkDone> {
        let all = self.ids.is_empty();
        let filter = all.then(|| {
            let pairs = self.filter.pairs().into_iter();
            pairs.map(|(name, value)| (name.to_owned(), value.into())).collect()
        });
        let ids = (!all).then(|| self.ids.clone());
        let body = Body { action: self.action, filter, ids, limit: LIMIT, dry_run, glance: dry_run };
        match dry_run {
            true => visit.api.look("/jobs/bulk", &body).await,
            false => visit.api.change(Method::POST, "/jobs/bulk", &body).await,
        }
    }

    fn twin(&self) -> String {
        if self.ids.is_empty() {
            return format!("stargate job {}{} --yes", self.action, self.filter.options());
        }
        let ids: Vec<String> = self.ids.iter().map(ToString::to_string).collect();
        format!(
            "for id in {}; do stargate job {} \"$id\"; done",
            word(&ids.join(" ")).trim_matches('\''),
            self.action
        )
    }
}

#[derive(Template)]
#[template(path = "bulk.html")]
struct Preview {
    frame: Frame,
    asked: Asked,
    matched: u64,
    more: bool,
    /// Whether the look for them went to the end.
    scanned_all: bool,
    /// The most that is done at once.
    limit: u32,
    rows: Vec<Row>,
    twin: String,
    back: String,
}

/// `GET /jobs/bulk`
pub(crate) async fn preview(visit: Visit, fields: Fields) -> Shown {
    let asked = ask!(visit, Asked::of(&fields));
    let found = ask!(visit, asked.send(&visit, true).await);
    let title = match asked.action {
        "retry" => "Retry jobs",
        _ => "Cancel jobs",
    };
    let page = Preview {
        frame: visit.frame(title, "/jobs"),
        matched: found.matched,
        more: found.more,
        scanned_all: found.scanned_all,
        limit: LIMIT,
        rows: found.sample.into_iter().map(Row::of).collect(),
        twin: asked.twin(),
        back: format!("/jobs{}", asked.filter.query(&[])),
        asked,
    };
    visit.show(&page)
}

/// `POST /jobs/bulk`
pub(crate) async fn apply(visit: Visit, Sent(fields): Sent) -> Shown {
    let asked = ask!(visit, Asked::of(&fields));
    let back = format!("/jobs{}", asked.filter.query(&[]));
    let done = asked.send(&visit, false).await;
    visit.after(&back, done, |done| {
        let what = if asked.action == "retry" { "run again" } else { "cancelled, or asked to stop" };
        let more = if done.more { " More match: do it again." } else { "" };
        format!("{} of {} {what}.{more}", html::count(done.changed), counted(done.matched, "job", "jobs"))
    })
}
