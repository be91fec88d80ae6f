//! Status records: found again, newest first, within bounds.

use stargate_mirror::Statuses;
use stargate_mirror::status::{Record, Status};

use crate::fixture::{Repo, append_raw};

#[test]
fn what_became_of_an_entry_is_found_by_id_and_line() {
    let repo = Repo::new();
    let statuses = Statuses::open(repo.path()).unwrap();
    statuses
        .append(&[Record::new("a", 1, Status::Completed, 1), Record::new("b", 2, Status::DeadLetter, 3)])
        .unwrap();
    statuses.append(&[Record::new("b", 2, Status::Superseded, 3)]).unwrap();
    let index = statuses.index().unwrap();
    assert_eq!(index.status("a", 1), Some(Status::Completed));
    assert_eq!(index.status("b", 2), Some(Status::Superseded), "the newest counts");
    assert_eq!(index.status("a", 2), None, "another line of the same id");
    assert_eq!(index.status("c", 1), None);
}

#[test]
fn a_record_has_the_fields_of_the_contract() {
    let repo = Repo::new();
    let statuses = Statuses::open(repo.path()).unwrap();
    let record = Record {
        via: Some("push".to_owned()),
        lag_ms: Some(12),
        ..Record::new("a", 1, Status::DeadLetter, 3)
    };
    statuses.append(&[record]).unwrap();
    let line = std::fs::read_to_string(repo.file("mirror-status.ndjson")).unwrap();
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&line["entry_id"], &line["status"]), (&"a".into(), &"dead-letter".into()));
    assert_eq!((&line["attempts"], &line["via"], &line["lag_ms"]), (&3.into(), &"push".into(), &12.into()));
    line["at"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
}

#[test]
fn a_torn_or_foreign_record_hides_no_other() {
    let repo = Repo::new();
    let statuses = Statuses::open(repo.path()).unwrap();
    statuses.append(&[Record::new("a", 1, Status::Completed, 1)]).unwrap();
    append_raw(&repo.file("mirror-status.ndjson"), b"{\"entry_id\":\"x\",\"sta");
    statuses.append(&[Record::new("b", 1, Status::Completed, 1)]).unwrap();
    append_raw(&repo.file("mirror-status.ndjson"), b"\n\nnonsense\n{\"entry_id\":\"y\"}\n");
    let ids: Vec<String> = statuses.latest(10).unwrap().into_iter().map(|record| record.entry_id).collect();
    assert_eq!(ids, ["b", "a"]);
}

#[test]
fn the_records_do_not_grow_for_ever_and_the_latest_stay() {
    let repo = Repo::new();
    let statuses = Statuses::open_with(repo.path(), 1000).unwrap();
    for n in 0..200 {
        statuses.append(&[Record::new(n.to_string(), 1, Status::Completed, 1)]).unwrap();
    }
    let ids: Vec<String> = statuses.latest(30).unwrap().into_iter().map(|record| record.entry_id).collect();
    assert_eq!(ids, (170..200).rev().map(|n| n.to_string()).collect::<Vec<_>>());
    let files = std::fs::read_dir(repo.path().join(".stargate")).unwrap().count();
    assert!(files <= 9, "{files} files");
    let index = statuses.index().unwrap();
    assert!(index.status("199", 1).is_some() && index.status("0", 1).is_none());
}
