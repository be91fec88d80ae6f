//! What came of a run, as a table and as an exit code.

use std::fmt::Write as _;

use crate::check::{Figures, Violation};
use crate::plan::{CATALOGUE, Spec};
use crate::run::Options;
use crate::site::Kind;
use crate::watch::Seen;

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

/// How closely a site was looked at, and what its processes took.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Looks {
    nodes: u64,
    leaders: usize,
    cursors: u64,
    pointers: u64,
    answers: u64,
    memory_mib_max: u64,
    files_max: u64,
}

impl Looks {
    /// Those of a watch.
    pub(crate) fn of(seen: &Seen) -> Self {
        Self {
            nodes: seen.looks,
            leaders: seen.sightings.len(),
            cursors: seen.cursors,
            pointers: seen.pointers,
            answers: seen.answers,
            memory_mib_max: seen.memory_max >> 10,
            files_max: seen.files_max,
        }
    }
}

/// What came of one site.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) kind: Kind,
    pub(crate) struck: Vec<Struck>,
    pub(crate) figures: Figures,
    pub(crate) looks: Looks,
    /// Dead letters of the mirror that were requeued, each as often as that was done.
    pub(crate) requeued: u64,
    pub(crate) violations: Vec<Violation>,
    /// Who ended although nobody had asked for it.
    pub(crate) ended: Vec<String>,
    /// Faults that cannot be brought about on this machine.
    pub(crate) left_out: Vec<&'static str>,
}

impl Part {
    fn count(&self, name: Option<&str>, hit: bool) -> usize {
        let same = |struck: &&Struck| struck.hit == hit && name.is_none_or(|name| struck.name == name);
        self.struck.iter().filter(same).count()
    }
}

/// What came of all sites.
#[derive(Debug)]
pub struct Report {
    parts: Vec<Part>,
    /// The arguments that bring the same faults about, with the program of the same commit.
    replay: String,
}

impl Report {
    pub(crate) fn new(options: &Options) -> Self {
        let build = if cfg!(debug_assertions) { "" } else { " --release" };
        let mut replay =
            format!("cargo xtask chaos{build} --seed {} --seconds {}", options.seed, options.time.as_secs());
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

    pub(crate) fn add(&mut self, part: Part) {
        self.parts.push(part);
    }

    /// Whether everything was kept.
    pub fn is_well(&self) -> bool {
        self.parts.iter().all(|part| part.violations.is_empty())
    }

    /// How many faults hit something.
    pub fn faults(&self) -> usize {
        self.parts.iter().map(|part| part.count(None, true)).sum()
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
            "\nfaults by kind                      {}",
            self.columns(|part| format!("{:?}", part.kind))
        ));
        for spec in self.faults_that_hit() {
            let of = |part: &Part| part.count(Some(spec.name), true).to_string();
            line(format_args!("  {:34}{}  {}", spec.name, self.columns(of), spec.about));
        }
        line(format_args!("  {:34}{}", "all", self.columns(|part| part.count(None, true).to_string())));
        let missed = |part: &Part| part.count(None, false).to_string();
        line(format_args!("  {:34}{}\n", "nothing there to hit", self.columns(missed)));
        for (name, of) in FIGURES {
            line(format_args!("{:36}{}", name, self.columns(of)));
        }
        line(format_args!(""));
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

