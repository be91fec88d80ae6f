//! JSON APIs as they should be, and as they change while they are read.

use std::time::Duration;

use serde_json::json;
use stargate_base::ErrorClass;
use stargate_directive::Pointer;
use stargate_testkit::source_server::{Data, Fault, SourceServer};

use crate::fixture::{CURSOR, LINK, OFFSET, PAGE, TOKEN, TOTAL, api, ids, open, take, take_all, try_open};

const STYLES: [&str; 4] = [CURSOR, OFFSET, PAGE, LINK];

fn all(count: u64) -> Vec<u64> {
    (0..count).collect()
}

#[tokio::test]
async fn every_way_of_paging_gives_each_item_once_and_goes_on_in_the_middle() {
    let server = SourceServer::start(50);
    for style in STYLES {
        for total in ["", TOTAL] {
            let source = api(&server, &format!("{style}\n{total}"));
            let pages = take_all(&mut open(&source, &Pointer::Null).await, &[7]).await.unwrap();
            assert_eq!(ids(&pages), all(50), "{style}");
            for (index, page) in pages.iter().enumerate().step_by(3).filter(|(_, page)| !page.is_last) {
                let rest = take_all(&mut open(&source, &page.next).await, &[7]).await.unwrap();
                assert_eq!(rest, pages[index + 1..], "{style} from {}", page.next);
            }
        }
    }
}

#[tokio::test]
async fn one_page_is_all_there_is_without_paging() {
    let server = SourceServer::start(50);
    let pages = take_all(&mut open(&api(&server, TOTAL), &Pointer::Null).await, &[60]).await.unwrap();
    assert_eq!((pages.len(), ids(&pages), &pages[0].next), (1, all(50), &Pointer::Null));
}

#[tokio::test]
async fn an_empty_source_has_one_empty_last_page() {
    let server = SourceServer::start(0);
    for style in STYLES {
        let pages = take_all(&mut open(&api(&server, style), &Pointer::Null).await, &[7]).await.unwrap();
        assert_eq!((pages.len(), pages[0].records.len()), (1, 0), "{style}");
    }
}

#[tokio::test]
async fn a_source_that_gives_less_than_asked_for_is_read_to_its_end() {
    let mut data = Data::new(33);
    data.page_max = 5;
    let server = SourceServer::with_data(data);
    for style in STYLES {
        let pages = take_all(&mut open(&api(&server, style), &Pointer::Null).await, &[7]).await.unwrap();
        assert_eq!(ids(&pages), all(33), "{style}");
    }
}

#[tokio::test]
async fn pages_may_be_asked_for_in_changing_sizes() {
    let server = SourceServer::start(50);
    for style in STYLES {
        let source = api(&server, style);
        let pages = take_all(&mut open(&source, &Pointer::Null).await, &[7, 3, 11, 1]).await.unwrap();
        assert_eq!(ids(&pages), all(50), "{style}");
    }
    let asked = server.requests().into_iter().filter(|request| request.param("page").is_some());
    assert!(asked.map(|request| request.param("limit").unwrap().to_owned()).all(|limit| limit == "7"));
}

#[tokio::test]
async fn pages_that_change_their_length_under_way_begin_again() {
    let server = SourceServer::start(50);
    for max in [3, 9] {
        server.edit(|data| data.page_max = 6);
        let mut feed = open(&api(&server, PAGE), &Pointer::Null).await;
        take(&mut feed, 10).await.unwrap();
        server.edit(|data| data.page_max = max);
        let error = take_all(&mut feed, &[10]).await.unwrap_err();
        assert_eq!(
            (error.code, error.class, error.restart),
            ("SOURCE_SHIFTED", ErrorClass::RetryableTransient, true)
        );
    }
    // Offsets do not care.
    server.edit(|data| data.page_max = 6);
    let mut feed = open(&api(&server, OFFSET), &Pointer::Null).await;
    let mut pages = vec![take(&mut feed, 10).await.unwrap()];
    server.edit(|data| data.page_max = 3);
    pages.extend(take_all(&mut feed, &[10]).await.unwrap());
    assert_eq!(ids(&pages), all(50));
}

#[tokio::test]
async fn items_that_go_while_positions_are_counted_are_noticed_by_the_total() {
    for style in [OFFSET, PAGE] {
        let server = SourceServer::start(50);
        let mut feed = open(&api(&server, &format!("{style}\n{TOTAL}")), &Pointer::Null).await;
        take(&mut feed, 10).await.unwrap();
        server.edit(|data| data.remove(3));
        let error = take(&mut feed, 10).await.unwrap_err();
        assert_eq!((error.code, error.restart), ("SOURCE_SHIFTED", true), "item 10 stands at position 9 now");
    }
    let server = SourceServer::start(50);
    let mut feed = open(&api(&server, &format!("{CURSOR}\n{TOTAL}")), &Pointer::Null).await;
    let mut pages = vec![take(&mut feed, 10).await.unwrap()];
    server.edit(|data| data.remove(3));
    pages.extend(take_all(&mut feed, &[10]).await.unwrap());
    assert_eq!(ids(&pages), all(50), "cursors stay where they are");
}

#[tokio::test]
async fn a_source_that_gives_fewer_items_than_it_says_is_incomplete() {
    for style in STYLES {
        let mut data = Data::new(50);
        data.total = Some(51);
        let server = SourceServer::with_data(data);
        let source = api(&server, &format!("{style}\n{TOTAL}"));
        let error = take_all(&mut open(&source, &Pointer::Null).await, &[7]).await.unwrap_err();
        assert_eq!((error.code, error.restart), ("SOURCE_INCOMPLETE", true), "{style}");
        assert_eq!(error.class, ErrorClass::RetryableTransient);
        assert!(error.message.contains("after 50 of 51"), "{error}");
    }
}

