//! The journal of a repository that has no mirror: bounded, and nothing is missed when it gets one.

use std::fs::File;
use std::time::{Duration, SystemTime};

use serde_json::json;

use crate::leader::until_leads;
use crate::stage::{MAIN, Stage, eventually};

/// Lines of this many bytes, all of them for commits that are not the last.
fn lines(oid: &str, bytes: usize) -> Vec<u8> {
    let line = json!({ "entry_id": "old", "ref": MAIN, "new_oid": oid, "source": "test" });
    let line = format!("{line}\n");
    line.repeat(bytes / line.len()).into_bytes()
}

fn a_month_ago() -> SystemTime {
    SystemTime::from(stargate_base::clock::wall()) - Duration::from_secs(31 * 86_400)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_journal_of_a_repository_without_a_mirror_is_bounded_and_a_later_mirror_misses_nothing() {
    let stage = Stage::with_settings("coalesce = true\n");
    stage.git(&stage.repo, &["remote", "remove", "github-origin"], b"");
    let chain = stage.chain(3);
    let segment = |n: u64| stage.file(&format!("mirror-journal.{n:010}.ndjson"));
    std::fs::create_dir_all(stage.file("")).unwrap();
    // Two segments that nobody has read for a month, one of today, and the one that is written.
    let month = a_month_ago();
    for n in 1..=3 {
        std::fs::write(segment(n), lines(&chain[0], 100_000)).unwrap();
        if n < 3 {
            File::options().write(true).open(segment(n)).unwrap().set_modified(month).unwrap();
        }
    }
    std::fs::write(stage.file("mirror-journal.ndjson"), lines(&chain[1], 2 << 20)).unwrap();
    stage.git(&stage.repo, &["update-ref", MAIN, &chain[2]], b"");
    let mut node = stage.node("a").await;
    until_leads(&node).await;
    eventually("the old segments to go", || !segment(1).exists() && !segment(2).exists()).await;
    // What is young stays, and what was written is full where nobody reads.
    eventually("the full one to be put away", || segment(4).exists()).await;
    assert!(segment(3).exists() && node.is_running(), "{}", node.log());

    stage.add_remote(&stage.repo, stage.remote.to_str().unwrap());
    eventually("everything to be mirrored", || stage.remote_ref(MAIN) == chain[2]).await;
    eventually("nothing to wait", || stage.answer(&["status"])["backlog"] == 0).await;
    stage.assert_mirrored(&chain[2]);
    assert_eq!(stage.answer(&["verify"])["verified"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_journal_of_a_repository_whose_remote_is_away_keeps_everything() {
    let stage = Stage::new();
    stage.git(&stage.repo, &["remote", "set-url", "github-origin", "/nowhere.git"], b"");
    let chain = stage.chain(1);
    let old = stage.file("mirror-journal.0000000001.ndjson");
    std::fs::create_dir_all(stage.file("")).unwrap();
    for name in ["mirror-journal.0000000001.ndjson", "mirror-journal.0000000002.ndjson"] {
        std::fs::write(stage.file(name), lines(&chain[0], 1000)).unwrap();
        File::options().write(true).open(stage.file(name)).unwrap().set_modified(a_month_ago()).unwrap();
    }
    // A repository without a mirror, to see that the look at all of them is over.
    let other = stage.program.home().join("repos/unread.git");
    stage.init(&other);
    std::fs::create_dir_all(other.join(".stargate")).unwrap();
    std::fs::write(other.join(".stargate/mirror-journal.ndjson"), lines(&chain[0], 2 << 20)).unwrap();
    let node = stage.node("a").await;
    until_leads(&node).await;
    let trimmed = other.join(".stargate/mirror-journal.0000000001.ndjson");
    eventually("the other journal to be looked at", || trimmed.exists()).await;
    assert!(old.exists(), "{}", node.log());
}
