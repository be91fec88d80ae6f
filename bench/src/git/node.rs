//! The real binary in a home of its own: `stargate up`, and the commands beside it.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::client::{answer, program};

/// How long a node may take until it leads.
const READY_DEADLINE: Duration = Duration::from_secs(30);
/// How long it may take to end when it is asked to.
const END_DEADLINE: Duration = Duration::from_secs(15);
/// The hooks of a push.
pub(crate) const HOOKS: [&str; 2] = ["pre-receive", "post-receive"];
const POLL: Duration = Duration::from_millis(20);

/// The binary, its home, and where it listens when it runs.
pub(crate) struct Home {
    stargate: PathBuf,
    dir: TempDir,
    address: String,
    store: Option<String>,
}

impl Home {
    /// With a store of its own in its home.
    pub(crate) fn new(stargate: &Path) -> Result<Self> {
        Self::with_store(stargate, None)
    }

    /// With the store of that URL, or with one in its home.
    pub(crate) fn with_store(stargate: &Path, store: Option<String>) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let address = format!("127.0.0.1:{port}");
        Ok(Self { stargate: stargate.to_owned(), dir: tempfile::tempdir()?, address, store })
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Where its repositories are.
    pub(crate) fn root(&self) -> PathBuf {
        self.dir().join("repos")
    }

    /// Where a repository is served.
    pub(crate) fn url(&self, name: &str) -> String {
        format!("http://{}/git/{name}.git", self.address)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program(&self.stargate);
        command.args(arguments).current_dir(self.dir());
        command.env("STARGATE_HOME", self.dir()).env("HOME", self.dir()).env("NO_COLOR", "1");
        command.env("STARGATE_LISTEN", &self.address);
        if let Some(store) = &self.store {
            command.env("STARGATE_STORE", store);
        }
        // Mirrors are folders here.
        command.env("STARGATE_MIRROR_PROTOCOLS", "file");
        command
    }

    /// Runs a command to its end; what it wrote.
    pub(crate) async fn answer(&self, arguments: &[&str]) -> Result<String> {
        answer(self.command(arguments)).await
    }

    /// Makes a repository; where it is. The hooks inside it do nothing: pushes by path fill it, and those of the other
    /// server go through it.
    pub(crate) async fn repository(&self, name: &str) -> Result<PathBuf> {
        self.answer(&["repo", "create", name]).await?;
        let path = self.root().join(format!("{name}.git"));
        for hook in HOOKS {
            std::fs::write(path.join("hooks").join(hook), "#!/bin/sh\n")?;
        }
        Ok(path)
    }

    /// Lets those of our hooks run that are named, and in the place of the others a script that does nothing: the node
    /// writes again what is missing.
    pub(crate) fn serve_hooks(&self, hooks: &[&str]) -> Result<()> {
        for command in std::fs::read_dir(self.root().join(".hooks"))? {
            let command = command?.path();
            for hook in HOOKS {
                let (file, ours) = (command.join(hook), command.join(format!("{hook}.ours")));
                if !ours.exists() {
                    std::fs::copy(&file, &ours)?;
                }
                if hooks.contains(&hook) {
                    std::fs::copy(&ours, &file)?;
                } else {
                    std::fs::write(&file, "#!/bin/sh\n")?;
                }
            }
        }
        Ok(())
    }

    /// Starts `stargate up` and waits until it leads.
    pub(crate) async fn up(&self) -> Result<Node> {
        let path = self.dir().join("log.txt");
        let log = std::fs::File::create(&path)?;
        let mut command = self.command(&["up"]);
        let mut child = command.stdout(log.try_clone()?).stderr(log).spawn()?;
        let began = Instant::now();
        loop {
            if leads(&self.address).await.unwrap_or(false) {
                return Ok(Node { child });
            }
            let ended = child.try_wait()?;
            if ended.is_some() || began.elapsed() > READY_DEADLINE {
                let log = std::fs::read_to_string(&path).unwrap_or_default();
                bail!("stargate up does not lead ({ended:?}); its log:\n{log}");
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

async fn leads(address: &str) -> Result<bool> {
    let mut stream = TcpStream::connect(address).await?;
    let request = "GET /readyz?role=leader HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await?;
    let mut said = Vec::new();
    stream.read_to_end(&mut said).await?;
    Ok(said.starts_with(b"HTTP/1.1 200 "))
}

/// A running `stargate up`. Killed when dropped.
pub(crate) struct Node {
    child: Child,
}

impl Node {
    pub(crate) fn id(&self) -> Result<u32> {
        self.child.id().context("stargate up has ended")
    }

    /// Asks it to end, and waits for that.
    pub(crate) async fn stop(mut self) -> Result<()> {
        let id = rustix::process::Pid::from_raw(i32::try_from(self.id()?)?).context("a process id of 0")?;
        rustix::process::kill_process(id, rustix::process::Signal::TERM)?;
        tokio::time::timeout(END_DEADLINE, self.child.wait()).await.context("stargate up does not end")??;
        Ok(())
    }
}
