//! Fetch and push over SSH, with a stand-in for OpenSSH that does what a forced command does.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use std::time::Duration;

use stargate_gateway::ssh::{Connection, SshCommand, serve};
use stargate_gateway::{Admission, Settings};
use stargate_testkit::eventually;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use crate::client::{Client, Done, done};
use crate::fixture::{Fixture, PATIENCE, create, hook_environment, repositories};
use crate::raw::push_body;

/// The variable that makes a forced command of this program: its home.
const DISPATCH: &str = "STARGATE_TEST_DISPATCH";
/// How OpenSSH hands over what the client asked for.
const ASKED: &str = "SSH_ORIGINAL_COMMAND";

/// In a test run it is started without a home, and refuses to be a shell.
#[test]
fn a_forced_command_is_a_program() {
    let asked = std::env::var(ASKED).ok();
    let Some(home) = std::env::var_os(DISPATCH) else {
        assert!(SshCommand::parse(asked.as_deref()).is_err());
        return;
    };
    let code = tokio::runtime::Runtime::new().unwrap().block_on(dispatch(Path::new(&home), asked.as_deref()));
    std::process::exit(code.into());
}

#[expect(clippy::print_stderr, reason = "what OpenSSH shows to the client")]
async fn dispatch(home: &Path, asked: Option<&str>) -> u8 {
    let command = match SshCommand::parse(asked) {
        Ok(command) => command,
        Err(error) => {
            eprintln!("stargate: {error}");
            return 2;
        }
    };
    let admission = Admission { pusher: Some("tester".into()), epoch: Some(7), hold: None };
    let environment = hook_environment(home);
    let protocol = std::env::var("GIT_PROTOCOL").ok();
    let connection = Connection {
        command: &command,
        admission: &admission,
        request_id: "ssh",
        protocol: protocol.as_deref(),
        hook_environment: &environment,
    };
    // Standard output belongs to libtest.
    let output =
        tokio::fs::File::from_std(std::fs::File::options().write(true).open("/proc/self/fd/3").unwrap());
    let (input, complaints) = (tokio::io::stdin(), tokio::io::stderr());
    match serve(&repositories(home), &Settings::default(), connection, input, output, complaints).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("stargate: {error}");
            3
        }
    }
}

