//! Moving the store: what is refused before anything is touched, and the move itself.

use std::time::Duration;

use stargate_testkit::postgres::Database;

use crate::{json, refusal, stargate};

#[test]
fn a_move_is_refused_when_there_is_nothing_to_move_or_no_place_to_move_to() {
    let program = stargate();
    let (code, error) = refusal(&program, &["store", "move", "--to", "postgres://u:hunter2@127.0.0.1:1/d"]);
    assert_eq!(code, 3, "there is no store yet: {error}");
    program.answer(&["migrate"]);
    let (code, error) = refusal(&program, &["store", "move", "--to", "sqlite:other.db"]);
    assert_eq!(code, 2, "{error}");
    let (code, error) = refusal(&program, &["store", "move", "--to", "postgres://u:hunter2@127.0.0.1:1/d"]);
    assert_eq!(code, 5, "{error}");
    assert!(!error.to_string().contains("hunter2"), "{error}");
    let (code, error) = refusal(&program, &["store", "move", "--abort"]);
    assert_eq!(code, 4, "nothing is being moved: {error}");
    assert_eq!(refusal(&program, &["store", "move"]).0, 2);
}

#[test]
fn a_moved_store_refuses_writes_and_names_the_new_one_without_its_password() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let database = runtime.block_on(Database::create_empty());
    let program = stargate();
    program.answer(&["migrate"]);
    // The test cluster trusts everybody, so any password will do.
    let url = with_password(database.url(), "hunter2");
    let moved = json(&program, &["store", "move", "--to", &url, "--json"]);
    assert!(moved["tables"].as_array().is_some_and(|tables| tables.len() > 10), "{moved}");
    assert!(!moved.to_string().contains("hunter2"), "{moved}");
    let (code, error) = refusal(&program, &["queue", "pause", "default"]);
    assert_eq!(code, 4, "{error}");
    assert!(
        error.to_string().contains("STARGATE_STORE") && !error.to_string().contains("hunter2"),
        "{error}"
    );
    let again = json(&program, &["store", "move", "--to", &url, "--json"]);
    assert_eq!(again["completed_earlier"], true, "{again}");
    let (code, error) = refusal(&program, &["store", "move", "--abort"]);
    assert_eq!(code, 4, "{error}");
    let there = json(&program, &["--store", &url, "doctor", "--json"]);
    assert!(
        there.as_array().is_some_and(|all| all.iter().any(|c| c["check"] == "oldest transaction")),
        "{there}"
    );
    runtime.block_on(database.remove());
    runtime.shutdown_timeout(Duration::from_secs(5));
}

fn with_password(url: &str, password: &str) -> String {
    let (scheme, rest) = url.split_once("://").expect("a URL");
    let (user, place) = rest.split_once('@').unwrap_or(("postgres", rest));
    let user = user.split(':').next().unwrap_or(user);
    format!("{scheme}://{user}:{password}@{place}")
}
