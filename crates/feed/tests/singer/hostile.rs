//! What taps say, and should not.

use serde_json::json;
use stargate_base::ErrorClass;
use stargate_directive::Pointer;

use crate::bench::{Bench, Log, Seen, page, read};

/// A tap of a stream `s` in the words of a shell: `r 1` is a record, `st 1` a state.
const WORDS: &str = r#"
schema() { echo '{"type":"SCHEMA","stream":"'$1'","schema":{},"key_properties":["id"]}'; }
r() { echo '{"type":"RECORD","stream":"'${2:-s}'","record":{"id":'$1'}}'; }
st() { echo '{"type":"STATE","value":{"at":'$1'}}'; }
"#;

fn tap(script: &str) -> Bench {
    Bench::with_script(&format!("{WORDS}\n{script}\n"))
}

fn seen(ids: &[u32], at: Option<u32>, is_last: bool) -> Seen {
    let records = ids.iter().map(|id| format!("{{\"id\":{id}}}")).collect();
    Seen { records, next: at.map(|at| json!({ "at": at })), is_last }
}

#[tokio::test]
async fn pages_end_at_states_and_the_last_one_says_the_last_state() {
    let tap = tap("schema s; r 1; r 2; st 2; r 3; r 4; r 5; r 6; st 6; r 7; st 7");
    let (pages, error) = tap.read("", 3).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(
        pages,
        [seen(&[1, 2], Some(2), false), seen(&[3, 4, 5], None, false), seen(&[6, 7], Some(7), true)]
    );
}

#[tokio::test]
async fn a_tap_without_states_says_no_pointer_and_one_without_records_ends_at_once() {
    let (pages, _) = tap("schema s; r 1; r 2; r 3").read("", 2).await;
    assert_eq!(pages, [seen(&[1, 2], None, false), seen(&[3], None, true)]);
    let (pages, _) = tap("schema s; st 9").read("", 2).await;
    assert_eq!(pages, [seen(&[], Some(9), true)]);
    let (pages, _) = tap("").read("", 2).await;
    assert_eq!(pages, [seen(&[], None, true)]);
}

#[tokio::test]
async fn a_state_before_the_records_is_not_theirs() {
    let (pages, _) = tap("st 0; schema s; r 1; r 2; st 2; r 3").read("", 1).await;
    assert_eq!(
        pages,
        [seen(&[1], None, false), seen(&[2], Some(2), false), seen(&[3], Some(2), true)],
        "at the end the last state counts, and what follows it comes again"
    );
}

#[tokio::test]
async fn after_the_last_page_there_is_nothing() {
    let tap = tap("r 1; st 1");
    let mut feed = tap.open("", &Pointer::Null).await.unwrap();
    assert_eq!(page(&mut *feed, 10).await.unwrap(), seen(&[1], Some(1), true));
    assert_eq!(page(&mut *feed, 10).await.unwrap(), seen(&[], Some(1), true));
    feed.close().await;
}

