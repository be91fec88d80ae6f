//! Requests by hand, for what the stock client never sends, and for clients that vanish.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::client::Client;
use crate::fixture::PATIENCE;

/// An answer: status, head and body as text.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// In lower case.
    pub(crate) head: String,
    pub(crate) body: String,
}

/// Opens a connection and sends bytes.
pub(crate) async fn send(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The server may refuse and close before it has read everything.
    let _ = stream.write_all(bytes).await;
    stream
}

/// Reads one answer. The request must have asked to close the connection.
pub(crate) async fn answer(mut stream: TcpStream) -> Answer {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("no answer");
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text:?}, {read:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_lowercase(), body: body.to_owned() }
}

pub(crate) async fn get(address: SocketAddr, path: &str, headers: &str) -> Answer {
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n");
    answer(send(address, request.as_bytes()).await).await
}

/// The head of a POST to a service.
pub(crate) fn post_head(path: &str, service: &str, headers: &str) -> String {
    format!(
        "POST {path}/{service} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
         content-type: application/x-{service}-request\r\n{headers}\r\n"
    )
}

/// The body of a push that makes `name` point to the HEAD of a client's working copy.
pub(crate) async fn push_body(client: &Client, name: &str) -> Vec<u8> {
    let head = client.work_ok(&["rev-parse", "HEAD"]).await;
    let command = format!("{} {head} {name}\0report-status side-band-64k agent=test", "0".repeat(40));
    let mut body = format!("{:04x}{command}0000", command.len() + 4).into_bytes();
    let revision = client.path().join("revision");
    std::fs::write(&revision, format!("{head}\n")).unwrap();
    let mut command = client.command(&client.work(), &["pack-objects", "--quiet", "--revs", "--stdout"]);
    command.stdin(std::fs::File::open(revision).unwrap());
    let pack = tokio::time::timeout(Duration::from_secs(60), command.output()).await.unwrap().unwrap();
    assert!(pack.status.success() && pack.stdout.starts_with(b"PACK"));
    body.extend(pack.stdout);
    body
}
