//! The tables of `top`, one for each view that has rows.

use ratatui::layout::Constraint;
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Row, Table};

use super::draw::number;
use super::screen::Tab;
use super::snapshot::Snapshot;
use crate::output::{short, when};
use crate::view::cut;

/// How much of a text from outside a cell is given.
const TEXT_CHARS: usize = 120;

/// The table of a view, and what is said when it has no rows.
pub(super) fn of(tab: Tab, snapshot: &Snapshot) -> (Table<'static>, &'static str) {
    match tab {
        Tab::Queues => (queues(snapshot), "no queues yet; the first job makes one"),
        Tab::Jobs => (running(snapshot), "nothing runs"),
        Tab::Failures => (failures(snapshot), "no failed jobs"),
        Tab::Workers => (workers(snapshot), "no workers; 'stargate up' or 'stargate worker' starts one"),
        Tab::Mirror => (mirrors(snapshot), "nothing is mirrored here"),
        Tab::Overview | Tab::Leader => (Table::default(), ""),
    }
}

/// The names of columns.
pub(super) fn header(names: &[&'static str]) -> Row<'static> {
    Row::new(names.iter().map(|name| Cell::from(*name))).style(Style::new().add_modifier(Modifier::DIM))
}

fn text(value: &str) -> Cell<'static> {
    // What came from outside must not steer the terminal.
    let clean: String = value.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    Cell::from(cut(&clean, TEXT_CHARS))
}

fn queues(snapshot: &Snapshot) -> Table<'static> {
    let rows = snapshot.queues.iter().map(|queue| {
        let failed = number(queue.failed);
        Row::new([
            text(&queue.queue),
            number(queue.ready),
            number(queue.delayed),
            number(queue.blocked),
            number(queue.processing),
            if queue.failed > 0 { failed.style(Style::new().fg(Color::Red)) } else { failed },
            if queue.paused { Cell::from("paused".yellow()) } else { Cell::from("") },
        ])
    });
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(10),
        Constraint::Length(10),
        Constraint::Length(10),
        Constraint::Length(10),
        Constraint::Length(10),
        Constraint::Length(8),
    ];
    let names = ["QUEUE", "     READY", "   DELAYED", "   BLOCKED", "PROCESSING", "    FAILED", ""];
    Table::new(rows, widths).header(header(&names))
}

fn running(snapshot: &Snapshot) -> Table<'static> {
    let rows = snapshot.running.iter().map(|job| {
        let progress = if job.cancel_requested { "cancelling".to_owned() } else { bar(job.percent()) };
        Row::new([
            Cell::from(job.id.to_string()),
            text(&job.kind),
            text(&job.queue),
            Cell::from(progress),
            Cell::from(format!("{}/{}", job.attempt_count, job.max_attempts)),
            Cell::from(job.started_at.map_or_else(String::new, |at| when(at, snapshot.at))),
            text(job.worker.as_deref().unwrap_or_default()),
        ])
    });
    let widths = [
        Constraint::Length(10),
        Constraint::Fill(1),
        Constraint::Fill(1),
        Constraint::Length(16),
        Constraint::Length(7),
        Constraint::Length(14),
        Constraint::Fill(2),
    ];
    Table::new(rows, widths).header(header(&["JOB", "KIND", "QUEUE", "", "ATTEMPT", "STARTED", "WORKER"]))
}

/// Ten steps and the number.
fn bar(percent: u8) -> String {
    let full = usize::from(percent / 10).min(10);
    format!("{}{} {percent:>3} %", "█".repeat(full), "░".repeat(10 - full))
}

fn failures(snapshot: &Snapshot) -> Table<'static> {
    let rows = snapshot.failures.iter().map(|group| {
        Row::new([
            number(group.count),
            text(&group.kind),
            text(&group.code).style(Style::new().fg(Color::Red)),
            Cell::from(when(group.last_at, snapshot.at)),
            Cell::from(group.newest.to_string()),
            text(&group.message),
        ])
    });
    let widths = [
        Constraint::Length(8),
        Constraint::Fill(1),
        Constraint::Fill(1),
        Constraint::Length(14),
        Constraint::Length(10),
        Constraint::Fill(3),
    ];
    Table::new(rows, widths).header(header(&["    JOBS", "KIND", "CODE", "LAST", "NEWEST", "MESSAGE"]))
}

fn workers(snapshot: &Snapshot) -> Table<'static> {
    let rows = snapshot.workers.iter().map(|worker| {
        let alive = if worker.alive { Span::from("alive").green() } else { Span::from("silent").red() };
        let queues = if worker.queues.is_empty() { "all".to_owned() } else { worker.queues.join(", ") };
        Row::new([
            text(&worker.name),
            Cell::from(Line::from(alive)),
            Cell::from(format!("{} of {}", worker.holding, worker.concurrency)),
            text(&queues),
            Cell::from(when(worker.started_at, snapshot.at)),
            Cell::from(when(worker.beat_at, snapshot.at)),
        ])
    });
    let widths = [
        Constraint::Fill(2),
        Constraint::Length(7),
        Constraint::Length(11),
        Constraint::Fill(1),
        Constraint::Length(14),
        Constraint::Length(14),
    ];
    Table::new(rows, widths).header(header(&["WORKER", "", "JOBS", "QUEUES", "STARTED", "LAST BEAT"]))
}

fn mirrors(snapshot: &Snapshot) -> Table<'static> {
    let rows = snapshot.mirrors.iter().map(|mirror| {
        let colour = match mirror.standing.as_str() {
            "caught-up" => Color::Green,
            "catching-up" | "no-remote" => Color::Yellow,
            _ => Color::Red,
        };
        let lag = if mirror.backlog == 0 { "-".to_owned() } else { short(mirror.lag) };
        Row::new([
            text(&mirror.repo),
            Cell::from(mirror.standing.replace('-', " ")).style(Style::new().fg(colour)),
            number(mirror.backlog),
            Cell::from(lag),
            number(mirror.dead_letters as u64),
            text(mirror.error.as_deref().unwrap_or_default()),
        ])
    });
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(12),
        Constraint::Length(9),
        Constraint::Length(12),
        Constraint::Length(13),
        Constraint::Fill(2),
    ];
    let names = ["REPOSITORY", "STANDING", "  WAITING", "OLDEST FOR", " DEAD LETTERS", ""];
    Table::new(rows, widths).header(header(&names))
}
