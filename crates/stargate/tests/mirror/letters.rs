//! `mirror dead-letter …`.

use serde_json::Value;

use crate::stage::{MAIN, Stage, eventually};

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("no {key} in {value}"))
}

/// A stage with one entry that the remote refuses for as long as there is a file.
fn refused() -> (Stage, String, String) {
    let stage = Stage::new();
    let closed = stage.program.home().join("closed");
    std::fs::write(&closed, "").unwrap();
    stage.remote_hook("pre-receive", &format!("cat > /dev/null; test ! -e {}", closed.display()));
    let oid = stage.chain(1).remove(0);
    stage.push("e1", MAIN, None, &oid);
    stage.drain();
    let id = text(&stage.letters()[0], "dead_letter_id").to_owned();
    (stage, oid, id)
}

fn open_remote(stage: &Stage) {
    std::fs::remove_file(stage.program.home().join("closed")).unwrap();
}

#[test]
fn a_letter_is_shown_requeued_once_and_then_mirrored() {
    let (stage, oid, id) = refused();
    let shown = stage.answer(&["dead-letter", "show", &id]);
    assert_eq!(
        (text(&shown, "entry_id"), text(&shown, "reason"), text(&shown, "state")),
        ("e1", "rejected", "open")
    );
    let people = stage.mirror(&["dead-letter", "show", &id]);
    assert!(String::from_utf8_lossy(&people.stdout).contains("rejected"), "{people:?}");

    open_remote(&stage);
    let requeued = stage.answer(&["dead-letter", "requeue", &id]);
    let entry = text(&requeued[0], "entry_id").to_owned();
    // A second time it answers the same and adds nothing.
    let again = stage.answer(&["dead-letter", "requeue", &id]);
    assert_eq!(text(&again[0], "entry_id"), entry);
    stage.drain();
    stage.assert_mirrored(&oid);
    assert_eq!(stage.status_of(&entry), "completed");
    assert_eq!(stage.letters().len(), 0);
    let all = stage.answer(&["dead-letter", "list", "--all"]);
    assert_eq!(text(&all[0], "state"), "requeued", "{all}");
    // Only if asked to: then the remote has it already.
    let forced = stage.answer(&["dead-letter", "requeue", &id, "--again"]);
    stage.drain();
    assert_eq!(stage.status_of(text(&forced[0], "entry_id")), "superseded");
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_can_be_requeued_while_a_mirror_runs() {
    let (stage, oid, _) = refused();
    let mut running = stage.node("a").await;
    eventually("the worker to run", || stage.answer(&["status"])["worker"]["running"] == true).await;
    for (query, status, count) in [
        ("repo=tools", 200, 1),
        ("repo=tools&state=all&limit=1", 200, 1),
        ("repo=tools&after=9", 200, 0),
        ("repo=nothing", 404, 0),
        ("repo=../x", 404, 0),
        ("repo=tools&limit=0", 400, 0),
        ("repo=tools&state=x", 400, 0),
        ("", 200, 1),
    ] {
        let path = format!("/api/v1/mirror/dead-letters?{query}");
        let (code, body) = stargate_testkit::process::get(running.address(), &path).await.unwrap();
        let found: Value = serde_json::from_str(&body).unwrap();
        let letters = found["dead_letters"].as_array().map_or(0, Vec::len);
        assert!([status, 422].contains(&code) || status == 200, "{query}: {code} {body}");
        assert_eq!((code == 200, letters), (status == 200, count), "{query}: {code} {body}");
    }
    open_remote(&stage);
    let requeued = stage.answer(&["dead-letter", "requeue", "--all"]);
    assert_eq!(requeued.as_array().unwrap().len(), 1, "{requeued}");
    eventually("the entry to be mirrored", || stage.remote_ref(MAIN) == oid).await;
    assert!(running.is_running(), "{}", running.log());
    // A second worker is refused meanwhile.
    assert_eq!(stage.refusal(&["run", "--once"]), (4, "MIRROR_LOCKED".to_owned()));
}

#[test]
fn letters_are_kept_for_thirty_days_at_least() {
    let (stage, _, id) = refused();
    assert_eq!(stage.refusal(&["dead-letter", "purge", "--older-than", "29d"]), (5, "INVALID".to_owned()));
    assert_eq!(stage.answer(&["dead-letter", "purge"])["purged"], Value::Array(Vec::new()));
    // Made older by hand.
    let path = stage.file("dead-letter").join(format!("{id}.json"));
    let mut letter: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    letter["dead_lettered_at"] = "2020-01-01T00:00:00Z".into();
    std::fs::write(&path, letter.to_string()).unwrap();
    assert_eq!(stage.answer(&["dead-letter", "purge"])["purged"][0], id.as_str());
    assert_eq!(stage.letters().len(), 0);
}

#[test]
fn a_letter_that_is_not_there_is_not_found() {
    let stage = Stage::new();
    for id in ["0000000001-000000000000-00000000", "../../HEAD", "*"] {
        for verb in ["show", "requeue"] {
            assert_eq!(stage.refusal(&["dead-letter", verb, id]), (3, "NOT_FOUND".to_owned()), "{verb} {id}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_removes_letters_after_their_time_and_not_before() {
    let (stage, oid, _) = refused();
    for name in ["young", "open"] {
        stage.push(name, &format!("refs/kv/{name}"), None, &oid);
    }
    stage.drain();
    let letters = stage.letters();
    let id_of = |entry: &str| {
        let letter = letters.iter().find(|letter| letter["entry_id"] == entry);
        text(letter.unwrap(), "dead_letter_id").to_owned()
    };
    let (old, young, open) = (id_of("e1"), id_of("young"), id_of("open"));
    open_remote(&stage);
    stage.answer(&["dead-letter", "requeue", &old, &young]);
    let age = |id: &str, days: i64| {
        let path = stage.file("dead-letter").join(format!("{id}.json"));
        let mut letter: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let at = stargate_base::clock::wall() - jiff::SignedDuration::from_hours(24 * days);
        letter["dead_lettered_at"] = at.to_string().into();
        std::fs::write(&path, letter.to_string()).unwrap();
    };
    age(&old, 31);
    age(&young, 29);
    // What nobody has requeued may be the only trace of an entry: that is an operator's to remove.
    age(&open, 31);
    let node = stage.node("a").await;
    let left = || {
        let all = stage.answer(&["dead-letter", "list", "--all"]);
        all.as_array()
            .unwrap()
            .iter()
            .map(|letter| text(letter, "dead_letter_id").to_owned())
            .collect::<Vec<_>>()
    };
    eventually("the old letter to go", || !left().contains(&old)).await;
    assert_eq!(left(), [young, open]);
    assert!(node.log().contains("old dead letters were removed"), "{}", node.log());
}
