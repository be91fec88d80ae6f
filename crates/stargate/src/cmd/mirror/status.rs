//! `stargate mirror status`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use comfy_table::{Cell, Color};
use serde::Serialize;
use stargate_git::RemoteName;
use stargate_mirror::Report;
use stargate_mirror::report::Standing;

use crate::failure::Result;
use crate::mirroring::{Places, Target};
use crate::output::{self, dim, grouped, short, when};
use crate::run::App;

/// Refs that people are shown one by one.
const REFS_SHOWN: usize = 20;

/// `mirror status`
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// A bare repository: its directory, or its name below git.root [default: all that have the remote]
    #[arg(long, value_name = "DIR|NAME")]
    pub(super) repo: Option<PathBuf>,
    /// The remote, by its name in the repository [env: STARGATE_MIRROR_REMOTE] [default: github-origin]
    #[arg(long, value_name = "NAME", value_parser = RemoteName::parse)]
    pub(super) remote: Option<RemoteName>,
}

/// How one mirror stands.
#[derive(Debug, Serialize)]
struct View {
    repo: String,
    remote: String,
    url: Option<String>,
    standing: Standing,
    #[serde(flatten)]
    report: Report,
}

/// The same in words.
fn words(standing: Standing) -> &'static str {
    match standing {
        Standing::CaughtUp => "caught up",
        Standing::CatchingUp => "catching up",
        Standing::RemoteAway => "remote away",
        Standing::NotRunning => "not running",
        Standing::NoRemote => "no remote",
    }
}

fn colour(standing: Standing) -> Color {
    match standing {
        Standing::CaughtUp => Color::Green,
        Standing::CatchingUp | Standing::NoRemote => Color::Yellow,
        Standing::RemoteAway | Standing::NotRunning => Color::Red,
    }
}

impl View {
    fn of(target: Target) -> Result<Self> {
        let report = Report::of(target.repo.path())?;
        let remote = target.config.remote.to_string();
        let standing = Standing::of(&report, target.url.is_some());
        Ok(Self { repo: target.name, remote, url: target.url, standing, report })
    }

    /// How it stands, and why or for how long.
    fn headline(&self) -> String {
        let words = words(self.standing);
        let worker = self.report.worker.as_ref();
        match self.standing {
            // Before the first push that counts as an answer: what was said when the remote was asked for its refs.
            Standing::CaughtUp => match worker.and_then(|worker| worker.error.as_ref()) {
                Some(error) => format!("nothing waits, but the remote could not be asked: {error}"),
                None => format!("{words}: nothing waits"),
            },
            Standing::CatchingUp => match self.report.caught_up_in_seconds {
                Some(left) => format!("{words}: done in about {}", short(seconds(left))),
                None => format!("{words}: not known when, too little was mirrored lately"),
            },
            Standing::RemoteAway => {
                let breaker = worker.map_or("", |worker| worker.breaker.as_str());
                let error =
                    worker.and_then(|worker| worker.error.as_deref()).unwrap_or("it does not say why");
                format!("{words} (breaker {breaker}), everything waits: {error}")
            }
            Standing::NotRunning => {
                format!("{words}: what comes in waits until 'stargate up' or 'mirror run' runs")
            }
            Standing::NoRemote => {
                format!("{words} {}: nothing is mirrored until it is added", self.remote)
            }
        }
    }

    fn worker(&self) -> String {
        match &self.report.worker {
            Some(worker) if worker.running => format!("process {}", worker.pid),
            Some(_) => "has ended".to_owned(),
            None => "there never was one".to_owned(),
        }
    }

    fn waiting(&self) -> String {
        let about = if self.report.backlog_is_exact { "" } else { "about " };
        let count = self.report.backlog;
        let entries = if count == 1 { "entry" } else { "entries" };
        let lag = match self.report.oldest_pending_at {
            Some(_) => format!(", the oldest for {}", short(seconds(self.report.lag_seconds))),
            None => String::new(),
        };
        format!("{about}{} {entries}{lag}", grouped(count))
    }
}

