//! What the configuration makes of leadership, and what it refuses.

use super::*;
use crate::config::layer::Environment;
use crate::config::{Flags, Settings, load};

fn settings(text: &str, environment: &Environment) -> Result<Settings> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stargate.toml");
    std::fs::write(&path, text).unwrap();
    load(Flags { config: Some(path), ..Flags::default() }, environment)
}

fn read(text: &str) -> Leader {
    settings(text, &Environment::default()).unwrap().leader
}

/// The refusal of a file: message and help, and the line of the caret.
fn refused(text: &str) -> (String, usize) {
    let failure = settings(text, &Environment::default()).unwrap_err();
    let line = failure.position().map_or(0, |(_, line, _)| line);
    (format!("{} {}", failure.message, failure.help.unwrap_or_default()), line)
}

#[test]
fn without_a_word_the_lock_is_a_file_and_the_times_are_those_of_the_contract() {
    let leader = read("");
    assert!(matches!(leader.backend, Backend::File), "{leader:?}");
    assert_eq!((leader.campaign, leader.forward_writes, &leader.address), (None, false, &None));
    assert!(leader.instance.ends_with(&format!("-{}", std::process::id())), "{leader:?}");
    let config = leader.config(Some("http://127.0.0.1:1".to_owned())).unwrap();
    assert_eq!((config.ttl(), config.margin()), (Duration::from_secs(30), Duration::from_secs(2)));
    assert_eq!(config.holder().address.as_deref(), Some("http://127.0.0.1:1"));
}

#[test]
fn every_setting_is_taken_and_the_url_is_not_shown() {
    let text = r#"
        [leader]
        backend = "redis"
        redis_url = "rediss://u:hunter2@h:6380/1"
        key = "mine"
        authority = "ca.pem"
        replicas = 2
        campaign = false
        instance = "node-1"
        address = "http://node-1:8080/"
        forward_writes = true
        ttl = "9s"
        renew_every = "2s"
        renew_retries = ["100ms", 0.2]
        renew_until_deadline = true
        retry_every = "1s"
        retry_max = "7s"
        margin = "1s"
        call_timeout = "300ms"
        startup_guard = false
    "#;
    let settings = settings(text, &Environment::default()).unwrap();
    let leader = &settings.leader;
    let Backend::Redis(redis) = &leader.backend else { panic!("{leader:?}") };
    assert_eq!((redis.key.as_str(), redis.replicas), ("mine", Replicas::Exactly(2)));
    assert_eq!(redis.authority.as_deref(), Some(std::path::Path::new("ca.pem")));
    assert_eq!((leader.campaign, leader.forward_writes), (Some(false), true));
    assert_eq!((leader.instance.as_str(), leader.address.as_deref()), ("node-1", Some("http://node-1:8080")));
    let times = &leader.times;
    assert_eq!(times.renew_retries, Some(vec![Duration::from_millis(100), Duration::from_millis(200)]));
    assert_eq!((times.retry_every, times.retry_max), (Duration::from_secs(1), Duration::from_secs(7)));
    assert_eq!(
        (times.margin, times.call_timeout),
        (Some(Duration::from_secs(1)), Some(Duration::from_millis(300)))
    );
    assert!(times.renew_until_deadline && !times.startup_guard);
    assert!(!format!("{settings:?}").contains("hunter2"));
    assert!(settings.shown.iter().any(|shown| shown.key == "leader.redis_url" && shown.value == "***"));
    assert!(
        settings
            .shown
            .iter()
            .any(|shown| shown.key == "leader.renew_retries" && shown.value == "100ms, 200ms")
    );
}

#[test]
fn the_environment_names_the_node_and_the_redis() {
    let environment = Environment::from([
        ("STARGATE_INSTANCE", "blue"),
        ("REDIS_URL", "redis://:hunter2@h"),
        ("STARGATE_LEADER_BACKEND", "redis"),
    ]);
    let settings = settings("", &environment).unwrap();
    assert_eq!(settings.leader.instance, "blue");
    assert_eq!(settings.leader.backend.name(), BackendName::Redis);
    assert!(!format!("{settings:?}").contains("hunter2"));
    // For somebody else, perhaps.
    let other = Environment::from([("REDIS_URL", "redis://:hunter2@h")]);
    assert_eq!(super::tests::settings("", &other).unwrap().leader.backend.name(), BackendName::File);
}

#[test]
fn a_short_lease_is_renewed_in_proportion() {
    let leader = read("[leader]\nttl = \"3s\"\n");
    assert_eq!(leader.times.renew_every, Duration::from_secs(1));
    let replicas = |text: &str| match read(text).backend {
        Backend::Redis(redis) => redis.replicas,
        other => panic!("{other:?}"),
    };
    let redis = "[leader]\nbackend = \"redis\"\nredis_url = \"redis://h\"\n";
    assert_eq!(replicas(redis), Replicas::Connected);
    assert_eq!(replicas(&format!("{redis}replicas = \"connected\"\n")), Replicas::Connected);
    assert_eq!(replicas(&format!("{redis}replicas = 0\n")), Replicas::Exactly(0));
}

