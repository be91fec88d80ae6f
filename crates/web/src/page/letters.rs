//! What was given up: failed jobs and entries of mirrors, by cause, and how to have them run again.

use askama::Template;
use axum::http::Method;
use serde::Serialize;

use super::call::{Answer, Failed};
use super::fields::{Fields, Sent};
use super::frame::{Frame, Shown, Visit, ask};
use super::html::{self, counted, word};
use super::job::Confirm;
use crate::api::types::failures::{FailureGroup, Failures, FailuresRequeued};
use crate::api::types::mirror::{Cause, DeadLetters, LettersRequeued};

const HERE: &str = "/dead-letters";

#[derive(Template)]
#[template(path = "letters.html")]
struct Letters {
    frame: Frame,
    groups: Vec<FailureGroup>,
    total: u64,
    causes: Vec<Cause>,
    unread: Option<Failed>,
}

/// `GET /dead-letters`
pub(crate) async fn show(visit: Visit) -> Shown {
    let (failures, letters) = futures::join!(
        visit.api.get::<Failures>("/failures"),
        visit.api.get::<DeadLetters>("/mirror/dead-letters?grouped=true")
    );
    let groups = ask!(visit, failures).failures;
    let (causes, unread) = match letters {
        Ok(letters) => (letters.causes.unwrap_or_default(), None),
        Err(failed) => (Vec::new(), Some(failed)),
    };
    let page = Letters {
        frame: visit.frame("Dead letters", HERE),
        total: groups.iter().map(|group| group.count).sum(),
        groups,
        causes,
        unread,
    };
    visit.show(&page)
}

/// `GET /dead-letters/requeue`
pub(crate) async fn ask(visit: Visit, fields: Fields) -> Shown {
    if let Some(reason) = fields.get("reason") {
        return ask_letters(&visit, reason);
    }
    let (kind, code) = (fields.text("kind").to_owned(), fields.text("code").to_owned());
    let groups = ask!(visit, visit.api.get::<Failures>("/failures").await).failures;
    let group = groups.into_iter().find(|group| group.kind == kind && group.code == code);
    let Some(group) = group else {
        let missing = format!("no failed job of kind {kind} has the code {code} any more");
        return visit.refused(HERE, &Failed::new(axum::http::StatusCode::NOT_FOUND, "NOT_FOUND", missing));
    };
    let canary = fields.get("canary").is_some();
    let jobs = counted(group.count, "failed job", "failed jobs");
    let consequence = match canary {
        true => format!("The newest of them, job {}, runs first. The others run only when that one is done; if it fails again, they stay as they are.", group.newest),
        false => "All of them run again, with as many further attempts as they had been given. Without knowing that the cause is gone, one canary first is the safer choice.".to_owned(),
    };
    let more = if canary { " --canary" } else { "" };
    let mut sent = vec![("kind", kind.clone()), ("code", code.clone())];
    if canary {
        sent.push(("canary", "1".to_owned()));
    }
    let page = Confirm {
        frame: visit.frame(if canary { "Requeue with a canary" } else { "Requeue all" }, HERE),
        what: format!("{jobs} of kind {kind} with {code}: {}", group.message),
        consequence,
        action: "/dead-letters/requeue".to_owned(),
        button: if canary { "Send the canary" } else { "Requeue all" },
        is_danger: false,
        fields: sent,
        back: HERE.to_owned(),
        twin: format!("stargate failures requeue --kind {} --code {}{more}", word(&kind), word(&code)),
    };
    visit.show(&page)
}

fn ask_letters(visit: &Visit, reason: &str) -> Shown {
    let page = Confirm {
        frame: visit.frame("Requeue entries of mirrors", HERE),
        what: format!("All dead letters of mirrors with the reason {reason} are entered into their journals again."),
        consequence: "Each is pushed again in its turn. What the remote has by now is not pushed twice, and nothing there goes back.".to_owned(),
        action: "/dead-letters/requeue".to_owned(),
        button: "Requeue them",
        is_danger: false,
        fields: vec![("reason", reason.to_owned())],
        back: HERE.to_owned(),
        twin: format!("stargate mirror dead-letter requeue --reason {} --repo DIR", word(reason)),
    };
    visit.show(&page)
}

#[derive(Serialize)]
struct RequeueFailures<'a> {
    kind: &'a str,
    code: &'a str,
    canary: bool,
}

#[derive(Serialize)]
struct RequeueReason<'a> {
    reason: &'a str,
}

/// `POST /dead-letters/requeue`
pub(crate) async fn requeue(visit: Visit, Sent(fields): Sent) -> Shown {
    if let Some(reason) = fields.get("reason") {
        let done: Answer<LettersRequeued> =
            visit.api.change(Method::POST, "/mirror/dead-letters/requeue", &RequeueReason { reason }).await;
        return visit.after(HERE, done, |done| requeued(&done));
    }
    let body = RequeueFailures {
        kind: fields.text("kind"),
        code: fields.text("code"),
        canary: fields.get("canary").is_some(),
    };
    let done: Answer<FailuresRequeued> = visit.api.change(Method::POST, "/failures/requeue", &body).await;
    let to = match &done {
        Ok(
            FailuresRequeued { canary: Some(id), .. } | FailuresRequeued { canary: None, job: Some(id), .. },
        ) => {
            format!("/jobs/{id}")
        }
        _ => HERE.to_owned(),
    };
    visit.after(&to, done, |done| match (done.canary, done.job) {
        (Some(canary), Some(job)) => {
            format!("Job {canary} is the canary. When it is done, job {job} has the others run again.")
        }
        (Some(canary), None) => format!("Job {canary} was the only one, and runs again."),
        (None, Some(job)) => format!("Job {job} has {} run again.", counted(done.matched, "job", "jobs")),
        (None, None) => format!("{} again.", counted(done.matched, "job runs", "jobs run")),
    })
}

/// What became of dead letters, in words.
pub(crate) fn requeued(done: &LettersRequeued) -> String {
    let mut text =
        format!("{} entered again.", counted(done.requeued.len(), "dead letter is", "dead letters are"));
    if let Some(first) = done.failed.first() {
        text.push_str(&format!(" {} not: {}.", counted(done.failed.len(), "is", "are"), first.error));
    }
    if done.more {
        text.push_str(" More match: do it again.");
    }
    text
}
