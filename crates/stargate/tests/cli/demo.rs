//! The demo runs to its end with nothing but the binary.

use std::time::Duration;

use stargate_testkit::{eventually, process};

use crate::{code, json, stargate, stderr};

#[test]
fn the_demo_ends_with_every_outcome_as_it_should_be() {
    let outcomes = json(&stargate(), &["demo", "--once", "--json"]);
    let outcomes = outcomes.as_array().unwrap();
    assert_eq!(outcomes.len(), 12);
    assert!(outcomes.iter().all(|outcome| outcome["ok"] == true), "{outcomes:#?}");
    let found = |shows: &str| {
        let outcome = outcomes.iter().find(|outcome| outcome["shows"] == shows).unwrap();
        outcome["found"].as_str().unwrap()
    };
    let ingested = found("a directive that reads an API");
    assert!(ingested.starts_with("succeeded, 999 of 1 000 items are rows, 1 quarantined: "), "{ingested}");
    assert!(ingested.contains("title"), "{ingested}");
    let pushed = found("a git push through the gateway");
    assert!(pushed.contains("on 2 refs, 2 journaled, 2 processed"), "{pushed}");
    let mirrored = found("and its mirror");
    assert!(mirrored.starts_with("arrived") && mirrored.ends_with("2 refs equal, 0 different"), "{mirrored}");
}

#[test]
fn without_ffmpeg_and_git_the_demo_says_what_is_left_out_and_succeeds() {
    let program = stargate();
    // All that the demo's scripts need, and nothing else.
    let bin = program.home().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    for name in ["sh", "cat", "sleep"] {
        let found = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.exists());
        std::os::unix::fs::symlink(found.unwrap(), bin.join(name)).unwrap();
    }
    let output = program.with("PATH", bin.to_str().unwrap()).run(&["demo", "--once"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    for missing in ["ffmpeg is not installed", "git is not installed"] {
        assert!(stderr(&output).contains(missing), "{}", stderr(&output));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sample_api_comes_with_a_directive_that_reads_it() {
    let program = stargate();
    let address = format!("127.0.0.1:{}", process::free_port());
    let mut sample = program.start(&[
        "directive",
        "sample",
        "--listen",
        &address,
        "--items",
        "250",
        "--bad",
        "2",
        "--write",
        "directives",
    ]);
    eventually(Duration::from_secs(20), "the sample to listen", || async {
        process::get(&address, "/items?limit=1").await.map(drop).map_err(|error| error.to_string())
    })
    .await;
    program.answer(&["directive", "check"]);
    let run = json(&program, &["directive", "run", "sample", "--json"]);
    assert_eq!((&run["created"], &run["failed"]), (&248.into(), &2.into()), "{run}");
    let run = json(&program, &["directive", "run", "sample", "--json"]);
    assert_eq!((&run["created"], &run["unchanged"]), (&0.into(), &248.into()), "{run}");

    let second = program.run(&["directive", "sample", "--listen", &address]);
    assert_eq!(code(&second), 5, "{}", stderr(&second));
    assert!(stderr(&second).contains("--listen"), "{}", stderr(&second));
    sample.terminate();
    assert_eq!(sample.ended(Duration::from_secs(20)).await.code(), Some(0), "{}", sample.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directive_that_was_changed_is_not_written_over_by_the_sample() {
    let program = stargate();
    let path = program.home().join("directives/sample.toml");
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    std::fs::write(&path, "mine").unwrap();
    let mut sample =
        program.start(&["directive", "sample", "--listen", "127.0.0.1:0", "--write", "directives"]);
    let log = || async { if sample.log().contains("items at http://") { Ok(()) } else { Err(sample.log()) } };
    eventually(Duration::from_secs(20), "the sample to listen", log).await;
    assert!(sample.log().contains("sample.toml is there already"), "{}", sample.log());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    sample.terminate();
    assert_eq!(sample.ended(Duration::from_secs(20)).await.code(), Some(0), "{}", sample.log());
}

#[test]
fn the_benchmark_measures_in_a_store_of_its_own() {
    let program = stargate();
    let report = json(&program, &["bench", "queue", "-n", "200", "--samples", "5", "--json"]);
    assert!(report["drain_per_second"].as_f64().unwrap() > 0.0, "{report}");
    assert_eq!(
        json(&program, &["job", "list", "--json"]),
        serde_json::json!([]),
        "the user's store is untouched"
    );
    let output = program.run(&["bench", "queue", "-n", "0"]);
    assert_eq!(code(&output), 2, "{}", stderr(&output));
}
