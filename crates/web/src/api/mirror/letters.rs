//! What mirrors gave up: looked at, grouped by cause, put into the journal again, removed.

use std::collections::BTreeMap;
use std::path::Path as FilePath;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use serde::Deserialize;
use serde_json::json;
use stargate_access::Role;
use stargate_mirror::dead_letter::{DeadLetter, RETENTION_MIN, Requeue, State as LetterState, Stored};
use stargate_mirror::{DeadLetters, Journal};
use utoipa::IntoParams;

use super::{MirrorPlace, Mirrors, cut, mirrors, on_thread, place, running};
use crate::api::JOB_BYTES_MAX;
use crate::api::types::mirror as types;
use crate::app::Shared;
use crate::caller::{Actor, Caller, Change};
use crate::error::{Problem, Result};
use crate::input::{JsonBody, Params, duration, flag, given, number};

/// Dead letters of one answer: without being asked for, and at most.
const LETTERS_SHOWN: usize = 100;
const LETTERS_MAX: usize = 1000;
/// Letters that are looked through at once.
const PAGE: usize = 1000;
/// Letters of a repository that are grouped.
const GROUPED_MAX: usize = 10_000;
/// Letters of one request that are requeued.
const REQUEUED_MAX: usize = 1000;
/// How much of an error is the same for letters with the same cause.
const ERROR_CHARS: usize = 200;

/// Which dead letters.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct LetterParams {
    /// Only of this repository; of all that are mirrored here by default.
    pub(crate) repo: Option<String>,
    /// Only after this one: the last of the page before; with `repo` only.
    pub(crate) after: Option<String>,
    /// How many; 100 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    pub(crate) limit: Option<String>,
    /// `open` (the default), or `all`: also those that were requeued.
    pub(crate) state: Option<String>,
    /// `true`: those that are open, by cause.
    #[param(value_type = Option<bool>)]
    pub(crate) grouped: Option<String>,
}

#[utoipa::path(get, path = "/mirror/dead-letters", tag = "mirror", summary = "What mirrors gave up, one by one or by cause",
    params(LetterParams), responses((status = 200, body = types::DeadLetters)))]
pub(crate) async fn letters(
    State(shared): State<Shared>,
    caller: Caller,
    Params(params): Params<LetterParams>,
) -> Result<Json<types::DeadLetters>> {
    list(&shared, &caller, params).await.map(Json)
}

/// What mirrors gave up.
pub(crate) async fn list(
    shared: &Shared,
    caller: &Caller,
    params: LetterParams,
) -> Result<types::DeadLetters> {
    let limit = number("limit", params.limit.as_deref(), 1..=LETTERS_MAX)?.unwrap_or(LETTERS_SHOWN);
    let open_only = match params.state.as_deref() {
        None | Some("" | "open") => true,
        Some("all") => false,
        Some(other) => return Err(Problem::invalid("state", format!("is {other:?}; allowed are open, all"))),
    };
    let grouped = flag("grouped", params.grouped.as_deref())?;
    let (repo, after) = (given(params.repo), given(params.after));
    if after.is_some() && repo.is_none() {
        return Err(Problem::invalid("after", "needs repo: each repository has its own"));
    }
    let places = places(shared, repo.as_deref()).await?;
    let mut found = on_thread(move || match grouped {
        true => {
            let causes = causes(&places)?;
            Ok(types::DeadLetters { dead_letters: Vec::new(), causes: Some(causes), more: false })
        }
        false => {
            let mut found = Vec::new();
            for place in &places {
                // One more than wanted tells whether there are more.
                let missing = limit + 1 - found.len();
                let letters = collect(&place.path, after.clone(), missing, open_only)?;
                found.extend(letters.into_iter().map(|stored| types::DeadLetter::of(&place.repo, stored)));
                if found.len() > limit {
                    break;
                }
            }
            let more = found.len() > limit;
            found.truncate(limit);
            Ok(types::DeadLetters { dead_letters: found, causes: None, more })
        }
    })
    .await?;
    let sight = caller.sight(shared);
    found.dead_letters = found.dead_letters.into_iter().map(|letter| letter.seen(sight)).collect();
    Ok(found)
}

/// The repository that is named, or all that are mirrored here.
async fn places(shared: &Shared, repo: Option<&str>) -> Result<Vec<MirrorPlace>> {
    match repo {
        Some(repo) => Ok(vec![place(shared, repo).await?]),
        None => Ok(running(shared)),
    }
}

