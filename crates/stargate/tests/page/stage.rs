//! A node with something of everything on it, and a browser that looks at it.

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use stargate_testkit::process::{Program, Running};

/// For everything that has to happen sooner or later.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs if it ever becomes part of a page, and can be looked for if it does not.
pub(crate) const HOSTILE: &str =
    r#"</pre></script><img src=x onerror="window.pwned=1"><script>window.pwned=1</script>'"pwned"#;

const TOML: &str = r#"
[worker]
concurrency = 6
heartbeat = "500ms"
[kinds."echo"]
exec = ["sh", "-c", "echo \"{\\\"result\\\": $(cat)}\""]
[kinds."slow"]
exec = ["sh", "-c", "for n in 10 40 80; do echo \"{\\\"progress\\\": $n}\"; sleep 0.7; done"]
[kinds."long"]
exec = ["sleep", "600"]
[kinds."bad"]
exec = ["sh", "-c", "cat >&2; exit 65"]
[kinds."flaky"]
exec = ["sh", "-c", "echo upstream is away >&2; exit 75"]
backoff = "5m"
[kinds."video:transcode"]
exec = ["sh", "-c", "echo '{\"progress\": 37}'; sleep 600"]
[schedules."nightly-report"]
cron = "30 2 * * 1-5"
time_zone = "Europe/Berlin"
kind = "echo"
queue = "reports"
payload = { report = "nightly" }
[schedules."heartbeat"]
cron = "*/15 * * * *"
kind = "echo"
[limits."tenant:*"]
concurrency = 2
rate = "10/s"
[mirror]
protocols = ["file"]
rescan_every = "200ms"
[directives]
dir = "directives"
"#;

const DIRECTIVE: &str = r#"
name = "issues"
queue = "meta-py"
tenant = "acme"
project = "core"
spec_ref = "specs/issues.md"
[source]
type = "file"
path = "items.jsonl"
[item]
key = ["/id"]
schema = "item.schema.json"
map = { title = "/title" }
[sink]
table = "items"
"#;

const SCHEMA: &str =
    r#"{"type":"object","required":["id","title"],"properties":{"title":{"type":"string"}}}"#;

/// One test's surroundings.
pub(crate) struct Stage {
    pub(crate) program: Program,
    pub(crate) up: Running,
    base_path: &'static str,
}

impl Stage {
    /// A node with something of everything.
    pub(crate) async fn filled() -> Self {
        let stage = Self::with("", "").await;
        stage.fill().await;
        stage
    }

