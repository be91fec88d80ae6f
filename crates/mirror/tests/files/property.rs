//! Random histories of a journal, compared with a simple model: a text, cut at its newlines.

use proptest::prelude::*;
use stargate_mirror::journal::Line;
use stargate_mirror::{Checkpoint, Journal, NewEntry, Next, Resume};

use crate::fixture::{Repo, amount, entry, foreign, number};

/// What happens to a journal.
#[derive(Debug, Clone)]
enum Event {
    /// We append so many entries.
    Append(u64),
    /// Somebody appends these bytes.
    Raw(Vec<u8>),
    /// The reader reads so many lines.
    Read(usize),
    /// The worker stores a checkpoint, and dies.
    Checkpoint,
    /// The worker dies.
    Die,
}

fn raw() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"\n".to_vec()),
        Just(b" \n\n".to_vec()),
        (0u64..1000).prop_map(|n| foreign(n).into_bytes()),
        (0u64..1000, 0usize..80).prop_map(|(n, cut)| foreign(n).into_bytes()[..cut].to_vec()),
        prop::collection::vec(any::<u8>(), 1..60),
        Just(vec![b'z'; 70_000]),
    ];
    prop::collection::vec(piece, 1..4).prop_map(|pieces| pieces.concat())
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1u64..4).prop_map(Event::Append),
        3 => raw().prop_map(Event::Raw),
        4 => (0usize..5).prop_map(Event::Read),
        1 => Just(Event::Checkpoint),
        1 => Just(Event::Die),
    ]
}

/// What must be read.
#[derive(Debug, Clone, PartialEq)]
enum Expected {
    Ours(u64),
    Raw(Vec<u8>),
}

#[derive(Default)]
struct Model {
    lines: Vec<Expected>,
    tail: Vec<u8>,
    appended: u64,
}

impl Model {
    fn raw(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        while let Some(newline) = self.tail.iter().position(|b| *b == b'\n') {
            let rest = self.tail.split_off(newline + 1);
            let mut line = std::mem::replace(&mut self.tail, rest);
            line.pop();
            if !line.trim_ascii().is_empty() || line.len() >= 65_536 {
                self.lines.push(Expected::Raw(line));
            }
        }
    }

    fn append(&mut self, count: u64) -> Vec<stargate_mirror::NewEntry> {
        if !self.tail.is_empty() {
            self.raw(b"\n");
        }
        let numbers = self.appended..self.appended + count;
        self.appended += count;
        self.lines.extend(numbers.clone().map(Expected::Ours));
        numbers.map(entry).collect()
    }
}

fn assert_is(line: &Line, expected: &Expected) {
    match expected {
        Expected::Ours(n) => {
            let entry = line.entry.as_ref().unwrap();
            assert!(entry.checked);
            assert_eq!(number(entry), *n);
        }
        Expected::Raw(bytes) => {
            let kept = bytes.len().min(65_536);
            assert!(line.raw == bytes[..kept], "{line:?} is not {}", String::from_utf8_lossy(bytes));
            assert_eq!(line.to - line.from, bytes.len() as u64 + 1);
            assert!(line.entry.as_ref().map_or(true, |entry| !entry.checked));
        }
    }
}

