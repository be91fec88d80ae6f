//! Reading: through rotation, on from a checkpoint, and when the journal is not the one it was.

use stargate_mirror::journal::Mismatch;
use stargate_mirror::{Checkpoint, Next, Resume};

use crate::fixture::{Repo, all, append_raw, assert_not_yet, entry, foreign, next_line, number, rest};

fn cut(repo: &Repo, bytes: u64) {
    std::fs::File::options().write(true).open(repo.active()).unwrap().set_len(bytes).unwrap();
}

/// A repository with entries 1 to 5, of which 1 to 3 are accounted for, and the length of the journal after each.
fn checkpointed() -> (Repo, Vec<u64>) {
    let repo = Repo::new();
    let journal = repo.journal();
    for n in 1..=5 {
        journal.append(&[entry(n)]).unwrap();
    }
    let lines = rest(&mut journal.read_all().unwrap());
    Checkpoint::store(repo.path(), &lines[2].position).unwrap();
    (repo, lines.iter().map(|line| line.to).collect())
}

/// Where a new reader begins, and what it reads.
fn resume(repo: &Repo) -> (Resume, Vec<u64>) {
    let (mut reader, resume) = repo.journal().resume().unwrap();
    let lines = rest(&mut reader);
    (resume, lines.iter().filter_map(|line| line.entry.as_ref().ok()).map(number).collect())
}

#[test]
fn a_reader_follows_the_writers_through_the_segments() {
    let repo = Repo::in_memory();
    let journal = repo.small();
    let mut reader = journal.read_all().unwrap();
    assert_not_yet(&mut reader);
    let mut read = Vec::new();
    for n in 1..=60 {
        journal.append(&[entry(n)]).unwrap();
        // In steps, so that it sometimes lies several segments behind.
        if n % 7 == 0 {
            read.extend(rest(&mut reader));
        }
    }
    read.extend(rest(&mut reader));
    let numbers: Vec<u64> = read.iter().map(|line| number(line.entry.as_ref().unwrap())).collect();
    assert_eq!(numbers, (1..=60).collect::<Vec<_>>());
    // Each position is one from which exactly the rest is read.
    for (index, line) in read.iter().enumerate() {
        let mut reader = journal.read_from(&line.position).unwrap().unwrap();
        let after: Vec<u64> =
            rest(&mut reader).iter().map(|line| number(line.entry.as_ref().unwrap())).collect();
        assert_eq!(after, numbers[index + 1..]);
        let after = journal.bytes_after(&line.position).unwrap();
        assert_eq!(after == 0, index + 1 == read.len(), "{after} bytes");
    }
}

#[test]
fn reading_goes_on_after_the_checkpoint() {
    let (repo, _) = checkpointed();
    assert_eq!(resume(&repo), (Resume::Checkpoint, vec![4, 5]));
}

#[test]
fn without_a_checkpoint_or_with_one_that_cannot_be_read_everything_is_read() {
    let (repo, _) = checkpointed();
    let path = repo.file("mirror-worker.offset");
    let whole = std::fs::read(&path).unwrap();
    for cut in 0..whole.len() - 1 {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let expected = Resume::Rescan(Mismatch::Unreadable);
        assert_eq!(resume(&repo), (expected, vec![1, 2, 3, 4, 5]), "cut at {cut}");
    }
    std::fs::remove_file(&path).unwrap();
    assert_eq!(resume(&repo), (Resume::Beginning, vec![1, 2, 3, 4, 5]));
}

#[test]
fn a_journal_that_is_shorter_than_the_checkpoint_is_read_from_the_beginning() {
    let (repo, ends) = checkpointed();
    cut(&repo, ends[1]);
    assert_eq!(resume(&repo), (Resume::Rescan(Mismatch::Shorter), vec![1, 2]));
    // New entries are not passed over, although they stand where old ones stood.
    for n in 6..=9 {
        repo.journal().append(&[entry(n)]).unwrap();
    }
    assert_eq!(resume(&repo), (Resume::Rescan(Mismatch::OtherLine), vec![1, 2, 6, 7, 8, 9]));
}

#[test]
fn a_journal_with_another_line_at_the_checkpoint_is_read_from_the_beginning() {
    let (repo, ends) = checkpointed();
    let mut bytes = std::fs::read(repo.active()).unwrap();
    let at = usize::try_from(ends[1]).unwrap() + 20;
    bytes[at] ^= 1;
    std::fs::write(repo.active(), bytes).unwrap();
    assert_eq!(resume(&repo), (Resume::Rescan(Mismatch::OtherLine), vec![1, 2, 4, 5]));
}

#[test]
fn another_journal_is_read_from_the_beginning() {
    let (repo, _) = checkpointed();
    std::fs::write(repo.file("mirror-journal.id"), "another\n").unwrap();
    assert_eq!(resume(&repo), (Resume::Rescan(Mismatch::OtherJournal), vec![1, 2, 3, 4, 5]));
    std::fs::remove_file(repo.file("mirror-journal.id")).unwrap();
    assert_eq!(resume(&repo).0, Resume::Rescan(Mismatch::OtherJournal));
}

#[test]
fn a_journal_that_is_gone_is_noticed_and_a_new_one_read() {
    let (repo, _) = checkpointed();
    std::fs::remove_file(repo.active()).unwrap();
    assert_eq!(resume(&repo), (Resume::Rescan(Mismatch::NoSegment), vec![]));
    repo.append_raw(foreign(7));
    assert_eq!(resume(&repo), (Resume::Rescan(Mismatch::Shorter), vec![7]));
}

