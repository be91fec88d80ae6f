//! Many writers in many processes, one reader beside them (T3).

use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Child;
use std::time::Instant;

use stargate_mirror::{Next, Reader};

use crate::fixture::{Repo, amount, append_raw, assert_rising, entry, foreign, number, rest};
use crate::process::{Order, Work};

const WRITERS: u64 = 8;
/// Numbers of a writer begin at a multiple of this.
const STRIDE: u64 = 1_000_000;

fn start(repo: &Repo, writer: u64, count: u64, at_once: u64) -> (Order, Child) {
    let order = Order {
        segment_bytes: 100_000,
        acknowledged: repo.path().join(format!("acknowledged-{writer}")),
        ..Order::new(repo, Work::Append { from: writer * STRIDE, count, at_once })
    };
    let child = order.command(&[]).spawn().unwrap();
    (order, child)
}

/// What a reader finds now. The journal must be sound all the time.
fn read_more(reader: &mut Reader, read: &mut Vec<u64>) {
    loop {
        match reader.next().unwrap() {
            Next::Line(line) => read.push(number(line.entry.as_ref().unwrap())),
            Next::NotYet => return,
            Next::Broken(mismatch) => panic!("after {} lines: {mismatch}", read.len()),
        }
    }
}

/// Nothing missing, nothing twice, and each writer's entries in its order.
fn assert_complete(read: &[u64], counts: &HashMap<u64, u64>) {
    let mut next: HashMap<u64, u64> = counts.keys().map(|writer| (*writer, 0)).collect();
    for n in read {
        let place = next.get_mut(&(n / STRIDE)).unwrap();
        assert_eq!(n % STRIDE, *place, "of writer {}", n / STRIDE);
        *place += 1;
    }
    assert_eq!(&next, counts);
}

#[test]
fn eight_processes_append_through_many_segments_and_every_line_is_read_once() {
    let count = amount("STARGATE_TEST_APPENDS", 500);
    let repo = Repo::new();
    let mut reader = repo.journal().read_all().unwrap();
    let began = Instant::now();
    let mut writers: Vec<_> = (0..WRITERS).map(|writer| start(&repo, writer, count, 1)).collect();
    let mut read = Vec::new();
    // Reads while they write.
    while writers.iter_mut().any(|(_, child)| child.try_wait().unwrap().is_none()) {
        read_more(&mut reader, &mut read);
        std::thread::yield_now();
    }
    println!("{} appends in {:?}", WRITERS * count, began.elapsed());
    for (order, child) in &mut writers {
        assert!(child.wait().unwrap().success());
        assert_eq!(order.acknowledged().len() as u64, count);
    }
    read_more(&mut reader, &mut read);
    assert_complete(&read, &(0..WRITERS).map(|writer| (writer, count)).collect());
    let journal = repo.journal();
    assert_rising(&journal);
    let segments = journal.segments().unwrap().len();
    assert!(segments as u64 > WRITERS * count * 200 / 100_000 / 2, "{segments} segments");
}

/// Somebody who opens the journal for each line and does not lock it, while others rotate it.
#[test]
fn a_writer_that_knows_nothing_of_locks_and_segments_loses_no_line() {
    let (count, others) = (amount("STARGATE_TEST_APPENDS", 500), 99);
    let repo = Repo::new();
    let mut reader = repo.journal().read_all().unwrap();
    let mut writers: Vec<_> = (0..2).map(|writer| start(&repo, writer, count * 20, 10)).collect();
    let mut read = Vec::new();
    let mut foreign_count = 0;
    while writers.iter_mut().any(|(_, child)| child.try_wait().unwrap().is_none()) {
        for _ in 0..20 {
            append_raw(&repo.active(), foreign(others * STRIDE + foreign_count).as_bytes());
            foreign_count += 1;
        }
        read_more(&mut reader, &mut read);
    }
    for (_, child) in &mut writers {
        assert!(child.wait().unwrap().success());
    }
    read_more(&mut reader, &mut read);
    let expected = 2 * 20 * count + foreign_count;
    let segments = repo.journal().segments().unwrap().len();
    println!("{foreign_count} foreign lines among {expected} in {segments} segments");
    let total = read.len() as u64;
    read.sort_unstable();
    read.dedup();
    assert_eq!((read.len() as u64, total), (expected, expected));
}

