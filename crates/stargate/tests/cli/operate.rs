//! What an operator does about many jobs: bulk by filter, failures, edits, the audit, help for codes.

use serde_json::{Value, json};
use stargate_testkit::process::{Program, Running};

use crate::{code, configured, json, refusal, stargate, stderr};

const KINDS: &str = r#"
[worker]
heartbeat = "1s"
[kinds."echo"]
exec = ["cat"]
[kinds."wrong"]
exec = ["sh", "-c", "grep -q mended && exit 0; echo broken >&2; exit 65"]
[kinds."other"]
exec = ["sh", "-c", "exit 78"]
"#;

async fn up(program: &Program) -> Running {
    let mut node = program.start(&["up"]);
    node.ready().await;
    node
}

/// A program with some failed jobs of two kinds: 1 to 3 of `wrong`, 4 of `other`. Nothing runs any more.
async fn with_failures() -> Program {
    let program = configured(KINDS);
    let node = up(&program).await;
    for number in 1..=3 {
        program.run(&[
            "job",
            "enqueue",
            "wrong",
            &format!("{{\"number\":{number},\"who\":\"Ann{number}\"}}"),
            "--wait",
        ]);
    }
    program.run(&["job", "enqueue", "other", "--queue", "slow", "--wait"]);
    drop(node);
    program
}

