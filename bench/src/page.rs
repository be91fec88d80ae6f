//! The results for people: the targets in one table, what has changed, and `docs/benchmarks.md` with its charts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::chart::{self, Bar, Better, thousands};
use crate::compare::{Change, Since, Verdict};
use crate::facts::Machine;
use crate::report::{Figure, Goal};
use crate::results::{Part, Results};

const PAGE: &str = "docs/benchmarks.md";
const CHARTS: &str = "docs/benchmarks";
/// What cannot be told from figures: why a goal is missed, and who is faster.
const NOTES: &str = "bench/notes.md";

const INTRODUCTION: &str = "\
# Benchmarks

What was measured in one run of everything on one machine. Written by `cargo xtask bench all --store`; what is measured and how is
told in [bench/README.md](../bench/README.md). Absolute figures belong to the machine; the ratios stand beside a peer or the raw limit
of the same run.
";

const AGAIN: &str = "\
## How to run it again

```console
$ cargo xtask bench all              # everything, with private servers; compares with the stored run
$ cargo xtask bench all --quick      # a tenth of it, to see that it runs
$ cargo xtask bench postgres         # one part
```

Let nothing else run meanwhile. `--store` keeps the results in the project and writes this page.
";

/// What has to be known to read the figures of a part.
const EXPLANATIONS: &[(&str, &str)] = &[
    (
        "peers",
        "\
Durability: everybody's enqueues and ends are answered after a synchronous commit. Our claims and heartbeats commit with
`synchronous_commit = off`: a claim that is lost in a crash of the server is given out again, and nothing that was accepted is lost
by that. No rival sets it, so their claims are synchronous commits like everything else they write; the fast ones claim hundreds to
thousands at once. \"all synchronous\" is Stargate with claims and heartbeats that wait for the disk, too.",
    ),
    (
        "git-large",
        "For the memory of the node, which holds nothing of what it passes on. One round, whose ratios are not judged.",
    ),
];

/// Writes the page and its charts.
pub(crate) fn write(results: &Results, project: &Path) -> Result<()> {
    let notes = std::fs::read_to_string(project.join(NOTES)).context(NOTES)?;
    let folder = project.join(CHARTS);
    std::fs::create_dir_all(&folder).context(CHARTS)?;
    for chart in charts(results) {
        std::fs::write(folder.join(&chart.file), &chart.svg).with_context(|| chart.file.clone())?;
    }
    std::fs::write(project.join(PAGE), page(results, &notes)).context(PAGE)
}

/// The whole page.
pub(crate) fn page(results: &Results, notes: &str) -> String {
    let mut page = format!("{INTRODUCTION}\n{}\n## Targets\n\n{}", facts(results), table_of_targets(results));
    let _ = write!(page, "\n{notes}\n## Charts\n\n");
    for chart in charts(results) {
        let _ = writeln!(page, "![{}](benchmarks/{})\n", chart.title, chart.file);
    }
    page.push_str("## All figures\n");
    for part in &results.parts {
        page.push_str(&section(part));
    }
    let _ = write!(page, "\n## Since the run before\n\n{}\n{AGAIN}", table_of_changes(results));
    page
}

/// Everything of one part.
fn section(part: &Part) -> String {
    let mut text = format!("\n### {}\n\n", part.name);
    if let Some(failure) = &part.failure {
        let _ = writeln!(text, "**Not complete: {failure}.**\n");
    }
    if let Some((_, explanation)) = EXPLANATIONS.iter().find(|(name, _)| *name == part.name) {
        let _ = writeln!(text, "{explanation}\n");
    }
    for remark in &part.remarks {
        let _ = writeln!(text, "- {remark}");
    }
    if !part.remarks.is_empty() {
        text.push('\n');
    }
    text.push_str("| | | figure | unit |\n| --- | --- | ---: | --- |\n");
    for figure in &part.figures {
        let (label, value) = (figure.label(), thousands(figure.value));
        let _ = writeln!(text, "| {} | {label} | {value} | {} |", figure.group, figure.unit);
    }
    text
}

fn facts(results: &Results) -> String {
    let facts = &results.facts;
    let minutes = results.parts.iter().map(|part| part.seconds).sum::<f64>() / 60.0;
    let mut rows = facts.rows();
    rows.push(("time", format!("{minutes:.0} minutes")));
    rows.push(("load average before, after", format!("{:.1}, {:.1}", facts.load_before, facts.load_after)));
    if let (Some(before), Some(after)) = (facts.pace_before, facts.pace_after) {
        rows.push((
            "a piece of work that is always the same, before, after",
            format!("{before:.1} ms, {after:.1} ms"),
        ));
    }
    let mut table = "| | |\n| --- | --- |\n".to_owned();
    for (name, fact) in rows {
        let _ = writeln!(table, "| {name} | {fact} |");
    }
    table
}

