//! The verdict: each invariant, judged by what is found outside.

mod artifacts;
mod directive;
mod git;
mod jobs;
mod leaders;
mod mirror;
mod pass;

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

use anyhow::Result;

use crate::crew::Part;
use crate::evidence::Reader;
use crate::ledger::{self, Line};
use crate::site::Site;
use crate::watch::Seen;

pub(crate) use git::recorded;
pub(crate) use jobs::{Figures, unfinished};
pub(crate) use mirror::pending;
pub(crate) use pass::{Change, Look, Passes};

/// More than any of our processes needs, and little enough to notice one that grows.
const MEMORY_MAX_KIB: u64 = 400 << 10;
const FILES_MAX: u64 = 500;

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    /// The number of the invariant.
    pub(crate) invariant: u8,
    /// What was found.
    pub(crate) what: String,
}

impl Violation {
    /// One.
    pub(crate) fn new(invariant: u8, what: impl Into<String>) -> Self {
        Self { invariant, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "INV-{}: {}", self.invariant, self.what)
    }
}

/// What was found in the end.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// What must not be.
    pub(crate) violations: Vec<Violation>,
    /// What is worth knowing.
    pub(crate) figures: Figures,
}

/// Judges everything, with all processes ended and nothing in the way.
pub(crate) async fn judge(site: &Site, seen: Seen) -> Result<Verdict> {
    let reader = site.reader();
    let lines = ledger::read(&site.outside("ledger.ndjson"))?;
    let mut verdict = jobs::judge(site, &reader, &lines, &seen).await?;
    let found = &mut verdict.violations;
    verdict.figures.clips = artifacts::judge(site, &reader, found).await?;
    git::judge(site, &reader, &lines, found, &mut verdict.figures).await?;
    verdict.figures.entries = mirror::judge(site, found);
    leaders::judge(&reader, &lines, &seen.sightings, found).await?;
    directive::judge(site, &reader, found, &mut verdict.figures).await?;
    secrets(site, &reader, found).await?;
    bounds(site, &seen, found);
    panics(&site.told(), found);
    found.extend(unsigned(&site.told()));
    found.extend(unseen(&seen, &verdict.figures, &lines));
    found.extend(seen.violations);
    Ok(verdict)
}

/// Invariants that nothing was seen of: a run in which nobody looked proves nothing.
fn unseen(seen: &Seen, figures: &Figures, lines: &[Line]) -> Vec<Violation> {
    let wanted_clips = lines.iter().any(|line| matches!(line, Line::Asked { kind, .. } if kind == "clip"));
    let counts = [
        (1, "acknowledged jobs", figures.jobs > 0),
        (1, "acknowledged pushes", figures.pushes > 0),
        (2, "executions", figures.executions > 0),
        (2, "artifacts", figures.clips > 0 || !wanted_clips),
        (3, "leaders", !seen.sightings.is_empty()),
        (4, "moves of refs on the remote", figures.moves > 0),
        (5, "cursors in the middle of a pass", seen.pointers > 0),
        (6, "beats of workers", !seen.beats.is_empty()),
        (6, "beats of workers that were taken from", figures.watched > 0 || figures.recovered == 0),
        (7, "memory and files of processes", seen.memory_max > 0 && seen.files_max > 0),
        (8, "answers of nodes", seen.answers > 0),
        (9, "ends of jobs", !figures.kinds.is_empty()),
    ];
    let missing = counts.into_iter().filter(|(_, _, there)| !there);
    let missing =
        missing.map(|(invariant, what, _)| Violation::new(invariant, format!("no {what} were seen")));
    let acknowledged: BTreeSet<&str> = lines.iter().filter_map(Line::job).collect();
    let kinds = lines.iter().filter_map(|line| match line {
        Line::Asked { mark, kind } if acknowledged.contains(mark.as_str()) => Some(kind),
        _ => None,
    });
    let endless: BTreeSet<&String> = kinds.filter(|kind| !figures.kinds.contains(*kind)).collect();
    let endless =
        endless.into_iter().map(|kind| Violation::new(9, format!("no job of kind {kind} was seen to end")));
    missing.chain(endless).collect()
}

