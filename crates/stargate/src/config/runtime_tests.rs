//! What the configuration makes of artifacts, clips, scratch and pg-boss, and what it refuses.

use super::*;
use crate::config::layer::Environment;
use crate::config::{Flags, Settings, load};

fn settings(text: &str, environment: &Environment) -> Result<Settings> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stargate.toml");
    std::fs::write(&path, text).unwrap();
    load(Flags { config: Some(path), ..Flags::default() }, environment)
}

fn read(text: &str) -> Settings {
    settings(text, &Environment::default()).unwrap()
}

/// The refusal of a file: message and help, and the line of the caret.
fn refused(text: &str) -> (String, usize) {
    let failure = settings(text, &Environment::default()).unwrap_err();
    let line = failure.position().map_or(0, |(_, line, _)| line);
    (format!("{} {}", failure.message, failure.help.unwrap_or_default()), line)
}

#[test]
fn without_a_word_everything_lies_in_the_home() {
    let read = read("home = \"h\"\n");
    assert_eq!(read.artifacts.url, ArtifactsUrl::Folder("h/artifacts".into()));
    assert_eq!(read.scratch.dir, Path::new("h/scratch"));
    assert_eq!((read.scratch.bytes_max, read.clip.input_bytes_max), (10 << 30, 4 << 30));
    assert_eq!(read.clip.clip_max, Duration::from_secs(120));
    assert!(read.pgboss.is_none() && read.artifacts.s3.credentials.is_none());
}

#[test]
fn a_lent_key_has_a_token_and_a_machine_may_have_a_role() {
    let text = "[artifacts]\naccess_key_id = \"a\"\nsecret_access_key = \"b\"\nsession_token = \"hunter2\"\n";
    let lent = read(text);
    let Some(Credentials::Key { session_token, .. }) = &lent.artifacts.s3.credentials else {
        panic!("{lent:?}")
    };
    assert_eq!(session_token.as_ref().unwrap().reveal(), "hunter2");
    assert!(!format!("{:?}", lent.shown).contains("hunter2"));
    let machine = read("[artifacts]\nurl = \"s3://media\"\nmachine_role = true\n");
    assert!(matches!(machine.artifacts.s3.credentials, Some(Credentials::MachineRole)), "{machine:?}");
}

