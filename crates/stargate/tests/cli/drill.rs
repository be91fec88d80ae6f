//! `stargate drill`: a failure on purpose, on a queue of its own.

use serde_json::Value;
use stargate_store::postgres::{Options, Postgres};
use stargate_testkit::postgres::Database;
use stargate_testkit::process::Program;

fn report(program: &Program, words: &[&str]) -> Value {
    let text = program.answer(&[&["drill"], words, &["--json"]].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn assert_kept(report: &Value) {
    assert_eq!(
        (&report["kept"], &report["lost"], &report["ended_twice"]),
        (&true.into(), &0.into(), &0.into()),
        "{report}"
    );
    assert!(report["held"].as_u64() > Some(0) && report["taken_over_ms"].as_u64() >= Some(1000), "{report}");
}

#[test]
fn a_drill_kills_a_worker_of_its_own_and_leaves_no_unfinished_job_and_no_folder() {
    let program = Program::new(env!("CARGO_BIN_EXE_stargate")).with(
        "TMPDIR",
        std::env::temp_dir().join(format!("drill-{}", std::process::id())).display().to_string(),
    );
    let temporary = std::env::temp_dir().join(format!("drill-{}", std::process::id()));
    std::fs::create_dir_all(&temporary).unwrap();
    program.answer(&["migrate"]);
    assert_kept(&report(&program, &["kill-worker", "--lease", "2s", "--jobs", "8"]));
    let jobs: Value = serde_json::from_str(&program.answer(&["job", "list", "--json"])).unwrap();
    assert!(jobs.as_array().unwrap().iter().all(|job| job["state"] == "done"), "{jobs}");
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "it cleans up");
    std::fs::remove_dir(&temporary).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_cut_off_and_comes_back_changes_nothing_on_postgres() {
    let database = Database::create(async |url: String| {
        Postgres::connect(&url, Options { migrate: true, ..Options::default() }).await.unwrap();
    })
    .await;
    let program = Program::new(env!("CARGO_BIN_EXE_stargate")).with("STARGATE_STORE", database.url());
    assert_kept(&report(&program, &["partition", "--lease", "2s", "--jobs", "8"]));
    drop(program);
    database.remove().await;
}

#[test]
fn a_full_disk_refuses_by_name_and_what_was_accepted_is_done_later() {
    let program = Program::new(env!("CARGO_BIN_EXE_stargate"));
    let report = report(&program, &["disk-full"]);
    assert_eq!((&report["kept"], &report["lost"]), (&true.into(), &0.into()), "{report}");
    assert!(report["accepted"].as_u64() > Some(10), "{report}");
}