/// Whoever ends by itself is judged by a sign in its log that it had begun. Logs without such signs would let everything pass.
fn unsigned(logs: &[PathBuf]) -> Vec<Violation> {
    let texts: Vec<String> = logs
        .iter()
        .map(|log| String::from_utf8_lossy(&std::fs::read(log).unwrap_or_default()).into_owned())
        .collect();
    let missing = [Part::Node, Part::Worker]
        .into_iter()
        .filter(|part| !texts.iter().any(|text| text.contains(part.sign())));
    missing.map(|part| Violation::new(7, format!("no log of a {part:?} says \"{}\"", part.sign()))).collect()
}

/// A process of ours may end, be killed or refuse; it never panics.
fn panics(logs: &[PathBuf], found: &mut Vec<Violation>) {
    for log in logs {
        let text = std::fs::read(log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        if let Some(line) = text.lines().find(|line| line.contains("panicked at")) {
            found.push(Violation::new(7, format!("{}: {line}", log.display())));
        }
    }
}

async fn secrets(site: &Site, reader: &Reader, found: &mut Vec<Violation>) -> Result<()> {
    let mut shown = site.secrets.found_in(&reader.dump().await?);
    shown.dedup();
    found.extend(shown.into_iter().map(|what| Violation::new(8, format!("{what} in the store"))));
    for log in &site.told() {
        let text = std::fs::read(log).unwrap_or_default();
        for what in site.secrets.found_in(&String::from_utf8_lossy(&text)) {
            found.push(Violation::new(8, format!("{what} in {}", log.display())));
        }
    }
    let files = site.secrets.found_in_files(&site.home, &|path| {
        !path.extension().is_some_and(|end| end == "db" || end == "pack" || end == "idx")
    });
    found.extend(files.into_iter().map(|what| Violation::new(8, what)));
    for folder in site.kept_elsewhere().await {
        let files = site.secrets.found_in_files(&folder, &|_| true);
        found.extend(files.into_iter().map(|what| Violation::new(8, what)));
    }
    Ok(())
}

fn bounds(site: &Site, seen: &Seen, found: &mut Vec<Violation>) {
    if seen.memory_max > MEMORY_MAX_KIB {
        found.push(Violation::new(7, format!("a process had {} MiB of memory", seen.memory_max >> 10)));
    }
    if seen.files_max > FILES_MAX {
        found.push(Violation::new(7, format!("a process had {} files open", seen.files_max)));
    }
    let effects = site.outside("effects.log").display().to_string();
    for (id, words) in crate::inject::processes() {
        if words.contains(&effects) {
            found.push(Violation::new(7, format!("process {id} has outlived its worker: {words}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_names_its_invariant() {
        assert_eq!(Violation::new(3, "two leaders").to_string(), "INV-3: two leaders");
    }

    #[test]
    fn what_nobody_has_seen_is_not_shown() {
        let unseen = unseen(&Seen::default(), &Figures::default(), &[]);
        let invariants: Vec<u8> = unseen.iter().map(|violation| violation.invariant).collect();
        assert_eq!(invariants, [1, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let asked = Line::Asked { mark: "m".to_owned(), kind: "clip".to_owned() };
        let of = |lines: &[Line]| super::unseen(&Seen::default(), &Figures::default(), lines);
        assert_eq!(of(std::slice::from_ref(&asked)).len(), 11);
        let job = Line::Job { mark: "m".to_owned(), id: 1, via: "cli".to_owned(), answer: None };
        assert!(of(&[asked, job]).iter().any(|one| one.what == "no job of kind clip was seen to end"));
    }

    #[test]
    fn logs_in_which_no_beginning_can_be_told_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        std::fs::write(&log, Part::Node.sign()).unwrap();
        let found = unsigned(&[log]);
        assert_eq!(found.len(), 1);
        assert!(found[0].what.contains("Worker"), "{found:?}");
    }

    #[test]
    fn a_panic_is_found_in_a_log() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        std::fs::write(&log, "all is well\nthread 'stargate' panicked at x.rs:1:2:\n").unwrap();
        let mut found = Vec::new();
        panics(&[log], &mut found);
        assert_eq!(found.len(), 1);
        assert!(found[0].what.contains("panicked at x.rs:1:2"));
    }
}
