//! A repository whose maker is killed at any of its steps: it is there whole or not at all, and can be made again.

use std::path::Path;

use stargate_testkit::process::Program;

use crate::client::Client;
use crate::{json, program, stderr};

/// The calls that change a file system, and the start of other programs.
const CALLS: [&str; 5] =
    ["mkdir,mkdirat", "rename,renameat,renameat2", "fsync,fdatasync", "openat", "execve"];
/// More calls of one sort than a process makes here.
const CALLS_MAX: usize = 400;
/// Not each of the many files that are opened, but some all along.
const OPENED_STEP: usize = 23;

/// Makes a repository under a tracer that kills the process, or a git of its, at the n-th call. Whether it was in time.
fn make_and_kill(tracer: &Program, home: &Path, name: &str, calls: &str, n: usize) -> bool {
    let (trace, inject) = (format!("trace={calls}"), format!("inject={calls}:signal=KILL:when={n}"));
    let home = home.display().to_string();
    let binary = env!("CARGO_BIN_EXE_stargate");
    let output = tracer.run(&[
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        &trace,
        "-e",
        &inject,
        binary,
        "--home",
        &home,
        "repo",
        "create",
        name,
    ]);
    !output.status.success()
}

#[test]
fn a_repository_whose_maker_is_killed_is_whole_or_not_there_and_can_be_made_again() {
    let program = program("");
    program.answer(&["repo", "create", "first"]);
    let tracer = Program::new("strace");
    let repos = program.home().join("repos");
    let (mut kills, mut whole, mut made) = (0, 0, 0);
    for calls in CALLS {
        let step = if calls == "openat" { OPENED_STEP } else { 1 };
        for n in (1..CALLS_MAX).step_by(step) {
            made += 1;
            let name = format!("r{made}");
            if !make_and_kill(&tracer, program.home(), &name, calls, n) {
                break;
            }
            kills += 1;
            let path = repos.join(format!("{name}.git"));
            let listed = json(&program, &["repo", "list", "--json"]);
            let is_listed = listed.as_array().unwrap().iter().any(|repo| repo["name"] == name.as_str());
            assert_eq!(is_listed, path.exists(), "{calls} {n}");
            if is_listed {
                whole += 1;
                assert_whole(&path);
            }
            let again = program.run(&["repo", "create", &name]);
            assert!(again.status.success(), "{calls} {n}: {}", stderr(&again));
            assert_whole(&path);
            assert_eq!(program.run(&["repo", "create", &name]).status.code(), Some(4), "{calls} {n}");
        }
    }
    println!("{kills} kills, {whole} of them when the repository was there");
    assert!(kills >= 20, "only {kills} calls to be killed at: does strace see them?");
}

fn assert_whole(repo: &Path) {
    for hook in ["pre-receive", "post-receive"] {
        let text = std::fs::read_to_string(repo.join("hooks").join(hook)).unwrap();
        assert!(text.contains("Written by stargate") && text.ends_with(&format!("'{hook}'\n")), "{text}");
    }
    let setting = |key: &str| Client::new().must(&["-C", repo.to_str().unwrap(), "config", key]);
    assert_eq!(setting("core.bare"), "true");
    assert_eq!(setting("uploadpack.allowfilter"), "true");
    assert_eq!(std::fs::read_to_string(repo.join("HEAD")).unwrap(), "ref: refs/heads/main\n");
}
