//! How a mirror stands, for an operator: how far it is behind, why, and when it will have caught up.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use stargate_base::clock;

use crate::checkpoint::{Checkpoint, Loaded};
use crate::dead_letter::{DeadLetters, Payload, State};
use crate::error::{Error, Result};
use crate::files::Files;
use crate::journal::{Journal, Next};
use crate::status::{Record, Status, Statuses};

const STATE: &str = "mirror-worker.state";
const STATE_BYTES_MAX: u64 = 4 << 20;
/// How many waiting lines are counted; beyond, their number is estimated from their size.
const COUNTED_MAX: u64 = 100_000;
/// Letters that are looked through for the refs they are about.
const LETTERS_LOOKED_AT: usize = 10_000;
/// Refs that are told one by one.
const REFS_MAX: usize = 1000;
/// From how many of the last records the speed is taken.
const SPEED_RECORDS: usize = 200;
/// Records further apart than this do not belong to the same work.
const SPEED_PAUSE_MAX: SignedDuration = SignedDuration::from_secs(60);

/// What a worker says about itself. Other processes read it from a file that is written when it changes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct WorkerState {
    /// Whether it works. A worker that was killed did not say that it ended.
    pub running: bool,
    /// The process.
    pub pid: u32,
    /// `closed`, `open` or `probing`.
    pub breaker: String,
    /// Probes that failed since it opened.
    pub failed_probes: u32,
    /// What the remote said last while it was away.
    pub error: Option<String>,
    /// Refs whose last entry the remote did not want.
    pub parked: Vec<String>,
    /// Entries that wait. Not kept up to date in the file.
    #[serde(skip)]
    pub backlog: u64,
    /// Age of the oldest of them. Not in the file.
    #[serde(skip)]
    pub lag_ms: u64,
}

impl WorkerState {
    pub(crate) fn differs_for_others(&self, other: &Self) -> bool {
        let shown = |state: &Self| Self { backlog: 0, lag_ms: 0, pid: 0, ..state.clone() };
        shown(self) != shown(other)
    }

    pub(crate) fn store(&self, repo: &Path) -> Result<()> {
        let state = Self { pid: std::process::id(), ..self.clone() };
        let mut content =
            serde_json::to_vec(&state).map_err(|error| Error::invalid("worker state", error.to_string()))?;
        content.push(b'\n');
        Files::open(repo)?.replace(STATE, &content)
    }

    /// What the last worker said about itself.
    pub fn load(repo: &Path) -> Result<Option<Self>> {
        let content = Files::open(repo)?.read(STATE, STATE_BYTES_MAX)?;
        let state: Option<Self> = content.and_then(|content| serde_json::from_slice(&content).ok());
        Ok(state.map(|state| Self { running: state.running && is_alive(state.pid), ..state }))
    }
}

fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    // Without the right to signal it, it is alive all the same.
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

/// How a mirror stands, in a word: what an operator has to do first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// Nothing waits.
    CaughtUp,
    /// Something waits and is being pushed.
    CatchingUp,
    /// The remote does not answer, or does not let us in.
    RemoteAway,
    /// Nobody works: what comes in waits.
    NotRunning,
    /// The repository has no such remote.
    NoRemote,
}

impl Standing {
    /// What a report comes down to.
    pub fn of(report: &Report, has_remote: bool) -> Self {
        match &report.worker {
            _ if !has_remote => Self::NoRemote,
            Some(worker) if !worker.running => Self::NotRunning,
            None => Self::NotRunning,
            Some(worker) if worker.breaker != "closed" => Self::RemoteAway,
            Some(_) if report.backlog > 0 => Self::CatchingUp,
            Some(_) => Self::CaughtUp,
        }
    }

    /// The word of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CaughtUp => "caught-up",
            Self::CatchingUp => "catching-up",
            Self::RemoteAway => "remote-away",
            Self::NotRunning => "not-running",
            Self::NoRemote => "no-remote",
        }
    }
}

