//! `stargate top`: how it goes, live.

mod draw;
pub(crate) mod screen;
mod snapshot;
mod tables;

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use stargate_base::Tasks;
use tokio::sync::mpsc;

use super::queue::named;
use crate::auditing::Desk;
use crate::config::interval;
use crate::failure::{Exit, Failure, Result};
use crate::run::App;
use crate::signals;
use screen::{Change, Effect, Key, Screen, Tab};
use snapshot::Snapshot;

/// The shortest time between two looks.
const EVERY_MIN: Duration = Duration::from_millis(200);
/// How long the thread that reads keys looks before it asks whether it is still wanted.
const KEYS_EVERY: Duration = Duration::from_millis(100);
/// The frame of `--once`, unless the terminal says something else.
const WIDTH: u16 = 120;
const HEIGHT: u16 = 40;

/// `top`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stargate top
  stargate top --url https://stargate.example --view failures
  stargate top --once                   one frame as text
  stargate top --json                   one look for programs

Keys: 1-7 or Tab for another view, j and k for another row, ? for the rest.")]
pub(crate) struct Top {
    /// How often to look
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval::parse)]
    every: Duration,
    /// What to begin with
    #[arg(long, value_enum, value_name = "VIEW", default_value = "overview")]
    view: Tab,
    /// Print one frame as text and end
    #[arg(long)]
    once: bool,
}

impl Top {
    /// Runs the command.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        let desk = Desk::open(app).await?;
        let place = match &app.remote {
            Some(node) => node.to_string(),
            None => app.settings.store.to_string(),
        };
        let mut screen = Screen::new(place, self.view);
        if app.out.json {
            let snapshot = Snapshot::take(app, desk.jobs.as_ref()).await?;
            app.out.json(&snapshot.to_json());
            return Ok(());
        }
        if self.once {
            screen.update(Ok(Snapshot::take(app, desk.jobs.as_ref()).await?));
            app.out.line(text(&screen, size()));
            return Ok(());
        }
        if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
            return Err(Failure::new(Exit::Usage, "USAGE", "top needs a terminal")
                .help("--once prints one frame as text, --json one look for programs"));
        }
        self.stay(app, &desk, screen).await
    }

    async fn stay(&self, app: &App, desk: &Desk, mut screen: Screen) -> Result<()> {
        let tasks = Tasks::new();
        let stop = signals::stop_token(&tasks)?;
        let mut terminal = Drawn::begin()?;
        let mut keys = Keys::listen()?;
        let every = self.every.max(EVERY_MIN);
        let look = async |wait: Duration| {
            tokio::time::sleep(wait).await;
            Snapshot::take(app, desk.jobs.as_ref()).await.map_err(|failure| failure.message)
        };
        let mut looking = Box::pin(look(Duration::ZERO));
        loop {
            terminal.draw(&screen)?;
            tokio::select! {
                () = stop.cancelled() => break,
                key = keys.next() => match key {
                    None => break,
                    Some(None) => {}
                    Some(Some(key)) => match screen.press(key) {
                        Effect::Nothing => {}
                        Effect::Quit => break,
                        Effect::Refresh => looking = Box::pin(look(Duration::ZERO)),
                        Effect::Do(change) => {
                            screen.message = Some(carried_out(desk, &change).await);
                            looking = Box::pin(look(Duration::ZERO));
                        }
                    },
                },
                found = &mut looking => {
                    screen.update(found);
                    looking = Box::pin(look(every));
                }
            }
        }
        drop((keys, terminal));
        tasks.stop();
        tasks.join().await;
        Ok(())
    }
}

/// Does what was asked for; how it went, in a line.
async fn carried_out(desk: &Desk, change: &Change) -> String {
    let jobs = &desk.jobs;
    let nothing = serde_json::Value::Null;
    let done = match change {
        Change::Pause(target) => {
            let (what, name) = named(target);
            desk.act(&format!("{what}.pause"), name, nothing, jobs.pause(target.clone())).await
        }
        Change::Resume(target) => {
            let (what, name) = named(target);
            let work = async { jobs.resume(target.clone()).await.map(drop) };
            desk.act(&format!("{what}.resume"), name, nothing, work).await
        }
        Change::Cancel(id) => {
            desk.act("job.cancel", id, nothing, async { jobs.cancel(*id).await.map(drop) }).await
        }
        Change::Retry(id) => desk.act("job.retry", id, nothing, jobs.retry(*id)).await,
    };
    match done {
        Ok(()) => format!("done: {}", change.question()),
        Err(error) => Failure::from(error).message,
    }
}

