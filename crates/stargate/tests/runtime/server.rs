//! A web server on this machine with good and bad answers.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::video;

/// Serves until dropped.
pub(crate) struct Server {
    port: u16,
    seen: Seen,
    _tasks: JoinSet<()>,
}

/// The paths asked for.
type Seen = Arc<Mutex<Vec<String>>>;

impl Server {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Seen::default();
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, port, Arc::clone(&seen)));
        Self { port, seen, _tasks: tasks }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// The paths that were asked for so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn accept(listener: TcpListener, port: u16, seen: Seen) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, port, Arc::clone(&seen)));
    }
}

async fn serve(mut stream: TcpStream, port: u16, seen: Seen) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) if request.len() < 16 << 10 => request.push(byte),
            _ => return,
        }
    }
    let request = String::from_utf8_lossy(&request);
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    seen.lock().unwrap_or_else(PoisonError::into_inner).push(path.clone());
    let mut sent = stream.write_all(&answer(&path, port)).await;
    // Until the other side has had enough.
    while path == "/endless" && sent.is_ok() {
        sent = stream.write_all(&[0x47; 16 << 10]).await;
    }
    let _ = stream.shutdown().await;
}

fn answer(path: &str, port: u16) -> Vec<u8> {
    let whole = |status: &str, body: Vec<u8>| {
        let head =
            format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
        [head.into_bytes(), body].concat()
    };
    match path {
        "/video" => whole("200 OK", std::fs::read(video::plain()).unwrap()),
        "/moved" => whole("302 Found\r\nLocation: /video", Vec::new()),
        "/busy" => whole("503 Service Unavailable\r\nRetry-After: 0", Vec::new()),
        "/empty" => whole("200 OK", Vec::new()),
        "/list.m3u8" => {
            let list = format!("#EXTM3U\n#EXTINF:9,\nhttp://127.0.0.1:{port}/inner\n#EXT-X-ENDLIST\n");
            whole("200 OK", list.into_bytes())
        }
        "/announced" => b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n".to_vec(),
        "/endless" => b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n".to_vec(),
        _ => whole("404 Not Found", Vec::new()),
    }
}
