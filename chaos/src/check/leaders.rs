//! One leader: by what nodes said, by the terms in the store, and by who took which write (INV-3).

use std::collections::{BTreeMap, HashMap};

use anyhow::Result;

use super::Violation;
use crate::evidence::Reader;
use crate::ledger::{Answer, Line};
use crate::watch::Sighting;

struct Term {
    epoch: i64,
    instance: String,
    began: i64,
    ended: Option<i64>,
}

impl Term {
    /// Whether some instant of this stretch of time was in it.
    fn meets(&self, from: i64, to: i64) -> bool {
        self.began <= to && self.ended.is_none_or(|ended| ended >= from)
    }
}

pub(super) async fn judge(
    reader: &Reader,
    lines: &[Line],
    sightings: &[Sighting],
    found: &mut Vec<Violation>,
) -> Result<()> {
    let rows = reader
        .rows("select epoch, instance, µ(began_at), µ(ended_at) from @leader_term order by epoch")
        .await?;
    let term = |row: &Vec<Option<String>>| {
        let column = |at: usize| row.get(at).and_then(Option::as_deref);
        Some(Term {
            epoch: column(0)?.parse().ok()?,
            instance: column(1)?.to_owned(),
            began: column(2)?.parse().ok()?,
            ended: column(3).and_then(|text| text.parse().ok()),
        })
    };
    let terms: Vec<Term> = rows.iter().filter_map(term).collect();
    found.extend(double(sightings).into_iter().map(|what| Violation::new(3, what)));
    found.extend(overlaps(&terms).into_iter().map(|what| Violation::new(3, what)));
    let created = "select id, µ(created_at) from @job_history union all select id, µ(created_at) from @job";
    let mut times = HashMap::new();
    for row in reader.rows(created).await? {
        if let [Some(id), Some(at)] = row.as_slice() {
            times.insert(id.parse().unwrap_or(0), at.parse().unwrap_or(0));
        }
    }
    found.extend(stale(lines, &terms, &times).into_iter().map(|what| Violation::new(3, what)));
    Ok(())
}

/// Sightings that prove two leaders at one moment. A term goes on without a break, and terms begin in the order of their
/// epochs: whoever was seen with a lower epoch after another had been seen with a higher one led at that moment too.
fn double(sightings: &[Sighting]) -> Vec<String> {
    let mut found = Vec::new();
    let mut holders: BTreeMap<u64, &Sighting> = BTreeMap::new();
    for sighting in sightings {
        let first = holders.entry(sighting.epoch).or_insert(sighting);
        if first.node != sighting.node {
            found
                .push(format!("{} and {} both led with epoch {}", first.node, sighting.node, sighting.epoch));
        }
    }
    let mut answered: Vec<&Sighting> = sightings.iter().collect();
    answered.sort_by_key(|sighting| sighting.answered);
    let mut sent = answered.clone();
    sent.sort_by_key(|sighting| sighting.sent);
    let mut answers = answered.into_iter().peekable();
    let mut highest: Option<&Sighting> = None;
    for late in sent {
        while let Some(answer) = answers.next_if(|answer| answer.answered < late.sent) {
            highest = highest.filter(|highest| highest.epoch >= answer.epoch).or(Some(answer));
        }
        if let Some(newer) = highest.filter(|newer| newer.epoch > late.epoch) {
            found.push(format!(
                "{} led with epoch {} after {} had led with {}",
                late.node, late.epoch, newer.node, newer.epoch
            ));
        }
    }
    found
}

fn overlaps(terms: &[Term]) -> Vec<String> {
    let pairs = terms.windows(2).filter(|pair| pair[0].ended.is_none_or(|ended| ended > pair[1].began));
    pairs
        .map(|pair| format!("term {} had not ended when term {} began", pair[0].epoch, pair[1].epoch))
        .collect()
}