#[test]
fn what_cannot_work_is_refused_with_key_range_and_line() {
    let redis = "backend = \"redis\"\nredis_url = \"redis://h\"\n";
    for (lines, expected, line) in [
        ("backend = \"zookeeper\"\n", "leader.backend is none of \"file\", \"redis\", \"none\"", 2),
        ("ttl = \"1ms\"\n", "leader.ttl is 1ms; allowed are 300ms to 1h", 2),
        (
            "ttl = \"10s\"\nrenew_every = \"6s\"\n",
            "leader.renew_every: renewing every 6s must be less than half",
            3,
        ),
        ("\nretry_every = \"1ms\"\n", "leader.retry_every is 1ms; allowed are 10ms to 1h", 3),
        (
            "retry_every = \"9s\"\nretry_max = \"2s\"\n",
            "leader.retry_max is 2s; allowed are leader.retry_every, 9s,",
            3,
        ),
        ("margin = \"20s\"\n", "leader.margin: 20s is not between 2 % and 50 %", 2),
        ("call_timeout = \"2s\"\n", "leader.call_timeout: 2s is not between 10 ms and 1 s", 2),
        ("renew_retries = [\"9s\", \"9s\"]\n", "retries outlive the lease", 2),
        ("renew_retries = []\n", "leader.renew_retries: 0 tries", 2),
        ("instance = \"a b\"\n", "leader.instance: \"a b\" is not a name", 2),
        ("address = \"node:8080\"\n", "leader.address is not http://HOST:PORT", 2),
        ("address = \"http://u:hunter2@node\"\n", "leader.address holds a user or password", 2),
        ("address = \"http://node/x\"\n", "leader.address has a path", 2),
        (
            "backend = \"redis\"\n",
            "leader.backend is \"redis\", but there is no leader.redis_url set REDIS_URL",
            2,
        ),
        (
            "redis_url = \"redis://:hunter2@h\"\n",
            "leader.redis_url has no use: leader.backend is \"file\"",
            2,
        ),
        ("backend = \"none\"\nkey = \"k\"\n", "leader.key has no use: leader.backend is \"none\"", 3),
        ("backend = \"redis\"\nredis_url = \"http://u:hunter2@h\"\n", "leader.redis_url: not a redis://", 3),
        (
            &format!("{redis}replicas = \"all\"\n"),
            "leader.replicas is \"all\"; allowed are \"connected\" and 0 to 100",
            4,
        ),
        (&format!("{redis}replicas = 101\n"), "leader.replicas is 101; allowed are 0 to 100", 4),
        (&format!("{redis}key = \"\"\n"), "leader.key has 0 bytes; allowed are 1 to 512", 4),
        (&format!("{redis}authority = \"ca.pem\"\n"), "leader.authority is for TLS", 4),
    ] {
        let (message, at) = refused(&format!("[leader]\n{lines}"));
        assert!(message.contains(expected) && at == line, "{lines}: {message} (line {at})");
        assert!(!message.contains("hunter2"), "{message}");
    }
}

#[test]
fn a_bad_variable_is_named() {
    for (name, value) in
        [("STARGATE_INSTANCE", "a/b"), ("STARGATE_LEADER_BACKEND", "etcd"), ("STARGATE_ADDRESS", "x")]
    {
        let failure = settings("", &Environment::from([(name, value)])).unwrap_err();
        assert!(failure.message.contains(&format!("environment variable {name}")), "{}", failure.message);
    }
    let url = Environment::from([("REDIS_URL", "hunter2"), ("STARGATE_LEADER_BACKEND", "redis")]);
    let failure = settings("", &url).unwrap_err();
    assert!(
        failure.message.contains("REDIS_URL") && !failure.message.contains("hunter2"),
        "{}",
        failure.message
    );
}

#[test]
fn only_a_node_without_an_api_may_stay_out_of_leadership() {
    let nobody = Environment::default();
    for fine in ["", "[leader]\ncampaign = true\n"] {
        check_campaign(&settings(fine, &nobody).unwrap()).unwrap();
    }
    let of_file = check_campaign(&settings("[leader]\ncampaign = false\n", &nobody).unwrap()).unwrap_err();
    assert!(of_file.message.contains("stargate.toml:2"), "{of_file}");
    assert!(of_file.help.unwrap().contains("stargate worker"));
    let variable = Environment::from([("STARGATE_CAMPAIGN", "0")]);
    let of_environment = check_campaign(&settings("", &variable).unwrap()).unwrap_err();
    assert!(of_environment.message.contains("STARGATE_CAMPAIGN"), "{of_environment}");
}
