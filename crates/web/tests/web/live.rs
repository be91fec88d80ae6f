//! The live stream of a node: one producer, many streams, and coming back.

use std::time::Duration;

use serde_json::Value;
use stargate_web::Scope;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::fixture::{Fixture, PATIENCE};

/// A stream that is open.
struct Stream {
    socket: TcpStream,
    text: String,
}

impl Stream {
    async fn open(address: std::net::SocketAddr, last: Option<&str>) -> Self {
        let mut socket = TcpStream::connect(address).await.unwrap();
        let last = last.map(|id| format!("last-event-id: {id}\r\n")).unwrap_or_default();
        let request = format!("GET /api/v1/events HTTP/1.1\r\nhost: x\r\n{last}\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        Self { socket, text: String::new() }
    }

    /// Waits for a message of a type: its id and its data. Messages before it are passed over.
    async fn next(&mut self, event: &str) -> (String, Value) {
        let wait = async {
            loop {
                while let Some(end) = self.text.find("\n\n") {
                    let block: String = self.text.drain(..end + 2).collect();
                    let field = |name: &str| {
                        let lines =
                            block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
                        lines.unwrap_or_default().to_owned()
                    };
                    if field("event") == event {
                        return (field("id"), serde_json::from_str(&field("data")).unwrap());
                    }
                }
                let mut buffer = [0; 8192];
                let read = self.socket.read(&mut buffer).await.unwrap();
                assert!(read > 0, "the stream ended before {event}");
                self.text.push_str(&String::from_utf8_lossy(&buffer[..read]).replace('\r', ""));
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("no {event}"))
    }
}

#[tokio::test]
async fn streams_tell_what_changes_and_go_on_where_a_client_was() {
    let f = Fixture::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let server = stargate_web::serve(listener, f.app.clone(), Scope::Full, None, stop.clone());
    let client = async {
        let mut one = Stream::open(address, None).await;
        let (_, stats) = one.next("stats").await;
        assert_eq!(stats["instance"], "node-1");
        one.next("leader").await;
        let job = f.job(r#"{"kind":"greet"}"#).await;
        let (seen, changed) = one.next("jobs").await;
        assert_eq!(changed, serde_json::json!({ "ids": [job], "more": false }));
        let mut late = Stream::open(address, None).await;
        late.next("stats").await;
        f.claim(f.worker().await).await;
        for stream in [&mut one, &mut late] {
            assert_eq!(stream.next("jobs").await.1["ids"], serde_json::json!([job]));
        }
        drop(one);
        let mut back = Stream::open(address, Some(&seen)).await;
        assert_eq!(back.next("jobs").await.1["ids"], serde_json::json!([job]), "what was missed");
        let mut lost = Stream::open(address, Some("17")).await;
        lost.next("reset").await;
        lost.next("stats").await;
        stop.cancel();
    };
    let both = async { tokio::join!(server, client) };
    tokio::time::timeout(PATIENCE * 4, both).await.expect("a stream held the server up");
}

#[tokio::test]
async fn two_hundred_streams_ask_the_store_as_often_as_one() {
    let f = Fixture::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let server = stargate_web::serve(listener, f.app.clone(), Scope::Full, None, stop.clone());
    let client = async {
        let before = resident_kib();
        let mut streams = Vec::new();
        for _ in 0..200 {
            streams.push(Stream::open(address, None).await);
        }
        let mut ids = Vec::new();
        for stream in &mut streams {
            stream.next("stats").await;
            ids.push(stream.next("stats").await.0.parse::<u64>().unwrap());
        }
        let grown = resident_kib().saturating_sub(before);
        assert!(grown < 50 * 1024, "200 streams and their clients took {grown} KiB");
        // All saw the same messages: what is read late was made once.
        let (first, last) = (ids.iter().min().unwrap(), ids.iter().max().unwrap());
        assert!(last - first < 60, "{first} to {last}");
        stop.cancel();
    };
    let both = async { tokio::join!(server, client) };
    tokio::time::timeout(Duration::from_secs(120), both).await.expect("it takes too long");
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
