//! Leadership from the outside: who leads, `leader status|watch|check|step-down`, hand-over, refusals.

use std::time::Duration;

use serde_json::{Value, json};
use stargate_testkit::eventually;
use stargate_testkit::postgres::Database;
use stargate_testkit::process::{Program, Running, get};
use stargate_testkit::proxy::Proxy;
use stargate_testkit::redis::Redis;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{code, configured, json, refusal, stargate, stderr};

const PATIENCE: Duration = Duration::from_secs(30);

const KINDS: &str = r#"
[worker]
heartbeat = "1s"
[leader]
retry_every = "1s"
[kinds."stuck"]
exec = ["sleep", "600"]
[kinds."quick"]
exec = ["true"]
[limits."tenant:*"]
concurrency = 3
[schedules."often"]
cron = "* * * * * *"
kind = "quick"
"#;

fn url(node: &Running) -> String {
    format!("http://{}", node.address())
}

fn status(program: &Program, node: &Running) -> Value {
    json(program, &["leader", "status", "--url", &url(node), "--json"])
}

fn check(program: &Program, node: &Running) -> i32 {
    code(&program.run(&["leader", "check", "--url", &url(node)]))
}

async fn node(program: &Program, instance: &str) -> Running {
    let mut node = program.start_with(&["up"], &[("STARGATE_INSTANCE", instance)]);
    node.ready().await;
    node
}

/// Waits until the node leads.
async fn leads(program: &Program, node: &Running) {
    eventually(PATIENCE, "the node to lead", || {
        let (code, log) = (check(program, node), node.log());
        async move { if code == 0 { Ok(()) } else { Err(format!("check exits {code}; log:\n{log}")) } }
    })
    .await;
}

