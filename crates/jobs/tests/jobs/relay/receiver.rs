//! A server that takes announcements, and remembers them in the order of their arrival.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// What arrived.
#[derive(Debug, Clone)]
pub(super) struct Arrival {
    pub(super) head: String,
    pub(super) body: String,
    pub(super) id: i64,
    /// The entity.
    pub(super) key: String,
    /// What it was answered.
    pub(super) answer: String,
}

impl Arrival {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub(super) fn is_accepted(&self) -> bool {
        self.answer.starts_with('2')
    }
}

/// Decides the answer: `200 OK`, or with headers `429 Busy\r\nretry-after: 1`. `None` is no answer at all.
type Judge = dyn Fn(&Arrival) -> Option<String> + Send + Sync;

/// The server; it ends when it is dropped.
pub(super) struct Receiver {
    pub(super) url: String,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
    left: Arc<AtomicUsize>,
    connected: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Receiver {
    pub(super) async fn start(judge: impl Fn(&Arrival) -> Option<String> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook?token=path-canary", listener.local_addr().unwrap());
        let arrivals = Arc::new(Mutex::new(Vec::new()));
        let (judge, kept): (Arc<Judge>, _) = (Arc::new(judge), arrivals.clone());
        let left = Arc::new(AtomicUsize::new(0));
        let connected = Arc::new(AtomicUsize::new(0));
        let (leaving, connecting) = (left.clone(), connected.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connecting.fetch_add(1, Ordering::SeqCst);
                let serving = serve(stream, judge.clone(), kept.clone(), leaving.clone());
                let gone = connecting.clone();
                connections.spawn(async move {
                    serving.await;
                    gone.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { url, arrivals, left, connected, _tasks: tasks }
    }

    pub(super) fn arrivals(&self) -> Vec<Arrival> {
        self.arrivals.lock().unwrap().clone()
    }

    /// Clients that left because they got no answer.
    pub(super) fn left(&self) -> usize {
        self.left.load(Ordering::SeqCst)
    }

    /// Connections that may still bring something.
    pub(super) fn connected(&self) -> usize {
        self.connected.load(Ordering::SeqCst)
    }

    /// The versions of each entity that were accepted, in the order of their arrival.
    pub(super) fn versions(&self) -> BTreeMap<String, Vec<u64>> {
        let mut versions: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for arrival in self.arrivals().iter().filter(|arrival| arrival.is_accepted()) {
            let body: Value = serde_json::from_str(&arrival.body).unwrap();
            versions.entry(arrival.key.clone()).or_default().push(body["version"].as_u64().unwrap());
        }
        versions
    }
}

async fn serve(
    mut stream: TcpStream,
    judge: Arc<Judge>,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
    left: Arc<AtomicUsize>,
) {
    let mut bytes = Vec::new();
    while let Some(mut arrival) = read(&mut stream, &mut bytes).await {
        let answer = judge(&arrival);
        arrival.answer = answer.clone().unwrap_or_default();
        arrivals.lock().unwrap().push(arrival);
        let Some(answer) = answer else {
            // Until the client leaves.
            let _ = stream.read_to_end(&mut Vec::new()).await;
            left.fetch_add(1, Ordering::SeqCst);
            return;
        };
        let answer = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n");
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn read(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<Arrival> {
    let mut buffer = [0; 8192];
    loop {
        let text = String::from_utf8_lossy(bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let mut arrival = Arrival {
                head: head.to_owned(),
                body: String::new(),
                id: 0,
                key: String::new(),
                answer: String::new(),
            };
            let length: usize = arrival.header("content-length").unwrap().parse().unwrap();
            if body.len() >= length {
                bytes.drain(..head.len() + 4 + length);
                body[..length].clone_into(&mut arrival.body);
                arrival.id = arrival.header("x-stargate-announcement").unwrap().parse().unwrap();
                let key = arrival.header("x-stargate-key").unwrap();
                arrival.key = key.rsplit("%2F").next().unwrap().to_owned();
                return Some(arrival);
            }
        }
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return None,
            Ok(read) => bytes.extend_from_slice(&buffer[..read]),
        }
    }
}