fn table_of_targets(results: &Results) -> String {
    let mut table = "| part | | | target | reached |\n| --- | --- | ---: | ---: | --- |\n".to_owned();
    let (mut all, mut reached) = (0, 0);
    for (part, figure) in results.figures() {
        let Some(is_reached) = figure.goal.is_reached_by(figure.value) else { continue };
        all += 1;
        reached += u32::from(is_reached);
        let _ = writeln!(
            table,
            "| {part} | {}: {} | {} {} | {} | {} |",
            figure.group,
            figure.label(),
            beside_goal(figure.value, figure.goal),
            figure.unit,
            figure.goal.text(),
            if is_reached { "yes" } else { "**missed**" }
        );
    }
    let _ = writeln!(table, "\n{reached} of {all} reached.");
    for part in results.parts.iter().filter_map(|part| Some((&part.name, part.failure.as_ref()?))) {
        let _ = writeln!(table, "\n**{} is not complete: {}.**", part.0, part.1);
    }
    // Whoever was not run could have been the fastest.
    for part in results.parts.iter().filter(|part| !part.remarks.is_empty()) {
        let _ = writeln!(table, "\n{}: {}.", part.name, part.remarks.join("; "));
    }
    table
}

/// A figure with digits enough to be told from its goal.
fn beside_goal(value: f64, goal: Goal) -> String {
    let text = thousands(value);
    match goal.bound() {
        Some(bound) if bound.to_bits() != value.to_bits() && thousands(bound) == text => {
            format!("{value:.4}")
        }
        _ => text,
    }
}

fn table_of_changes(results: &Results) -> String {
    let Some(Since { date, commit, machine, changes, missing }) = &results.since else {
        return "There is nothing to compare it with.\n".to_owned();
    };
    let machines = machine.as_ref().map_or_else(String::new, |then| machines(then, &results.facts.machine()));
    if changes.is_empty() && missing.is_empty() {
        return format!("Nothing differs by more than a tenth from {date}, commit {commit}.\n{machines}");
    }
    let mut text = format!("Compared with {date}, commit {commit}.\n{machines}");
    if !changes.is_empty() {
        text.push_str("\nMore than a tenth away (ratios: a twentieth), or on the other side of a goal:\n\n");
        text.push_str("| | before | now | |\n| --- | ---: | ---: | --- |\n");
    }
    for Change { name, unit, before, after, verdict } in changes {
        let (before, after) = (thousands(*before), thousands(*after));
        let _ = writeln!(text, "| {name} | {before} | {after} {unit} | {} |", words(*verdict));
    }
    if !missing.is_empty() {
        text.push_str("\nMissing now:\n\n");
    }
    for name in missing {
        let _ = writeln!(text, "- {name}");
    }
    text
}

/// What the two runs had to do with the machine: without that a slower one would be read as a slower program.
fn machines(then: &Machine, now: &Machine) -> String {
    let mut load =
        format!("The load average before was {:.1} then and {:.1} now.\n", then.load_before, now.load_before);
    if let (Some(then), Some(now)) = (then.pace, now.pace) {
        let _ = writeln!(
            load,
            "The machine took {then:.1} ms then and {now:.1} now for a piece of work that is always the same."
        );
    }
    // As far as names tell: two that are called the same may still have other neighbours.
    if then.name() == now.name() {
        return load;
    }
    format!(
        "{load}\n**That was another machine** ({}; now {}): absolute figures tell of the machines first, ratios of the program.\n",
        then.name(),
        now.name()
    )
}

fn words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "**worse**",
        Verdict::GoalReached => "goal now reached",
        Verdict::GoalMissed => "**goal now missed**",
    }
}

/// The targets, for a terminal.
pub(crate) fn targets(results: &Results) -> String {
    format!("\n=== targets\n{}", table_of_targets(results))
}

/// What has changed, for a terminal.
pub(crate) fn changes(results: &Results) -> String {
    format!("=== since the stored run\n{}", table_of_changes(results))
}

struct Chart {
    title: String,
    file: String,
    svg: String,
}

