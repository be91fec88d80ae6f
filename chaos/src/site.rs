//! One installation: its home on a small disk, its configuration, what it needs, and what stands outside.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use stargate_testkit::process::{Program, get};
use stargate_testkit::proxy::Proxy;
use stargate_testkit::source_server::{Fault as Slow, SourceServer};

use crate::check::Change;
use crate::clock::Clock;
use crate::crew::{Crew, Node};
use crate::evidence::Reader;
use crate::ledger::Ledger;
use crate::network::Network;
use crate::s3::{BUCKET, KEY};
use crate::secrets::Secrets;
use crate::services::{Servers, Workflows};

/// What kind of installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Kind {
    /// One machine: SQLite, a lock in a file, artifacts in a folder.
    Sqlite,
    /// Postgres, Redis, S3.
    Postgres,
    /// The same, with directives on Temporal.
    Temporal,
}

/// Silence after which a running job is lost.
pub(crate) const LEASE: Duration = Duration::from_secs(2);
/// The size of the disk, where one may be mounted.
const DISK_MIB: u32 = 96;
/// Set when this process has namespaces of its own: for mounts and, if it says so, for the network.
pub(crate) const NAMESPACE: &str = "STARGATE_CHAOS_NAMESPACE";
/// The branches that are pushed to.
pub(crate) const BRANCHES: [&str; 2] = ["left", "right"];
/// What the source of the directive takes for a page.
const PAGE_TIME: Duration = Duration::from_millis(40);
/// Where that is kept which commands and pushes were told.
const OVERHEARD: &str = "overheard.log";
const READY_DEADLINE: Duration = Duration::from_secs(120);

/// An installation.
#[derive(Debug)]
pub(crate) struct Site {
    /// Which one.
    pub(crate) kind: Kind,
    /// The binary, and the folder of what stands outside.
    pub(crate) program: Program,
    /// Where the product keeps its files.
    pub(crate) home: PathBuf,
    /// Whether that, and what the database writes to, are small disks of their own.
    has_disk: bool,
    /// What our processes take for the time, where it can be stepped.
    pub(crate) clock: Option<Clock>,
    /// The ways to the servers, where packets can be lost on them.
    pub(crate) network: Option<Network>,
    /// Postgres and so on, where there are any.
    pub(crate) servers: Option<Servers>,
    /// Temporal, where there is one.
    pub(crate) workflows: Option<Workflows>,
    /// What the directive reads.
    pub(crate) source: SourceServer,
    /// What was changed there, in this order.
    pub(crate) changes: Mutex<Vec<Change>>,
    /// When the database may have lost what it had not synced: from and to, in microseconds.
    pub(crate) lapses: Mutex<Vec<(i64, i64)>>,
    /// What must not be found.
    pub(crate) secrets: Secrets,
    /// What was acknowledged.
    pub(crate) ledger: Ledger,
    crew: Mutex<Crew>,
}

