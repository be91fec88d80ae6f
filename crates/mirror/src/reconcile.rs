//! Finds refs that the remote does not have although nothing waits for it: an accepted push whose hook died, or a new
//! leader without the journal of the old one. They become entries with `source: "reconcile"`.
//!
//! A ref that the remote cannot take (it diverged, it is protected) has a dead letter; no second one is made for the
//! same object.

use std::collections::{HashMap, HashSet};

use serde::Serialize;
use stargate_git::{Git, Oid, RefName, Refs, RepoDir};

use crate::config::Config;
use crate::dead_letter::{DeadLetters, Payload, State};
use crate::entry::NewEntry;
use crate::error::Result;
use crate::journal::{Journal, Line, Next, Reader};
use crate::routes::Routes;
use crate::worker::LETTERS_SCANNED_MAX;

/// How many refs become entries at once; the rest follow with the next round.
pub const GAPS_MAX: usize = 1000;

/// How many refs with waiting entries are told apart; beyond, an entry may be written twice, which harms nobody.
const WAITING_REFS_MAX: usize = 100_000;

/// What such entries say in `source`.
pub const SOURCE: &str = "reconcile";

/// A ref that the remote does not have as we have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// The ref here.
    #[serde(rename = "ref")]
    pub name: RefName,
    /// What it is here.
    pub here: Oid,
    /// What it is there, if it is.
    pub there: Option<Oid>,
}

/// What a comparison found, and how many entries it wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reconciled {
    /// Refs that the remote does not have as we have them.
    pub gaps: Vec<Gap>,
    /// Entries that were written for them; the others wait already or were given up.
    pub journaled: usize,
}

/// Compares once and journals what has no entry, as a worker does by itself. Works while one runs: should both write an
/// entry, the second is found to be mirrored already.
pub async fn reconcile(git: &Git, repo: &RepoDir, config: &Config) -> Result<Reconciled> {
    let remote = git.ls_remote(repo, &config.remote, &config.routes.there(), config.push_timeout).await?;
    let gaps = gaps(git, repo, &config.routes, &remote).await?;
    let (path, found) = (repo.path().to_owned(), gaps.clone());
    let written = tokio::task::spawn_blocking(move || {
        let (journal_of_repo, letters) = (Journal::open(&path)?, DeadLetters::open(&path)?);
        let (ahead, _) = journal_of_repo.resume()?;
        journal(&journal_of_repo, &letters, found, &newest(ahead)?)
    });
    let journaled = written.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
    Ok(Reconciled { gaps, journaled })
}

/// The newest object of each ref in the rest of a journal.
pub(crate) fn newest(mut reader: Reader) -> Result<HashMap<String, String>> {
    let mut newest = HashMap::new();
    while let Next::Line(line) = reader.next()? {
        note(&line, &mut newest);
    }
    Ok(newest)
}

pub(crate) fn note(line: &Line, newest: &mut HashMap<String, String>) {
    if let Ok(entry) = &line.entry
        && newest.len() < WAITING_REFS_MAX
    {
        newest.insert(entry.ref_name.clone(), entry.new_oid.clone());
    }
}

/// Compares refs here with those of the remote. What the remote has and more is no gap; neither is what it alone has.
/// Ledgers come last, so that what they refer to is there before them.
pub async fn gaps(git: &Git, repo: &RepoDir, routes: &Routes, remote: &Refs) -> Result<Vec<Gap>> {
    let here = git.local_refs(repo, routes.watched()).await?;
    let mut gaps = Vec::new();
    for (name, oid) in here {
        let Ok(route) = routes.route(&name, None) else { continue };
        let there = remote.get(&route.to).cloned();
        let stale = |watermark| remote.get(watermark) != Some(&oid);
        let is_gap = match &there {
            Some(there) if *there == oid => route.watermark.as_ref().is_some_and(stale),
            // If it has what we do not know, it is not ours to decide; the push will say.
            Some(there) => !git.is_ancestor(repo, &oid, there).await.unwrap_or(false),
            None => true,
        };
        if is_gap {
            gaps.push(Gap { name, here: oid, there });
            if gaps.len() >= GAPS_MAX {
                break;
            }
        }
    }
    gaps.sort_by_key(|gap| routes.is_ledger(&gap.name));
    Ok(gaps)
}

/// Journals the gaps for which nothing waits and nothing was given up. `waiting` has the newest object of each ref that
/// an entry waits for.
pub(crate) fn journal(
    journal: &Journal,
    letters: &DeadLetters,
    gaps: Vec<Gap>,
    waiting: &HashMap<String, String>,
) -> Result<usize> {
    let waits = |gap: &Gap| waiting.get(gap.name.as_str()).is_some_and(|oid| oid == gap.here.as_str());
    let gaps: Vec<Gap> = gaps.into_iter().filter(|gap| !waits(gap)).collect();
    if gaps.is_empty() {
        return Ok(0);
    }
    let given_up = given_up(letters)?;
    let entries: Vec<NewEntry> = gaps
        .into_iter()
        .filter(|gap| !given_up.contains(&(gap.name.to_string(), gap.here.to_string())))
        .map(|gap| NewEntry {
            ref_name: gap.name.to_string(),
            old_oid: gap.there.map(|oid| oid.to_string()),
            new_oid: gap.here.to_string(),
            source: SOURCE.to_owned(),
            ..NewEntry::default()
        })
        .collect();
    if !entries.is_empty() {
        tracing::info!(refs = entries.len(), "refs without an entry were journaled");
    }
    Ok(journal.append(&entries)?.len())
}

/// Refs and objects of letters that nobody has requeued.
fn given_up(letters: &DeadLetters) -> Result<HashSet<(String, String)>> {
    let mut found = HashSet::new();
    for stored in letters.list(None, LETTERS_SCANNED_MAX)? {
        if let (State::Open, Payload::Entry(fields)) = (stored.state, &stored.letter.payload) {
            let text = |name: &str| fields.get(name).and_then(|value| value.as_str()).map(str::to_owned);
            if let (Some(name), Some(oid)) = (text("ref"), text("new_oid").or_else(|| text("oid"))) {
                found.insert((name, oid));
            }
        }
    }
    Ok(found)
}
