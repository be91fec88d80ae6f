//! What is too large for memory.

use std::fs;
use std::io::Write as _;

use serde_json::Value;
use stargate_directive::Pointer;
use stargate_testkit::source_server::{Data, Fault, SourceServer};

use crate::fixture::{api, directive, surroundings};

/// What this process took of memory at most, in MiB.
fn peak_mib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

/// The long form is 500.
fn megabytes() -> u64 {
    std::env::var("STARGATE_TEST_PAGE_MIB").map_or(60, |text| text.parse().unwrap())
}

#[tokio::test]
async fn a_huge_page_lies_in_a_file_without_a_name_and_comes_item_by_item() {
    let count = megabytes();
    let server = SourceServer::with_data(Data::large(count, 1 << 20));
    let scratch = tempfile::tempdir().unwrap();
    let directive = directive(scratch.path(), &api(&server, ""));
    let mut feed =
        stargate_feed::open(&directive, &Pointer::Null, &surroundings(scratch.path())).await.unwrap();
    let page = feed.page(500).await.unwrap();
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "nothing is left if we die");
    let read = tokio::task::spawn_blocking(move || {
        page.records
            .map(|record| {
                let record = record.unwrap().unwrap();
                assert!(record.get().len() > 1 << 20);
                record.get()[..record.get().find(',').unwrap()].to_owned()
            })
            .collect::<Vec<_>>()
    });
    let expected: Vec<String> = (0..count).map(|id| format!("{{\"id\":{id}")).collect();
    assert_eq!(read.await.unwrap(), expected);
    println!("a page of {count} MiB: at most {} MiB of memory, the server's included", peak_mib());
}

#[tokio::test]
async fn a_record_over_the_limit_is_told_by_its_size_and_the_rest_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let large = "x".repeat(65 << 20);
    let server = SourceServer::start(0);
    server.fault_at(1, Fault::json(format!("{{\"items\":[1,\"{large}\",2]}}")));
    let mut lines = fs::File::create(folder.path().join("a.jsonl")).unwrap();
    write!(lines, "1\n\"{large}\"\n2\n").unwrap();
    drop(large);
    let file = "type = \"file\"\npath = \"a.jsonl\"".to_owned();
    for source in [api(&server, ""), file] {
        let directive = directive(folder.path(), &source);
        let around = surroundings(folder.path());
        let mut feed = stargate_feed::open(&directive, &Pointer::Null, &around).await.unwrap();
        let mut records = Vec::new();
        loop {
            let page = feed.page(10).await.unwrap();
            records.extend(page.records.map(Result::unwrap));
            if page.is_last {
                break;
            }
        }
        let numbers: Vec<Value> =
            records.iter().flatten().map(|record| serde_json::from_str(record.get()).unwrap()).collect();
        assert_eq!(numbers, [1, 2]);
        let garbled = records[1].as_ref().unwrap_err();
        assert!(garbled.problem.contains(&((65 << 20) + 2).to_string()), "{}", garbled.problem);
        assert!(garbled.text.len() < 2000 && garbled.text.starts_with("\"xxx"));
    }
}
