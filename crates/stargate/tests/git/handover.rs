//! Hooks hand over to the node what they have to record, and record it themselves where that does not work.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use crate::site::{Site, replace};

/// Has `post-receive` told something else than the gateway told it.
fn tell(site: &Site, name: &str, value: &str) {
    let change = format!(r#"s|"{name}":"[^"]*"|"{name}":"{value}"|"#);
    let script = format!(
        "STARGATE_HOOK=$(printf %s \"$STARGATE_HOOK\" | sed '{change}')\nexport STARGATE_HOOK\nexec \"$0.real\""
    );
    replace(&site.hook("post-receive"), &script);
}

/// One push, which is recorded once and about which the pusher is not warned.
async fn is_recorded(site: &Site) {
    let commit = site.client.commit("first");
    let output = site.client.git(&["push", "origin", "HEAD:main"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("warning"), "{said}");
    assert_eq!(site.recorded(1).await, [format!("refs/heads/main {commit} -")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_needs_no_store_while_its_node_is_there() {
    let site = Site::open("").await;
    tell(&site, "store", "sqlite:/nowhere/at/all.db");
    is_recorded(&site).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_whose_node_is_gone_records_the_push_itself() {
    let site = Site::open("").await;
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    tell(&site, "node", &format!("http://{closed}"));
    is_recorded(&site).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_its_node_does_not_know_records_the_push_itself() {
    let site = Site::open("").await;
    tell(&site, "key", "0");
    is_recorded(&site).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_whose_node_hangs_records_the_push_itself() {
    let site = Site::open("").await;
    // The system takes the connection, and nobody reads from it.
    let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
    tell(&site, "node", &format!("http://{}", hanging.local_addr().unwrap()));
    is_recorded(&site).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_whose_node_dies_before_it_answers_is_recorded_once() {
    let site = Site::open("").await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    tell(&site, "node", &format!("http://{}", listener.local_addr().unwrap()));
    let node: SocketAddr = site.node.address().parse().unwrap();
    let relay = std::thread::spawn(move || withhold_answer(&listener, node));
    is_recorded(&site).await;
    let answer = relay.join().unwrap();
    assert!(answer.starts_with("HTTP/1.1 204"), "the node had recorded it: {answer}");
}

/// Passes one question on and keeps the answer.
fn withhold_answer(listener: &TcpListener, node: SocketAddr) -> String {
    let (asking, _) = listener.accept().unwrap();
    let mut asked = TcpStream::connect(node).unwrap();
    let mut back = asked.try_clone().unwrap();
    let mut from = asking.try_clone().unwrap();
    let forth = std::thread::spawn(move || {
        let mut block = [0; 4096];
        while let Ok(read @ 1..) = from.read(&mut block) {
            asked.write_all(&block[..read]).unwrap();
        }
    });
    let mut block = [0; 4096];
    let read = back.read(&mut block).unwrap();
    asking.shutdown(Shutdown::Both).unwrap();
    forth.join().unwrap();
    String::from_utf8_lossy(&block[..read]).into_owned()
}
