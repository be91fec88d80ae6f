//! `stargate mirror status`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use stargate_git::RemoteName;
use stargate_mirror::Report;

use crate::failure::Result;
use crate::mirroring::{Places, Target};
use crate::output::{self, dim, grouped, short, when};
use crate::run::App;

/// `mirror status`
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// A bare repository: its directory, or its name below git.root [default: all that have the remote]
    #[arg(long, value_name = "DIR|NAME")]
    repo: Option<PathBuf>,
    /// The remote, by its name in the repository [env: STARGATE_MIRROR_REMOTE] [default: github-origin]
    #[arg(long, value_name = "NAME", value_parser = RemoteName::parse)]
    remote: Option<RemoteName>,
}

/// How one mirror stands.
#[derive(Debug, Serialize)]
struct View {
    repo: String,
    remote: String,
    url: Option<String>,
    #[serde(flatten)]
    report: Report,
}

impl View {
    fn of(target: Target) -> Result<Self> {
        let report = Report::of(target.repo.path())?;
        let remote = target.config.remote.to_string();
        Ok(Self { repo: target.name, remote, url: target.url, report })
    }

    fn worker(&self) -> String {
        match &self.report.worker {
            Some(worker) if worker.running => format!("process {}", worker.pid),
            Some(_) => "not running".to_owned(),
            None => "never ran".to_owned(),
        }
    }

    fn standing(&self) -> &'static str {
        match self.report.worker.as_ref().map(|worker| worker.breaker.as_str()) {
            Some("open" | "probing") => "away",
            Some(_) => "answers",
            None => "-",
        }
    }

    fn waiting(&self) -> String {
        let about = if self.report.backlog_is_exact { "" } else { "about " };
        format!("{about}{}", grouped(self.report.backlog))
    }

    fn lag(&self) -> Duration {
        Duration::try_from_secs_f64(self.report.lag_seconds).unwrap_or_default()
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
        ("worker", view.worker()),
        ("waiting", view.waiting()),
    ];
    if report.backlog > 0 {
        facts.push(("lag", short(view.lag())));
    }
    match (report.backlog, report.caught_up_in_seconds) {
        (1.., Some(left)) => facts.push(("caught up", format!("in {}", short(seconds(left))))),
        (1.., None) => facts.push(("caught up", "not known".to_owned())),
        _ => {}
    }
    if let Some(worker) = &report.worker {
        let error = worker.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
        facts.push(("breaker", format!("{}{error}", worker.breaker)));
        if !worker.parked.is_empty() {
            facts.push(("parked", worker.parked.join(", ")));
        }
    }
    facts.push(("dead", format!("{} letters", report.dead_letters)));
    if let Some(last) = &report.last_mirrored {
        facts.push(("last", format!("{} {}", last.entry_id, when(last.at, now))));
    }
    for (name, value) in facts {
        app.out.line(format!("{}  {value}", dim(format!("{name:<10}"))));
    }
    if report.dead_letters > 0 {
        app.out.note(dim(format!("\nstargate mirror dead-letter list --repo {}", view.repo)));
    }
}

fn print_all(app: &App, views: &[View]) {
    let mut table = output::table(&["repository", "worker", "remote", "waiting", "lag", "dead letters"]);
    for view in views {
        table.add_row([
            view.repo.clone(),
            view.worker(),
            view.standing().to_owned(),
            view.waiting(),
            short(view.lag()),
            view.report.dead_letters.to_string(),
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
