//! `ssh-dispatch` as sshd starts it: what the client asked for is in the environment.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use stargate_testkit::process::Program;

use crate::client::{Client, ref_of};
use crate::{leader, program};

/// What git is told to use for ssh: runs the dispatcher as sshd would, with the client's command in a variable.
fn ssh(program: &Program, options: &str, listen: &str) -> PathBuf {
    let path = program.home().join("ssh");
    let text = format!(
        "#!/bin/sh\nshift $(($# - 1))\ncd '{home}'\n\
         exec env -i PATH=\"$PATH\" STARGATE_HOME='{home}' STARGATE_LISTEN={listen} SSH_ORIGINAL_COMMAND=\"$1\" \
         '{binary}' ssh-dispatch {options}\n",
        home = program.home().display(),
        binary = env!("CARGO_BIN_EXE_stargate"),
    );
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_clones_and_pushes_as_far_as_it_may() {
    let program = program("");
    let node = leader(&program, "a").await;
    program.answer(&["repo", "create", "team/tools"]);
    let command = ssh(&program, "--name ann --repo 'team/*'", node.address());
    let with = |command: &PathBuf| ("GIT_SSH_COMMAND", command.to_str().unwrap().to_owned());
    let client = Client::new();
    client.start_at("git@host:team/tools.git");
    let commit = client.commit("first");
    let git = |arguments: &[&str], command: &PathBuf| {
        let (name, value) = with(command);
        let output = client.git_with(arguments, &[(name, &value), ("GIT_SSH_VARIANT", "simple")]);
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (pushed, said) = git(&["push", "origin", "HEAD:main", "HEAD:refs/kv/a"], &command);
    assert!(pushed && !said.contains("warning"), "{said}");
    let repo = program.home().join("repos/team/tools.git");
    assert_eq!(ref_of(&repo, "refs/heads/main").as_deref(), Some(commit.as_str()));
    let journal = std::fs::read_to_string(repo.join(".stargate/mirror-journal.ndjson")).unwrap();
    assert!(journal.contains("\"pusher\":\"ann\""), "{journal}");
    assert!(git(&["fetch", "origin"], &command).0);

    let reader = ssh(&program, "--role read", node.address());
    assert!(git(&["fetch", "origin"], &reader).0);
    let (pushed, said) = git(&["push", "origin", "HEAD:other"], &reader);
    assert!(!pushed && said.contains("may fetch here, but not push"), "{said}");
    let stranger = ssh(&program, "--repo elsewhere", node.address());
    let (fetched, said) = git(&["fetch", "origin"], &stranger);
    assert!(!fetched && said.contains("no repository team/tools"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_but_git_is_run_and_pushes_need_the_leader() {
    let program = program("[leader]\nretry_every = \"1s\"\n");
    program.answer(&["repo", "create", "r"]);
    for (asked, code) in
        [("sh -c id", 5), ("git-upload-pack '../r.git'", 5), ("git-upload-pack 'nothing.git'", 3), ("", 5)]
    {
        let program = crate::program("").with("SSH_ORIGINAL_COMMAND", asked);
        let output = program.run(&["ssh-dispatch"]);
        assert_eq!(output.status.code(), Some(code), "{asked:?}: {}", crate::stderr(&output));
        assert!(output.stdout.is_empty(), "{asked:?}");
    }
    let _first = leader(&program, "first").await;
    let mut second = program.start_with(&["up"], &[("STARGATE_INSTANCE", "second")]);
    second.ready().await;
    let (listen, home) = (second.address().to_owned(), program.home().to_owned());
    let program =
        program.with("SSH_ORIGINAL_COMMAND", "git-receive-pack 'r.git'").with("STARGATE_LISTEN", listen);
    let refused = program.run(&["ssh-dispatch"]);
    assert_eq!(refused.status.code(), Some(9), "{}", crate::stderr(&refused));
    assert_eq!(ref_of(&home.join("repos/r.git"), "refs/heads/main"), None);
}

/// Each connection is a process of its own; all of them together are bounded.
#[tokio::test(flavor = "multi_thread")]
async fn who_comes_when_everything_is_taken_is_told_to_come_back() {
    let program = program("[git]\nmax_fetches = 1\n");
    program.answer(&["repo", "create", "r"]);
    let program = program.with("SSH_ORIGINAL_COMMAND", "git-upload-pack 'r.git'");
    #[expect(clippy::disallowed_methods, reason = "a client that holds its connection")]
    let mut first = std::process::Command::new(env!("CARGO_BIN_EXE_stargate"))
        .args(["ssh-dispatch"])
        .current_dir(program.home())
        .env("STARGATE_HOME", program.home())
        .env("SSH_ORIGINAL_COMMAND", "git-upload-pack 'r.git'")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut begun = [0; 4];
    std::io::Read::read_exact(first.stdout.as_mut().unwrap(), &mut begun).unwrap();
    let refused = program.run(&["ssh-dispatch"]);
    let said = crate::stderr(&refused);
    assert_eq!(refused.status.code(), Some(10), "{said}");
    assert!(said.contains("1 fetches over SSH run already (git.max_fetches)"), "{said}");
    // However a connection ends, its turn is free: nobody has to tidy up.
    first.kill().unwrap();
    first.wait().unwrap();
    let served = program.run(&["ssh-dispatch"]);
    assert!(!served.stdout.is_empty(), "{}", crate::stderr(&served));
}
