//! Next links: followed as they are, and kept without what the environment gave.

use stargate_directive::Pointer;
use stargate_testkit::source_server::{Fault, Request, SourceServer};

use crate::fixture::{KEY, LINK, TOKEN, Taken, open, take_all};

fn source(server: &SourceServer, target: &str) -> String {
    format!("type = \"http\"\nurl = \"{}{target}\"\nrecords = \"/items\"\n{LINK}", server.origin())
}

/// Two pages, the second at this link. The pages, and what the server was asked for; each page by its pointer too.
async fn two(target: &str, link: String) -> (Vec<Taken>, Vec<Request>) {
    let server = SourceServer::start(0);
    server.script(move |request| {
        let page = Fault::json(r#"{"items":[{"id":1}]}"#);
        let is_second = request.target.contains("page=2");
        Some(if is_second { page } else { page.with_header("link", &format!("<{link}>; rel=next")) })
    });
    let source = source(&server, target);
    let pages = take_all(&mut open(&source, &Pointer::Null).await, &[7]).await.unwrap();
    assert_eq!(pages.len(), 2);
    let again = take_all(&mut open(&source, &pages[0].next).await, &[7]).await.unwrap();
    assert_eq!(again, pages[1..], "from {}", pages[0].next);
    let requests = server.requests();
    assert_eq!(requests[1].target, requests[2].target);
    (pages, requests)
}

/// Parts of the secrets that no way of writing changes.
fn tells(pages: &[Taken]) -> bool {
    let text = format!("{pages:?}");
    ["5e1f", "not", "show"].iter().any(|part| text.contains(part))
}

#[tokio::test]
async fn a_secret_is_in_no_pointer_however_the_server_writes_it() {
    let upper = KEY.replace('/', "%2F").replace('=', "%3D");
    let ways = [
        KEY.to_owned(),
        upper.clone(),
        upper.to_lowercase().replace('~', "%7e"),
        upper.replace("%2F", "/"),
        upper.replace('%', "%25"),
    ];
    for way in ways {
        for link in [
            format!("/items?page=2&key={way}&x=1"),
            format!("/items?page=2&other=a{way}b"),
            format!("/items/{way}/more?page=2"),
        ] {
            let (pages, requests) = two("/items?key=${env:KEY}", link.clone()).await;
            assert!(!tells(&pages), "{link}: {}", pages[0].next);
            let asked = &requests[1].target;
            assert_eq!(asked.to_lowercase(), link.to_lowercase(), "the link is asked for as it was given");
        }
    }
}

#[tokio::test]
async fn a_secret_in_the_path_is_in_no_pointer() {
    let link = format!("/v1/{TOKEN}/items?page=2&x={TOKEN}");
    let (pages, requests) = two("/v1/${env:TOKEN}/items", link.clone()).await;
    assert!(!tells(&pages), "{}", pages[0].next);
    assert_eq!(requests[1].target, link);
}

#[tokio::test]
async fn a_link_is_followed_without_parameters_that_it_left_out() {
    let (_, requests) = two("/items?status=any&key=${env:TOKEN}", "/items?page=2&info=x".to_owned()).await;
    assert_eq!(requests[1].target, "/items?page=2&info=x");
    let link = format!("/items?page=2&status=any&key={TOKEN}&status=any");
    let (_, requests) = two("/items?status=any&key=${env:TOKEN}", link.clone()).await;
    assert_eq!(requests[1].target, link);
}
