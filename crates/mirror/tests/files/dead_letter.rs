//! Dead letters: kept, read, requeued once, purged late.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use stargate_mirror::dead_letter::{NewLetter, Payload, PerRef, RETENTION_MIN, Reason, Requeue, State};
use stargate_mirror::journal::Line;
use stargate_mirror::{DeadLetters, Error};

use crate::fixture::{Repo, entry, foreign, number, rest};

fn letters(repo: &Repo) -> DeadLetters {
    DeadLetters::open(repo.path()).unwrap()
}

/// The lines of the journal: an entry, something that is none, and an entry of somebody else.
fn lines(repo: &Repo) -> Vec<Line> {
    let journal = repo.journal();
    journal.append(&[entry(1)]).unwrap();
    repo.append_raw(b"{ not json \xff\n");
    repo.append_raw(foreign(3));
    rest(&mut journal.read_all().unwrap())
}

/// The view, as somebody would read it who has only a pager.
fn view(repo: &Repo) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(repo.file("mirror-dead-letter.ndjson")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_letter_tells_all_and_can_be_read_as_a_line() {
    let repo = Repo::new();
    let line = &lines(&repo)[0];
    let since = "2026-01-02T03:04:05Z".parse().unwrap();
    let said = vec![PerRef { ref_name: "refs/kv/main".to_owned(), status: "hook declined".to_owned() }];
    let new = NewLetter::new(line, Reason::Rejected, "no").tried(3, since).said(Some(1), said);
    let id = letters(&repo).add(new).unwrap();

    let stored = letters(&repo).show(&id).unwrap();
    assert_eq!(
        (stored.state, stored.letter.reason, stored.letter.attempts),
        (State::Open, Reason::Rejected, 3)
    );
    assert_eq!(stored.letter.entry_id, line.entry_id());
    let [read] = &view(&repo)[..] else { panic!() };
    let expected = [
        ("dead_letter_id", id.as_str()),
        ("reason", "rejected"),
        ("error", "no"),
        ("first_attempt_at", "2026-01-02T03:04:05Z"),
        ("state", "open"),
    ];
    for (name, value) in expected {
        assert_eq!(read[name], value, "{name}");
    }
    assert_eq!((&read["git_exit"], &read["per_ref"][0]["status"]), (&1.into(), &"hook declined".into()));
    assert_eq!((&read["journal"]["segment"], &read["journal"]["offset"]), (&1.into(), &0.into()));
    assert_eq!(read["payload"]["ref"], "refs/kv/main");
    assert!(read["dead_lettered_at"].is_string());
}

/// One that could not would end the mirroring of its repository: all are read when a worker starts.
#[test]
fn whatever_a_remote_says_the_letter_can_be_read_again() {
    let repo = Repo::new();
    let line = &lines(&repo)[0];
    let said = |n| PerRef { ref_name: format!("refs/heads/{n:0200}"), status: "\u{1}".repeat(1024) };
    let error = "\u{1}".repeat(1 << 20);
    let new = NewLetter::new(line, Reason::Rejected, &error).said(Some(1), (0..2000).map(said).collect());
    let id = letters(&repo).add(new).unwrap();
    letters(&repo).rebuild_view().unwrap();
    let stored = letters(&repo).show(&id).unwrap();
    assert!(stored.letter.per_ref.iter().all(|one| one.status.starts_with('\u{1}')), "{stored:?}");
}

/// It must hold up neither the others nor the mirroring of its repository.
#[test]
fn a_damaged_letter_is_passed_over_and_kept() {
    let repo = Repo::new();
    let lines = lines(&repo);
    let add = |line| letters(&repo).add(NewLetter::new(line, Reason::Outage, "x")).unwrap();
    let (damaged, sound) = (add(&lines[0]), add(&lines[2]));
    let file = repo.file(&format!("dead-letter/{damaged}.json"));
    std::fs::write(&file, "{\"dead_letter_id\"").unwrap();
    let letters = letters(&repo);
    letters.rebuild_view().unwrap();
    assert_eq!((view(&repo).len(), letters.open_count().unwrap()), (1, 2), "it is still counted");
    let listed = letters.list(None, 10).unwrap();
    assert_eq!(listed.iter().map(|stored| &stored.letter.dead_letter_id).collect::<Vec<_>>(), [&sound]);
    let open = letters.open_letters(10).unwrap();
    assert_eq!(open.iter().map(|letter| &letter.dead_letter_id).collect::<Vec<_>>(), [&sound]);
    assert_eq!(letters.oldest_open().unwrap(), Some(open[0].dead_lettered_at));
    assert_eq!(letters.purge(RETENTION_MIN).unwrap(), [""; 0]);
    let error = letters.show(&damaged).unwrap_err();
    assert_eq!(error.code(), "MIRROR_FILE_DAMAGED");
    assert!(error.to_string().contains(&damaged), "{error}");
    let again = add(&lines[0]);
    assert_ne!(again, damaged, "given up again, it gets a letter that can be read");
    assert_eq!(letters.show(&again).unwrap().letter.reason, Reason::Outage);
    assert!(file.exists());
}

#[test]
fn what_is_no_entry_is_kept_as_bytes() {
    let repo = Repo::new();
    let line = &lines(&repo)[1];
    let id = letters(&repo).add(NewLetter::new(line, Reason::Malformed, "no JSON")).unwrap();
    let stored = letters(&repo).show(&id).unwrap();
    assert_eq!(stored.letter.payload.bytes(), b"{ not json \xff");
    assert!(matches!(stored.letter.payload, Payload::Raw { text: None, truncated: false, .. }));
    let error = letters(&repo).requeue(&repo.journal(), &id, Requeue::Once).unwrap_err();
    assert!(matches!(error, Error::NotRequeueable { .. }), "{error}");
}

#[test]
fn the_same_line_makes_one_letter_however_often_its_worker_dies() {
    let repo = Repo::new();
    let lines = lines(&repo);
    let add = |line| letters(&repo).add(NewLetter::new(line, Reason::Outage, "x")).unwrap();
    let first = add(&lines[0]);
    assert_eq!(add(&lines[0]), first);
    assert_ne!(add(&lines[2]), first);
    assert_eq!((letters(&repo).list(None, 10).unwrap().len(), view(&repo).len()), (2, 2));
    // Another journal with something else at the same place.
    let mut other = lines[0].clone();
    other.position.journal_id = "another".to_owned();
    assert_ne!(add(&other), first);
    assert_eq!(letters(&repo).open_count().unwrap(), 3);
}

#[test]
fn letters_are_listed_in_the_order_of_the_journal_by_pages() {
    let repo = Repo::new();
    let journal = repo.small();
    for n in 1..=20 {
        journal.append(&[entry(n)]).unwrap();
    }
    let lines = rest(&mut journal.read_all().unwrap());
    for line in lines.iter().rev() {
        letters(&repo).add(NewLetter::new(line, Reason::Local, "x")).unwrap();
    }
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let page = letters(&repo).list(after.as_deref(), 7).unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.letter.dead_letter_id.clone());
        ids.extend(page.into_iter().map(|stored| stored.letter.entry_id));
    }
    assert_eq!(ids, lines.iter().map(Line::entry_id).collect::<Vec<_>>());
}