/// How a mirror stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// What the worker says about itself, if there ever was one.
    pub worker: Option<WorkerState>,
    /// Entries that wait.
    pub backlog: u64,
    /// Whether that was counted to the end.
    pub backlog_is_exact: bool,
    /// When the oldest of them was accepted.
    pub oldest_pending_at: Option<Timestamp>,
    /// How long ago that was.
    pub lag_seconds: f64,
    /// Dead letters that nobody has requeued.
    pub dead_letters: usize,
    /// How far the journal is accounted for.
    pub checkpoint: Option<Checkpoint>,
    /// The last entry that was mirrored.
    pub last_mirrored: Option<Record>,
    /// Entries a second, lately.
    pub speed: Option<f64>,
    /// When nothing will wait any more, at that speed, if nothing comes in; none while the remote is away or nobody
    /// works.
    pub caught_up_in_seconds: Option<f64>,
    /// Refs for which something waits or was given up, in order of their names; all others are as they should be, as far
    /// as the journal tells.
    pub refs: Vec<RefReport>,
    /// Whether these are all of them.
    pub refs_are_all: bool,
}

/// How one ref stands.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct RefReport {
    /// Its name here.
    #[serde(rename = "ref")]
    pub name: String,
    /// Entries that wait, as far as they were counted.
    pub waiting: u64,
    /// When the oldest of them was accepted.
    pub oldest_pending_at: Option<Timestamp>,
    /// How long ago that was.
    pub lag_seconds: f64,
    /// Whether the remote did not want its last entry. The next one gets one try.
    pub parked: bool,
    /// Its dead letters that nobody has requeued.
    pub dead_letters: u64,
}

impl Report {
    /// Looks at the files of a repository; works while a worker runs, and while none does. Blocks.
    pub fn of(repo: &Path) -> Result<Self> {
        let mut refs = Refs::default();
        let waiting = Waiting::of(&Journal::open(repo)?, &mut refs)?;
        let worker = WorkerState::load(repo)?;
        let letters = DeadLetters::open(repo)?;
        refs.given_up(&letters)?;
        refs.parked(worker.as_ref());
        let records = Statuses::open(repo)?.latest(SPEED_RECORDS)?;
        let speed = speed(&records);
        let works = worker.as_ref().is_some_and(|state| state.running && state.breaker == "closed");
        #[expect(clippy::cast_precision_loss, reason = "a forecast, not a figure")]
        let backlog = waiting.lines as f64;
        Ok(Self {
            worker,
            backlog: waiting.lines,
            backlog_is_exact: waiting.exact,
            oldest_pending_at: waiting.oldest,
            lag_seconds: lag(waiting.oldest, clock::wall()),
            dead_letters: letters.open_count()?,
            checkpoint: match Checkpoint::load(repo)? {
                Loaded::Found(checkpoint) => Some(checkpoint),
                Loaded::Absent | Loaded::Unreadable => None,
            },
            caught_up_in_seconds: match speed {
                _ if waiting.lines == 0 => Some(0.0),
                Some(speed) if works => Some(backlog / speed),
                _ => None,
            },
            speed,
            last_mirrored: records.into_iter().find(|record| record.status == Status::Completed),
            refs_are_all: waiting.exact && !refs.more,
            refs: refs.found(),
        })
    }
}

/// What is known of single refs.
#[derive(Debug, Default)]
struct Refs {
    by_name: BTreeMap<String, RefReport>,
    more: bool,
}

impl Refs {
    fn entry(&mut self, name: &str) -> Option<&mut RefReport> {
        if self.by_name.len() >= REFS_MAX && !self.by_name.contains_key(name) {
            self.more = true;
            return None;
        }
        let new = || RefReport { name: name.to_owned(), ..RefReport::default() };
        Some(self.by_name.entry(name.to_owned()).or_insert_with(new))
    }

    fn waits(&mut self, name: &str, since: Option<Timestamp>) {
        if let Some(found) = self.entry(name) {
            found.waiting += 1;
            found.oldest_pending_at = found.oldest_pending_at.or(since);
        }
    }

    fn given_up(&mut self, letters: &DeadLetters) -> Result<()> {
        let stored = letters.list(None, LETTERS_LOOKED_AT)?;
        self.more |= stored.len() >= LETTERS_LOOKED_AT;
        for stored in stored.into_iter().filter(|stored| stored.state == State::Open) {
            let Payload::Entry(fields) = &stored.letter.payload else { continue };
            let Some(name) = fields.get("ref").and_then(|value| value.as_str()) else { continue };
            if let Some(found) = self.entry(name) {
                found.dead_letters += 1;
            }
        }
        Ok(())
    }

