//! Stores that this program must not or cannot use: from the future, damaged, something else altogether.

use stargate_testkit::postgres::Database;
use stargate_testkit::process::Program;

use crate::{configured, json, refusal, refused_with};

const KINDS: &str = "[kinds.\"note\"]\nexec = [\"true\"]\n";
const COMMANDS: [&[&str]; 4] =
    [&["job", "list"], &["job", "enqueue", "note"], &["migrate"], &["worker", "--listen", "127.0.0.1:0"]];

/// A program whose store holds one job.
fn used() -> Program {
    let program = configured(KINDS);
    program.answer(&["job", "enqueue", "note"]);
    program
}

#[test]
fn a_sqlite_store_from_the_future_is_refused_and_untouched() {
    let program = used();
    let file = program.home().join("stargate.db");
    let connection = rusqlite::Connection::open(&file).unwrap();
    connection.execute("insert into migration values (99, 'future', 'x', 0)", []).unwrap();
    drop(connection);
    let before = std::fs::read(&file).unwrap();
    for command in COMMANDS {
        let code = refused_with(&program, command, &["schema 99", "use a newer stargate"]);
        assert_eq!(code, "SCHEMA_TOO_NEW", "{command:?}");
    }
    assert!(std::fs::read(&file).unwrap() == before, "the file has changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_postgres_store_from_the_future_is_refused_and_untouched() {
    let database = Database::create_empty().await;
    let program = configured(KINDS).with("STARGATE_STORE", database.url());
    program.answer(&["migrate"]);
    program.answer(&["job", "enqueue", "note"]);
    let client = database.client().await;
    client
        .execute("insert into stargate.migration (version, name, checksum) values (99, 'future', 'x')", &[])
        .await
        .unwrap();
    let counts = "select (select count(*) from stargate.migration) * 1000000 + (select count(*) from stargate.job) * 1000 + \
                  (select count(*) from stargate.worker)";
    let rows = async || -> i64 { client.query_one(counts, &[]).await.unwrap().get(0) };
    let before = rows().await;
    for command in COMMANDS {
        let code = refused_with(&program, command, &["schema 99", "use a newer stargate"]);
        assert_eq!(code, "SCHEMA_TOO_NEW", "{command:?}");
    }
    assert_eq!(rows().await, before);
    database.remove().await;
}

#[test]
fn a_file_that_is_no_database_is_refused_and_untouched() {
    let program = configured(KINDS);
    let file = program.home().join("stargate.db");
    let letter = "Dear database,\n".repeat(1000);
    std::fs::write(&file, &letter).unwrap();
    for command in COMMANDS {
        refused_with(&program, command, &["not a SQLite database", "is the path right?"]);
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), letter);
}

#[test]
fn a_damaged_database_is_refused_with_a_way_out() {
    let program = used();
    let file = program.home().join("stargate.db");
    let mut bytes = std::fs::read(&file).unwrap();
    // The first page stays, so that it still looks like a database.
    bytes[4096..].fill(0xa5);
    std::fs::write(&file, &bytes).unwrap();
    for command in COMMANDS {
        refused_with(&program, command, &["damaged", "backup"]);
    }
    let mut cut = std::fs::read(&file).unwrap();
    cut.truncate(5000);
    std::fs::write(&file, &cut).unwrap();
    refused_with(&program, &["job", "list"], &["damaged", "backup"]);
}

#[test]
fn a_directory_in_the_place_of_the_database_is_refused() {
    let program = configured(KINDS);
    std::fs::create_dir(program.home().join("stargate.db")).unwrap();
    for command in COMMANDS {
        assert_eq!(refused_with(&program, command, &["cannot be opened"]), "STORE_UNAVAILABLE");
    }
}

#[test]
fn a_home_that_cannot_be_made_is_refused_with_a_remedy() {
    let program = configured(KINDS);
    std::fs::write(program.home().join("file"), "not a directory").unwrap();
    for home in ["file", "file/home", "/proc/stargate"] {
        for command in COMMANDS {
            let (exit, error) = refusal(&program, &[&["--home", home], command].concat());
            assert_eq!(exit, Some(5), "{home} {command:?}: {error}");
            assert!(error["message"].as_str().unwrap().contains(home), "{error}");
            assert!(error["help"].as_str().unwrap().contains("--home"), "{error}");
        }
    }
    assert_eq!(json(&program, &["job", "list"]), serde_json::json!([]), "a good home still works");
}
