//! Many processes on one SQLite file.

use stargate_testkit::eventually;
use stargate_testkit::process::{Program, Running};

use crate::{PATIENCE, json};

const KINDS: &str = "[kinds.\"note\"]\nexec = [\"true\"]\nbackoff = \"10ms\"\n";
const PRODUCERS: usize = 4;
const JOBS_EACH: usize = 60;

/// Every command opens, migrates and closes the store: the worst that processes can do to each other.
const PRODUCE: &str = r#"
for n in $(seq "$1"); do "$0" job enqueue note "{\"n\": $n}" || echo "FAILED with $?"; done
"#;

#[tokio::test(flavor = "multi_thread")]
async fn many_processes_hammering_one_file_lock_nobody_out_and_lose_nothing() {
    let binary = env!("CARGO_BIN_EXE_stargate");
    let program = Program::new(binary).with("LOAD_THRESHOLD", "1000");
    std::fs::write(program.home().join("stargate.toml"), KINDS).unwrap();
    let mut worker = program.start(&["worker"]);
    // At the same time as all others: they race for the first migration as well.
    let shell = Program::new("/bin/sh").with("STARGATE_HOME", program.home().display().to_string());
    std::fs::write(shell.home().join("stargate.toml"), KINDS).unwrap();
    let count = JOBS_EACH.to_string();
    let mut producers: Vec<Running> =
        (0..PRODUCERS).map(|_| shell.start(&["-c", PRODUCE, binary, &count])).collect();
    worker.ready().await;
    let mut ids = Vec::new();
    for producer in &mut producers {
        producer.ended(PATIENCE).await;
        let log = producer.log();
        let own: Vec<i64> = log.lines().filter_map(|line| line.parse().ok()).collect();
        assert_eq!((own.len(), log.lines().count()), (JOBS_EACH, JOBS_EACH), "ids and nothing else: {log}");
        ids.extend(own);
    }
    ids.sort_unstable();
    assert_eq!(ids, (1..=(PRODUCERS * JOBS_EACH) as i64).collect::<Vec<_>>());
    eventually(PATIENCE, "all jobs to be done", || {
        let open =
            json(&program, &["job", "list", "--state", "queued", "--state", "processing", "--limit", "5"]);
        async move { if open == serde_json::json!([]) { Ok(()) } else { Err(open.to_string()) } }
    })
    .await;
    let done = json(&program, &["job", "list", "--state", "done", "--limit", "1000"]);
    let mut done: Vec<i64> = done.as_array().unwrap().iter().filter_map(|job| job["id"].as_i64()).collect();
    done.sort_unstable();
    assert_eq!(done, ids);
    worker.terminate();
    assert!(worker.ended(PATIENCE).await.success(), "{}", worker.log());
    for word in ["busy", "locked", "WARN", "ERROR"] {
        assert!(!worker.log().contains(word), "{word}: {}", worker.log());
    }
}
