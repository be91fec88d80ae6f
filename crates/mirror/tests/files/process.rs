//! Another process, which can be killed: this test binary again, told by its environment what to do.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use stargate_mirror::dead_letter::{NewLetter, Reason, Requeue};
use stargate_mirror::status::{Record, Status};
use stargate_mirror::{Checkpoint, DeadLetters, Journal, Next, Result, Statuses};

use crate::fixture::{Repo, all, entry, number};

const TOLD: &str = "STARGATE_TEST_MIRROR";
/// The end of a process that met [`stargate_mirror::Error::FailStop`].
pub(crate) const FAIL_STOP: i32 = 70;
/// The end of a process that met a full disk.
pub(crate) const FULL: i32 = 71;
/// Writes before the work begins. The test harness writes, too, in a thread of its own that is counted apart; so many
/// it does not.
pub(crate) const WARM_UP: usize = 20;

/// What to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) work: Work,
    pub(crate) repo: PathBuf,
    pub(crate) segment_bytes: u64,
    /// Each acknowledged number is appended to this file.
    pub(crate) acknowledged: PathBuf,
    /// The largest file it may write.
    pub(crate) file_bytes_max: Option<u64>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Work {
    /// Appends entries, one number after the other, some at once.
    Append { from: u64, count: u64, at_once: u64 },
    /// Accounts for everything in the journal, as the worker does.
    Account,
    /// The same with one checkpoint at the end.
    AccountAtOnce,
    /// Dead-letters the first line and requeues it.
    GiveUp,
}

impl Order {
    pub(crate) fn new(repo: &Repo, work: Work) -> Self {
        Self {
            work,
            repo: repo.path().to_owned(),
            segment_bytes: 1000,
            acknowledged: repo.path().join("acknowledged"),
            file_bytes_max: None,
        }
    }

    /// The numbers that were acknowledged.
    pub(crate) fn acknowledged(&self) -> Vec<u64> {
        let text = std::fs::read_to_string(&self.acknowledged).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    /// The process that does it, by way of another program if there is one.
    pub(crate) fn command(&self, by_way_of: &[String]) -> Command {
        let own = std::env::current_exe().unwrap();
        let own = own.to_str().unwrap().to_owned();
        let mut words = by_way_of.to_vec();
        words.push(own);
        #[expect(clippy::disallowed_methods, reason = "a process that can be killed")]
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(["--exact", "process::the_process_that_is_told_what_to_do_does_it"]);
        command.arg("--nocapture").env(TOLD, serde_json::to_string(self).unwrap());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

/// The other process. Without an order it appends something in a place of its own.
#[test]
fn the_process_that_is_told_what_to_do_does_it() {
    let Ok(told) = std::env::var(TOLD) else {
        let repo = Repo::new();
        let order = Order::new(&repo, Work::Append { from: 1, count: 3, at_once: 2 });
        perform(&order).unwrap();
        assert_eq!(all(&repo.journal()), (vec![1, 2, 3], 0));
        assert_eq!(order.acknowledged(), [1, 2, 3]);
        return;
    };
    let order: Order = serde_json::from_str(&told).unwrap();
    let mut nowhere = std::fs::OpenOptions::new().write(true).open("/dev/null").unwrap();
    for _ in 0..WARM_UP {
        nowhere.write_all(b"x").unwrap();
    }
    if let Some(bytes) = order.file_bytes_max {
        let limit = rustix::process::Rlimit { current: Some(bytes), maximum: Some(bytes) };
        rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();
    }
    let code = match perform(&order) {
        Ok(()) => return,
        Err(error) if error.is_fail_stop() => FAIL_STOP,
        Err(error) if error.code() == "MIRROR_DISK_FULL" => FULL,
        Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
    };
    std::process::exit(code);
}

fn perform(order: &Order) -> Result<()> {
    let journal = Journal::open_with(&order.repo, order.segment_bytes)?;
    match order.work {
        Work::Append { from, count, at_once } => {
            let numbers: Vec<u64> = (from..from + count).collect();
            for some in numbers.chunks(usize::try_from(at_once).unwrap()) {
                journal.append(&some.iter().map(|n| entry(*n)).collect::<Vec<_>>())?;
                acknowledge(&order.acknowledged, some);
            }
            Ok(())
        }
        Work::Account => account(order, &journal),
        Work::AccountAtOnce => {
            let mut reader = journal.read_all()?;
            while let Next::Line(_) = reader.next()? {}
            reader.sync()?;
            Checkpoint::store(&order.repo, reader.position()).map(drop)
        }
        Work::GiveUp => give_up(order, &journal),
    }
}

/// Push, status record, sync of the journal, checkpoint; the push is the acknowledgement here.
fn account(order: &Order, journal: &Journal) -> Result<()> {
    let statuses = Statuses::open_with(&order.repo, 300)?;
    let index = statuses.index()?;
    let (mut reader, _) = journal.resume()?;
    while let Next::Line(line) = reader.next()? {
        if index.status(&line.entry_id(), line.crc).is_none() {
            acknowledge(&order.acknowledged, &[number(line.entry.as_ref().unwrap())]);
            statuses.append(&[Record::new(line.entry_id(), line.crc, Status::Completed, 1)])?;
        }
        reader.sync()?;
        Checkpoint::store(&order.repo, &line.position)?;
    }
    Ok(())
}

fn give_up(order: &Order, journal: &Journal) -> Result<()> {
    let Next::Line(line) = journal.read_all()?.next()? else { panic!("the journal is empty") };
    let letters = DeadLetters::open(&order.repo)?;
    letters.rebuild_view()?;
    let id = letters.add(NewLetter::new(&line, Reason::Outage, "x"))?;
    letters.requeue(journal, &id, Requeue::Once)?;
    acknowledge(&order.acknowledged, &[1]);
    Ok(())
}

fn acknowledge(path: &Path, numbers: &[u64]) {
    let lines: String = numbers.iter().map(|n| format!("{n}\n")).collect();
    crate::fixture::append_raw(path, lines.as_bytes());
}
