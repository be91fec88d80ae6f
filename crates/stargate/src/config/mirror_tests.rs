//! What the configuration makes of the mirror, and what it refuses.

use super::*;
use crate::config::layer::Environment;
use crate::config::{Flags, Settings, load};

fn settings(text: &str, environment: &Environment) -> Result<Settings> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stargate.toml");
    std::fs::write(&path, text).unwrap();
    load(Flags { config: Some(path), ..Flags::default() }, environment)
}

fn read(text: &str) -> Mirror {
    settings(text, &Environment::default()).unwrap().mirror
}

/// The refusal of a file: as it is shown, and the line of the caret.
fn refused(text: &str) -> (String, usize) {
    let failure = settings(text, &Environment::default()).unwrap_err();
    let line = failure.position().map_or(0, |(_, line, _)| line);
    (anstream::adapter::strip_str(&failure.render()).to_string(), line)
}

#[test]
fn without_a_word_the_values_are_those_of_the_contract() {
    let mirror = read("");
    assert_eq!(
        (mirror.config.remote.as_str(), mirror.protocols.to_string().as_str()),
        ("github-origin", "https,ssh")
    );
    assert_eq!((mirror.config.push_timeout, mirror.config.coalesce), (Duration::from_secs(30), false));
    assert_eq!((mirror.config.reconcile_every, mirror.retention), (Duration::from_secs(60), RETENTION_MIN));
    let watched: Vec<String> = mirror.config.routes.watched().iter().map(ToString::to_string).collect();
    assert_eq!(watched, ["refs/kv/*", "refs/kv-index/*"]);
    assert!(mirror.urls.is_empty());
}

#[test]
fn every_setting_is_taken_and_the_token_is_not_shown() {
    let text = r#"
        [mirror]
        remote = "backup"
        protocols = ["file", "ssh"]
        refs = ["refs/heads/*", "refs/_blog/*"]
        ledgers = ["refs/heads/main"]
        map = { "refs/_blog/*" = "refs/heads/_mirror/*" }
        push_timeout = "5s"
        coalesce = true
        reconcile_every = "2m"
        rescan_every = "1s"
        username = "bot"
        token = "${env:HUB_TOKEN}"
        ssh_key = "/etc/stargate/key"
        known_hosts = "/etc/stargate/hosts"
        dead_letter_retention = "90d"
        [mirror.remotes."team/tools"]
        url = "https://git.example/team/tools.git"
    "#;
    let settings = settings(text, &Environment::from([("HUB_TOKEN", "hunter2")])).unwrap();
    let mirror = &settings.mirror;
    let name = stargate_git::RefName::parse("refs/_blog/x").unwrap();
    assert_eq!(mirror.config.routes.route(&name, None).unwrap().to.as_str(), "refs/heads/_mirror/x");
    assert_eq!(
        (mirror.config.remote.as_str(), mirror.protocols.to_string().as_str()),
        ("backup", "file,ssh")
    );
    assert_eq!((mirror.config.push_timeout, mirror.config.coalesce), (Duration::from_secs(5), true));
    assert_eq!(mirror.urls.values().next().map(String::as_str), Some("https://git.example/team/tools.git"));
    assert!(mirror.credentials("https://git.example/x").is_ok() && mirror.credentials("git@h:x").is_ok());
    let shown = serde_json::to_string(&settings.shown).unwrap();
    assert!(shown.contains("mirror.token") && shown.contains("refs/heads/_mirror/*"), "{shown}");
    assert!(!shown.contains("hunter2") && !format!("{mirror:?}").contains("hunter2"), "{shown}");
}

#[test]
fn the_environment_names_of_the_contract_are_read() {
    let environment = Environment::from([("PUSH_TIMEOUT", "7"), ("STARGATE_MIRROR_PROTOCOLS", "file")]);
    let mirror = settings("[mirror]\npush_timeout = \"9s\"\n", &environment).unwrap().mirror;
    assert_eq!(
        (mirror.config.push_timeout, mirror.protocols.to_string().as_str()),
        (Duration::from_secs(7), "file")
    );
}

#[test]
fn what_cannot_work_is_refused_with_its_place_and_without_secrets() {
    for (text, says, at) in [
        ("[mirror]\nremote = \"--mirror\"\n", "mirror.remote", 2),
        ("[mirror]\nprotocols = \"ext\"\n", "mirror.protocols", 2),
        ("[mirror]\nprotocols = []\n", "mirror.protocols", 2),
        ("[mirror]\npush_timeout = \"2h\"\n", "mirror.push_timeout", 2),
        ("[mirror]\nrefs = [\"heads/*\"]\n", "mirror.refs", 2),
        ("[mirror]\nrefs = [\"refs/kv-mirror/*\"]\n", "watermarks", 2),
        ("[mirror]\nmap = { \"refs/a/*\" = \"refs/b\" }\n", "must both end with", 2),
        ("[mirror]\ndead_letter_retention = \"1d\"\n", "mirror.dead_letter_retention", 2),
        ("[mirror.remotes.\"../x\"]\nurl = \"https://h/x\"\n", "mirror.remotes", 1),
        ("[mirror.remotes.\"x\"]\nurl = \"ext::sh -c x\"\n", "program", 2),
        ("[mirror.remotes.\"x\"]\nurl = \"--upload-pack=x\"\n", "dash", 2),
        ("[mirror.remotes.\"x\"]\nurl = \"https://u:hunter2@h/x\"\n", "password", 2),
        ("[mirror]\ntoken = \"hunter2\"\nremotte = \"x\"\n", "did you mean", 3),
    ] {
        let (shown, line) = refused(text);
        assert!(shown.contains(says) && !shown.contains("hunter2"), "{text}: {shown}");
        assert_eq!(line, at, "{text}: {shown}");
    }
}
