//! A little HTTP server for the demo's `notify` jobs: takes any POST and says how much it got.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stargate_base::Tasks;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::failure::{Failure, Result};

/// The largest request it reads.
const REQUEST_BYTES_MAX: usize = 64 << 10;

/// The running server.
pub(super) struct Endpoint {
    pub(super) address: SocketAddr,
    calls: Arc<AtomicU64>,
}

impl Endpoint {
    /// How often it was called.
    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

/// Starts it on a free port.
pub(super) async fn start(tasks: &Tasks) -> Result<Endpoint> {
    let cannot = |error: std::io::Error| Failure::io("cannot start the demo's local server", &error);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    let calls = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&calls);
    let stop = tasks.stopping();
    tasks.spawn(async move {
        // One at a time is enough for a demo.
        while let Some(Ok((stream, _))) = stop.run_until_cancelled(listener.accept()).await {
            let answered = tokio::time::timeout(Duration::from_secs(5), answer(stream)).await;
            if matches!(answered, Ok(Ok(()))) {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    Ok(Endpoint { address, calls })
}

async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut request = Vec::new();
    let body = loop {
        let mut part = [0_u8; 4096];
        let count = stream.read(&mut part).await?;
        request.extend_from_slice(&part[..count]);
        if let Some(body) = whole_body(&request) {
            break body;
        }
        if count == 0 || request.len() > REQUEST_BYTES_MAX {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
    };
    let text = format!("{{\"received_bytes\":{body}}}");
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
    stream.write_all(format!("{head}\r\ncontent-length: {}\r\n\r\n{text}", text.len()).as_bytes()).await?;
    stream.shutdown().await
}

/// The length of the body once all of it has arrived.
fn whole_body(request: &[u8]) -> Option<usize> {
    let text = String::from_utf8_lossy(request);
    let (head, _) = text.split_once("\r\n\r\n")?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let length = length.unwrap_or(0);
    (request.len() >= head.len() + 4 + length).then_some(length)
}
