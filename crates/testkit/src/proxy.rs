//! A TCP proxy that fails in the ways a network does: silence, loss, delay, cuts, and another server behind a name.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A proxy in front of one server. Ends when dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    plan: watch::Sender<Plan>,
    /// Connections taken so far.
    count: watch::Receiver<u64>,
    traffic: Arc<Traffic>,
    _tasks: JoinSet<()>,
}

/// What went on.
#[derive(Debug, Default)]
struct Traffic {
    /// What clients have sent and a stall holds back.
    held: Mutex<Vec<u8>>,
    asked: AtomicU64,
    harmed: AtomicU64,
}

impl Traffic {
    fn ask(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    fn harm(&self) {
        self.harmed.fetch_add(1, Ordering::Relaxed);
    }
}

/// What is done with connections, which are numbered in the order they came.
#[derive(Debug, Clone)]
struct Plan {
    mode: Mode,
    target: String,
    /// Those with a lower number are cut.
    cut_before: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Forward,
    Delay(Duration),
    Stall,
    /// Stalls those with a lower number.
    StallBefore(u64),
    Swallow,
    Refuse,
}

impl Plan {
    fn stalls(&self, number: u64) -> bool {
        match self.mode {
            Mode::Stall => true,
            Mode::StallBefore(first) => number < first,
            Mode::Forward | Mode::Delay(_) | Mode::Swallow | Mode::Refuse => false,
        }
    }
}

impl Proxy {
    /// A proxy in front of `target` (`host:port`) that forwards everything.
    pub async fn start(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port for the proxy");
        let address = listener.local_addr().expect("the address of a bound socket");
        let plan = watch::Sender::new(Plan { mode: Mode::Forward, target: target.to_owned(), cut_before: 0 });
        let (counted, count) = watch::channel(0);
        let mut tasks = JoinSet::new();
        let traffic = Arc::<Traffic>::default();
        tasks.spawn(accept(listener, plan.subscribe(), counted, Arc::clone(&traffic)));
        Self { address, plan, count, traffic, _tasks: tasks }
    }

    /// Where it listens, as `host:port`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Takes connections and bytes, and passes nothing on before [`Proxy::forward`]: a network that loses packets,
    /// which both sides send again.
    pub fn stall(&self) {
        self.set(Mode::Stall);
    }

    /// Passes nothing on that belongs to a connection made so far; new ones work.
    pub fn forget(&self) {
        let made = *self.count.borrow();
        self.set(Mode::StallBefore(made));
    }

    /// Whether a client has sent these bytes since it was stalled. They are on their way and have not arrived.
    pub fn holds(&self, bytes: &[u8]) -> bool {
        lock(&self.traffic.held).windows(bytes.len()).any(|window| window == bytes)
    }

    /// How often clients have come or sent something so far.
    pub fn asked(&self) -> u64 {
        self.traffic.asked.load(Ordering::Relaxed)
    }

    /// How often a connection was refused or cut, or something was held back or lost so far.
    pub fn harmed(&self) -> u64 {
        self.traffic.harmed.load(Ordering::Relaxed)
    }

    /// Takes connections and bytes and throws the bytes away: the other side is gone and nobody says so. A connection
    /// that has lost something never works again; new ones do after [`Proxy::forward`].
    pub fn swallow(&self) {
        self.set(Mode::Swallow);
    }

    /// Passes everything on, each piece so much later.
    pub fn delay(&self, by: Duration) {
        self.set(Mode::Delay(by));
    }

    /// Ends all connections, and each new one at once.
    pub fn cut(&self) {
        self.set(Mode::Refuse);
        self.cut_made();
    }

    /// Ends all connections; new ones go to another target.
    pub fn redirect(&self, target: &str) {
        self.plan.send_modify(|plan| target.clone_into(&mut plan.target));
        self.cut_made();
    }

    /// Passes on everything, also what was held back.
    pub fn forward(&self) {
        self.set(Mode::Forward);
    }

    fn set(&self, mode: Mode) {
        lock(&self.traffic.held).clear();
        self.plan.send_modify(|plan| plan.mode = mode);
    }

