//! `stargate top`: one frame as text, one look as JSON, and live under a pseudo terminal.

use std::io::Write as _;
use std::time::Duration;

use serde_json::json;
use stargate_testkit::eventually;
use stargate_testkit::process::{Program, Running};

use crate::{configured, json, refusal, stargate};

const PATIENCE: Duration = Duration::from_secs(30);
const KINDS: &str =
    "[kinds.\"echo\"]\nexec = [\"cat\"]\n[kinds.\"wrong\"]\nexec = [\"sh\", \"-c\", \"exit 65\"]\n";

async fn shows(top: &Running, words: &str) {
    eventually(PATIENCE, words, || {
        let log = top.log();
        async move { if log.contains(words) { Ok(()) } else { Err(log) } }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_frame_is_text_and_one_look_is_json() {
    let program = configured(KINDS);
    let empty = program.answer(&["top", "--once"]);
    assert!(empty.contains("nothing to worry about") && empty.contains("no queues yet"), "{empty}");
    program.answer(&["job", "enqueue", "echo", "--queue", "mail"]);
    program.answer(&["queue", "pause", "mail"]);
    let frame = program.answer(&["top", "--once"]);
    assert!(frame.starts_with("stargate top  sqlite:"), "{frame}");
    assert!(frame.contains("! jobs wait and no worker is alive"), "{frame}");
    assert!(
        frame.contains("queue mail is paused") && frame.contains("stargate queue resume mail"),
        "{frame}"
    );
    for (view, words) in [
        ("queues", "paused"),
        ("jobs", "nothing runs"),
        ("failures", "no failed jobs"),
        ("workers", "no workers"),
        ("leader", "nobody leads"),
        ("mirror", "nothing is mirrored here"),
    ] {
        let frame = program.answer(&["top", "--once", "--view", view]);
        assert!(frame.contains(words), "{view}: {frame}");
    }
    let look = json(&program, &["top", "--json"]);
    assert_eq!((&look["jobs"]["ready"], &look["workers_alive"]), (&json!(1), &json!(0)), "{look}");
    assert_eq!(look["problems"][0]["is_severe"], json!(true), "{look}");
    let (exit, error) = refusal(&stargate(), &["top", "--view", "nonsense"]);
    assert_eq!(exit, 2, "{error}");
    let output = stargate().run(&["top"]);
    assert_eq!(output.status.code(), Some(2), "there is no terminal here");
}

#[tokio::test(flavor = "multi_thread")]
async fn under_a_terminal_it_draws_reacts_to_keys_and_gives_the_terminal_back() {
    let program = configured(KINDS);
    let mut node = program.start(&["up"]);
    node.ready().await;
    program.run(&["job", "enqueue", "wrong", "--queue", "mail", "--wait"]);
    let shell = Program::new("/bin/sh")
        .with("STARGATE_URL", format!("http://{}", node.address()))
        .with("TERM", "xterm");
    let top = format!("stty rows 40 cols 120; exec {} top --every 200ms", env!("CARGO_BIN_EXE_stargate"));
    let command = format!("mkfifo keys; exec script -qfec '{top}' /dev/null < keys");
    let mut top = shell.start(&["-c", &command]);
    let keys = shell.home().join("keys");
    eventually(PATIENCE, "the pipe for keys", || {
        let there = keys.exists();
        async move { if there { Ok(()) } else { Err("not there yet".to_owned()) } }
    })
    .await;
    let mut keys = std::fs::OpenOptions::new().write(true).open(keys).unwrap();
    let mut press = |key: &str| keys.write_all(key.as_bytes()).unwrap();
    shows(&top, "\u{1b}[?1049h").await;
    shows(&top, "jobs failed within the last hour").await;
    press("4");
    shows(&top, "EXEC_FAILED").await;
    press("2");
    shows(&top, "PROCESSING").await;
    press("p");
    shows(&top, "pause queue mail? y/n").await;
    press("y");
    eventually(PATIENCE, "the queue to be paused", || {
        let queues = json(&program, &["queue", "list", "--json"]);
        async move { if queues[0]["paused"] == json!(true) { Ok(()) } else { Err(queues.to_string()) } }
    })
    .await;
    shows(&top, "done: pause queue mail").await;
    press("q");
    assert!(top.ended(PATIENCE).await.success(), "{}", top.log());
    assert!(top.log().contains("\u{1b}[?1049l"), "the terminal was not given back");
}
