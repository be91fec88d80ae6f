//! The same commands through a running node: `--url`, tokens, a standby, exit codes.

use std::time::Duration;

use serde_json::json;
use stargate_testkit::eventually;
use stargate_testkit::process::{Program, Running};

use crate::{code, configured, json, refusal, stargate, stderr};

const PATIENCE: Duration = Duration::from_secs(30);

const KINDS: &str = r#"
[worker]
heartbeat = "1s"
[leader]
retry_every = "1s"
[kinds."echo"]
exec = ["cat"]
[kinds."slow"]
exec = ["sleep", "600"]
[kinds."wrong"]
exec = ["sh", "-c", "echo broken >&2; exit 65"]
"#;

fn url(node: &Running) -> String {
    format!("http://{}", node.address())
}

async fn up(program: &Program) -> Running {
    let mut node = program.start(&["up"]);
    node.ready().await;
    node
}

/// A client with a home of its own: nothing of what it prints can come from the store.
fn client(node: &Running) -> Program {
    stargate().with("STARGATE_URL", url(node))
}

/// Nothing was opened beside the node.
fn untouched(client: &Program) {
    assert!(!client.home().join("stargate.db").exists(), "a client made a store of its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_enqueued_followed_listed_and_shown_as_beside_the_store() {
    let server = configured(KINDS);
    let node = up(&server).await;
    let client = client(&node);
    // Digits that no floating-point number has room for.
    let payload = r#"{"n":12345678901234567890123,"text":"a"}"#;
    let output = client.run(&["job", "enqueue", "echo", payload, "--queue", "a/b", "--wait"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n", "the id stands alone");
    assert!(stderr(&output).contains("done"), "{}", stderr(&output));

    let (there, here) =
        (client.answer(&["job", "show", "1", "--json"]), server.answer(&["job", "show", "1", "--json"]));
    assert_eq!(there, here, "one job, told in the same words");
    assert!(there.contains("12345678901234567890123"), "{there}");
    assert_eq!(
        client.answer(&["job", "events", "1", "--json"]),
        server.answer(&["job", "events", "1", "--json"])
    );
    let list = ["job", "list", "--queue", "a/b", "--state", "done", "--since", "1h", "--json"];
    assert_eq!(client.answer(&list), server.answer(&list));
    assert_eq!(json(&client, &["job", "list", "--kind", "slow", "--json"]), json!([]));
    assert!(client.answer(&["job", "list"]).contains("done"));
    assert_eq!(json(&client, &["workers", "--json"])[0]["alive"], json!(true));
    assert_eq!(json(&client, &["queue", "list", "--json"])[0]["queue"], json!("a/b"));
    untouched(&client);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_has_the_exit_codes_of_the_store() {
    let server = configured(KINDS);
    let node = up(&server).await;
    let client = client(&node);
    for arguments in [
        &["job", "show", "7"][..],
        &["job", "events", "7"],
        &["job", "cancel", "7"],
        &["job", "retry", "7"],
        &["job", "enqueue", "nobody"],
        &["job", "enqueue", "echo", "--queue", "no spaces"],
        &["job", "enqueue", "echo", "--run-at", "2001-01-01T00:00:00Z"],
        &["job", "enqueue", "echo", "--after", "99"],
    ] {
        let (there, here) = (refusal(&client, arguments), refusal(&server, arguments));
        assert_eq!(
            (there.0, &there.1["code"]),
            (here.0, &here.1["code"]),
            "{arguments:?}: {there:?} {here:?}"
        );
        assert_eq!(there.1["message"], here.1["message"], "{arguments:?}");
    }
    client.answer(&["job", "enqueue", "echo", "--wait"]);
    let (there, here) = (refusal(&client, &["job", "retry", "1"]), refusal(&server, &["job", "retry", "1"]));
    assert_eq!(there, here);
    assert_eq!(there.0, 4);
    let enqueue = ["job", "enqueue", "echo", r#"{"a":1}"#, "--idempotency-key", "k", "--json"];
    assert_eq!(json(&client, &enqueue)["existing"], json!(false));
    assert_eq!(json(&client, &enqueue)["existing"], json!(true));
    let other = ["job", "enqueue", "echo", r#"{"a":2}"#, "--idempotency-key", "k"];
    assert_eq!(refusal(&client, &other).0, 4);
    let output = client.run(&["job", "watch", "2", "--timeout", "20s"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(code(&client.run(&["job", "enqueue", "wrong", "--max-attempts", "1", "--wait"])), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn running_and_failed_jobs_are_steered() {
    let server = configured(KINDS);
    let node = up(&server).await;
    let client = client(&node);
    client.answer(&["queue", "pause", "mail"]);
    client.answer(&["job", "enqueue", "echo", "--queue", "mail"]);
    assert!(client.answer(&["explain", "1"]).contains("queue resume mail"));
    assert_eq!(client.answer(&["queue", "resume", "mail"]), "queue mail gives out jobs again");
    assert_eq!(client.answer(&["queue", "resume", "mail"]), "queue mail was not paused");
    client.answer(&["job", "watch", "1", "--timeout", "20s"]);
    client.answer(&["queue", "pause", "--kind", "echo"]);
    assert!(stderr(&client.run(&["queue", "list"])).contains("kind echo is paused"));
    client.answer(&["queue", "resume", "--kind", "echo"]);

    client.answer(&["job", "enqueue", "slow"]);
    eventually(PATIENCE, "the slow job to run", || {
        let state = json(&client, &["job", "show", "2", "--json"])["state"].clone();
        async move { if state == "processing" { Ok(()) } else { Err(state.to_string()) } }
    })
    .await;
    assert!(client.answer(&["job", "cancel", "2"]).contains("asked to stop"));
    assert_eq!(code(&client.run(&["job", "watch", "2", "--timeout", "20s"])), 1);
    let output = client.run(&["job", "enqueue", "wrong", "--wait"]);
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    assert_eq!(client.answer(&["job", "retry", "3"]), "job 3 will run again");
    untouched(&client);
}

#[tokio::test(flavor = "multi_thread")]
async fn schedules_and_limits_are_kept_by_the_node() {
    let server = configured(KINDS);
    let node = up(&server).await;
    let client = client(&node);
    let add =
        ["schedule", "add", "a/nightly", "0 3 * * *", "echo", r#"{"n":1}"#, "--time-zone", "Europe/Berlin"];
    assert!(client.answer(&add).contains("Europe/Berlin"));
    assert_eq!(
        client.answer(&["schedule", "list", "--json"]),
        server.answer(&["schedule", "list", "--json"])
    );
    let job = client.answer(&["schedule", "fire", "a/nightly"]);
    assert_eq!(json(&client, &["job", "show", &job, "--json"])["payload"], json!({ "n": 1 }));
    client.answer(&["schedule", "remove", "a/nightly"]);
    let wrong = ["schedule", "add", "s", "61 * * * *", "echo"];
    assert_eq!(refusal(&client, &wrong), refusal(&server, &wrong));
    client.answer(&["limit", "set", "tenant:*", "--concurrency", "2", "--rate", "10/s"]);
    assert_eq!(client.answer(&["limit", "list", "--json"]), server.answer(&["limit", "list", "--json"]));
    client.answer(&["limit", "remove", "tenant:*"]);
    for arguments in
        [&["limit", "remove", "tenant:*"][..], &["schedule", "remove", "x"], &["schedule", "fire", "x"]]
    {
        let (exit, error) = refusal(&client, arguments);
        assert_eq!((exit, &error["code"]), (3, &json!("NOT_FOUND")), "{arguments:?}: {error}");
    }
    assert_eq!(json(&client, &["directive", "list", "--json"]), json!([]));
    assert_eq!(refusal(&client, &["directive", "show", "x"]).0, 3);
    assert_eq!(json(&client, &["mirror", "status", "--json"]), json!([]));
    assert_eq!(refusal(&client, &["mirror", "status", "--repo", "x"]).0, 3);
    untouched(&client);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_opens_what_its_role_allows_and_never_stands_in_an_answer() {
    let server = configured(KINDS);
    let token = |role: &str| server.answer(&["token", "add", role, "--role", role]);
    let (read, write, operate) = (token("read"), token("write"), token("operate"));
    let node = up(&server).await;
    let nobody = client(&node);
    let (exit, error) = refusal(&nobody, &["job", "list"]);
    assert_eq!((exit, &error["code"]), (5, &json!("UNAUTHENTICATED")), "{error}");
    assert!(error["help"].as_str().unwrap().contains("STARGATE_TOKEN"), "{error}");

    let reader = client(&node).with("STARGATE_TOKEN", &read);
    assert_eq!(json(&reader, &["job", "list", "--json"]), json!([]));
    let (exit, error) = refusal(&reader, &["job", "enqueue", "echo"]);
    assert_eq!((exit, &error["code"]), (5, &json!("FORBIDDEN")), "{error}");
    assert!(error["help"].as_str().unwrap().contains("role"), "{error}");

    // The file wins over the environment, and a trailing line feed is no part of a token.
    let file = reader.home().join("token");
    std::fs::write(&file, format!("{write}\n")).unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(reader.answer(&["job", "enqueue", "echo", "--token-file", file]), "1");
    let by_file = client(&node).with("STARGATE_TOKEN_FILE", file);
    assert_eq!(by_file.answer(&["job", "enqueue", "echo"]), "2");

    let (exit, error) = refusal(&by_file, &["queue", "pause", "mail"]);
    assert_eq!((exit, &error["code"]), (5, &json!("FORBIDDEN")), "{error}");
    let operator = client(&node).with("STARGATE_TOKEN", &operate);
    operator.answer(&["queue", "pause", "mail"]);
    assert_eq!(json(&operator, &["audit", "--json"])[0]["actor"], json!("operate"));

    let wrong = client(&node).with("STARGATE_TOKEN", "sg_nobody_0000");
    for arguments in [&["job", "list", "-vv"][..], &["job", "list", "--json"], &["leader", "status"]] {
        let output = wrong.run(arguments);
        assert_eq!(code(&output), 5, "{arguments:?}: {}", stderr(&output));
        assert!(!stderr(&output).contains("0000"), "{}", stderr(&output));
    }
    let missing = refusal(&nobody, &["job", "list", "--token-file", "/not/there"]);
    assert_eq!((missing.0, &missing.1["code"]), (5, &json!("IO")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_answers_reads_and_names_the_leader_for_the_rest() {
    let server = configured(KINDS);
    let leader = up(&server).await;
    let mut standby = server.start_with(&["up"], &[("STARGATE_INSTANCE", "second")]);
    standby.ready().await;
    let client = client(&standby);
    assert_eq!(json(&client, &["job", "list", "--json"]), json!([]));
    let (exit, error) = refusal(&client, &["job", "enqueue", "echo"]);
    assert_eq!((exit, &error["code"]), (9, &json!("NOT_LEADER")), "{error}");
    assert_eq!(error["help"], json!(format!("ask the leader: --url {}", url(&leader))), "{error}");
    assert_eq!(client.answer(&["job", "enqueue", "echo", "--url", &url(&leader)]), "1", "a flag wins");
    assert_eq!(code(&client.run(&["leader", "check"])), 9);
    assert_eq!(json(&client, &["leader", "status", "--json"])["role"], json!("standby"));
}

#[test]
fn a_node_that_is_not_there_is_told_apart_from_a_refusal() {
    let client = stargate().with("STARGATE_URL", "http://127.0.0.1:1");
    let (exit, error) = refusal(&client, &["job", "list"]);
    assert_eq!((exit, &error["code"]), (5, &json!("IO")), "{error}");
    assert!(error["message"].as_str().unwrap().contains("127.0.0.1:1"), "{error}");
    // Nothing was sent, so nothing can have been done.
    assert_eq!(refusal(&client, &["job", "enqueue", "echo"]).1["code"], json!("IO"));
    for wrong in ["ftp://h", "h:80", "http://u:hunter2@h"] {
        let client = stargate().with("STARGATE_URL", wrong);
        let (exit, error) = refusal(&client, &["job", "list"]);
        assert_eq!((exit, &error["code"]), (2, &json!("CONFIG_INVALID")), "{error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}

#[test]
fn what_needs_the_store_itself_says_so_instead_of_working_on_another_one() {
    let client = stargate().with("STARGATE_URL", "http://127.0.0.1:1");
    for arguments in [
        &["migrate"][..],
        &["purge"],
        &["token", "list"],
        &["repo", "list"],
        &["webhook", "list"],
        &["store", "move", "--to", "postgres://h/d"],
        &["mirror", "sync", "--repo", "tools"],
    ] {
        let (exit, error) = refusal(&client, arguments);
        assert_eq!((exit, &error["code"]), (2, &json!("USAGE")), "{arguments:?}: {error}");
        assert!(error["help"].as_str().unwrap().contains("STARGATE_URL"), "{error}");
    }
    untouched(&client);
    // What never looks into a store does not care about the variable, but a flag there is a mistake.
    assert!(client.answer(&["config", "show"]).contains("worker.concurrency"));
    assert_eq!(refusal(&client, &["config", "show", "--url", "http://127.0.0.1:1"]).0, 2);
    let both = ["job", "list", "--url", "http://127.0.0.1:1", "--store", "sqlite:x.db"];
    assert_eq!(refusal(&stargate(), &both).0, 2);
}

/// A server that takes requests and closes without an answer, so many times; ends with the number of them.
fn mute(times: usize) -> (String, std::thread::JoinHandle<usize>) {
    use std::io::Read as _;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let served = std::thread::spawn(move || {
        let mut asked = 0;
        while asked < times {
            let (mut stream, _) = listener.accept().unwrap();
            asked += usize::from(stream.read(&mut [0; 4096]).unwrap_or(0) > 0);
        }
        asked
    });
    (url, served)
}

#[test]
fn an_answer_that_was_lost_is_asked_for_again_only_where_that_is_safe() {
    let (url, served) = mute(2);
    let (exit, error) = refusal(&stargate().with("STARGATE_URL", url), &["job", "enqueue", "echo"]);
    assert_eq!((exit, &error["code"]), (5, &json!("OUTCOME_UNKNOWN")), "{error}");
    assert_eq!(served.join().unwrap(), 2, "an enqueue has a key and is sent twice");
    let (url, served) = mute(1);
    let (_, error) = refusal(&stargate().with("STARGATE_URL", url), &["job", "cancel", "1"]);
    assert_eq!(error["code"], json!("OUTCOME_UNKNOWN"), "{error}");
    assert_eq!(served.join().unwrap(), 1, "a cancellation is not sent again");
}