fn collect(
    repo: &FilePath,
    mut after: Option<String>,
    limit: usize,
    open_only: bool,
) -> stargate_mirror::Result<Vec<Stored>> {
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

fn causes(places: &[MirrorPlace]) -> stargate_mirror::Result<Vec<types::Cause>> {
    let mut causes: BTreeMap<(String, String), types::Cause> = BTreeMap::new();
    for place in places {
        for letter in DeadLetters::open(&place.path)?.open_letters(GROUPED_MAX)? {
            add(&mut causes, &place.repo, letter);
        }
    }
    let mut causes: Vec<types::Cause> = causes.into_values().collect();
    causes.sort_by(|a, b| b.count.cmp(&a.count).then(b.last_at.cmp(&a.last_at)));
    Ok(causes)
}

fn add(causes: &mut BTreeMap<(String, String), types::Cause>, repo: &str, letter: DeadLetter) {
    let reason = types::reason(letter.reason);
    let cause = causes.entry((reason.clone(), shape(&letter.error))).or_insert_with(|| types::Cause {
        reason,
        error: String::new(),
        repos: BTreeMap::new(),
        count: 0,
        newest: String::new(),
        last_at: letter.dead_lettered_at,
        oldest_at: letter.dead_lettered_at,
    });
    cause.count += 1;
    *cause.repos.entry(repo.to_owned()).or_default() += 1;
    cause.oldest_at = cause.oldest_at.min(letter.dead_lettered_at);
    if letter.dead_lettered_at >= cause.last_at {
        cause.last_at = letter.dead_lettered_at;
        cause.newest = letter.dead_letter_id;
        cause.error = letter.error;
    }
}

/// An error without what differs from one entry to the next: object ids, numbers, the names of refs.
fn shape(error: &str) -> String {
    let line = error.lines().next().unwrap_or_default();
    let word = |word: &str| match word {
        word if word.contains("refs/") => "REF".to_owned(),
        word if word.len() >= 7 && word.bytes().all(|b| b.is_ascii_hexdigit()) => "OID".to_owned(),
        word => word.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect(),
    };
    let words: Vec<String> = line.split_whitespace().map(word).collect();
    words.join(" ").chars().take(ERROR_CHARS).collect()
}

/// In which repository a letter is.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct OneLetterParams {
    /// The repository; by default it is looked for in all that are mirrored here.
    repo: Option<String>,
}

#[utoipa::path(get, path = "/mirror/dead-letters/{id}", tag = "mirror", summary = "Everything about one dead letter",
    params(("id" = String, Path, description = "The letter"), OneLetterParams),
    responses((status = 200, body = types::DeadLetter)))]
pub(crate) async fn letter(
    State(shared): State<Shared>,
    caller: Caller,
    Path(id): Path<String>,
    Params(params): Params<OneLetterParams>,
) -> Result<Json<types::DeadLetter>> {
    find_letter(&shared, &caller, given(params.repo).as_deref(), id).await.map(Json)
}

