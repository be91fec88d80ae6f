//! What the gateway logs, kept so that a test can wait for a line and look for what must not be in any.

use std::io;
use std::sync::{Mutex, Once};

use stargate_testkit::eventually;
use tracing_subscriber::fmt::MakeWriter;

use crate::fixture::PATIENCE;

static LINES: Mutex<Vec<u8>> = Mutex::new(Vec::new());
static LISTENING: Once = Once::new();

struct Kept;

impl io::Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LINES.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Kept {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        Self
    }
}

/// Keeps what is logged from now on, in all detail.
pub(crate) fn listen() {
    LISTENING.call_once(|| {
        let level = tracing_subscriber::filter::LevelFilter::TRACE;
        tracing_subscriber::fmt().with_max_level(level).with_ansi(false).with_writer(|| Kept).init();
    });
}

/// All that was logged.
pub(crate) fn text() -> String {
    String::from_utf8_lossy(&LINES.lock().unwrap()).into_owned()
}

/// Waits for a line about a request.
pub(crate) async fn says(request: &str, words: &str) {
    eventually(PATIENCE, &format!("the log to say {words:?} about {request}"), || async move {
        let text = text();
        let found = text.lines().any(|line| line.contains(request) && line.contains(words));
        found.then_some(()).ok_or_else(|| format!("{} lines", text.lines().count()))
    })
    .await;
}
