//! Files that are written while they are read.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use serde_json::{Value, json};
use stargate_base::ErrorClass::RetryableTransient;
use stargate_directive::Pointer;
use stargate_directive::source::{Feed, SourceError};

use crate::fixture::{Taken, directive_in, surroundings, take, take_all};

async fn open(file: &Path, mode: &str, from: &Pointer) -> Result<Box<dyn Feed>, SourceError> {
    let folder = file.parent().unwrap();
    let source = format!("type = \"file\"\npath = {:?}", file.file_name().unwrap().to_str().unwrap());
    stargate_feed::open(&directive_in(folder, mode, &source), from, &surroundings(folder)).await
}

async fn pages(file: &Path, mode: &str, from: &Pointer) -> Vec<Taken> {
    take_all(&mut open(file, mode, from).await.unwrap(), &[100]).await.unwrap()
}

fn records(pages: &[Taken]) -> Vec<Value> {
    pages.iter().flat_map(|page| page.records.clone()).collect()
}

fn is_shifted(error: &SourceError) -> bool {
    (error.class, error.code, error.restart) == (RetryableTransient, "SOURCE_SHIFTED", true)
}

#[tokio::test]
async fn a_half_line_is_left_for_a_later_run_and_only_a_full_one_takes_it_for_broken() {
    let folder = tempfile::tempdir().unwrap();
    let one = json!({"id": "1", "name": "x"});
    for (name, begin, half, rest) in [
        ("a.jsonl", "{\"id\":\"1\",\"name\":\"x\"}\n", "{\"id\":\"2\",\"na", "me\":\"y\"}\n"),
        ("a.csv", "id,name\n1,x\n", "2", ",y\n"),
    ] {
        let file = folder.path().join(name);
        fs::write(&file, format!("{begin}{half}")).unwrap();
        let full = records(&pages(&file, "full", &Pointer::Null).await);
        assert!(full.len() == 2 && full[1].is_string(), "{name}: {full:?}");
        let first = pages(&file, "incremental", &Pointer::Null).await;
        assert_eq!(records(&first), std::slice::from_ref(&one), "{name}");
        let end = &first.last().unwrap().next;
        assert_eq!(records(&pages(&file, "incremental", end).await), [Value::Null; 0], "{name}");
        fs::write(&file, format!("{begin}{half}{rest}")).unwrap();
        let second = records(&pages(&file, "incremental", end).await);
        assert_eq!(second, [json!({"id": "2", "name": "y"})], "{name}");
    }
}

#[tokio::test]
async fn lines_that_are_written_in_halves_while_they_are_read_come_whole() {
    const LINES: u64 = 3000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jsonl");
    let mut file = fs::File::create(&path).unwrap();
    let writer = std::thread::spawn(move || {
        for id in 0..LINES {
            file.write_all(format!("{{\"id\":{id},\"na").as_bytes()).unwrap();
            std::thread::yield_now();
            file.write_all(b"me\":\"x\"}\n").unwrap();
        }
    });
    let (mut seen, mut at) = (Vec::new(), Pointer::Null);
    loop {
        let was_written = writer.is_finished();
        let pages = pages(&path, "incremental", &at).await;
        for record in records(&pages) {
            let id = record["id"].as_u64().unwrap_or_else(|| panic!("after {}: {record}", seen.len()));
            // A line whose end was not there yet comes again.
            seen.extend(Some(id).filter(|id| seen.last() != Some(id)));
        }
        at = pages.last().unwrap().next.clone();
        if was_written {
            break;
        }
    }
    assert_eq!(seen, (0..LINES).collect::<Vec<_>>());
}

/// Lines of 1000 bytes.
fn lines(ids: std::ops::Range<u64>) -> String {
    ids.map(|id| format!("{:999}\n", format!("{{\"id\":{id}}}"))).collect()
}

#[tokio::test]
async fn a_file_that_was_replaced_is_recognised_behind_its_beginning_too() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.jsonl");
    fs::write(&file, lines(0..20)).unwrap();
    let end = pages(&file, "incremental", &Pointer::Null).await.pop().unwrap().next;
    assert!(open(&file, "incremental", &end).await.is_ok());
    fs::write(&file, lines(0..10) + &lines(50..70)).unwrap();
    assert!(is_shifted(&open(&file, "incremental", &end).await.unwrap_err()));
    let shorter = lines(0..10) + "{\"id\":10}\n" + &lines(11..30);
    fs::write(&file, shorter).unwrap();
    assert!(is_shifted(&open(&file, "incremental", &end).await.unwrap_err()), "rows moved");
}

#[tokio::test]
async fn a_file_that_shrinks_or_is_written_anew_while_it_is_read_begins_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.jsonl");
    for other in [lines(0..8), lines(0..8) + &lines(5000..9000)] {
        fs::write(&file, lines(0..2000)).unwrap();
        let mut feed = open(&file, "full", &Pointer::Null).await.unwrap();
        for _ in 0..3 {
            take(&mut feed, 10).await.unwrap();
        }
        // Into the same file: whoever has it open sees it.
        fs::write(&file, other).unwrap();
        let error = take_all(&mut feed, &[10]).await.unwrap_err();
        assert!(is_shifted(&error), "{error}");
        assert!(is_shifted(&take(&mut feed, 10).await.unwrap_err()), "and stays so");
    }
}
