//! What a run of everything found: figures, and the machine they belong to.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::report::{Figure, Goal};

/// Less than this is noise on most machines.
const NOTEWORTHY: f64 = 0.1;

/// All of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) facts: Facts,
    pub(crate) parts: Vec<Part>,
}

/// The machine, and what else it did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Facts {
    pub(crate) date: String,
    pub(crate) commit: String,
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) memory_mib: u64,
    pub(crate) kernel: String,
    pub(crate) git: String,
    /// The load averages of a minute before and after.
    pub(crate) load_before: f64,
    pub(crate) load_after: f64,
}

/// One part of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) seconds: f64,
    /// Why there is no more of it.
    pub(crate) failure: Option<String>,
    pub(crate) figures: Vec<Figure>,
}

/// A figure that is not what it was.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    pub(crate) name: String,
    pub(crate) unit: String,
    pub(crate) before: f64,
    pub(crate) after: f64,
    pub(crate) is_worse: bool,
}

impl Results {
    /// What is stored; nothing if there is nothing yet.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>> {
        if !path.exists() {
            return Ok(None);
        }
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_str(&text).map(Some).with_context(|| format!("{} is damaged", path.display()))
    }

    /// Takes the place of what was stored.
    pub(crate) fn store(&self, path: &Path) -> Result<()> {
        std::fs::create_dir_all(path.parent().context("a folder")?)?;
        std::fs::write(path, serde_json::to_string_pretty(self)? + "\n")
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Every figure with the name of its part.
    pub(crate) fn figures(&self) -> impl Iterator<Item = (&str, &Figure)> {
        self.parts.iter().flat_map(|part| part.figures.iter().map(move |figure| (part.name.as_str(), figure)))
    }

    /// Figures that differ from those of another run by more than noise, and for which it is known what better means.
    pub(crate) fn changes_since(&self, before: &Self) -> Vec<Change> {
        let name = |part: &str, figure: &Figure| format!("{part}: {}: {}", figure.group, figure.what);
        let old: std::collections::HashMap<String, f64> =
            before.figures().map(|(part, figure)| (name(part, figure), figure.value)).collect();
        let mut changes = Vec::new();
        for (part, figure) in self.figures() {
            let (Some(higher), Some(&was)) = (higher_is_better(figure), old.get(&name(part, figure))) else {
                continue;
            };
            if was == 0.0 || ((figure.value - was) / was).abs() < NOTEWORTHY {
                continue;
            }
            changes.push(Change {
                name: name(part, figure),
                unit: figure.unit.clone(),
                before: was,
                after: figure.value,
                is_worse: (figure.value < was) == higher,
            });
        }
        changes
    }
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

impl Facts {
    pub(crate) fn of_this_machine() -> Self {
        let file = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            line.and_then(|line| Some(line.split_once(':')?.1.trim().to_owned())).unwrap_or_default()
        };
        let memory = field(&file("/proc/meminfo"), "MemTotal");
        let memory_kib: u64 = memory.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0);
        Self {
            date: stargate_base::clock::wall().strftime("%Y-%m-%d").to_string(),
            commit: said("git", &["rev-parse", "--short", "HEAD"]),
            processor: field(&file("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            memory_mib: memory_kib >> 10,
            kernel: file("/proc/sys/kernel/osrelease").trim().to_owned(),
            git: said("git", &["--version"]),
            load_before: load(),
            load_after: 0.0,
        }
    }
}

/// The load average of the last minute.
pub(crate) fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0.0)
}

fn said(program: &str, arguments: &[&str]) -> String {
    #[expect(clippy::disallowed_methods, reason = "asks for versions")]
    let output = std::process::Command::new(program).args(arguments).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn results(values: &[(&str, f64, &str, Goal)]) -> Results {
        let figure = |&(what, value, unit, goal): &(&str, f64, &str, Goal)| Figure {
            group: "Postgres".into(),
            what: what.into(),
            value,
            unit: unit.into(),
            goal,
        };
        let figures = values.iter().map(figure).collect();
        let facts = Facts {
            date: "2026-01-02".into(),
            commit: "abc".into(),
            processor: "a processor".into(),
            cores: 2,
            memory_mib: 1024,
            kernel: "6".into(),
            git: "git version 2".into(),
            load_before: 0.1,
            load_after: 2.0,
        };
        Results { facts, parts: vec![Part { name: "postgres".into(), seconds: 1.0, failure: None, figures }] }
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
        let found: Vec<(String, bool)> =
            after.changes_since(&before).into_iter().map(|change| (change.name, change.is_worse)).collect();
        let name = |what: &str| format!("postgres: Postgres: {what}");
        assert_eq!(found, [(name("drain"), true), (name("start"), false), (name("ratio"), true)]);
    }

    #[test]
    fn what_is_stored_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results/last.json");
        assert_eq!(Results::read(&path).unwrap(), None);
        let results = results(&[("drain", 1.5, "jobs/s", Goal::AtMost(2.0))]);
        results.store(&path).unwrap();
        assert_eq!(Results::read(&path).unwrap(), Some(results));
        std::fs::write(&path, "{").unwrap();
        assert!(Results::read(&path).unwrap_err().to_string().contains("is damaged"));
    }
}
