//! Who may depend on whom: the table of the design, checked against what cargo sees.

use anyhow::{Context as _, Result};
use serde::Deserialize;

use super::{File, Problem};

/// Each crate with the crates of ours it may use. The crate that needs a store defines the trait; adapters depend
/// on it, never the reverse.
const OURS: [(&str, &[&str]); 21] = [
    ("stargate-base", &[]),
    ("stargate-queue", &["stargate-base"]),
    ("stargate-access", &["stargate-base"]),
    ("stargate-repo", &["stargate-base", "stargate-queue"]),
    ("stargate-directive", &["stargate-base", "stargate-queue"]),
    ("stargate-feed", &["stargate-base", "stargate-queue", "stargate-directive"]),
    ("stargate-temporal", &["stargate-base", "stargate-queue", "stargate-directive"]),
    (
        "stargate-store",
        &[
            "stargate-base",
            "stargate-queue",
            "stargate-leader",
            "stargate-access",
            "stargate-repo",
            "stargate-directive",
        ],
    ),
    ("stargate-artifact", &["stargate-base"]),
    ("stargate-leader", &["stargate-base"]),
    ("stargate-git", &["stargate-base"]),
    ("stargate-mirror", &["stargate-base", "stargate-git"]),
    ("stargate-gateway", &["stargate-base", "stargate-git", "stargate-mirror"]),
    (
        "stargate-jobs",
        &["stargate-base", "stargate-queue", "stargate-artifact", "stargate-repo", "stargate-directive"],
    ),
    (
        "stargate-web",
        &["stargate-base", "stargate-queue", "stargate-leader", "stargate-access", "stargate-mirror"],
    ),
    (
        "stargate",
        &[
            "stargate-base",
            "stargate-queue",
            "stargate-store",
            "stargate-access",
            "stargate-repo",
            "stargate-directive",
            "stargate-feed",
            "stargate-temporal",
            "stargate-artifact",
            "stargate-leader",
            "stargate-jobs",
            "stargate-web",
            "stargate-git",
            "stargate-mirror",
            "stargate-gateway",
        ],
    ),
    (
        "stargate-testkit",
        &[
            "stargate-base",
            "stargate-queue",
            "stargate-store",
            "stargate-access",
            "stargate-repo",
            "stargate-directive",
            "stargate-artifact",
            "stargate-leader",
            "stargate-jobs",
            "stargate-web",
        ],
    ),
    (
        "stargate-bench",
        &[
            "stargate-base",
            "stargate-queue",
            "stargate-store",
            "stargate-artifact",
            "stargate-jobs",
            "stargate-directive",
            "stargate-feed",
            // A Redis and nodes of the real program, for what a change of the leader takes.
            "stargate-testkit",
        ],
    ),
    // Nothing of the product: it judges by what it finds outside.
    ("stargate-chaos", &["stargate-testkit"]),
    // What an application of somebody else needs; more would not be an example.
    ("stargate-examples", &["stargate-queue", "stargate-store"]),
    ("xtask", &[]),
];

/// Crates of ours that any crate may use in its tests.
const OURS_IN_TESTS: [&str; 3] = ["stargate-testkit", "stargate-store", "stargate-chaos"];

