//! Answers of git 2.39 and 2.47, of GitHub and of GitLab, word for word as far as they matter.

use stargate_git::{Oid, RefName, porcelain};

use super::*;

fn updates() -> Vec<Update> {
    ["refs/kv/main", "refs/kv-mirror/main"]
        .map(|to| Update { oid: Oid::parse(&"1".repeat(40)).unwrap(), to: RefName::parse(to).unwrap() })
        .to_vec()
}

fn outcome(end: End, stdout: &str, stderr: &str) -> Outcome {
    let answer = PushAnswer { end, lines: porcelain::parse(stdout.as_bytes()), stderr: stderr.to_owned() };
    judge(&answer, &updates()).outcome
}

fn refused(data: &str, watermark: &str) -> Outcome {
    let text = format!("To x\n!\t1:refs/kv/main\t{data}\n!\t1:refs/kv-mirror/main\t{watermark}\nDone\n");
    outcome(End::Exited(1), &text, "error: failed to push some refs to 'x'")
}

fn failed(stderr: &str) -> Outcome {
    outcome(End::Exited(128), "", stderr)
}

#[test]
fn success_must_be_said_of_every_ref() {
    let both = "*\t1:refs/kv/main\t[new reference]\n*\t1:refs/kv-mirror/main\t[new reference]\n";
    assert_eq!(outcome(End::Exited(0), both, ""), Outcome::Done);
    let same = "=\t1:refs/kv/main\t[up to date]\n=\t1:refs/kv-mirror/main\t[up to date]\n";
    assert_eq!(outcome(End::Exited(0), same, ""), Outcome::AlreadyThere);
    let one = "=\t1:refs/kv/main\t[up to date]\n \t1:refs/kv-mirror/main\t1..2\n";
    assert_eq!(outcome(End::Exited(0), one, ""), Outcome::Done);
    for doubtful in
        ["", "Done\n", "*\t1:refs/kv/main\t[new reference]\n", "=\t1:refs/kv/other\t[up to date]\n"]
    {
        assert_eq!(outcome(End::Exited(0), doubtful, ""), Outcome::Recheck, "{doubtful:?}");
    }
    let contradiction = format!("{both}!\t1:refs/kv/main\t[rejected] (x)\n");
    assert_eq!(outcome(End::Exited(0), &contradiction, ""), Outcome::Recheck);
    // What the other side makes of its reason must not look like success.
    assert_ne!(outcome(End::Exited(1), both, ""), Outcome::Done);
}

#[test]
fn refusals_are_told_apart() {
    let atomic = "[rejected] (atomic push failed)";
    let there = "[remote rejected] (atomic push failure)";
    for (data, watermark, expected) in [
        ("[rejected] (non-fast-forward)", atomic, Outcome::Diverged),
        ("[rejected] (fetch first)", atomic, Outcome::Diverged),
        ("[rejected] (non-fast-forward)", "[rejected] (stale info)", Outcome::Diverged),
        (atomic, "[rejected] (stale info)", Outcome::Recheck),
        ("[rejected] (needs force)", "[rejected] (needs force)", Outcome::Local),
        ("[remote rejected] (hook declined)", there, Outcome::Policy),
        (
            "[remote rejected] (pre-receive hook declined)",
            "[remote rejected] (pre-receive hook declined)",
            Outcome::Policy,
        ),
        ("[remote rejected] (protected branch hook declined)", there, Outcome::Policy),
        ("[remote rejected] (deny updating a hidden ref)", there, Outcome::Policy),
        ("[remote rejected] (something new)", there, Outcome::Policy),
        (
            "[remote rejected] (atomic transaction failed)",
            "[remote rejected] (atomic transaction failed)",
            Outcome::Recheck,
        ),
        ("[remote rejected] (failed to update ref)", there, Outcome::Recheck),
        (
            "[remote rejected] (cannot lock ref 'refs/kv/main': reference already exists)",
            there,
            Outcome::Recheck,
        ),
        (
            "[remote rejected] (cannot lock ref 'refs/kv/main': is at 1 but expected 2)",
            there,
            Outcome::Recheck,
        ),
        ("[remote rejected] (incorrect old value provided)", there, Outcome::Recheck),
        ("[remote rejected] (unpacker error)", "[remote rejected] (unpacker error)", Outcome::Unclear),
        ("[remote rejected] (Internal Server Error)", there, Outcome::Unclear),
        (
            "[remote failure] (remote failed to report status)",
            "[remote failure] (remote failed to report status)",
            Outcome::Recheck,
        ),
        ("[remote rejected] (permission denied)", there, Outcome::Policy),
        (
            "[remote rejected] (TF401027: You need the Git 'GenericContribute' permission)",
            there,
            Outcome::Policy,
        ),
        ("[remote rejected] (missing necessary objects)", there, Outcome::Local),
    ] {
        assert_eq!(refused(data, watermark), expected, "{data} / {watermark}");
    }
}

