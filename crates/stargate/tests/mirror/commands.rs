//! `mirror status`, `wait`, `sync`, `reconcile`, `verify`: what they say and how they exit.

use serde_json::Value;

use crate::stage::{MAIN, Stage, eventually};

#[test]
fn a_commit_can_be_waited_for() {
    let stage = Stage::new();
    let chain = stage.chain(3);
    stage.push("e1", MAIN, None, &chain[1]);
    stage.drain();
    // Older than the watermark: the remote has it.
    for oid in &chain[..2] {
        assert_eq!(stage.answer(&["wait", "--oid", oid, "--timeout", "30s"])["watermark"], chain[1].as_str());
    }
    assert_eq!(stage.refusal(&["wait", "--oid", &chain[2], "--timeout", "1s"]), (10, "TIMED_OUT".to_owned()));
    let other = ["wait", "--oid", &chain[0], "--ns", "other", "--timeout", "0s"];
    assert_eq!(stage.refusal(&other), (10, "TIMED_OUT".to_owned()));
    let output = stage.mirror(&["wait", "--oid", "main"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn who_waits_for_what_is_no_ledger_is_told_so_before_the_time_is_up() {
    let stage = Stage::new();
    let oid = stage.chain(1).remove(0);
    stage.push("e1", "refs/heads/main", None, &oid);
    let said = |words: &[&str]| {
        let output = stage.mirror(&[&["wait", "--oid", &oid], words].concat());
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    // Long enough that the test would be ended, were it waited for.
    for words in [&["--timeout", "1h"][..], &["--timeout", "1h", "--ns", "refs/heads/main"]] {
        let (code, text) = said(words);
        assert_eq!(code, 5, "{text}");
        assert!(text.contains("no ledger") && text.contains("mirror.ledgers"), "{text}");
    }
    // A ledger that has the commit, under another name.
    stage.git(&stage.repo, &["update-ref", "refs/kv/other", &oid], b"");
    let (code, text) = said(&["--timeout", "0s"]);
    assert!(code == 10 && text.contains("refs/kv/other has the commit: --ns other"), "{code} {text}");
}

#[test]
fn sync_says_what_is_different_and_repairs_what_it_can() {
    let stage = Stage::new();
    let chain = stage.chain(2);
    stage.git(&stage.repo, &["update-ref", "refs/kv/ahead", &chain[1]], b"");
    stage.git(
        &stage.repo,
        &["push", "--quiet", stage.remote.to_str().unwrap(), &format!("{}:refs/kv/ahead", chain[0])],
        b"",
    );
    stage.git(&stage.repo, &["update-ref", "refs/kv/new", &chain[0]], b"");

    let found = stage.answer(&["sync"]);
    assert_eq!((&found["aligned"], &found["dry_run"]), (&false.into(), &true.into()), "{found}");
    assert_eq!(standings(&found), [("refs/kv/ahead", "ahead"), ("refs/kv/new", "only-here")].map(owned));
    assert_eq!(stage.remote_ref("refs/kv/ahead"), chain[0], "a dry run changes nothing");

    let repaired = stage.answer(&["sync", "--repair"]);
    assert_eq!(repaired["aligned"], true, "{repaired}");
    assert_eq!(
        (stage.remote_ref("refs/kv/ahead"), stage.remote_ref("refs/kv/new")),
        (chain[1].clone(), chain[0].clone())
    );
    assert_eq!(stage.answer(&["verify"])["verified"], true);
}

#[test]
fn a_repair_that_would_take_something_back_is_refused() {
    let stage = Stage::new();
    let ours = stage.chain(1).remove(0);
    let theirs = stage.chain_in(&stage.remote, "theirs", 1).remove(0);
    stage.git(&stage.repo, &["update-ref", MAIN, &ours], b"");
    stage.git(&stage.remote, &["update-ref", MAIN, &theirs], b"");
    stage.git(&stage.repo, &["update-ref", "refs/kv/fine", &ours], b"");
    assert_eq!(standings(&stage.answer(&["sync"]))[1], owned((MAIN, "diverged")));
    assert_eq!(stage.refusal(&["sync", "--repair"]), (11, "SYNC_REFUSED".to_owned()));
    assert_eq!(
        (stage.remote_ref(MAIN), stage.remote_ref("refs/kv/fine")),
        (theirs, ours),
        "the others are repaired"
    );
    assert_eq!(stage.refusal(&["verify"]), (1, "MIRROR_DIFFERS".to_owned()));
}

#[test]
fn a_push_that_no_entry_tells_of_is_journaled_once_and_mirrored() {
    let stage = Stage::new();
    let oid = stage.chain(1).remove(0);
    stage.git(&stage.repo, &["update-ref", MAIN, &oid], b"");
    let found = stage.answer(&["reconcile"]);
    assert_eq!((&found["journaled"], &found["gaps"][0]["ref"]), (&1.into(), &MAIN.into()), "{found}");
    assert_eq!(stage.answer(&["reconcile"])["journaled"], 0, "it waits already");
    stage.drain();
    stage.assert_mirrored(&oid);
    let records = stage.records();
    assert_eq!(records.len(), 1, "{records:?}");
    assert_eq!(stage.answer(&["reconcile"])["gaps"], Value::Array(Vec::new()));
}

#[test]
fn status_tells_what_waits_and_what_became_of_the_rest() {
    let stage = Stage::new();
    let chain = stage.chain(2);
    stage.push("e1", MAIN, None, &chain[0]);
    let before = stage.answer(&["status"]);
    assert_eq!(
        (&before["repo"], &before["backlog"], &before["worker"]),
        (&"tools".into(), &1.into(), &Value::Null),
        "{before}"
    );
    assert!(before["lag_seconds"].as_f64().unwrap() > 0.0, "{before}");
    stage.drain();
    let after = stage.answer(&["status"]);
    assert_eq!(
        (&after["backlog"], &after["last_mirrored"]["entry_id"]),
        (&0.into(), &"e1".into()),
        "{after}"
    );
    assert_eq!((&after["worker"]["running"], &after["dead_letters"]), (&false.into(), &0.into()), "{after}");
    let all = stage.program.answer(&["mirror", "status", "--json"]);
    let all: Value = serde_json::from_str(&all).unwrap();
    assert_eq!((all.as_array().unwrap().len(), &all[0]["repo"]), (1, &"tools".into()), "{all}");
    for arguments in [&["mirror", "status"][..], &["mirror", "status", "--repo", "tools"]] {
        let text = stage.program.answer(arguments);
        assert!(text.contains("tools") && text.contains("not running"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn status_tells_how_each_ref_stands_and_when_all_is_done() {
    let stage = Stage::new();
    let hold = stage.program.home().join("hold");
    stage.remote_hook("update", "test \"$1\" != refs/kv/closed");
    stage.remote_hook(
        "pre-receive",
        &format!("cat > /dev/null; while test -e {}; do sleep 0.05; done", hold.display()),
    );
    let chain = stage.chain(8);
    stage.push("c", "refs/kv/closed", None, &chain[0]);
    for n in 0..3_usize {
        stage.push(&format!("e{n}"), MAIN, n.checked_sub(1).map(|n| chain[n].as_str()), &chain[n]);
    }
    let node = stage.node("a").await;
    eventually("all to be processed", || stage.answer(&["status"])["standing"] == "caught-up").await;
    let status = stage.answer(&["status"]);
    assert_eq!(
        (&status["caught_up_in_seconds"], &status["refs"][0]["ref"], &status["refs"][0]["parked"]),
        (&0.0.into(), &"refs/kv/closed".into(), &true.into()),
        "{status}"
    );
    assert_eq!(
        (&status["refs"][0]["dead_letters"], &status["refs_are_all"]),
        (&1.into(), &true.into()),
        "{status}"
    );

    std::fs::write(&hold, "").unwrap();
    for n in 3..8 {
        stage.push(&format!("e{n}"), MAIN, Some(&chain[n - 1]), &chain[n]);
    }
    eventually("entries to wait", || stage.answer(&["status"])["standing"] == "catching-up").await;
    let status = stage.answer(&["status"]);
    let waiting = status["refs"].as_array().unwrap().iter().find(|found| found["ref"] == MAIN).unwrap();
    assert!(
        waiting["waiting"].as_u64().unwrap() >= 4 && waiting["lag_seconds"].as_f64().unwrap() > 0.0,
        "{status}"
    );
    assert!(status["caught_up_in_seconds"].as_f64().unwrap() > 0.0, "{status}");
    let text = stage.program.answer(&["mirror", "status", "--repo", "tools"]);
    for words in [
        "catching up: done in about",
        "entries, the oldest for",
        "parked: the remote refused",
        MAIN,
        "refs/kv/closed",
    ] {
        assert!(text.contains(words), "no {words:?} in:\n{text}");
    }
    println!("{text}\n{}", stage.program.answer(&["mirror", "status"]));
    std::fs::remove_file(&hold).unwrap();
    eventually("the rest", || stage.remote_ref(MAIN) == chain[7]).await;
    drop(node);
    let status = stage.answer(&["status"]);
    assert_eq!(status["standing"], "not-running", "{status}");
}

#[test]
fn coalesced_entries_go_as_one_push_and_each_has_its_record() {
    let stage = Stage::new();
    stage.log_updates();
    let chain = stage.chain(10);
    for (n, oid) in chain.iter().enumerate() {
        stage.push(&format!("e{n}"), MAIN, n.checked_sub(1).map(|n| chain[n].as_str()), oid);
    }
    let done = stage.answer(&["run", "--once", "--coalesce"]);
    assert_eq!(done["processed"]["completed"], 10, "{done}");
    assert_eq!(stage.updates(MAIN), [chain[9].clone()]);
    (0..10).for_each(|n| assert_eq!(stage.status_of(&format!("e{n}")), "completed"));
}

#[test]
fn other_refs_other_names_and_another_remote_are_settings() {
    let stage = Stage::with_settings(
        "remote = \"backup\"\nrefs = [\"refs/_blog/*\"]\nmap = { \"refs/_blog/*\" = \"refs/heads/_mirror/*\" }\n",
    );
    let oid = stage.chain(1).remove(0);
    stage.push("e1", "refs/_blog/post", None, &oid);
    assert_eq!(
        stage.refusal(&["run", "--once"]),
        (5, "INVALID".to_owned()),
        "there is no remote of that name"
    );
    stage.git(&stage.repo, &["remote", "add", "backup", stage.remote.to_str().unwrap()], b"");
    stage.drain();
    assert_eq!(stage.remote_ref("refs/heads/_mirror/post"), oid);
    // The name on the command line goes before the configuration's.
    assert_eq!(stage.answer(&["verify", "--remote", "github-origin"])["verified"], true);
    assert_eq!(stage.refusal(&["verify", "--remote", "nowhere"]), (5, "INVALID".to_owned()));
}

#[test]
fn the_url_of_a_remote_may_stand_in_the_configuration() {
    let stage = Stage::new();
    let config = stage.program.home().join("stargate.toml");
    let toml = std::fs::read_to_string(&config).unwrap();
    let url = format!("[mirror.remotes.\"fresh\"]\nurl = \"{}\"\n", stage.remote.display());
    std::fs::write(&config, format!("{toml}{url}")).unwrap();
    let fresh = stage.program.home().join("repos/fresh.git");
    stage.init(&fresh);
    let oid = stage.chain_in(&fresh, "ours", 1).remove(0);
    stage.git(&fresh, &["update-ref", MAIN, &oid], b"");
    stage.program.answer(&["mirror", "run", "--repo", "fresh", "--once"]);
    stage.assert_mirrored(&oid);
}

#[test]
fn what_is_no_repository_is_refused() {
    let stage = Stage::new();
    let refused = |repo: &str| {
        let output = stage.program.run(&["mirror", "status", "--repo", repo]);
        output.status.code().unwrap()
    };
    let plain = stage.program.home().join("plain");
    std::fs::create_dir(&plain).unwrap();
    // A directory that happens to be called like a repository does not hide it.
    std::fs::create_dir(stage.program.home().join("tools")).unwrap();
    assert_eq!(refused("tools"), 0);
    assert_eq!(
        (refused("nothing"), refused("../remote.git/../nothing"), refused(plain.to_str().unwrap())),
        (3, 3, 5)
    );
    assert!(!plain.join(".stargate").exists());
}

#[test]
fn the_doctor_asks_every_remote() {
    let stage = Stage::new();
    let mirrors = || {
        let text = stage.program.run(&["doctor", "--json"]).stdout;
        let checks: Value = serde_json::from_slice(&text).unwrap();
        let found =
            |name: &str| checks.as_array().unwrap().iter().find(|check| check["check"] == name).cloned();
        (found("git").unwrap(), found("mirror").unwrap())
    };
    let (git, mirror) = mirrors();
    assert_eq!((&git["verdict"], &mirror["verdict"]), (&"ok".into(), &"ok".into()), "{git} {mirror}");
    stage.git(&stage.repo, &["remote", "set-url", "github-origin", "/nowhere.git"], b"");
    let (_, mirror) = mirrors();
    assert_eq!(mirror["verdict"], "fail", "{mirror}");
    assert!(mirror["found"].as_str().unwrap().contains("tools") && mirror["remedy"].is_string(), "{mirror}");
    stage.git(&stage.repo, &["remote", "remove", "github-origin"], b"");
    assert_eq!(mirrors().1["verdict"], "ok", "a repository without the remote is not mirrored");
}

#[test]
fn a_transport_that_is_not_listed_is_not_used() {
    let stage = Stage::new();
    std::fs::remove_file(stage.program.home().join("stargate.toml")).unwrap();
    let oid = stage.chain(1).remove(0);
    stage.push("e1", MAIN, None, &oid);
    let output = stage.mirror(&["verify"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(5) && said.contains("not allowed"), "{said}");
    stage.mirror(&["run", "--once"]);
    assert_eq!(stage.remote_ref(MAIN), "");
}

fn owned((name, standing): (&str, &str)) -> (String, String) {
    (name.to_owned(), standing.to_owned())
}

fn standings(found: &Value) -> Vec<(String, String)> {
    let text = |pair: &Value, key: &str| pair[key].as_str().unwrap().to_owned();
    found["refs"].as_array().unwrap().iter().map(|pair| (text(pair, "ref"), text(pair, "standing"))).collect()
}