    fn parked(&mut self, worker: Option<&WorkerState>) {
        for name in worker.map_or(&[][..], |worker| &worker.parked) {
            if let Some(found) = self.entry(name) {
                found.parked = true;
            }
        }
    }

    fn found(self) -> Vec<RefReport> {
        let now = clock::wall();
        let with_lag = |mut found: RefReport| {
            found.lag_seconds = lag(found.oldest_pending_at, now);
            found
        };
        self.by_name.into_values().map(with_lag).collect()
    }
}

fn lag(since: Option<Timestamp>, now: Timestamp) -> f64 {
    let lag = since.map_or(SignedDuration::ZERO, |at| now.duration_since(at));
    lag.max(SignedDuration::ZERO).as_secs_f64()
}

struct Waiting {
    lines: u64,
    exact: bool,
    oldest: Option<Timestamp>,
}

impl Waiting {
    fn of(journal: &Journal, refs: &mut Refs) -> Result<Self> {
        let (mut reader, _) = journal.resume()?;
        let mut waiting = Self { lines: 0, exact: true, oldest: None };
        let mut bytes = 0;
        while let Next::Line(line) = reader.next()? {
            waiting.lines += 1;
            bytes += line.to - line.from;
            let written = line.entry.as_ref().ok().and_then(|entry| entry.timestamp);
            if let Ok(entry) = &line.entry {
                refs.waits(&entry.ref_name, written);
            }
            waiting.oldest = waiting.oldest.or(written);
            if waiting.lines >= COUNTED_MAX {
                let rest = journal.bytes_after(reader.position())?;
                waiting.exact = rest == 0;
                waiting.lines += rest * waiting.lines / bytes.max(1);
                break;
            }
        }
        Ok(waiting)
    }
}

/// Entries a second in the last stretch of work; none if there is too little to tell.
fn speed(newest_first: &[Record]) -> Option<f64> {
    let mut count = 1_u32;
    let mut last = newest_first.first()?.at;
    for record in &newest_first[1..] {
        if last.duration_since(record.at) > SPEED_PAUSE_MAX {
            break;
        }
        last = record.at;
        count += 1;
    }
    let took = newest_first.first()?.at.duration_since(last).as_secs_f64();
    (count > 1 && took > 0.0).then(|| f64::from(count - 1) / took)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(at: i64) -> Record {
        let mut record = Record::new("x", 0, Status::Completed, 1);
        record.at = Timestamp::from_second(at).unwrap();
        record
    }

    #[test]
    fn speed_is_that_of_the_last_stretch_of_work() {
        let speed_of = |seconds: &[i64]| speed(&seconds.iter().copied().map(record).collect::<Vec<_>>());
        assert_eq!(speed_of(&[104, 102, 100]), Some(0.5));
        assert_eq!(speed_of(&[1004, 1002, 1000, 10]), Some(0.5), "an old record does not count");
        assert_eq!(speed_of(&[5]), None);
        assert_eq!(speed_of(&[]), None);
        assert_eq!(speed_of(&[5, 5]), None);
    }

    fn standing_of(running: bool, breaker: &str, backlog: u64) -> Report {
        let worker = WorkerState { running, breaker: breaker.to_owned(), ..WorkerState::default() };
        Report {
            worker: Some(worker),
            backlog,
            backlog_is_exact: true,
            oldest_pending_at: None,
            lag_seconds: 0.0,
            dead_letters: 0,
            checkpoint: None,
            last_mirrored: None,
            speed: None,
            caught_up_in_seconds: None,
            refs: Vec::new(),
            refs_are_all: true,
        }
    }

    #[test]
    fn the_standing_names_what_an_operator_has_to_do_first() {
        let of = |report: &Report| Standing::of(report, true);
        assert_eq!(of(&standing_of(true, "closed", 0)), Standing::CaughtUp);
        assert_eq!(of(&standing_of(true, "closed", 3)), Standing::CatchingUp);
        assert_eq!(of(&standing_of(true, "probing", 0)), Standing::RemoteAway);
        assert_eq!(of(&standing_of(false, "open", 3)), Standing::NotRunning);
        assert_eq!(of(&Report { worker: None, ..standing_of(true, "closed", 0) }), Standing::NotRunning);
        assert_eq!(Standing::of(&standing_of(true, "closed", 0), false), Standing::NoRemote);
    }
}
