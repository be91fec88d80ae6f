//! The order in which things are made durable, as the system sees it: nothing is acknowledged, renamed or built upon
//! before it was synced.

use std::collections::BTreeSet;
use std::path::Path;

use crate::fixture::{Repo, entry};
use crate::process::{Order, Work};

/// What a process did, in order: the call and the paths in it.
fn trace(order: &Order) -> Vec<(String, Vec<String>)> {
    let log = order.repo.join("trace");
    let calls = "trace=openat,write,fsync,fdatasync,rename,renameat2";
    let strace = ["strace", "-f", "-qq", "-y", "-s", "0", "-e", calls, "-o", log.to_str().unwrap()];
    let status = order.command(&strace.map(str::to_owned)).status();
    assert!(status.expect("strace is missing: apt-get install strace").success());
    let text = std::fs::read_to_string(log).unwrap();
    text.lines().filter(|line| line.contains(order.repo.to_str().unwrap())).map(understand).collect()
}

/// `71 write(5</repo/file>, ""..., 9) = 9` and `71 rename("/repo/a", "/repo/b") = 0`. An `openat` that may make the file
/// is called `create` here.
fn understand(line: &str) -> (String, Vec<String>) {
    let (_, call) = line.split_once(' ').unwrap();
    let (name, rest) = call.trim_start().split_once('(').unwrap();
    assert!(name == "openat" || !rest.contains(") = -1"), "failed: {line}");
    let name = if rest.contains("O_CREAT") { "create" } else { name };
    let by_name = ["rename", "renameat2", "openat", "create"].contains(&name);
    let marks: &[char] = if by_name { &['"'] } else { &['<', '>'] };
    let paths = rest.split(marks).skip(1).step_by(2).filter(|piece| piece.starts_with('/'));
    (name.to_owned(), paths.map(str::to_owned).collect())
}

/// The files that are there before it begins.
fn names(order: &Order) -> BTreeSet<String> {
    let files = std::fs::read_dir(order.repo.join(".stargate")).into_iter().flatten();
    files.map(|file| file.unwrap().path().to_str().unwrap().to_owned()).collect()
}

/// Follows what was written and not synced. Answers how many acknowledgements there were.
fn check(order: &Order) -> usize {
    let mut unsynced: BTreeSet<String> = BTreeSet::new();
    let mut known = names(order);
    let mut acknowledgements = 0;
    let parent = |path: &str| Path::new(path).parent().unwrap().to_str().unwrap().to_owned();
    for (call, paths) in trace(order) {
        match (call.as_str(), &paths[..]) {
            ("openat", _) => {}
            ("create", [path]) if Path::new(path) == order.acknowledged => {}
            ("create", [path]) => {
                // A temporary name need not last.
                if !path.contains("/.tmp-") && known.insert(path.clone()) {
                    unsynced.insert(parent(path));
                }
            }
            ("write", [path]) if Path::new(path) == order.acknowledged => {
                assert!(unsynced.is_empty(), "acknowledged, but not on disk: {unsynced:?}");
                acknowledgements += 1;
            }
            ("write", [path]) => drop(unsynced.insert(path.clone())),
            ("fsync" | "fdatasync", [path]) => drop(unsynced.remove(path)),
            ("rename" | "renameat2", [from, to]) => {
                let before = format!("{unsynced:?}");
                assert!(!unsynced.contains(from), "{from} was renamed before it was on disk");
                // A checkpoint stands on all that is before it.
                let checkpoint = to.ends_with("mirror-worker.offset");
                assert!(!checkpoint || unsynced.is_empty(), "a checkpoint past {before}");
                known.remove(from);
                known.insert(to.clone());
                unsynced.insert(parent(to));
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(unsynced.is_empty(), "left unsynced: {unsynced:?}");
    acknowledgements
}

#[test]
fn nothing_is_acknowledged_before_it_and_its_name_are_on_disk() {
    let repo = Repo::new();
    let order = Order::new(&repo, Work::Append { from: 1, count: 20, at_once: 2 });
    assert_eq!(check(&order), 10);
    assert!(repo.journal().segments().unwrap().len() > 2);
}

#[test]
fn a_checkpoint_is_stored_after_everything_that_it_passes() {
    let repo = Repo::new();
    for n in 1..=12 {
        repo.small().append(&[entry(n)]).unwrap();
    }
    assert_eq!(check(&Order::new(&repo, Work::Account)), 12);
}

#[test]
fn a_letter_and_its_requeueing_are_on_disk_when_they_are_told() {
    let repo = Repo::new();
    repo.small().append(&[entry(1)]).unwrap();
    assert_eq!(check(&Order::new(&repo, Work::GiveUp)), 1);
}

#[test]
fn a_reader_leaves_no_segment_behind_that_it_has_not_synced() {
    let repo = Repo::new();
    for n in 1..=12 {
        repo.small().append(&[entry(n)]).unwrap();
    }
    let calls = trace(&Order::new(&repo, Work::AccountAtOnce));
    let checkpoint = calls.iter().position(|(call, _)| call.starts_with("rename")).unwrap();
    for segment in repo.small().segments().unwrap() {
        let path = [segment.path.to_str().unwrap().to_owned()];
        let synced = calls[..checkpoint].iter().any(|(call, paths)| call == "fdatasync" && *paths == path);
        assert!(synced, "{path:?} is before the checkpoint and was not synced");
    }
}
