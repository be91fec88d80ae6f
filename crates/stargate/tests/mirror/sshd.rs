//! A real OpenSSH server whose keys lead to `ssh-dispatch`: git through it, and the mirror.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use stargate_testkit::process::free_port;
use tempfile::TempDir;

use crate::remote::Hub;
use crate::stage::{MAIN, Stage, eventually};

/// It wants to be started by its whole path.
const SSHD: &str = "/usr/sbin/sshd";

/// A server of this user on a port of its own. Killed when dropped.
struct Sshd {
    dir: TempDir,
    port: u16,
    child: Child,
}

impl Sshd {
    async fn start() -> Self {
        if rustix::process::geteuid().is_root() {
            // Where it locks itself in; a service manager would make it.
            std::fs::create_dir_all("/run/sshd").unwrap();
        }
        let (dir, port) = (tempfile::Builder::new().prefix("sshd-").tempdir().unwrap(), free_port());
        let at = |name: &str| dir.path().join(name);
        keygen(&at("host"));
        std::fs::write(at("authorized_keys"), "").unwrap();
        let config = format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\n\
             StrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             PermitRootLogin forced-commands-only\nAcceptEnv GIT_PROTOCOL\n",
            at("host").display(),
            at("authorized_keys").display()
        );
        std::fs::write(at("config"), config).unwrap();
        let log = std::fs::File::create(at("log")).unwrap();
        let mut command = program(SSHD);
        command.args(["-D", "-e", "-f"]).arg(at("config")).stdin(Stdio::null()).stderr(log);
        let sshd = Self { child: command.spawn().unwrap(), dir, port };
        eventually("sshd to listen", || sshd.log().contains("Server listening")).await;
        sshd
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap()
    }

    /// A key that leads to the hub, as far as the options of `ssh-dispatch` let it.
    fn key(&self, hub: &Hub, name: &str, options: &str) -> PathBuf {
        let (key, home) = (self.path(name), hub.program.home().display());
        keygen(&key);
        let line = format!(
            "restrict,command=\"env STARGATE_LISTEN={} {} --home {home} ssh-dispatch --name {name} {options}\" {}",
            hub.node.address(),
            env!("CARGO_BIN_EXE_stargate"),
            public(&key)
        );
        let mut file = std::fs::OpenOptions::new().append(true).open(self.path("authorized_keys")).unwrap();
        writeln!(file, "{line}").unwrap();
        key
    }

    /// A file of known hosts in which the server has the key of this file.
    fn known_hosts(&self, file: &Path, host_key: &Path) {
        std::fs::write(file, format!("[127.0.0.1]:{} {}\n", self.port, public(host_key))).unwrap();
    }

    fn url(&self) -> String {
        format!("ssh://127.0.0.1:{}/tools.git", self.port)
    }

    /// ssh as a user with that key runs it.
    fn ssh(&self, key: &Path) -> String {
        let hosts = self.path("known_hosts");
        self.known_hosts(&hosts, &self.path("host"));
        format!(
            "ssh -F /dev/null -o BatchMode=yes -o IdentitiesOnly=yes -o StrictHostKeyChecking=yes \
             -o UserKnownHostsFile={} -i {}",
            hosts.display(),
            key.display()
        )
    }

    /// git with that key; whether it succeeded, and what it said.
    fn git(&self, dir: &Path, key: &Path, arguments: &[&str]) -> (bool, String) {
        let mut command = program("git");
        command.args(arguments).current_dir(dir).env("GIT_SSH_COMMAND", self.ssh(key)).env("LC_ALL", "C");
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        command.env("GIT_TRACE_PACKET", "1").stdin(Stdio::null());
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// A command of the user's own, not of git.
    fn run(&self, key: &Path, asked: &[&str]) -> Output {
        let ssh = self.ssh(key);
        let mut words = ssh.split(' ');
        let mut command = program(words.next().unwrap());
        command.args(words).args(["-p", &self.port.to_string(), "127.0.0.1"]).args(asked);
        command.stdin(Stdio::null()).output().unwrap()
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // Both fail when it has ended already, which is fine.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[expect(clippy::disallowed_methods, reason = "stands for a user and for the other side")]
fn program(name: &str) -> Command {
    Command::new(name)
}

fn keygen(path: &Path) {
    let made =
        program("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-C", "test", "-f"]).arg(path).output();
    let made = made.unwrap();
    assert!(made.status.success(), "{made:?}");
}

/// The public half of a key.
fn public(key: &Path) -> String {
    std::fs::read_to_string(key.with_extension("pub")).unwrap().trim().to_owned()
}

fn ref_of(stage: &Stage, repo: &Path, name: &str) -> String {
    stage.git(repo, &["for-each-ref", "--format=%(objectname)", name], b"")
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_clone_and_push_through_openssh_as_far_as_they_may() {
    let (hub, sshd, client) = (Hub::start().await, Sshd::start().await, Stage::new());
    let chain = client.chain(2);
    let writer = sshd.key(&hub, "ann", "--role write --repo tools");
    let reader = sshd.key(&hub, "bob", "--role read");
    let elsewhere = sshd.key(&hub, "eve", "--repo 'team/*'");
    let url = sshd.url();
    let git = |key: &Path, arguments: &[&str]| sshd.git(&client.repo, key, arguments);
    let to = |oid: &str, name: &str| format!("{oid}:{name}");

    let (pushed, said) =
        git(&writer, &["push", &url, &to(&chain[0], "refs/heads/main"), &to(&chain[0], "refs/kv/a")]);
    assert!(pushed && !said.contains("warning"), "{said}\n{}", sshd.log());
    assert_eq!(ref_of(&client, &hub.repo(), "refs/heads/main"), chain[0]);
    let journal = std::fs::read_to_string(hub.repo().join(".stargate/mirror-journal.ndjson")).unwrap();
    assert!(journal.contains("\"pusher\":\"ann\""), "{journal}");

    let copy = client.program.home().join("copy.git");
    let (cloned, said) = git(&reader, &["clone", "--bare", &url, copy.to_str().unwrap()]);
    assert!(cloned && said.contains("version 2"), "{said}");
    assert_eq!(ref_of(&client, &copy, "refs/heads/main"), chain[0]);
    let (pushed, said) = git(&reader, &["push", &url, &to(&chain[1], "refs/heads/main")]);
    assert!(!pushed && said.contains("may fetch here, but not push"), "{said}");
    let (read, said) = git(&elsewhere, &["ls-remote", &url]);
    assert!(!read && said.contains("no repository tools"), "{said}");
    let stranger = sshd.path("stranger");
    keygen(&stranger);
    let (read, said) = git(&stranger, &["ls-remote", &url]);
    assert!(!read && said.contains("Permission denied"), "{said}");
    for asked in [&["id"][..], &["git-upload-pack", "'../tools.git'"], &["git-upload-pack", "/etc;id"], &[]] {
        let output = sshd.run(&writer, asked);
        assert!(output.status.code() == Some(5) && output.stdout.is_empty(), "{asked:?}: {output:?}");
    }
    assert_eq!(ref_of(&client, &hub.repo(), "refs/heads/main"), chain[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_mirror_pushes_over_ssh_but_not_to_a_host_with_another_key() {
    let (hub, sshd, stage) = (Hub::start().await, Sshd::start().await, Stage::new());
    let (key, hosts) = (sshd.key(&hub, "mirror", "--role write --repo tools"), sshd.path("mirror-hosts"));
    let other = sshd.path("other");
    keygen(&other);
    sshd.known_hosts(&hosts, &other);
    // A Stargate takes no watermarks from others, so there are no ledgers.
    let toml = format!(
        "[mirror]\nprotocols = [\"ssh\"]\nrescan_every = \"200ms\"\nledgers = []\nssh_key = \"{}\"\nknown_hosts = \"{}\"\n\
         [mirror.remotes.\"tools\"]\nurl = \"{}\"\n",
        key.display(),
        hosts.display(),
        sshd.url()
    );
    std::fs::write(stage.program.home().join("stargate.toml"), toml).unwrap();
    let stage = Stage { remote: hub.repo(), ..stage };
    let chain = stage.chain(4);
    let push =
        |n: usize| stage.push(&format!("e{n}"), MAIN, n.checked_sub(1).map(|n| chain[n].as_str()), &chain[n]);
    let node = stage.node("a").await;
    (0..3).for_each(push);
    eventually("the breaker to open", || stage.answer(&["status"])["worker"]["breaker"] == "open").await;
    let status = stage.answer(&["status"]);
    let error = status["worker"]["error"].as_str().unwrap();
    assert!(error.contains("Host key verification failed"), "{status}");
    let letters = stage.letters();
    assert!(letters.len() <= 1 && letters.iter().all(|letter| letter["reason"] == "auth"), "{letters:?}");
    assert_eq!(stage.remote_ref(MAIN), "");
    assert!(!sshd.log().contains("Accepted"), "it told a stranger who it is:\n{}", sshd.log());

    sshd.known_hosts(&hosts, &sshd.path("host"));
    push(3);
    eventually("everything to arrive", || stage.remote_ref(MAIN) == chain[3]).await;
    eventually("nothing to wait", || stage.answer(&["status"])["backlog"] == 0).await;
    eventually("the letter to be requeued", || stage.letters().is_empty()).await;
    stage.answer(&["verify"]);
    assert!(sshd.log().contains("Accepted publickey"), "{}", sshd.log());
    assert!(!node.log().contains("PRIVATE KEY"), "{}", node.log());
}