#[test]
fn every_section_is_taken_and_its_secrets_are_not_shown() {
    let text = r#"
        [artifacts]
        url = "s3://media/clips"
        endpoint = "http://127.0.0.1:8333"
        region = "eu-central-1"
        access_key_id = "${env:KEY_ID}"
        secret_access_key = "hunter2"
        [clip]
        max_input = "500MB"
        max_length = "30s"
        source_dirs = ["/srv/media"]
        concurrency = 2
        [scratch]
        dir = "/var/tmp/s"
        max_age = "2d"
        max_size = 1000000
        gc_interval = "1m"
        [sources.pgboss]
        dsn = "postgres://u:hunter2@h/d"
        queues = ["clips", "a"]
        kinds = { clips = "clip" }
        [kinds."a"]
        exec = ["x"]
    "#;
    let read = settings(text, &Environment::from([("KEY_ID", "hunter2")])).unwrap();
    assert_eq!(read.artifacts.url.to_string(), "s3://media/clips");
    let Some(Credentials::Key { id, .. }) = &read.artifacts.s3.credentials else {
        panic!("no key: {read:?}")
    };
    assert_eq!(id.reveal(), "hunter2");
    assert_eq!((read.clip.input_bytes_max, read.clip.concurrency), (500_000_000, Some(2)));
    assert_eq!((read.scratch.bytes_max, read.scratch.age_max.as_secs()), (1_000_000, 2 * 86_400));
    let queues = &read.pgboss.as_ref().unwrap().queues;
    assert_eq!(*queues, [("clips".to_owned(), "clip".to_owned()), ("a".to_owned(), "a".to_owned())]);
    let shown = serde_json::to_string(&read.shown).unwrap() + &format!("{read:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn a_clip_waits_between_attempts_as_other_kinds_do_unless_told() {
    let waits = |text: &str| {
        let backoff = read(text).clip.backoff;
        (backoff.first.as_secs(), backoff.cap.as_secs())
    };
    assert_eq!(waits(""), (30, 3600));
    assert_eq!(waits("[clip]\nbackoff = \"1s\"\nbackoff_max = \"1m\"\n"), (1, 60));
    assert_eq!(waits("[clip]\nbackoff = \"2h\"\n"), (7200, 7200), "the longest wait grows with the first");
    assert_eq!(waits("[clip]\nbackoff = \"0s\"\n"), (0, 3600));
}

#[test]
fn a_clip_gets_three_attempts_until_somebody_says_a_number() {
    assert_eq!(read("").clip.max_attempts, 3);
    assert_eq!(read("").plans.profile.max_attempts, 5);
    assert_eq!(read("[worker]\nmax_attempts = 7\n").clip.max_attempts, 7);
    assert_eq!(read("[worker]\nmax_attempts = 7\n[clip]\nmax_attempts = 2\n").clip.max_attempts, 2);
    let environment = Environment::from([("MAX_ATTEMPTS", "4")]);
    assert_eq!(settings("", &environment).unwrap().clip.max_attempts, 4);
}

#[test]
fn values_out_of_range_and_impossible_combinations_are_refused_with_the_place() {
    let dsn = "[sources.pgboss]\ndsn = \"postgres://h/d\"\n";
    for (text, expected, line) in [
        ("[artifacts]\nurl = \"gs://b/p\"\n", "s3://BUCKET/PREFIX", 2),
        ("[artifacts]\nendpoint = \"http://h\"\n", "artifacts.endpoint has no use", 2),
        ("[artifacts]\nurl = \"s3://media\"\nendpoint = \"h:8333\"\n", "http://", 3),
        ("[artifacts]\nurl = \"s3://media\"\naccess_key_id = \"a\"\n", "AWS_SECRET_ACCESS_KEY", 0),
        ("[artifacts]\nregion = \"the moon\"\n", "eu-central-1", 2),
        ("[artifacts]\naccess_key_id = \"${env:NOT_SET}\"\n", "NOT_SET", 2),
        ("[clip]\nmax_input = \"1B\"\n", "clip.max_input is 1B; allowed are 1KiB to 16TiB", 2),
        ("[clip]\nmax_input = \"large\"\n", "10GiB", 2),
        ("[clip]\nmax_length = \"2d\"\n", "clip.max_length is 2d; allowed are 100ms to 24h", 2),
        ("[clip]\nmax_attempts = 0\n", "allowed are 1 to 1000", 2),
        ("[clip]\nbackoff = \"8d\"\n", "clip.backoff is 8d; allowed are 0s to 7d", 2),
        ("[clip]\nbackoff_max = \"8d\"\n", "clip.backoff_max is 8d; allowed are 0s to 7d", 2),
        (
            "[clip]\nbackoff = \"2m\"\nbackoff_max = \"1m\"\n",
            "clip.backoff is 2m, more than backoff_max 1m",
            2,
        ),
        ("[clip]\nbackoff_max = \"1s\"\n", "clip.backoff is 30s, more than backoff_max 1s", 2),
        ("[clip]\nsource_dir = [\"x\"]\n", "did you mean \"source_dirs\"?", 2),
        ("[scratch]\nmax_size = -1\n", "a size such as", 2),
        ("[scratch]\ngc_interval = \"0s\"\n", "allowed are 100ms to 24h", 2),
        ("[kinds.\"clip\"]\nexec = [\"x\"]\n", "is built in", 1),
        ("[sources.pgboss]\nqueues = [\"clips\"]\n", "STARGATE_PGBOSS_DSN", 2),
        ("[sources.pgboss]\ndsn = \"mysql://u:hunter2@h\"\n", "is not postgres://", 2),
        (dsn, "names no queue", 0),
        (&format!("{dsn}queues = [\"clips\"]\n"), "did you mean \"clip\"?", 3),
        (&format!("{dsn}queues = [\"q\"]\nkinds = {{ q = \"cilp\" }}\n"), "run as the kind \"cilp\"", 4),
        (&format!("{dsn}queues = [\"clip\"]\nkinds = {{ q = \"clip\" }}\n"), "not among the queues clip", 4),
        (&format!("{dsn}schema = \"a b\"\nqueues = [\"clip\"]\n"), "letters, digits and '_'", 3),
    ] {
        let (message, found) = refused(text);
        assert!(message.contains(expected) && !message.contains("hunter2"), "{text}: {message}");
        assert_eq!(found, line, "{text}: {message}");
    }
}

#[test]
fn a_bad_environment_variable_is_named() {
    for (name, value) in [
        ("STARGATE_ARTIFACTS", "ftp://x/y"),
        ("STARGATE_S3_ENDPOINT", "here"),
        ("AWS_ACCESS_KEY_ID", "alone"),
        ("STARGATE_PGBOSS_DSN", "mysql://x"),
        ("STARGATE_CLIP_ALLOW_PRIVATE", "perhaps"),
    ] {
        let failure = load(Flags::default(), &Environment::from([(name, value)])).unwrap_err();
        let said = format!("{} {}", failure.message, failure.help.unwrap_or_default());
        assert!(said.contains(name) || said.contains("access_key_id"), "{name}: {said}");
    }
}

#[test]
fn an_address_for_other_programs_does_not_hinder() {
    let environment = Environment::from([("AWS_ENDPOINT_URL", "http://127.0.0.1:4566")]);
    assert!(settings("", &environment).is_ok(), "many shells set it for the AWS command line");
}
