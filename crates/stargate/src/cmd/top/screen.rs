//! What is on the screen and what keys do to it. Knows nothing of a terminal.

use stargate_queue::JobId;
use stargate_queue::store::PauseTarget;

use super::snapshot::Snapshot;

/// What is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Tab {
    Overview,
    Queues,
    Jobs,
    Failures,
    Workers,
    Leader,
    Mirror,
}

impl Tab {
    pub(super) const ALL: [Self; 7] =
        [Self::Overview, Self::Queues, Self::Jobs, Self::Failures, Self::Workers, Self::Leader, Self::Mirror];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Queues => "Queues",
            Self::Jobs => "Running",
            Self::Failures => "Failures",
            Self::Workers => "Workers",
            Self::Leader => "Leader",
            Self::Mirror => "Mirror",
        }
    }

    pub(super) fn index(self) -> usize {
        Self::ALL.iter().position(|tab| *tab == self).unwrap_or_default()
    }

    fn moved(self, by: isize) -> Self {
        let count = Self::ALL.len().cast_signed();
        let index = (self.index().cast_signed() + by).rem_euclid(count);
        Self::ALL[index.cast_unsigned()]
    }
}

/// A key, as far as `top` knows keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Next,
    Previous,
    Up,
    Down,
    First,
    Last,
    Escape,
}

/// What is to be done outside of the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    Nothing,
    Quit,
    /// Look again at once.
    Refresh,
    Do(Change),
}

/// Something that changes more than the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    Pause(PauseTarget),
    Resume(PauseTarget),
    Cancel(JobId),
    Retry(JobId),
}

impl Change {
    /// The question before it is done.
    pub(super) fn question(&self) -> String {
        match self {
            Self::Pause(target) => format!("pause {}", words(target)),
            Self::Resume(target) => format!("resume {}", words(target)),
            Self::Cancel(job) => format!("cancel job {job}"),
            Self::Retry(job) => format!("retry job {job}"),
        }
    }

    /// The command that does the same.
    pub(super) fn twin(&self) -> String {
        match self {
            Self::Pause(target) => format!("stargate queue pause {}", argument(target)),
            Self::Resume(target) => format!("stargate queue resume {}", argument(target)),
            Self::Cancel(job) => format!("stargate job cancel {job}"),
            Self::Retry(job) => format!("stargate job retry {job}"),
        }
    }
}

fn words(target: &PauseTarget) -> String {
    match target {
        PauseTarget::Queue(name) => format!("queue {name}"),
        PauseTarget::Kind(name) => format!("kind {name}"),
    }
}

fn argument(target: &PauseTarget) -> String {
    match target {
        PauseTarget::Queue(name) => name.clone(),
        PauseTarget::Kind(name) => format!("--kind {name}"),
    }
}

/// What is on the screen.
#[derive(Debug)]
pub(super) struct Screen {
    /// Where it comes from.
    pub(super) place: String,
    pub(super) tab: Tab,
    /// The selected row of each tab.
    pub(super) selected: [usize; Tab::ALL.len()],
    pub(super) snapshot: Option<Snapshot>,
    /// Why there is nothing newer.
    pub(super) trouble: Option<String>,
    pub(super) is_frozen: bool,
    pub(super) shows_help: bool,
    /// What waits for a yes.
    pub(super) asked: Option<Change>,
    /// What was done last.
    pub(super) message: Option<String>,
}

impl Screen {
    pub(super) fn new(place: String, tab: Tab) -> Self {
        Self {
            place,
            tab,
            selected: [0; Tab::ALL.len()],
            snapshot: None,
            trouble: None,
            is_frozen: false,
            shows_help: false,
            asked: None,
            message: None,
        }
    }

    /// Takes in a look, unless what is shown is to stay.
    pub(super) fn update(&mut self, look: Result<Snapshot, String>) {
        match look {
            Ok(_) if self.is_frozen => {}
            Ok(snapshot) => {
                self.snapshot = Some(snapshot);
                self.trouble = None;
                for tab in Tab::ALL {
                    let last = self.rows(tab).saturating_sub(1);
                    self.selected[tab.index()] = self.selected[tab.index()].min(last);
                }
            }
            Err(problem) => self.trouble = Some(problem),
        }
    }

    /// How many rows a tab has.
    pub(super) fn rows(&self, tab: Tab) -> usize {
        let Some(snapshot) = &self.snapshot else { return 0 };
        match tab {
            Tab::Overview => 0,
            Tab::Queues => snapshot.queues.len(),
            Tab::Jobs => snapshot.running.len(),
            Tab::Failures => snapshot.failures.len(),
            Tab::Workers => snapshot.workers.len(),
            Tab::Leader => snapshot.leader.as_ref().map_or(0, |leader| leader.terms.len()),
            Tab::Mirror => snapshot.mirrors.len(),
        }
    }

    /// What a key does.
    pub(super) fn press(&mut self, key: Key) -> Effect {
        if let Some(change) = self.asked.take() {
            return match key {
                Key::Char('y' | 'Y') => Effect::Do(change),
                _ => {
                    self.message = Some("nothing was changed".to_owned());
                    Effect::Nothing
                }
            };
        }
        if self.shows_help {
            self.shows_help = false;
            return if key == Key::Char('q') { Effect::Quit } else { Effect::Nothing };
        }
        self.message = None;
        match key {
            Key::Char('q') | Key::Escape => return Effect::Quit,
            Key::Char('?' | 'h') => self.shows_help = true,
            Key::Char(' ') => {
                self.is_frozen = !self.is_frozen;
                return if self.is_frozen { Effect::Nothing } else { Effect::Refresh };
            }
            Key::Char('u') => return Effect::Refresh,
            Key::Char(digit @ '1'..='7') => {
                let index = digit.to_digit(10).unwrap_or(1) as usize - 1;
                self.tab = Tab::ALL[index];
            }
            Key::Next => self.tab = self.tab.moved(1),
            Key::Previous => self.tab = self.tab.moved(-1),
            Key::Down | Key::Char('j') => self.select(self.row().saturating_add(1)),
            Key::Up | Key::Char('k') => self.select(self.row().saturating_sub(1)),
            Key::First | Key::Char('g') => self.select(0),
            Key::Last | Key::Char('G') => self.select(usize::MAX),
            Key::Char(letter) => self.asked = self.wanted(letter),
        }
        Effect::Nothing
    }

    pub(super) fn row(&self) -> usize {
        self.selected[self.tab.index()]
    }

    fn select(&mut self, row: usize) {
        self.selected[self.tab.index()] = row.min(self.rows(self.tab).saturating_sub(1));
    }

    /// What a letter asks for, about the selected row.
    fn wanted(&self, letter: char) -> Option<Change> {
        let (snapshot, row) = (self.snapshot.as_ref()?, self.row());
        match (self.tab, letter) {
            (Tab::Queues, 'p') => {
                let queue = snapshot.queues.get(row)?;
                let target = PauseTarget::Queue(queue.queue.clone());
                Some(if queue.paused { Change::Resume(target) } else { Change::Pause(target) })
            }
            (Tab::Jobs, 'c') => snapshot.running.get(row).map(|job| Change::Cancel(job.id)),
            (Tab::Failures, 'r') => snapshot.failures.get(row).map(|group| Change::Retry(group.newest)),
            _ => None,
        }
    }
}
