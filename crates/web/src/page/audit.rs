//! Who did what, and what became of it.

use askama::Template;

use super::fields::Fields;
use super::frame::{Frame, Shown, Visit, ask};
use super::html::{self, Html, query};
use super::json;
use crate::api::types::access::{Action, Actions};

const PAGE: &str = "50";

/// An action as a row.
struct Row {
    action: Action,
    /// `ok`, a code, or that nobody knows.
    outcome: String,
    class: &'static str,
    detail: Option<Html>,
}

impl Row {
    fn of(action: Action) -> Self {
        let (outcome, class) = match action.outcome.as_deref() {
            Some("ok") => ("ok".to_owned(), "ok"),
            Some(code) => (code.to_owned(), "bad"),
            None => ("begun".to_owned(), "begun"),
        };
        let text = action.detail.to_string();
        let detail = (!matches!(text.as_str(), "null" | "{}")).then(|| json::pretty(&text));
        Self { action, outcome, class, detail }
    }
}

#[derive(Template)]
#[template(path = "audit.html")]
struct Audit {
    frame: Frame,
    rows: Vec<Row>,
    next: Option<String>,
    is_first: bool,
    actor: String,
    action: String,
    target: String,
}

/// `GET /audit`
pub(crate) async fn show(visit: Visit, fields: Fields) -> Shown {
    let (actor, action, target) = (fields.text("actor"), fields.text("action"), fields.text("target"));
    let pairs = |before: &str, limit: &str| {
        query([
            ("actor", actor),
            ("action", action),
            ("target", target),
            ("before", before),
            ("limit", limit),
        ])
    };
    let path = format!("/audit{}", pairs(fields.text("before"), PAGE));
    let found: Actions = ask!(visit, visit.api.get(&path).await);
    let page = Audit {
        frame: visit.frame("Audit", "/audit"),
        next: found.next_before.map(|id| format!("/audit{}", pairs(&id.to_string(), ""))),
        is_first: fields.get("before").is_none(),
        rows: found.actions.into_iter().map(Row::of).collect(),
        actor: actor.to_owned(),
        action: action.to_owned(),
        target: target.to_owned(),
    };
    visit.show(&page)
}
