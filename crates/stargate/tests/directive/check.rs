//! `stargate directive check|schema|list` on files.

use std::path::{Path, PathBuf};

use serde_json::Value;
use stargate_testkit::process::Program;

use crate::{code, stargate, stderr, stdout};

const GOOD: &str = r#"
name = "issues"
queue = "meta-py"
tenant = "acme"
project = "core"
schedule = "0 3 * * *"
time_zone = "Europe/Berlin"

[source]
type = "http"
url = "https://api.example/items"
headers = { authorization = "Bearer ${env:STARGATE_TEST_NOT_SET}" }

[item]
key = ["/id"]
map = { title = "/title" }

[sink]
table = "items"
outbox = "items.changed"
"#;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A home with a configuration and directives.
fn filled(config: &str, directives: &[(&str, &str)]) -> Program {
    let program = stargate();
    std::fs::write(program.home().join("stargate.toml"), config).unwrap();
    let dir = program.home().join("directives");
    std::fs::create_dir(&dir).unwrap();
    for (name, text) in directives {
        std::fs::write(dir.join(name), text).unwrap();
    }
    program
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn the_examples_are_right() {
    let examples = root().join("examples/directives");
    let output = stargate().run(&["directive", "check", examples.to_str().unwrap()]);
    assert_eq!(code(&output), 0, "{}{}", stdout(&output), stderr(&output));
    assert!(stdout(&output).contains("5 directives checked, no problems"), "{}", stdout(&output));
    // What only the workers' environment has is a warning here.
    let warned = stderr(&output);
    assert!(warned.contains("issues.toml:17:") && warned.contains("ACME_TOKEN is not set"), "{warned}");
}

#[test]
fn an_undefined_queue_fails_the_check() {
    let wrong = GOOD.replace("meta-py", "meta-go");
    let program = filled("", &[("issues.toml", &wrong)]);
    let output = program.run(&["directive", "check"]);
    assert_eq!(code(&output), 1);
    let told = stdout(&output);
    assert!(
        told.contains("issues.toml:3:9: queue \"meta-go\" is not defined; defined are meta-py, meta-ts"),
        "{told}"
    );
    assert!(stderr(&output).contains("1 problem in 1 file"), "{}", stderr(&output));
    // Once it is declared, the same file is right.
    std::fs::write(program.home().join("stargate.toml"), "[directives]\nqueues = [\"meta-go\"]\n").unwrap();
    assert_eq!(code(&program.run(&["directive", "check"])), 0);
}

#[test]
fn all_problems_of_all_files_are_told_for_programs_too() {
    let short = GOOD.replace("name = \"issues\"", "name = \"b\"\npage_size = 7").replace("\"/id\"", "\"id\"");
    let program = filled("", &[("issues.toml", GOOD), ("b.toml", &short), ("c.toml", "name = \n")]);
    let bytes = program.home().join("directives/d.toml");
    std::fs::write(&bytes, b"name = \"\xff\"\n").unwrap();
    let output = program.run(&["directive", "check", "--json"]);
    assert_eq!(code(&output), 1);
    let report = json(&stdout(&output));
    let problems = report["problems"].as_array().unwrap();
    let places: Vec<(String, u64, u64)> = problems
        .iter()
        .map(|problem| {
            let file = Path::new(problem["file"].as_str().unwrap()).file_name().unwrap();
            let number = |key: &str| problem[key].as_u64().unwrap();
            (file.to_str().unwrap().to_owned(), number("line"), number("column"))
        })
        .collect();
    let expected = [("b.toml", 3, 13), ("b.toml", 16, 8), ("c.toml", 1, 8), ("d.toml", 1, 9)];
    let expected = expected.map(|(file, line, column)| (file.to_owned(), line, column));
    assert_eq!(places, expected, "{report}");
    assert_eq!(report["files"], 4);
    let warnings: Vec<&str> =
        report["warnings"].as_array().unwrap().iter().map(|one| one["message"].as_str().unwrap()).collect();
    assert_eq!(warnings.len(), 2, "{report}");
    assert!(warnings[0].contains("STARGATE_TEST_NOT_SET is not set"), "{warnings:?}");
    assert!(warnings[1].contains("[outbox.\"items.changed\"] is missing"), "{warnings:?}");
    let error = json(stderr(&output).lines().last().unwrap());
    assert_eq!(error["error"]["code"], "DIRECTIVE_INVALID");
}

#[test]
fn directives_that_contradict_each_other_are_told_with_both_places() {
    let typed = GOOD
        .replace("name = \"issues\"", "name = \"tickets\"")
        .replace("title = \"/title\"", "title = { from = \"/n\", type = \"integer\" }");
    let program = filled("", &[("issues.toml", GOOD), ("tickets.toml", &typed)]);
    let other = program.home().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("issues.toml"), GOOD).unwrap();
    let dir = program.home().join("directives");
    let output = program.run(&[
        "directive",
        "check",
        dir.to_str().unwrap(),
        other.join("issues.toml").to_str().unwrap(),
    ]);
    assert_eq!(code(&output), 1);
    let told = stdout(&output);
    assert!(
        told.contains("tickets.toml:16:9: the column title of the table items is integer, but text at"),
        "{told}"
    );
    assert!(told.contains("other/issues.toml:2:8: the name \"issues\" is taken at"), "{told}");
    assert_eq!(told.lines().count(), 2, "{told}");
}

