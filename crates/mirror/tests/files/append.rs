//! Appending: order, numbers, segments, and what is refused.

use stargate_mirror::journal::APPEND_ENTRIES_MAX;
use stargate_mirror::{Checkpoint, Error, Journal, NewEntry};

use crate::fixture::{Repo, all, assert_rising, entry, foreign, rest};

#[test]
fn entries_of_one_append_stand_together_in_their_order() {
    let repo = Repo::new();
    let journal = repo.journal();
    let appended = journal.append(&[entry(1), entry(2), entry(3)]).unwrap();
    assert_eq!(appended.iter().map(|a| a.seq).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(journal.append(&[]).unwrap(), []);
    assert_eq!(journal.append(&[entry(4)]).unwrap()[0].seq, 4);
    assert_eq!(all(&journal), (vec![1, 2, 3, 4], 0));
    let lines = rest(&mut journal.read_all().unwrap());
    assert_eq!(lines[0].entry.as_ref().unwrap().entry_id, appended[0].entry_id);
    assert_eq!(appended[0].entry_id.len(), 26);
    assert!(lines.iter().all(|line| line.entry.as_ref().unwrap().checked));
}

#[test]
fn numbers_rise_through_segments_and_processes_that_begin_anew() {
    let repo = Repo::new();
    for n in 1..=40 {
        assert_eq!(repo.small().append(&[entry(n)]).unwrap()[0].seq, n);
    }
    let journal = repo.small();
    let segments = journal.segments().unwrap();
    assert!(segments.len() > 5, "{segments:?}");
    assert!(segments.iter().map(|s| s.number).eq(1..=segments.len() as u64));
    assert!(segments.iter().rev().skip(1).all(|s| s.full));
    assert_eq!(all(&journal), ((1..=40).collect(), 0));
}

#[test]
fn a_writer_that_died_between_renaming_and_beginning_a_segment_costs_no_number() {
    let repo = Repo::new();
    repo.small().append(&[entry(1), entry(2)]).unwrap();
    std::fs::copy(repo.active(), repo.file("mirror-journal.0000000001.ndjson")).unwrap();
    std::fs::remove_file(repo.active()).unwrap();
    let journal = repo.small();
    assert_eq!(all(&journal), (vec![1, 2], 0));
    assert_eq!(journal.append(&[entry(3)]).unwrap()[0].seq, 3);
    assert_eq!(all(&journal), (vec![1, 2, 3], 0));
}

#[test]
fn numbers_of_other_writers_do_not_count() {
    let repo = Repo::new();
    let journal = repo.journal();
    journal.append(&[entry(1)]).unwrap();
    repo.append_raw(foreign(2).replace('{', &format!("{{\"seq\": {}, ", u64::MAX)));
    for n in 3..50 {
        repo.append_raw(foreign(n));
    }
    assert_eq!(journal.append(&[entry(50)]).unwrap()[0].seq, 2);
    assert_eq!(all(&journal).0, (1..=50).collect::<Vec<_>>());
}

#[test]
fn a_journal_that_was_cut_short_gives_no_number_out_again_that_the_checkpoint_is_past() {
    let repo = Repo::new();
    let journal = repo.journal();
    journal.append(&[entry(1), entry(2), entry(3)]).unwrap();
    let lines = rest(&mut journal.read_all().unwrap());
    Checkpoint::store(repo.path(), &lines[2].position).unwrap();
    std::fs::File::options().write(true).open(repo.active()).unwrap().set_len(lines[0].to).unwrap();
    assert_eq!(journal.append(&[entry(4)]).unwrap()[0].seq, 4);
    assert_rising(&journal);
}

#[test]
fn what_cannot_be_written_leaves_nothing_behind() {
    let repo = Repo::new();
    let journal = repo.journal();
    journal.append(&[entry(1)]).unwrap();
    let before = std::fs::read(repo.active()).unwrap();
    let long = NewEntry { pusher: Some("x".repeat(70_000)), ..entry(2) };
    let bad = NewEntry { new_oid: "HEAD".to_owned(), ..entry(2) };
    let many = vec![entry(2); APPEND_ENTRIES_MAX + 1];
    for entries in [&[entry(2), long][..], &[entry(2), bad], &many] {
        let error = journal.append(entries).unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
    }
    assert_eq!(std::fs::read(repo.active()).unwrap(), before);
}

#[test]
fn segments_go_only_below_the_checkpoint_and_past_their_time_and_never_all() {
    let repo = Repo::new();
    let journal = repo.small();
    for n in 1..=40 {
        journal.append(&[entry(n)]).unwrap();
    }
    let numbers =
        |journal: &Journal| -> Vec<u64> { journal.segments().unwrap().iter().map(|s| s.number).collect() };
    let before = numbers(&journal);
    let lines = rest(&mut journal.read_all().unwrap());
    let middle = lines.iter().find(|line| line.segment == 4).unwrap();
    let checkpoint = Checkpoint::store(repo.path(), &middle.position).unwrap();
    let (never, at_once) = (jiff::Timestamp::MIN, jiff::Timestamp::MAX);
    assert_eq!(journal.remove_segments(&checkpoint, never).unwrap(), [0; 0]);
    assert_eq!(journal.remove_segments(&checkpoint, at_once).unwrap(), [1, 2, 3]);
    assert_eq!(numbers(&journal), before[3..]);

    let checkpoint = Checkpoint::store(repo.path(), &lines.last().unwrap().position).unwrap();
    journal.remove_segments(&checkpoint, at_once).unwrap();
    assert_eq!(numbers(&journal), before[before.len() - 2..], "the newest full one keeps the numbering");
    assert_eq!(journal.append(&[entry(41)]).unwrap()[0].seq, 41);

    let mut other = checkpoint;
    other.position.journal_id = "another".to_owned();
    other.position.segment += 100;
    assert_eq!(journal.remove_segments(&other, at_once).unwrap(), [0; 0]);
}
