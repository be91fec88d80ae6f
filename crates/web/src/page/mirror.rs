//! Mirrors: how far behind, why, ref by ref, what was given up, and whether both sides agree.

use askama::Template;
use axum::extract::Path;
use axum::http::Method;
use serde::Serialize;

use super::call::{Answer, Failed};
use super::fields::{Fields, Sent};
use super::frame::{Frame, Shown, Visit, ask};
use super::html::{self, Html, counted, encode, word};
use super::job::Confirm;
use super::json;
use super::letters::requeued;
use crate::api::types::mirror::{
    DeadLetter, DeadLetters, LettersPurged, LettersRequeued, Mirror, MirrorDetail, Mirrors, Repo, Repos,
    Verification,
};

const HERE: &str = "/mirror";

/// A word, and how much it matters.
pub(crate) fn standing(mirror: &Mirror) -> (&'static str, &'static str) {
    match mirror.standing.as_str() {
        "caught-up" => ("ok", "caught up"),
        "catching-up" => ("processing", "catching up"),
        "remote-away" => ("failed", "remote away"),
        "not-running" => ("warn", "not running"),
        _ => ("plain", "no remote"),
    }
}

#[derive(Template)]
#[template(path = "mirrors.html")]
struct MirrorList {
    frame: Frame,
    mirrors: Vec<Mirror>,
    repos: Vec<Repo>,
}

/// `GET /mirror`
pub(crate) async fn list(visit: Visit) -> Shown {
    let (mirrors, repos) =
        futures::join!(visit.api.get::<Mirrors>("/mirror"), visit.api.get::<Repos>("/repos"));
    let mirrors = ask!(visit, mirrors).mirrors;
    let mut repos = repos.map(|repos| repos.repos).unwrap_or_default();
    repos.retain(|repo| !mirrors.iter().any(|mirror| mirror.repo == repo.name));
    let page = MirrorList { frame: visit.frame("Mirror", HERE), mirrors, repos };
    visit.show(&page)
}

#[derive(Template)]
#[template(path = "mirror.html")]
struct MirrorPage {
    frame: Frame,
    detail: MirrorDetail,
    letters: Vec<DeadLetter>,
    more_letters: bool,
    checkpoint: Option<Html>,
    verification: Option<Verification>,
}

/// `GET /mirror/{repo}`
pub(crate) async fn show(visit: Visit, Path(repo): Path<String>) -> Shown {
    page(visit, &repo, None).await
}

async fn page(visit: Visit, repo: &str, verification: Option<Verification>) -> Shown {
    let detail_path = format!("/mirror/{}", encode(repo));
    let letters_path = format!("/mirror/dead-letters?repo={}&limit=100", encode(repo));
    let (detail, letters) = futures::join!(
        visit.api.get::<MirrorDetail>(&detail_path),
        visit.api.get::<DeadLetters>(&letters_path)
    );
    let detail = ask!(visit, detail);
    let letters = ask!(visit, letters);
    let checkpoint = detail.checkpoint.as_ref().map(|found| json::pretty(&found.to_string()));
    let page = MirrorPage {
        frame: visit.frame(repo, HERE),
        detail,
        more_letters: letters.more,
        letters: letters.dead_letters,
        checkpoint,
        verification,
    };
    visit.show(&page)
}

/// `POST /mirror/{repo}/verify`
pub(crate) async fn verify(visit: Visit, Path(repo): Path<String>) -> Shown {
    match visit.api.post::<Verification>(&format!("/mirror/{}/verify", encode(&repo))).await {
        Ok(verification) => page(visit, &repo, Some(verification)).await,
        Err(failed) => visit.refused(&format!("/mirror/{}", encode(&repo)), &failed),
    }
}

/// `GET /mirror/{repo}/requeue`
pub(crate) async fn ask_requeue(visit: Visit, Path(repo): Path<String>, fields: Fields) -> Shown {
    let ids: Vec<String> = fields.all("ids").map(str::to_owned).collect();
    let back = format!("/mirror/{}", encode(&repo));
    if ids.is_empty() {
        return visit.refused(&back, &Failed::invalid("select at least one dead letter"));
    }
    let page = Confirm {
        frame: visit.frame(format!("Requeue dead letters of {repo}"), HERE),
        what: format!("{} entered into the journal again.", counted(ids.len(), "dead letter is", "dead letters are")),
        consequence: "Each is pushed again in its turn. What the remote has by now is not pushed twice, and nothing there goes back.".to_owned(),
        action: format!("{back}/requeue"),
        button: "Requeue",
        is_danger: false,
        twin: format!("stargate mirror dead-letter requeue {} --repo DIR", ids.iter().map(|id| word(id)).collect::<Vec<_>>().join(" ")),
        fields: ids.into_iter().map(|id| ("ids", id)).collect(),
        back,
    };
    visit.show(&page)
}

#[derive(Serialize)]
struct RequeueLetters<'a> {
    repo: &'a str,
    ids: Vec<&'a str>,
}

/// `POST /mirror/{repo}/requeue`
pub(crate) async fn requeue(visit: Visit, Path(repo): Path<String>, Sent(fields): Sent) -> Shown {
    let body = RequeueLetters { repo: &repo, ids: fields.all("ids").collect() };
    let done: Answer<LettersRequeued> =
        visit.api.change(Method::POST, "/mirror/dead-letters/requeue", &body).await;
    visit.after(&format!("/mirror/{}", encode(&repo)), done, |done| requeued(&done))
}

/// `GET /mirror/{repo}/purge`
pub(crate) async fn ask_purge(visit: Visit, Path(repo): Path<String>) -> Shown {
    let back = format!("/mirror/{}", encode(&repo));
    let page = Confirm {
        frame: visit.frame(format!("Remove old dead letters of {repo}"), HERE),
        what: format!("Dead letters of {repo} that are older than their retention are removed for good."),
        consequence: "They cannot be requeued afterwards. Younger ones stay.".to_owned(),
        action: format!("{back}/purge"),
        button: "Remove them",
        is_danger: true,
        fields: Vec::new(),
        back,
        twin: "stargate mirror dead-letter purge --repo DIR".to_owned(),
    };
    visit.show(&page)
}

#[derive(Serialize)]
struct PurgeLetters<'a> {
    repo: &'a str,
}

/// `POST /mirror/{repo}/purge`
pub(crate) async fn purge(visit: Visit, Path(repo): Path<String>) -> Shown {
    let body = PurgeLetters { repo: &repo };
    let done: Answer<LettersPurged> =
        visit.api.change(Method::POST, "/mirror/dead-letters/purge", &body).await;
    let tell = |done: LettersPurged| {
        format!("{} removed.", counted(done.purged.len(), "dead letter is", "dead letters are"))
    };
    visit.after(&format!("/mirror/{}", encode(&repo)), done, tell)
}

#[derive(Template)]
#[template(path = "letter.html")]
struct LetterPage {
    frame: Frame,
    letter: DeadLetter,
    payload: Html,
    journal: Html,
}

/// `GET /mirror/{repo}/letters/{id}`
pub(crate) async fn letter(visit: Visit, Path((repo, id)): Path<(String, String)>) -> Shown {
    let path = format!("/mirror/dead-letters/{}?repo={}", encode(&id), encode(&repo));
    let letter: DeadLetter = ask!(visit, visit.api.get(&path).await);
    let page = LetterPage {
        frame: visit.frame(format!("Dead letter {}", letter.dead_letter_id), HERE),
        payload: json::pretty(&letter.payload.to_string()),
        journal: json::pretty(&letter.journal.to_string()),
        letter,
    };
    visit.show(&page)
}
