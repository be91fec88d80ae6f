//! The same commands through a node, which knows its directives and executes their runs.

use std::time::{Duration, Instant};

use comfy_table::{Cell, Color};
use jiff::Timestamp;
use reqwest::Method;
use serde_json::Value;
use stargate_web::api::types::directives as types;

use super::cursor::CursorCommand;
use super::quarantine::QuarantineCommand;
use super::{DirectiveCommand, list};
use crate::config::directives::Engine;
use crate::directing::view;
use crate::failure::{Exit, Failure, Result};
use crate::node::Node;
use crate::output::{self, Output, grouped, when};
use crate::run::App;
use crate::view::cut;

/// How often to look at a run.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// How long a run may take to end that was asked to.
const ENDED_WITHIN: Duration = Duration::from_secs(60);
/// Records and reasons that a table shows.
const REASON_CHARS: usize = 90;

/// Runs a command through a node.
pub(super) async fn run(command: &DirectiveCommand, app: &App, node: &Node) -> Result<()> {
    if command.engine().is_some() {
        let message = "the node decides which engine executes its directives";
        return Err(Failure::new(Exit::Usage, "USAGE", message).help("leave --engine out"));
    }
    match command {
        DirectiveCommand::List(_) => listed(app, node).await,
        DirectiveCommand::Show(show) => shown(app, node, &show.name, show.runs).await,
        DirectiveCommand::Run(run) => begun(app, node, &run.name, run.timeout, run.no_wait).await,
        DirectiveCommand::Cancel(cancel) => cancelled(app, node, &cancel.name).await,
        DirectiveCommand::Cursor(command) => cursor(app, node, command).await,
        DirectiveCommand::Quarantine(command) => quarantine(app, node, command).await,
        DirectiveCommand::Check(_) | DirectiveCommand::Sample(_) | DirectiveCommand::Schema => {
            Err(Failure::input("this is done on this machine, not through a node"))
        }
    }
}

async fn listed(app: &App, node: &Node) -> Result<()> {
    let found: types::Directives = node.read(&["directives"], &[]).await?;
    let engine = if found.engine == Engine::Temporal.as_str() { Engine::Temporal } else { Engine::Embedded };
    match app.out.json {
        true => app.out.json(&found.directives),
        false => list::print(&found.directives, "the directory of the node", engine, app.out),
    }
    Ok(())
}

async fn shown(app: &App, node: &Node, name: &str, runs: u32) -> Result<()> {
    let query = [("runs", runs.to_string())];
    let found: types::DirectiveDetail = node.read(&["directives", name], &query).await?;
    if app.out.json {
        app.out.json(&found);
        return Ok(());
    }
    let (out, now) = (app.out, app.jobs().await?.now().await?);
    out.line(format!("{}  {}/{}", output::bold(&found.name), found.tenant_id, found.project_id));
    out.line(format!("file       {} on the node", found.path));
    out.line(format!("queue      {}", found.queue));
    out.line(format!("source     {}", found.source));
    let outbox = found.outbox.as_ref().map(|topic| format!(", announced as {topic}")).unwrap_or_default();
    out.line(format!("sink       table {}{outbox}", found.table));
    if let Some(schedule) = &found.schedule {
        out.line(format!("schedule   {schedule} ({})", found.time_zone.as_deref().unwrap_or("UTC")));
    }
    match (&found.cursor, found.cursor_version, found.cursor_updated_at) {
        (Some(cursor), Some(version), Some(at)) => {
            out.line(format!(
                "cursor     {} · version {version} · {}",
                view::pointer(Some(cursor)),
                when(at, now)
            ));
        }
        _ => out.line("cursor     none yet"),
    }
    if let Some(partial) = &found.partial {
        out.line(format!("beyond it  {partial}"));
    }
    out.line(format!("quarantine {} waiting", found.quarantined));
    if let Some(workflow) = &found.workflow {
        out.line(format!(
            "workflow   {} · {} · {} events",
            workflow.workflow_id, workflow.status, workflow.history_events
        ));
    }
    out.line("");
    print_runs(&found.runs, now, out);
    Ok(())
}

fn print_runs(runs: &[types::Run], now: Timestamp, out: Output) {
    let columns = ["run", "", "began", "pages", "created", "updated", "unchanged", "quarantined", "error"];
    let mut table = output::table(&columns);
    for run in runs {
        let (word, colour) = match run.outcome.as_deref() {
            None => ("running", Color::Yellow),
            Some("succeeded") => ("succeeded", Color::Green),
            Some("failed") => ("failed", Color::Red),
            Some(other) => (other, Color::DarkGrey),
        };
        let waiting = run.waiting_for.as_ref().map(|reason| format!("waits: {reason}"));
        table.add_row(vec![
            Cell::new(&run.run_id),
            Cell::new(word).fg(colour),
            Cell::new(when(run.started_at, now)),
            Cell::new(run.pages),
            Cell::new(run.created),
            Cell::new(run.updated),
            Cell::new(run.unchanged),
            Cell::new(run.failed),
            Cell::new(run.error.clone().or(waiting).unwrap_or_default()),
        ]);
    }
    out.table(&table, "no runs yet; 'stargate directive run NAME' begins one");
}