#[test]
fn a_requeued_letter_is_a_new_line_that_names_the_old_one_and_only_once_unless_forced() {
    let repo = Repo::new();
    let journal = repo.journal();
    let lines = lines(&repo);
    let mut reader = journal.read_from(&lines[2].position).unwrap().unwrap();
    let letters = letters(&repo);
    for (index, line) in [&lines[0], &lines[2]].into_iter().enumerate() {
        let id = letters.add(NewLetter::new(line, Reason::Outage, "x")).unwrap();
        let requeued = letters.requeue(&journal, &id, Requeue::Once).unwrap();
        let [again] = &rest(&mut reader)[..] else { panic!() };
        let entry = again.entry.as_ref().unwrap();
        assert_eq!((&entry.entry_id, entry.seq), (&requeued.entry_id, Some(requeued.seq)));
        assert_eq!(number(entry), number(line.entry.as_ref().unwrap()));
        assert_eq!(entry.meta["requeue_of"], line.entry_id());
        assert_eq!(entry.meta["dead_letter_id"], id);
        assert_eq!(entry.source.as_deref(), Some("requeue"));

        assert_eq!(letters.requeue(&journal, &id, Requeue::Once).unwrap(), requeued);
        assert_eq!(rest(&mut reader).len(), 0, "once");
        assert_eq!(letters.show(&id).unwrap().state, State::Requeued);
        let forced = letters.requeue(&journal, &id, Requeue::Again).unwrap();
        assert_ne!(forced.entry_id, requeued.entry_id);
        assert_eq!(rest(&mut reader).len(), 1, "unless forced");
        let last = view(&repo).pop().unwrap();
        assert_eq!((&last["dead_letter_id"], &last["state"]), (&id.as_str().into(), &"requeued".into()));
        assert_eq!(view(&repo).len(), 3 * (index + 1));
    }
    assert_eq!(letters.open_count().unwrap(), 0);
    letters.rebuild_view().unwrap();
    assert!(view(&repo).iter().all(|line| line["state"] == "requeued" && line["payload"].is_object()));
    assert_eq!(view(&repo).len(), 2);
}