#[tokio::test]
async fn the_count_against_the_total_goes_on_with_the_pointer() {
    let mut data = Data::new(50);
    data.total = Some(51);
    let server = SourceServer::with_data(data);
    for style in STYLES {
        let source = api(&server, &format!("{style}\n{TOTAL}"));
        let first = take(&mut open(&source, &Pointer::Null).await, 20).await.unwrap();
        let error = take_all(&mut open(&source, &first.next).await, &[20]).await.unwrap_err();
        assert!(error.message.contains("after 50 of 51"), "{style}: {error}");
    }
}

#[tokio::test]
async fn what_was_added_after_the_end_is_found_from_there() {
    for style in STYLES {
        let server = SourceServer::start(17);
        let source = api(&server, style);
        let pages = take_all(&mut open(&source, &Pointer::Null).await, &[7]).await.unwrap();
        for _ in 0..9 {
            server.edit(Data::push);
        }
        let end = &pages.last().unwrap().next;
        let more = ids(&take_all(&mut open(&source, end).await, &[7]).await.unwrap());
        let new: Vec<u64> = more.iter().copied().filter(|id| *id >= 17).collect();
        assert_eq!(new, (17..26).collect::<Vec<_>>(), "{style}");
        assert!(more.len() <= 9 + 7, "{style}: only a page is read again");
    }
}

#[tokio::test]
async fn a_cursor_that_leads_back_is_a_loop() {
    let page = |next: &str| Some(Fault::json(format!(r#"{{"items":[{{"id":1}}],"next":"{next}"}}"#)));
    let server = SourceServer::start(0);
    server.script(move |_| page("same-secret"));
    let error = take_all(&mut open(&api(&server, CURSOR), &Pointer::Null).await, &[7]).await.unwrap_err();
    assert_eq!((error.code, error.class), ("SOURCE_LOOP", ErrorClass::Fatal));
    assert!(error.message.contains("11 bytes") && !error.message.contains("same-secret"), "{error}");
    server.script(move |request| page(if request.param("after") == Some("a") { "b" } else { "a" }));
    let error = take_all(&mut open(&api(&server, CURSOR), &Pointer::Null).await, &[7]).await.unwrap_err();
    assert_eq!(error.code, "SOURCE_LOOP", "two pages that lead to each other");
}

#[tokio::test]
async fn cursors_may_be_numbers_and_end_when_missing_null_or_empty() {
    let server = SourceServer::start(0);
    for end in [r#"{"items":[]}"#, r#"{"items":[],"next":null}"#, r#"{"items":[],"next":""}"#] {
        server.script(move |request| {
            let is_first = request.param("after").is_none();
            Some(Fault::json(if is_first { r#"{"items":[],"next":-7}"# } else { end }))
        });
        let pages = take_all(&mut open(&api(&server, CURSOR), &Pointer::Null).await, &[7]).await.unwrap();
        assert_eq!(pages.len(), 2, "{end}");
        assert_eq!(server.requests().last().unwrap().param("after"), Some("-7"));
    }
}

#[tokio::test]
async fn a_pointer_of_another_source_is_refused() {
    let server = SourceServer::start(5);
    for pointer in [json!({"offset": 3}), json!("x"), json!({"bookmarks": {}})] {
        let error = try_open(&api(&server, CURSOR), &pointer).await.unwrap_err();
        assert_eq!((error.code, error.class), ("SOURCE_POINTER", ErrorClass::Fatal));
    }
}

#[tokio::test]
async fn headers_are_sent_with_their_secrets_and_a_link_keeps_none() {
    let server = SourceServer::start(50);
    let source = format!(
        "type = \"http\"\nurl = \"{}?key=${{env:TOKEN}}&state=open\"\nrecords = \"/items\"\npage_size_param = \"limit\"\n\
         {LINK}\nheaders = {{ authorization = \"Bearer ${{env:TOKEN}}\" }}",
        server.url()
    );
    let pages = take_all(&mut open(&source, &Pointer::Null).await, &[20]).await.unwrap();
    assert_eq!(ids(&pages), all(50));
    assert!(!format!("{pages:?}").contains(TOKEN));
    for request in server.requests() {
        assert_eq!(request.header("authorization"), Some(format!("Bearer {TOKEN}").as_str()));
        assert_eq!((request.param("key"), request.param("state")), (Some(TOKEN), Some("open")));
    }
    let unset = api(&server, "headers = { x = \"${env:NOT_SET_HERE}\" }");
    let error = try_open(&unset, &Pointer::Null).await.unwrap_err();
    assert_eq!((error.code, error.class), ("SOURCE_SETTING", ErrorClass::Fatal));
}

#[tokio::test]
async fn requests_keep_their_distance_and_the_wait_can_be_dropped() {
    let server = SourceServer::start(50);
    let mut feed = open(&api(&server, &format!("{CURSOR}\nrate_limit = \"1/h\"")), &Pointer::Null).await;
    take(&mut feed, 7).await.unwrap();
    let second = tokio::time::timeout(Duration::from_millis(300), take(&mut feed, 7)).await;
    assert!(second.is_err(), "the second request has to wait");
    assert_eq!(server.request_count(), 1);
    feed.close().await;
}

#[tokio::test]
async fn compressed_answers_are_understood() {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(br#"{"items":[{"id":0},{"id":1}]}"#).unwrap();
    let server = SourceServer::start(0);
    server.fault_at(1, Fault::json(encoder.finish().unwrap()).with_header("content-encoding", "gzip"));
    let pages = take_all(&mut open(&api(&server, ""), &Pointer::Null).await, &[7]).await.unwrap();
    assert_eq!(ids(&pages), all(2));
    assert_eq!(server.requests()[0].header("accept-encoding"), Some("gzip"));
}
