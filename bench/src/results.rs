//! What a run of everything found, and where it is kept.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::compare::Since;
use crate::facts::Facts;
use crate::report::Figure;

/// All of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) facts: Facts,
    pub(crate) parts: Vec<Part>,
    /// Nothing if it is the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<Since>,
}

/// One part of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) seconds: f64,
    /// Why there is no more of it.
    pub(crate) failure: Option<String>,
    /// What no figure tells, such as who could not be run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) remarks: Vec<String>,
    pub(crate) figures: Vec<Figure>,
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

    /// Fails with the names of the parts that did. A goal that is missed is a result, not a failure.
    pub(crate) fn ensure_complete(&self) -> Result<()> {
        let failed: Vec<&str> =
            self.parts.iter().filter(|part| part.failure.is_some()).map(|part| part.name.as_str()).collect();
        ensure!(failed.is_empty(), "not complete: {}", failed.join(", "));
        Ok(())
    }
}

/// Names that several figures of a part share; of those only the last would be compared with another run.
pub(crate) fn shared_names(figures: &[Figure]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let shared: BTreeSet<String> = figures
        .iter()
        .filter(|figure| !seen.insert((&figure.group, &figure.what)))
        .map(|figure| format!("{}: {}", figure.group, figure.what))
        .collect();
    shared.into_iter().collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::report::Goal;

    pub(crate) fn results(values: &[(&str, f64, &str, Goal)]) -> Results {
        let figure = |&(what, value, unit, goal): &(&str, f64, &str, Goal)| Figure {
            group: "Postgres".into(),
            what: what.into(),
            against: None,
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
            rustc: "rustc 1".into(),
            postgres: "15, fsync on".into(),
            temporary_files: "ext4 on /dev/vda".into(),
            load_before: 0.1,
            load_after: 2.0,
            pace_before: Some(10.0),
            pace_after: Some(10.5),
        };
        let part =
            Part { name: "postgres".into(), seconds: 1.0, failure: None, remarks: Vec::new(), figures };
        Results { facts, parts: vec![part], since: None }
    }

    #[test]
    fn what_is_stored_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results/last.json");
        assert_eq!(Results::read(&path).unwrap(), None);
        let first = results(&[("drain", 1.5, "jobs/s", Goal::AtMost(2.0))]);
        let mut second = results(&[("drain", 2.5, "jobs/s", Goal::AtMost(2.0))]);
        second.since = Some(Since::between(&first, &second));
        second.parts[0].remarks.push("peer x (best): not run: no npm".into());
        second.parts[0].figures[0].against = Some("peer y (best)".into());
        for results in [first, second] {
            results.store(&path).unwrap();
            assert_eq!(Results::read(&path).unwrap(), Some(results));
        }
        // As it was stored before the machine was kept.
        let mut old: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert!(old["since"].as_object_mut().unwrap().remove("machine").is_some(), "{old}");
        std::fs::write(&path, old.to_string()).unwrap();
        let since = Results::read(&path).unwrap().unwrap().since.unwrap();
        assert_eq!((since.machine, since.changes.len()), (None, 1));
        std::fs::write(&path, "{").unwrap();
        assert!(Results::read(&path).unwrap_err().to_string().contains("is damaged"));
    }

    #[test]
    fn a_run_is_not_complete_if_a_part_failed_but_is_with_a_missed_goal() {
        let mut results = results(&[("drain", 1.0, "jobs/s", Goal::AtLeast(2.0))]);
        assert!(results.ensure_complete().is_ok());
        for name in ["leader", "git"] {
            let failure = Some("ended with exit status: 1".into());
            results.parts.push(Part { name: name.into(), failure, ..results.parts[0].clone() });
        }
        assert_eq!(results.ensure_complete().unwrap_err().to_string(), "not complete: leader, git");
    }

    #[test]
    fn a_name_that_figures_share_is_found() {
        let none = Goal::None;
        let results = results(&[
            ("page", 1.0, "ms", none),
            ("claim", 1.0, "ms", none),
            ("page", 2.0, "ms", none),
            ("page", 3.0, "ms", none),
        ]);
        assert_eq!(shared_names(&results.parts[0].figures), ["Postgres: page"]);
    }
}
