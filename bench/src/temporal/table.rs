//! What was measured, and how one compares with the other.

use super::{Round, Subject};
use crate::report::{Goal, heading, line, median};

/// What the engine must reach of the bare loop with as many activities.
const GOAL: f64 = 0.5;

/// Rates and ratios, medians of the rounds.
pub(super) fn print(rounds: &[Round], subjects: &[Subject], pages: u32) {
    heading(&format!("directive of {pages} pages"));
    let pages = f64::from(pages);
    for subject in subjects {
        let rate = median(rounds.iter().filter_map(|round| Some(pages / of(round, *subject)?)).collect());
        line(subject.name(), rate, "pages/s", &Goal::None);
    }
    heading("more than embedded, for a page");
    for subject in subjects.iter().filter(|subject| **subject != Subject::Embedded) {
        let more = both(rounds, *subject, Subject::Embedded, |one, other| (one - other) / pages * 1000.0);
        if let Some(more) = more {
            line(subject.name(), more, "ms", &Goal::None);
        }
    }
    heading("ratios of the rates, each round apart");
    let ratios = [
        ("a page an activity / bare loop", Subject::OnePage, Subject::Bare, Goal::AtLeast(GOAL)),
        ("a page an activity / bare, two queues", Subject::OnePage, Subject::BareTwoQueues, Goal::None),
        // Without a goal: a stretch of pages in one activity is not the work of an activity for each.
        ("default / bare loop", Subject::Default, Subject::Bare, Goal::None),
        ("a page an activity / embedded", Subject::OnePage, Subject::Embedded, Goal::None),
        ("default / embedded", Subject::Default, Subject::Embedded, Goal::None),
    ];
    for (what, one, other, goal) in ratios {
        if let Some(ratio) = both(rounds, one, other, |one, other| other / one) {
            line(what, ratio, "", &goal);
        }
    }
}

/// The median of what is made of the times of two, if both were measured.
fn both(rounds: &[Round], one: Subject, other: Subject, make: impl Fn(f64, f64) -> f64) -> Option<f64> {
    let made = rounds.iter().map(|round| Some(make(of(round, one)?, of(round, other)?)));
    made.collect::<Option<Vec<f64>>>().map(median)
}

fn of(round: &Round, wanted: Subject) -> Option<f64> {
    round.iter().find(|(subject, _)| *subject == wanted).map(|(_, seconds)| *seconds)
}
