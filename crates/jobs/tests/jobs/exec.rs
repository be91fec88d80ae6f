//! Programs as handlers.

use std::time::{Duration, Instant};

use serde_json::json;
use stargate_base::ErrorClass;
use stargate_queue::retry::{RETRIES_EXHAUSTED, TIMEOUT};
use stargate_queue::{Profile, State};

use crate::fixture::{Fixture, exec, profile, result};

/// Waits until no process of the group is left that is not a zombie.
pub(crate) async fn group_gone(group: &str) {
    let deadline = Instant::now() + Duration::from_secs(10);
    let alive = || {
        std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            // After the name in parentheses: state, parent, group.
            let rest = stat.rsplit(") ").next().unwrap_or_default();
            let mut fields = rest.split(' ');
            stat.contains(") ") && fields.next() != Some("Z") && fields.nth(1) == Some(group)
        })
    };
    while alive() {
        assert!(Instant::now() < deadline, "the group {group} is still there");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_program_reads_its_payload_reports_and_leaves_a_result() {
    let script = r#"read payload; echo '{"progress":50}'; echo '{"event":"source:ready","data":{"a":1}}'
        echo "{\"result\":{\"payload\":$payload,\"attempt\":$STARGATE_ATTEMPT,\"job\":$STARGATE_JOB_ID}}""#;
    let f = Fixture::start(|dir, r| r.register("thumb", profile(), exec(dir, script)).unwrap()).await;
    let job = f.run("thumb", json!({ "n": 1 })).await;
    assert_eq!(result(&job), json!({ "payload": { "n": 1 }, "attempt": 1, "job": job.id.0 }));
    assert_eq!(f.event_names(job.id).await, ["created", "processing", "progress", "source:ready", "done"]);
    f.stop().await;
}

#[tokio::test]
async fn a_transient_failure_is_retried_and_a_final_one_is_not() {
    let script =
        r#"case "$STARGATE_ATTEMPT" in 1) echo first >&2; exit 75;; *) echo '{"result":"second"}';; esac"#;
    let f = Fixture::start(|dir, r| {
        r.register("flaky", profile(), exec(dir, script)).unwrap();
        r.register("invalid", profile(), exec(dir, "echo 'no such field' >&2; exit 65")).unwrap();
        r.register("broken", profile(), exec(dir, "exit 3")).unwrap();
    })
    .await;
    let flaky = f.run("flaky", json!({})).await;
    assert_eq!((result(&flaky), flaky.attempt_count), (json!("second"), 2));
    let invalid = f.run("invalid", json!({})).await;
    let error = invalid.error.unwrap();
    assert_eq!((invalid.state, invalid.attempt_count), (State::Failed, 1));
    assert_eq!((error.code.as_str(), error.class), ("EXEC_FAILED", ErrorClass::ValidationFailure));
    assert_eq!(error.detail.as_deref(), Some("no such field\n"));
    let broken = f.run("broken", json!({})).await;
    assert_eq!((broken.attempt_count, broken.error.unwrap().code.as_str()), (3, RETRIES_EXHAUSTED));
    f.stop().await;
}

#[tokio::test]
async fn a_program_that_takes_too_long_is_ended_with_all_it_started() {
    let script = r#"trap '' TERM; echo $$ > group; sleep 600 & while :; do sleep 600; done"#;
    let f = Fixture::start(|dir, r| {
        let mut handler = exec(dir, script);
        std::sync::Arc::get_mut(&mut handler).unwrap().working_dir = Some(dir.to_owned());
        let profile = Profile { timeout: Duration::from_millis(500), max_attempts: 1, ..profile() };
        r.register("slow", profile, handler).unwrap();
    })
    .await;
    let job = f.run("slow", json!({})).await;
    assert_eq!(job.state, State::Failed);
    let error = job.error.unwrap();
    assert!(error.code == TIMEOUT || error.message.contains(TIMEOUT), "{error:?}");
    let group = std::fs::read_to_string(f.dir.path().join("group")).unwrap();
    group_gone(group.trim()).await;
    f.stop().await;
}

#[tokio::test]
async fn a_cancelled_program_is_ended() {
    let script = r#"echo "{\"event\":\"group\",\"data\":{\"n\":$$}}"; sleep 600 & wait"#;
    let f = Fixture::start(|dir, r| r.register("long", profile(), exec(dir, script)).unwrap()).await;
    let id = f.enqueue("long", json!({})).await;
    let group = loop {
        let events = f.store.events(id, 0, 100).await.unwrap();
        if let Some(event) = events.iter().find(|event| event.event == "group") {
            let data: serde_json::Value = serde_json::from_str(event.data.get()).unwrap();
            break data["n"].to_string();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    f.store.cancel(id).await.unwrap();
    assert_eq!(f.finished(id).await.state, State::Cancelled);
    group_gone(&group).await;
    f.stop().await;
}

#[tokio::test]
async fn a_shutdown_ends_programs_and_gives_the_attempt_back() {
    let script = r#"echo $$ > group; trap '' TERM; while :; do sleep 600; done"#;
    let f = Fixture::start(|dir, r| {
        let mut handler = exec(dir, script);
        std::sync::Arc::get_mut(&mut handler).unwrap().working_dir = Some(dir.to_owned());
        r.register("long", profile(), handler).unwrap();
    })
    .await;
    let id = f.enqueue("long", json!({})).await;
    let path = f.dir.path().join("group");
    let deadline = Instant::now() + Duration::from_secs(20);
    while std::fs::read_to_string(&path).map_or(true, |text| !text.ends_with('\n')) {
        assert!(Instant::now() < deadline, "the program did not start");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    f.stop().await;
    let job = f.store.job(id).await.unwrap().unwrap();
    assert_eq!((job.state, job.attempt_count), (State::Queued, 0), "{job:?}");
    assert!(f.event_names(id).await.contains(&"aborted:shutdown".to_owned()));
    group_gone(std::fs::read_to_string(path).unwrap().trim()).await;
}

#[tokio::test]
async fn a_missing_program_fails_at_once_and_says_what_to_do() {
    let f = Fixture::start(|dir, r| {
        let mut handler = exec(dir, "");
        std::sync::Arc::get_mut(&mut handler).unwrap().command = vec!["./missing.sh".into()];
        r.register("missing", profile(), handler).unwrap();
    })
    .await;
    let job = f.run("missing", json!({})).await;
    let error = job.error.unwrap();
    assert_eq!(
        (job.attempt_count, error.code.as_str(), error.class),
        (1, "EXEC_NOT_FOUND", ErrorClass::Fatal)
    );
    assert!(error.message.contains("./missing.sh"), "{}", error.message);
    f.stop().await;
}