    /// A node with further settings, below a sub-path.
    pub(crate) async fn with(settings: &str, base_path: &'static str) -> Self {
        let program = Program::new(env!("CARGO_BIN_EXE_stargate")).with("STARGATE_INSTANCE", "gate-1");
        std::fs::write(program.home().join("stargate.toml"), format!("{settings}\n{TOML}")).unwrap();
        let directives = program.home().join("directives");
        std::fs::create_dir_all(&directives).unwrap();
        let mut items: String = (1..=40).fold(String::new(), |mut text, id| {
            let _ = writeln!(text, "{}", json!({ "id": id, "title": format!("Item {id}") }));
            text
        });
        items += &format!("{}\n", json!({ "id": 41, "title": 7, "note": HOSTILE }));
        std::fs::write(directives.join("items.jsonl"), items).unwrap();
        std::fs::write(directives.join("item.schema.json"), SCHEMA).unwrap();
        std::fs::write(directives.join("issues.toml"), DIRECTIVE).unwrap();
        mirrored(program.home());
        let mut up = program.start(&["up"]);
        up.ready().await;
        Self { program, up, base_path }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}{}", self.up.address(), self.base_path)
    }

    /// Sends JSON and reads JSON.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Value {
        let client = reqwest::Client::new();
        let sent = client.post(format!("{}/api/v1{path}", self.url())).json(body).send().await.unwrap();
        let status = sent.status();
        let text = sent.text().await.unwrap();
        assert!(status.is_success(), "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap_or_default()
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let answer = reqwest::get(format!("{}/api/v1{path}", self.url())).await.unwrap();
        let status = answer.status();
        let text = answer.text().await.unwrap();
        assert!(status.is_success(), "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Waits until the node asks for tokens: that there are none is believed for a few seconds.
    pub(crate) async fn closed(&self) {
        stargate_testkit::eventually(PATIENCE, "the node to ask for a token", || async {
            let status = reqwest::get(format!("{}/api/v1/queues", self.url())).await.unwrap().status();
            if status == 401 { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
    }

    async fn fill(&self) {
        let job = |kind: &str, queue: &str, payload: Value| json!({ "kind": kind, "queue": queue, "payload": payload });
        let mut jobs: Vec<Value> =
            (0..60).map(|n| job("echo", "default", json!({ "order": 1000 + n }))).collect();
        jobs.extend((0..9).map(|n| job("bad", "mail", json!({ "to": format!("user{n}@example.org") }))));
        jobs.extend((0..4).map(|n| job("flaky", "sync", json!({ "account": n, "api_key": "k-123" }))));
        jobs.push(job("video:transcode", "media", json!({ "source": "s3://clips/a.mov", "height": 1080 })));
        jobs.push(json!({ "kind": "echo", "queue": "reports", "payload": { "later": true }, "delay": "2h" }));
        jobs.push(
            json!({ "kind": "echo", "payload": {}, "limit_key": "tenant:acme", "unique_key": "acme:7" }),
        );
        self.post("/jobs/batch", &json!({ "jobs": jobs })).await;
        self.post("/directives/issues/runs", &json!({})).await;
        self.settled().await;
    }

    /// Waits until what can end has ended.
    async fn settled(&self) {
        stargate_testkit::eventually(PATIENCE, "the jobs to end", || async {
            let failed = self.get("/jobs?state=failed&kind=bad").await["jobs"].as_array().unwrap().len();
            let done =
                self.get("/jobs?state=done&kind=echo&limit=100").await["jobs"].as_array().unwrap().len();
            let run = self.get("/runs").await["runs"][0]["outcome"].clone();
            let letters = self.get("/mirror").await["mirrors"][0]["dead_letters"].clone();
            match failed >= 9 && done >= 61 && run == "succeeded" && letters.as_u64() >= Some(2) {
                true => Ok(()),
                false => Err(format!(
                    "{failed} failed, {done} done, run {run}, dead letters {letters}\n{}",
                    self.up.log()
                )),
            }
        })
        .await;
    }

    /// Has a job fail whose error, payload and keys are hostile; its id.
    pub(crate) async fn hostile_job(&self) -> i64 {
        let body = json!({
            "kind": "bad", "queue": "mail", "unique_key": HOSTILE, "limit_key": HOSTILE,
            "payload": { "text": HOSTILE, HOSTILE: 1, "big": 1 },
        });
        // Written by hand: a value would not hold the number.
        let text = body.to_string().replace("\"big\":1", "\"big\":12345678901234567890123");
        let client = reqwest::Client::new();
        let request =
            client.post(format!("{}/api/v1/jobs", self.url())).header("content-type", "application/json");
        let sent = request.body(text).send().await.unwrap();
        let answer: Value = serde_json::from_str(&sent.text().await.unwrap()).unwrap();
        let id = answer["id"].as_i64().unwrap_or_else(|| panic!("{answer}"));
        stargate_testkit::eventually(PATIENCE, "the hostile job to fail", || async {
            let state = self.get(&format!("/jobs/{id}")).await["state"].clone();
            if state == "failed" { Ok(()) } else { Err(state.to_string()) }
        })
        .await;
        id
    }

    /// Runs a scenario of `browser.mjs`; it has to find nothing.
    pub(crate) fn browse(&self, scenario: &str, facts: &Value) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page/browser.mjs");
        let mut command = node();
        command.arg(script).args([scenario, &self.url(), &facts.to_string()]).stdin(Stdio::null());
        if std::env::var_os("STARGATE_SCREENSHOTS").is_some() {
            let shots = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/screenshots");
            command.env("STARGATE_SCREENSHOTS_DIR", shots);
        }
        let output = command.output().expect("node runs");
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "{scenario} found:\n{}{}\n--- log\n{}",
            said(&output.stderr),
            said(&output.stdout),
            self.up.log().lines().rev().take(20).collect::<Vec<_>>().join("\n")
        );
    }
}

/// Node.js, as it is named to the tests.
#[expect(clippy::disallowed_methods, reason = "the browser is driven from outside, by its own program")]
fn node() -> Command {
    for name in ["STARGATE_TEST_CHROMIUM", "STARGATE_TEST_BROWSER"] {
        assert!(
            std::env::var_os(name).is_some(),
            "no browser: run `cargo xtask test`, or `cargo xtask services start` and export what it prints ({name})"
        );
    }
    Command::new(std::env::var_os("STARGATE_TEST_NODE").unwrap_or_else(|| "node".into()))
}

/// A repository whose remote takes some refs and not others, with entries for both and a line that is none.
fn mirrored(home: &Path) {
    let (repo, remote) = (home.join("repos/tools.git"), home.join("remote.git"));
    for dir in [&repo, &remote] {
        std::fs::create_dir_all(dir.parent().unwrap()).unwrap();
        git(home, &["init", "--quiet", "--bare", dir.to_str().unwrap()], b"");
    }
    git(&repo, &["remote", "add", "github-origin", remote.to_str().unwrap()], b"");
    let hook = remote.join("hooks/update");
    std::fs::write(&hook, "#!/bin/sh\ncase $1 in *pwned*) echo \"$1 is protected\" >&2; exit 1;; esac\n")
        .unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    let stream = b"commit refs/chain\ncommitter a <a@b> 1700000000 +0000\ndata 3\none\n";
    git(&repo, &["fast-import", "--quiet", "--force"], stream);
    let oid = git(&repo, &["rev-parse", "refs/chain"], b"");
    git(&repo, &["update-ref", "-d", "refs/chain"], b"");
    let mut lines = String::new();
    for (n, name) in ["refs/kv/main", "refs/kv/<img/src=x/onerror=pwned()>"].into_iter().enumerate() {
        git(&repo, &["update-ref", name, &oid], b"");
        let entry = json!({
            "entry_id": format!("e{n}"), "timestamp": "2026-01-01T00:00:00Z", "event": "ref_update", "ref": name,
            "old_oid": null, "new_oid": oid, "pusher": "u", "repo": "tools", "source": "test", "status": "pending",
        });
        lines += &format!("{entry}\n");
    }
    lines += &format!("{}\n", json!({ "ref": HOSTILE }));
    let journal: PathBuf = repo.join(".stargate/mirror-journal.ndjson");
    std::fs::create_dir_all(journal.parent().unwrap()).unwrap();
    std::fs::write(journal, lines).unwrap();
}

#[expect(clippy::disallowed_methods, reason = "stands for a user and for the other side")]
fn git(dir: &Path, args: &[&str], input: &[u8]) -> String {
    let mut command = Command::new("git");
    command.args(args).current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    assert!(status.success(), "git {args:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap().trim().to_owned()
}
