//! Webhooks on the real binary: from `git push` to a server that checks the signature.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use stargate_store::postgres::{Options, Postgres};
use stargate_testkit::eventually;
use stargate_testkit::postgres::Database;
use stargate_testkit::process::{Program, Running};

use crate::client::Client;
use crate::{PATIENCE, json, leader, leads, program, stderr};

const KEY: &str = "hook-canary-key";
/// Hooks may lead to this machine, and one secret is known.
const OPEN: &str = "[webhooks]\nallow_private = true\n[webhooks.secrets]\nci = \"${env:CI_HOOK}\"\n";
const OK: &str = "204 No Content";
const BUSY: &str = "503 Busy\r\nretry-after: 0";
/// Taken in, and never answered.
const SILENCE: &str = "";

/// A request as the receiver saw it.
#[derive(Debug, Clone)]
struct Request {
    head: String,
    body: String,
}

impl Request {
    fn read(stream: &TcpStream) -> std::io::Result<Self> {
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
        let mut request = Self { head, body: String::new() };
        let mut body = vec![0; request.header("content-length").parse().unwrap()];
        reader.read_exact(&mut body)?;
        request.body = String::from_utf8(body).unwrap();
        Ok(request)
    }

    fn header(&self, name: &str) -> &str {
        let value =
            |line: &'_ str| line.split_once(": ").filter(|(key, _)| *key == name).map(|(_, v)| v.len());
        let line = self.head.lines().find(|line| value(line).is_some());
        line.map(|line| &line[name.len() + 2..]).unwrap_or_else(|| panic!("no {name} in {}", self.head))
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// The receiver's side of the signature, with nothing of ours.
    #[track_caller]
    fn assert_signed(&self, key: &str) {
        let (time, hex) = self.header("x-stargate-signature").split_once(",v1=").unwrap();
        let time = time.strip_prefix("t=").unwrap();
        assert!(time.parse::<u64>().unwrap() > 1_700_000_000, "{time}");
        let padded: Vec<u8> = key.bytes().chain(std::iter::repeat(0)).take(64).collect();
        let pad = |with: u8| padded.iter().map(|byte| byte ^ with).collect::<Vec<u8>>();
        let inner = Sha256::digest([pad(0x36), format!("{time}.{}", self.body).into_bytes()].concat());
        let outer = Sha256::digest([pad(0x5C), inner.to_vec()].concat());
        let expected: String = outer.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected);
    }
}

/// A server that answers each request with the next of its answers, and with the last from then on.
struct Receiver {
    url: String,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Receiver {
    fn answering(answers: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/path-canary", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (told, answers) =
            (Arc::clone(&seen), answers.iter().map(ToString::to_string).collect::<Vec<_>>());
        std::thread::spawn(move || {
            let mut unanswered = Vec::new();
            for mut stream in listener.incoming().map_while(Result::ok) {
                // A client that was killed in mid-request is none.
                let Ok(request) = Request::read(&stream) else { continue };
                let count = {
                    let mut seen = told.lock().unwrap();
                    seen.push(request);
                    seen.len()
                };
                let answer = &answers[count.min(answers.len()) - 1];
                if answer.is_empty() {
                    unanswered.push(stream);
                    continue;
                }
                let end = "connection: close\r\ncontent-length: 0\r\n\r\n";
                let _ = stream.write_all(format!("HTTP/1.1 {answer}\r\n{end}").as_bytes());
            }
        });
        Self { url, seen }
    }

    fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }

    async fn saw(&self, count: usize) -> Vec<Request> {
        eventually(PATIENCE, &format!("{count} requests"), || {
            let seen = self.seen();
            async move { if seen.len() >= count { Ok(seen) } else { Err(format!("{seen:?}")) } }
        })
        .await
    }
}

/// A node with a repository, and a clone of it.
async fn served(program: &Program) -> (Running, Client) {
    let node = leader(program, "a").await;
    program.answer(&["repo", "create", "r"]);
    let client = Client::new();
    client.clone_from(&format!("http://{}/git/r.git", node.address()));
    client.commit("first");
    (node, client)
}

