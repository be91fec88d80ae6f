//! A writer that died in mid-line: its beginning of a line never swallows the next.

use stargate_mirror::Resume;

use crate::fixture::{Repo, all, assert_not_yet, assert_rising, entry, number, rest};

/// T2: the journal is cut at every byte of its last three lines.
#[test]
fn wherever_the_journal_was_cut_whole_lines_stay_and_the_next_is_read() {
    let repo = Repo::in_memory();
    let journal = repo.journal();
    for n in 1..=5 {
        journal.append(&[entry(n)]).unwrap();
    }
    let whole = std::fs::read(repo.active()).unwrap();
    let lines = rest(&mut journal.read_all().unwrap());
    let first_cut = usize::try_from(lines[2].from).unwrap();
    for cut in first_cut..=whole.len() {
        std::fs::write(repo.active(), &whole[..cut]).unwrap();
        let kept = lines.iter().filter(|line| line.to <= cut as u64).count() as u64;
        let mut reader = journal.read_all().unwrap();
        assert_eq!(rest(&mut reader).len() as u64, kept, "cut at {cut}: what is torn is not written yet");

        journal.append(&[entry(100)]).unwrap();
        let (entries, bad) = all(&journal);
        // A line of which only the newline was missing is whole once it is ended.
        let only_newline = lines.iter().any(|line| line.to == cut as u64 + 1);
        let ended = kept + u64::from(only_newline);
        assert_eq!(entries, (1..=ended).chain([100]).collect::<Vec<_>>(), "cut at {cut}");
        let fragment =
            !only_newline && !lines.iter().any(|line| line.to == cut as u64 || line.from == cut as u64);
        assert_eq!(bad, usize::from(fragment), "cut at {cut}");
        assert_rising(&journal);
        // The reader that was waiting at the torn line sees the same.
        let after: Vec<u64> =
            rest(&mut reader).iter().filter_map(|line| line.entry.as_ref().ok()).map(number).collect();
        assert_eq!(after.last(), Some(&100), "cut at {cut}");
    }
}

#[test]
fn a_torn_line_at_the_end_of_a_full_segment_is_ended_before_it_is_put_away() {
    let repo = Repo::new();
    let journal = repo.small();
    repo.append_raw("x".repeat(2000));
    journal.append(&[entry(1)]).unwrap();
    assert_eq!(journal.segments().unwrap().len(), 2);
    assert_eq!(all(&journal), (vec![1], 1));
}

#[test]
fn a_line_is_read_when_its_newline_is_there_and_not_before() {
    let repo = Repo::new();
    let journal = repo.journal();
    let (mut reader, resume) = journal.resume().unwrap();
    assert_eq!(resume, Resume::Beginning);
    let text = crate::fixture::foreign(7);
    for byte in text.bytes() {
        assert_not_yet(&mut reader);
        repo.append_raw([byte]);
    }
    assert_eq!(number(crate::fixture::next_line(&mut reader).entry.as_ref().unwrap()), 7);
    assert_not_yet(&mut reader);
}

#[test]
fn what_was_taken_back_before_its_newline_is_forgotten() {
    let repo = Repo::new();
    let journal = repo.journal();
    journal.append(&[entry(1)]).unwrap();
    let mut reader = journal.read_all().unwrap();
    rest(&mut reader);
    let length = std::fs::metadata(repo.active()).unwrap().len();
    repo.append_raw("{\"ref\":\"refs/kv/gone");
    assert_not_yet(&mut reader);
    std::fs::File::options().write(true).open(repo.active()).unwrap().set_len(length).unwrap();
    journal.append(&[entry(2)]).unwrap();
    let lines = rest(&mut reader);
    assert_eq!(lines.len(), 1);
    assert_eq!(number(lines[0].entry.as_ref().unwrap()), 2);
}