#[tokio::test]
async fn garbage_between_the_records_is_kept_and_stops_nothing() {
    let script = r#"r 1; echo 'Traceback: oh no'; echo; echo '{"type":"RECORD","stream":"s"}'; printf '\377\376\n'; r 2; st 2; printf '{"type":"REC'"#;
    let (pages, error) = tap(script).read("", 100).await;
    assert!(error.is_none(), "{error:?}");
    let [Seen { records, next, is_last: true }] = &pages[..] else { panic!("{pages:?}") };
    assert_eq!(next, &Some(json!({"at": 2})));
    let shown = records.join("\n");
    assert_eq!(records.len(), 6, "{shown}");
    assert!(records[1].starts_with("garbled: Traceback: oh no (the line is no Singer message"), "{shown}");
    assert!(records[2].contains("without \"record\"") && records[3].starts_with("garbled: "), "{shown}");
    assert_eq!(records[4], r#"{"id":2}"#);
    assert!(records[5].starts_with("garbled: {\"type\":\"REC"), "{shown}");
}

#[tokio::test]
async fn a_huge_line_is_skipped_and_the_next_is_read() {
    let script = "r 1; head -c 70000000 /dev/zero | tr '\\0' x; echo; r 2";
    let (pages, error) = tap(script).read("", 100).await;
    assert!(error.is_none(), "{error:?}");
    let records = &pages[0].records;
    assert_eq!(records.len(), 3);
    assert!(records[1].len() < 8192 && records[1].contains("has more than 67108864 bytes"), "{}", records[1]);
}

#[tokio::test]
async fn a_tap_that_fails_midway_gives_what_is_safe_and_then_its_last_words() {
    let script = "r 1; r 2; st 2; r 3; echo 'the source said no' >&2; exit 3";
    let (pages, error) = tap(script).read("", 100).await;
    assert_eq!(pages, [seen(&[1, 2], Some(2), false)], "3 has no state after it: it comes again");
    let error = error.unwrap();
    assert_eq!((error.class, error.code), (ErrorClass::RetryableTransient, "SOURCE_TAP"));
    assert!(error.message.contains("exit status: 3"), "{}", error.message);
    assert!(error.message.ends_with("the source said no"), "{}", error.message);
}

#[tokio::test]
async fn a_tap_that_is_killed_or_silent_says_so() {
    let (pages, error) = tap("r 1; kill -9 $$").read("", 100).await;
    assert_eq!(pages, []);
    let message = error.unwrap().message;
    assert!(message.contains("signal: 9") && message.contains("said nothing on stderr"), "{message}");
}

#[tokio::test]
async fn several_streams_need_a_choice() {
    let script = "schema a; r 1 a; schema b; r 2 b; r 3 b; r 4 a; st 4";
    let (_, error) = tap(script).read("", 100).await;
    let error = error.unwrap();
    assert_eq!((error.class, error.code), (ErrorClass::ValidationFailure, "SOURCE_SHAPE"));
    assert!(error.message.contains(r#""a", "b""#), "{}", error.message);

    let log = Log::listen();
    let (pages, _) = tap(script).read("stream = \"a\"", 100).await;
    assert_eq!(pages, [seen(&[1, 4], Some(4), true)]);
    let log = log.text();
    assert_eq!(log.matches(" WARN ").count(), 1, "{log}");
    assert!(log.contains("passed over") && log.contains("records=2"), "{log}");

    let (_, error) = tap(script).read("stream = \"c\"", 100).await;
    assert!(error.unwrap().message.contains(r#"no stream "c"; it gives "a", "b""#));
}

#[tokio::test]
async fn records_in_files_are_refused() {
    let script = r#"schema s; echo '{"type":"BATCH","stream":"s","encoding":{},"manifest":["file://x"]}'"#;
    let error = tap(script).read("", 100).await.1.unwrap();
    assert_eq!((error.class, error.code), (ErrorClass::ValidationFailure, "SOURCE_SHAPE"));
}

#[tokio::test]
async fn the_state_comes_back_as_it_was_given_and_the_catalog_lies_beside_the_directive() {
    let script = r#"
        while [ $# -gt 0 ]; do case $1 in
            --state) r "$(cat "$2")";; --catalog) r "$(cat "$2")";; --first) r '"first"';;
        esac; shift; done"#;
    let tap = tap(script);
    tap.write("catalog.json", r#"{"streams":[]}"#);
    let lines = "command = [\"sh\", \"tap.sh\", \"--first\"]\ncatalog = \"catalog.json\"";
    let from = json!({"bookmarks": {"s": {"replication_key_value": "2026-01-01T00:00:00+00:00", "n": 12345678901_u64}}});
    let mut feed = tap.open_tap(lines, &from).await.unwrap();
    let (pages, error) = read(&mut *feed, 10).await;
    feed.close().await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(
        pages[0].records,
        [r#"{"id":"first"}"#.to_owned(), r#"{"id":{"streams":[]}}"#.to_owned(), format!("{{\"id\":{from}}}")]
    );
    let error = tap.open_tap(&lines.replace("catalog.json", "gone.json"), &from).await.unwrap_err();
    assert_eq!((error.class, error.code), (ErrorClass::Fatal, "SOURCE_SETTING"));
    assert!(error.message.contains("--discover"), "{}", error.message);
}

#[tokio::test]
async fn a_program_that_is_not_there_is_told_with_a_remedy() {
    let bench = Bench::new();
    bench.write("data.txt", "no program");
    for program in ["tap-that-is-not-there", "./missing", "./data.txt"] {
        let error = bench.open_tap(&format!("command = [\"{program}\"]"), &Pointer::Null).await.unwrap_err();
        assert_eq!((error.class, error.code), (ErrorClass::Fatal, "SOURCE_TAP_MISSING"), "{program}");
        assert!(error.message.contains(program) && error.message.contains("virtual environment"));
    }
    assert_eq!(bench.left(), 0);
}