/// How large the frame of `--once` is.
fn size() -> (u16, u16) {
    let known = std::io::stdout().is_terminal().then(ratatui::crossterm::terminal::size).and_then(Result::ok);
    known.map_or((WIDTH, HEIGHT), |(width, height)| (width.max(40), height.max(10)))
}

/// A frame as text, without the empty lines at its end.
fn text(screen: &Screen, (width, height): (u16, u16)) -> String {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
    let Ok(_) = terminal.draw(|frame| draw::frame(frame, screen));
    let buffer = terminal.backend().buffer();
    let line = |row: u16| {
        let cells = (0..width).filter_map(|column| buffer.cell((column, row)));
        cells.map(ratatui::buffer::Cell::symbol).collect::<String>().trim_end().to_owned()
    };
    // The last line is about keys, which nobody can press.
    let lines: Vec<String> = (0..height.saturating_sub(1)).map(line).collect();
    let last = lines.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
    lines[..last].join("\n")
}

/// The terminal while it is ours. Given back at the end, and by a panic.
struct Drawn(ratatui::DefaultTerminal);

impl Drawn {
    fn begin() -> Result<Self> {
        ratatui::try_init().map(Self).map_err(|error| Failure::io("cannot draw on the terminal", &error))
    }

    fn draw(&mut self, screen: &Screen) -> Result<()> {
        let drawn = self.0.draw(|frame| draw::frame(frame, screen));
        drawn.map(drop).map_err(|error| Failure::io("cannot draw on the terminal", &error))
    }
}

impl Drop for Drawn {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Keys, read by a thread: a terminal can only be waited for.
struct Keys {
    pressed: mpsc::Receiver<Option<Key>>,
    is_wanted: Arc<AtomicBool>,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Keys {
    fn listen() -> Result<Self> {
        let (send, pressed) = mpsc::channel(64);
        let is_wanted = Arc::new(AtomicBool::new(true));
        let wanted = Arc::clone(&is_wanted);
        let reader = std::thread::Builder::new().name("keys".to_owned()).spawn(move || {
            while wanted.load(Ordering::Relaxed) {
                let read = match event::poll(KEYS_EVERY) {
                    Ok(true) => event::read(),
                    Ok(false) => continue,
                    Err(_) => return,
                };
                let Ok(event) = read else { return };
                if send.blocking_send(key(&event)).is_err() {
                    return;
                }
            }
        });
        let reader = reader.map_err(|error| Failure::io("cannot start a thread", &error))?;
        Ok(Self { pressed, is_wanted, reader: Some(reader) })
    }

    /// The next key; an inner `None` for what is no key of ours, such as another size of the terminal.
    async fn next(&mut self) -> Option<Option<Key>> {
        self.pressed.recv().await
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.is_wanted.store(false, Ordering::Relaxed);
        self.pressed.close();
        // Before the terminal is given back, so that nothing reads what the shell is meant to.
        if let Some(reader) = self.reader.take() {
            drop(reader.join());
        }
    }
}

fn key(event: &Event) -> Option<Key> {
    let Event::Key(pressed) = event else { return None };
    if pressed.kind == KeyEventKind::Release {
        return None;
    }
    if pressed.modifiers.contains(KeyModifiers::CONTROL) {
        return matches!(pressed.code, KeyCode::Char('c' | 'd')).then_some(Key::Escape);
    }
    match pressed.code {
        KeyCode::Char(letter) => Some(Key::Char(letter)),
        KeyCode::Tab | KeyCode::Right => Some(Key::Next),
        KeyCode::BackTab | KeyCode::Left => Some(Key::Previous),
        KeyCode::Up => Some(Key::Up),
        KeyCode::Down => Some(Key::Down),
        KeyCode::Home => Some(Key::First),
        KeyCode::End => Some(Key::Last),
        KeyCode::Esc => Some(Key::Escape),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