fn states(program: &Program) -> Vec<(i64, String)> {
    let jobs = json(program, &["job", "list", "--json"]);
    let state = |job: &Value| (job["id"].as_i64().unwrap(), job["state"].as_str().unwrap().to_owned());
    let mut states: Vec<_> = jobs.as_array().unwrap().iter().map(state).collect();
    states.sort();
    states
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_counts_shows_and_needs_a_yes() {
    let program = with_failures().await;
    let before = states(&program);
    let (exit, error) = refusal(&program, &["job", "retry", "--kind", "wrong"]);
    assert_eq!((exit, &error["code"]), (2, &json!("USAGE")), "{error}");
    assert!(error["message"].as_str().unwrap().contains("retry 3 jobs"), "{error}");
    assert!(error["help"].as_str().unwrap().contains("--yes"), "{error}");
    let looked = json(&program, &["job", "retry", "--kind", "wrong", "--dry-run", "--json"]);
    assert_eq!(
        (&looked["matched"], &looked["changed"], &looked["dry_run"]),
        (&json!(3), &json!(0), &json!(true))
    );
    assert_eq!(looked["sample"][0]["id"], json!(3), "newest first");
    let text = program.answer(&["job", "retry", "--code", "EXEC_FAILED", "--queue", "default", "--dry-run"]);
    assert!(text.contains("would retry 3 jobs"), "{text}");
    assert_eq!(states(&program), before, "nothing was changed");

    // Search finds payloads, without regard to case; and other filters narrow further.
    let found = json(&program, &["job", "list", "--search", "ann2", "--json"]);
    assert_eq!(found.as_array().unwrap().len(), 1, "{found}");
    assert_eq!(json(&program, &["job", "list", "--search", "ann2", "--kind", "other", "--json"]), json!([]));
    assert_eq!(json(&program, &["job", "list", "--until", "1h", "--json"]), json!([]));
    let done = json(&program, &["job", "retry", "--search", "ANN2", "--yes", "--json"]);
    assert_eq!((&done["matched"], &done["changed"]), (&json!(1), &json!(1)), "{done}");
    assert_eq!(states(&program)[1], (2, "queued".to_owned()));
    let text = program.answer(&["job", "retry", "--state", "failed", "--yes"]);
    assert!(text.ends_with("retried 3 jobs"), "{text}");
    let text = program.answer(&["job", "cancel", "--queue", "default", "--yes"]);
    assert!(text.ends_with("cancelled 3 jobs"), "{text}");
    let expected = [(1, "cancelled"), (2, "cancelled"), (3, "cancelled"), (4, "queued")];
    assert_eq!(states(&program), expected.map(|(id, state)| (id, state.to_owned())));

    // What matches nothing is no failure, and needs no yes.
    let none = json(&program, &["job", "retry", "--kind", "wrong", "--json"]);
    assert_eq!((&none["matched"], &none["changed"]), (&json!(0), &json!(0)), "{none}");
    assert_eq!(refusal(&program, &["job", "retry", "--state", "done"]).0, 2);
    assert_eq!(refusal(&program, &["job", "retry"]).0, 2, "neither ids nor a filter");
    assert_eq!(refusal(&program, &["job", "retry", "1", "--kind", "wrong"]).0, 2, "both");
    assert_eq!(refusal(&program, &["job", "retry", "1", "--dry-run"]).0, 2);
    assert_eq!(refusal(&program, &["job", "cancel", "--since", "soon"]).0, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_through_a_node_does_the_same() {
    let program = with_failures().await;
    let node = up(&program).await;
    let client = stargate().with("STARGATE_URL", format!("http://{}", node.address()));
    let looked = ["job", "retry", "--kind", "wrong", "--dry-run", "--json"];
    assert_eq!(json(&client, &looked), json(&program, &looked));
    let (exit, error) = refusal(&client, &["job", "retry", "--kind", "wrong"]);
    assert_eq!(exit, 2, "{error}");
    assert_eq!(client.answer(&["failures", "--json"]), program.answer(&["failures", "--json"]));
    program.answer(&["queue", "pause", "default"]);
    let text = client.answer(&["job", "retry", "--kind", "wrong", "--yes"]);
    assert!(text.ends_with("retried 3 jobs"), "{text}");
    let text = client.answer(&["job", "cancel", "--kind", "wrong", "--yes"]);
    assert!(text.ends_with("cancelled 3 jobs"), "{text}");
    assert_eq!(
        json(&client, &["job", "list", "--code", "EXEC_FAILED", "--kind", "other", "--json"])[0]["id"],
        json!(4)
    );
    // The node has entered what it did.
    let actions = json(&client, &["audit", "--json"]);
    assert_eq!(
        (&actions[0]["action"], &actions[0]["source"]),
        (&json!("jobs.cancel"), &json!("api")),
        "{actions}"
    );
    assert!(client.answer(&["top", "--once"]).contains("stargate top"), "a frame");
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_grouped_and_a_canary_goes_first() {
    let program = with_failures().await;
    let groups = json(&program, &["failures", "--json"]);
    assert_eq!(groups.as_array().unwrap().len(), 2, "{groups}");
    assert_eq!(
        (&groups[0]["kind"], &groups[0]["count"], &groups[0]["newest"]),
        (&json!("wrong"), &json!(3), &json!(3))
    );
    let output = program.run(&["failures"]);
    assert!(stderr(&output).contains("failures requeue --kind wrong --code EXEC_FAILED --canary"));
    let (exit, error) =
        refusal(&program, &["failures", "requeue", "--kind", "echo", "--code", "X", "--canary", "--yes"]);
    assert_eq!((exit, &error["code"]), (3, &json!("NOT_FOUND")), "{error}");

    let requeue = ["failures", "requeue", "--kind", "wrong", "--code", "EXEC_FAILED", "--canary"];
    assert_eq!(refusal(&program, &requeue).0, 2, "nobody is asked here");
    let node = up(&program).await;
    // The canary fails again, so the others stay as they are.
    let output = program.run(&[&requeue[..], &["--yes", "--wait", "--timeout", "30s"]].concat());
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    let kept: Vec<String> = states(&program).into_iter().take(4).map(|(_, state)| state).collect();
    assert_eq!(kept, ["failed", "failed", "failed", "failed"]);
    assert_eq!(json(&program, &["job", "show", "2", "--json"])["attempt_count"], json!(1), "not tried again");
    let follower = json(&program, &["job", "list", "--kind", "jobs:retry_matching", "--json"]);
    assert_eq!(follower[0]["error"]["code"], json!("DEPENDENCY_FAILED"), "{follower}");

    // Mended, it is done, and the others follow.
    program.answer(&["job", "retry", "3", "--payload", r#"{"mended":true}"#]);
    program.answer(&["job", "watch", "3", "--timeout", "30s"]);
    let events = json(&program, &["job", "events", "3", "--json"]);
    let edited = events.as_array().unwrap().iter().find(|event| event["event"] == "edited").cloned();
    assert_eq!(edited.unwrap()["data"]["before"]["who"], json!("Ann3"), "{events}");
    drop(node);
    assert_eq!(refusal(&program, &["job", "retry", "1", "2", "--payload", "{}"]).0, 2);
    assert_eq!(refusal(&program, &["job", "retry", "1", "--payload", "nonsense"]).0, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_beside_the_store_is_entered_with_who_and_how_it_ended() {
    let program = configured(KINDS).with("USER", "ann");
    assert_eq!(json(&program, &["audit", "--json"]), json!([]));
    program.answer(&["job", "enqueue", "echo"]);
    program.answer(&["queue", "pause", "mail"]);
    program.answer(&["queue", "resume", "--kind", "echo"]);
    program.answer(&["limit", "set", "tenant:*", "--concurrency", "2"]);
    program.answer(&["limit", "remove", "tenant:*"]);
    program.answer(&["schedule", "add", "nightly", "0 3 * * *", "echo"]);
    let fired = program.answer(&["schedule", "fire", "nightly"]);
    assert_eq!(json(&program, &["job", "show", &fired, "--json"])["kind"], json!("echo"));
    program.answer(&["schedule", "remove", "nightly"]);
    assert_eq!(refusal(&program, &["schedule", "remove", "nightly"]).0, 3);
    assert_eq!(refusal(&program, &["job", "retry", "1"]).0, 4);
    program.answer(&["job", "cancel", "1"]);
    let token = program.answer(&["token", "add", "ci", "--role", "operate"]);
    program.answer(&["purge"]);
    let actions = json(&program, &["audit", "--limit", "1000", "--json"]);
    let actions: Vec<&Value> = actions.as_array().unwrap().iter().rev().collect();
    let told: Vec<String> = actions
        .iter()
        .map(|action| {
            format!("{} {}", action["action"].as_str().unwrap(), action["outcome"].as_str().unwrap())
        })
        .collect();
    assert_eq!(
        told,
        [
            "queue.pause ok",
            "kind.resume ok",
            "limit.set ok",
            "limit.remove ok",
            "schedule.put ok",
            "schedule.fire ok",
            "schedule.remove ok",
            "schedule.remove NOT_FOUND",
            "job.retry WRONG_STATE",
            "job.cancel ok",
            "token.add ok",
            "jobs.purge ok",
        ],
        "enqueueing is its own record"
    );
    for action in &actions {
        assert!(action["actor"].as_str().unwrap().starts_with("cli:ann@"), "{action}");
        assert_eq!(action["source"], json!("cli"));
        assert!(!action.to_string().contains(&token), "{action}");
    }
    assert_eq!(
        json(&program, &["audit", "--action", "job.*", "--target", "1", "--json"]).as_array().unwrap().len(),
        2
    );
    assert!(
        program.answer(&["audit", "--actor", actions[0]["actor"].as_str().unwrap()]).contains("queue.pause")
    );
}

#[test]
fn help_tells_about_commands_and_codes_without_a_network() {
    let program = stargate();
    let page = program.answer(&["help", "NOT_LEADER"]);
    assert!(page.starts_with("NOT_LEADER\n") && page.contains("Likely causes"), "{page}");
    assert_eq!(page, program.answer(&["help", "not-leader"]));
    assert_eq!(page, program.answer(&["explain", "NOT_LEADER"]));
    assert!(program.answer(&["help", "job", "enqueue"]).contains("--unique-key"));
    assert!(program.answer(&["help"]).contains("Start here:"));
    assert!(
        json(&program, &["help", "QUEUE_FULL", "--json"])["text"]
            .as_str()
            .unwrap()
            .starts_with("# QUEUE_FULL")
    );
    assert!(json(&program, &["help", "--codes", "--json"]).as_array().unwrap().len() > 90);
    let (exit, error) = refusal(&program, &["help", "NOT_LEDER"]);
    assert_eq!((exit, &error["help"]), (3, &json!("did you mean NOT_LEADER?")), "{error}");
    assert_eq!(refusal(&program, &["help", "job", "frobnicate"]).0, 3);
    assert_eq!(refusal(&program, &["explain", "nonsense"]).0, 2);
    assert_eq!(refusal(&program, &["explain", "NO_SUCH_CODE"]).0, 3);
    assert!(!program.home().join("stargate.db").exists(), "no store was opened");
}
