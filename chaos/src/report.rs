//! What came of a run, as a table and as an exit code.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::check::{Figures, Violation};
use crate::plan::CATALOGUE;
use crate::run::Options;
use crate::site::Kind;

/// Violations of one invariant that are printed; the rest is counted.
const SHOWN: usize = 12;

/// A fault that was brought about, or tried to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Struck {
    /// Its name.
    pub(crate) name: &'static str,
    /// Whether there was anything to hit.
    pub(crate) hit: bool,
}

#[derive(Debug)]
struct Part {
    kind: Kind,
    struck: Vec<Struck>,
    figures: Figures,
    violations: Vec<Violation>,
    ended: Vec<String>,
    /// Faults that cannot be brought about on this machine.
    left_out: Vec<&'static str>,
}

/// What came of all sites.
#[derive(Debug)]
pub struct Report {
    parts: Vec<Part>,
    replay: String,
}

impl Report {
    pub(crate) fn new(options: &Options) -> Self {
        let mut replay =
            format!("cargo xtask chaos --seed {} --seconds {}", options.seed, options.time.as_secs());
        if let Some(faults) = options.faults {
            let _ = write!(replay, " --faults {faults}");
        }
        for kind in &options.sites {
            let _ = write!(replay, " --site {}", format!("{kind:?}").to_lowercase());
        }
        for word in &options.only {
            let _ = write!(replay, " --only {word}");
        }
        Self { parts: Vec::new(), replay }
    }

    pub(crate) fn add(
        &mut self,
        kind: Kind,
        struck: Vec<Struck>,
        figures: Figures,
        violations: Vec<Violation>,
        ended: Vec<String>,
        left_out: Vec<&'static str>,
    ) {
        self.parts.push(Part { kind, struck, figures, violations, ended, left_out });
    }

    /// Whether everything was kept.
    pub fn is_well(&self) -> bool {
        self.parts.iter().all(|part| part.violations.is_empty())
    }

    /// How many faults hit something.
    pub fn faults(&self) -> usize {
        self.parts.iter().flat_map(|part| &part.struck).filter(|struck| struck.hit).count()
    }

    /// How many things were acknowledged.
    pub fn acknowledged(&self) -> usize {
        self.parts.iter().map(|part| part.figures.jobs + part.figures.pushes).sum()
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |words: std::fmt::Arguments<'_>| {
            let _ = writeln!(text, "{words}");
        };
        line(format_args!(
            "\nfaults by kind                    {}",
            self.columns(|part| format!("{:?}", part.kind))
        ));
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for struck in self.parts.iter().flat_map(|part| &part.struck).filter(|struck| struck.hit) {
            *counts.entry(struck.name).or_default() += 1;
        }
        for spec in CATALOGUE.iter().filter(|spec| counts.contains_key(spec.name)) {
            let of =
                |part: &Part| part.struck.iter().filter(|s| s.hit && s.name == spec.name).count().to_string();
            line(format_args!("  {:32}{}  {}", spec.name, self.columns(of), spec.about));
        }
        let all = |part: &Part| part.struck.iter().filter(|struck| struck.hit).count().to_string();
        line(format_args!("  {:32}{}", "all", self.columns(all)));
        let missed = |part: &Part| part.struck.iter().filter(|struck| !struck.hit).count().to_string();
        line(format_args!("  {:32}{}\n", "nothing there to hit", self.columns(missed)));
        for (name, of) in FIGURES {
            line(format_args!("{:34}{}", name, self.columns(|part| of(&part.figures))));
        }
        line(format_args!(
            "{:34}{}",
            "processes ended by themselves",
            self.columns(|p| p.ended.len().to_string())
        ));
        line(format_args!("{:34}{}\n", "violations", self.columns(|part| part.violations.len().to_string())));
        for part in self.parts.iter().filter(|part| !part.left_out.is_empty()) {
            line(format_args!(
                "{:?}: left out, because it needs root, nftables or libfaketime: {}",
                part.kind,
                part.left_out.join(", ")
            ));
        }
        for part in &self.parts {
            for ended in part.ended.iter().take(SHOWN) {
                line(format_args!("{:?}: ended by itself: {ended}", part.kind));
            }
            for violation in part.violations.iter().take(SHOWN) {
                line(format_args!("{:?}: VIOLATION {violation}", part.kind));
            }
            if part.violations.len() > SHOWN {
                line(format_args!("{:?}: and {} more", part.kind, part.violations.len() - SHOWN));
            }
        }
        line(format_args!(
            "{} faults, {} acknowledged, {}; again: {}",
            self.faults(),
            self.acknowledged(),
            if self.is_well() { "no violation" } else { "VIOLATED" },
            self.replay
        ));
        text
    }

    fn columns(&self, of: impl Fn(&Part) -> String) -> String {
        self.parts.iter().map(|part| format!("{:>10}", of(part))).collect()
    }
}

type Of = fn(&Figures) -> String;

const FIGURES: [(&str, Of); 11] = [
    ("acknowledged jobs", |f| f.jobs.to_string()),
    ("acknowledged pushes", |f| f.pushes.to_string()),
    ("lost", |f| f.lost.to_string()),
    ("doubled", |f| f.doubled.to_string()),
    ("there, but not acknowledged", |f| f.unknown.to_string()),
    ("executions", |f| f.executions.to_string()),
    ("artifacts compared", |f| f.clips.to_string()),
    ("taken over after a lease", |f| f.recovered.to_string()),
    ("moves of refs on the remote", |f| f.moves.to_string()),
    ("rows of the directive", |f| f.rows.to_string()),
    ("runs of the directive", |f| f.runs.to_string()),
];
