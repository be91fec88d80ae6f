//! Only the leader's mirror runs, and the next leader goes on where the last one ended.

use serde_json::Value;
use stargate_testkit::process::{Running, get};
use stargate_testkit::redis::Redis;

use crate::lock::{all_recorded, hold_pushes, push_all, with_redis};
use crate::stage::{MAIN, PATIENCE, Stage, eventually};

async fn leads(node: &Running) -> bool {
    let Ok((_, body)) = get(node.address(), "/readyz").await else { return false };
    serde_json::from_str::<Value>(&body).is_ok_and(|body| body["role"] == "leader")
}

pub(crate) async fn until_leads(node: &Running) {
    stargate_testkit::eventually(PATIENCE, "the node to lead", || async {
        if leads(node).await { Ok(()) } else { Err(node.log()) }
    })
    .await;
}

fn pid(stage: &Stage) -> Option<u64> {
    let status = stage.answer(&["status"]);
    (status["worker"]["running"] == true).then(|| status["worker"]["pid"].as_u64()).flatten()
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_leader_is_killed_the_standby_mirrors_on_and_nothing_is_lost_or_doubled() {
    let stage = Stage::new();
    stage.log_updates();
    let chain = stage.chain(40);
    let push =
        |n: usize| stage.push(&format!("e{n}"), MAIN, n.checked_sub(1).map(|n| chain[n].as_str()), &chain[n]);
    let mut a = stage.node("a").await;
    until_leads(&a).await;
    let b = stage.node("b").await;
    (0..20).for_each(push);
    eventually("the leader to mirror", || stage.records().len() >= 5).await;
    assert_eq!(pid(&stage), Some(u64::from(a.id())), "only the leader's mirror runs");
    assert!(!b.log().contains("mirroring"), "{}", b.log());
    // A mirror of its own beside the standby is refused.
    let node = Stage {
        program: stage_program(&stage, b.address()),
        repo: stage.repo.clone(),
        remote: stage.remote.clone(),
    };
    assert_eq!(node.refusal(&["run", "--once"]), (9, "NOT_LEADER".to_owned()));

    a.kill();
    (20..40).for_each(push);
    until_leads(&b).await;
    eventually("the successor to mirror the rest", || stage.remote_ref(MAIN) == chain[39]).await;
    // A mirror that starts may find a ref before its line, so there may be more records than these.
    let all = || (0..chain.len()).all(|n| !stage.records_of(&format!("e{n}")).is_empty());
    eventually("all records", all).await;
    assert_eq!(pid(&stage), Some(u64::from(b.id())));
    for n in 0..chain.len() {
        assert_eq!(stage.status_of(&format!("e{n}")), "completed");
    }
    assert_eq!(stage.updates(MAIN), chain, "in order, and each once");
    assert_eq!(stage.letters().len(), 0);
}

/// The same home, with the node of this configuration at another address.
fn stage_program(stage: &Stage, address: &str) -> stargate_testkit::process::Program {
    let program = stargate_testkit::process::Program::new(env!("CARGO_BIN_EXE_stargate"));
    std::fs::copy(stage.program.home().join("stargate.toml"), program.home().join("stargate.toml")).unwrap();
    program.with("STARGATE_LISTEN", address)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_steps_down_hands_the_mirror_over() {
    let stage = Stage::new();
    let chain = stage.chain(2);
    let a = stage.node("a").await;
    until_leads(&a).await;
    let b = stage.node("b").await;
    stage.push("e0", MAIN, None, &chain[0]);
    eventually("the first entry", || stage.remote_ref(MAIN) == chain[0]).await;
    let url = format!("http://{}/api/v1/leader/step-down", a.address());
    let answer = reqwest::Client::new().post(url).send().await.unwrap();
    assert!(answer.status().is_success(), "{answer:?}");
    until_leads(&b).await;
    stage.push("e1", MAIN, Some(&chain[0]), &chain[1]);
    eventually("the second entry", || stage.remote_ref(MAIN) == chain[1]).await;
    eventually("the successor's worker", || pid(&stage) == Some(u64::from(b.id()))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_finds_a_push_that_nobody_journaled() {
    let stage = Stage::new();
    let oid = stage.chain(1).remove(0);
    stage.git(&stage.repo, &["update-ref", MAIN, &oid], b"");
    let node = stage.node("a").await;
    eventually("the push to be found and mirrored", || stage.remote_ref(MAIN) == oid).await;
    eventually("its record", || stage.records().len() == 1).await;
    let metrics = get(node.address(), "/metrics").await.unwrap().1;
    assert!(metrics.contains("mirror_entries_processed_total{status=\"completed\"} 1"), "{metrics}");
    for name in
        ["mirror_lag_seconds", "mirror_backlog_entries", "mirror_retries_total", "mirror_dead_letters_total"]
    {
        assert!(metrics.contains(&format!("# TYPE {name} ")), "{name} is missing");
    }
    let ready = get(node.address(), "/readyz").await.unwrap();
    assert!(ready.1.contains("1 mirrored, 0 entries waiting, 0 remotes away"), "{ready:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn repositories_that_come_and_go_are_noticed() {
    let stage = Stage::new();
    let node = stage.node("a").await;
    eventually("the first repository's worker", || pid(&stage).is_some()).await;
    let fresh = stage.program.home().join("repos/team/fresh.git");
    stage.init(&fresh);
    let target = stage.program.home().join("fresh-remote.git");
    stage.init(&target);
    let oid = stage.chain_in(&fresh, "ours", 1).remove(0);
    stage.git(&fresh, &["update-ref", MAIN, &oid], b"");
    stage.add_remote(&fresh, target.to_str().unwrap());
    let there = || stage.git(&target, &["for-each-ref", "--format=%(objectname)", MAIN], b"");
    eventually("the new repository to be mirrored", || there() == oid).await;
    // Without the remote it is mirrored no more.
    stage.git(&stage.repo, &["remote", "remove", "github-origin"], b"");
    eventually("the first worker to end", || pid(&stage).is_none()).await;
    let ready = get(node.address(), "/readyz").await.unwrap();
    assert!(ready.1.contains("1 mirrored"), "{ready:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_over_http_arrives_at_the_remote_and_can_be_waited_for() {
    let stage = Stage::new();
    let node = stage.node("a").await;
    stage.program.answer(&["repo", "create", "team/web"]);
    let repo = stage.program.home().join("repos/team/web.git");
    stage.add_remote(&repo, stage.remote.to_str().unwrap());
    let work = stage.program.home().join("work.git");
    stage.init(&work);
    let chain = stage.chain_in(&work, "ours", 3);
    let url = format!("http://{}/git/team/web.git", node.address());
    for oid in &chain {
        stage.git(&work, &["push", "--quiet", &url, &format!("{oid}:{MAIN}")], b"");
    }
    let words = ["mirror", "wait", "--repo", "team/web", "--oid", &chain[2], "--timeout", "60s"];
    stage.program.answer(&words);
    stage.assert_mirrored(&chain[2]);
    stage.program.answer(&["mirror", "verify", "--repo", "team/web"]);
    // What the hook wrote; what a mirror that starts finds before the hook has written is beside it.
    let journal = crate::stage::lines(&repo.join(".stargate/mirror-journal.ndjson"));
    let hook = journal.iter().filter(|line| line["source"] != "reconcile");
    let seen: Vec<&str> = hook.filter_map(|line| line["new_oid"].as_str()).collect();
    assert_eq!(seen, chain, "{journal:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_killed_in_mid_push_is_followed_by_one_that_compares_before_it_goes_on() {
    let redis = Redis::start();
    let stage = with_redis(&redis);
    stage.log_updates();
    let chain = stage.chain(16);
    let mut a = stage.node("a").await;
    until_leads(&a).await;
    let b = stage.node("b").await;
    push_all(&stage, &chain, 0..4);
    eventually("the leader to mirror", || stage.remote_ref(MAIN) == chain[3]).await;
    eventually("its records", || all_recorded(&stage, &chain[..4])).await;
    let [hold, held] = hold_pushes(&stage);
    std::fs::write(&hold, "").unwrap();
    push_all(&stage, &chain, 4..8);
    eventually("a push that the remote holds up", || held.exists()).await;
    a.kill();
    let before = stage.records().len();
    // A push whose hook died with the leader: the ref has moved, and no line tells of it.
    stage.git(&stage.repo, &["update-ref", "refs/kv/unheard", &chain[0]], b"");
    push_all(&stage, &chain, 8..12);
    until_leads(&b).await;
    std::fs::remove_file(&hold).unwrap();
    eventually("the successor to mirror", || stage.remote_ref(MAIN) == chain[11]).await;
    eventually("what nobody had heard of", || stage.remote_ref("refs/kv/unheard") == chain[0]).await;
    push_all(&stage, &chain, 12..16);
    eventually("the rest", || stage.remote_ref(MAIN) == chain[15]).await;
    eventually("all records", || all_recorded(&stage, &chain)).await;

    let journal = crate::stage::lines(&stage.file("mirror-journal.ndjson"));
    let found = journal.iter().find(|line| line["source"] == "reconcile" && line["ref"] == "refs/kv/unheard");
    let found: jiff::Timestamp = found.unwrap()["timestamp"].as_str().unwrap().parse().unwrap();
    let first: jiff::Timestamp = stage.records()[before]["at"].as_str().unwrap().parse().unwrap();
    assert!(found <= first, "the successor went on at {first}, before it compared at {found}");
    for n in 0..chain.len() {
        assert_eq!(stage.status_of(&format!("e{n}")), "completed");
    }
    assert_eq!(stage.updates(MAIN), chain, "in order, each once, and nothing taken back");
    assert_eq!((stage.letters().len(), pid(&stage)), (0, Some(u64::from(b.id()))));
    stage.answer(&["verify"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_is_visible_soon_after_it_was_accepted() {
    let stage = Stage::new();
    let node = stage.node("a").await;
    eventually("the worker to run", || pid(&stage).is_some()).await;
    // The system tells the node of new lines: it watches the directory of the journal.
    let inode = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(stage.file("")).unwrap());
    let watched = || {
        let files = std::fs::read_dir(format!("/proc/{}/fdinfo", node.id())).unwrap().flatten();
        let texts = files.filter_map(|file| std::fs::read_to_string(file.path()).ok());
        texts.into_iter().any(|text| {
            text.lines().any(|line| line.starts_with("inotify") && line.contains(&format!("ino:{inode:x} ")))
        })
    };
    eventually("the journal to be watched", watched).await;
    let chain = stage.chain(30);
    for n in 0..chain.len() {
        stage.push(&format!("e{n}"), MAIN, n.checked_sub(1).map(|n| chain[n].as_str()), &chain[n]);
        let began = std::time::Instant::now();
        eventually("the entry", || stage.remote_ref(MAIN) == chain[n]).await;
        if n % 10 == 9 {
            println!("entry {n}: visible after {} ms", began.elapsed().as_millis());
        }
    }
}
