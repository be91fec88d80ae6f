//! The test plan of the mirror worker, in its order.

use stargate_testkit::eventually as until;

use crate::stage::{MAIN, PATIENCE, Stage, WATERMARK, eventually, executable};

#[test]
fn success_the_entry_is_pushed_by_the_right_command_and_marked_as_processed() {
    let stage = Stage::new();
    let log = stage.program.home().join("commands");
    let wrapper = stage.program.home().join("bin/git");
    executable(
        &wrapper,
        &format!("printf '%s ' \"$@\" >> {0}; echo >> {0}; exec /usr/bin/env git \"$@\"", log.display()),
    );
    let config = stage.program.home().join("stargate.toml");
    let toml = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{toml}\n[git]\nprogram = \"{}\"\n", wrapper.display())).unwrap();
    let oid = stage.chain(1).remove(0);
    stage.push("e1", MAIN, None, &oid);

    let done = stage.drain();
    assert_eq!(done["processed"]["completed"], 1, "{done}");
    stage.assert_mirrored(&oid);
    let commands = std::fs::read_to_string(&log).unwrap();
    let pushes: Vec<&str> = commands.lines().filter(|line| line.contains(" push ")).collect();
    let [push] = pushes[..] else { panic!("{commands}") };
    for word in [
        "--atomic",
        "--porcelain",
        "-- github-origin",
        &format!("{oid}:{MAIN}"),
        &format!("{oid}:{WATERMARK}"),
    ] {
        assert!(push.contains(word), "{word} is not in: {push}");
    }
    assert!(!push.contains("--mirror") && !push.contains("--force ") && !push.contains(" +"), "{push}");
    let checkpoint = stage.checkpoint();
    let length = std::fs::metadata(stage.file("mirror-journal.ndjson")).unwrap().len();
    assert_eq!(checkpoint["offset"], length, "{checkpoint}");
}

#[test]
fn status_record_a_completed_record_is_written_for_the_entry() {
    let stage = Stage::new();
    let oid = stage.chain(1).remove(0);
    stage.push("e1", MAIN, None, &oid);
    stage.drain();
    let records = stage.records_of("e1");
    let [record] = &records[..] else { panic!("{records:?}") };
    assert_eq!(
        (&record["status"], &record["via"], &record["attempts"]),
        (&"completed".into(), &"push".into(), &1.into())
    );
    assert!(record["at"].is_string() && record["lag_ms"].is_u64(), "{record}");
}

#[test]
fn failure_with_retries_the_third_try_succeeds_and_the_checkpoint_moves() {
    let stage = Stage::new();
    let tries = stage.program.home().join("tries");
    // Rejects the first two pushes.
    stage.remote_hook(
        "pre-receive",
        &format!("cat > /dev/null; date +%s.%N >> {0}; test $(wc -l < {0}) -gt 2", tries.display()),
    );
    let oid = stage.chain(1).remove(0);
    stage.push("e1", MAIN, None, &oid);
    let done = stage.drain();
    assert_eq!(stage.status_of("e1"), "completed");
    assert_eq!(stage.records_of("e1")[0]["attempts"], 3);
    stage.assert_mirrored(&oid);
    assert_eq!((stage.letters().len(), stage.checkpoint()["seq"].is_u64()), (0, true));
    let retries: u64 =
        done["retries"].as_object().unwrap().values().filter_map(serde_json::Value::as_u64).sum();
    assert_eq!(retries, 2, "{done}");
    let times: Vec<f64> =
        std::fs::read_to_string(&tries).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    println!(
        "from try to try: {:.2} s, {:.2} s (0.5 s and 1 s, and the push)",
        times[1] - times[0],
        times[2] - times[1]
    );
}

