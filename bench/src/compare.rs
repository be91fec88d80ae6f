//! What became of the figures of a run since the one that was stored before it.

use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use crate::facts::Machine;
use crate::report::{Figure, Goal};
use crate::results::{Part, Results};

/// Less than this is noise on most machines.
const NOTEWORTHY: f64 = 0.1;
/// The same for a ratio of two figures of one run: the machine has no part in it.
const NOTEWORTHY_RATIO: f64 = 0.05;

/// What differs from the run before. It is stored with the run, because that takes the other one's place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Since {
    /// Of the run before.
    pub(crate) date: String,
    pub(crate) commit: String,
    /// Nothing if that was not kept when the run was stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) machine: Option<Machine>,
    pub(crate) changes: Vec<Change>,
    /// Figures and whole parts that only the run before has.
    pub(crate) missing: Vec<String>,
}

/// A figure that is not what it was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Change {
    pub(crate) name: String,
    pub(crate) unit: String,
    pub(crate) before: f64,
    pub(crate) after: f64,
    pub(crate) verdict: Verdict,
}

/// What a change means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Better,
    Worse,
    /// The goal was missed before.
    GoalReached,
    /// The goal was reached before.
    GoalMissed,
}

impl Since {
    pub(crate) fn between(before: &Results, now: &Results) -> Self {
        Self {
            date: before.facts.date.clone(),
            commit: before.facts.commit.clone(),
            machine: Some(before.facts.machine()),
            changes: changes(before, now),
            missing: missing(before, now),
        }
    }
}

/// What a figure is called in a whole run.
fn name(part: &str, figure: &Figure) -> String {
    format!("{part}: {}: {}", figure.group, figure.what)
}

fn changes(before: &Results, now: &Results) -> Vec<Change> {
    let old: HashMap<String, &Figure> =
        before.figures().map(|(part, figure)| (name(part, figure), figure)).collect();
    let change = |(part, figure): (&str, &Figure)| {
        let name = name(part, figure);
        let was = old.get(&name)?;
        let verdict = verdict(was, figure)?;
        Some(Change { name, unit: figure.unit.clone(), before: was.value, after: figure.value, verdict })
    };
    // Ratios first: they tell of us, where the rest tells of the machine as well.
    let (ratios, rest): (Vec<_>, Vec<_>) =
        now.figures().filter(|(_, figure)| is_ours(figure)).partition(|(_, figure)| is_ratio(figure));
    ratios.into_iter().chain(rest).filter_map(change).collect()
}

/// Whether it is a ratio of two figures of the same run.
fn is_ratio(figure: &Figure) -> bool {
    figure.unit.is_empty() && figure.what.contains(" / ")
}

/// Whether it tells anything of us: what others do alone is the other half of a ratio.
fn is_ours(figure: &Figure) -> bool {
    is_ratio(figure) || !["peer ", "raw client"].iter().any(|other| figure.what.contains(other))
}

/// Nothing where the two differ by no more than noise, or where nobody said what better means. A goal that is reached
/// no longer, or at last, is told however small the step was.
fn verdict(was: &Figure, is: &Figure) -> Option<Verdict> {
    match (was.goal.is_reached_by(was.value), is.goal.is_reached_by(is.value)) {
        (Some(true), Some(false)) => return Some(Verdict::GoalMissed),
        (Some(false), Some(true)) => return Some(Verdict::GoalReached),
        _ => {}
    }
    let higher = higher_is_better(is)?;
    let worse = (is.value < was.value) == higher;
    is_noteworthy(was, is).then_some(if worse { Verdict::Worse } else { Verdict::Better })
}

/// What was 0 has no ratio: then the goal says how much is much, and without one any step is.
fn is_noteworthy(was: &Figure, is: &Figure) -> bool {
    let measure = if was.value == 0.0 { is.goal.bound().unwrap_or(0.0) } else { was.value };
    let step = (is.value - was.value).abs();
    let noteworthy = if is_ratio(is) { NOTEWORTHY_RATIO } else { NOTEWORTHY };
    step > 0.0 && step >= noteworthy * measure.abs()
}

/// Whether more of it is better; nothing where nobody said.
fn higher_is_better(figure: &Figure) -> Option<bool> {
    match (figure.goal, figure.unit.as_str()) {
        (Goal::AtLeast(_), _) => Some(true),
        (Goal::AtMost(_), _) => Some(false),
        (Goal::None, unit) if unit.ends_with("/s") => Some(true),
        (Goal::None, "ms" | "s" | "ms/entry" | "bytes" | "MiB") => Some(false),
        _ => None,
    }
}

fn missing(before: &Results, now: &Results) -> Vec<String> {
    let names: BTreeSet<String> = now.figures().map(|(part, figure)| name(part, figure)).collect();
    before.parts.iter().flat_map(|part| missing_of(part, now, names.clone())).collect()
}

