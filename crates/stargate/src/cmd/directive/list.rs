//! `stargate directive list`: the directives of the configuration's directory.

use std::collections::BTreeMap;
use std::path::Path;

use clap::Args;
use comfy_table::{Cell, Color};
use serde::Serialize;
use stargate_directive::file::{self, Directive, Problem};

use super::EngineChoice;
use crate::config::directives::{Directives, Engine};
use crate::failure::{Failure, Result};
use crate::output::{self, Output};
use crate::run::App;
use crate::temporal::{self, WorkflowView};

/// `directive list`
#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    pub(super) engine: EngineChoice,
}

/// The stable fields of `--json`. Of a file that is wrong only its name, its path and its first problem are known.
#[derive(Debug, Default, Serialize)]
struct DirectiveView {
    name: String,
    queue: Option<String>,
    tenant: Option<String>,
    project: Option<String>,
    source: Option<&'static str>,
    schedule: Option<String>,
    time_zone: Option<String>,
    table: Option<String>,
    outbox: Option<String>,
    delivered_to: Option<String>,
    path: String,
    problem: Option<String>,
    /// Its newest workflow; only with the engine temporal.
    #[serde(skip_serializing_if = "Option::is_none")]
    workflow: Option<WorkflowView>,
}

/// Lists them in the order of their names.
pub(super) async fn run(app: &App) -> Result<()> {
    let settings = &app.settings.directives;
    let dir = &settings.dir;
    let files = match file::files(dir) {
        Ok(files) => files,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            return Err(Failure::io(format!("cannot read the directory {}", dir.display()), &error));
        }
    };
    let mut workflows = match settings.engine {
        Engine::Embedded => BTreeMap::new(),
        Engine::Temporal => {
            super::if_there(app.out, temporal::states(&app.settings).await).unwrap_or_default()
        }
    };
    let mut views: Vec<DirectiveView> = files
        .iter()
        .map(|path| match file::read(path, &settings.queues) {
            Ok(directive) => view(directive, settings),
            Err(problems) => wrong(path, &problems),
        })
        .collect();
    for view in &mut views {
        view.workflow = workflows.remove(&view.name);
    }
    match app.out.json {
        true => app.out.json(&views),
        false => print(&views, dir, settings.engine, app.out),
    }
    Ok(())
}

fn view(directive: Directive, settings: &Directives) -> DirectiveView {
    let topic = directive.sink.outbox;
    let plan = settings.outbox.iter().find(|plan| Some(&plan.topic) == topic.as_ref());
    let (schedule, time_zone) =
        directive.schedule.map(|schedule| (schedule.cron, schedule.time_zone)).unzip();
    DirectiveView {
        name: directive.name,
        queue: Some(directive.queue),
        tenant: Some(directive.tenant),
        project: Some(directive.project),
        source: Some(directive.source.kind()),
        schedule,
        time_zone,
        table: Some(directive.sink.table.name),
        delivered_to: plan.map(|plan| plan.to.to_string()),
        outbox: topic,
        path: directive.path.display().to_string(),
        problem: None,
        workflow: None,
    }
}

fn wrong(path: &Path, problems: &[Problem]) -> DirectiveView {
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    DirectiveView {
        name,
        path: path.display().to_string(),
        problem: problems.first().map(ToString::to_string),
        ..DirectiveView::default()
    }
}

fn print(views: &[DirectiveView], dir: &Path, engine: Engine, out: Output) {
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
        let source = Cell::new(view.source.unwrap_or("-"));
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
            row.push(Cell::new(view.workflow.as_ref().map_or("-", |workflow| workflow.status)));
        }
        table.add_row(row);
    }
    if views.is_empty() {
        out.note(output::dim(format!(
            "no directives in {}; a directive is a file NAME.toml there",
            dir.display()
        )));
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