async fn begun(app: &App, node: &Node, name: &str, timeout: Option<Duration>, no_wait: bool) -> Result<()> {
    let begun: types::RunStarted =
        node.change(Method::POST, &["directives", name, "runs"], None::<&()>).await?;
    if no_wait {
        match app.out.json {
            true => app.out.json(&begun),
            false => app.out.line(&begun.run_id),
        }
        return Ok(());
    }
    if begun.existing {
        app.out.note(format!("run {} goes on already; it is followed", begun.run_id));
    }
    let run = ended(node, &begun.run_id, timeout).await?.ok_or_else(|| {
        let message = format!("run {} goes on", begun.run_id);
        Failure::new(Exit::TimedOut, "TIMED_OUT", message)
            .help(format!("'stargate directive show {name}' tells where it is"))
    })?;
    match app.out.json {
        true => app.out.json(&run),
        false => app.out.line(in_words(&run)),
    }
    match run.outcome.as_deref() {
        Some("failed") => {
            let error = run.error.clone().unwrap_or_default();
            let (code, message) = error.split_once(": ").unwrap_or(("NOT_DONE", &error));
            Err(Failure::failed(code, format!("run {} failed: {message}", run.run_id))
                .help(format!("'stargate directive show {name}' has the details")))
        }
        Some("cancelled") => Err(Failure::failed("NOT_DONE", format!("run {} was cancelled", run.run_id))),
        _ => Ok(()),
    }
}

