//! What has to be true of everything that was seen.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Value, json};
use stargate_queue::leadership::{TERMS_MAX, TermRow, overlaps};
use stargate_queue::store::JobFilter;

use crate::observer::{Outcome, Seen, Sighting, WRITTEN};
use crate::stage::{Node, Stage};

/// Pairs of sightings that prove two leaders at one moment.
///
/// A term goes on without a break from its beginning to its end, and terms begin in the order of their epochs. So a node
/// that was seen leading with a lower epoch *after* another was seen with a higher one led at that earlier moment too:
/// its term had begun before. "After" means that its look was sent after the other's answer was there; looks that were
/// under way at the same time prove nothing. Two nodes with one epoch prove it at any time.
pub(crate) fn double_leaders(sightings: &[Sighting]) -> Vec<(Sighting, Sighting)> {
    let mut found = Vec::new();
    let mut holders = BTreeMap::new();
    for sighting in sightings {
        let first = holders.entry(sighting.epoch).or_insert(sighting);
        if first.node != sighting.node {
            found.push(((*first).clone(), sighting.clone()));
        }
    }
    let mut by_answer: Vec<&Sighting> = sightings.iter().collect();
    by_answer.sort_by_key(|sighting| sighting.answered);
    let mut by_sent: Vec<&Sighting> = sightings.iter().collect();
    by_sent.sort_by_key(|sighting| sighting.sent);
    let mut answers = by_answer.into_iter().peekable();
    let mut highest: Option<&Sighting> = None;
    for late in by_sent {
        while let Some(answer) = answers.next_if(|answer| answer.answered < late.sent) {
            highest = highest.filter(|highest| highest.epoch >= answer.epoch).or(Some(answer));
        }
        if let Some(newer) = highest.filter(|newer| newer.epoch > late.epoch) {
            found.push((newer.clone(), late.clone()));
        }
    }
    found
}

/// Checks everything and prints the figures. `node` is one that answers.
pub(crate) async fn pronounce(stage: &Stage, what: &str, node: &Node, seen: &Seen) {
    let terms = stage.store.terms(TERMS_MAX).await.unwrap();
    let double = double_leaders(&seen.sightings);
    assert!(double.is_empty(), "{what}: two leaders at one moment: {double:#?}\nterms: {terms:#?}");
    check_terms(stage, what, node, &terms);
    let count = |wanted: fn(Outcome) -> bool| seen.writes.iter().filter(|w| wanted(w.outcome)).count();
    let accepted = check_writes(stage, what, seen, &terms).await;
    println!(
        "{what}: {} looks, {} of them at a leader, 0 double; {} terms, 0 overlaps; writes: {accepted} accepted, 0 stale, \
         {} refused, {} unknown",
        seen.looks,
        seen.sightings.len(),
        terms.len(),
        count(|outcome| outcome == Outcome::Refused),
        count(|outcome| outcome == Outcome::Unknown),
    );
    // A test in which nobody led, or nobody was seen, shows nothing.
    assert!(!seen.sightings.is_empty() && accepted > 0, "{what}: nothing was seen");
}

/// Terms do not overlap, by the store and by the command line.
fn check_terms(stage: &Stage, what: &str, node: &Node, terms: &[TermRow]) {
    assert_eq!(overlaps(terms), [], "{what}: {terms:#?}");
    let mut epochs: Vec<u64> = terms.iter().map(|term| term.epoch.get()).collect();
    epochs.reverse();
    assert!(epochs.is_sorted_by(|a, b| a < b), "{what}: {epochs:?}");
    let url = format!("http://{}", node.address());
    let status = stage.program.answer(&["leader", "status", "--url", &url, "--terms", "500", "--json"]);
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["overlaps"], json!([]), "{what}: {status}");
}

/// Each accepted write is there, and was made by the node whose term it was then, by the store's clock; what was refused
/// is not there. How many were accepted.
async fn check_writes(stage: &Stage, what: &str, seen: &Seen, terms: &[TermRow]) -> usize {
    let mut accepted = 0;
    for write in &seen.writes {
        let Outcome::Accepted(id) = write.outcome else { continue };
        let job = stage.store.job(id).await.unwrap();
        let job = job.unwrap_or_else(|| panic!("{what}: {id} was accepted by {} and is gone", write.node));
        // A write of a deposed node would fall into its successor's term. As it is, each accepted write has the epoch of
        // the term it falls into, and these never fall. Two things of one tick of the clock are in no order.
        let from = terms.iter().position(|term| term.began_at < job.created_at).unwrap_or(terms.len() - 1);
        let until = terms.iter().rposition(|term| term.began_at == job.created_at).unwrap_or(from);
        let mut then = terms[from.min(until)..=from.max(until)].iter();
        assert!(
            then.any(|term| term.instance == write.node),
            "{what}: a stale write: {job:#?} by {} in {terms:#?}",
            write.node
        );
        accepted += 1;
    }
    let refused: HashSet<&str> =
        seen.writes.iter().filter(|w| w.outcome == Outcome::Refused).map(|w| w.mark.as_str()).collect();
    for mark in marks(stage).await {
        assert!(!refused.contains(mark.as_str()), "{what}: {mark:?} was refused and is there");
    }
    accepted
}

/// The marks of all writes in the store.
pub(crate) async fn marks(stage: &Stage) -> Vec<String> {
    let mut marks = Vec::new();
    let mut before = None;
    loop {
        let filter = JobFilter { limit: 1000, before, ..JobFilter::default() };
        let jobs = stage.store.jobs(filter).await.unwrap();
        before = jobs.last().map(|job| job.id);
        if jobs.is_empty() {
            return marks;
        }
        let payloads = jobs.iter().map(|job| serde_json::from_str::<String>(job.payload.get()).unwrap());
        marks.extend(payloads.map(|payload| payload.strip_prefix(WRITTEN).unwrap().to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn sightings(all: &[(&'static str, u64, u64, u64)]) -> usize {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let sightings: Vec<Sighting> = all
            .iter()
            .map(|(node, epoch, sent, answered)| Sighting {
                node,
                epoch: *epoch,
                sent: at(*sent),
                answered: at(*answered),
            })
            .collect();
        double_leaders(&sightings).len()
    }

    #[test]
    fn leaders_one_after_the_other_are_fine() {
        assert_eq!(sightings(&[("a", 1, 0, 5), ("a", 1, 10, 15), ("b", 2, 20, 25), ("a", 3, 30, 35)]), 0);
    }

    #[test]
    fn looks_that_were_under_way_together_prove_nothing() {
        // The old leader may have been asked first and answered late.
        assert_eq!(sightings(&[("a", 1, 0, 20), ("b", 2, 5, 10)]), 0);
        assert_eq!(sightings(&[("a", 1, 9, 20), ("b", 2, 5, 10)]), 0);
    }

    #[test]
    fn an_old_leader_seen_after_the_new_one_is_found() {
        assert_eq!(sightings(&[("b", 2, 5, 10), ("a", 1, 11, 20)]), 1);
        assert_eq!(sightings(&[("a", 1, 0, 1), ("b", 2, 5, 10), ("b", 2, 12, 13), ("a", 1, 14, 20)]), 1);
    }

    #[test]
    fn one_epoch_at_two_nodes_is_found() {
        assert_eq!(sightings(&[("a", 1, 0, 20), ("b", 1, 5, 10)]), 1);
    }
}
