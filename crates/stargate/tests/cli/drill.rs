//! `stargate drill`: a failure on purpose, on a queue of its own. Each trial of a worker runs on both stores. However a
//! drill ends, nothing of it goes on.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use stargate_store::postgres::{Options, Postgres};
use stargate_testkit::eventually;
use stargate_testkit::postgres::Database;
use stargate_testkit::process::Program;
use tempfile::TempDir;

use crate::{code, configured, json, refusal, stargate, stderr};

/// As short as it may be. Four jobs are two for each worker, so that both have their hands full.
const SHORT: [&str; 5] = ["--lease", "1s", "--jobs", "4", "--json"];
/// So long that nothing but a signal ends the drill.
const LONG: [&str; 4] = ["--lease", "2m", "--jobs", "4"];
/// How long a drill may take to begin, and to end.
const DEADLINE: Duration = Duration::from_secs(60);

fn report(program: &Program, words: &[&str]) -> Value {
    let text = program.answer(&[&["drill"], words].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Runs the trial and looks at everything it promises.
fn assert_kept(program: &Program, trial: &str, hit: &str) {
    let report = report(program, &[&[trial], &SHORT[..]].concat());
    let expected = serde_json::json!({
        "drill": trial, "hit": hit, "accepted": 4, "lost": 0, "wrong_ends": [], "kept": true,
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&report[name], value, "{name} of {report}");
    }
    assert!(report["held"].as_u64() > Some(0), "the worker was in the middle of something: {report}");
    assert!(report["repeated"].as_u64() >= report["held"].as_u64(), "what it held had begun: {report}");
    let free = report["free_for_others_ms"].as_u64();
    assert!(free > Some(0) && report["running_again_ms"].as_u64() >= free, "{report}");
    assert_eq!(states(program), ["done"; 4], "none is left open");
    assert_eq!(queues(program), ["drill"], "all drills have the same queue");
    assert_eq!(
        json(program, &["workers", "--json"]),
        Value::Array(Vec::new()),
        "no worker is left in the list"
    );
}

fn states(program: &Program) -> Vec<String> {
    column(&json(program, &["job", "list", "--json"]), "state")
}

fn queues(program: &Program) -> Vec<String> {
    column(&json(program, &["queue", "list", "--json"]), "queue")
}

fn column(rows: &Value, name: &str) -> Vec<String> {
    rows.as_array().unwrap().iter().map(|row| row[name].as_str().unwrap().to_owned()).collect()
}

/// The binary, and a folder for all that it and its children put aside. They are known by that folder, too.
fn with_folder() -> (Program, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let program = on_sqlite().with("TMPDIR", folder.path().display().to_string());
    (program, folder)
}

fn is_empty(folder: &TempDir) -> bool {
    std::fs::read_dir(folder.path()).unwrap().next().is_none()
}

/// The processes that were told to put things there: number and state (`R`, `S`, `T` …).
fn processes(folder: &TempDir) -> Vec<(String, String)> {
    let told = format!("TMPDIR={}", folder.path().display());
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let read = |name: &str| std::fs::read(process.path().join(name)).unwrap_or_default();
        let environment = read("environ");
        if environment.split(|byte| *byte == 0).any(|variable| variable == told.as_bytes()) {
            let stat = String::from_utf8_lossy(&read("stat")).into_owned();
            let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.get(..1)).unwrap_or("?").to_owned();
            found.push((process.file_name().to_string_lossy().into_owned(), state));
        }
    }
    found
}

