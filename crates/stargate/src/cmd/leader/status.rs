//! `stargate leader status`.

use std::time::Duration;

use clap::Args;
use comfy_table::{Cell, Color};
use stargate_queue::leadership::TERMS_MAX;

use super::view::{self, LeaderView};
use crate::failure::{Exit, Failure, Result};
use crate::output::{self, short, when};
use crate::run::App;

/// `leader status`
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Terms to show, newest first, 1 to 500
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=i64::from(TERMS_MAX)))]
    terms: u32,
}

impl Status {
    /// Runs the command.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        let node = app.node()?;
        let view = match view::ask(&node, self.terms).await {
            Ok(view) => view,
            // A node that was named is the one that was meant.
            Err(failure) if app.remote.is_some() => return Err(failure),
            Err(failure) => self.ask_store(app, failure).await?,
        };
        if app.out.json {
            app.out.json(&view);
        } else {
            print(&view, app);
        }
        match view.overlaps.first() {
            None => Ok(()),
            Some((one, two)) => {
                let message = format!("the terms with the epochs {one} and {two} overlap");
                Err(Failure::new(Exit::Failed, "INTERNAL", message)
                    .help("two nodes may have led at once: report this, with the output of this command"))
            }
        }
    }

    async fn ask_store(&self, app: &App, silence: Failure) -> Result<LeaderView> {
        let store = app.jobs().await?;
        let rows = store.terms(self.terms).await?;
        app.out.note(output::dim(format!("{}; this is what the store says", silence.message)));
        let backend = app.settings.leader.backend.name().as_str();
        Ok(LeaderView::of_store(&rows, backend))
    }
}

fn print(view: &LeaderView, app: &App) {
    let mut facts = vec![("leader", who_leads(view))];
    if let Some(instance) = &view.instance {
        let role = view.role.as_deref().unwrap_or("takes no part");
        let node = view.node.as_ref().map(|node| format!(" at {node}")).unwrap_or_default();
        facts.push(("asked", format!("{instance}{node}: {role}")));
    }
    if let Some(backend) = &view.backend {
        facts.push(("lock", backend.clone()));
    }
    if let Some(trouble) = &view.trouble {
        facts.push(("trouble", trouble.clone()));
    }
    for (name, value) in facts {
        app.out.line(format!("{}  {value}", output::dim(format!("{name:<7}"))));
    }
    if view.terms.is_empty() {
        return;
    }
    let now = stargate_base::clock::wall();
    let mut table = output::table(&["epoch", "node", "began", "lasted", "ended by"]);
    for term in &view.terms {
        let lasted = term.ended_at.unwrap_or(now).duration_since(term.began_at);
        let lasted = Duration::try_from(lasted).unwrap_or_default();
        table.add_row(vec![
            Cell::new(term.epoch),
            Cell::new(&term.instance),
            Cell::new(when(term.began_at, now)),
            Cell::new(short(lasted)),
            match &term.reason {
                Some(reason) => Cell::new(reason),
                None => Cell::new("not ended").fg(Color::Green),
            },
        ]);
    }
    app.out.line("");
    app.out.table(&table, "no terms yet");
}

fn who_leads(view: &LeaderView) -> String {
    let Some(leader) = &view.leader else { return "nobody, as far as is known here".to_owned() };
    let epoch = view.epoch.map(|epoch| format!(", epoch {epoch}")).unwrap_or_default();
    let lease = view.lease_expires_in_ms.map(Duration::from_millis);
    let lease = lease.map(|left| format!(", lease for {}", short(left))).unwrap_or_default();
    let unsure = if view.node.is_none() { ", or did when it was last heard of" } else { "" };
    format!("{leader}{epoch}{lease}{unsure}")
}
