//! How the mirrors of this node stand, and what they gave up. Only the leader mirrors; elsewhere there are none.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use stargate_mirror::dead_letter::State as LetterState;
use stargate_mirror::{DeadLetters, Report};

use crate::api::types::mirror as types;
use crate::app::Shared;
use crate::error::{Problem, Result};
use crate::input::Params;

/// Mirrors that are told about at most.
const MIRRORS_MAX: usize = 1000;
/// Dead letters of one answer: without being asked for, and at most.
const LETTERS_SHOWN: usize = 100;
const LETTERS_MAX: usize = 1000;
/// Letters that are looked through at once.
const PAGE: usize = 1000;

/// Tells which repositories are mirrored here.
pub trait Mirrors: std::fmt::Debug + Send + Sync + 'static {
    /// The name of each, and where it is.
    fn running(&self) -> Vec<(String, PathBuf)>;
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LetterParams {
    repo: String,
    after: Option<String>,
    limit: Option<String>,
    state: Option<String>,
}

pub(crate) async fn show(State(shared): State<Shared>) -> Result<Json<types::Mirrors>> {
    let running = running(&shared);
    let mirrors = on_thread(move || {
        let of = |(repo, path): (String, PathBuf)| Ok(types::Mirror::of(repo, Report::of(&path)?));
        running.into_iter().take(MIRRORS_MAX).map(of).collect::<stargate_mirror::Result<Vec<_>>>()
    });
    Ok(Json(types::Mirrors { mirrors: mirrors.await? }))
}

pub(crate) async fn dead_letters(
    State(shared): State<Shared>,
    Params(params): Params<LetterParams>,
) -> Result<Json<types::DeadLetters>> {
    let limit = match &params.limit {
        Some(text) => {
            let wrong = || Problem::invalid("limit", format!("is {text:?}; allowed are 1 to {LETTERS_MAX}"));
            text.parse().ok().filter(|number| (1..=LETTERS_MAX).contains(number)).ok_or_else(wrong)?
        }
        None => LETTERS_SHOWN,
    };
    let open_only = match params.state.as_deref() {
        None | Some("open") => true,
        Some("all") => false,
        Some(other) => return Err(Problem::invalid("state", format!("is {other:?}; allowed are open, all"))),
    };
    let found = running(&shared).into_iter().find(|(name, _)| *name == params.repo);
    let Some((_, path)) = found else { return Err(Problem::not_found("mirror", &params.repo)) };
    let letters = on_thread(move || collect(&path, params.after, limit, open_only)).await?;
    Ok(Json(types::DeadLetters { dead_letters: letters }))
}

fn collect(
    repo: &Path,
    mut after: Option<String>,
    limit: usize,
    open_only: bool,
) -> stargate_mirror::Result<Vec<stargate_mirror::dead_letter::Stored>> {
    let letters = DeadLetters::open(repo)?;
    let mut found = Vec::new();
    while found.len() < limit {
        let page = letters.list(after.as_deref(), PAGE)?;
        let Some(last) = page.last() else { break };
        after = Some(last.letter.dead_letter_id.clone());
        found.extend(page.into_iter().filter(|stored| !open_only || stored.state == LetterState::Open));
    }
    found.truncate(limit);
    Ok(found)
}

fn running(shared: &Shared) -> Vec<(String, PathBuf)> {
    shared.mirrors.as_ref().map(|mirrors: &Arc<dyn Mirrors>| mirrors.running()).unwrap_or_default()
}

/// Files are read on a thread for that. What is wrong with them is for the log; it names paths.
async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> stargate_mirror::Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "cannot tell how a mirror stands");
            Err(Problem::unavailable("IO", "the files of a mirror cannot be read; the log says why"))
        }
        Err(_) => Err(Problem::internal()),
    }
}
