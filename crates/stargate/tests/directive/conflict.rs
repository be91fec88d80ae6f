//! Two who want the same cursor.

use std::time::Duration;

use serde_json::Value;
use stargate_testkit::source_server::{Fault, SourceServer};

use crate::stage::{Kind, Place, Stage, Wishes};
use crate::{code, stderr};

/// Conflicts are waited for briefly, so that the test need not move the clock.
const SOON: Wishes = Wishes {
    top: "[retry]\nconflict_first = \"100ms\"\nconflict_max = \"200ms\"",
    source: None,
    item: "",
    sink: "",
};

pub(crate) async fn moved_by_hand_during_a_run(place: Place) {
    let stage = Stage::wishing(place, SourceServer::start(1000), &SOON).await;
    let mut worker = stage.worker();
    worker.ready().await;
    // The fourth page hangs until the cursor is moved.
    stage.server.fault_at(4, Fault::Delay(Duration::from_secs(3)));
    stage.begin();
    stage.run_is(|run| run["pages"] == 3).await;
    let moved = stage.json(&["cursor", "set", "issues", "--beginning", "--spec-ref", "OPS-7"]);
    assert_eq!(moved["cursor"]["source_pointer"], Value::Null);
    let run = stage.run_is(|run| run["outcome"] == "succeeded").await;
    assert_eq!(
        (&run["created"], run["cursor"]["processed_count"].as_u64()),
        (&1000.into(), Some(1000)),
        "{run}"
    );
    assert!(run["unchanged"].as_u64().unwrap() >= 300, "it went back to the beginning: {run}");
    stage.assert_equal_to_the_source().await;
    let log = worker.log();
    assert!(log.contains("\"WARN\"") && log.contains("\"Conflict\""), "{log}");
    let history = stage.json(&["cursor", "history", "issues"]);
    assert_eq!(history[0]["spec_ref"], "OPS-7");
    assert_eq!(history[0]["before"]["processed_count"], 300);
    stage.remove().await;
}

async fn two_at_once(kind: Kind) {
    let stage = Stage::new(kind, SourceServer::start(10)).await;
    stage.run();
    let version = stage.json(&["cursor", "show", "issues"])["cursor"]["version"].to_string();
    let set = |pointer: &'static str| {
        let (stage, version) = (&stage, &version);
        move || {
            let words = [
                "cursor",
                "set",
                "issues",
                "--pointer",
                pointer,
                "--spec-ref",
                "OPS-8",
                "--expected-version",
                version,
            ];
            let output = stage.directive(&words);
            (code(&output), stderr(&output))
        }
    };
    let answers = std::thread::scope(|scope| {
        let writers = ["1", "2", "3", "4"].map(|pointer| scope.spawn(set(pointer)));
        writers.map(|writer| writer.join().unwrap())
    });
    let won = answers.iter().filter(|(code, _)| *code == 0).count();
    assert_eq!(won, 1, "{answers:?}");
    assert!(answers.iter().filter(|(code, _)| *code == 4).count() == 3, "{answers:?}");
    assert_eq!(stage.json(&["cursor", "history", "issues"]).as_array().unwrap().len(), 1);
    stage.remove().await;
}

#[tokio::test]
async fn of_several_who_move_a_cursor_at_once_one_does_on_sqlite() {
    two_at_once(Kind::Sqlite).await;
}

#[tokio::test]
async fn of_several_who_move_a_cursor_at_once_one_does_on_postgres() {
    two_at_once(Kind::Postgres).await;
}

#[tokio::test]
async fn moving_a_cursor_needs_a_reason() {
    let stage = Stage::new(Kind::Sqlite, SourceServer::start(10)).await;
    stage.run();
    assert_eq!(code(&stage.directive(&["cursor", "set", "issues", "--beginning"])), 2);
    let empty = stage.directive(&["cursor", "set", "issues", "--beginning", "--spec-ref", " "]);
    assert_eq!(code(&empty), 5, "{}", stderr(&empty));
    stage.remove().await;
}

pub(crate) async fn a_second_run_stands_for_the_first(place: Place) {
    let stage = Stage::new(place, SourceServer::start(500)).await;
    stage.server.script(|_| Some(Fault::Delay(Duration::from_millis(50))));
    let mut worker = stage.worker();
    worker.ready().await;
    let both = std::thread::scope(|scope| {
        let runs = [(); 3].map(|()| scope.spawn(|| stage.run()));
        runs.map(|run| run.join().unwrap())
    });
    let created: u64 = stage.json(&["show", "issues"])["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["created"].as_u64().unwrap())
        .sum();
    assert_eq!(created, 500, "{both:?}");
    stage.assert_equal_to_the_source().await;
    stage.remove().await;
}