/// A run as it ended; none if it has not in time. Before a worker takes it up there is no run to be found.
async fn ended(node: &Node, id: &str, timeout: Option<Duration>) -> Result<Option<types::Run>> {
    let started = Instant::now();
    loop {
        match node.read::<types::Run>(&["runs", id], &[]).await {
            Ok(run) if run.outcome.is_some() => return Ok(Some(run)),
            Ok(_) => {}
            Err(failure) if failure.code == "NOT_FOUND" => {}
            Err(failure) => return Err(failure),
        }
        if timeout.is_some_and(|timeout| started.elapsed() >= timeout) {
            return Ok(None);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn in_words(run: &types::Run) -> String {
    format!(
        "{} {}: {} pages, {} created, {} updated, {} unchanged, {} quarantined",
        run.directive,
        run.outcome.as_deref().unwrap_or("goes on"),
        grouped(run.pages),
        grouped(run.created),
        grouped(run.updated),
        grouped(run.unchanged),
        grouped(run.failed),
    )
}

async fn cancelled(app: &App, node: &Node, name: &str) -> Result<()> {
    let query = [("directive", name.to_owned()), ("limit", "50".to_owned())];
    let runs: types::Runs = node.read(&["runs"], &query).await?;
    let Some(run) = runs.runs.into_iter().find(|run| run.outcome.is_none()) else {
        let message = format!("no run of {name} goes on");
        return Err(Failure::new(Exit::NotFound, "NOT_FOUND", message)
            .help(format!("'stargate directive show {name}' lists those that ended")));
    };
    let _: types::Run = node.change(Method::POST, &["runs", &run.run_id, "cancel"], None::<&()>).await?;
    let run = ended(node, &run.run_id, Some(ENDED_WITHIN)).await?.ok_or_else(|| {
        let message = format!("run {} was asked to end and has not yet", run.run_id);
        Failure::new(Exit::TimedOut, "TIMED_OUT", message)
            .help("its worker may be away; the run ends when another takes it up")
    })?;
    match app.out.json {
        true => app.out.json(&run),
        false => app.out.line(format!(
            "run {} {} after {} pages; its cursor is kept",
            run.run_id,
            run.outcome.as_deref().unwrap_or("goes on"),
            grouped(run.pages)
        )),
    }
    Ok(())
}

async fn cursor(app: &App, node: &Node, command: &CursorCommand) -> Result<()> {
    let out = app.out;
    match command {
        CursorCommand::Show(show) => {
            let found: types::CursorDetail = node.read(&["directives", &show.name, "cursor"], &[]).await?;
            if out.json {
                out.json(&serde_json::json!({ "cursor": found.cursor, "partial": found.partial }));
                return Ok(());
            }
            let Some(entry) = &found.cursor else {
                out.note(output::dim("no cursor yet; the first run begins at the source's beginning"));
                return Ok(());
            };
            out.line(format!("key        {}", entry.key));
            out.line(format!("pointer    {}", view::pointer(Some(&entry.value))));
            out.line(format!("version    {}", entry.version));
            out.line(format!("written    {} by {}", entry.updated_at, entry.last_writer));
            entry.spec_ref.iter().for_each(|reason| out.line(format!("spec ref   {reason}")));
            found.partial.iter().for_each(|partial| out.line(format!("beyond it  {partial}")));
        }
        CursorCommand::Set(set) => {
            let pointer = set.pointer.as_deref().map(serde_json::from_str::<Value>).transpose();
            let pointer =
                pointer.map_err(|error| Failure::input(format!("--pointer is not JSON: {error}")))?;
            let body = serde_json::json!({
                "pointer": pointer, "beginning": set.beginning, "spec_ref": set.spec_ref,
                "expected_version": set.expected_version,
            });
            let moved: types::CursorMoved =
                node.change(Method::PUT, &["directives", &set.name, "cursor"], Some(&body)).await?;
            match out.json {
                true => out.json(&moved),
                false => out.line(format!("the cursor of {} has version {} now", set.name, moved.version)),
            }
        }
        CursorCommand::History(show) => {
            let found: types::CursorDetail = node.read(&["directives", &show.name, "cursor"], &[]).await?;
            if out.json {
                out.json(&found.moves);
                return Ok(());
            }
            let mut table = output::table(&["when", "by", "spec ref", "version", "from", "to"]);
            for moved in &found.moves {
                table.add_row(vec![
                    moved.at.to_string(),
                    moved.writer.clone(),
                    moved.spec_ref.clone(),
                    moved.version.to_string(),
                    view::pointer(moved.before.as_ref()),
                    view::pointer(moved.after.as_ref()),
                ]);
            }
            out.table(&table, "nobody has moved this cursor by hand");
        }
    }
    Ok(())
}

async fn quarantine(app: &App, node: &Node, command: &QuarantineCommand) -> Result<()> {
    let out = app.out;
    match command {
        QuarantineCommand::List(list) => {
            let Some(name) = &list.name else {
                let message = "name a directive: a node lists the records of one at a time";
                return Err(
                    Failure::new(Exit::Usage, "USAGE", message).help("'stargate directive list' shows them")
                );
            };
            let mut query = vec![("limit", list.limit.to_string()), ("all", list.all.to_string())];
            query.extend(list.before.map(|before| ("before", before.to_string())));
            let found: types::Quarantine = node.read(&["directives", name, "quarantine"], &query).await?;
            match out.json {
                true => out.json(&found.records),
                false => print_records(&found.records, app.jobs().await?.now().await?, out),
            }
        }
        QuarantineCommand::Show(named) => {
            let record: types::Quarantined = node.read(&["quarantine", &named.id.to_string()], &[]).await?;
            match out.json {
                true => out.json(&record),
                false => print_record(&record, out),
            }
        }
        QuarantineCommand::Resolve(named) => {
            let path = ["quarantine", &named.id.to_string(), "resolve"];
            let done: types::QuarantineResolved = node.change(Method::POST, &path, None::<&()>).await?;
            match out.json {
                true => out.json(&done),
                false => out.line(format!("record {} is marked as dealt with", named.id)),
            }
        }
        QuarantineCommand::Retry(retry) => {
            let body = serde_json::json!({ "ids": retry.ids });
            let path = ["directives", &retry.name, "quarantine", "retry"];
            let done: types::QuarantineRetried = node.change(Method::POST, &path, Some(&body)).await?;
            match out.json {
                true => out.json(&done),
                false => out.line(format!(
                    "{} became items, {} still do not fit",
                    grouped(done.resolved),
                    grouped(done.failed)
                )),
            }
        }
    }
    Ok(())
}

fn print_records(records: &[types::Quarantined], now: Timestamp, out: Output) {
    let mut table = output::table(&["id", "directive", "entity", "cause", "seen", "since", "reason"]);
    for record in records {
        table.add_row(vec![
            record.id.to_string(),
            record.directive.clone(),
            record.entity_id.clone().unwrap_or_else(|| "-".to_owned()),
            record.cause.clone(),
            record.seen.to_string(),
            when(record.created_at, now),
            cut(&record.reason, REASON_CHARS),
        ]);
    }
    out.table(&table, "nothing is quarantined");
}

fn print_record(record: &types::Quarantined, out: Output) {
    out.line(format!("directive  {} ({}/{})", record.directive, record.tenant_id, record.project_id));
    out.line(format!("entity     {}", record.entity_id.as_deref().unwrap_or("-")));
    out.line(format!("cause      {}", record.cause));
    out.line(format!("reason     {}", record.reason));
    out.line(format!(
        "seen       {} times since {}, first by run {}",
        record.seen, record.created_at, record.run_id
    ));
    record.resolved_at.iter().for_each(|at| out.line(format!("resolved   {at}")));
    out.line("record");
    let pretty = serde_json::from_str::<Value>(record.record.get())
        .and_then(|value| serde_json::to_string_pretty(&value));
    out.line(pretty.unwrap_or_else(|_| record.record.get().to_owned()));
}