    /// As a page of the documentation.
    pub fn page(&self, commit: &str) -> String {
        let mut page = String::new();
        let mut line = |words: std::fmt::Arguments<'_>| {
            let _ = writeln!(page, "{words}");
        };
        line(format_args!(
            "# A run of faults\n\nWritten by `cargo xtask chaos --store`; what it does and what it believes is told in \
             [chaos/README.md](../chaos/README.md).\n\nOf commit {commit}: `{}`, {} cores. {} faults hit, {} jobs and pushes \
             were acknowledged, {}.\n",
            self.replay,
            std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            self.faults(),
            self.acknowledged(),
            if self.is_well() { "no invariant was violated" } else { "**invariants were violated**" },
        ));
        let head = self.cells(|part| format!("{:?}", part.kind));
        let ruler = self.cells(|_| "---:".to_owned());
        line(format_args!("| what was seen |{head}\n| --- |{ruler}"));
        for (name, of) in FIGURES {
            line(format_args!("| {name} |{}", self.cells(of)));
        }
        line(format_args!("\nOf each kind of fault, how many hit; in brackets, how many met nothing:\n"));
        line(format_args!("| fault |{head} |\n| --- |{ruler} --- |"));
        for spec in CATALOGUE {
            let of =
                |part: &Part| match (part.count(Some(spec.name), true), part.count(Some(spec.name), false)) {
                    (0, 0) => String::new(),
                    (hit, 0) => hit.to_string(),
                    (hit, missed) => format!("{hit} ({missed})"),
                };
            line(format_args!("| `{}` |{} {} |", spec.name, self.cells(of), spec.about));
        }
        line(format_args!("| all |{} |", self.cells(|part| part.count(None, true).to_string())));
        for part in self.parts.iter().filter(|part| !part.left_out.is_empty()) {
            line(format_args!("\nLeft out on {:?}: {}.", part.kind, part.left_out.join(", ")));
        }
        page
    }

    /// What could not be brought about on this machine.
    pub fn left_out(&self) -> Vec<&'static str> {
        self.parts.iter().flat_map(|part| part.left_out.iter().copied()).collect()
    }

    fn faults_that_hit(&self) -> impl Iterator<Item = &'static Spec> {
        CATALOGUE.iter().filter(|spec| self.parts.iter().any(|part| part.count(Some(spec.name), true) > 0))
    }

    fn columns(&self, of: impl Fn(&Part) -> String) -> String {
        self.parts.iter().map(|part| format!("{:>13}", of(part))).collect()
    }

    fn cells(&self, of: impl Fn(&Part) -> String) -> String {
        self.parts.iter().map(|part| format!(" {} |", of(part))).collect()
    }
}

type Of = fn(&Part) -> String;

const FIGURES: [(&str, Of); 24] = [
    ("acknowledged jobs", |p| p.figures.jobs.to_string()),
    ("acknowledged pushes", |p| p.figures.pushes.to_string()),
    ("lost", |p| p.figures.lost.to_string()),
    ("doubled", |p| p.figures.doubled.to_string()),
    ("there, but not acknowledged", |p| p.figures.unknown.to_string()),
    ("executions", |p| p.figures.executions.to_string()),
    ("taken over after a lease", |p| p.figures.recovered.to_string()),
    ("of them from workers seen to beat", |p| p.figures.watched.to_string()),
    ("silence before it, ms: median; most", |p| {
        format!("{}; {}", p.figures.silence_ms.0, p.figures.silence_ms.1)
    }),
    ("artifacts compared", |p| p.figures.clips.to_string()),
    ("moves of refs on the remote", |p| p.figures.moves.to_string()),
    ("entries of the mirror, each ended", |p| p.figures.entries.to_string()),
    ("dead letters requeued", |p| p.requeued.to_string()),
    ("rows of the directive", |p| p.figures.rows.to_string()),
    ("runs of the directive", |p| p.figures.runs.to_string()),
    ("looks at nodes", |p| p.looks.nodes.to_string()),
    ("of them at a leader", |p| p.looks.leaders.to_string()),
    ("looks at the cursor", |p| p.looks.cursors.to_string()),
    ("of them in the middle of a pass", |p| p.looks.pointers.to_string()),
    ("answers searched for secrets", |p| p.looks.answers.to_string()),
    ("memory of a process, MiB at most", |p| p.looks.memory_mib_max.to_string()),
    ("files of a process at most", |p| p.looks.files_max.to_string()),
    ("ended before they had begun", |p| p.ended.len().to_string()),
    ("violations", |p| p.violations.len().to_string()),
];