/// Waits until the drill has stopped its worker, which is in the middle of it.
async fn until_stopped(folder: &TempDir) {
    eventually(DEADLINE, "a stopped worker", || async {
        let found = processes(folder);
        if found.iter().any(|(_, state)| state == "T") { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
}

async fn until_no_process(folder: &TempDir) {
    eventually(DEADLINE, "the end of all processes", || async {
        let found = processes(folder);
        if found.is_empty() { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
}

fn on_sqlite() -> Program {
    let program = stargate();
    program.answer(&["migrate"]);
    program
}

async fn assert_kept_on_postgres(trial: &str, hit: &str) {
    let database = Database::create(async |url: String| {
        Postgres::connect(&url, Options { migrate: true, ..Options::default() }).await.unwrap();
    })
    .await;
    let program = stargate().with("STARGATE_STORE", database.url());
    assert_kept(&program, trial, hit);
    drop(program);
    database.remove().await;
}

#[test]
fn a_drill_kills_a_worker_of_its_own_and_leaves_no_unfinished_job_and_no_folder() {
    let (program, folder) = with_folder();
    assert_kept(&program, "kill-worker", "killed");
    assert!(is_empty(&folder), "it cleans up");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drill_kills_a_worker_of_its_own_on_postgres() {
    assert_kept_on_postgres("kill-worker", "killed").await;
}

#[test]
fn a_drill_cuts_a_worker_off_that_comes_back_and_changes_nothing() {
    assert_kept(&on_sqlite(), "partition", "stopped");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drill_cuts_a_worker_off_that_comes_back_and_changes_nothing_on_postgres() {
    assert_kept_on_postgres("partition", "cut_off").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drill_that_is_interrupted_leaves_no_process_no_unfinished_job_and_no_folder() {
    let (program, folder) = with_folder();
    let mut drill = program.start(&[&["drill", "partition"], &LONG[..]].concat());
    until_stopped(&folder).await;
    drill.terminate();
    assert_eq!(drill.ended(DEADLINE).await.code(), Some(130), "{}", drill.log());
    assert_eq!(processes(&folder), [], "{}", drill.log());
    assert!(is_empty(&folder), "{}", drill.log());
    let states = states(&program);
    assert!(
        states.len() == 4 && states.iter().all(|state| state == "done" || state == "cancelled"),
        "{states:?}"
    );
    assert_eq!(json(&program, &["workers", "--json"]), Value::Array(Vec::new()), "{}", drill.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_drill_ends_the_jobs_of_the_worker_that_it_killed_although_their_lease_goes_on() {
    let (program, folder) = with_folder();
    let mut drill = program.start(&[&["drill", "kill-worker"], &LONG[..]].concat());
    eventually(DEADLINE, "a killed worker", || {
        let log = drill.log();
        async move { if log.contains("was killed") { Ok(()) } else { Err(log) } }
    })
    .await;
    assert!(
        drill.log().contains("'--lease 3s' is faster"),
        "whoever waits is told for what: {}",
        drill.log()
    );
    drill.terminate();
    assert_eq!(drill.ended(DEADLINE).await.code(), Some(130), "{}", drill.log());
    assert!(processes(&folder).is_empty() && is_empty(&folder), "{}", drill.log());
    let states = states(&program);
    assert!(states.iter().all(|state| state == "done" || state == "cancelled"), "{states:?}");
    assert!(
        states.iter().filter(|state| *state == "cancelled").count() >= 2,
        "those of the dead one: {states:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_drill_takes_its_processes_with_it_and_the_next_one_ends_its_jobs() {
    let (program, folder) = with_folder();
    let mut drill = program.start(&["drill", "partition", "--lease", "6s", "--jobs", "40"]);
    until_stopped(&folder).await;
    let (exit, error) = refusal(&program, &["drill", "kill-worker", "--lease", "1s"]);
    assert_eq!((exit, &error["code"]), (4, &"CONFLICT".into()), "two would take each other's jobs: {error}");
    drill.kill();
    until_no_process(&folder).await;
    assert!(states(&program).iter().any(|state| state == "queued"), "nobody was left to tidy up");
    let next = [&["drill", "kill-worker"], &SHORT[..]].concat();
    let report = eventually(DEADLINE, "the end of the dead workers' leases", || {
        let output = program.run(&next);
        async move { if code(&output) == 4 { Err(stderr(&output)) } else { Ok(output) } }
    })
    .await;
    assert_eq!(code(&report), 0, "{}", stderr(&report));
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!((&report["accepted"], &report["lost"]), (&4.into(), &0.into()), "{report}");
    let states = states(&program);
    assert!(states.iter().all(|state| state == "done" || state == "cancelled"), "{states:?}");
    assert_eq!(queues(&program), ["drill"]);
}

#[test]
fn a_lease_out_of_range_is_refused_with_the_range() {
    let program = on_sqlite();
    for lease in ["500ms", "11m"] {
        let (exit, error) = refusal(&program, &["drill", "kill-worker", "--lease", lease]);
        assert!(exit == 2 && error["message"].as_str().unwrap().contains("1s to 10m"), "{error}");
    }
    let program = configured("[worker]\nlease = \"20m\"\n");
    let (exit, error) = refusal(&program, &["drill", "kill-worker"]);
    assert!(exit == 2 && error["message"].as_str().unwrap().contains("worker.lease is 20 min"), "{error}");
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
    assert_eq!(report["refused_code"], "STORE_UNAVAILABLE", "{report}");
    assert!(report["accepted"].as_u64() > Some(10), "{report}");
    assert!(report["taken_again_ms"].as_u64() <= report["promised_ms"].as_u64(), "{report}");
    let files = std::fs::read_dir(program.home()).unwrap().map(|file| file.unwrap().file_name());
    assert_eq!(files.collect::<Vec<_>>(), ["stargate.toml"], "the installation is not touched");
}

#[test]
fn a_store_that_is_named_for_the_full_disk_is_refused() {
    let (exit, error) = refusal(&stargate(), &["drill", "disk-full", "--store", "sqlite:mine.db"]);
    assert_eq!((exit, &error["help"]), (2, &"leave --store out".into()), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_that_is_interrupted_leaves_no_process_and_no_folder() {
    let (program, folder) = with_folder();
    let mut drill = program.start(&["drill", "disk-full"]);
    eventually(DEADLINE, "a full disk", || {
        let log = drill.log();
        async move { if log.contains("then the disk was full") { Ok(()) } else { Err(log) } }
    })
    .await;
    assert!(drill.log().starts_with("in a throw-away SQLite home"), "{}", drill.log());
    drill.terminate();
    assert_eq!(drill.ended(DEADLINE).await.code(), Some(130), "{}", drill.log());
    assert!(processes(&folder).is_empty() && is_empty(&folder), "{}", drill.log());
}