/// Foreign crates that only some of ours may use. Tests are free: they may look behind the curtain.
const FOREIGN: &[(&str, &[&str])] = &[
    // Above the store nobody sees a driver. The benchmark measures itself against the bare driver.
    ("rusqlite", &["stargate-store", "stargate-testkit", "stargate-bench", "stargate-chaos"]),
    ("tokio-postgres", &["stargate-store", "stargate-testkit", "stargate-bench", "stargate-chaos"]),
    ("tokio-postgres-rustls", &["stargate-store"]),
    // Links another SQLite into the same program: docs/adr/0002.
    ("sqlx", &[]),
    // Signing and multipart uploads belong to one place.
    ("object_store", &["stargate-artifact", "stargate-testkit"]),
    // The lock and its scripts belong to one place. The doctor asks Redis for its settings.
    ("redis", &["stargate-leader", "stargate-testkit", "stargate"]),
    // The supervisor is the binary's business.
    ("sd-notify", &["stargate"]),
    // Serialisable API types and HTTP stay in one place.
    ("axum", &["stargate-web", "stargate-gateway"]),
    ("askama", &["stargate-web"]),
    ("tower", &["stargate-web"]),
    ("tower-http", &["stargate-web"]),
    ("utoipa", &["stargate-web"]),
    ("utoipa-axum", &["stargate-web"]),
    ("governor", &["stargate-web"]),
    ("metrics-exporter-prometheus", &["stargate-web", "stargate"]),
    ("metrics-process", &["stargate-web"]),
    // The crates say what a span is about; who collects it is the binary's business.
    ("opentelemetry", &["stargate"]),
    ("opentelemetry-http", &["stargate"]),
    ("opentelemetry-otlp", &["stargate"]),
    ("opentelemetry_sdk", &["stargate"]),
    // Libraries read no arguments and print nothing.
    ("clap", &["stargate", "stargate-bench", "stargate-chaos"]),
    ("clap_complete", &["stargate"]),
    ("clap_mangen", &["stargate"]),
    ("comfy-table", &["stargate"]),
    ("indicatif", &["stargate"]),
    ("owo-colors", &["stargate"]),
    ("ratatui", &["stargate"]),
    // Support bundles.
    ("tar", &["stargate"]),
    ("anstream", &["stargate"]),
    ("toml", &["stargate", "stargate-directive"]),
    ("tracing-subscriber", &["stargate", "stargate-bench", "stargate-testkit"]),
    // Libraries have typed errors.
    ("anyhow", &["stargate-bench", "stargate-chaos", "xtask"]),
    ("miette", &["stargate"]),
    // Child processes and outgoing requests belong to handlers; the command line speaks to its own server, and a
    // standby to the leader.
    ("process-wrap", &["stargate-jobs"]),
    ("reqwest", &["stargate-jobs", "stargate-feed", "stargate-web", "stargate", "stargate-chaos"]),
    // A cluster is one place's business; the rest sees runs. The benchmark measures itself against the bare SDK.
    ("temporalio-client", &["stargate-temporal", "stargate-bench"]),
    ("temporalio-common", &["stargate-temporal", "stargate-bench"]),
    ("temporalio-macros", &["stargate-temporal", "stargate-bench"]),
    ("temporalio-sdk", &["stargate-temporal", "stargate-bench"]),
    ("temporalio-workflow", &["stargate-temporal", "stargate-bench"]),
];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// `dev`, `build`, or absent for a normal one.
    kind: Option<String>,
    /// Present for a crate of ours.
    path: Option<String>,
}

/// Checks the output of `cargo metadata --no-deps`.
pub(super) fn check(metadata: &str) -> Result<Vec<Problem>> {
    let metadata: Metadata =
        serde_json::from_str(metadata).context("cannot read what cargo metadata wrote")?;
    Ok(metadata.packages.iter().flat_map(check_package).collect())
}

fn check_package(package: &Package) -> Vec<Problem> {
    let Some((_, allowed)) = OURS.iter().find(|(name, _)| *name == package.name) else {
        return vec![Problem::of(
            &package.name,
            "not in the table of xtask/src/tidy/crates.rs: enter what it may use",
        )];
    };
    let judged = package.dependencies.iter().filter_map(|dependency| {
        let name = dependency.name.as_str();
        let message = if dependency.path.is_some() {
            let in_tests = dependency.kind.as_deref() == Some("dev") && OURS_IN_TESTS.contains(&name);
            (!allowed.contains(&name) && !in_tests).then(|| format!("may not depend on {name}"))
        } else {
            judge_foreign(&package.name, dependency)
        };
        message.map(|message| Problem::of(&package.name, message))
    });
    judged.collect()
}

