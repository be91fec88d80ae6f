//! Two never push at once: the lock of a repository, the leader lock, and what happens when a leader was stopped.

use std::path::PathBuf;

use stargate_testkit::process::Running;
use stargate_testkit::redis::Redis;

use crate::leader::until_leads;
use crate::stage::{MAIN, PATIENCE, Stage, eventually};

/// Leadership by Redis with a lock that is gone soon after its owner.
const SHORT: &str =
    "[leader]\nbackend = \"redis\"\nttl = \"4s\"\nrenew_every = \"1s\"\nretry_every = \"500ms\"\n";

/// Nodes of this stage compete for a lock in Redis.
pub(crate) fn with_redis(redis: &Redis) -> Stage {
    let stage = Stage::with_settings(SHORT);
    Stage { program: stage.program.with("REDIS_URL", redis.url()), ..stage }
}

/// Has the remote hold up a push for as long as there is a file `hold`; then there is a file `held`.
pub(crate) fn hold_pushes(stage: &Stage) -> [PathBuf; 2] {
    let [hold, held] = ["hold", "held"].map(|name| stage.program.home().join(name));
    let each = format!("while test -e {}; do touch {}; sleep 0.05; done", hold.display(), held.display());
    stage.remote_hook("pre-receive", &format!("cat > /dev/null\n{each}"));
    [hold, held]
}

pub(crate) fn push_all(stage: &Stage, chain: &[String], range: std::ops::Range<usize>) {
    for n in range {
        stage.push(&format!("e{n}"), MAIN, n.checked_sub(1).map(|n| chain[n].as_str()), &chain[n]);
    }
}

pub(crate) fn all_recorded(stage: &Stage, chain: &[String]) -> bool {
    (0..chain.len()).all(|n| !stage.records_of(&format!("e{n}")).is_empty())
}

