//! The backup guide, tried: a copy is made while a node works, the node is lost, and another goes on from the copy.

use std::path::{Path, PathBuf};

use serde_json::Value;
use stargate_testkit::eventually;
use stargate_testkit::postgres::Database;
use stargate_testkit::process::Program;

use crate::{PATIENCE, command, configured, succeed};

const KINDS: &str = r#"
[worker]
heartbeat = "500ms"
lease = "2s"
[kinds."ok"]
exec = ["sh", "-c", 'echo "{\"result\":{\"done\":true}}"']
[kinds."bad"]
exec = ["sh", "-c", "exit 65"]
[kinds."long"]
exec = ["sh", "-c", 'test -e go || sleep 60']
working_dir = "."
[kinds."later"]
exec = ["true"]
"#;

fn job(program: &Program, id: &str) -> Value {
    serde_json::from_str(&program.answer(&["job", "show", id, "--json"])).unwrap()
}

async fn reaches(program: &Program, id: &str, state: &str) -> Value {
    eventually(PATIENCE, &format!("job {id} to be {state}"), || async {
        let job = job(program, id);
        if job["state"] == state { Ok(job) } else { Err(job.to_string()) }
    })
    .await
}

/// Works, is copied by `back_up` in the middle of it and is lost; what `restored` makes of the copy goes on.
async fn lose_and_restore(first: &Program, back_up: impl FnOnce(), restored: impl AsyncFnOnce() -> Program) {
    let mut node = first.start(&["up"]);
    node.ready().await;
    let enqueue = |kind: &str, more: &[&str]| first.answer(&[&["job", "enqueue", kind], more].concat());
    let (done, failed, long) = (enqueue("ok", &[]), enqueue("bad", &[]), enqueue("long", &[]));
    let later = enqueue("later", &["--delay", "1h"]);
    first.answer(&["schedule", "add", "nightly", "0 3 * * *", "ok"]);
    reaches(first, &done, "done").await;
    reaches(first, &failed, "failed").await;
    reaches(first, &long, "processing").await;
    back_up();
    let lost = enqueue("ok", &[]);
    node.kill();

    let second = restored().await;
    std::fs::write(second.home().join("go"), "").unwrap();
    let mut node = second.start(&["up"]);
    node.ready().await;
    assert_eq!(job(&second, &done)["result"]["done"], true);
    assert_eq!(job(&second, &failed)["state"], "failed");
    assert_eq!(job(&second, &later)["state"], "queued");
    assert!(second.answer(&["schedule", "list"]).contains("nightly"));
    // It ran when the copy was made; nobody renews its lease now, so it runs again.
    let again = reaches(&second, &long, "done").await;
    assert_eq!(again["attempt_count"], 2, "{again}");
    // Accepted after the copy: that is what a backup does not have, and the guide says so.
    assert_eq!(second.run(&["job", "show", &lost]).status.code(), Some(3));
    let number = |id: &str| id.parse::<i64>().unwrap();
    let new = number(&second.answer(&["job", "enqueue", "ok"]));
    assert!(
        (number(&later) + 1..=number(&lost)).contains(&new),
        "ids go on where the copy ended: {new}, {lost}"
    );
    let doctor = second.run(&["doctor"]);
    assert!(doctor.status.success(), "{}", String::from_utf8_lossy(&doctor.stdout));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sqlite_store_is_copied_while_it_works_and_goes_on_elsewhere() {
    let first = configured(KINDS);
    let copy = first.home().join("copy.db");
    let back_up = || {
        let store = rusqlite::Connection::open(first.home().join("stargate.db")).unwrap();
        store.execute("vacuum into ?1", [copy.to_str().unwrap()]).unwrap();
    };
    let restored = async || {
        let second = configured(KINDS);
        std::fs::copy(&copy, second.home().join("stargate.db")).unwrap();
        second
    };
    lose_and_restore(&first, back_up, restored).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_postgres_store_is_dumped_while_it_works_and_goes_on_elsewhere() {
    let (from, to) = (Database::create_empty().await, Database::create_empty().await);
    let first = configured(KINDS).with("DATABASE_URL", from.url());
    let dump = first.home().join("stargate.dump");
    let back_up = || {
        let mut pg_dump = command(postgres_program("pg_dump").to_str().unwrap());
        succeed(pg_dump.args(["--format=custom", "--schema=stargate", "--file"]).arg(&dump).arg(from.url()));
    };
    let restored = async || {
        let mut pg_restore = command(postgres_program("pg_restore").to_str().unwrap());
        let how = ["--exit-on-error", "--single-transaction", "--no-owner", "--dbname", to.url()];
        succeed(pg_restore.args(how).arg(&dump));
        configured(KINDS).with("DATABASE_URL", to.url())
    };
    lose_and_restore(&first, back_up, restored).await;
    from.remove().await;
    to.remove().await;
}

/// Debian has the programs of each version apart.
fn postgres_program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found =
        versions.map(|version| version.path().join("bin").join(name)).filter(|path| path.is_file()).max();
    found.unwrap_or_else(|| Path::new(name).to_owned())
}