/// Runs git with a stand-in for `ssh`.
async fn over_ssh(client: &Client, dir: &Path, home: &Path, arguments: &[&str]) -> Done {
    let script = client.path().join("ssh");
    let program = std::env::current_exe().unwrap();
    // Called as `ssh [-o …] host command`; only the last two matter.
    let text = format!(
        "#!/bin/sh\nfor last; do :; done\nexec 3>&1\n{ASKED}=\"$last\" exec '{}' --exact \
         ssh::a_forced_command_is_a_program --nocapture >/dev/null\n",
        program.display()
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = client.command(dir, arguments);
    let variant = OsString::from("ssh");
    command.env("GIT_SSH", &script).env("GIT_SSH_VARIANT", variant).env(DISPATCH, home);
    done(command).await
}

#[tokio::test(flavor = "multi_thread")]
async fn fetch_and_push_work_and_other_commands_do_not() {
    let home = tempfile::Builder::new().prefix("gateway-ssh-").tempdir().unwrap();
    std::fs::create_dir(home.path().join("hook")).unwrap();
    let repo = create(&repositories(home.path()), "team/kv").await;
    let client = Client::with_commit().await;
    let head = client.work_ok(&["rev-parse", "HEAD"]).await;
    let url = "ssh://git@host/team/kv.git";
    let push = ["push", url, "HEAD:refs/kv/main", "HEAD:refs/heads/main"];
    let pushed = over_ssh(&client, &client.work(), home.path(), &push).await;
    assert!(pushed.succeeded(), "{}", pushed.stderr);
    let journal = std::fs::read_to_string(repo.path().join(".stargate/mirror-journal.ndjson")).unwrap();
    assert!(journal.contains(&head) && journal.contains("\"pusher\":\"tester\""), "{journal}");

    for (n, url) in [url, "git@host:team/kv"].iter().enumerate() {
        let cloned =
            over_ssh(&client, client.path(), home.path(), &["clone", url, &format!("copy-{n}")]).await;
        assert!(cloned.succeeded(), "{}", cloned.stderr);
    }
    for (url, words) in [
        ("ssh://git@host/nothing.git", "no repository nothing"),
        ("ssh://git@host/../etc.git", "cannot name a repository"),
    ] {
        let refused = over_ssh(&client, client.path(), home.path(), &["ls-remote", url]).await;
        assert!(!refused.succeeded() && refused.stderr.contains(words), "{}", refused.stderr);
    }
    let exec = ["ls-remote", "--upload-pack=sh -c id;", url];
    let refused = over_ssh(&client, client.path(), home.path(), &exec).await;
    assert!(!refused.succeeded() && refused.stderr.contains("not known here"), "{}", refused.stderr);
}

/// A connection without OpenSSH: what the client sends and hears, what it is complained to, and the exit code.
struct Held {
    stream: DuplexStream,
    complaints: DuplexStream,
    code: tokio::task::JoinHandle<Result<u8, String>>,
}

impl Held {
    fn open(fixture: &Fixture, settings: &Settings, command: &'static str) -> Self {
        let (stream, far) = tokio::io::duplex(64 << 10);
        let (complaints, far_complaints) = tokio::io::duplex(64 << 10);
        let (repositories, settings) = (fixture.repositories.clone(), settings.clone());
        let environment = hook_environment(fixture.home());
        let code = fixture.tasks.spawn(async move {
            let command = SshCommand::parse(Some(command)).unwrap();
            let admission = Admission { pusher: Some("tester".into()), epoch: Some(7), hold: None };
            let connection = Connection {
                command: &command,
                admission: &admission,
                request_id: "ssh",
                protocol: None,
                hook_environment: &environment,
            };
            let (input, output) = tokio::io::split(far);
            let served = serve(&repositories, &settings, connection, input, output, far_complaints).await;
            served.map_err(|error| format!("{}: {error}", error.code()))
        });
        Self { stream, complaints, code }
    }

    /// Reads the list of refs, to its end.
    async fn refs(&mut self) {
        let mut seen = Vec::new();
        while !seen.ends_with(b"0000") {
            seen.push(self.stream.read_u8().await.unwrap());
        }
    }

    /// Waits for its end; until then the client is there, and says nothing.
    async fn ended(mut self) -> (Result<u8, String>, String) {
        let code = tokio::time::timeout(PATIENCE, self.code).await.expect("it does not end").unwrap();
        let mut said = String::new();
        self.complaints.read_to_string(&mut said).await.unwrap();
        drop(self.stream);
        (code, said)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_bounded_and_who_finds_no_turn_is_told() {
    let fixture = Fixture::start().await;
    fixture.repo("a").await;
    let settings = Settings { fetches_max: 1, wait_max: Duration::from_millis(300), ..Settings::default() };
    let mut first = Held::open(&fixture, &settings, "git-upload-pack 'a'");
    first.refs().await;
    let (refused, _) = Held::open(&fixture, &settings, "git-upload-pack 'a'").ended().await;
    let refused = refused.unwrap_err();
    assert!(refused.starts_with("BUSY: 1 fetches over SSH run already (git.max_fetches)"), "{refused}");
    // Pushes have turns of their own.
    let mut push = Held::open(&fixture, &settings, "git-receive-pack 'a'");
    push.refs().await;
    first.stream.write_all(b"0000").await.unwrap();
    assert_eq!(first.ended().await.0, Ok(0));
    let mut next = Held::open(&fixture, &settings, "git-upload-pack 'a'");
    next.refs().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_falls_silent_is_sent_away() {
    let fixture = Fixture::start().await;
    fixture.repo("a").await;
    let settings = Settings { idle_max: Duration::from_secs(1), ..Settings::default() };
    for command in ["git-upload-pack 'a'", "git-receive-pack 'a'"] {
        let mut held = Held::open(&fixture, &settings, command);
        held.refs().await;
        let (code, said) = held.ended().await;
        assert_eq!(code, Ok(10), "{said}");
        assert!(said.contains("nothing was sent or taken for 1s"), "{said}");
    }
    fixture.nothing_left().await;
}

/// The hook takes longer than a client may be silent: its push is not killed, because refs may have moved.
#[tokio::test(flavor = "multi_thread")]
async fn a_push_whose_hooks_have_begun_is_finished_however_silent_it_is() {
    let fixture = Fixture::start().await;
    let repo = fixture.repo("a").await;
    let settings = Settings { idle_max: Duration::from_secs(1), ..Settings::default() };
    let client = Client::with_commit().await;
    let head = client.work_ok(&["rev-parse", "HEAD"]).await;
    // Without side band, so that git says nothing while hooks run.
    let body = push_body(&client, "refs/kv/main").await;
    let body = replaced(&body, b" side-band-64k", b"              ");
    fixture.tell_hooks("wait-after");
    let mut held = Held::open(&fixture, &settings, "git-receive-pack 'a'");
    held.refs().await;
    held.stream.write_all(&body).await.unwrap();
    fixture.hook_says("at-after").await;
    let mut complaints = Vec::new();
    eventually(PATIENCE, "the end of its patience", || {
        let mut some = [0; 4096];
        let read = futures::FutureExt::now_or_never(held.complaints.read(&mut some));
        complaints.extend_from_slice(&some[..read.map_or(0, Result::unwrap)]);
        let said = String::from_utf8_lossy(&complaints).into_owned();
        async move { if said.contains("nothing was sent or taken") { Ok(()) } else { Err(said) } }
    })
    .await;
    fixture.tell_hooks("go");
    assert_eq!(held.ended().await.0, Ok(10));
    fixture.nothing_left().await;
    assert_eq!(fixture.oid(&repo, "refs/kv/main").await.unwrap().as_str(), head);
    assert_eq!(fixture.recorded(), ["a tester refs/kv/main"]);
}

/// The same bytes, with one part changed for another of the same length.
fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let at = bytes.windows(from.len()).position(|window| window == from).unwrap();
    [&bytes[..at], to, &bytes[at + from.len()..]].concat()
}
