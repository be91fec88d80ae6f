//! Every page and listing of a node whose store holds very many jobs, as a client on the same machine waits for it.
//!
//! The real binary serves. A repository with a mirror and a directive are made by its own commands; the jobs, and more
//! runs, pushes and audited actions, are written into the store by SQL, because nobody wants to wait for a million jobs.

mod ask;
mod fill;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use self::ask::{Asked, Target};
use self::fill::Filled;
use crate::git::client::Client;
use crate::git::node::Home;
use crate::report::{Goal, heading, line, median};
use crate::throughput::fresh_database;

/// No answer may take longer, in milliseconds.
const GOAL_MS: f64 = 200.0;
/// What the node is told: nobody but the benchmark makes work, and nothing is purged meanwhile.
const SETTINGS: &str = "[worker]\nload_threshold = 1000.0\n";
/// After a start, before the pages are asked for.
const PAUSE: Duration = Duration::from_secs(1);
const DIRECTIVE: &str = "people";
const REPOSITORY: &str = "mirrored";
const MIRRORED: &str = "refs/kv/main";
const COMMITS: usize = 20;
const RECORDS: usize = 200;

/// Pages and listings whose addresses are known beforehand.
const PAGES: &[&str] = &[
    "/",
    "/?window=15m",
    "/?window=6h",
    "/?window=24h",
    "/jobs",
    "/jobs?state=queued",
    "/jobs?state=processing",
    "/jobs?state=failed",
    "/jobs?state=done",
    "/jobs?state=cancelled",
    "/jobs?state=failed,done",
    "/jobs?kind=k1",
    "/jobs?queue=q3&state=done",
    "/jobs?kind=no-such-kind",
    "/jobs?limit_key=tenant%2017",
    "/jobs?since=1h",
    "/jobs?since=15m&state=failed",
    "/jobs?until=30m",
    "/jobs?code=CODE_3",
    "/jobs?code=CODE_3&kind=k2",
    "/jobs?code=NO_SUCH_CODE",
    "/jobs?q=customer",
    "/jobs?q=nowhere-to-be-found",
    "/jobs?q=nowhere&state=failed",
    "/jobs?q=nowhere&queue=q3",
    "/jobs/new",
    "/jobs/bulk?action=retry&state=failed&all=1",
    "/jobs/bulk?action=retry&code=CODE_3&all=1",
    "/jobs/bulk?action=retry&code=NO_SUCH_CODE&all=1",
    "/jobs/bulk?action=retry&q=customer&all=1",
    "/jobs/bulk?action=retry&q=nowhere-to-be-found&all=1",
    "/jobs/bulk?action=cancel&all=1",
    "/jobs/bulk?action=cancel&q=nowhere&all=1",
    "/queues",
    "/schedules",
    "/dead-letters",
    "/dead-letters/requeue?kind=k0&code=CODE_0",
    "/mirror",
    "/mirror/mirrored",
    "/leadership",
    "/directives",
    "/directives/people",
    "/directives/people/cursor",
    "/workers",
    "/audit",
    "/audit?action=job.retry",
    "/audit?action=no.such.action",
    "/api",
    "/login",
    "/api/v1/jobs",
    "/api/v1/jobs?limit=1000",
    "/api/v1/jobs?q=nowhere-to-be-found",
    "/api/v1/jobs?code=NO_SUCH_CODE",
    "/api/v1/failures",
    "/api/v1/activity?window=24h&buckets=96",
    "/api/v1/queues",
    "/api/v1/kinds",
    "/api/v1/schedules",
    "/api/v1/limits",
    "/api/v1/workers",
    "/api/v1/stats",
    "/api/v1/directives",
    "/api/v1/directives/people",
    "/api/v1/directives/people/quarantine",
    "/api/v1/runs",
    "/api/v1/runs?directive=people",
    "/api/v1/repos",
    "/api/v1/mirror",
    "/api/v1/mirror/mirrored",
    "/api/v1/mirror/dead-letters",
    "/api/v1/leader",
    "/api/v1/audit",
    "/api/v1/whoami",
    "/api/v1/openapi.json",
    "/metrics",
    "/healthz",
    "/readyz",
];

/// `pages`
#[derive(Args)]
pub(crate) struct Options {
    /// The program stargate; if none is named, the one in the folder of this program.
    #[arg(long)]
    stargate: Option<PathBuf>,
    /// `sqlite`, or the URL of a Postgres server on which a database may be made.
    #[arg(long, default_value = "sqlite")]
    store: String,
    /// Jobs in the store, half of them waiting and half of them ended.
    #[arg(long, default_value_t = 1_000_000)]
    jobs: i64,
    /// How often each page is asked for.
    #[arg(long, default_value_t = 7)]
    repeats: usize,
    /// How often the node is started, for the first overview.
    #[arg(long, default_value_t = 3)]
    starts: usize,
}

pub(crate) async fn run(options: &Options) -> Result<()> {
    ensure!(options.jobs >= 1000 && options.repeats > 0 && options.starts > 0, "that is too few to measure");
    let stargate = crate::git::program_of(options.stargate.as_deref())?;
    let url = match options.store.as_str() {
        "sqlite" => None,
        server => Some(fresh_database(server).await?),
    };
    let store = if url.is_some() { "Postgres" } else { "SQLite" };
    let home = Home::with_store(&stargate, url.clone())?;
    prepare(&home).await?;
    let filled = match &url {
        None => fill::sqlite(&home.dir().join("stargate.db"), options.jobs)?,
        Some(url) => fill::postgres(url, options.jobs).await?,
    };
    heading(&format!(
        "pages on {store}: {} jobs, each page {} times, in ms; goal: none above {GOAL_MS}",
        options.jobs, options.repeats
    ));
    // Others on the machine make everybody wait; what is measured is read beside how many they were.
    println!("load average {}", std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim());
    println!("{:<58} {:>8} {:>8} {:>8}", "page", "first", "median", "worst");
    let mut verdict = Verdict::default();
    verdict.add("/, first, as soon as a node leads", overviews(&home, options.starts, Duration::ZERO).await?);
    verdict.add("/, first, a second later", overviews(&home, options.starts, PAUSE).await?);
    let node = home.up().await?;
    tokio::time::sleep(PAUSE).await;
    for target in targets(&filled) {
        let mut asked = Vec::with_capacity(options.repeats);
        for _ in 0..options.repeats {
            asked.push(ask::ask(home.address(), &target).await?);
        }
        verdict.add(&target.name(), asked);
    }
    node.stop().await?;
    println!("{}", verdict.words());
    verdict.note();
    Ok(())
}

