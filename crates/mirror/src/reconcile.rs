//! Finds refs that the remote does not have although nothing waits for it: an accepted push whose hook died, or a new
//! leader without the journal of the old one. They become entries with `source: "reconcile"`.
//!
//! A ref that the remote cannot take (it diverged, it is protected) has a dead letter; no second one is made for the
//! same object.

use std::collections::{HashMap, HashSet};

use serde::Serialize;
use stargate_git::{Git, Oid, RefName, Refs, RepoDir};

use crate::config::Config;
use crate::dead_letter::{DeadLetter, DeadLetters};
use crate::entry::NewEntry;
use crate::error::Result;
use crate::journal::{Journal, Line, Next, Reader};
use crate::routes::Routes;
use crate::worker::LETTERS_OPEN_MAX;

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
    let path = repo.path().to_owned();
    let accounted = blocking(move || {
        let open = DeadLetters::open(&path)?.open_letters(LETTERS_OPEN_MAX)?;
        let waiting = newest(Journal::open(&path)?.resume()?.0)?;
        Ok(Accounted { waiting, ..Accounted::of(&open) })
    });
    let mut accounted = accounted.await?;
    let gaps = gaps(git, repo, &config.routes, &remote, &accounted).await?;
    let (path, found) = (repo.path().to_owned(), gaps.clone());
    let journaled = blocking(move || {
        let journal_of_repo = Journal::open(&path)?;
        accounted.waiting = newest(journal_of_repo.resume()?.0)?;
        journal(&journal_of_repo, found, &accounted)
    });
    Ok(Reconciled { gaps, journaled: journaled.await? })
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

/// Why a ref that the remote does not have as we have it needs no entry.
#[derive(Debug, Default)]
pub struct Accounted {
    /// The newest object of each ref that an entry waits for.
    pub waiting: HashMap<String, String>,
    /// Refs and objects that were given up, and that nobody has requeued.
    pub given_up: HashSet<(String, String)>,
    /// Refs that the remote has further than we know them: what they are here, and what there.
    pub ahead: HashMap<RefName, (Oid, Oid)>,
}

impl Accounted {
    /// What open letters say.
    pub fn of(open: &[DeadLetter]) -> Self {
        let targets = open.iter().filter_map(DeadLetter::target);
        let given_up = targets.map(|(name, oid)| (name.to_owned(), oid.to_owned())).collect();
        Self { given_up, ..Self::default() }
    }

    fn is_ahead(&self, name: &RefName, here: &Oid, there: &Oid) -> bool {
        self.ahead.get(name).is_some_and(|(ours, theirs)| ours == here && theirs == there)
    }

    fn has(&self, name: &RefName, here: &Oid) -> bool {
        self.waiting.get(name.as_str()).is_some_and(|oid| oid == here.as_str())
            || self.given_up.contains(&(name.to_string(), here.to_string()))
    }
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
///
/// At most [`GAPS_MAX`] that need an entry, and as many that are accounted for: these must not take the place of others.
pub async fn gaps(
    git: &Git,
    repo: &RepoDir,
    routes: &Routes,
    remote: &Refs,
    accounted: &Accounted,
) -> Result<Vec<Gap>> {
    let here = git.local_refs(repo, routes.watched()).await?;
    let watermarks = watermarks(&here, routes);
    let mut gaps = Vec::new();
    let (mut new, mut old) = (0, 0);
    for (name, oid) in here {
        let Ok(route) = routes.route(&name, None) else { continue };
        let there = remote.get(&route.to).cloned();
        let is_old = accounted.has(&name, &oid);
        if is_old && old >= GAPS_MAX {
            continue;
        }
        let stale = |watermark| {
            // Ledgers with the same last part share one; it is wherever the last of them was pushed.
            let ours = watermarks.get(watermark);
            !remote.get(watermark).is_some_and(|there| ours.is_some_and(|oids| oids.contains(there)))
        };
        let is_gap = match &there {
            Some(there) if *there == oid => route.watermark.as_ref().is_some_and(stale),
            Some(there) if accounted.is_ahead(&name, &oid, there) => false,
            // If it has what we do not know, it is not ours to decide; the push will say.
            Some(there) => !git.is_ancestor(repo, &oid, there).await.unwrap_or(false),
            None => true,
        };
        if is_gap {
            gaps.push(Gap { name, here: oid, there });
            *(if is_old { &mut old } else { &mut new }) += 1;
            if new >= GAPS_MAX {
                break;
            }
        }
    }
    gaps.sort_by_key(|gap| routes.is_ledger(&gap.name));
    Ok(gaps)
}

/// Where each watermark may be: at any of the ledgers that move it.
fn watermarks(here: &Refs, routes: &Routes) -> HashMap<RefName, HashSet<Oid>> {
    let mut watermarks: HashMap<RefName, HashSet<Oid>> = HashMap::new();
    for (name, oid) in here {
        let watermark = routes.route(name, None).ok().and_then(|route| route.watermark);
        if let Some(watermark) = watermark {
            watermarks.entry(watermark).or_default().insert(oid.clone());
        }
    }
    watermarks
}

/// Journals the gaps that are not accounted for.
pub(crate) fn journal(journal: &Journal, gaps: Vec<Gap>, accounted: &Accounted) -> Result<usize> {
    let entries: Vec<NewEntry> = gaps
        .into_iter()
        .filter(|gap| !accounted.has(&gap.name, &gap.here))
        .map(|gap| NewEntry {
            ref_name: gap.name.to_string(),
            old_oid: gap.there.map(|oid| oid.to_string()),
            new_oid: gap.here.to_string(),
            source: SOURCE.to_owned(),
            ..NewEntry::default()
        })
        .collect();
    if entries.is_empty() {
        return Ok(0);
    }
    tracing::info!(refs = entries.len(), "refs without an entry were journaled");
    Ok(journal.append(&entries)?.len())
}
