//! Reads what a child says, in bounded memory and without waiting for something that escaped its group.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio_util::sync::CancellationToken;

use crate::tail::Tail;

/// How much of a program's stderr is kept with a failure.
pub(crate) const STDERR_BYTES_MAX: usize = 64 << 10;

/// Output that arrives later than this after the program's end belongs to something that escaped its group.
const DRAIN_QUIET: Duration = Duration::from_millis(250);
/// A pipe holds at most so much; what comes after that was not written by the program.
const DRAIN_BYTES_MAX: usize = 1 << 20;

/// The end of a program's stderr.
pub(crate) async fn overhear(
    mut stderr: impl AsyncRead + Unpin,
    exited: &CancellationToken,
) -> Option<String> {
    let mut tail = Tail::new(STDERR_BYTES_MAX);
    let mut reader = Reader::default();
    while let Some(bytes) = reader.next(&mut stderr, exited).await {
        tail.push(bytes);
    }
    tail.text()
}

/// Reads a pipe until it ends, or until the program has exited and the pipe is empty: something that escaped the
/// group may hold it open for ever.
pub(crate) struct Reader {
    buffer: Box<[u8]>,
    after_exit: usize,
}

impl Default for Reader {
    fn default() -> Self {
        Self { buffer: vec![0; 8192].into_boxed_slice(), after_exit: 0 }
    }
}

impl Reader {
    pub(crate) async fn next(
        &mut self,
        pipe: &mut (impl AsyncRead + Unpin),
        exited: &CancellationToken,
    ) -> Option<&[u8]> {
        let quiet = async {
            exited.cancelled().await;
            tokio::time::sleep(DRAIN_QUIET).await;
        };
        let read = tokio::select! {
            biased;
            read = pipe.read(&mut self.buffer) => read.unwrap_or(0),
            () = quiet => 0,
        };
        if exited.is_cancelled() {
            self.after_exit += read;
        }
        (read > 0 && self.after_exit <= DRAIN_BYTES_MAX).then(|| &self.buffer[..read])
    }
}