fn play(events: Vec<Event>) {
    let repo = Repo::in_memory();
    // Every journal begins with an entry, so that there is a file for others to append to.
    let journal = Journal::open_with(repo.path(), 1500).unwrap();
    let mut model = Model::default();
    journal.append(&model.append(1)).unwrap();
    let (mut reader, _) = journal.resume().unwrap();
    let (mut read, mut stored) = (0, None);
    let mut position = reader.position().clone();
    for event in events.into_iter().chain([Event::Read(usize::MAX)]) {
        match event {
            Event::Append(count) => drop(journal.append(&model.append(count)).unwrap()),
            Event::Raw(bytes) => {
                repo.append_raw(&bytes);
                model.raw(&bytes);
            }
            Event::Read(count) => {
                for _ in 0..count {
                    match reader.next().unwrap() {
                        Next::Line(line) => {
                            assert_is(&line, &model.lines[read]);
                            position = line.position;
                            read += 1;
                        }
                        Next::NotYet => {
                            assert_eq!(read, model.lines.len());
                            break;
                        }
                        Next::Broken(mismatch) => panic!("{mismatch}"),
                    }
                }
            }
            Event::Checkpoint if read > 0 => {
                reader.sync().unwrap();
                Checkpoint::store(repo.path(), &position).unwrap();
                stored = Some(read);
            }
            Event::Checkpoint => {}
            Event::Die => {
                let (again, resume) = Journal::open_with(repo.path(), 1500).unwrap().resume().unwrap();
                let expected = if stored.is_some() { Resume::Checkpoint } else { Resume::Beginning };
                assert_eq!(resume, expected);
                reader = again;
                position = reader.position().clone();
                read = stored.unwrap_or(0);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: u32::try_from(amount("STARGATE_TEST_CASES", 300)).unwrap(),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_happens_to_a_journal_its_lines_are_read_in_order_and_once(
        events in prop::collection::vec(event(), 1..40),
    ) {
        play(events);
    }
}

/// Lines of ours, as they are in a file.
fn lines_of_ours() -> Vec<Vec<u8>> {
    let repo = Repo::in_memory();
    for n in 0..8 {
        let meta = serde_json::from_value(serde_json::json!({"txn_id": "t", "crc": "00000000"})).unwrap();
        let old_oid = Some("1".repeat(40));
        let new = NewEntry { pusher: Some("ä \"\\\n".to_owned()), meta, old_oid, ..entry(n) };
        repo.journal().append(&[if n % 2 == 0 { new } else { entry(n) }]).unwrap();
    }
    let text = std::fs::read(repo.active()).unwrap();
    text.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect()
}

/// A line of ours, or most of it: a part is cut out, and something is put in its place.
fn damaged(ours: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let put = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..3),
        Just(b"\",\"crc\":\"00000000\"}".to_vec()),
        Just(b",\"ref\":\"refs/heads/x\"".to_vec()),
        Just(b"\n".to_vec()),
    ];
    (prop::sample::select(ours), any::<prop::sample::Index>(), 0usize..30, put).prop_map(
        |(line, from, cut, put)| {
            let from = from.index(line.len());
            let to = (from + cut).min(line.len());
            [&line[..from], &put, &line[to..]].concat()
        },
    )
}

/// What somebody may find in the place of a journal.
fn content(ours: &[Vec<u8>]) -> impl Strategy<Value = Vec<u8>> + use<> {
    let piece = prop_oneof![
        2 => prop::sample::select(ours.to_vec()),
        4 => damaged(ours.to_vec()),
        1 => (0u64..1000).prop_map(|n| foreign(n).into_bytes()),
        1 => prop::collection::vec(any::<u8>(), 1..40),
        1 => Just(b" \n".to_vec()),
    ];
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

/// Whether a line is an entry, said in another way than the reader's.
fn may_be_an_entry(line: &[u8]) -> bool {
    let Ok(fields) = serde_json::from_slice::<serde_json::Value>(line) else { return false };
    let oid = fields["new_oid"].as_str().or(fields["oid"].as_str()).unwrap_or_default();
    let is_oid = [40, 64].contains(&oid.len()) && oid.bytes().all(|b| b.is_ascii_hexdigit());
    is_oid && fields["ref"].as_str().is_some_and(|name| name.starts_with("refs/"))
}

fn read_back(journal: &Journal, repo: &Repo, ours: &[Vec<u8>], content: &[u8]) {
    std::fs::write(repo.active(), content).unwrap();
    let mut reader = journal.read_all().unwrap();
    let whole = content.iter().rposition(|b| *b == b'\n').map_or(&[][..], |end| &content[..=end]);
    let expected = whole.split_inclusive(|b| *b == b'\n').filter(|line| !line.trim_ascii().is_empty());
    for expected in expected {
        let Next::Line(line) = reader.next().unwrap() else { panic!("a line is missing") };
        assert_eq!(line.raw, expected[..expected.len() - 1], "another line");
        let is_ours = ours.iter().any(|line| line == expected);
        assert_eq!(line.entry.as_ref().is_ok_and(|entry| entry.checked), is_ours, "taken for ours, or not");
        assert!(line.entry.is_err() || may_be_an_entry(&line.raw), "taken for an entry");
    }
    assert!(matches!(reader.next().unwrap(), Next::NotYet), "a line too many");
}

#[test]
fn whatever_stands_in_a_journal_no_line_is_taken_for_what_it_is_not() {
    let ours = lines_of_ours();
    let repo = Repo::in_memory();
    let journal = repo.journal();
    journal.append(&[entry(1)]).unwrap();
    let cases = u32::try_from(amount("STARGATE_TEST_CASES", 3000)).unwrap();
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = prop::test_runner::TestRunner::new(config);
    let read = |content: Vec<u8>| {
        read_back(&journal, &repo, &ours, &content);
        Ok(())
    };
    runner.run(&content(&ours), read).unwrap();
}