#[test]
fn letters_stay_for_thirty_days_and_go_when_told_after_that() {
    let repo = Repo::new();
    let lines = lines(&repo);
    let letters = letters(&repo);
    let old = letters.add(NewLetter::new(&lines[0], Reason::Outage, "x")).unwrap();
    let young = letters.add(NewLetter::new(&lines[2], Reason::Outage, "x")).unwrap();
    letters.requeue(&repo.journal(), &old, Requeue::Once).unwrap();
    assert!(matches!(letters.purge(Duration::from_secs(60)), Err(Error::Invalid { .. })));
    assert_eq!(letters.purge(RETENTION_MIN).unwrap(), [""; 0]);

    let path = repo.file(&format!("dead-letter/{old}.json"));
    let mut letter: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    letter["dead_lettered_at"] = "2020-01-01T00:00:00Z".into();
    std::fs::write(&path, letter.to_string()).unwrap();
    assert_eq!(letters.purge(RETENTION_MIN).unwrap(), [old.as_str()]);
    assert!(matches!(letters.show(&old), Err(Error::NoDeadLetter { .. })));
    assert_eq!(letters.show(&young).unwrap().state, State::Open);
    let [line] = &view(&repo)[..] else { panic!() };
    assert_eq!(line["dead_letter_id"], young.as_str());
    assert_eq!(std::fs::read_dir(repo.file("dead-letter")).unwrap().count(), 2, "the letter and the lock");
}

#[test]
fn an_id_does_not_lead_out_of_the_directory() {
    let repo = Repo::new();
    let letters = letters(&repo);
    std::fs::write(repo.file("secret.json"), "{}").unwrap();
    for id in ["../secret", "", "a/b", "x.requeued", "\u{0}"] {
        assert!(matches!(letters.show(id), Err(Error::NoDeadLetter { .. })), "{id:?}");
    }
}

#[test]
fn the_view_is_made_anew_when_it_was_lost_or_a_line_is_missing() {
    let repo = Repo::new();
    let lines = lines(&repo);
    let letters = letters(&repo);
    letters.add(NewLetter::new(&lines[0], Reason::Outage, "x")).unwrap();
    letters.add(NewLetter::new(&lines[1], Reason::Malformed, "x")).unwrap();
    let before = view(&repo);
    std::fs::write(repo.file("mirror-dead-letter.ndjson"), "{\"half").unwrap();
    letters.rebuild_view().unwrap();
    assert_eq!(view(&repo), before);
    let mode = std::fs::metadata(repo.file("mirror-dead-letter.ndjson")).unwrap().permissions().mode();
    assert_eq!(mode & 0o022, 0);
}

#[test]
fn a_clock_that_is_ahead_costs_no_letter_that_is_open() {
    let repo = Repo::new();
    let lines = lines(&repo);
    let letters = letters(&repo);
    let open = letters.add(NewLetter::new(&lines[0], Reason::Rejected, "x")).unwrap();
    let requeued = letters.add(NewLetter::new(&lines[2], Reason::Outage, "x")).unwrap();
    letters.requeue(&repo.journal(), &requeued, Requeue::Once).unwrap();
    for id in [&open, &requeued] {
        let path = repo.file(&format!("dead-letter/{id}.json"));
        let mut letter: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        // What a clock that is 73 years ahead makes of letters of today.
        letter["dead_lettered_at"] = "1953-01-01T00:00:00Z".into();
        std::fs::write(&path, letter.to_string()).unwrap();
    }
    assert!(matches!(letters.purge_requeued(Duration::from_secs(60)), Err(Error::Invalid { .. })));
    assert_eq!(letters.purge_requeued(RETENTION_MIN).unwrap(), [requeued.as_str()]);
    assert_eq!(letters.show(&open).unwrap().state, State::Open);
    assert_eq!(letters.purge(RETENTION_MIN).unwrap(), [open.as_str()], "an operator may");
}