/// What one part had. Names are told once, also those that several figures of an older run share.
fn missing_of(part: &Part, now: &Results, mut known: BTreeSet<String>) -> Vec<String> {
    let has_figures = |now: &Part| now.name == part.name && !now.figures.is_empty();
    if !part.figures.is_empty() && !now.parts.iter().any(has_figures) {
        return vec![format!("{}: the whole part ({} figures)", part.name, part.figures.len())];
    }
    let names = part.figures.iter().map(|figure| name(&part.name, figure));
    names.filter(|name| known.insert(name.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::results;

    fn verdicts(before: &Results, after: &Results) -> Vec<(String, Verdict)> {
        let short = |name: &str| name.trim_start_matches("postgres: Postgres: ").to_owned();
        let since = Since::between(before, after);
        since.changes.iter().map(|change| (short(&change.name), change.verdict)).collect()
    }

    #[test]
    fn what_has_become_worse_is_told_from_what_has_become_better() {
        let before = results(&[
            ("drain", 100.0, "jobs/s", Goal::None),
            ("start", 1.0, "ms", Goal::None),
            ("ratio", 2.0, "", Goal::AtLeast(1.0)),
            ("same", 1.0, "ms", Goal::None),
            ("unknown", 1.0, "", Goal::None),
        ]);
        let after = results(&[
            ("drain", 50.0, "jobs/s", Goal::None),
            ("start", 0.5, "ms", Goal::None),
            ("ratio", 1.0, "", Goal::AtLeast(1.0)),
            ("same", 1.05, "ms", Goal::None),
            ("unknown", 9.0, "", Goal::None),
            ("new", 9.0, "ms", Goal::None),
        ]);
        let expected = [("drain", Verdict::Worse), ("start", Verdict::Better), ("ratio", Verdict::Worse)];
        assert_eq!(verdicts(&before, &after), expected.map(|(name, verdict)| (name.to_owned(), verdict)));
    }

    #[test]
    fn ratios_are_told_first_and_sooner_and_what_others_do_is_not() {
        let run = |drain, ratio, raw| {
            results(&[
                ("raw client: drain", raw, "jobs/s", Goal::None),
                ("drain", drain, "jobs/s", Goal::None),
                ("drain / raw drain", ratio, "", Goal::AtLeast(0.6)),
                ("drain / fastest rival: peer x", ratio, "", Goal::AtLeast(0.6)),
            ])
        };
        let told = verdicts(&run(70.0, 0.77, 100.0), &run(140.0, 0.72, 200.0));
        let expected = [
            ("drain / raw drain", Verdict::Worse),
            ("drain / fastest rival: peer x", Verdict::Worse),
            ("drain", Verdict::Better),
        ];
        assert_eq!(told, expected.map(|(name, verdict)| (name.to_owned(), verdict)));
    }

    #[test]
    fn a_goal_that_is_reached_no_longer_is_told_however_small_the_step() {
        let before = results(&[
            ("clones that failed", 0.0, "", Goal::AtMost(0.0)),
            ("clip", 1.049, "", Goal::AtMost(1.05)),
            ("load", 2.99, "", Goal::AtLeast(3.0)),
            ("missed as before", 1.0, "", Goal::AtLeast(3.0)),
        ]);
        let after = results(&[
            ("clones that failed", 5.0, "", Goal::AtMost(0.0)),
            ("clip", 1.053, "", Goal::AtMost(1.05)),
            ("load", 3.01, "", Goal::AtLeast(3.0)),
            ("missed as before", 1.01, "", Goal::AtLeast(3.0)),
        ]);
        let expected = [
            ("clones that failed", Verdict::GoalMissed),
            ("clip", Verdict::GoalMissed),
            ("load", Verdict::GoalReached),
        ];
        assert_eq!(verdicts(&before, &after), expected.map(|(name, verdict)| (name.to_owned(), verdict)));
    }

    #[test]
    fn a_step_away_from_zero_is_measured_by_the_goal() {
        let at = |much: f64, little: f64, any: f64, still: f64| {
            results(&[
                ("commits", much, "", Goal::AtMost(0.05)),
                ("memory", little, "MiB", Goal::AtMost(50.0)),
                ("start", any, "ms", Goal::None),
                ("still", still, "ms", Goal::None),
            ])
        };
        let found = verdicts(&at(0.0, 0.0, 0.0, 0.0), &at(0.04, 0.8, 0.1, 0.0));
        assert_eq!(found, [("commits".to_owned(), Verdict::Worse), ("start".to_owned(), Verdict::Worse)]);
    }

    #[test]
    fn what_is_missing_now_is_told() {
        let mut before = results(&[
            ("drain", 1.0, "jobs/s", Goal::None),
            ("page", 1.0, "ms", Goal::None),
            ("page", 2.0, "ms", Goal::None),
        ]);
        before.parts.push(Part { name: "leader".into(), ..before.parts[0].clone() });
        before.parts.push(Part { name: "failed already".into(), figures: vec![], ..before.parts[0].clone() });
        let mut after = results(&[("drain", 1.0, "jobs/s", Goal::None)]);
        let expected = ["postgres: Postgres: page", "leader: the whole part (3 figures)"];
        assert_eq!(Since::between(&before, &after).missing, expected);
        // A part that failed before its first figure is there, and has nothing.
        after.parts.push(Part { name: "leader".into(), figures: vec![], ..after.parts[0].clone() });
        assert_eq!(Since::between(&before, &after).missing, expected);
        assert_eq!(Since::between(&after, &after).missing, Vec::<String>::new());
    }
}
