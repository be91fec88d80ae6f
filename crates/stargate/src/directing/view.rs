//! Directives, runs and records as the API and `--json` tell them.

use std::path::Path;

use serde_json::Value;
use stargate_directive::file::{Directive, Problem};
use stargate_directive::quarantine::Quarantined;
use stargate_directive::{Cursor, Entry, Override, Run};
use stargate_queue::Json;
use stargate_web::api::types::directives as types;

use crate::config::directives::Directives;
use crate::temporal::WorkflowView;

/// A run.
pub(crate) fn run(run: &Run) -> types::Run {
    let goes_on = run.outcome.is_none();
    types::Run {
        run_id: run.id.0.clone(),
        directive: run.directive.clone(),
        engine: run.engine.clone(),
        outcome: run.outcome.map(|outcome| outcome.as_str().to_owned()),
        pages: run.pages,
        created: run.counts.created,
        updated: run.counts.updated,
        unchanged: run.counts.unchanged,
        failed: run.counts.failed,
        cursor: run.cursor.as_ref().and_then(cursor),
        error: run.error.clone(),
        tenant_id: run.tenant.clone(),
        project_id: run.project.clone(),
        workflow_id: run.workflow_id.clone(),
        step: run.beat.step.filter(|_| goes_on).map(|step| step.as_str().to_owned()),
        page_size: run.beat.page_size,
        waiting_for: run.beat.waiting_for.clone().filter(|_| goes_on),
        cancel_asked: run.cancel_asked,
        started_at: run.started_at,
        updated_at: run.updated_at,
        ended_at: run.ended_at,
    }
}

fn cursor(cursor: &Cursor) -> Option<Json> {
    serde_json::value::to_raw_value(cursor).ok()
}

/// A directive in the list of all.
pub(crate) fn directive(directive: Directive, settings: &Directives) -> types::Directive {
    let topic = directive.sink.outbox;
    let plan = settings.outbox.iter().find(|plan| Some(&plan.topic) == topic.as_ref());
    let (schedule, time_zone) =
        directive.schedule.map(|schedule| (schedule.cron, schedule.time_zone)).unzip();
    types::Directive {
        name: directive.name,
        queue: Some(directive.queue),
        tenant: Some(directive.tenant),
        project: Some(directive.project),
        source: Some(directive.source.kind().to_owned()),
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

/// A file that is no directive.
pub(crate) fn wrong(path: &Path, problems: &[Problem]) -> types::Directive {
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    types::Directive {
        name,
        path: path.display().to_string(),
        problem: problems.first().map(ToString::to_string),
        ..types::Directive::default()
    }
}

/// A workflow.
pub(crate) fn workflow(view: WorkflowView) -> types::Workflow {
    // Through JSON: what a heartbeat says is known only where there is Temporal.
    let read = serde_json::to_value(&view).and_then(serde_json::from_value::<types::Workflow>);
    read.unwrap_or_else(|_| types::Workflow {
        workflow_id: view.workflow_id,
        run_id: view.run_id,
        status: view.status.to_owned(),
        started_at: view.started_at,
        closed_at: None,
        history_events: view.history_events,
        pending: Vec::new(),
    })
}

/// The value of a cursor.
pub(crate) fn entry(entry: Entry) -> types::CursorEntry {
    types::CursorEntry {
        key: entry.key.as_str().to_owned(),
        value: entry.value,
        version: entry.version,
        request_id: entry.request_id,
        last_writer: entry.last_writer,
        spec_ref: entry.spec_ref,
        updated_at: entry.updated_at,
    }
}

/// A move by hand.
pub(crate) fn moved(found: Override) -> types::CursorMove {
    types::CursorMove {
        at: found.at,
        writer: found.writer,
        spec_ref: found.spec_ref,
        before: found.before,
        after: found.after,
        version: found.version,
    }
}

/// A record that could not become an item.
pub(crate) fn record(record: Quarantined) -> types::Quarantined {
    types::Quarantined {
        id: record.id.0,
        directive: record.directive,
        tenant_id: record.tenant,
        project_id: record.project,
        run_id: record.run.0,
        entity_id: record.entity_id,
        cause: record.cause,
        reason: record.reason,
        seen: record.seen,
        record: record.record,
        created_at: record.created_at,
        resolved_at: record.resolved_at,
    }
}

/// The pointer of a cursor, as people are shown it.
pub(crate) fn pointer(value: Option<&Json>) -> String {
    let cursor = value.and_then(|value| serde_json::from_str::<Value>(value.get()).ok());
    let pointer = cursor.and_then(|cursor| cursor.get("source_pointer").cloned());
    pointer.map_or_else(|| "-".to_owned(), |pointer| pointer.to_string())
}