impl Status {
    pub(super) async fn run(&self, app: &App) -> Result<()> {
        let places = Places::of(&app.settings).with_remote(self.remote.clone());
        match &self.repo {
            Some(repo) => {
                let view = View::of(places.find(repo).await?)?;
                match app.out.json {
                    true => app.out.json(&view),
                    false => print(app, &view),
                }
            }
            None => {
                let targets = places.mirrored().await?;
                let views = targets.into_iter().map(View::of).collect::<Result<Vec<_>>>()?;
                match app.out.json {
                    true => app.out.json(&views),
                    false => print_all(app, &views),
                }
            }
        }
        Ok(())
    }
}

fn print(app: &App, view: &View) {
    let report = &view.report;
    let now = stargate_base::clock::wall();
    let mut facts = vec![
        ("repository", view.repo.clone()),
        ("remote", format!("{} {}", view.remote, view.url.as_deref().unwrap_or("(not configured)"))),
        ("standing", view.headline()),
        ("worker", view.worker()),
        ("waiting", view.waiting()),
    ];
    if let Some(speed) = report.speed.filter(|_| report.backlog > 0) {
        facts.push(("speed", format!("{speed:.1} entries/s lately")));
    }
    facts.push(("dead letters", report.dead_letters.to_string()));
    let last = report.last_mirrored.as_ref();
    let last = last.map(|last| format!("{} (entry {})", when(last.at, now), last.entry_id));
    facts.push(("last push", last.unwrap_or_else(|| "nothing was mirrored yet".to_owned())));
    for (name, value) in facts {
        app.out.line(format!("{}  {value}", dim(format!("{name:<12}"))));
    }
    print_refs(app, report);
    if report.dead_letters > 0 {
        let command = format!("stargate mirror dead-letter list --repo {}", view.repo);
        app.out.note(dim(format!("\nwhat was given up, and why: {command}")));
    }
}

/// The refs that are not as they should be.
fn print_refs(app: &App, report: &Report) {
    if report.refs.is_empty() {
        return;
    }
    let mut table = output::table(&["ref", "waiting", "oldest for", "dead letters", ""]);
    for found in report.refs.iter().take(REFS_SHOWN) {
        let lag =
            found.oldest_pending_at.map_or_else(|| "-".to_owned(), |_| short(seconds(found.lag_seconds)));
        let remark = if found.parked { "parked: the remote refused its last entry" } else { "" };
        table.add_row([
            // What came from outside must not steer the terminal.
            found.name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect::<String>(),
            grouped(found.waiting),
            lag,
            found.dead_letters.to_string(),
            remark.to_owned(),
        ]);
    }
    app.out.line("");
    app.out.table(&table, "");
    if report.refs.len() > REFS_SHOWN || !report.refs_are_all {
        app.out.note(dim("more refs wait than are shown; --json tells up to 1000"));
    }
}

fn print_all(app: &App, views: &[View]) {
    let mut table =
        output::table(&["repository", "standing", "waiting", "oldest for", "dead letters", "last push"]);
    let now = stargate_base::clock::wall();
    for view in views {
        let report = &view.report;
        let about = if report.backlog_is_exact { "" } else { "about " };
        let lag =
            report.oldest_pending_at.map_or_else(|| "-".to_owned(), |_| short(seconds(report.lag_seconds)));
        table.add_row(vec![
            Cell::new(&view.repo),
            Cell::new(words(view.standing)).fg(colour(view.standing)),
            Cell::new(format!("{about}{}", grouped(report.backlog))),
            Cell::new(lag),
            Cell::new(report.dead_letters),
            Cell::new(
                report.last_mirrored.as_ref().map_or_else(|| "-".to_owned(), |last| when(last.at, now)),
            ),
        ]);
    }
    app.out.table(
        &table,
        "no repository below git.root has the remote; add it: git -C REPO remote add github-origin URL",
    );
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}
