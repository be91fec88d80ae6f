//! Draws what is on the screen. The same frame goes to a terminal and, with `--once`, to text.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Sparkline, Table, TableState, Tabs, Wrap};

use super::screen::{Screen, Tab};
use super::snapshot::Snapshot;
use super::tables;
use crate::output::{grouped, short, when};

const HELP: &str = "\
1-7, Tab      another view
j k, arrows   another row
space         hold still, go on
u             look now
p             queues: pause or resume the selected one
c             running: cancel the selected job
r             failures: retry the newest job of the group
q             leave

Everything that is changed is asked for first.";

/// Draws everything.
pub(super) fn frame(frame: &mut Frame<'_>, screen: &Screen) {
    let [head, tabs, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(2),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(headline(screen), head);
    let titles = Tab::ALL.iter().enumerate().map(|(index, tab)| format!("{} {}", index + 1, tab.title()));
    let tabs_line = Tabs::new(titles)
        .select(screen.tab.index())
        .highlight_style(Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED))
        .divider(" ")
        .padding("", "");
    frame.render_widget(tabs_line, tabs);
    match &screen.snapshot {
        None => frame.render_widget(waiting(screen), body),
        Some(snapshot) => view(frame, body, screen, snapshot),
    }
    frame.render_widget(footline(screen), foot);
    if screen.shows_help {
        overlay(frame, body);
    }
}

fn headline(screen: &Screen) -> Paragraph<'static> {
    let mut parts = vec![Span::from("stargate top").bold(), Span::from(format!("  {}", screen.place))];
    if let Some(snapshot) = &screen.snapshot {
        let time = snapshot.at.to_zoned(jiff::tz::TimeZone::system()).strftime("%H:%M:%S").to_string();
        parts.push(Span::from(format!("  {time}")).dim());
    }
    if screen.is_frozen {
        parts.push(Span::from("  held, space goes on").yellow());
    }
    if let Some(trouble) = &screen.trouble {
        parts.push(Span::from(format!("  {trouble}")).red());
    }
    Paragraph::new(Line::from(parts))
}

fn waiting(screen: &Screen) -> Paragraph<'static> {
    let text = screen.trouble.clone().unwrap_or_else(|| "looking …".to_owned());
    Paragraph::new(text).wrap(Wrap { trim: true })
}

fn footline(screen: &Screen) -> Paragraph<'static> {
    if let Some(change) = &screen.asked {
        let question = Span::from(format!("{}? y/n", change.question())).yellow().bold();
        return Paragraph::new(Line::from(vec![question, Span::from(format!("   {}", change.twin())).dim()]));
    }
    if let Some(message) = &screen.message {
        return Paragraph::new(message.clone());
    }
    let own = match screen.tab {
        Tab::Queues => "p pause  ",
        Tab::Jobs => "c cancel  ",
        Tab::Failures => "r retry one  ",
        _ => "",
    };
    Paragraph::new(format!("{own}1-7 views  j k rows  space hold  ? help  q leave")).dim()
}

fn overlay(frame: &mut Frame<'_>, area: Rect) {
    let height = u16::try_from(HELP.lines().count()).unwrap_or(12) + 2;
    let [area] = Layout::vertical([Constraint::Length(height)]).areas(area);
    let [area] = Layout::horizontal([Constraint::Length(62)]).areas(area);
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(HELP).block(Block::bordered().title(" keys ")), area);
}

fn view(frame: &mut Frame<'_>, area: Rect, screen: &Screen, snapshot: &Snapshot) {
    match screen.tab {
        Tab::Overview => overview(frame, area, snapshot),
        Tab::Leader => leader(frame, area, screen, snapshot),
        tab => {
            let (table, empty) = tables::of(tab, snapshot);
            list(frame, area, screen, table, empty);
        }
    }
}

/// A table with its selected row, or a sentence when it is empty.
fn list(frame: &mut Frame<'_>, area: Rect, screen: &Screen, table: Table<'static>, empty: &'static str) {
    if screen.rows(screen.tab) == 0 {
        frame.render_widget(Paragraph::new(empty).dim(), area);
        return;
    }
    let mut state = TableState::default().with_selected(Some(screen.row()));
    let table = table.row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    frame.render_stateful_widget(table, area, &mut state);
}

