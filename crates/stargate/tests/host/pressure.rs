//! Pressure, as operators and producers see it, on the real load of this machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use stargate_queue::pressure::load_average;
use stargate_testkit::eventually;
use stargate_testkit::process::{Running, get};

use crate::{PATIENCE, configured};

const TOML: &str = r#"
[worker]
concurrency = 1
buffer_max = 0
load_threshold = 0.01
high_watermark = 1
pause_interval = "2s"
[kinds."nothing"]
exec = ["true"]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_under_load_is_seen_in_readyz_metrics_and_explain_and_work_goes_on() {
    let burner = Burner::start();
    eventually(PATIENCE, "some load", || async {
        let load = load_average();
        if load > 0.05 { Ok(()) } else { Err(format!("the load is {load}")) }
    })
    .await;
    let program = configured(TOML);
    let mut worker = program.start(&["worker"]);
    worker.ready().await;
    // All at once: one by one they would be done before the queue is deep.
    program.answer(&["queue", "pause", "default"]);
    for _ in 0..4 {
        program.answer(&["job", "enqueue", "nothing"]);
    }
    let last = program.answer(&["job", "enqueue", "nothing"]);
    program.answer(&["queue", "resume", "default"]);
    eventually(PATIENCE, "a pause", || async {
        let detail = detail(&worker, "pressure").await;
        if detail.starts_with("claiming pauses for") { Ok(()) } else { Err(detail) }
    })
    .await;
    let explained = program.answer(&["explain", &last]);
    assert!(explained.contains("on this machine pauses 2 s before each claim"), "{explained}");
    let metrics = get(worker.address(), "/metrics").await.unwrap().1;
    assert!(metrics.contains("\nworker_paused 1"), "{metrics}");
    assert!(metrics.contains("\nworker_pauses_total "), "{metrics}");
    drop(burner);

    // One claim between two pauses: four jobs later the queue is not deep any more.
    program.answer(&["job", "watch", &last, "--timeout", "30s"]);
    eventually(PATIENCE, "the end of the pauses", || async {
        let metrics = get(worker.address(), "/metrics").await.unwrap().1;
        if metrics.contains("\nworker_paused 0") { Ok(()) } else { Err(metrics) }
    })
    .await;
    assert!(detail(&worker, "pressure").await.starts_with("none"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_is_told_in_readyz_and_counted() {
    let program = configured(TOML).with("STARGATE_MAX_DEPTH", "2");
    let mut server = program.start(&["serve"]);
    server.ready().await;
    assert_eq!(detail(&server, "depth").await, "0 jobs wait, 2 may (api.max_depth)");
    // The command line is the operator's: it is not limited.
    for _ in 0..3 {
        program.answer(&["job", "enqueue", "nothing"]);
    }
    eventually(PATIENCE, "a full queue", || async {
        let detail = detail(&server, "depth").await;
        if detail.contains("producers get 429") { Ok(()) } else { Err(detail) }
    })
    .await;
    let metrics = get(server.address(), "/metrics").await.unwrap().1;
    assert!(metrics.contains("# TYPE api_enqueue_refused_total counter"), "{metrics}");
}

/// Keeps a core busy, because a machine on which nothing else runs has no load. Ends when dropped.
struct Burner(Arc<AtomicBool>);

impl Burner {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        std::thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        Self(stop)
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What `/readyz`, which has to be 200, says about one check.
async fn detail(process: &Running, check: &str) -> String {
    let (status, body) = get(process.address(), "/readyz").await.unwrap();
    assert_eq!(status, 200, "{body}");
    let report: Value = serde_json::from_str(&body).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let found = checks.iter().find(|found| found["name"] == check);
    let found = found.unwrap_or_else(|| panic!("no check {check} in {body}"));
    found["detail"].as_str().unwrap().to_owned()
}