#[test]
fn dead_letter_on_persistent_failure_after_three_tries_and_it_is_logged() {
    let stage = Stage::new();
    stage.remote_hook("pre-receive", "cat > /dev/null; echo protected >&2; exit 1");
    let oid = stage.chain(1).remove(0);
    stage.push("e1", MAIN, None, &oid);
    let output = stage.mirror(&["run", "--once"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("given up") && said.contains("e1"), "{said}");
    assert_eq!(stage.status_of("e1"), "dead-letter");
    let letters = stage.letters();
    let [letter] = &letters[..] else { panic!("{letters:?}") };
    assert_eq!((&letter["entry_id"], &letter["attempts"]), (&"e1".into(), &3.into()), "{letter}");
    assert_eq!(
        (&letter["reason"], &letter["payload"]["new_oid"]),
        (&"rejected".into(), &oid.as_str().into()),
        "{letter}"
    );
    let view = crate::stage::lines(&stage.file("mirror-dead-letter.ndjson"));
    assert_eq!(view[0]["dead_letter_id"], letter["dead_letter_id"]);
    assert_eq!(stage.remote_ref(MAIN), "");
}

#[test]
fn malformed_entry_it_is_read_again_dead_lettered_and_the_next_one_is_processed() {
    let stage = Stage::new();
    let chain = stage.chain(2);
    stage.push("e1", MAIN, None, &chain[0]);
    stage.scribble(b"{\"entry_id\": \"bad\", \"ref\": \n");
    stage.push("e2", MAIN, Some(&chain[0]), &chain[1]);
    let done = stage.drain();
    assert_eq!(
        (&done["processed"]["completed"], &done["processed"]["dead-letter"]),
        (&2.into(), &1.into()),
        "{done}"
    );
    assert_eq!(
        (&done["retries"]["malformed"], &done["dead_letters"]["malformed"]),
        (&3.into(), &1.into()),
        "{done}"
    );
    stage.assert_mirrored(&chain[1]);
    let letters = stage.letters();
    assert_eq!(letters[0]["payload"]["text"], "{\"entry_id\": \"bad\", \"ref\": ", "{letters:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn crash_recovery_a_killed_worker_goes_on_from_its_checkpoint_and_repeats_nothing() {
    let stage = Stage::new();
    stage.log_updates();
    let chain = stage.chain(30);
    for (n, oid) in chain.iter().enumerate() {
        let old = n.checked_sub(1).map(|n| chain[n].as_str());
        stage.push(&format!("e{n}"), MAIN, old, oid);
    }
    let mut kills = 0;
    for already in [3, 9, 17] {
        let repo = stage.repo.to_str().unwrap();
        let mut running = stage.program.start(&["mirror", "run", "--repo", repo]);
        eventually("some entries to be processed", || stage.records().len() > already).await;
        running.kill();
        kills += 1;
    }
    assert!(stage.records().len() < chain.len(), "the worker was done before it was killed");
    stage.drain();
    stage.assert_mirrored(chain.last().unwrap());
    for n in 0..chain.len() {
        assert_eq!(stage.status_of(&format!("e{n}")), "completed");
    }
    assert_eq!(stage.updates(MAIN), chain, "in order, and each once");
    println!("{kills} kills, {} entries, {} updates", chain.len(), stage.updates(MAIN).len());
}

#[tokio::test(flavor = "multi_thread")]
async fn robustness_many_entries_of_several_refs_are_processed_in_order_and_none_is_skipped() {
    let stage = Stage::new();
    stage.log_updates();
    let chain = stage.chain(20);
    let refs = [MAIN, "refs/kv/other", "refs/kv-index/main"];
    for (n, oid) in chain.iter().enumerate() {
        for name in refs {
            stage.push(&format!("{name}-{n}"), name, n.checked_sub(1).map(|n| chain[n].as_str()), oid);
        }
    }
    let mut running = stage.program.start(&["mirror", "run", "--repo", stage.repo.to_str().unwrap()]);
    let mut last = 0;
    until(PATIENCE, "all entries to be processed", || {
        // It only ever moves forward.
        let seq = stage
            .file("mirror-worker.offset")
            .is_file()
            .then(|| stage.checkpoint()["offset"].as_u64().unwrap());
        assert!(seq.unwrap_or(0) >= last, "the checkpoint went back from {last} to {seq:?}");
        last = seq.unwrap_or(0);
        let done = stage.records().len() == refs.len() * chain.len();
        async move { if done { Ok(()) } else { Err("not yet".to_owned()) } }
    })
    .await;
    running.terminate();
    let status = running.ended(PATIENCE).await;
    assert!(status.success(), "{status}: {}", running.log());
    assert!(running.log().contains("mirroring ended"), "{}", running.log());
    for name in refs {
        assert_eq!(stage.updates(name), chain, "{name}");
    }
    assert_eq!(
        stage.checkpoint()["offset"],
        std::fs::metadata(stage.file("mirror-journal.ndjson")).unwrap().len()
    );
}

// What the acceptance criteria say beyond the plan.

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_is_not_whole_yet_is_waited_for() {
    let stage = Stage::new();
    let chain = stage.chain(2);
    let mut running = stage.program.start(&["mirror", "run", "--repo", stage.repo.to_str().unwrap()]);
    stage.push("e0", MAIN, None, &chain[0]);
    eventually("the first entry", || stage.remote_ref(MAIN) == chain[0]).await;
    let line = format!("{{\"entry_id\":\"e1\",\"ref\":\"{MAIN}\",\"new_oid\":\"{}\"}}\n", chain[1]);
    let (first, rest) = line.split_at(line.len() / 2);
    stage.git(&stage.repo, &["update-ref", MAIN, &chain[1]], b"");
    stage.scribble(first.as_bytes());
    running.terminate();
    assert!(running.ended(PATIENCE).await.success(), "{}", running.log());
    assert_eq!(stage.letters().len(), 0, "half a line was taken for one");
    stage.scribble(rest.as_bytes());
    stage.drain();
    stage.assert_mirrored(&chain[1]);
    assert_eq!((stage.status_of("e1").as_str(), stage.letters().len()), ("completed", 0));
}

#[test]
fn an_entry_that_the_remote_has_is_recorded_and_not_pushed_again() {
    let stage = Stage::new();
    stage.log_updates();
    let chain = stage.chain(3);
    stage.push("e0", MAIN, None, &chain[2]);
    stage.drain();
    // The same again, and an older one: a replay must neither repeat nor rewind.
    stage.push("e1", MAIN, Some(&chain[1]), &chain[2]);
    stage.journal(&serde_json::json!({ "entry_id": "e2", "ref": MAIN, "new_oid": chain[0] }));
    stage.drain();
    for id in ["e1", "e2"] {
        let records = stage.records_of(id);
        assert_eq!(
            (&records[0]["status"], &records[0]["via"], &records[0]["attempts"]),
            (&"completed".into(), &"already-mirrored".into(), &0.into()),
            "{records:?}"
        );
    }
    assert_eq!(stage.updates(MAIN), [chain[2].clone()]);
    stage.assert_mirrored(&chain[2]);
}

#[test]
fn a_push_that_hangs_is_ended_with_all_its_processes_and_given_up_after_three_tries() {
    let stage = Stage::with_settings("push_timeout = \"1s\"\n");
    let tries = stage.program.home().join("tries");
    let open = stage.program.home().join("open");
    // Each push writes down the process of the hook, which then does not end.
    stage.remote_hook(
        "pre-receive",
        &format!(
            "cat > /dev/null; test -e {} && exit 0; echo $$ >> {}; exec sleep 1000",
            open.display(),
            tries.display()
        ),
    );
    let oid = stage.chain(1).remove(0);
    stage.push("e1", MAIN, None, &oid);
    let output = stage.mirror(&["run", "--once"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("given up"), "{said}");
    let letters = stage.letters();
    assert_eq!(
        (letters.len(), &letters[0]["reason"], &letters[0]["attempts"]),
        (1, &"timeout".into(), &3.into())
    );
    assert_eq!(stage.status_of("e1"), "dead-letter");
    let hooks = std::fs::read_to_string(&tries).unwrap();
    let hooks: Vec<&str> = hooks.lines().collect();
    assert!(hooks.len() >= 3, "{hooks:?}");
    for pid in hooks {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        assert!(!stat.contains("sleep"), "process {pid} of a push that was ended still runs");
    }
    // An operator puts it back when the remote works again.
    std::fs::write(&open, "").unwrap();
    stage.answer(&["dead-letter", "requeue", "--all"]);
    stage.drain();
    stage.assert_mirrored(&oid);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_metrics_of_a_node_count_what_was_processed_retried_and_given_up() {
    let stage = Stage::new();
    let chain = stage.chain(2);
    stage.remote_hook("update", "test \"$1\" != refs/kv/closed");
    stage.push("e0", "refs/kv/closed", None, &chain[0]);
    stage.push("e1", MAIN, None, &chain[1]);
    stage.scribble(b"no entry\n");
    let node = stage.node("a").await;
    eventually("all to be processed", || stage.records().len() == 3).await;
    let metrics = stargate_testkit::process::get(node.address(), "/metrics").await.unwrap().1;
    for line in [
        "mirror_entries_processed_total{status=\"completed\"} 1",
        "mirror_entries_processed_total{status=\"dead-letter\"} 2",
        "mirror_dead_letters_total{reason=\"rejected\"} 1",
        "mirror_dead_letters_total{reason=\"malformed\"} 1",
        "mirror_retries_total{reason=\"rejected\"} 2",
        "mirror_retries_total{reason=\"malformed\"} 3",
    ] {
        assert!(metrics.contains(line), "no {line} in:\n{metrics}");
    }
    for words in ["given up", "tried again"] {
        assert!(node.log().contains(words), "{}", node.log());
    }
}
