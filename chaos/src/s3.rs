//! An S3 server of the run's own, which can be killed, stopped and started again with what it had.
//!
//! Objects are also files of its filer, which answers without keys: that is how the checker reads them.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use stargate_testkit::process::free_port;
use tempfile::TempDir;

/// Names the program; `cargo xtask` sets it.
pub(crate) const PROGRAM: &str = "STARGATE_TEST_WEED";
/// The bucket.
pub(crate) const BUCKET: &str = "chaos";
/// Who asks.
pub(crate) const KEY: &str = "chaos-key";

const PARTS: [&str; 4] = ["master", "volume", "filer", "s3"];
const PATIENCE: Duration = Duration::from_secs(90);

/// The server. Killed when dropped.
#[derive(Debug)]
pub(crate) struct S3 {
    program: PathBuf,
    home: TempDir,
    secret: String,
    ports: [(u16, u16); 4],
    child: Child,
}

impl S3 {
    /// An empty one that answers, with a bucket.
    pub(crate) async fn start(secret: &str) -> Result<Self> {
        let program = std::env::var_os(PROGRAM)
            .with_context(|| format!("no S3 server: run 'cargo xtask chaos', or name weed in {PROGRAM}"))?;
        let home = tempfile::Builder::new().prefix("stargate-s3-").tempdir().context("a folder for S3")?;
        let identities = format!(
            r#"{{"identities":[{{"name":"c","credentials":[{{"accessKey":"{KEY}","secretKey":"{secret}"}}],"actions":["Admin","Read","Write","List","Tagging"]}}]}}"#
        );
        std::fs::write(home.path().join("identities.json"), identities).context("identities for S3")?;
        std::fs::create_dir(home.path().join("data")).context("a folder for S3")?;
        let ports = PARTS.map(|_| (free_port(), free_port()));
        let program = PathBuf::from(program);
        let child = spawn(&program, &home, &ports)?;
        let server = Self { program, home, secret: secret.to_owned(), ports, child };
        // A bucket is a folder of the filer, and the first object makes it.
        server.answers().await?;
        Ok(server)
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.ports[3].0)
    }

    /// What signs requests.
    pub(crate) fn secret(&self) -> &str {
        &self.secret
    }

    /// Where the objects of the bucket lie for whoever has no key.
    pub(crate) fn filer(&self) -> String {
        format!("http://127.0.0.1:{}/buckets/{BUCKET}", self.ports[2].0)
    }

    /// Where it keeps what it was given.
    pub(crate) fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    /// SIGKILL, and started again. It may take some seconds until it answers.
    pub(crate) fn restart(&mut self, pause: Duration) -> Result<()> {
        self.kill();
        std::thread::sleep(pause);
        self.child = spawn(&self.program, &self.home, &self.ports)?;
        Ok(())
    }

    /// SIGSTOP or SIGCONT.
    pub(crate) fn signal(&self, signal: Signal) {
        // It may just have been killed.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Waits until it stores something.
    pub(crate) async fn answers(&self) -> Result<()> {
        let begin = Instant::now();
        let client = reqwest::Client::builder().timeout(Duration::from_secs(5)).build()?;
        loop {
            let put = client.put(format!("{}/.ready", self.filer())).body("yes").send().await;
            if put.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                bail!("the S3 server does not answer; see {}", self.home.path().display());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for (part, (_, port)) in PARTS.iter().zip(self.ports) {
            // It cannot be told to keep them elsewhere, and does not start where one lies.
            let _ = std::fs::remove_file(format!("/tmp/seaweedfs-{part}-grpc-{port}.sock"));
        }
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(program: &PathBuf, home: &TempDir, ports: &[(u16, u16); 4]) -> Result<Child> {
    let file = |name: &str| home.path().join(name).display().to_string();
    let log = std::fs::OpenOptions::new().create(true).append(true).open(file("log.txt")).context("a log")?;
    #[expect(clippy::disallowed_methods, reason = "a server of the run's own, ended with it")]
    let mut command = Command::new(program);
    let fixed = "server -ip=127.0.0.1 -ip.bind=127.0.0.1 -filer -s3 -s3.iam=false -s3.port.iceberg=0 -s3.port.lance=0 \
                 -master.telemetry=false -master.volumeSizeLimitMB=64 -volume.max=16 -volume.minFreeSpace=1";
    command.args(fixed.split_ascii_whitespace()).current_dir(home.path());
    command.arg(format!("-dir={}", file("data"))).arg(format!("-s3.config={}", file("identities.json")));
    for part in ["filer", "s3"] {
        command.arg(format!("-{part}.localSocket={}", file(&format!("{part}.sock"))));
    }
    for (part, (port, grpc)) in PARTS.iter().zip(ports) {
        command.args([format!("-{part}.port={port}"), format!("-{part}.port.grpc={grpc}")]);
    }
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("AWS_")) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stdout(log.try_clone().context("a log")?).stderr(log);
    command.spawn().context("the S3 server does not start")
}