impl Site {
    /// Sets it up and starts everything; all is well when this is done.
    pub(crate) async fn open(binary: &Path, kind: Kind, seed: u64) -> Result<Arc<Self>> {
        let has_network = Network::up()?;
        let secrets = Secrets::new(seed);
        let program = Program::new(binary);
        let home = program.home().join("disk");
        std::fs::create_dir(&home).context("a home")?;
        let has_disk = std::env::var_os(NAMESPACE).is_some();
        if has_disk {
            let size = format!("size={DISK_MIB}m");
            run("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", &home.display().to_string()])?;
        }
        let servers =
            if kind == Kind::Sqlite { None } else { Some(Servers::start(&secrets, has_disk).await?) };
        let workflows = if kind == Kind::Temporal { Some(Workflows::start().await) } else { None };
        let network = has_network.then(|| Network::to(&ways(servers.as_ref(), workflows.as_ref())));
        let clock = Clock::find(program.home())?;
        let program = clock.iter().fold(program, |program, clock| clock.given_to(program));
        let program = configured(program, &home, servers.as_ref(), workflows.as_ref(), &secrets).await;
        let source = SourceServer::start(700);
        write_files(&program, &source)?;
        let ledger = Ledger::create(&program.home().join("ledger.ndjson"))?;
        let crew = Mutex::new(Crew::new());
        let site = Self {
            kind,
            program,
            home,
            has_disk,
            clock,
            network,
            servers,
            workflows,
            source,
            changes: Mutex::default(),
            lapses: Mutex::default(),
            secrets,
            ledger,
            crew,
        };
        site.begin().await.map(Arc::new)
    }

    async fn begin(mut self) -> Result<Self> {
        self.heal_source();
        self.crew().tend(&self.program);
        self.ready().await?;
        self.program.answer(&["directive", "check"]);
        self.program.answer(&["repo", "create", "r"]);
        self.secrets.token = self.program.answer(&["token", "add", "chaos", "--role", "admin"]);
        Ok(self)
    }

    /// Has the source answer as it should, but not at once: a pass is to last for long enough to be looked at.
    pub(crate) fn heal_source(&self) {
        self.source.heal();
        self.source.script(|_| Some(Slow::Delay(PAGE_TIME)));
    }

    /// Whether a fault can be brought about on this machine.
    pub(crate) fn can(&self, fault: &str) -> bool {
        match fault.split(':').next_back() {
            Some("full" | "disk") if fault != "postgres:full" => self.has_disk,
            Some("ahead" | "back") => self.clock.is_some(),
            Some("lossy" | "gone") => self.network.is_some() && self.servers.is_some(),
            _ => true,
        }
    }

    /// Our processes.
    pub(crate) fn crew(&self) -> MutexGuard<'_, Crew> {
        self.crew.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What stands outside of the product.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        self.program.home().join(name)
    }

    /// Keeps what a command or a push was told, to be searched for panics and secrets like the logs.
    pub(crate) fn overhear(&self, told: &Output) -> Result<()> {
        use std::io::Write as _;
        let file = std::fs::OpenOptions::new().create(true).append(true).open(self.outside(OVERHEARD));
        let mut file = file.context("a file for what commands say")?;
        let both = [&told.stdout[..], b"\n", &told.stderr[..], b"\n"].concat();
        file.write_all(&both).context("cannot write what a command said")
    }

    /// All that our processes have told, in logs and to users.
    pub(crate) fn told(&self) -> Vec<PathBuf> {
        let mut told = self.crew().logs.clone();
        told.push(self.outside(OVERHEARD));
        told
    }

    /// What servers keep of what we told them: histories of workflows, and objects.
    pub(crate) async fn kept_elsewhere(&self) -> Vec<PathBuf> {
        let mut folders = Vec::new();
        if let Some(servers) = &self.servers {
            folders.push(servers.s3.lock().await.data());
        }
        if let Some(workflows) = &self.workflows {
            let server = workflows.server.lock().unwrap_or_else(PoisonError::into_inner);
            folders.push(server.folder().to_owned());
        }
        folders
    }

    /// Reads the store by plain SQL, past the proxy.
    pub(crate) fn reader(&self) -> Reader {
        match &self.servers {
            None => Reader::Sqlite(self.home.join("stargate.db")),
            Some(servers) => Reader::Postgres(servers.postgres.url()),
        }
    }

    /// Waits until one node leads.
    pub(crate) async fn ready(&self) -> Result<Node> {
        let begin = Instant::now();
        loop {
            self.crew().tend(&self.program);
            let nodes = self.crew().nodes();
            for node in &nodes {
                if let Ok((200, body)) = get(&node.address, "/readyz").await
                    && serde_json::from_str::<Value>(&body).is_ok_and(|body| body["role"] == "leader")
                {
                    return Ok(node.clone());
                }
            }
            if begin.elapsed() > READY_DEADLINE {
                let logs: Vec<String> = self.crew().logs.iter().map(|log| tail(log)).collect();
                bail!(
                    "nobody leads after {READY_DEADLINE:?}; the ends of the logs:\n{}",
                    logs.join("\n---\n")
                );
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Runs git on a folder, without anybody's settings; what it wrote if it succeeded.
    pub(crate) fn git(&self, folder: &Path, arguments: &[&str]) -> Result<String> {
        #[expect(clippy::disallowed_methods, reason = "the checker's own git")]
        let mut git = Command::new("git");
        git.args(arguments).current_dir(folder).stdin(Stdio::null());
        git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        let output = git.output().context("cannot start git")?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        ensure!(output.status.success(), "git {arguments:?}: {}", text(&output.stderr));
        Ok(text(&output.stdout))
    }
}

/// The addresses at which our processes reach what they need.
fn ways(servers: Option<&Servers>, workflows: Option<&Workflows>) -> Vec<String> {
    let mut ways = Vec::new();
    if let Some(servers) = servers {
        ways.extend([&servers.postgres_proxy, &servers.redis_proxy, &servers.s3_proxy].map(Proxy::address));
    }
    ways.extend(workflows.map(|workflows| workflows.proxy.address()));
    ways
}

/// The last lines of a file.
pub(crate) fn tail(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}

/// Runs a program of the system, which has to succeed.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<()> {
    output(program, arguments).map(drop)
}

/// The same; what it wrote.
pub(crate) fn output(program: &str, arguments: &[&str]) -> Result<String> {
    #[expect(clippy::disallowed_methods, reason = "programs of the system, to bring faults about")]
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {arguments:?}: {}", said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

async fn configured(
    program: Program,
    home: &Path,
    servers: Option<&Servers>,
    workflows: Option<&Workflows>,
    secrets: &Secrets,
) -> Program {
    let mut program = program
        .with("STARGATE_HOME", home.display().to_string())
        .with("STARGATE_LOG", "json")
        .with("SOURCE_TOKEN", secrets.source.clone());
    if let Some(servers) = servers {
        let redis = servers.redis_proxy.address();
        let secret = servers.s3.lock().await.secret().to_owned();
        program = program
            .with("STARGATE_STORE", servers.postgres_url(secrets))
            .with("STARGATE_LEADER_BACKEND", "redis")
            .with("REDIS_URL", format!("redis://:{}@{redis}", secrets.redis))
            .with("STARGATE_ARTIFACTS", format!("s3://{BUCKET}/files"))
            .with("STARGATE_S3_ENDPOINT", format!("http://{}", servers.s3_proxy.address()))
            .with("AWS_REGION", "us-east-1")
            .with("AWS_ACCESS_KEY_ID", KEY)
            .with("AWS_SECRET_ACCESS_KEY", secret);
    }
    if let Some(workflows) = workflows {
        program = program
            .with("STARGATE_ENGINE", "temporal")
            .with("TEMPORAL_ADDRESS", workflows.proxy.address())
            .with("TEMPORAL_NAMESPACE", workflows.namespace.name.clone());
    }
    program
}

const CONFIG: &str = r#"
[worker]
heartbeat = "250ms"
lease = "2s"
poll = "200ms"
load_threshold = 1000
shutdown_timeout = "1s"
[leader]
ttl = "3s"
renew_every = "1s"
retry_every = "300ms"
retry_max = "1s"
[mirror]
refs = ["refs/heads/*"]
ledgers = ["refs/heads/*"]
protocols = ["file"]
rescan_every = "300ms"
reconcile_every = "2s"
push_timeout = "5s"
[mirror.remotes."r"]
url = "OUTSIDE/remote.git"
[clip]
backoff = "200ms"
backoff_max = "1s"
max_attempts = 1000
concurrency = 1
timeout = "30s"
[kinds.step]
exec = ["sh", "-c", "read -r up rest < /proc/uptime; echo b $STARGATE_JOB_ID $STARGATE_ATTEMPT $up $$ >> OUTSIDE/effects.log; sleep 0.0$((STARGATE_JOB_ID % 9 + 1)); echo e $STARGATE_JOB_ID $STARGATE_ATTEMPT $$ >> OUTSIDE/effects.log; echo '{\"result\": {\"attempt\": '$STARGATE_ATTEMPT', \"by\": '$$'}}'"]
max_attempts = 1000
max_crashes = 1000
backoff = "20ms"
backoff_max = "200ms"
[kinds.long]
exec = ["sh", "-c", "read -r up rest < /proc/uptime; echo b $STARGATE_JOB_ID $STARGATE_ATTEMPT $up $$ >> OUTSIDE/effects.log; for n in 1 2 3 4; do sleep 0.3; echo '{\"progress\": '$((n * 20))'}'; done; echo e $STARGATE_JOB_ID $STARGATE_ATTEMPT $$ >> OUTSIDE/effects.log; echo '{\"result\": {\"attempt\": '$STARGATE_ATTEMPT', \"by\": '$$'}}'"]
max_attempts = 1000
max_crashes = 1000
backoff = "20ms"
backoff_max = "200ms"
[kinds.fails]
exec = ["sh", "-c", "read -r up rest < /proc/uptime; echo b $STARGATE_JOB_ID $STARGATE_ATTEMPT $up $$ >> OUTSIDE/effects.log; exit 1"]
max_attempts = 3
max_crashes = 1000
backoff = "20ms"
backoff_max = "100ms"
[kinds.refused]
exec = ["sh", "-c", "read -r up rest < /proc/uptime; echo b $STARGATE_JOB_ID $STARGATE_ATTEMPT $up $$ >> OUTSIDE/effects.log; exit 65"]
max_attempts = 1000
max_crashes = 1000
backoff = "20ms"
"#;

/// With a schedule of every three seconds, which only the leader may fire. By the defaults it would wait for half a minute after the
/// first fault, and be there for hardly any of the others.
const DIRECTIVE: &str = r#"name = "issues"
queue = "meta-py"
tenant = "acme"
project = "core"
heartbeat = "1s"
schedule = "*/3 * * * * *"
page_size = 50
[source]
type = "http"
url = "URL"
records = "/items"
page_size_param = "limit"
pagination = { type = "cursor", param = "after", next = "/next" }
headers = { authorization = "Bearer ${env:SOURCE_TOKEN}" }
[item]
key = ["/id"]
map = { title = "/title", number = { from = "/id", type = "integer" }, edition = { from = "/version", type = "integer" } }
[sink]
table = "items"
outbox = "items.changed"
[retry]
transient_first = "200ms"
transient_max = "1s"
conflict_first = "100ms"
conflict_max = "500ms"
"#;

/// The configuration, the directive, the remote, and a recording to cut clips from.
fn write_files(program: &Program, source: &SourceServer) -> Result<()> {
    let outside = program.home().display().to_string();
    let file = |name: &str| program.home().join(name);
    std::fs::write(file("stargate.toml"), CONFIG.replace("OUTSIDE", &outside)).context("a configuration")?;
    std::fs::create_dir(file("directives")).context("a folder for the directive")?;
    std::fs::write(file("directives/issues.toml"), DIRECTIVE.replace("URL", &source.url()))
        .context("a directive")?;
    std::fs::write(file("effects.log"), "").context("a file for what handlers do")?;
    let remote = file("remote.git").display().to_string();
    run("git", &["init", "--quiet", "--bare", &remote])?;
    // The remote itself writes down every ref that moves; git tells it old, new and name.
    let hook = file("remote.git/hooks/reference-transaction");
    let script = format!("#!/bin/sh\ntest \"$1\" = committed || exit 0\ncat >> {outside}/moves.log\n");
    std::fs::write(&hook, script).context("a hook of the remote")?;
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&hook, executable).context("a hook of the remote")?;
    let video = file("talk.mp4").display().to_string();
    let picture = ["-f", "lavfi", "-i", "testsrc2=size=64x48:rate=10:duration=4"];
    let codec = ["-c:v", "libx264", "-preset", "ultrafast", "-g", "10", "-pix_fmt", "yuv420p", &video];
    run("ffmpeg", &[&["-v", "error", "-y"], &picture[..], &codec[..]].concat())
}
