//! A TCP proxy that can stop forwarding without a word, as a firewall that forgot a connection does.

use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A proxy in front of one server. Ends when dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    stalled: watch::Sender<Stalled>,
    /// Connections taken so far.
    count: watch::Receiver<u64>,
    _tasks: JoinSet<()>,
}

/// Which connections nothing gets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stalled {
    None,
    All,
    Before(u64),
}

impl Stalled {
    fn holds(self, number: u64) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Before(first) => number < first,
        }
    }
}

impl Proxy {
    /// A proxy in front of `target` (`host:port`) that forwards everything.
    pub async fn start(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port for the proxy");
        let address = listener.local_addr().expect("the address of a bound socket");
        let stalled = watch::Sender::new(Stalled::None);
        let (counted, count) = watch::channel(0);
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, target.to_owned(), stalled.subscribe(), counted));
        Self { address, stalled, count, _tasks: tasks }
    }

    /// Where it listens, as `host:port`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Takes connections and bytes, and passes nothing on.
    pub fn stall(&self) {
        self.stalled.send_replace(Stalled::All);
    }

    /// Passes nothing on that belongs to a connection made so far; new ones work.
    pub fn forget(&self) {
        self.stalled.send_replace(Stalled::Before(*self.count.borrow()));
    }

    /// Passes on everything, also what was held back.
    pub fn forward(&self) {
        self.stalled.send_replace(Stalled::None);
    }
}

async fn accept(
    listener: TcpListener,
    target: String,
    stalled: watch::Receiver<Stalled>,
    count: watch::Sender<u64>,
) {
    let mut connections = JoinSet::new();
    while let Ok((near, _)) = listener.accept().await {
        let number = *count.borrow();
        count.send_replace(number + 1);
        connections.spawn(connection(near, target.clone(), number, stalled.clone()));
    }
}

async fn connection(near: TcpStream, target: String, number: u64, stalled: watch::Receiver<Stalled>) {
    let Ok(far) = TcpStream::connect(target).await else { return };
    let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
    tokio::join!(
        pass(near_read, far_write, number, stalled.clone()),
        pass(far_read, near_write, number, stalled)
    );
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    number: u64,
    mut stalled: watch::Receiver<Stalled>,
) {
    let mut bytes = vec![0; 16 << 10];
    loop {
        let read = from.read(&mut bytes).await.unwrap_or(0);
        // Not even the end of a connection gets through.
        if stalled.wait_for(|stalled| !stalled.holds(number)).await.is_err() {
            return;
        }
        if read == 0 || to.write_all(&bytes[..read]).await.is_err() {
            let _ = to.shutdown().await;
            return;
        }
    }
}
