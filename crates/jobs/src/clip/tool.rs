//! Runs ffmpeg and ffprobe: bounded output, no input, no child left behind.
//!
//! Both read files that strangers made. They may open nothing but the one file they are given
//! (`-protocol_whitelist file`), and only as a container that cannot name other files ([`FORMATS`]): playlists,
//! `concat` scripts and image sequences are refused before they are read.

use std::ffi::OsString;
use std::future::Future;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use stargate_base::{ErrorClass, chain};
use stargate_queue::handler::Failure;
use tokio_util::sync::CancellationToken;

use super::{CLIP_FAILED, FFMPEG_MISSING};
use crate::execution::stopped;
use crate::pipes::{Reader, overhear};
use crate::process::{self, Pipes, Spec, StartError};

/// Containers that hold all they need. By ffmpeg's names; one of several names of a format is enough.
pub(super) const FORMATS: &str =
    "mov,matroska,avi,flv,mpegts,mpeg,ogg,asf,mxf,wav,w64,mp3,flac,aac,ac3,eac3,aiff,caf";
/// Four times the area of 8K: a picture that claims to be larger is made to exhaust memory.
const PIXELS_MAX: &str = "134217728";
/// How long the last words of a stopped program may take.
const DRAIN_STOPPED: Duration = Duration::from_millis(500);

/// Where programs run: their environment, and the order to stop.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tools<'a> {
    pub(super) environment: &'a [(OsString, OsString)],
    pub(super) grace: Duration,
    pub(super) stopping: &'a CancellationToken,
}

/// How a program ended by itself.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) stderr: Option<String>,
}

/// Is told what a program writes to its stdout.
pub(super) trait Listener: Send {
    /// More of it. Anything but `Continue` ends the program.
    fn heard(&mut self, bytes: &[u8]) -> impl Future<Output = Wish> + Send;
}

/// What a listener wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// More.
    Continue,
    /// Nothing further; the program may be killed.
    Enough,
}

/// Options that stand before each input.
pub(super) fn input_options() -> [&'static str; 6] {
    ["-protocol_whitelist", "file", "-format_whitelist", FORMATS, "-max_pixels", PIXELS_MAX]
}

/// The address of a file for ffmpeg. The prefix keeps names such as `-i` or `http:x` from meaning anything else.
pub(super) fn file_address(path: &str) -> String {
    format!("file:{path}")
}

impl Tools<'_> {
    /// Runs a program to its end. `Ok(None)`: the listener had enough.
    pub(super) async fn run(
        &self,
        program: &Path,
        args: &[String],
        listener: &mut impl Listener,
    ) -> Result<Option<Ended>, Failure> {
        let name = program.to_string_lossy();
        let spec = Spec { program: &name, args, working_dir: None, env: self.environment.to_vec() };
        let (mut process, pipes) = process::start(&spec).map_err(not_started)?;
        let Pipes { stdin, stdout, stderr } = pipes;
        drop(stdin);
        let (exited, enough) = (CancellationToken::new(), CancellationToken::new());
        let mut conversation = std::pin::pin!(async {
            tokio::join!(listen(stdout, &exited, &enough, listener), overhear(stderr, &exited)).1
        });
        let mut said = None;
        let status = loop {
            tokio::select! {
                status = process.wait() => break status?,
                stderr = &mut conversation, if said.is_none() => said = Some(stderr),
                () = enough.cancelled() => {
                    process.terminate(Duration::ZERO).await?;
                    return Ok(None);
                }
                () = self.stopping.cancelled() => {
                    // Still listened to: a full pipe would keep it from ending.
                    let drain = async { if said.is_none() { conversation.await; } };
                    let drain = tokio::time::timeout(self.grace + DRAIN_STOPPED, drain);
                    let end = async {
                        let status = process.terminate(self.grace).await;
                        exited.cancel();
                        status
                    };
                    tokio::join!(end, drain).0?;
                    return Err(stopped());
                }
            }
        };
        exited.cancel();
        let stderr = match said {
            Some(stderr) => stderr,
            None => tokio::select! {
                stderr = &mut conversation => stderr,
                () = self.stopping.cancelled() => return Err(stopped()),
            },
        };
        Ok(Some(Ended { status, stderr }))
    }
}

async fn listen(
    mut stdout: impl tokio::io::AsyncRead + Unpin,
    exited: &CancellationToken,
    enough: &CancellationToken,
    listener: &mut impl Listener,
) {
    let mut reader = Reader::default();
    while let Some(bytes) = reader.next(&mut stdout, exited).await {
        if listener.heard(bytes).await == Wish::Enough {
            enough.cancel();
            return;
        }
    }
}

fn not_started(error: StartError) -> Failure {
    match error {
        StartError::System { .. } => Failure::new(CLIP_FAILED, ErrorClass::RetryableTransient, chain(&error)),
        _ => {
            let message = format!(
                "{}; install ffmpeg (its package holds ffprobe too), or say where they are: clip.ffmpeg and clip.ffprobe",
                chain(&error)
            );
            Failure::new(FFMPEG_MISSING, ErrorClass::Fatal, message)
        }
    }
}

/// Keeps what is said, up to a bound.
#[derive(Debug)]
pub(super) struct Collected {
    pub(super) bytes: Vec<u8>,
    bytes_max: usize,
}

impl Collected {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes: Vec::new(), bytes_max }
    }
}

impl Listener for Collected {
    async fn heard(&mut self, bytes: &[u8]) -> Wish {
        if self.bytes.len() + bytes.len() > self.bytes_max {
            return Wish::Enough;
        }
        self.bytes.extend_from_slice(bytes);
        Wish::Continue
    }
}

/// Cuts what is said into lines; a line that is too long is none.
#[derive(Debug, Default)]
pub(super) struct Lines {
    rest: Vec<u8>,
}

/// Far above what either program writes on a line that is of use here.
const LINE_BYTES_MAX: usize = 1024;

impl Lines {
    /// The lines that end within these bytes.
    pub(super) fn split(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.rest.len() <= LINE_BYTES_MAX {
                self.rest.extend_from_slice(&piece[..piece.len().min(LINE_BYTES_MAX + 1)]);
            }
            if piece.ends_with(b"\n") {
                if self.rest.len() <= LINE_BYTES_MAX {
                    lines.push(String::from_utf8_lossy(&self.rest).trim().to_owned());
                }
                self.rest.clear();
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_and_endless_ones_are_none() {
        let mut lines = Lines::default();
        assert_eq!(lines.split(b"a=1\nb"), ["a=1"]);
        assert_eq!(lines.split(b"=2\r\n\nc"), ["b=2", ""]);
        for _ in 0..100 {
            assert!(lines.split(&[b'x'; 500]).is_empty());
            assert!(lines.rest.len() <= 2 * LINE_BYTES_MAX + 2);
        }
        assert_eq!(lines.split(b"\nd\n"), ["d"]);
    }
}
