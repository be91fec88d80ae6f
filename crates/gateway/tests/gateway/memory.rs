//! Large packs pass through with bounded memory: measured on a gateway that is a process of its own.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use stargate_base::Tasks;
use stargate_gateway::{Gate, Gateway, Settings};
use stargate_testkit::eventually;
use tokio::net::TcpListener;

use crate::client::Client;
use crate::fixture::{PATIENCE, TestGate, create, hook_environment, repositories};

/// The variable that makes a server of this program: its home.
const SERVER: &str = "STARGATE_TEST_SERVER";
/// The variable that tells how large the pack is, in MiB.
const PACK: &str = "STARGATE_TEST_PACK_MIB";
const PACK_MIB: u64 = 200;
/// What the process may use at most while the pack passes.
const MEMORY_KIB_MAX: u64 = 100 << 10;
/// Files that the pack is made of. Fewer than a hundred would be taken apart by git and packed anew for the clone,
/// which costs time and tells nothing.
const FILES: u64 = 128;

/// Writes a file that nothing can compress.
pub(crate) fn random_file(path: &Path, bytes: u64) {
    use std::io::Read as _;
    let mut from = std::fs::File::open("/dev/urandom").unwrap().take(bytes);
    let mut to = std::fs::File::create(path).unwrap();
    assert_eq!(std::io::copy(&mut from, &mut to).unwrap(), bytes);
}

/// Ends the server with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    fn start(home: &Path) -> Self {
        #[expect(clippy::disallowed_methods, reason = "a process whose memory can be measured")]
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "memory::a_gateway_is_a_program", "--nocapture"]).env(SERVER, home);
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    /// The most memory it has had, in KiB.
    fn peak_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

/// In a test run it is started without a home, and has nothing to serve.
#[test]
fn a_gateway_is_a_program() {
    let Some(home) = std::env::var_os(SERVER) else {
        let nothing = tempfile::tempdir().unwrap();
        assert_eq!(repositories(nothing.path()).list().unwrap(), []);
        return;
    };
    let home = Path::new(&home);
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let gate: Arc<dyn Gate> = Arc::new(TestGate::default());
        let environment = hook_environment(home);
        let gateway =
            Gateway::new(repositories(home), gate, Settings::default(), environment, None, Tasks::new());
        std::fs::write(home.join("address.new"), address).unwrap();
        stargate_base::durable::replace(&home.join("address.new"), &home.join("address")).unwrap();
        axum::serve(listener, gateway.unwrap().router()).await.unwrap();
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_pack_passes_both_ways_in_little_memory() {
    let mib: u64 = std::env::var(PACK).map_or(PACK_MIB, |text| text.parse().unwrap());
    let home = tempfile::Builder::new().prefix("gateway-large-").tempdir().unwrap();
    std::fs::create_dir(home.path().join("hook")).unwrap();
    let repositories = repositories(home.path());
    create(&repositories, "large").await;
    let server = Server::start(home.path());
    let address = eventually(PATIENCE, "the server's address", || async {
        std::fs::read_to_string(home.path().join("address")).map_err(|error| error.to_string())
    })
    .await;
    let url = format!("http://{address}/git/large.git");

    let client = Client::with_commit().await;
    for (name, value) in [("core.compression", "0"), ("pack.window", "0"), ("core.bigFileThreshold", "1m")] {
        client.work_ok(&["config", name, value]).await;
    }
    for n in 0..FILES {
        random_file(&client.work().join(format!("file-{n}")), (mib << 20) / FILES);
    }
    let head = client.commit("large").await;
    let (before, begin) = (server.peak_kib(), Instant::now());
    client.work_ok(&["push", "--quiet", &url, "main"]).await;
    let (pushed, push_time) = (server.peak_kib(), begin.elapsed());

    let (other, begin) = (Client::new(), Instant::now());
    other.ok(&["clone", "--quiet", "--bare", &url, "work"]).await;
    let (cloned, clone_time) = (server.peak_kib(), begin.elapsed());
    assert_eq!(other.work_ok(&["rev-parse", "refs/heads/main"]).await, head);
    println!(
        "{mib} MiB: push {push_time:?}, clone {clone_time:?}; at most {before} KiB before, {pushed} KiB after the push, \
         {cloned} KiB after the clone"
    );
    assert!(cloned < MEMORY_KIB_MAX, "{cloned} KiB");
}
