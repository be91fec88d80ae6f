//! Starts git: everything that it sees is listed in a [`Spec`]. It leads a process group, which ends as a whole
//! ([`Process`]).

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

pub use stargate_base::Process;
use tokio::process::Command;

use crate::error::{Error, Result};

/// What a group that was asked to end is given before it is killed.
pub const GRACE: Duration = Duration::from_secs(2);

/// What to start: everything the child sees is listed here, nothing is inherited.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<OsString>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) dir: PathBuf,
    /// Whether the caller writes to it; otherwise its input is empty.
    pub(crate) has_input: bool,
}

pub(crate) fn start(spec: &Spec) -> Result<Process> {
    #[expect(clippy::disallowed_methods, reason = "the one place that starts git")]
    let mut command = Command::new(&spec.program);
    command.args(&spec.args).env_clear().envs(spec.env.iter().map(|(name, value)| (name, value)));
    command.stdin(if spec.has_input { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).current_dir(&spec.dir);
    // A git that is killed leaves its locks behind, here or in a remote that is a folder, and nobody removes them.
    Process::start_gently(command, GRACE)
        .map_err(|source| Error::Start { program: spec.program.clone(), source })
}
