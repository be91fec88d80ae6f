//! What `[directives]` and `[outbox]` may say.

use super::super::layer::Environment;
use super::super::{Flags, Settings, load};
use super::*;

fn settings(text: &str, environment: &Environment) -> Result<Settings> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stargate.toml");
    std::fs::write(&path, text).unwrap();
    load(Flags { config: Some(path), ..Flags::default() }, environment)
}

#[test]
fn directives_lie_beside_the_file_and_have_two_queues() {
    let usual = settings("", &Environment::default()).unwrap();
    let file = usual.file.unwrap();
    assert_eq!(usual.directives.dir, file.parent().unwrap().join("directives"));
    assert_eq!(usual.directives.queues, ["meta-py", "meta-ts"]);
    assert_eq!(usual.plans.limits, []);
    let text = "[directives]\ndir = \"/srv/d\"\nqueues = [\"a\"]\n";
    let said = settings(text, &Environment::default()).unwrap().directives;
    assert_eq!((said.dir, said.queues), (PathBuf::from("/srv/d"), vec!["a".to_owned()]));
    let none = load(Flags { config: None, ..Flags::default() }, &Environment::default());
    assert!(none.unwrap().directives.dir.ends_with("directives"));
}

#[test]
fn runs_of_a_tenant_are_limited_by_its_key() {
    let text = "[directives]\ntenant_concurrency = 3\n[limits.\"directives:acme\"]\nconcurrency = 1\n";
    let limits = settings(text, &Environment::default()).unwrap().plans.limits;
    let at_once = |tenant: &str| {
        stargate_queue::limits::applying(&limits, &limit_key(tenant)).and_then(|limit| limit.concurrency)
    };
    assert_eq!((at_once("acme"), at_once("other")), (Some(1), Some(3)));
}

#[test]
fn announcements_go_where_their_topic_says() {
    let text = "store = \"postgres://h/d\"\n\
        [outbox.\"items.changed\"]\nurl = \"https://h/hook?key=canary\"\nsecret = \"${env:HOOK}\"\n\
        [outbox.\"inside\"]\nurl = \"http://10.0.0.7/hook\"\nallow_private = true\n\
        [outbox.\"outside\"]\nurl = \"http://h/hook\"\nallow_private = false\n\
        [outbox.\"a\"]\nnotify = \"items_changed\"\n[outbox.\"b\"]\nfile = \"out/b.jsonl\"\n";
    let settings = settings(text, &Environment::from([("HOOK", "canary")])).unwrap();
    let parent = settings.file.as_deref().and_then(Path::parent).unwrap();
    let of = |topic: &str| {
        let plan = settings.directives.outbox.iter().find(|plan| plan.topic == topic);
        plan.map(|plan| plan.to.clone()).unwrap()
    };
    let url = "https://h/hook?key=canary".to_owned();
    assert_eq!(
        of("items.changed"),
        Destination::Http { url, secret: Some(Secret::new("canary")), allow_private: false }
    );
    let at =
        |url: &str, allow_private| Destination::Http { url: url.to_owned(), secret: None, allow_private };
    assert_eq!(of("inside"), at("http://10.0.0.7/hook", true));
    assert_eq!(of("outside"), at("http://h/hook", false));
    assert_eq!(of("a"), Destination::Notify { channel: "items_changed".to_owned() });
    assert_eq!(of("b"), Destination::File { path: parent.join("out/b.jsonl") });
    assert!(!format!("{settings:?}").contains("canary"), "{settings:?}");
}

#[test]
fn what_cannot_work_is_refused_at_its_place_without_the_secret() {
    for (bad, line, expected) in [
        ("[directives]\nqueues = []\n", 2, "no directive could run"),
        ("[directives]\nqueues = [\"a b\"]\n", 2, "directives.queues"),
        ("[directives]\ntenant_concurrency = 0\n", 2, "allowed are 1 to 4096"),
        (
            "[directives]\ntenant_concurrency = 2\n[limits.\"directives:*\"]\nconcurrency = 4\n",
            2,
            "say the same thing twice",
        ),
        ("[outbox.\"t\"]\n", 1, "must have exactly one destination"),
        ("[outbox.\"t\"]\nurl = \"http://h\"\nfile = \"f\"\n", 1, "must have exactly one destination"),
        ("[outbox.\"t\"]\nurl = \"ftp://h\"\n", 2, "is not an http"),
        ("[outbox.\"t\"]\nurl = \"http://me:canary@h\"\n", 2, "has a user or a password"),
        ("[outbox.\"t\"]\nurl = \"http://h\"\nsecret = \"${env:NOT_SET}\"\n", 3, "NOT_SET"),
        ("[outbox.\"t\"]\nurl = \"http://h\"\nsecret = \"\"\n", 2, "is empty"),
        ("[outbox.\"t\"]\nfile = \"f\"\nsecret = \"canary\"\n", 3, "has no url to belong to"),
        ("[outbox.\"t\"]\nfile = \"f\"\nallow_private = true\n", 3, "has no url to belong to"),
        ("[outbox.\"t\"]\nnotify = \"c\"\n", 2, "needs a store in Postgres"),
        ("[outbox.\"a b\"]\nfile = \"f\"\n", 1, "cannot be used"),
    ] {
        let failure = settings(bad, &Environment::default()).unwrap_err();
        assert_eq!(failure.position().map(|(_, line, _)| line), Some(line), "{bad}: {failure}");
        assert!(failure.message.contains(expected), "{bad}: {failure}");
        assert!(!failure.render().contains("canary"), "{}", failure.render());
    }
}