#[test]
fn a_reader_notices_what_happens_to_the_journal_under_it() {
    type Harm = fn(&Repo);
    let harms: [(Harm, Mismatch); 4] = [
        (|repo| cut(repo, 10), Mismatch::Shorter),
        (
            |repo| {
                // Cut short and grown again, beyond where the reader is.
                cut(repo, 0);
                for n in 11..=20 {
                    repo.journal().append(&[entry(n)]).unwrap();
                }
            },
            Mismatch::OtherLine,
        ),
        (|repo| std::fs::remove_file(repo.active()).unwrap(), Mismatch::Replaced),
        (
            |repo| {
                let bytes = std::fs::read(repo.active()).unwrap();
                std::fs::remove_file(repo.active()).unwrap();
                std::fs::write(repo.active(), bytes).unwrap();
            },
            Mismatch::Replaced,
        ),
    ];
    for (harm, expected) in harms {
        let repo = Repo::new();
        let journal = repo.journal();
        journal.append(&[entry(1), entry(2)]).unwrap();
        let mut reader = journal.read_all().unwrap();
        rest(&mut reader);
        harm(&repo);
        let next = reader.next().unwrap();
        assert!(matches!(next, Next::Broken(mismatch) if mismatch == expected), "{next:?}, not {expected}");
    }
}

#[test]
fn a_line_that_comes_late_to_a_full_segment_is_read_and_only_once() {
    let repo = Repo::new();
    let journal = repo.small();
    // As somebody who opened the file before it was full, and waited.
    journal.append(&[entry(1)]).unwrap();
    let late = std::fs::File::options().append(true).open(repo.active()).unwrap();
    for n in 2..=8 {
        journal.append(&[entry(n)]).unwrap();
    }
    let mut reader = journal.read_all().unwrap();
    assert_eq!(rest(&mut reader).len(), 8);
    let before = reader.position().clone();
    std::io::Write::write_all(&mut &late, foreign(100).as_bytes()).unwrap();
    std::io::Write::write_all(&mut &late, b"{\"ref\":\"refs/").unwrap();
    let line = next_line(&mut reader);
    assert_eq!((line.segment, number(line.entry.as_ref().unwrap())), (1, 100));
    assert_not_yet(&mut reader);

    // Whoever died before the checkpoint reads it again; whoever stored it does not.
    let again = rest(&mut journal.read_from(&before).unwrap().unwrap());
    assert_eq!(again.len(), 1);
    let checkpoint = Checkpoint::store(repo.path(), &line.position).unwrap();
    let (mut reader, resume) = journal.resume().unwrap();
    assert_eq!(resume, Resume::Checkpoint);
    assert_not_yet(&mut reader);
    journal.append(&[entry(9)]).unwrap();
    assert_eq!(number(next_line(&mut reader).entry.as_ref().unwrap()), 9);
    // And with an unread end it is not removed.
    assert!(!journal.remove_segments(&checkpoint, jiff::Timestamp::MAX).unwrap().contains(&1));
}

#[test]
fn a_missing_segment_does_not_keep_what_follows_from_being_read() {
    let repo = Repo::new();
    let journal = repo.small();
    for n in 1..=20 {
        journal.append(&[entry(n)]).unwrap();
    }
    let lines = rest(&mut journal.read_all().unwrap());
    std::fs::remove_file(repo.file("mirror-journal.0000000002.ndjson")).unwrap();
    let expected: Vec<u64> = lines
        .iter()
        .filter(|line| line.segment != 2)
        .map(|line| number(line.entry.as_ref().unwrap()))
        .collect();
    assert_eq!(all(&journal), (expected, 0));
}

#[test]
fn lines_that_are_too_long_empty_or_of_others_do_not_stop_the_reader() {
    let repo = Repo::new();
    let journal = repo.journal();
    repo.append_raw("\n \r\n");
    journal.append(&[entry(1)]).unwrap();
    repo.append_raw("x".repeat(100_000));
    repo.append_raw("\n");
    repo.append_raw("y".repeat(1_000_000));
    assert_eq!(all(&journal), (vec![1], 1), "the last one is not written yet");
    repo.append_raw("\n\n\n");
    repo.append_raw(foreign(2));
    repo.append_raw([0xff, 0xfe, b'\n']);
    journal.append(&[entry(3)]).unwrap();
    assert_eq!(all(&journal), (vec![1, 2, 3], 3));

    let lines = rest(&mut journal.read_all().unwrap());
    let long = lines.iter().find(|line| line.to - line.from == 1_000_001).unwrap();
    let malformed = long.entry.as_ref().unwrap_err();
    assert_eq!((malformed.raw.len(), malformed.bytes), (65_536, 1_000_000));
    for line in &lines {
        let mut reader = journal.read_from(&line.position).unwrap().unwrap();
        rest(&mut reader);
        let again = reader.reread(line).unwrap().unwrap();
        assert_eq!(
            (again.entry, again.crc, again.position),
            (line.entry.clone(), line.crc, line.position.clone())
        );
    }
}

#[test]
fn a_line_that_was_mended_is_read_when_it_is_read_again() {
    let repo = Repo::new();
    let journal = repo.journal();
    let good = foreign(5);
    append_raw(&repo.active(), format!("{}\n", "?".repeat(good.len() - 1)).as_bytes());
    let mut reader = journal.read_all().unwrap();
    let line = next_line(&mut reader);
    assert!(line.entry.is_err());
    std::fs::write(repo.active(), &good).unwrap();
    let again = reader.reread(&line).unwrap().unwrap();
    assert_eq!(number(again.entry.as_ref().unwrap()), 5);
    Checkpoint::store(repo.path(), &again.position).unwrap();
    assert_eq!(resume(&repo).0, Resume::Checkpoint);
    std::fs::write(repo.active(), "").unwrap();
    assert!(reader.reread(&line).unwrap().is_none());
}
