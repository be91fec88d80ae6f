//! What clips are allowed to be, and what makes them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// What clips are allowed to be, and what makes them.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The program ffmpeg: a path, or a name that is looked up in the `PATH` of `inherited`.
    pub ffmpeg: PathBuf,
    /// The program ffprobe, likewise.
    pub ffprobe: PathBuf,
    /// The largest source in bytes. Default 4 GiB.
    pub input_bytes_max: u64,
    /// The longest clip. Default 2 min.
    pub clip_max: Duration,
    /// Local sources must lie below one of these; empty means that any file of the worker's user will do.
    pub source_roots: Vec<PathBuf>,
    /// Whether sources may be downloaded from private addresses. Default no.
    pub allow_private: bool,
    /// What ffmpeg keeps of this process' environment: see [`crate::process::inherited`].
    pub inherited: Vec<(OsString, OsString)>,
    /// Time between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// How long an attempt waits before it gives its job back because another one holds the place of its artifact.
    /// Default 30 s.
    pub busy_delay: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ffmpeg: "ffmpeg".into(),
            ffprobe: "ffprobe".into(),
            input_bytes_max: 4 << 30,
            clip_max: Duration::from_secs(120),
            source_roots: Vec::new(),
            allow_private: false,
            inherited: Vec::new(),
            grace: crate::exec::GRACE,
            busy_delay: Duration::from_secs(30),
        }
    }
}
