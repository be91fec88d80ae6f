//! Files of lines: from the beginning, from the middle, and when they change.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use stargate_base::ErrorClass::{Fatal, RetryableTransient, ValidationFailure};
use stargate_directive::Pointer;
use stargate_directive::source::{Feed, SourceError};

use crate::fixture::{Taken, directive, surroundings, take, take_all};

async fn open(file: &Path, from: &Pointer) -> Result<Box<dyn Feed>, SourceError> {
    let folder = file.parent().unwrap();
    let source = format!("type = \"file\"\npath = {:?}", file.file_name().unwrap().to_str().unwrap());
    stargate_feed::open(&directive(folder, &source), from, &surroundings(folder)).await
}

async fn pages(file: &Path, from: &Pointer, size: u32) -> Result<Vec<Taken>, SourceError> {
    take_all(&mut open(file, from).await?, &[size]).await
}

fn records(pages: &[Taken]) -> Vec<Value> {
    pages.iter().flat_map(|page| page.records.clone()).collect()
}

/// Reads a file whole, and again from the end of each of its pages. All records.
async fn read(file: &Path) -> Vec<Value> {
    let whole = pages(file, &Pointer::Null, 2).await.unwrap();
    for (index, page) in whole.iter().enumerate().filter(|(_, page)| !page.is_last) {
        let rest = pages(file, &page.next, 2).await.unwrap();
        assert_eq!(rest, whole[index + 1..], "from {}", page.next);
    }
    records(&whole)
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[tokio::test]
async fn each_line_of_json_is_a_record_and_a_bad_one_does_not_stop_the_rest() {
    let folder = folder();
    let file = folder.path().join("a.jsonl");
    let text = b"\xef\xbb\xbf{\"id\":1}\r\n\n  \n{\"id\":2}\n{\"id\":\n[3, 4]\n\xff\n {\"id\":5} ";
    fs::write(&file, text).unwrap();
    let expected = [
        json!({"id": 1}),
        json!({"id": 2}),
        json!("<line 5 is no JSON: EOF while parsing a value at line 1 column 6>"),
        json!([3, 4]),
        json!("<line 7 is not UTF-8>"),
        json!({"id": 5}),
    ];
    assert_eq!(read(&file).await, expected);
}

#[tokio::test]
async fn each_row_below_the_header_is_an_object_of_texts() {
    let folder = folder();
    let file = folder.path().join("a.csv");
    let text = "\u{feff}id, name ,\"a \"\"b\"\"\"\r\n1,\"x,\ny\",\r\n\r\n2,\"say \"\"so\"\"\",5\" disk\r\n3,too few\r\n4,é,z";
    fs::write(&file, text).unwrap();
    let row = |id: &str, name: &str, third: &str| json!({"id": id, "name": name, "a \"b\"": third});
    let expected = [
        row("1", "x,\ny", ""),
        row("2", "say \"so\"", "5\" disk"),
        json!("<line 6 has 2 fields, the header 3>"),
        row("4", "é", "z"),
    ];
    assert_eq!(read(&file).await, expected);
}

#[tokio::test]
async fn a_header_must_name_each_column_once() {
    let folder = folder();
    let file = folder.path().join("a.csv");
    for (text, expected) in [
        ("id,name,id\n1,2,3\n", "names \"id\" twice"),
        ("id,,name\n1,2,3\n", "column 2 of the header has no name"),
        ("", "no header"),
    ] {
        fs::write(&file, text).unwrap();
        let error = open(&file, &Pointer::Null).await.unwrap_err();
        assert_eq!((error.class, error.code), (ValidationFailure, "SOURCE_SHAPE"));
        assert!(error.message.contains(expected), "{error}");
    }
    fs::write(&file, "id,name\n").unwrap();
    assert_eq!(read(&file).await, [Value::Null; 0]);
}

#[tokio::test]
async fn an_empty_file_has_no_records() {
    let folder = folder();
    let file = folder.path().join("a.jsonl");
    fs::write(&file, "").unwrap();
    let pages = pages(&file, &Pointer::Null, 2).await.unwrap();
    assert_eq!((pages.len(), records(&pages).len(), pages[0].is_last), (1, 0, true));
}

#[tokio::test]
async fn a_file_that_grew_goes_on_and_a_last_line_without_end_is_read_again() {
    let folder = folder();
    for (name, begin, more) in
        [("a.jsonl", "{\"id\":1}\n{\"id\":2", "2}\n{\"id\":3}\n"), ("a.csv", "id\n1\n2", "2\n3\n")]
    {
        let file = folder.path().join(name);
        fs::write(&file, begin).unwrap();
        let end = pages(&file, &Pointer::Null, 9).await.unwrap().pop().unwrap();
        assert_eq!((end.records.len(), end.is_last), (2, true));
        fs::write(&file, format!("{begin}{more}")).unwrap();
        let rest = records(&pages(&file, &end.next, 9).await.unwrap());
        let ids: Vec<String> = rest.iter().map(|record| record["id"].to_string().replace('"', "")).collect();
        assert_eq!(ids, ["22", "3"], "{name}");
        let end = pages(&file, &end.next, 9).await.unwrap().pop().unwrap();
        assert_eq!(
            records(&pages(&file, &end.next, 9).await.unwrap()),
            [Value::Null; 0],
            "{name}: nothing new"
        );
    }
}

#[tokio::test]
async fn a_file_that_was_replaced_is_read_from_its_beginning() {
    let folder = folder();
    let file = folder.path().join("a.jsonl");
    fs::write(&file, "{\"id\":1}\n{\"id\":2}\n{\"id\":3}\n").unwrap();
    let first = take(&mut open(&file, &Pointer::Null).await.unwrap(), 2).await.unwrap();
    for other in ["{\"id\":9}\n{\"id\":2}\n{\"id\":3}\n", "{\"id\":1}\n"] {
        fs::write(&file, other).unwrap();
        let error = open(&file, &first.next).await.unwrap_err();
        assert_eq!((error.class, error.code, error.restart), (RetryableTransient, "SOURCE_SHIFTED", true));
    }
}

#[tokio::test]
async fn a_file_that_is_missing_may_come_and_one_that_is_none_will_not() {
    let folder = folder();
    let missing = open(&folder.path().join("a.jsonl"), &Pointer::Null).await.unwrap_err();
    assert_eq!((missing.class, missing.code), (RetryableTransient, "SOURCE_UNREACHABLE"));
    assert!(missing.message.contains("a.jsonl is not there"), "{missing}");
    fs::create_dir(folder.path().join("b.jsonl")).unwrap();
    let none = open(&folder.path().join("b.jsonl"), &Pointer::Null).await.unwrap_err();
    assert_eq!((none.class, none.code), (ValidationFailure, "SOURCE_SHAPE"));
    fs::write(folder.path().join("c.jsonl"), "").unwrap();
    let foreign = open(&folder.path().join("c.jsonl"), &json!({"offset": 3})).await.unwrap_err();
    assert_eq!((foreign.class, foreign.code), (Fatal, "SOURCE_POINTER"));
}

#[tokio::test]
async fn a_page_of_large_lines_ends_early() {
    let folder = folder();
    let file = folder.path().join("a.jsonl");
    let line = format!("{{\"id\":1,\"filling\":\"{}\"}}\n", "x".repeat(3 << 20));
    fs::write(&file, line.repeat(10)).unwrap();
    let pages = pages(&file, &Pointer::Null, 500).await.unwrap();
    assert_eq!(pages.iter().map(|page| page.records.len()).collect::<Vec<_>>(), [3, 3, 3, 1]);
}
