//! A JSON API for tests of directives: pages over generated items, and whatever goes wrong with such APIs.
//!
//! It answers `GET /items` in every paging style at once, so that a test picks one by what it asks for:
//!
//! | asked for | what comes |
//! | --- | --- |
//! | `?after=ID` | items after that id; `next` in the body is the last id given, or null at the end (cursor) |
//! | `?offset=N` | items from that position (offset) |
//! | `?page=N` | the page of that number, from 1 (page) |
//! | nothing | the first page; each answer has a header `Link` with `rel="next"` unless it is the last (link) |
//!
//! `limit` is how many items a page has. The body is `{"items":[…],"next":…,"total":…}`. Other paths are answered 404.
//!
//! ```no_run
//! use stargate_testkit::source_server::{Fault, SourceServer};
//!
//! let server = SourceServer::start(20_000);
//! server.fault_at(3, Fault::status(429).with_header("retry-after", "1"));
//! server.fault_at(5, Fault::Truncate);
//! server.edit(|data| data.touch(17));
//! let directive = format!("url = \"{}\"", server.url());
//! # let _ = directive;
//! assert_eq!(server.request_count(), 0);
//! ```
//!
//! The server runs on a thread of its own, so that tests that wait for a process do not stop it. It ends when dropped.

mod answer;
mod data;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

pub use data::{Data, Id};

/// A JSON API that does what its test wants.
#[derive(Debug)]
pub struct SourceServer {
    address: SocketAddr,
    state: Arc<State>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What a client asked.
#[derive(Debug, Clone)]
pub struct Request {
    /// The first has 1.
    pub number: u64,
    /// Path and query as they came.
    pub target: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
}

impl Request {
    /// The path.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// The value of a parameter of the query, as it came.
    pub fn param(&self, name: &str) -> Option<&str> {
        let query = self.target.split_once('?')?.1;
        query.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name).map(|p| p.1)
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// What is done instead of giving the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Another answer.
    Answer {
        /// Its status.
        status: u16,
        /// Its headers.
        headers: Vec<(String, String)>,
        /// Its body.
        body: Vec<u8>,
    },
    /// The page, with other or further headers.
    Headers(Vec<(String, String)>),
    /// Half of the page; the length promised more.
    Truncate,
    /// No answer. The connection stays open.
    Hang,
    /// Half of the page, then nothing. The connection stays open.
    HangInside,
    /// The connection ends without an answer.
    Close,
    /// The page, so much later.
    Delay(Duration),
}

impl Fault {
    /// An answer with a status and without a body.
    pub fn status(status: u16) -> Self {
        Self::Answer { status, headers: Vec::new(), body: Vec::new() }
    }

    /// An answer 200 with a body of a type.
    pub fn body(content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let headers = vec![("content-type".to_owned(), content_type.to_owned())];
        Self::Answer { status: 200, headers, body: body.into() }
    }

    /// An answer 200 with JSON.
    pub fn json(body: impl Into<Vec<u8>>) -> Self {
        Self::body("application/json", body)
    }

    /// A page for people, as proxies and login walls send it.
    pub fn html() -> Self {
        Self::body("text/html", "<!doctype html><html><body><h1>Sign in</h1></body></html>")
    }

    /// With a header more. Those that give no answer stay as they are.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        if let Self::Answer { headers, .. } | Self::Headers(headers) = &mut self {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }
}

/// Decides about each request.
type Script = Box<dyn Fn(&Request) -> Option<Fault> + Send>;

#[derive(Default)]
struct State {
    data: Mutex<Data>,
    requests: Mutex<Vec<Request>>,
    faults: Mutex<BTreeMap<u64, Fault>>,
    script: Mutex<Option<Script>>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("State")
    }
}

impl State {
    /// Notes a request and says what is to be done about it.
    fn take(&self, target: String, headers: Vec<(String, String)>) -> (Request, Option<Fault>) {
        let mut requests = lock(&self.requests);
        let request = Request { number: requests.len() as u64 + 1, target, headers };
        requests.push(request.clone());
        drop(requests);
        let fault = lock(&self.faults).remove(&request.number);
        let fault = fault.or_else(|| lock(&self.script).as_ref().and_then(|script| script(&request)));
        (request, fault)
    }
}

impl SourceServer {
    /// A server of so many items: `{"id":17,"title":"item 17","state":"open","version":0}`, ids from 0.
    pub fn start(count: u64) -> Self {
        Self::with_data(Data::new(count))
    }

    /// A server of this data.
    pub fn with_data(data: Data) -> Self {
        let state = Arc::new(State { data: Mutex::new(data), ..State::default() });
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port for the source");
        listener.set_nonblocking(true).expect("a socket that can be waited for");
        let address = listener.local_addr().expect("the address of a bound socket");
        let (stop, stopped) = oneshot::channel();
        let shared = Arc::clone(&state);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime for the source").block_on(async {
                tokio::select! {
                    () = serve(listener, shared) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { address, state, stop: Some(stop), thread: Some(thread) }
    }

    /// Where it listens: `http://127.0.0.1:PORT`.
    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where the items are: `http://127.0.0.1:PORT/items`.
    pub fn url(&self) -> String {
        format!("{}/items", self.origin())
    }

    /// Looks at the data or changes it.
    pub fn edit<T>(&self, edit: impl FnOnce(&mut Data) -> T) -> T {
        edit(&mut lock(&self.state.data))
    }

    /// Does something else at the request of this number, counted from 1 since the start of the server, once.
    pub fn fault_at(&self, number: u64, fault: Fault) {
        lock(&self.state.faults).insert(number, fault);
    }

    /// Does something else at the next request, once.
    pub fn fault_next(&self, fault: Fault) {
        self.fault_at(self.request_count() + 1, fault);
    }

    /// Asks `script` about each request for which no fault was set. `None` gives the page.
    pub fn script(&self, script: impl Fn(&Request) -> Option<Fault> + Send + 'static) {
        *lock(&self.state.script) = Some(Box::new(script));
    }

    /// Gives pages again.
    pub fn heal(&self) {
        *lock(&self.state.script) = None;
        lock(&self.state.faults).clear();
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<Request> {
        lock(&self.state.requests).clone()
    }

    /// How many there were.
    pub fn request_count(&self) -> u64 {
        lock(&self.state.requests).len() as u64
    }
}

impl Drop for SourceServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(listener: std::net::TcpListener, state: Arc<State>) {
    let listener = TcpListener::from_std(listener).expect("a listener of this runtime");
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(answer::connection(stream, Arc::clone(&state)));
        // Ended ones go.
        while connections.try_join_next().is_some() {}
    }
}