/// What a command that has to fail says: the exit code, and the words.
fn said(stage: &Stage, words: &[&str]) -> (i32, String) {
    let output = stage.mirror(words);
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_was_stopped_is_overtaken_and_puts_nothing_back_when_it_goes_on() {
    let redis = Redis::start();
    let stage = with_redis(&redis);
    stage.log_updates();
    let chain = stage.chain(12);
    let a = stage.node("a").await;
    until_leads(&a).await;
    let b = stage.node("b").await;
    push_all(&stage, &chain, 0..4);
    eventually("the leader to mirror", || stage.remote_ref(MAIN) == chain[3]).await;
    eventually("its records", || stage.records().len() >= 4).await;
    // In mid-push, with git under way.
    let [hold, held] = hold_pushes(&stage);
    std::fs::write(&hold, "").unwrap();
    push_all(&stage, &chain, 4..5);
    eventually("a push that the remote holds up", || held.exists()).await;
    a.freeze();
    std::fs::remove_file(&hold).unwrap();
    push_all(&stage, &chain, 5..8);
    until_leads(&b).await;
    // Whoever looks is told who has the lock and what to do about it.
    let lock = format!("process {} (stargate), which is stopped (kill -CONT {0}", a.id());
    eventually("the successor to say who has the lock", || b.log().contains(&lock)).await;
    assert!(b.log().contains("of a, leader of epoch 1"), "{}", b.log());
    eventually("the successor to take over", || stage.remote_ref(MAIN) == chain[7]).await;
    assert!(b.log().contains("is taken over"), "{}", b.log());
    eventually("its records", || (0..8).all(|n| !stage.records_of(&format!("e{n}")).is_empty())).await;
    let checkpoint = stage.checkpoint()["offset"].as_u64().unwrap();

    a.thaw();
    eventually("the old leader to step down", || a.log().contains("mirroring ended") || !leads(&a)).await;
    push_all(&stage, &chain, 8..12);
    eventually("the rest", || stage.remote_ref(MAIN) == chain[11]).await;
    eventually("all records", || all_recorded(&stage, &chain)).await;
    assert!(stage.checkpoint()["offset"].as_u64().unwrap() >= checkpoint, "the checkpoint was put back");
    let worker = stage.answer(&["status"])["worker"].clone();
    assert_eq!((&worker["pid"], &worker["running"]), (&b.id().into(), &true.into()), "{worker}");
    assert_eq!(stage.updates(MAIN), chain, "in order, and each once");
    assert_eq!(stage.letters().len(), 0);
    stage.answer(&["verify"]);
}

fn leads(node: &Running) -> bool {
    node.log().lines().rev().find(|line| line.contains("leader")).is_some_and(|line| line.contains("leading"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_does_not_push_beside_a_mirror_and_names_it() {
    let stage = Stage::new();
    let chain = stage.chain(1);
    let repo = stage.repo.to_str().unwrap();
    let running = stage.program.start(&["mirror", "run", "--repo", repo]);
    eventually("the mirror to run", || stage.answer(&["status"])["standing"] == "caught-up").await;
    stage.git(&stage.repo, &["update-ref", "refs/kv/other", &chain[0]], b"");
    for words in [&["sync", "--repair"][..], &["run", "--once"]] {
        let (code, text) = said(&stage, words);
        assert_eq!(code, 4, "{text}");
        assert!(text.contains(&format!("process {} (stargate)", running.id())), "{text}");
    }
    running.freeze();
    let (code, text) = said(&stage, &["sync", "--repair"]);
    assert!(code == 4 && text.contains(&format!("kill -CONT {}", running.id())), "{code} {text}");
    // Without the mirror it is done.
    drop(running);
    assert_eq!(stage.answer(&["sync", "--repair"])["aligned"], true);
    assert_eq!(stage.remote_ref("refs/kv/other"), chain[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_does_not_push_where_another_node_leads() {
    let stage = Stage::new();
    let chain = stage.chain(1);
    // No node mirrors this one, so nobody has its lock.
    let elsewhere = stage.program.home().join("elsewhere.git");
    stage.git(
        stage.program.home(),
        &["clone", "--quiet", "--bare", stage.repo.to_str().unwrap(), "elsewhere.git"],
        b"",
    );
    stage.git(&elsewhere, &["fetch", "--quiet", stage.repo.to_str().unwrap(), &chain[0]], b"");
    stage.git(&elsewhere, &["update-ref", MAIN, &chain[0]], b"");
    stage.add_remote(&elsewhere, stage.remote.to_str().unwrap());
    let stage = Stage { repo: elsewhere, ..stage };
    let mut node = stage.node("a").await;
    until_leads(&node).await;
    for words in [&["sync", "--repair"][..], &["run", "--once"], &["run"]] {
        let (code, text) = said(&stage, words);
        assert!(
            code == 9 && text.contains(&format!("a at http://{} leads", node.address())),
            "{code} {text}"
        );
    }
    assert_eq!(stage.remote_ref(MAIN), "", "nothing was pushed");
    // What changes nothing is allowed.
    assert_eq!(stage.answer(&["sync"])["aligned"], false);
    node.terminate();
    assert!(node.ended(PATIENCE).await.success(), "{}", node.log());
    stage.drain();
    stage.assert_mirrored(&chain[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_without_a_node_gives_way_to_one_that_leads() {
    let stage = Stage::new();
    let repo = stage.repo.to_str().unwrap();
    let mut alone = stage.program.start(&["mirror", "run", "--repo", repo]);
    eventually("the mirror to run", || stage.answer(&["status"])["standing"] == "caught-up").await;
    let node = stage.node("a").await;
    until_leads(&node).await;
    let status = alone.ended(PATIENCE).await;
    assert_eq!(status.code(), Some(9), "{}", alone.log());
    let chain = stage.chain(1);
    push_all(&stage, &chain, 0..1);
    eventually("the node to mirror", || stage.remote_ref(MAIN) == chain[0]).await;
    let pid = || stage.answer(&["status"])["worker"]["pid"].clone();
    eventually("its worker", || pid() == node.id()).await;
}

#[test]
fn where_nobody_can_tell_who_leads_nothing_is_pushed() {
    let stage = Stage::with_settings(SHORT);
    let stage = Stage { program: stage.program.with("REDIS_URL", "redis://127.0.0.1:1"), ..stage };
    let chain = stage.chain(1);
    push_all(&stage, &chain, 0..1);
    for words in [&["sync", "--repair"][..], &["run", "--once"]] {
        assert_eq!(stage.refusal(words), (5, "LEADER_LOCK_UNREACHABLE".to_owned()), "{words:?}");
    }
    assert_eq!((stage.remote_ref(MAIN), stage.records().len()), (String::new(), 0));
}