/// Everything about one dead letter.
pub(crate) async fn find_letter(
    shared: &Shared,
    caller: &Caller,
    repo: Option<&str>,
    id: String,
) -> Result<types::DeadLetter> {
    let places = places(shared, repo).await?;
    let found = on_thread(move || {
        for place in places {
            match DeadLetters::open(&place.path)?.show(&id) {
                Ok(stored) => return Ok(types::DeadLetter::of(&place.repo, stored)),
                Err(stargate_mirror::Error::NoDeadLetter { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(stargate_mirror::Error::NoDeadLetter { id })
    });
    Ok(found.await?.seen(caller.sight(shared)))
}

#[utoipa::path(post, path = "/mirror/dead-letters/requeue", tag = "mirror", summary = "Put dead letters into the journal again",
    request_body = types::RequeueLetters, responses((status = 200, body = types::LettersRequeued)))]
pub(crate) async fn requeue(
    actor: Actor,
    body: JsonBody<types::RequeueLetters, JOB_BYTES_MAX>,
) -> Result<Json<types::LettersRequeued>> {
    requeue_letters(&actor, body.value).await.map(Json)
}

/// Puts dead letters into the journal again: those that are named, or all with a reason.
pub(crate) async fn requeue_letters(
    actor: &Actor,
    wanted: types::RequeueLetters,
) -> Result<types::LettersRequeued> {
    let types::RequeueLetters { repo, ids, reason, again } = wanted;
    match (&ids, &reason) {
        (Some(_), None) | (None, Some(_)) => {}
        _ => return Err(Problem::invalid("ids", "and reason exclude each other; send one of them")),
    }
    if ids.is_some() && repo.is_none() {
        return Err(Problem::invalid("repo", "is needed with ids"));
    }
    if let Some(ids) = ids.as_ref().filter(|ids| ids.len() > REQUEUED_MAX) {
        let problem = format!("has {} entries; allowed are {REQUEUED_MAX}", ids.len());
        return Err(Problem::invalid("ids", problem));
    }
    let places = places(actor.shared(), repo.as_deref()).await?;
    let target = repo.as_deref().map_or_else(|| "*".to_owned(), cut);
    let change = Change::new("dead-letter.requeue", Role::Operate, target)
        .with(json!({ "ids": ids.as_ref().map(Vec::len), "reason": &reason, "again": again }));
    let how = if again { Requeue::Again } else { Requeue::Once };
    let Some(mirrors) = actor.shared().mirrors.clone() else {
        return Ok(types::LettersRequeued { requeued: Vec::new(), failed: Vec::new(), more: false });
    };
    let work = on_thread(move || {
        let mut done = types::LettersRequeued { requeued: Vec::new(), failed: Vec::new(), more: false };
        for place in &places {
            let letters = DeadLetters::open(&place.path)?;
            let chosen = match (&ids, &reason) {
                (Some(ids), _) => ids.clone(),
                (None, reason) => with_reason(&letters, reason.as_deref())?,
            };
            let requeued = requeue_all(place, &letters, &chosen, how, &mut done);
            distrusted(&*mirrors, place, requeued)?;
        }
        Ok(done)
    });
    actor.carry_out(change, |_| work).await
}

/// Passes an error on, after who keeps the files was told of it.
fn distrusted<T>(
    mirrors: &dyn Mirrors,
    place: &MirrorPlace,
    done: stargate_mirror::Result<T>,
) -> stargate_mirror::Result<T> {
    done.inspect_err(|error| {
        if error.is_fail_stop() {
            mirrors.distrust(&place.repo, error);
        }
    })
}

fn with_reason(letters: &DeadLetters, reason: Option<&str>) -> stargate_mirror::Result<Vec<String>> {
    let open = letters.open_letters(GROUPED_MAX)?.into_iter();
    let fits = |letter: &DeadLetter| reason.is_none_or(|reason| types::reason(letter.reason) == reason);
    // Oldest first: the journal is to have them in their old order.
    let mut ids: Vec<String> = open.filter(fits).map(|letter| letter.dead_letter_id).collect();
    ids.reverse();
    Ok(ids)
}

fn requeue_all(
    place: &MirrorPlace,
    letters: &DeadLetters,
    ids: &[String],
    how: Requeue,
    done: &mut types::LettersRequeued,
) -> stargate_mirror::Result<()> {
    let journal = Journal::open(&place.path)?;
    for id in ids {
        if done.requeued.len() + done.failed.len() >= REQUEUED_MAX {
            done.more = true;
            return Ok(());
        }
        let (repo, dead_letter_id) = (place.repo.clone(), id.clone());
        match letters.requeue(&journal, id, how) {
            Ok(requeued) => {
                done.requeued.push(types::RequeuedLetter { repo, dead_letter_id, requeued: requeued.into() });
            }
            Err(error) if error.is_fail_stop() => return Err(error),
            // The others are still worth it; what cannot be requeued stays where it is.
            Err(error) => {
                done.failed.push(types::LetterFailed { repo, dead_letter_id, error: error.to_string() });
            }
        }
    }
    Ok(())
}

#[utoipa::path(post, path = "/mirror/dead-letters/purge", tag = "mirror", summary = "Remove old dead letters of a repository",
    request_body = types::PurgeLetters, responses((status = 200, body = types::LettersPurged)))]
pub(crate) async fn purge(
    actor: Actor,
    body: JsonBody<types::PurgeLetters, JOB_BYTES_MAX>,
) -> Result<Json<types::LettersPurged>> {
    purge_letters(&actor, body.value).await.map(Json)
}

/// Removes old dead letters of a repository.
pub(crate) async fn purge_letters(
    actor: &Actor,
    wanted: types::PurgeLetters,
) -> Result<types::LettersPurged> {
    let types::PurgeLetters { repo, older_than } = wanted;
    let older_than = match given(older_than) {
        Some(text) => duration("older_than", &text)?,
        None => mirrors(actor.shared(), &repo)?.retention(),
    };
    if older_than < RETENTION_MIN {
        return Err(Problem::invalid(
            "older_than",
            "is too short: dead letters are kept for 30 days at least",
        ));
    }
    let place = place(actor.shared(), &repo).await?;
    let change = Change::new("dead-letter.purge", Role::Admin, cut(&repo))
        .with(json!({ "older_than_sec": older_than.as_secs() }));
    let mirrors = Arc::clone(mirrors(actor.shared(), &repo)?);
    let work = on_thread(move || {
        let purged = DeadLetters::open(&place.path)?.purge(older_than);
        distrusted(&*mirrors, &place, purged)
    });
    let purged = actor.carry_out(change, |_| work).await?;
    Ok(types::LettersPurged { repo, purged })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_differ_in_names_and_numbers_only_have_one_shape() {
        let one = shape("remote rejected refs/kv/main: object 0a1b2c3d4e5f is 17 bytes too long\nmore");
        assert_eq!(one, shape("remote rejected refs/kv/x: object 99887766aabb is 29 bytes too long"));
        assert_ne!(one, shape("remote hung up"));
        assert!(shape(&"x ".repeat(1000)).chars().count() <= ERROR_CHARS);
    }
}