#[test]
fn those_who_begin_a_journal_at_the_same_time_begin_the_same_one() {
    for _ in 0..20 {
        let repo = Repo::in_memory();
        let path = repo.path().to_owned();
        let open = |n| {
            let path = path.clone();
            std::thread::spawn(move || {
                let journal = stargate_mirror::Journal::open_with(&path, 500).unwrap();
                journal.append(&[entry(n)]).unwrap();
                journal.id().to_owned()
            })
        };
        let threads: Vec<_> = (0..8).map(open).collect();
        let ids: Vec<String> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
        assert_eq!(rest(&mut repo.journal().read_all().unwrap()).len(), 8);
        assert_rising(&repo.journal());
    }
}

#[test]
fn a_lock_that_is_never_given_up_does_not_hold_a_writer_up_for_ever() {
    let repo = Repo::new();
    repo.journal().append(&[entry(1)]).unwrap();
    let stopped = std::fs::File::open(repo.active()).unwrap();
    stopped.lock().unwrap();
    let error = repo.journal().append(&[entry(2)]).unwrap_err();
    let stargate_mirror::Error::Io { operation: "lock", source, .. } = &error else { panic!("{error}") };
    assert_eq!(source.kind(), std::io::ErrorKind::TimedOut);
    drop(stopped);
    repo.journal().append(&[entry(3)]).unwrap();
    assert_eq!(rest(&mut repo.journal().read_all().unwrap()).len(), 2);
}

/// Writers are killed at random, again and again; those that follow go on.
#[test]
fn writers_that_are_killed_at_random_lose_nothing_that_they_acknowledged() {
    let rounds = amount("STARGATE_TEST_ROUNDS", 8);
    let repo = Repo::new();
    let mut acknowledged = Vec::new();
    for round in 0..rounds {
        let mut writers: Vec<_> = (0..3).map(|w| start(&repo, round * 3 + w, 100_000, 1 + w * 5)).collect();
        // Once each has got somewhere: that is when it dies, wherever it is then.
        let enough = 30 + round as usize;
        while writers.iter().any(|(order, _)| order.acknowledged().len() < enough) {
            std::thread::yield_now();
        }
        for (order, child) in &mut writers {
            child.kill().unwrap();
            assert_eq!(child.wait().unwrap().signal(), Some(9));
            let text = std::fs::read_to_string(&order.acknowledged).unwrap();
            // The acknowledgement itself may be torn.
            let whole = text.rfind('\n').map_or("", |at| &text[..at]);
            acknowledged.extend(whole.lines().map(|line| line.parse::<u64>().unwrap()));
        }
    }
    let journal = repo.journal();
    journal.append(&[entry(STRIDE * 999)]).unwrap();
    let lines = rest(&mut journal.read_all().unwrap());
    let bad = lines.iter().filter(|line| line.entry.is_err()).count() as u64;
    let mut read: Vec<u64> = lines.iter().filter_map(|l| l.entry.as_ref().ok()).map(number).collect();
    let total = read.len();
    read.sort_unstable();
    read.dedup();
    assert_eq!(read.len(), total, "twice");
    for n in &acknowledged {
        assert!(read.binary_search(n).is_ok(), "{n} was acknowledged and is gone");
    }
    assert!(bad <= rounds * 3, "{bad} torn lines");
    assert_rising(&journal);
    println!("{} acknowledged, {total} read, {bad} torn, {rounds} rounds", acknowledged.len());
}