/// Writes that a node took outside of its terms, by the store's clock, which is that of the machine.
fn stale(lines: &[Line], terms: &[Term], times: &HashMap<i64, i64>) -> Vec<String> {
    let mut found = Vec::new();
    let led = |answer: &Answer| {
        let in_it = |term: &Term| term.instance == answer.node && term.meets(answer.sent, answer.answered);
        terms.iter().any(in_it)
    };
    for line in lines {
        if let Line::Push { oid, answer, .. } = line
            && !led(answer)
        {
            found.push(format!("{oid} was taken by {}, which had no term then", answer.node));
        }
        let Line::Job { id, answer: Some(answer), mark, .. } = line else { continue };
        let Some(at) = times.get(id) else { continue };
        let Answer { node, sent, again, .. } = answer;
        if !led(answer) {
            found.push(format!("job {id} ({mark}) was taken by {node}, which had no term then"));
        }
        match terms.iter().rev().find(|term| term.meets(*at, *at)) {
            None => found.push(format!("job {id} ({mark}) was written in no term")),
            // With a key, the node that answered need not be the one that wrote: an earlier try may have got through, even later
            // than this one.
            Some(writer) if writer.instance != *node && at >= sent && !again => {
                found.push(format!("job {id} ({mark}) was taken by {node} in a term of {}", writer.instance));
            }
            Some(_) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn seen(begin: Instant, node: &str, epoch: u64, sent: u64, answered: u64) -> Sighting {
        let at = |seconds| begin + Duration::from_secs(seconds);
        Sighting { node: node.to_owned(), epoch, sent: at(sent), answered: at(answered) }
    }

    #[test]
    fn two_leaders_at_one_moment_are_found_and_looks_under_way_prove_nothing() {
        let now = Instant::now();
        let follow = [seen(now, "a", 1, 0, 1), seen(now, "b", 2, 2, 3)];
        assert_eq!(double(&follow), [""; 0]);
        let at_once = [seen(now, "b", 2, 2, 3), seen(now, "a", 1, 1, 4)];
        assert_eq!(double(&at_once), [""; 0]);
        assert_eq!(double(&[seen(now, "b", 2, 2, 3), seen(now, "a", 1, 4, 5)]).len(), 1);
        assert_eq!(double(&[seen(now, "a", 1, 0, 1), seen(now, "b", 1, 2, 3)]).len(), 1);
    }

    #[test]
    fn terms_that_overlap_and_writes_of_deposed_nodes_are_found() {
        let term =
            |epoch, instance: &str, began, ended| Term { epoch, instance: instance.to_owned(), began, ended };
        let good = [term(1, "a", 0, Some(5)), term(2, "b", 5, None)];
        assert_eq!(overlaps(&good), [""; 0]);
        assert_eq!(overlaps(&[term(1, "a", 0, Some(6)), term(2, "b", 5, None)]).len(), 1);
        let tried = |node: &str, sent, answered, again| {
            let answer = Some(Answer { node: node.into(), sent, answered, again });
            [Line::Job { mark: "m".into(), id: 1, via: "http".into(), answer }]
        };
        let line = |node: &str, sent, answered| tried(node, sent, answered, false);
        let found = |node: &str, sent, answered, at| {
            stale(&line(node, sent, answered), &good, &HashMap::from([(1, at)]))
        };
        assert_eq!(found("b", 6, 8, 7), [""; 0]);
        // A request that was repeated: the first try got through.
        assert_eq!(found("b", 6, 8, 3), [""; 0]);
        assert!(found("a", 6, 8, 7)[0].contains("which had no term then"));
        assert!(found("c", 6, 8, 7)[0].contains("which had no term then"));
        assert!(found("a", 4, 8, 7)[0].contains("in a term of b"));
        let late = [term(1, "a", 1, Some(5)), term(2, "b", 6, None), term(3, "a", 9, None)];
        assert!(stale(&line("a", 7, 8), &late, &HashMap::from([(1, 7)]))[0].contains("no term then"));
        assert!(stale(&line("b", 7, 8), &late, &HashMap::from([(1, 0)]))[0].contains("written in no term"));
        let push = |node: &str| {
            let answer = Answer { node: node.into(), sent: 6, answered: 8, again: false };
            [Line::Push { branch: "left".into(), oid: "c".into(), answer }]
        };
        assert_eq!(stale(&push("b"), &good, &HashMap::new()), [""; 0]);
        assert_eq!(stale(&push("a"), &good, &HashMap::new()), ["c was taken by a, which had no term then"]);
        let gap = [term(1, "a", 1, Some(4)), term(2, "b", 6, None)];
        for again in [false, true] {
            let found = stale(&tried("b", 7, 8, again), &gap, &HashMap::from([(1, 5)]));
            assert!(found[0].contains("written in no term"));
        }
    }
}
