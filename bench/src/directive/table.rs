//! What was measured, and how one compares with the other.

use super::{Loader, Pair, Round, Took};
use crate::report::{Goal, heading, line, median, note};

/// One round of a loader, as it is told while the others go on.
pub(super) fn seconds(pair: &Pair) -> String {
    let took =
        |took: &Took| format!("{:.2} s (load {:.2}, processor {:.2})", took.whole, took.load, took.cpu);
    format!("first {}, again {}", took(&pair.first), took(&pair.again))
}

/// Rates and ratios, medians of the rounds.
pub(super) fn print(rounds: &[Round], rows: u64) {
    heading("rows a second, whole program | load alone; seconds of the program on the processor");
    for (loader, _) in rounds.first().into_iter().flatten() {
        for (what, of) in [("first", first as fn(&Pair) -> Took), ("again", again)] {
            let took: Vec<Took> = pairs(rounds, *loader).map(|pair| of(&pair)).collect();
            let rate =
                |of: fn(&Took) -> f64| median(took.iter().map(|took| rows as f64 / of(took)).collect());
            let cpu = median(took.iter().map(|took| took.cpu).collect());
            let (whole, load) = (rate(|took| took.whole), rate(|took| took.load));
            note(&format!("{}, {what}", loader.name()), whole, "rows/s", Goal::None);
            println!("{:<22} {what} {whole:>12.0} | {load:>8.0}; {cpu:>6.2}", loader.name());
        }
    }
    heading("stargate / others, each round apart, whole programs");
    let goals = [
        ("first load / dlt, defaults", Loader::Dlt, first as fn(&Pair) -> Took, 10.0),
        ("first load / dlt, Arrow", Loader::DltArrow, first, 3.0),
        ("first load / Singer target", Loader::SingerTarget, first, 10.0),
        ("unchanged / dlt, defaults, again", Loader::Dlt, again, 20.0),
    ];
    for (what, loader, of, goal) in goals {
        compare(rounds, what, loader, of, goal);
    }
}

/// The ratio of whole programs, which has a goal, and that of the loads alone.
fn compare(rounds: &[Round], what: &str, loader: Loader, of: fn(&Pair) -> Took, goal: f64) {
    let ours = pairs(rounds, Loader::Stargate);
    let both: Vec<(Took, Took)> =
        ours.zip(pairs(rounds, loader)).map(|(ours, theirs)| (of(&ours), of(&theirs))).collect();
    if both.is_empty() {
        return;
    }
    let ratio =
        |of: fn(&Took) -> f64| median(both.iter().map(|(ours, theirs)| of(theirs) / of(ours)).collect());
    line(what, ratio(|took| took.whole), "", &Goal::AtLeast(goal));
    line(&format!("{what}, load alone"), ratio(|took| took.load), "", &Goal::None);
}

fn pairs(rounds: &[Round], wanted: Loader) -> impl Iterator<Item = Pair> {
    rounds.iter().flatten().filter(move |(loader, _)| *loader == wanted).map(|(_, pair)| *pair)
}

fn first(pair: &Pair) -> Took {
    pair.first
}

fn again(pair: &Pair) -> Took {
    pair.again
}