/// The deliveries, when there are so many and all have ended.
async fn ended(program: &Program, count: usize) -> Vec<Value> {
    eventually(PATIENCE, &format!("{count} ended deliveries"), || {
        let open = ["queued", "processing"];
        let pushes = json(program, &["job", "list", "--kind", "push:process", "--json"]);
        let jobs = json(program, &["job", "list", "--kind", "webhook:deliver", "--json"]);
        let is_open = |job: &Value| open.iter().any(|state| job["state"] == *state);
        let all = [&pushes, &jobs].into_iter().flat_map(|list| list.as_array().unwrap().clone());
        let waits = all.into_iter().any(|job| is_open(&job));
        async move {
            let jobs = jobs.as_array().unwrap().clone();
            if !waits && jobs.len() == count { Ok(jobs) } else { Err(format!("{jobs:?}, pushes {pushes}")) }
        }
    })
    .await
}

fn states(jobs: &[Value]) -> Vec<(&str, u64)> {
    jobs.iter().map(|job| (job["state"].as_str().unwrap(), job["attempt_count"].as_u64().unwrap())).collect()
}

/// Neither in what the store keeps, nor in what it printed, nor where everybody on the machine can read.
fn assert_secret(program: &Program, node: &Running) {
    for entry in std::fs::read_dir(program.home()).unwrap() {
        let path = entry.unwrap().path();
        let bytes = if path.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
        assert!(!String::from_utf8_lossy(&bytes).contains(KEY), "{}", path.display());
    }
    let arguments = std::fs::read(format!("/proc/{}/cmdline", node.id())).unwrap();
    assert!(!String::from_utf8_lossy(&arguments).contains(KEY));
    assert!(!program.answer(&["config", "show", "--json"]).contains(KEY));
    assert!(!node.log().contains("canary"), "{}", node.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_is_told_to_the_servers_that_asked_and_signed() {
    let program = program(OPEN).with("CI_HOOK", KEY);
    let (node, client) = served(&program).await;
    let (signed, deletions) = (Receiver::answering(&[OK]), Receiver::answering(&[OK]));
    let added = json(&program, &["webhook", "add", "r", &signed.url, "--secret", "ci", "--json"]);
    program.answer(&["webhook", "add", "*", &deletions.url, "--events", "delete"]);
    let listed = json(&program, &["webhook", "list", "r", "--json"]);
    assert_eq!(listed.as_array().map(Vec::len), Some(2), "{listed}");
    assert_eq!((&listed[0]["id"], &listed[0]["secret"]), (&added["id"], &"ci".into()));
    assert_eq!((&listed[1]["repo"], &listed[1]["events"][0]), (&Value::Null, &"delete".into()));

    client.must(&["push", "-q", "origin", "HEAD:main", "HEAD:side"]);
    let mut bodies = Vec::new();
    for request in signed.saw(2).await {
        request.assert_signed(KEY);
        assert!(request.head.starts_with("POST /path-canary HTTP/1.1\r\n"), "{}", request.head);
        let body = request.json();
        assert_eq!(request.header("x-stargate-delivery"), body["delivery"].to_string());
        assert_eq!(request.header("x-stargate-event"), "push");
        assert_eq!((&body["repo"], &body["after"]), (&"r".into(), &client.head().into()));
        assert_eq!((&body["before"], &body["created"]), (&"0".repeat(40).into(), &true.into()));
        bodies.push(body["ref"].as_str().unwrap().to_owned());
    }
    bodies.sort();
    assert_eq!(bodies, ["refs/heads/main", "refs/heads/side"]);
    assert_eq!(states(&ended(&program, 2).await), [("done", 1), ("done", 1)]);

    client.must(&["push", "-q", "origin", ":side"]);
    let deleted = &deletions.saw(1).await[0];
    assert!(!deleted.head.contains("x-stargate-signature"), "{}", deleted.head);
    assert_eq!(
        (&deleted.json()["ref"], &deleted.json()["deleted"]),
        (&"refs/heads/side".into(), &true.into())
    );
    ended(&program, 4).await;

    let id = added["id"].to_string();
    program.answer(&["webhook", "remove", &id]);
    client.commit("second");
    client.must(&["push", "-q", "origin", "HEAD:main"]);
    // Of this push nobody wants to hear: when it is processed, there are the four deliveries from before.
    ended(&program, 4).await;
    assert_eq!((signed.seen().len(), deletions.seen().len()), (3, 1));
    assert_secret(&program, &node);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_private_address_is_refused_with_the_remedy_which_helps() {
    let program = program("");
    let (mut node, client) = served(&program).await;
    let receiver = Receiver::answering(&[OK]);
    program.answer(&["webhook", "add", "r", &receiver.url]);
    client.must(&["push", "-q", "origin", "HEAD:main"]);
    let jobs = ended(&program, 1).await;
    assert_eq!(states(&jobs), [("failed", 1)]);
    let id = jobs[0]["id"].to_string();
    assert_eq!(json(&program, &["job", "show", &id, "--json"])["error"]["code"], "SSRF_BLOCKED");
    let shown = program.answer(&["job", "show", &id]);
    assert!(shown.contains("webhooks.allow_private") && !shown.contains("canary"), "{shown}");
    assert!(receiver.seen().is_empty());

    node.kill();
    std::fs::write(program.home().join("stargate.toml"), "[webhooks]\nallow_private = true\n").unwrap();
    let _node = leader(&program, "a").await;
    program.answer(&["job", "retry", &id]);
    receiver.saw(1).await;
    assert_eq!(states(&ended(&program, 1).await)[0].0, "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_is_not_there_is_refused_where_it_is_named_and_nothing_is_sent_without_it() {
    let program = program(OPEN);
    let unset = program.run(&["webhook", "list"]);
    assert_eq!(unset.status.code(), Some(2));
    let said = stderr(&unset);
    assert!(said.contains("stargate.toml:4:6") && said.contains("webhooks.secrets.ci"), "{said}");
    assert!(said.contains("CI_HOOK, which is not set") && said.contains("set the variable"), "{said}");

    let program = program.with("CI_HOOK", KEY);
    let (mut node, client) = served(&program).await;
    let receiver = Receiver::answering(&[OK]);
    let wrong = program.run(&["webhook", "add", "r", &receiver.url, "--secret", "ce"]);
    assert_eq!(wrong.status.code(), Some(2));
    let said = stderr(&wrong);
    assert!(said.contains("[webhooks.secrets]") && said.contains("did you mean \"ci\"?"), "{said}");
    program.answer(&["webhook", "add", "r", &receiver.url, "--secret", "ci"]);

    node.kill();
    std::fs::write(program.home().join("stargate.toml"), "[webhooks]\nallow_private = true\n").unwrap();
    let node = leader(&program, "a").await;
    client.must(&["remote", "set-url", "origin", &format!("http://{}/git/r.git", node.address())]);
    client.must(&["push", "-q", "origin", "HEAD:main"]);
    let doctor = String::from_utf8(program.run(&["doctor"]).stdout).unwrap();
    assert!(doctor.contains("webhook 1 needs ci"), "{doctor}");
    let jobs = ended(&program, 1).await;
    assert_eq!(states(&jobs), [("failed", 1)]);
    let error = &json(&program, &["job", "show", &jobs[0]["id"].to_string(), "--json"])["error"];
    assert_eq!(error["code"], "SECRET_MISSING");
    assert!(error["message"].as_str().unwrap().contains("ci, which this worker does not have"), "{error}");
    assert!(receiver.seen().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_busy_hears_again_under_the_same_number_and_one_that_stays_so_is_given_up() {
    let program = program(OPEN).with("CI_HOOK", KEY);
    let (_node, client) = served(&program).await;
    let busy = Receiver::answering(&["500 Oops\r\nretry-after: 0", OK]);
    program.answer(&["webhook", "add", "r", &busy.url, "--secret", "ci"]);
    client.must(&["push", "-q", "origin", "HEAD:main"]);
    let heard = busy.saw(2).await;
    assert_eq!(states(&ended(&program, 1).await), [("done", 2)]);
    assert_eq!(busy.seen().len(), 2);
    heard.iter().for_each(|request| request.assert_signed(KEY));
    assert_eq!(heard[0].body, heard[1].body);
    assert_eq!(heard[0].header("x-stargate-delivery"), heard[1].header("x-stargate-delivery"));

    let dead = Receiver::answering(&[BUSY]);
    program.answer(&["webhook", "add", "*", &dead.url]);
    client.must(&["push", "-q", "origin", "HEAD:side"]);
    let jobs = ended(&program, 3).await;
    let failed: Vec<&Value> = jobs.iter().filter(|job| job["state"] == "failed").collect();
    assert_eq!((failed.len(), &failed[0]["attempt_count"]), (1, &12.into()), "{jobs:?}");
    assert_eq!(dead.seen().len(), 12);
    let id = failed[0]["id"].to_string();
    let error = &json(&program, &["job", "show", &id, "--json"])["error"];
    assert_eq!(error["code"], "RETRIES_EXHAUSTED", "{error}");
    let shown = program.answer(&["job", "events", &id]);
    assert!(shown.contains("HTTP_UNAVAILABLE") && shown.contains("refs/heads/side"), "{shown}");
    assert!(!shown.contains("canary"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_not_followed() {
    let program = program(OPEN).with("CI_HOOK", KEY);
    let (_node, client) = served(&program).await;
    let inside = Receiver::answering(&[OK]);
    let outside = Receiver::answering(&[&format!("307 Elsewhere\r\nlocation: {}", inside.url)]);
    program.answer(&["webhook", "add", "r", &outside.url, "--secret", "ci"]);
    client.must(&["push", "-q", "origin", "HEAD:main"]);
    let jobs = ended(&program, 1).await;
    assert_eq!(states(&jobs), [("failed", 1)]);
    let error = &json(&program, &["job", "show", &jobs[0]["id"].to_string(), "--json"])["error"];
    assert_eq!(error["code"], "HTTP_REJECTED", "{error}");
    assert!(error["message"].as_str().unwrap().contains("not followed"), "{error}");
    assert_eq!((outside.seen().len(), inside.seen().len()), (1, 0));
}

/// Killed after the push and before it is processed, and again after the server has taken it in and before that is
/// written down.
async fn what_is_killed_on_the_way_is_told_under_the_same_number(program: Program) {
    let mut node = program.start_with(&["serve"], &[("STARGATE_INSTANCE", "a")]);
    node.ready().await;
    leads(&program, &node).await;
    program.answer(&["repo", "create", "r"]);
    let receiver = Receiver::answering(&[SILENCE, OK]);
    program.answer(&["webhook", "add", "r", &receiver.url, "--secret", "ci"]);
    let client = Client::new();
    client.clone_from(&format!("http://{}/git/r.git", node.address()));
    client.commit("first");
    client.must(&["push", "-q", "origin", "HEAD:main"]);
    node.kill();

    let mut node = leader(&program, "a").await;
    receiver.saw(1).await;
    node.kill();

    let _node = leader(&program, "a").await;
    let heard = receiver.saw(2).await;
    let jobs = ended(&program, 1).await;
    assert_eq!((&jobs[0]["state"], &jobs[0]["result"]["delivered"]), (&"done".into(), &true.into()));
    assert_eq!(receiver.seen().len(), 2);
    heard.iter().for_each(|request| request.assert_signed(KEY));
    assert_eq!(heard[0].body, heard[1].body);
    assert_eq!(heard[0].header("x-stargate-delivery"), heard[1].header("x-stargate-delivery"));
}

/// A lease that ends soon, so that the successor need not wait for long.
fn brief() -> String {
    format!("{OPEN}\n[worker]\nheartbeat = \"1s\"\nlease = \"5s\"\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_killed_on_the_way_is_told_under_the_same_number_on_sqlite() {
    what_is_killed_on_the_way_is_told_under_the_same_number(program(&brief()).with("CI_HOOK", KEY)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_killed_on_the_way_is_told_under_the_same_number_on_postgres() {
    let database = Database::create(async |url: String| {
        Postgres::connect(&url, Options { migrate: true, ..Options::default() }).await.unwrap();
    })
    .await;
    let program = program(&brief()).with("CI_HOOK", KEY).with("DATABASE_URL", database.url());
    what_is_killed_on_the_way_is_told_under_the_same_number(program).await;
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_entered_is_refused_without_repeating_the_address() {
    let program = program("");
    program.answer(&["migrate"]);
    program.answer(&["repo", "create", "r"]);
    let good = "https://example.com/";
    for (arguments, exit, word) in [
        (["webhook", "add", "nobody", good], 3, "stargate repo list"),
        (["webhook", "add", "..", good], 5, "repo"),
        (["webhook", "add", "r", "ftp://example.com/canary"], 5, "url"),
        (["webhook", "add", "r", "https://user:canary@example.com/"], 5, "url"),
        (["webhook", "list", "--json", "nobody"], 3, "stargate repo list"),
        (["webhook", "remove", "--json", "7"], 3, "stargate webhook list"),
        (["webhook", "remove", "--json", "seven"], 2, "number"),
    ] {
        let output = program.run(&arguments);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(exit), "{arguments:?}: {said}");
        assert!(said.contains(word) && !said.contains("canary"), "{arguments:?}: {said}");
    }
    let again = |events| json(&program, &["webhook", "add", "r", good, "--events", events, "--json"]);
    assert_eq!(again("push")["id"], again("create,delete,create")["id"]);
    let listed = json(&program, &["webhook", "list", "--json"]);
    assert_eq!(listed[0]["events"], serde_json::json!(["create", "delete"]), "{listed}");
    assert!(program.answer(&["webhook", "list"]).contains("create, delete"));
}
