//! A directive in a folder of its own, with a script as its tap, and what its feed gives.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use stargate_base::Secret;
use stargate_directive::Pointer;
use stargate_directive::source::{Databases, Feed, ForeignSink, Page, SourceError};
use stargate_feed::Surroundings;
use stargate_testkit::eventually;
use tempfile::TempDir;

/// How long anything may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// No test here has a database as its source.
#[derive(Debug)]
struct NoDatabases;

#[async_trait]
impl Databases for NoDatabases {
    async fn feed(
        &self,
        _: Option<&Secret>,
        _: &str,
        _: &str,
        _: &Pointer,
    ) -> Result<Box<dyn Feed>, SourceError> {
        unreachable!("the source is a tap")
    }

    async fn sink(&self, _: &Secret) -> Result<Box<dyn ForeignSink>, SourceError> {
        unreachable!("nothing is written")
    }
}

/// A directive's folder.
pub(crate) struct Bench {
    folder: TempDir,
    environment: BTreeMap<String, String>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let path = std::env::var("PATH").unwrap();
        Self {
            folder: tempfile::tempdir().unwrap(),
            environment: BTreeMap::from([("PATH".to_owned(), path), ("HOME".to_owned(), "/".to_owned())]),
        }
    }

    /// A folder with `tap.sh`.
    pub(crate) fn with_script(script: &str) -> Self {
        let bench = Self::new();
        bench.write("tap.sh", script);
        bench
    }

    /// Sets a variable of the worker's environment.
    pub(crate) fn set(mut self, name: &str, value: &str) -> Self {
        self.environment.insert(name.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Files that taps were given and that are still there.
    pub(crate) fn left(&self) -> usize {
        std::fs::read_dir(self.path("scratch")).map_or(0, Iterator::count)
    }

    /// Starts `tap.sh`, with further lines of `[source]`.
    pub(crate) async fn open(&self, lines: &str, from: &Pointer) -> Result<Box<dyn Feed>, SourceError> {
        self.open_tap(&format!("command = [\"sh\", \"tap.sh\"]\n{lines}"), from).await
    }

    /// Starts what the lines of `[source]` say.
    pub(crate) async fn open_tap(&self, lines: &str, from: &Pointer) -> Result<Box<dyn Feed>, SourceError> {
        let text = format!(
            "name = \"d\"\nqueue = \"q\"\ntenant = \"t\"\nproject = \"p\"\n[source]\ntype = \"singer\"\n{lines}\n\
             [item]\nkey = [\"/id\"]\n[sink]\ntable = \"items\"\n"
        );
        let path = self.path("d.toml");
        let directive = stargate_directive::file::parse(&path, &text, &["q".to_owned()])
            .unwrap_or_else(|problems| panic!("{problems:?}\n{text}"));
        let environment = self.environment.clone();
        let around = Surroundings {
            environment: Box::new(move |name| environment.get(name).cloned()),
            scratch: self.path("scratch"),
            databases: Box::new(NoDatabases),
        };
        stargate_feed::open(&directive, from, &around).await
    }

    /// Starts `tap.sh` and reads all of it.
    pub(crate) async fn read(&self, lines: &str, size: u32) -> (Vec<Seen>, Option<SourceError>) {
        let mut feed = self.open(lines, &Pointer::Null).await.unwrap();
        let all = read(&mut *feed, size).await;
        feed.close().await;
        assert_eq!(self.left(), 0, "the tap's files are removed");
        all
    }
}

/// A page as a test looks at it.
#[derive(Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) records: Vec<String>,
    pub(crate) next: Option<Pointer>,
    pub(crate) is_last: bool,
}

impl From<Page> for Seen {
    fn from(page: Page) -> Self {
        let records = page.records.map(|record| match record.unwrap() {
            Ok(json) => json.get().to_owned(),
            Err(garbled) => format!("garbled: {} ({})", garbled.text, garbled.problem),
        });
        Self { records: records.collect(), next: page.next, is_last: page.is_last }
    }
}

pub(crate) async fn page(feed: &mut dyn Feed, size: u32) -> Result<Seen, SourceError> {
    tokio::time::timeout(PATIENCE, feed.page(size)).await.expect("the page does not come").map(Seen::from)
}

/// All pages up to the last, or to an error.
pub(crate) async fn read(feed: &mut dyn Feed, size: u32) -> (Vec<Seen>, Option<SourceError>) {
    let mut pages = Vec::new();
    loop {
        match page(feed, size).await {
            Ok(page) => pages.push(page),
            Err(error) => return (pages, Some(error)),
        }
        if pages.last().is_some_and(|page| page.is_last) {
            return (pages, None);
        }
    }
}

/// What is logged by this thread while the value lives.
pub(crate) struct Log {
    text: Arc<Mutex<Vec<u8>>>,
    _guard: tracing::subscriber::DefaultGuard,
}

impl Log {
    pub(crate) fn listen() -> Self {
        let text = Arc::new(Mutex::new(Vec::new()));
        let writer = Writer(text.clone());
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(tracing::Level::TRACE)
            .with_writer(move || writer.clone())
            .finish();
        Self { text, _guard: tracing::subscriber::set_default(subscriber) }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.text.lock().unwrap().clone()).unwrap()
    }
}

#[derive(Clone)]
struct Writer(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The state letter of a process; a zombie that nobody reaps counts as gone.
pub(crate) fn state(pid: &str) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next().filter(|state| !"ZX".contains(*state))
}

/// Waits until a process is gone.
pub(crate) async fn gone(pid: &str) {
    eventually(PATIENCE, "the end of a process", || async {
        state(pid).map_or(Ok(()), |state| Err(format!("process {pid} is there, in state {state}")))
    })
    .await;
}

/// Waits until a tap has written a file, and reads it.
pub(crate) async fn written(path: &Path) -> String {
    eventually(PATIENCE, "a file of the tap", || async {
        match std::fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => Ok(text.trim().to_owned()),
            other => Err(format!("{}: {other:?}", path.display())),
        }
    })
    .await
}
