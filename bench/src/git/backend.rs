//! `git http-backend` behind the CGI server of `http-backend.py`.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;

use super::client::program;

const SERVER: &str = include_str!("../../http-backend.py");

/// The running server. Killed when dropped.
pub(crate) struct Backend {
    port: u16,
    _child: Child,
}

impl Backend {
    /// Starts it for the repositories below the root; its program is put into the folder.
    pub(crate) async fn start(python: &Path, root: &Path, folder: &Path) -> Result<Self> {
        let path = folder.join("http-backend.py");
        std::fs::write(&path, SERVER)?;
        let mut command = program(python);
        command.arg(&path).arg(root).current_dir(folder).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot run {}", python.display()))?;
        let mut first = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut first).await?;
        let port = first.trim().parse().context("the CGI server did not start")?;
        Ok(Self { port, _child: child })
    }

    /// Where a repository is served.
    pub(crate) fn url(&self, name: &str) -> String {
        format!("http://127.0.0.1:{}/{name}.git", self.port)
    }
}
