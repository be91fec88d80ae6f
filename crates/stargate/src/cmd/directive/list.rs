//! `stargate directive list`: the directives of the configuration's directory.

use std::collections::BTreeMap;

use clap::Args;
use comfy_table::{Cell, Color};
use stargate_web::api::types::directives::Directive;

use super::EngineChoice;
use crate::config::directives::Engine;
use crate::directing::director;
use crate::failure::Result;
use crate::output::{self, Output};
use crate::run::App;
use crate::temporal;

/// `directive list`
#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    pub(super) engine: EngineChoice,
}

/// Lists them in the order of their names.
pub(super) async fn run(app: &App) -> Result<()> {
    let settings = &app.settings.directives;
    let dir = &settings.dir;
    let workflows = match settings.engine {
        Engine::Embedded => BTreeMap::new(),
        Engine::Temporal => {
            super::if_there(app.out, temporal::states(&app.settings).await).unwrap_or_default()
        }
    };
    let views = director::list(&app.settings, workflows)?;
    match app.out.json {
        true => app.out.json(&views),
        false => print(&views, &dir.display().to_string(), settings.engine, app.out),
    }
    Ok(())
}

pub(super) fn print(views: &[Directive], place: &str, engine: Engine, out: Output) {
    let mut columns = vec!["directive", "queue", "tenant/project", "source", "schedule", "table", "outbox"];
    if engine == Engine::Temporal {
        columns.push("workflow");
    }
    let mut table = output::table(&columns);
    for view in views.iter().filter(|view| view.problem.is_none()) {
        let text = |text: &Option<String>| Cell::new(text.as_deref().unwrap_or("-"));
        let owner = [&view.tenant, &view.project].map(|part| part.as_deref().unwrap_or("-")).join("/");
        let schedule = match (&view.schedule, view.time_zone.as_deref()) {
            (Some(cron), Some(zone)) if zone != "UTC" => Cell::new(format!("{cron} ({zone})")),
            (schedule, _) => text(schedule),
        };
        let source = Cell::new(view.source.as_deref().unwrap_or("-"));
        let name = Cell::new(&view.name).fg(Color::Cyan);
        let mut row = vec![
            name,
            text(&view.queue),
            Cell::new(owner),
            source,
            schedule,
            text(&view.table),
            text(&view.outbox),
        ];
        if engine == Engine::Temporal {
            row.push(Cell::new(view.workflow.as_ref().map_or("-", |workflow| workflow.status.as_str())));
        }
        table.add_row(row);
    }
    if views.is_empty() {
        out.note(output::dim(format!("no directives in {place}; a directive is a file NAME.toml there")));
    } else if !table.is_empty() {
        out.table(&table, "");
    }
    for problem in views.iter().filter_map(|view| view.problem.as_deref()) {
        out.note(problem);
    }
    if views.iter().any(|view| view.problem.is_some()) {
        out.note("'stargate directive check' tells all that is wrong");
    }
}