/// One for each group of figures, and each thing that is measured in it, that has something to compare.
fn charts(results: &Results) -> Vec<Chart> {
    let drawn = || results.figures().filter(|(_, figure)| better(&figure.unit).is_some());
    let named: BTreeSet<_> =
        drawn().filter_map(|(part, figure)| Some((part, &figure.group, measure(&figure.what)?))).collect();
    let mut groups: BTreeMap<(&str, &str, &str, &str), Vec<&Figure>> = BTreeMap::new();
    for (part, figure) in drawn() {
        // Ours may go without saying whose it is.
        let alone = figure.what.split(',').next().unwrap_or_default();
        let alone = named.contains(&(part, &figure.group, alone)).then_some(alone);
        let what = measure(&figure.what).or(alone).unwrap_or_default();
        groups.entry((part, &figure.group, what, &figure.unit)).or_default().push(figure);
    }
    let compared = groups.into_iter().filter(|(_, figures)| figures.iter().any(|figure| is_compared(figure)));
    let chart = |((part, group, what, unit), figures): ((&str, &str, &str, &str), Vec<&Figure>)| {
        let title =
            if what.is_empty() { format!("{part}: {group}") } else { format!("{part}: {group}: {what}") };
        let file =
            format!("{}.svg", title.to_ascii_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-"));
        let bars: Vec<Bar> = figures.into_iter().map(bar).collect();
        Some(Chart { svg: chart::bars(&title, unit, better(unit)?, &bars), title, file })
    };
    compared.filter_map(chart).collect()
}

fn bar(figure: &Figure) -> Bar {
    Bar { name: who(&figure.what), value: figure.value, is_ours: !is_other(&figure.what) }
}

/// Of what is in this unit; nothing where no chart is drawn of it.
fn better(unit: &str) -> Option<Better> {
    match unit {
        "ms" | "bytes" => Some(Better::Shorter),
        _ => unit.ends_with("/s").then_some(Better::Longer),
    }
}

/// Whether a chart is worth it for this one: beside a rate stand peers and raw limits, beside a time or a size only peers, because
/// others do not measure the same.
fn is_compared(figure: &Figure) -> bool {
    match better(&figure.unit) {
        Some(Better::Shorter) => is_peer(&figure.what),
        _ => is_other(&figure.what),
    }
}

/// What is measured, where the name of a figure begins with whose it is: `peer x (best): insert, 1000 a call`, `dlt, first`.
fn measure(what: &str) -> Option<&str> {
    let last = what.rsplit(", ").next().filter(|word| ["first", "again"].contains(word));
    let after = what.rsplit_once(": ").map(|(_, what)| what.split(',').next().unwrap_or_default());
    after.or(last)
}

/// Whose figure it is, and how it was come by.
fn who(what: &str) -> String {
    let what = what.strip_prefix("peer ").unwrap_or(what);
    match (what.rsplit_once(": "), what.rsplit_once(", ")) {
        (Some((who, how)), _) => match how.split_once(", ") {
            Some((_, how)) => format!("{who}, {how}"),
            None => who.to_owned(),
        },
        (None, Some((who, "first" | "again"))) => who.to_owned(),
        _ => what.to_owned(),
    }
}

/// Peers and raw limits, by what their figures are called.
fn is_other(what: &str) -> bool {
    let others = ["raw client", "bare ", "http-backend", "dlt", "Singer", "git push"];
    is_peer(what) || others.iter().any(|name| what.starts_with(name))
}

fn is_peer(what: &str) -> bool {
    what.starts_with("peer ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Goal;
    use crate::results::tests::results;

    #[test]
    fn targets_changes_and_charts_are_on_the_page() {
        let before = results(&[("drain", 100.0, "jobs/s", Goal::None)]);
        let after = results(&[
            ("raw client: drain", 400.0, "jobs/s", Goal::None),
            ("drain", 50.0, "jobs/s", Goal::None),
            ("drain / raw", 0.5, "", Goal::AtLeast(0.6)),
            ("commits", 0.01, "", Goal::AtMost(0.05)),
        ]);
        let mut after = after;
        after.since = Some(Since::between(&before, &after));
        let page = page(&after, "## Notes\n");
        assert!(
            page.contains("| postgres | Postgres: drain / raw | 0.5  | at least 0.6 | **missed** |"),
            "{page}"
        );
        assert!(page.contains("1 of 2 reached."), "{page}");
        assert!(page.contains("| postgres: Postgres: drain | 100 | 50 jobs/s | **worse** |"), "{page}");
        assert!(
            page.contains("![postgres: Postgres: drain](benchmarks/postgres--postgres--drain.svg)"),
            "{page}"
        );
    }

    #[test]
    fn what_is_missing_and_who_was_not_run_is_on_the_page() {
        let before = results(&[("drain", 1.0, "jobs/s", Goal::None), ("start", 1.0, "ms", Goal::None)]);
        let mut after = results(&[("drain / fastest rival", 2.0, "", Goal::AtLeast(1.5))]);
        after.parts[0].figures[0].against = Some("peer y (best)".into());
        after.parts[0].remarks.push("peer x (best): not run: no npm".into());
        after.since = Some(Since::between(&before, &after));
        let page = page(&after, "");
        for expected in [
            "Compared with 2026-01-02, commit abc.\n",
            "\nMissing now:\n\n- postgres: Postgres: drain\n- postgres: Postgres: start\n",
            "1 of 1 reached.\n\npostgres: peer x (best): not run: no npm.\n",
            "### postgres\n\n- peer x (best): not run: no npm\n\n| | | figure | unit |\n",
            "| postgres | Postgres: drain / fastest rival: peer y (best) | 2  | at least 1.5 | yes |",
            "| Postgres | 15, fsync on |",
        ] {
            assert!(page.contains(expected), "{expected}\nis not in\n{page}");
        }
    }

    #[test]
    fn a_figure_can_be_told_from_its_goal() {
        assert_eq!(beside_goal(0.9687, Goal::AtLeast(0.97)), "0.9687");
        assert_eq!(beside_goal(0.97, Goal::AtLeast(0.97)), "0.97");
        assert_eq!(beside_goal(1.2345, Goal::AtLeast(0.97)), "1.23");
    }

    #[test]
    fn a_run_on_another_machine_is_told_from_one_on_the_same() {
        let before = results(&[("drain", 100.0, "jobs/s", Goal::None)]);
        let changes = |processor: &str, drain: f64| {
            let mut after = results(&[("drain", drain, "jobs/s", Goal::None)]);
            after.facts.processor = processor.into();
            after.since = Some(Since::between(&before, &after));
            table_of_changes(&after)
        };
        let load = "commit abc.\nThe load average before was 0.1 then and 0.1 now.\nThe machine took 10.0 ms then and 10.0 now";
        let other = "**That was another machine** (a processor, 2 cores; now another, 2 cores): ";
        for drain in [100.0, 50.0] {
            let (same, moved) = (changes("a processor", drain), changes("another", drain));
            assert!(same.contains(load) && !same.contains("another machine"), "{same}");
            assert!(moved.contains(load) && moved.contains(other), "{moved}");
        }
    }

    #[test]
    fn the_first_run_is_compared_with_none() {
        let page = page(&results(&[]), "");
        assert!(page.contains("## Since the run before\n\nThere is nothing to compare it with."), "{page}");
    }

    #[test]
    fn a_chart_compares_one_thing() {
        let results = results(&[
            ("stargate (default): insert, 1000 a call", 9.0, "jobs/s", Goal::None),
            ("peer x (best): insert, one a call", 2.0, "jobs/s", Goal::None),
            ("peer x (best): drain", 3.0, "jobs/s", Goal::None),
            ("drain", 4.0, "jobs/s", Goal::None),
        ]);
        let charts = charts(&results);
        let files: Vec<&str> = charts.iter().map(|chart| chart.file.as_str()).collect();
        assert_eq!(files, ["postgres--postgres--drain.svg", "postgres--postgres--insert.svg"]);
        let names = [">drain<", ">x (best)<", ">stargate (default), 1000 a call<", ">x (best), one a call<"];
        assert!(names.iter().zip([0, 0, 1, 1]).all(|(name, at): (_, usize)| charts[at].svg.contains(name)));
        assert_eq!(measure("dlt, Arrow, first"), Some("first"));
        assert_eq!(who("dlt, Arrow, first"), "dlt, Arrow");
        assert_eq!((measure("bare loop, two queues"), who("bare loop")), (None, "bare loop".to_owned()));
    }

    #[test]
    fn times_and_sizes_beside_a_peer_have_charts_and_those_beside_others_have_none() {
        let results = results(&[
            ("stargate (default): start p50", 0.3, "ms", Goal::None),
            ("peer x (best): start p50", 0.6, "ms", Goal::None),
            ("peer x (best): WAL per job", 700.0, "bytes", Goal::None),
            ("peer x (best): commits per job", 2.0, "", Goal::None),
            ("bare loop", 49.0, "ms", Goal::None),
            ("temporal, default", 0.7, "ms", Goal::None),
        ]);
        let charts = charts(&results);
        let files: Vec<&str> = charts.iter().map(|chart| chart.file.as_str()).collect();
        assert_eq!(files, ["postgres--postgres--wal-per-job.svg", "postgres--postgres--start-p50.svg"]);
        let start = &charts[1].svg;
        assert!(start.contains(">postgres: Postgres: start p50, ms, lower is better<"), "{start}");
        assert!(start.find(">stargate (default)<") < start.find(">x (best)<"), "{start}");
    }

    /// Whoever changes how the page looks writes it anew, and whoever changes the page changes what writes it.
    #[test]
    fn the_page_is_that_of_the_stored_run() {
        let project = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let Some(results) = Results::read(&project.join("bench/results/last.json")).unwrap() else {
            assert!(!project.join(PAGE).exists(), "{PAGE} is of no run that is stored");
            return;
        };
        let stored = std::fs::read_to_string(project.join(PAGE)).unwrap();
        let notes = std::fs::read_to_string(project.join(NOTES)).unwrap();
        assert_eq!(stored, page(&results, &notes));
        for chart in charts(&results) {
            assert!(project.join(CHARTS).join(&chart.file).exists(), "{}", chart.file);
        }
    }
}
