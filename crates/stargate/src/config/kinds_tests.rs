//! What the configuration refuses as a whole, and what it makes of a good file.

use super::*;
use crate::config::{Flags, LogFormat, load};

fn settings(text: &str, environment: &Environment) -> Result<crate::config::Settings> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stargate.toml");
    std::fs::write(&path, text).unwrap();
    load(Flags { config: Some(path), ..Flags::default() }, environment)
}

/// The refusal of a file: message, and line and column of the caret.
fn refused(text: &str) -> (String, (usize, usize)) {
    let failure = settings(text, &Environment::default()).unwrap_err();
    let place = failure.position().map(|(_, line, column)| (line, column)).unwrap_or_default();
    (failure.message, place)
}

#[test]
fn a_good_file_is_taken_whole() {
    let text = r#"
        [worker]
        heartbeat = "2s"
        [kinds."thumb"]
        exec = ["./thumb.sh"]
        timeout = "2m"
        max_attempts = 2
        timeline = "states"
        [kinds."notify"]
        http = "http://127.0.0.1:9000/hook"
        secret = "${env:HOOK_SECRET}"
        [limits."tenant:*"]
        rate = "10/s"
        [schedules."nightly"]
        cron = "0 3 * * *"
        time_zone = "Europe/Berlin"
        kind = "thumb"
        payload = { size = 200 }
    "#;
    let settings = settings(text, &Environment::from([("HOOK_SECRET", "hunter2")])).unwrap();
    assert_eq!(settings.worker.lease, Duration::from_secs(6), "three heartbeats");
    assert_eq!(settings.plans.kinds.len(), 2);
    assert_eq!(settings.plans.schedules[0].payload.get(), r#"{"size":200}"#);
    let shown = serde_json::to_string(&settings.shown).unwrap() + &format!("{settings:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn the_flag_wins_over_environment_over_file_over_default() {
    let file = "[log]\nformat = \"json\"\n[worker]\nconcurrency = 7\nheartbeat = \"1s\"\n";
    let environment = Environment::from([("STARGATE_WORKERS", "9")]);
    let read = settings(file, &environment).unwrap();
    assert_eq!((read.worker.concurrency, read.log_format), (9, LogFormat::Json));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stargate.toml");
    std::fs::write(&path, file).unwrap();
    let flags = Flags { config: Some(path), workers: Some(11), ..Flags::default() };
    let read = load(flags, &environment).unwrap();
    assert_eq!(read.worker.concurrency, 11);
    let origin = |key: &str| read.shown.iter().find(|s| s.key == key).unwrap().origin.to_string();
    assert_eq!(origin("worker.concurrency"), "flag --workers");
    assert!(origin("worker.heartbeat").ends_with("stargate.toml:5"), "{}", origin("worker.heartbeat"));
    assert_eq!(origin("worker.poll"), "default");
}

#[test]
fn values_out_of_range_are_refused_with_the_range_and_the_place() {
    let (message, place) = refused("[worker]\nconcurrency = 0\n");
    assert_eq!((message.as_str(), place), ("worker.concurrency is 0; allowed are 1 to 4096", (2, 15)));
    let (message, place) = refused("[kinds.\"a\"]\nexec = [\"x\"]\nmax_attempts = 5000\n");
    assert!(message.contains("kinds.\"a\".max_attempts is 5000; allowed are 1 to 1000"), "{message}");
    assert_eq!(place, (3, 16));
}

#[test]
fn impossible_combinations_are_refused_with_the_place() {
    let (message, place) = refused("[worker]\nheartbeat = \"10s\"\nlease = \"15s\"\n");
    assert!(message.contains("worker.lease is 15s, less than two heartbeats of 10s"), "{message}");
    assert_eq!(place.0, 3);
    for (text, expected, line) in [
        ("[kinds.\"a\"]\n", "neither exec nor http", 1),
        ("[kinds.\"a\"]\nexec = [\"x\"]\nhttp = \"http://h/\"\n", "both exec and http", 2),
        ("[kinds.\"a\"]\nexec = [\"x\"]\nsecret = \"s\"\n", "no use with exec", 3),
        ("[kinds.\"a\"]\nhttp = \"ftp://h/\"\n", "not an http://", 2),
        ("[kinds.\"a\"]\nexec = [\"x\"]\nlease = \"1s\"\n", "allowed are 20s to", 3),
        (
            "[kinds.\"a\"]\nexec = [\"x\"]\nbackoff = \"2m\"\nbackoff_max = \"1m\"\n",
            "more than backoff_max",
            3,
        ),
        ("[kinds.\"jobs:purge_completed\"]\nexec = [\"x\"]\n", "is built in", 1),
        ("[limits.\"a*b\"]\nweight = 2\n", "not a pattern", 1),
        ("[limits.\"a\"]\n", "limits nothing", 1),
        ("[limits.\"a\"]\nrate = \"10/fortnight\"\n", "10/s", 2),
        ("[schedules.\"a\"]\ncron = \"61 * * * *\"\nkind = \"k\"\n", "cron", 2),
        ("[schedules.\"a\"]\ncron = \"* * * * *\"\nkind = \"k\"\ntime_zone = \"Mars/X\"\n", "IANA", 4),
        ("[kinds.\"a\"]\nhttp = \"http://h/\"\nsecret = \"${env:NOT_SET}\"\n", "NOT_SET", 3),
    ] {
        let (message, place) = refused(text);
        assert!(message.contains(expected), "{text}: {message}");
        assert_eq!(place.0, line, "{text}: {message}");
    }
}

#[test]
fn a_bad_environment_variable_is_named() {
    for (name, value) in [
        ("STARGATE_WORKERS", "many"),
        ("HEARTBEAT_INTERVAL_SEC", "soon"),
        ("LEASE_TIMEOUT_SEC", "1"),
        ("LOAD_THRESHOLD", "-1"),
        ("STARGATE_LISTEN", "here"),
        ("DATABASE_URL", "mysql://x"),
        ("KEEP_SCRATCH_ON_SUCCESS", "perhaps"),
    ] {
        let failure = load(Flags::default(), &Environment::from([(name, value)])).unwrap_err();
        assert!(failure.message.contains(name), "{name}: {}", failure.message);
    }
}