/// The first answers of nodes that have just started, so long after they lead.
async fn overviews(home: &Home, starts: usize, pause: Duration) -> Result<Vec<Asked>> {
    let mut asked = Vec::with_capacity(starts);
    for _ in 0..starts {
        let node = home.up().await?;
        tokio::time::sleep(pause).await;
        asked.push(ask::ask(home.address(), &Target::get("/")).await?);
        node.stop().await?;
    }
    Ok(asked)
}

/// A repository with a mirror that was pushed to, and a directive that has run.
async fn prepare(home: &Home) -> Result<()> {
    std::fs::write(home.dir().join("stargate.toml"), SETTINGS)?;
    write_directive(home.dir())?;
    let client = Client::new()?;
    let node = home.up().await?;
    let remote = home.dir().join("remote.git");
    client.init_bare(&remote).await?;
    let repo = home.repository(REPOSITORY).await?;
    let url = remote.to_str().context("the path of the remote is not text")?;
    client.git(&repo, &["remote", "add", "github-origin", url]).await?;
    let work = client.home().join("work");
    client.init_bare(&work).await?;
    for oid in client.chain(&work, COMMITS).await? {
        let refs = format!("{oid}:{MIRRORED}");
        client.git(&work, &["push", "--quiet", &home.url(REPOSITORY), &refs]).await?;
    }
    home.answer(&["directive", "run", DIRECTIVE, "--json"]).await?;
    node.stop().await
}

/// Some of its records are none, so that something is quarantined.
fn write_directive(home: &Path) -> Result<()> {
    let folder = home.join("directives");
    std::fs::create_dir(&folder)?;
    let record = |id: usize| match id % 10 {
        0 => format!("{{\"name\":\"name {id}\"}}\n"),
        _ => format!("{{\"id\":{id},\"name\":\"name {id}\"}}\n"),
    };
    std::fs::write(folder.join("people.jsonl"), (0..RECORDS).map(record).collect::<String>())?;
    let directive = format!(
        "name = \"{DIRECTIVE}\"\nqueue = \"meta-py\"\ntenant = \"bench\"\nproject = \"bench\"\n\n\
         [source]\ntype = \"file\"\npath = \"people.jsonl\"\n\n[item]\nkey = [\"/id\"]\n\n[item.map]\n\
         id = {{ from = \"/id\", type = \"integer\" }}\nname = \"/name\"\n\n[sink]\ntable = \"people\"\n"
    );
    Ok(std::fs::write(folder.join(format!("{DIRECTIVE}.toml")), directive)?)
}

/// Everything that is asked for.
fn targets(filled: &Filled) -> Vec<Target> {
    let Filled { queued, done, failed, run } = filled;
    let mut targets: Vec<Target> = PAGES.iter().map(|path| Target::get(path)).collect();
    for job in [queued, done, failed] {
        targets.push(Target::get(&format!("/jobs/{job}")));
        targets.push(Target::get(&format!("/api/v1/jobs/{job}")));
        targets.push(Target::get(&format!("/api/v1/jobs/{job}/explain")));
    }
    targets.push(Target::get(&format!("/jobs/{failed}/retry")));
    targets.push(Target::get(&format!("/jobs/{queued}/cancel")));
    targets.push(Target::get(&format!("/runs/{run}")));
    targets.push(Target::get(&format!("/api/v1/runs/{run}")));
    for body in [
        r#"{"action":"retry","filter":{"state":"failed"},"limit":10000,"dry_run":true}"#,
        r#"{"action":"cancel","filter":{},"limit":10000,"dry_run":true}"#,
    ] {
        targets.push(Target::post("/api/v1/jobs/bulk", body));
    }
    targets
}

/// How many were in time.
#[derive(Default)]
struct Verdict {
    reached: usize,
    missed: usize,
    /// The median of the slowest.
    slowest: f64,
}

impl Verdict {
    /// Prints a line about one page.
    fn add(&mut self, name: &str, asked: Vec<Asked>) {
        let times: Vec<f64> = asked.iter().map(|asked| asked.ms).collect();
        let worst = times.iter().copied().fold(0.0, f64::max);
        let word = if worst <= GOAL_MS { "reached" } else { "MISSED" };
        if worst <= GOAL_MS {
            self.reached += 1
        } else {
            self.missed += 1
        }
        let (first, middle) = (times.first().copied().unwrap_or_default(), median(times));
        self.slowest = self.slowest.max(middle);
        println!("{name:<58} {first:>8.1} {middle:>8.1} {worst:>8.1} {word}");
    }

    fn note(&self) {
        line("slowest page, median", self.slowest, "ms", &Goal::AtMost(GOAL_MS));
        line("pages that took longer at worst", self.missed as f64, "", &Goal::AtMost(0.0));
    }

    fn words(&self) -> String {
        format!("{} of {} within {GOAL_MS} ms each time", self.reached, self.reached + self.missed)
    }
}