#[test]
fn what_is_not_there_is_told() {
    let program = stargate();
    let output = program.run(&["directive", "check", "none"]);
    assert_eq!(code(&output), 3, "{}", stderr(&output));
    let output = program.run(&["directive", "check", "none.toml"]);
    assert_eq!(code(&output), 1);
    assert!(
        stdout(&output).starts_with("none.toml:1:1: cannot be read: No such file"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn the_published_schema_is_the_one_that_is_printed() {
    let program = stargate();
    // A configuration that is wrong keeps nobody from reading it.
    std::fs::write(program.home().join("stargate.toml"), "wrong = 1\n").unwrap();
    let printed = stdout(&program.run(&["directive", "schema"]));
    let published = std::fs::read_to_string(root().join("docs/directive.schema.json")).unwrap();
    assert_eq!(printed, published);
    assert_eq!(json(&printed)["$schema"], "https://json-schema.org/draft/2020-12/schema");
}

#[test]
fn directives_are_listed_with_those_that_are_wrong() {
    let config = "[outbox.\"items.changed\"]\nfile = \"changes.jsonl\"\n";
    let program = filled(config, &[("issues.toml", GOOD), ("broken.toml", "name = 7\n")]);
    let output = program.run(&["directive", "list", "--json"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let views = json(&stdout(&output));
    let (broken, issues) = (&views[0], &views[1]);
    assert_eq!((&broken["name"], &broken["queue"]), (&Value::from("broken"), &Value::Null));
    assert!(broken["problem"].as_str().unwrap().contains("broken.toml:1:8:"), "{broken}");
    for (key, value) in [
        ("name", "issues"),
        ("queue", "meta-py"),
        ("tenant", "acme"),
        ("project", "core"),
        ("source", "http"),
        ("schedule", "0 3 * * *"),
        ("time_zone", "Europe/Berlin"),
        ("table", "items"),
        ("outbox", "items.changed"),
    ] {
        assert_eq!(issues[key], value, "{key}");
    }
    assert!(issues["delivered_to"].as_str().unwrap().ends_with("changes.jsonl"), "{issues}");
    let output = program.run(&["directive", "list"]);
    assert!(stdout(&output).contains("acme/core"), "{}", stdout(&output));
    assert!(stderr(&output).contains("broken.toml:1:8:"), "{}", stderr(&output));
    let empty = stargate().run(&["directive", "list"]);
    assert_eq!(code(&empty), 0);
    assert!(stderr(&empty).contains("no directives in"), "{}", stderr(&empty));
}
