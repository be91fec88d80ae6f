//! A repository, entries for it, and all that its journal says.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use stargate_mirror::journal::Line;
use stargate_mirror::{Entry, Journal, NewEntry, Next, Reader};

/// A directory that passes for a bare repository.
pub(crate) struct Repo(tempfile::TempDir);

impl Repo {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// One in memory, where there is such a place: for tests of many small steps, in which nothing is killed.
    pub(crate) fn in_memory() -> Self {
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        Self(tempfile::tempdir_in(dir).unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path().join(".stargate").join(name)
    }

    pub(crate) fn active(&self) -> PathBuf {
        self.file("mirror-journal.ndjson")
    }

    pub(crate) fn journal(&self) -> Journal {
        Journal::open(self.path()).unwrap()
    }

    /// A journal with small segments.
    pub(crate) fn small(&self) -> Journal {
        Journal::open_with(self.path(), 1000).unwrap()
    }

    /// Appends bytes as somebody would who knows nothing of us.
    pub(crate) fn append_raw(&self, bytes: impl AsRef<[u8]>) {
        append_raw(&self.active(), bytes.as_ref());
    }
}

pub(crate) fn append_raw(path: &Path, bytes: &[u8]) {
    std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap().write_all(bytes).unwrap();
}

/// The entry number `n`, of which the object id tells.
pub(crate) fn entry(n: u64) -> NewEntry {
    NewEntry {
        ref_name: "refs/kv/main".to_owned(),
        new_oid: format!("{n:040x}"),
        source: "post-receive".to_owned(),
        ..NewEntry::default()
    }
}

/// Which entry it is.
pub(crate) fn number(entry: &Entry) -> u64 {
    u64::from_str_radix(&entry.new_oid, 16).unwrap()
}

/// A line of another writer.
pub(crate) fn foreign(n: u64) -> String {
    format!("{{\"ref\": \"refs/kv/foreign\", \"new_oid\": \"{n:040x}\"}}\n")
}

/// All lines up to the end.
pub(crate) fn rest(reader: &mut Reader) -> Vec<Line> {
    let mut lines = Vec::new();
    loop {
        match reader.next().unwrap() {
            Next::Line(line) => lines.push(*line),
            Next::NotYet => return lines,
            Next::Broken(mismatch) => panic!("after {} lines: {mismatch}", lines.len()),
        }
    }
}

/// The numbers of all entries, from the oldest line on, and how many lines are none.
pub(crate) fn all(journal: &Journal) -> (Vec<u64>, usize) {
    let lines = rest(&mut journal.read_all().unwrap());
    let entries: Vec<u64> = lines.iter().filter_map(|line| line.entry.as_ref().ok()).map(number).collect();
    let bad = lines.len() - entries.len();
    (entries, bad)
}

/// Their numbers in the journal, which must rise.
pub(crate) fn assert_rising(journal: &Journal) {
    let lines = rest(&mut journal.read_all().unwrap());
    let seqs: Vec<u64> = lines.iter().filter_map(|line| line.entry.as_ref().ok()?.seq).collect();
    assert!(seqs.is_sorted_by(|a, b| a < b), "{seqs:?}");
}

pub(crate) fn next_line(reader: &mut Reader) -> Line {
    match reader.next().unwrap() {
        Next::Line(line) => *line,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn assert_not_yet(reader: &mut Reader) {
    let next = reader.next().unwrap();
    assert!(matches!(next, Next::NotYet), "{next:?}");
}

/// A number that can be raised for a longer run.
pub(crate) fn amount(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).ok().map_or(usual, |text| text.parse().unwrap())
}