async fn says(node: &Running, words: &str) {
    eventually(PATIENCE, words, || {
        let log = node.log();
        async move { if log.contains(words) { Ok(()) } else { Err(log) } }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_node_leads_from_the_first_request_on() {
    let program = configured(KINDS);
    let up = node(&program, "one").await;
    assert_eq!(check(&program, &up), 0, "{}", up.log());
    assert!(up.log().contains("became leader"), "{}", up.log());
    let (code, body) = get(up.address(), "/readyz?role=leader").await.unwrap();
    assert_eq!(code, 200, "{body}");
    // What the configuration says is in the store.
    assert_eq!(json(&program, &["limit", "list", "--json"])[0]["pattern"], json!("tenant:*"));
    let status = status(&program, &up);
    let expected = ["node", "instance", "role", "leader", "epoch", "lease_expires_in_ms", "phase", "trouble"];
    for field in expected.into_iter().chain(["backend", "terms", "overlaps"]) {
        assert!(status.get(field).is_some(), "no {field} in {status}");
    }
    assert_eq!(
        (&status["instance"], &status["role"], &status["epoch"]),
        (&json!("one"), &json!("leader"), &json!(1))
    );
    assert_eq!(status["leader"], json!({ "instance": "one", "address": url(&up) }));
    assert_eq!((&status["backend"], &status["overlaps"]), (&json!("file"), &json!([])));
    assert_eq!(status["terms"][0]["ended_at"], json!(null));
    let text = program.answer(&["leader", "status", "--url", &url(&up)]);
    assert!(
        text.contains("one at http://") && text.contains("epoch 1") && text.contains("not ended"),
        "{text}"
    );
    let text = program.answer(&["leader", "check", "--url", &url(&up)]);
    assert_eq!(text, "one leads");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_node_stands_by_serves_reads_refuses_writes_and_runs_jobs() {
    let program = configured(KINDS);
    let first = node(&program, "first").await;
    let second = node(&program, "second").await;
    assert_eq!((check(&program, &first), check(&program, &second)), (0, 9));
    let (code, error) = refusal(&program, &["leader", "check", "--url", &url(&second)]);
    assert_eq!((code, &error["code"]), (9, &json!("NOT_LEADER")), "{error}");
    assert!(error["message"].as_str().unwrap().contains("first does"), "{error}");
    let status = status(&program, &second);
    assert_eq!((&status["role"], &status["leader"]["instance"]), (&json!("standby"), &json!("first")));
    assert_eq!(get(second.address(), "/api/v1/jobs").await.unwrap().0, 200);
    assert_eq!(get(second.address(), "/readyz").await.unwrap().0, 200);
    assert_eq!(get(second.address(), "/readyz?role=leader").await.unwrap().0, 503);
    let (code, error) = refusal(&program, &["leader", "step-down", "--url", &url(&second)]);
    assert_eq!((code, &error["code"]), (9, &json!("NOT_LEADER")), "{error}");
    let workers = json(&program, &["workers", "--json"]);
    assert_eq!(workers.as_array().unwrap().len(), 2, "both run jobs: {workers}");
    // Those who have the database at hand need no leader.
    program.answer(&["job", "enqueue", "quick", "--wait", "--timeout", "20s"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_hands_over_at_once_while_jobs_go_on_draining() {
    let program = configured(KINDS);
    let first = node(&program, "first").await;
    let stuck = program.answer(&["job", "enqueue", "stuck"]);
    eventually(PATIENCE, "the job to start", || {
        let state = json(&program, &["job", "show", &stuck, "--json"])["state"].clone();
        async move { if state == "processing" { Ok(()) } else { Err(state.to_string()) } }
    })
    .await;
    let second = node(&program, "second").await;
    assert_eq!(check(&program, &second), 9);
    first.terminate();
    let begun = std::time::Instant::now();
    leads(&program, &second).await;
    println!("a successor {:?} after SIGTERM, seen from a shell", begun.elapsed());
    let mut first = first;
    assert!(first.is_running(), "its job is still being waited for: {}", first.log());
    let status = status(&program, &second);
    assert_eq!(
        (&status["epoch"], &status["terms"][1]["reason"]),
        (&json!(2), &json!("shutdown")),
        "{status}"
    );
    assert_eq!(status["overlaps"], json!([]));
    says(&first, "lost leadership").await;
    first.terminate();
    assert_eq!(first.ended(PATIENCE).await.code(), Some(130), "a second signal: {}", first.log());
}

/// What an open request to change something is answered.
async fn paused(address: &str) -> std::io::Result<String> {
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    let request =
        format!("POST /api/v1/queues/mail/pause HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_hands_over_although_the_answer_to_a_write_does_not_come() {
    // Less than the write would wait for its answer, and much less than the lock lives.
    const SOON: Duration = Duration::from_secs(20);
    let database = Database::create_empty().await;
    let mut through = url::Url::parse(database.url()).unwrap();
    let at = format!("{}:{}", through.host_str().unwrap(), through.port().unwrap_or(5432));
    let to_store = Proxy::start(&at).await;
    let (host, port) =
        to_store.address().rsplit_once(':').map(|(h, p)| (h.to_owned(), p.parse().unwrap())).unwrap();
    through.set_host(Some(&host)).unwrap();
    through.set_port(Some(port)).unwrap();
    let program =
        configured("[leader]\nttl = \"120s\"\nretry_every = \"1s\"\n").with("STARGATE_STORE", database.url());
    let start = |instance, store| {
        let mut node =
            program.start_with(&["serve"], &[("STARGATE_INSTANCE", instance), ("STARGATE_STORE", store)]);
        async move {
            node.ready().await;
            node
        }
    };
    let first = start("first", through.as_str()).await;
    leads(&program, &first).await;
    let second = start("second", database.url()).await;
    assert_eq!(check(&program, &second), 9);
    let stranger = database.client().await;
    stranger.batch_execute("begin; lock table stargate.pause in access exclusive mode").await.unwrap();
    let handed_over = async {
        let waiting = "select 1 from pg_locks where relation = 'stargate.pause'::regclass and not granted";
        eventually(PATIENCE, "the write", || async {
            let found = stranger.query(waiting, &[]).await.unwrap();
            if found.is_empty() { Err("not there yet".to_owned()) } else { Ok(()) }
        })
        .await;
        to_store.stall();
        stranger.batch_execute("commit").await.unwrap();
        first.terminate();
        eventually(SOON, "the successor", || {
            let (code, log) = (check(&program, &second), first.log());
            async move { if code == 0 { Ok(()) } else { Err(format!("check exits {code}; log:\n{log}")) } }
        })
        .await;
    };
    let (answer, ()) = tokio::join!(paused(first.address()), handed_over);
    let answer = answer.unwrap();
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("OUTCOME_UNKNOWN"), "{answer}");
    drop((first, second));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stepping_down_lets_the_other_lead_and_a_watcher_sees_it() {
    let program = configured(KINDS);
    let first = node(&program, "first").await;
    let second = node(&program, "second").await;
    let watcher = program.start(&["leader", "watch", "--json", "--url", &url(&second)]);
    says(&watcher, "\"standby\"").await;
    let people = program.start(&["leader", "watch", "--url", &url(&first)]);
    says(&people, "leader first at http://").await;
    let view = json(&program, &["leader", "step-down", "--wait", "--url", &url(&first), "--json"]);
    assert_eq!((&view["leader"]["instance"], &view["role"]), (&json!("second"), &json!("standby")), "{view}");
    leads(&program, &second).await;
    assert_eq!(check(&program, &first), 9);
    says(&watcher, "\"role\":\"leader\"").await;
    says(&people, "leader second at http://").await;
    for line in watcher.log().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        for field in ["at", "node", "instance", "role", "leader", "epoch", "phase", "trouble", "error"] {
            assert!(line.get(field).is_some(), "no {field} in {line}");
        }
    }
    let mut first = first;
    first.kill();
    says(&people, "no answer from").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_leader_is_followed_and_the_store_tells_when_no_node_answers() {
    let program = configured(KINDS);
    let mut first = node(&program, "first").await;
    let mut second = node(&program, "second").await;
    first.kill();
    leads(&program, &second).await;
    let status = status(&program, &second);
    assert_eq!(status["terms"][1]["reason"], json!("superseded"), "{status}");
    second.terminate();
    assert_eq!(second.ended(PATIENCE).await.code(), Some(0), "{}", second.log());
    // Nobody listens there any more.
    let program = program.with("STARGATE_LISTEN", second.address());
    let output = program.run(&["leader", "status", "--json", "--terms", "1"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&status["node"], &status["leader"], &status["epoch"]),
        (&json!(null), &json!(null), &json!(2))
    );
    assert_eq!(status["terms"].as_array().unwrap().len(), 1, "{status}");
    assert_eq!(status["terms"][0]["reason"], json!("shutdown"), "{status}");
    let output = program.run(&["leader", "status"]);
    assert!(stderr(&output).contains("this is what the store says"), "{}", stderr(&output));
    for command in ["check", "step-down", "watch"] {
        let (code, error) = refusal(&program, &["leader", command]);
        assert_eq!((code, &error["code"]), (5, &json!("IO")), "{command}: {error}");
        assert!(error["help"].as_str().unwrap().contains("--url"), "{error}");
    }
    let (code, _) = refusal(&program, &["leader", "status", "--url", &url(&second)]);
    assert_eq!(code, 5, "the node that was named is the one that was meant");
}

#[tokio::test(flavor = "multi_thread")]
async fn schedules_are_fired_by_the_leader_and_by_no_worker() {
    let program = configured(KINDS);
    let mut worker = program.start(&["worker"]);
    worker.ready().await;
    says(&worker, "limits and schedules of this configuration are not entered here").await;
    assert_eq!(json(&program, &["schedule", "list", "--json"]), json!([]));
    let (code, error) = refusal(&program, &["leader", "check", "--url", &url(&worker)]);
    assert_eq!(code, 9);
    assert!(error["message"].as_str().unwrap().contains("takes no part"), "{error}");
    let mut serve = program.start(&["serve"]);
    serve.ready().await;
    leads(&program, &serve).await;
    eventually(PATIENCE, "a job of the schedule", || {
        let jobs = json(&program, &["job", "list", "--kind", "quick", "--state", "done", "--json"]);
        async move {
            if jobs.as_array().is_some_and(|all| !all.is_empty()) { Ok(()) } else { Err(jobs.to_string()) }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_campaigns_leads_without_an_api() {
    let program = configured(&KINDS.replace("[leader]", "[leader]\ncampaign = true"));
    let mut worker = program.start_with(&["worker"], &[("STARGATE_INSTANCE", "w")]);
    worker.ready().await;
    leads(&program, &worker).await;
    let status = status(&program, &worker);
    assert_eq!(status["leader"], json!({ "instance": "w", "address": null }), "{status}");
    eventually(PATIENCE, "the schedule", || {
        let all = json(&program, &["schedule", "list", "--json"]);
        async move { if all[0]["name"] == "often" { Ok(()) } else { Err(all.to_string()) } }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_homes_with_one_sqlite_store_share_its_lock() {
    let place = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", place.path().join("jobs.db").display());
    let (one, two) =
        (configured(KINDS).with("STARGATE_STORE", &store), configured(KINDS).with("STARGATE_STORE", &store));
    let first = node(&one, "first").await;
    let second = node(&two, "second").await;
    assert_eq!((check(&one, &first), check(&two, &second)), (0, 9), "{}", second.log());
    assert!(place.path().join("jobs.db.leader-lock").is_file());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_in_one_home_has_one_lock_for_those_who_use_it_from_another() {
    let one = configured(KINDS);
    let first = node(&one, "first").await;
    leads(&one, &first).await;
    let home = one.home();
    // As the owner writes it, and by a way around.
    let around = home.join("..").join(home.file_name().unwrap());
    for path in [home.join("stargate.db"), around.join("stargate.db")] {
        let store = format!("sqlite:{}", path.display());
        let two = configured(KINDS).with("STARGATE_STORE", &store);
        let second = node(&two, "second").await;
        assert_eq!((check(&one, &first), check(&two, &second)), (0, 9), "{}", second.log());
    }
    assert!(home.join("leader.lock").is_file());
}

#[test]
fn a_lock_that_cannot_be_set_up_is_refused_before_the_first_job_is_taken() {
    let toml =
        "[leader]\nbackend = \"redis\"\nredis_url = \"rediss://127.0.0.1:1\"\nauthority = \"missing.pem\"\n";
    let program = configured(toml);
    let (code, error) = refusal(&program, &["up", "--listen", "127.0.0.1:0"]);
    assert_eq!((code, &error["code"]), (2, &json!("CONFIG_INVALID")), "{error}");
    assert!(error["message"].as_str().unwrap().contains("missing.pem"), "{error}");
    assert_eq!(json(&program, &["workers", "--json"]), json!([]), "nobody came to take jobs");
}

#[test]
fn bad_settings_are_refused_with_file_key_and_range() {
    for (toml, expected, line) in [
        ("[leader]\nttl = \"1h1s\"\n", "leader.ttl is 1h1s; allowed are 300ms to 1h", 2),
        ("[leader]\nttl = \"10s\"\nrenew_every = \"5s\"\n", "must be less than half", 3),
        ("[leader]\nbackend = \"redis\"\n", "no leader.redis_url", 2),
        ("[leader]\nlease = \"10s\"\n", "unknown key \"lease\"", 2),
    ] {
        let program = configured(toml);
        let (code, error) = refusal(&program, &["up", "--listen", "127.0.0.1:0"]);
        assert_eq!(
            (code, &error["code"], &error["line"]),
            (2, &json!("CONFIG_INVALID"), &json!(line)),
            "{error}"
        );
        assert!(error["message"].as_str().unwrap().contains(expected), "{error}");
        assert!(error["file"].as_str().unwrap().contains("stargate.toml"), "{error}");
    }
    let (code, error) = refusal(&stargate().with("STARGATE_INSTANCE", "a b"), &["config", "show"]);
    assert_eq!(code, 2);
    assert!(error["message"].as_str().unwrap().contains("environment variable STARGATE_INSTANCE"), "{error}");
    let (code, error) = refusal(&stargate(), &["leader", "check", "--url", "http://u:hunter2@h"]);
    assert_eq!(code, 2);
    assert!(error["message"].as_str().unwrap().contains("--url"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_password_of_redis_is_nowhere_to_be_seen() {
    let toml =
        "[leader]\nbackend = \"redis\"\nredis_url = \"${env:LOCK}\"\nttl = \"3s\"\nretry_every = \"500ms\"\n";
    // Nobody listens there.
    let program = configured(toml).with("LOCK", "redis://u:hunter2@127.0.0.1:1/0");
    let shown = json(&program, &["config", "show", "--json"]);
    let find = |key: &str| shown.as_array().unwrap().iter().find(|s| s["key"] == key).cloned().unwrap();
    assert_eq!(find("leader.redis_url")["value"], json!("***"));
    assert_eq!(find("leader.renew_every")["value"], json!("1s"));
    let doctor = program.run(&["doctor", "--json"]);
    assert_eq!(code(&doctor), 1);
    let checks = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(checks.contains("leader lock") && checks.contains("REDIS_URL"), "{checks}");
    let mut up = program.start(&["up"]);
    up.ready().await;
    says(&up, "cannot become leader").await;
    assert_eq!(check(&program, &up), 9);
    let status = status(&program, &up);
    assert!(status["trouble"].as_str().unwrap().contains("127.0.0.1:1"), "{status}");
    let text = format!("{shown}{checks}{status}{}{}", stderr(&doctor), up.log());
    assert!(!text.contains("hunter2"), "{text}");
    up.terminate();
    assert_eq!(up.ended(PATIENCE).await.code(), Some(0), "{}", up.log());
}

/// Nodes whose lock is in a Redis with a password.
fn with_redis(redis: &Redis, settings: &str) -> Program {
    let toml = KINDS.replace("[leader]", &format!("[leader]\nbackend = \"redis\"\n{settings}"));
    configured(&toml).with("REDIS_URL", format!("redis://:hunter2@{}", redis.address()))
}

#[tokio::test(flavor = "multi_thread")]
async fn with_redis_the_lock_is_there_and_the_second_node_takes_over_when_the_first_steps_down() {
    let redis = Redis::with(&["--requirepass", "hunter2", "--appendonly", "yes"]);
    // A young server is not trusted; here that would only be waited for.
    let program = with_redis(&redis, "startup_guard = false");
    let first = node(&program, "first").await;
    let second = node(&program, "second").await;
    assert_eq!((check(&program, &first), check(&program, &second)), (0, 9), "{}", first.log());
    assert_eq!(status(&program, &second)["backend"], json!("redis"));
    let doctor = json(&program, &["doctor", "--json"]);
    let find = |name: &str| doctor.as_array().unwrap().iter().find(|c| c["check"] == name).cloned().unwrap();
    for name in
        ["leader lock", "leader", "leader terms", "redis persistence", "redis eviction", "redis replicas"]
    {
        assert_eq!(find(name)["verdict"], json!("ok"), "{doctor}");
    }
    assert!(find("leader lock")["found"].as_str().unwrap().contains("held by first at http://"), "{doctor}");
    let view = json(&program, &["leader", "step-down", "--wait", "--url", &url(&first), "--json"]);
    assert_eq!(view["leader"]["instance"], json!("second"), "{view}");
    leads(&program, &second).await;
    let seen = format!("{doctor}{view}{}{}", first.log(), second.log());
    assert!(!seen.contains("hunter2"), "{seen}");
    let mut second = second;
    second.terminate();
    assert_eq!(second.ended(PATIENCE).await.code(), Some(0), "{}", second.log());
    leads(&program, &first).await;
    let status = status(&program, &first);
    assert_eq!((&status["epoch"], &status["overlaps"]), (&json!(3), &json!([])), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_young_redis_is_not_trusted_and_the_node_says_so() {
    let redis = Redis::with(&["--requirepass", "hunter2"]);
    let program = with_redis(&redis, "ttl = \"1h\"\nrenew_every = \"10s\"");
    let up = node(&program, "one").await;
    assert_eq!(check(&program, &up), 9);
    let status = status(&program, &up);
    assert!(status["trouble"].as_str().unwrap().contains("too young"), "{status}");
    assert!(up.log().contains("may have forgotten an older lock"), "{}", up.log());
}

#[test]
fn doctor_fails_on_a_redis_that_may_throw_the_lock_out() {
    let redis = Redis::with(&[
        "--requirepass",
        "hunter2",
        "--maxmemory",
        "64mb",
        "--maxmemory-policy",
        "volatile-ttl",
    ]);
    let program = with_redis(&redis, "replicas = 1");
    let output = program.run(&["doctor", "--json"]);
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    let checks: Value = serde_json::from_slice(&output.stdout).unwrap();
    let find = |name: &str| checks.as_array().unwrap().iter().find(|c| c["check"] == name).cloned().unwrap();
    assert_eq!(find("leader lock")["verdict"], json!("ok"), "{checks}");
    assert_eq!(find("redis persistence")["verdict"], json!("warn"), "{checks}");
    assert_eq!(find("redis eviction")["verdict"], json!("fail"), "{checks}");
    assert_eq!(find("redis replicas")["verdict"], json!("fail"), "{checks}");
    assert!(find("redis eviction")["remedy"].as_str().unwrap().contains("noeviction"), "{checks}");
    assert!(!checks.to_string().contains("hunter2"), "{checks}");
}

async fn enqueue(node: &Running) -> reqwest::Response {
    let request = reqwest::Client::new().post(format!("{}/api/v1/jobs", url(node)));
    request
        .body(r#"{"kind":"quick"}"#)
        .header("content-type", "application/json")
        .send()
        .await
        .expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_names_the_leader_or_passes_the_write_on_if_it_is_told_to() {
    let program = configured(KINDS);
    let first = node(&program, "first").await;
    assert_eq!(enqueue(&first).await.status(), 201, "the only node takes the first request");
    let second = node(&program, "second").await;
    let refused = enqueue(&second).await;
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.headers()["x-stargate-leader"], url(&first));
    let body: Value = serde_json::from_str(&refused.text().await.unwrap()).unwrap();
    assert_eq!(body["error"]["code"], json!("NOT_LEADER"), "{body}");

    std::fs::write(
        program.home().join("stargate.toml"),
        KINDS.replace("[leader]", "[leader]\nforward_writes = true"),
    )
    .unwrap();
    let third = node(&program, "third").await;
    assert_eq!(check(&program, &third), 9);
    let done = enqueue(&third).await;
    assert_eq!(done.status(), 201, "{:?}", done.text().await);
}