    fn cut_made(&self) {
        let made = *self.count.borrow();
        self.plan.send_modify(|plan| plan.cut_before = made);
    }
}

fn lock(held: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(
    listener: TcpListener,
    plan: watch::Receiver<Plan>,
    count: watch::Sender<u64>,
    traffic: Arc<Traffic>,
) {
    let mut connections = JoinSet::new();
    while let Ok((near, _)) = listener.accept().await {
        let number = *count.borrow();
        count.send_replace(number + 1);
        traffic.ask();
        // Decided after it was counted: a cut sees it, or it sees the cut.
        let now = plan.borrow().clone();
        if now.mode == Mode::Refuse {
            traffic.harm();
        } else {
            connections.spawn(connection(near, now.target, number, plan.clone(), Arc::clone(&traffic)));
        }
    }
}

async fn connection(
    near: TcpStream,
    target: String,
    number: u64,
    plan: watch::Receiver<Plan>,
    traffic: Arc<Traffic>,
) {
    let mut cut = plan.clone();
    let passing = async {
        let Ok(far) = TcpStream::connect(target).await else { return };
        let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
        tokio::join!(
            pass(near_read, far_write, number, plan.clone(), Side::Client, &traffic),
            pass(far_read, near_write, number, plan, Side::Server, &traffic)
        );
    };
    tokio::select! {
        () = passing => {}
        _ = cut.wait_for(|plan| number < plan.cut_before) => traffic.harm(),
    }
}

/// Who sends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    number: u64,
    mut plan: watch::Receiver<Plan>,
    side: Side,
    traffic: &Traffic,
) {
    let mut bytes = vec![0; 16 << 10];
    let mut lossy = false;
    loop {
        let read = from.read(&mut bytes).await.unwrap_or(0);
        let stalled = plan.borrow().stalls(number);
        if side == Side::Client {
            traffic.ask();
            if stalled {
                lock(&traffic.held).extend_from_slice(&bytes[..read]);
            }
        }
        if stalled {
            traffic.harm();
        }
        // Not even the end of a connection gets through.
        let Ok(mode) = plan.wait_for(|plan| !plan.stalls(number)).await.map(|plan| plan.mode) else { return };
        if mode == Mode::Swallow {
            traffic.harm();
            lossy = true;
        }
        if lossy && read == 0 {
            // Kept open for ever; the proxy's end, or a cut, ends it.
            return std::future::pending().await;
        }
        if lossy {
            continue;
        }
        if let Mode::Delay(by) = mode {
            tokio::time::sleep(by).await;
        }
        if read == 0 || to.write_all(&bytes[..read]).await.is_err() {
            let _ = to.shutdown().await;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers each byte with itself; `greeting` comes first.
    async fn echo(greeting: u8) -> (String, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                connections.spawn(async move {
                    let _ = stream.write_all(&[greeting]).await;
                    let (mut read, mut write) = stream.split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        (address, tasks)
    }

    const PATIENCE: Duration = Duration::from_secs(20);

    async fn connect(proxy: &Proxy, greeting: u8) -> TcpStream {
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(heard(&mut stream).await, Some(greeting));
        stream
    }

    /// The next byte; `None` at the end of the connection.
    async fn heard(stream: &mut TcpStream) -> Option<u8> {
        tokio::time::timeout(PATIENCE, stream.read_u8()).await.expect("an answer or an end").ok()
    }

    async fn is_silent(stream: &mut TcpStream) -> bool {
        tokio::time::timeout(Duration::from_millis(200), stream.read_u8()).await.is_err()
    }

    #[tokio::test]
    async fn what_was_stalled_arrives_later_and_what_was_swallowed_never_does() {
        let (target, _server) = echo(b'1').await;
        let proxy = Proxy::start(&target).await;
        let mut stream = connect(&proxy, b'1').await;
        proxy.stall();
        stream.write_u8(b'a').await.unwrap();
        assert!(is_silent(&mut stream).await);
        assert!(proxy.holds(b"a") && !proxy.holds(b"b"));
        assert_eq!(
            (proxy.asked(), proxy.harmed()),
            (2, 1),
            "a connection and a byte; the byte was held back"
        );
        proxy.forward();
        assert_eq!(heard(&mut stream).await, Some(b'a'));
        proxy.swallow();
        stream.write_u8(b'b').await.unwrap();
        assert!(is_silent(&mut stream).await);
        assert_eq!(proxy.harmed(), 2, "and one was lost");
        proxy.forward();
        stream.write_u8(b'c').await.unwrap();
        assert!(is_silent(&mut stream).await, "it has lost a byte");
        connect(&proxy, b'1').await;
    }

    #[tokio::test]
    async fn a_cut_ends_connections_and_a_redirection_leads_elsewhere() {
        let ((first, _one), (second, _two)) = (echo(b'1').await, echo(b'2').await);
        let proxy = Proxy::start(&first).await;
        let mut stream = connect(&proxy, b'1').await;
        proxy.cut();
        assert_eq!(heard(&mut stream).await, None);
        let mut refused = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(heard(&mut refused).await, None);
        assert_eq!(proxy.harmed(), 2, "one was cut, one was refused");
        proxy.forward();
        let mut stream = connect(&proxy, b'1').await;
        proxy.redirect(&second);
        assert_eq!(heard(&mut stream).await, None);
        connect(&proxy, b'2').await;
    }

    #[tokio::test]
    async fn a_delayed_byte_arrives() {
        let (target, _server) = echo(b'1').await;
        let proxy = Proxy::start(&target).await;
        let mut stream = connect(&proxy, b'1').await;
        proxy.delay(Duration::from_millis(300));
        stream.write_u8(b'a').await.unwrap();
        assert!(is_silent(&mut stream).await);
        assert_eq!(heard(&mut stream).await, Some(b'a'));
    }
}