fn judge_foreign(package: &str, dependency: &Dependency) -> Option<String> {
    let (name, users) = FOREIGN.iter().find(|(name, _)| *name == dependency.name)?;
    let free = dependency.kind.as_deref() == Some("dev") || users.contains(&package);
    let who = if users.is_empty() { "nobody".to_owned() } else { users.join(", ") };
    (!free).then(|| format!("may not depend on {name}: only for {who}"))
}

/// Checks that a crate takes lints and versions from the workspace, where they are written once.
pub(super) fn check_manifest(file: &File) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut section = "";
    let mut has_lints = false;
    for (index, line) in file.text.lines().map(str::trim).enumerate() {
        if line.starts_with('[') {
            section = line;
        } else if section == "[lints]" && line == "workspace = true" {
            has_lints = true;
        } else if section.ends_with("dependencies]") && line.contains('=') && !line.starts_with('#') {
            let shared = line.contains("workspace = true");
            if !shared {
                let message = "versions are written once, in the root Cargo.toml: name.workspace = true";
                problems.push(Problem::at(&file.path, index + 1, message));
            }
        }
    }
    if !has_lints {
        problems.push(Problem::of(&file.path, "takes no lints: [lints] workspace = true"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn problems(package: &str, dependencies: &str) -> Vec<String> {
        let json = format!(r#"{{"packages":[{{"name":"{package}","dependencies":[{dependencies}]}}]}}"#);
        check(&json).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_edge_that_is_not_in_the_table_is_found() {
        let edge = |kind: &str| format!(r#"{{"name":"stargate-store","kind":{kind},"path":"x"}}"#);
        assert_eq!(
            problems("stargate-queue", &edge("null")),
            ["stargate-queue: may not depend on stargate-store"]
        );
        assert_eq!(problems("stargate-queue", &edge("\"dev\"")), [""; 0]);
        assert_eq!(problems("stargate", &edge("null")), [""; 0]);
    }

    #[test]
    fn the_testkit_is_for_tests_only_and_the_binary_for_nobody() {
        let testkit = |kind: &str| format!(r#"{{"name":"stargate-testkit","kind":{kind},"path":"x"}}"#);
        assert_eq!(problems("stargate-store", &testkit("null")).len(), 1);
        assert_eq!(problems("stargate-store", &testkit("\"dev\"")), [""; 0]);
        assert_eq!(problems("stargate-testkit", r#"{"name":"stargate","kind":null,"path":"x"}"#).len(), 1);
    }

    #[test]
    fn a_driver_above_the_store_is_found_but_not_in_tests() {
        let driver = |kind: &str| format!(r#"{{"name":"rusqlite","kind":{kind},"path":null}}"#);
        assert_eq!(
            problems("stargate-web", &driver("null")),
            [
                "stargate-web: may not depend on rusqlite: only for stargate-store, stargate-testkit, stargate-bench, stargate-chaos"
            ]
        );
        assert_eq!(problems("stargate-web", &driver("\"build\"")).len(), 1);
        assert_eq!(problems("stargate-web", &driver("\"dev\"")), [""; 0]);
        assert!(problems("stargate-store", r#"{"name":"sqlx","kind":null}"#)[0].ends_with("only for nobody"));
    }

    #[test]
    fn a_new_crate_must_be_entered() {
        assert!(problems("stargate-new", "")[0].contains("not in the table"));
    }

    #[test]
    fn versions_and_lints_come_from_the_workspace() {
        let good =
            "[package]\nversion = \"1\"\n[lints]\nworkspace = true\n[dependencies]\na.workspace = true\n";
        assert_eq!(check_manifest(&file("crates/a/Cargo.toml", good)), []);
        let bad = "[dependencies]\na = \"1\"\nb = { workspace = true }\n[dev-dependencies]\nc = { version = \"1\" }\n";
        let lines: Vec<usize> =
            check_manifest(&file("crates/a/Cargo.toml", bad)).iter().map(|p| p.line).collect();
        assert_eq!(lines, [2, 5, 0]);
    }
}