fn overview(frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot) {
    let problems = problems(snapshot);
    let height = u16::try_from(problems.len()).unwrap_or(u16::MAX).min(area.height / 2);
    let [first, numbers, done, failed, queues] = Layout::vertical([
        Constraint::Length(height + 1),
        Constraint::Length(5),
        Constraint::Length(4),
        Constraint::Length(3),
        Constraint::Fill(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(problems), first);
    frame.render_widget(Paragraph::new(figures(snapshot)), numbers);
    spark(frame, done, "done per minute, the last hour", Color::Green, snapshot, |bucket| bucket.0);
    spark(frame, failed, "failed per minute", Color::Red, snapshot, |bucket| bucket.1);
    let (table, empty) = tables::of(Tab::Queues, snapshot);
    match snapshot.queues.is_empty() {
        true => frame.render_widget(Paragraph::new(empty).dim(), queues),
        false => frame.render_widget(table, queues),
    }
}

fn problems(snapshot: &Snapshot) -> Vec<Line<'static>> {
    let problems = snapshot.problems();
    if problems.is_empty() {
        return vec![Line::from("nothing to worry about".green())];
    }
    let line = |problem: super::snapshot::Problem| {
        let colour = if problem.is_severe { Color::Red } else { Color::Yellow };
        let mark = if problem.is_severe { "! " } else { "- " };
        Line::from(vec![
            Span::styled(format!("{mark}{}", problem.text), Style::new().fg(colour)),
            Span::from(format!("   {}", problem.command)).dim(),
        ])
    };
    problems.into_iter().map(line).collect()
}

fn figures(snapshot: &Snapshot) -> Vec<Line<'static>> {
    let totals = snapshot.totals();
    let (alive, holding, capacity) = snapshot.capacity();
    let name = |text: &str| Span::from(format!("{text:<10}")).dim();
    let jobs = format!(
        "{} ready   {} delayed   {} blocked   {} processing   {} failed",
        grouped(totals.ready),
        grouped(totals.delayed),
        grouped(totals.blocked),
        grouped(totals.processing),
        grouped(totals.failed)
    );
    let mut speed = format!("{:.1} done per minute", snapshot.per_minute());
    if let Some(left) = snapshot.empty_in() {
        speed.push_str(&format!("   nothing ready in about {}", short(left)));
    }
    let oldest = snapshot.oldest_ready.map_or_else(
        || "nothing waits".to_owned(),
        |age| format!("the oldest that could run for {}", short(age)),
    );
    let wait = snapshot.wait_p95().map(|wait| format!("   95 % of jobs under {}", short(wait)));
    vec![
        Line::from(vec![name("jobs"), Span::from(jobs)]),
        Line::from(vec![name("speed"), Span::from(speed)]),
        Line::from(vec![name("waiting"), Span::from(format!("{oldest}{}", wait.unwrap_or_default()))]),
        Line::from(vec![
            name("workers"),
            Span::from(format!("{alive} alive, {holding} of {capacity} slots in use")),
        ]),
    ]
}

fn spark(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &'static str,
    colour: Color,
    snapshot: &Snapshot,
    of: impl Fn((u64, u64)) -> u64,
) {
    let data: Vec<u64> = snapshot.activity.iter().map(|bucket| of((bucket.done, bucket.failed))).collect();
    let most = data.iter().copied().max().unwrap_or_default();
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    frame.render_widget(Paragraph::new(format!("{title}, at most {}", grouped(most))).dim(), head);
    frame.render_widget(
        Sparkline::default().data(&data).max(most.max(1)).style(Style::new().fg(colour)),
        body,
    );
}

fn leader(frame: &mut Frame<'_>, area: Rect, screen: &Screen, snapshot: &Snapshot) {
    let Some(view) = &snapshot.leader else {
        frame.render_widget(Paragraph::new("nobody could be asked who leads").dim(), area);
        return;
    };
    let mut lines = vec![Line::from(view.headline().bold())];
    if let (Some(instance), Some(role)) = (&view.instance, &view.role) {
        lines.push(Line::from(format!("asked {instance}: {role}")));
    }
    lines.extend(view.trouble.iter().map(|trouble| Line::from(trouble.clone().red())));
    lines.push(match view.overlaps.as_slice() {
        [] => Line::from("no two terms overlap".green()),
        pairs => Line::from(format!("terms overlap: {pairs:?}").red()),
    });
    let height = u16::try_from(lines.len()).unwrap_or(4) + 1;
    let [head, body] = Layout::vertical([Constraint::Length(height), Constraint::Fill(1)]).areas(area);
    frame.render_widget(Paragraph::new(lines), head);
    let rows = view.terms.iter().map(|term| {
        Row::new([
            Cell::from(term.epoch.to_string()),
            Cell::from(term.instance.clone()),
            Cell::from(when(term.began_at, snapshot.at)),
            Cell::from(term.ended_at.map_or_else(|| "goes on".to_owned(), |at| when(at, snapshot.at))),
            Cell::from(term.reason.clone().unwrap_or_default()),
        ])
    });
    let widths = [
        Constraint::Length(8),
        Constraint::Fill(2),
        Constraint::Fill(1),
        Constraint::Fill(1),
        Constraint::Fill(1),
    ];
    let table = Table::new(rows, widths).header(tables::header(&["EPOCH", "NODE", "BEGAN", "ENDED", "BY"]));
    list(frame, body, screen, table, "no terms yet");
}

/// A cell with a number.
pub(super) fn number(value: u64) -> Cell<'static> {
    Cell::from(Line::from(grouped(value)).alignment(Alignment::Right))
}
