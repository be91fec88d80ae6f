//! `stargate drill`: a failure on purpose, on a queue of its own. Each trial of a worker runs on both stores.

use std::path::Path;

use serde_json::Value;
use stargate_store::postgres::{Options, Postgres};
use stargate_testkit::postgres::Database;
use stargate_testkit::process::Program;

use crate::{code, configured, stargate, stderr};

/// As short as it may be. Four jobs are two for each worker, so that both have their hands full.
const SHORT: [&str; 5] = ["--lease", "1s", "--jobs", "4", "--json"];
/// Of a lease of one second, at most one heartbeat is over when the worker is hit.
const TAKEN_OVER_MS_MIN: u64 = 500;

fn report(program: &Program, words: &[&str]) -> Value {
    let text = program.answer(&[&["drill"], words].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Runs the trial and looks at everything it promises.
fn assert_kept(program: &Program, trial: &str) {
    let report = report(program, &[&[trial], &SHORT[..]].concat());
    let expected =
        serde_json::json!({ "drill": trial, "accepted": 4, "lost": 0, "wrong_ends": [], "kept": true });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&report[name], value, "{name} of {report}");
    }
    assert!(report["held"].as_u64() > Some(0), "the worker was in the middle of something: {report}");
    assert!(report["taken_over_ms"].as_u64() >= Some(TAKEN_OVER_MS_MIN), "{report}");
    let jobs: Value = serde_json::from_str(&program.answer(&["job", "list", "--json"])).unwrap();
    assert!(jobs.as_array().unwrap().iter().all(|job| job["state"] == "done"), "none is left open: {jobs}");
}

fn on_sqlite() -> Program {
    let program = stargate();
    program.answer(&["migrate"]);
    program
}

async fn assert_kept_on_postgres(trial: &str) {
    let database = Database::create(async |url: String| {
        Postgres::connect(&url, Options { migrate: true, ..Options::default() }).await.unwrap();
    })
    .await;
    let program = stargate().with("STARGATE_STORE", database.url());
    assert_kept(&program, trial);
    drop(program);
    database.remove().await;
}

#[test]
fn a_drill_kills_a_worker_of_its_own_and_leaves_no_unfinished_job_and_no_folder() {
    let folders = tempfile::tempdir().unwrap();
    let program = on_sqlite().with("TMPDIR", folders.path().display().to_string());
    assert_kept(&program, "kill-worker");
    assert_eq!(std::fs::read_dir(folders.path()).unwrap().count(), 0, "it cleans up");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drill_kills_a_worker_of_its_own_on_postgres() {
    assert_kept_on_postgres("kill-worker").await;
}

#[test]
fn a_drill_cuts_a_worker_off_that_comes_back_and_changes_nothing() {
    assert_kept(&on_sqlite(), "partition");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drill_cuts_a_worker_off_that_comes_back_and_changes_nothing_on_postgres() {
    assert_kept_on_postgres("partition").await;
}

/// Makes a store that keeps the result of the first attempt, as if it took the word of a worker whose lease is gone.
fn believe_the_first_attempt(store: &Path) {
    let store = rusqlite::Connection::open(store).unwrap();
    let lie = "create trigger believes after insert on job_history when new.attempt > 1 begin \
               update job_history set result = '{\"attempt\":1}' where id = new.id; end";
    store.execute_batch(lie).unwrap();
}

#[test]
fn a_drill_finds_out_that_the_end_of_a_lost_attempt_was_accepted() {
    let program = on_sqlite();
    believe_the_first_attempt(&program.home().join("stargate.db"));
    let output = program.run(&[&["drill", "kill-worker"], &SHORT[..]].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((code(&output), &report["kept"], &report["lost"]), (1, &false.into(), &0.into()), "{report}");
    let problem = "attempt 1 was accepted while attempt ";
    let wrong = report["wrong_ends"].as_array().unwrap();
    assert!(u64::try_from(wrong.len()).ok() >= report["held"].as_u64() && !wrong.is_empty(), "{report}");
    assert!(wrong.iter().all(|end| end["problem"].as_str().unwrap().starts_with(problem)), "{report}");
    assert!(stderr(&output).contains("DRILL_FAILED") && stderr(&output).contains(problem), "{output:?}");
}

#[test]
fn a_full_disk_refuses_by_name_and_what_was_accepted_is_done_later_beside_the_installation() {
    let program = configured("store = \"sqlite:mine.db\"\n");
    let report = report(&program, &["disk-full", "--json"]);
    assert_eq!((&report["kept"], &report["lost"]), (&true.into(), &0.into()), "{report}");
    let refusal = report["refused_as"].as_str().unwrap_or_default();
    assert!(refusal.contains("the disk is full"), "{report}");
    assert!(report["accepted"].as_u64() > Some(10), "{report}");
    let files = std::fs::read_dir(program.home()).unwrap().map(|file| file.unwrap().file_name());
    assert_eq!(files.collect::<Vec<_>>(), ["stargate.toml"], "the installation is not touched");
}
