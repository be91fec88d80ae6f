//! The remote is away for a while.

use crate::stage::{MAIN, Stage, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_leaves_one_letter_at_most_and_none_when_it_is_over() {
    let stage = Stage::new();
    let chain = stage.chain(6);
    stage.push("e0", MAIN, None, &chain[0]);
    let node = stage.node("a").await;
    eventually("the first entry", || stage.remote_ref(MAIN) == chain[0]).await;

    let elsewhere = stage.program.home().join("elsewhere.git");
    move_dir(&stage.remote, &elsewhere);
    for n in 1..chain.len() {
        stage.push(&format!("e{n}"), MAIN, Some(&chain[n - 1]), &chain[n]);
    }
    eventually("the breaker to open", || stage.answer(&["status"])["worker"]["breaker"] == "open").await;
    let during = stage.answer(&["status"]);
    assert!(
        during["dead_letters"].as_u64().unwrap() <= 1 && during["backlog"].as_u64().unwrap() >= 4,
        "{during}"
    );
    let ready = stargate_testkit::process::get(node.address(), "/readyz").await.unwrap();
    assert!(ready.0 == 200 && ready.1.contains("1 remotes away"), "{ready:?}");
    let metrics = stargate_testkit::process::get(node.address(), "/metrics").await.unwrap().1;
    assert!(metrics.contains("mirror_breaker_open 1"), "{metrics}");
    let told = stargate_testkit::process::get(node.address(), "/api/v1/mirror").await.unwrap().1;
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let mirror = &told["mirrors"][0];
    assert_eq!((&mirror["repo"], &mirror["breaker"]), (&"tools".into(), &"open".into()), "{told}");
    assert!(mirror["backlog"].as_u64().unwrap() >= 4 && mirror["error"].is_string(), "{told}");

    move_dir(&elsewhere, &stage.remote);
    eventually("everything to be mirrored", || stage.remote_ref(MAIN) == chain[5]).await;
    eventually("nothing to wait", || stage.answer(&["status"])["backlog"] == 0).await;
    assert_eq!(stage.letters().len(), 0);
    stage.assert_mirrored(&chain[5]);
}

#[test]
fn draining_towards_a_remote_that_is_away_fails_and_loses_nothing() {
    let stage = Stage::new();
    let oid = stage.chain(1).remove(0);
    stage.push("e1", MAIN, None, &oid);
    let elsewhere = stage.program.home().join("elsewhere.git");
    move_dir(&stage.remote, &elsewhere);
    assert_eq!(stage.refusal(&["run", "--once"]), (1, "MIRROR_REMOTE_AWAY".to_owned()));
    assert_eq!(stage.refusal(&["verify"]).0, 5);
    move_dir(&elsewhere, &stage.remote);
    stage.drain();
    stage.assert_mirrored(&oid);
    assert_eq!(stage.letters().len(), 0);
}

#[expect(
    clippy::disallowed_methods,
    reason = "stands for a server that goes away; nothing here has to be durable"
)]
fn move_dir(from: &std::path::Path, to: &std::path::Path) {
    std::fs::rename(from, to).unwrap();
}