#[test]
fn failures_are_told_apart() {
    for (stderr, expected) in [
        ("fatal: the receiving end does not support --atomic push", Outcome::Config),
        ("fatal: transport 'file' not allowed", Outcome::Config),
        ("fatal: Unable to find remote helper for 'foo'", Outcome::Config),
        ("fatal: unable to access 'https://h/x/': Could not resolve host: h", Outcome::Outage),
        (
            "fatal: unable to access 'https://h/x/': Failed to connect to h port 443: Connection refused",
            Outcome::Outage,
        ),
        ("fatal: unable to access 'https://h/x/': The requested URL returned error: 500", Outcome::Outage),
        ("fatal: unable to access 'https://h/x/': The requested URL returned error: 503", Outcome::Outage),
        ("fatal: unable to access 'https://h/x/': The requested URL returned error: 429", Outcome::Outage),
        ("fatal: unable to access 'https://h/x/': The requested URL returned error: 403", Outcome::Auth),
        ("fatal: unable to access 'https://h/x/': The requested URL returned error: 401", Outcome::Auth),
        (
            "remote: Repository not found.\nfatal: repository 'https://github.com/a/b/' not found",
            Outcome::Auth,
        ),
        ("fatal: could not read Username for 'https://h': terminal prompts disabled", Outcome::Auth),
        (
            "remote: Invalid username or token.\nfatal: Authentication failed for 'https://h/x/'",
            Outcome::Auth,
        ),
        ("remote: Permission to a/b.git denied to c.\nfatal: unable to access …", Outcome::Auth),
        (
            "git@h: Permission denied (publickey).\nfatal: Could not read from remote repository.\n\nPlease make sure you have the correct access rights\nand the repository exists.",
            Outcome::Auth,
        ),
        ("Host key verification failed.\nfatal: Could not read from remote repository.", Outcome::Auth),
        (
            "ssh: connect to host h port 22: Connection refused\nfatal: Could not read from remote repository.\n\nPlease make sure you have the correct access rights\nand the repository exists.",
            Outcome::Outage,
        ),
        (
            "ssh: Could not resolve hostname h: Temporary failure in name resolution\nPlease make sure you have the correct access rights",
            Outcome::Outage,
        ),
        (
            "error: RPC failed; curl 56 Recv failure: Connection reset by peer\nfatal: the remote end hung up unexpectedly",
            Outcome::Unclear,
        ),
        (
            "error: RPC failed; HTTP 413 curl 22 The requested URL returned error: 413\nfatal: the remote end hung up unexpectedly",
            Outcome::Unclear,
        ),
        (
            "error: RPC failed; HTTP 500 curl 22 The requested URL returned error: 500\nfatal: the remote end hung up unexpectedly",
            Outcome::Unclear,
        ),
        (
            "Connection closed by remote host\nfatal: Could not read from remote repository.\n\nPlease make sure you have the correct access rights",
            Outcome::Unclear,
        ),
        ("fatal: the remote end hung up unexpectedly", Outcome::Unclear),
        ("fatal: early EOF", Outcome::Unclear),
        (
            "error: pack-objects died of signal 9\nfatal: the remote end hung up unexpectedly",
            Outcome::Unclear,
        ),
        (
            "fatal: bad object 1111111111111111111111111111111111111111\nfatal: the remote end hung up",
            Outcome::Local,
        ),
        ("error: loose object 11 (stored in x) is corrupt\nfatal: x", Outcome::Local),
        ("", Outcome::Unclear),
    ] {
        assert_eq!(failed(stderr), expected, "{stderr}");
    }
}

#[test]
fn an_object_that_the_other_side_does_not_want_is_no_outage() {
    let unpacker = "!\t1:refs/kv/main\t[remote rejected] (unpacker error)\n\
                    !\t1:refs/kv-mirror/main\t[remote rejected] (unpacker error)\n";
    for (stderr, expected) in [
        (
            "remote: fatal: fsck error in packed object\nerror: remote unpack failed: index-pack abnormal exit",
            Outcome::Policy,
        ),
        ("remote: fatal: pack exceeds maximum allowed size (1.00 KiB)", Outcome::Policy),
        ("remote: fatal: write error: No space left on device", Outcome::Unclear),
        ("error: remote unpack failed: unable to create temporary object directory", Outcome::Unclear),
    ] {
        assert_eq!(outcome(End::Exited(1), unpacker, stderr), expected, "{stderr}");
    }
}

#[test]
fn an_end_that_says_nothing_is_unknown() {
    assert_eq!(outcome(End::TimedOut, "*\t1:refs/kv/main\t[new reference]\n", ""), Outcome::TimedOut);
    assert_eq!(outcome(End::Killed(9), "", ""), Outcome::Recheck);
}

#[test]
fn a_verdict_says_what_was_refused_and_why() {
    let stdout = "!\t1:refs/kv/main\t[remote rejected] (hook declined)\n";
    let answer = PushAnswer {
        end: End::Exited(1),
        lines: porcelain::parse(stdout.as_bytes()),
        stderr: "remote: not on Sundays\n".to_owned(),
    };
    let verdict = judge(&answer, &updates());
    assert_eq!(verdict.error, "refs/kv/main [remote rejected] (hook declined); remote: not on Sundays");
    assert_eq!((verdict.git_exit, verdict.per_ref.len()), (Some(1), 1));
    assert_eq!(verdict.per_ref[0].status, "[remote rejected] (hook declined)");
}
