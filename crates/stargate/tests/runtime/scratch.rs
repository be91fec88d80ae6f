//! Scratch space stays within its limit, however many jobs fail.

use std::path::Path;

use serde_json::json;
use stargate_queue::{NewJob, State};
use stargate_testkit::eventually;

use crate::stage::Stage;
use crate::{PATIENCE, video};

const JOBS: usize = 1000;
const SIZE_MAX: u64 = 1 << 20;
/// Every job leaves eight kilobytes, eight times as much as may stay in the end.
const KIND: &str = r#"
scratch.max_size = "1MiB"
worker.concurrency = 8
kinds.junk.exec = ["/bin/sh", "-c", "printf '%8192s' x > $STARGATE_SCRATCH/junk; exit 1"]
kinds.junk.max_attempts = 1
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_failing_jobs_leave_scratch_under_its_limit() {
    let stage = Stage::sqlite(KIND).await;
    let _worker = stage.worker().await;
    let jobs = (0..JOBS).map(|n| NewJob::of("junk", &json!({ "n": n })).unwrap()).collect();
    let jobs = stage.store.enqueue(jobs).await.unwrap();
    let mut most = 0;
    eventually(PATIENCE, "a thousand failures", || {
        most = most.max(total(&stage.home().join("scratch")));
        async {
            let failed: u64 = stage.store.queues().await.unwrap().iter().map(|queue| queue.failed).sum();
            if failed == JOBS as u64 { Ok(()) } else { Err(format!("{failed}")) }
        }
    })
    .await;
    let job = stage.job(jobs[0].id).await;
    assert_eq!((job.state, job.attempt_count), (State::Failed, 1), "{job:?}");
    eventually(PATIENCE, "scratch within its limit", || async {
        let total = total(&stage.home().join("scratch"));
        if total <= SIZE_MAX { Ok(()) } else { Err(format!("{total} bytes")) }
    })
    .await;
    assert!(!stage.scratch().is_empty(), "the newest failures stay, for a look");
    assert!(most <= 4 * SIZE_MAX, "scratch grew to {most} bytes in between");
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clip_leaves_scratch_only_when_it_fails_or_is_told_to_keep_it() {
    let stage = Stage::sqlite("").await;
    let mut worker = stage.worker().await;
    let good = stage.enqueue("clip", &video::encoded(1.0));
    stage.ends(good, State::Done).await;
    assert_eq!(stage.scratch().len(), 0, "{:?}", stage.scratch());
    worker.terminate();
    worker.ended(PATIENCE).await;

    let stage = stage.with("KEEP_SCRATCH_ON_SUCCESS", "1");
    let _worker = stage.worker().await;
    let kept = stage.enqueue("clip", &video::encoded(1.0));
    stage.ends(kept, State::Done).await;
    let left = stage.scratch();
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(left[0].file_name().unwrap().to_str().unwrap().starts_with(&format!("{kept}-1-")), "{left:?}");
    stage.check_artifact(kept, 1.0).await;
    let answer = stage.program.answer(&["scratch", "gc", "--max-age", "0s", "--json"]);
    assert_eq!(stage.scratch().len(), 0, "{answer}");
    stage.check_artifact(kept, 1.0).await;
    stage.close().await;
}

/// The size of everything in a folder; what disappears meanwhile counts nothing.
pub(crate) fn total(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(data) if data.is_dir() => total(&entry.path()),
        Ok(data) => data.len(),
        Err(_) => 0,
    };
    entries.map(size).sum()
}
