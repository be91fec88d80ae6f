//! Fetch and push over SSH, with a stand-in for OpenSSH that does what a forced command does.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use stargate_gateway::ssh::{Connection, SshCommand, serve};
use stargate_gateway::{Admission, Settings};

use crate::client::{Client, Done, done};
use crate::fixture::{create, hook_environment, repositories};

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
    let admission = Admission { pusher: Some("tester".into()), epoch: Some(7) };
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
