//! Repositories, mirrors and dead letters over HTTP.

use serde_json::{Value, json};

use crate::client::Node;

const LINE: &str = "{\"entry_id\":\"e1\",\"ref\":\"refs/kv/main\"}\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_is_not_mirrored_is_told_with_what_it_lacks() {
    let node = Node::up("", |program| drop(program.answer(&["repo", "create", "team/tools"]))).await;
    let repos = node.get("/repos").await.expect(200);
    assert_eq!(repos["repos"][0]["name"], "team/tools");
    assert_eq!(node.get("/mirror").await.expect(200)["mirrors"], json!([]));
    let one = node.get("/mirror/team%2Ftools").await.expect(200);
    assert_eq!((&one["standing"], &one["url"]), (&json!("no-remote"), &Value::Null));
    let refused = node.post("/mirror/team%2Ftools/verify", Value::Null).await.expect(409);
    assert_eq!(refused["error"]["code"], "CONFLICT");
    for outside in ["..", "%2Fetc", "..%2F..%2Fetc", "nothing", "team%2Ftools.git%2F..", "%00"] {
        for path in [format!("/mirror/{outside}"), format!("/mirror/dead-letters?repo={outside}")] {
            let answer = node.get(&path).await;
            assert_eq!(answer.status, 404, "{path}: {}", answer.text);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_grouped_shown_and_requeued() {
    let remote = tempfile::tempdir().unwrap();
    let remote = remote.path().join("remote.git");
    let toml = "[mirror]\nprotocols = [\"file\"]\n";
    let node = Node::up(toml, |program| {
        program.answer(&["repo", "create", "tools"]);
        let repo = program.home().join("repos/tools.git");
        git(&repo, &["init", "--bare", "-q", remote.to_str().unwrap()]);
        git(&repo, &["remote", "add", "github-origin", &format!("file://{}", remote.display())]);
        let dir = repo.join(".stargate");
        std::fs::create_dir_all(&dir).unwrap();
        // No entry: it names no object.
        std::fs::write(dir.join("mirror-journal.ndjson"), LINE.repeat(3)).unwrap();
    })
    .await;
    let grouped =
        stargate_testkit::eventually(std::time::Duration::from_secs(60), "dead letters", || async {
            let found = node.get("/mirror/dead-letters?grouped=true").await.expect(200);
            if found["causes"][0]["count"] == 3 { Ok(found) } else { Err(found.to_string()) }
        })
        .await;
    let cause = &grouped["causes"][0];
    assert_eq!((&cause["reason"], &cause["repos"]), (&json!("malformed"), &json!({ "tools": 3 })));
    let newest = cause["newest"].as_str().unwrap();
    let letter = node.get(&format!("/mirror/dead-letters/{newest}")).await.expect(200);
    assert_eq!((&letter["repo"], &letter["state"]), (&json!("tools"), &json!("open")));
    let listed = node.get("/mirror/dead-letters?limit=2").await.expect(200);
    assert_eq!((listed["dead_letters"].as_array().unwrap().len(), &listed["more"]), (2, &json!(true)));
    let after = listed["dead_letters"][1]["dead_letter_id"].as_str().unwrap();
    let rest = node.get(&format!("/mirror/dead-letters?repo=tools&after={after}")).await.expect(200);
    assert_eq!(rest["dead_letters"].as_array().unwrap().len(), 1);
    // What is no entry cannot become one by trying again.
    let body = json!({ "repo": "tools", "ids": [newest, "nothing"] });
    let done = node.post("/mirror/dead-letters/requeue", body).await.expect(200);
    assert_eq!(
        (done["requeued"].as_array().unwrap().len(), done["failed"].as_array().unwrap().len()),
        (0, 2)
    );
    for wrong in [
        json!({ "repo": "tools" }),
        json!({ "ids": ["x"] }),
        json!({ "repo": "x", "reason": "auth", "ids": [] }),
    ] {
        node.post("/mirror/dead-letters/requeue", wrong).await.expect(422);
    }
    node.post("/mirror/dead-letters/purge", json!({ "repo": "tools", "older_than": "1d" })).await.expect(422);
    let purged = node.post("/mirror/dead-letters/purge", json!({ "repo": "tools" })).await.expect(200);
    assert_eq!(purged["purged"], json!([]));
    let verified = node.post("/mirror/tools/verify", Value::Null).await.expect(200);
    assert_eq!(verified["verified"], true);
    assert_eq!(node.get("/mirror").await.expect(200)["mirrors"][0]["standing"], "caught-up");
}

#[expect(clippy::disallowed_methods, reason = "a test prepares a repository with the git of this machine")]
fn git(repo: &std::path::Path, arguments: &[&str]) {
    let done = std::process::Command::new("git").current_dir(repo).args(arguments).output().unwrap();
    assert!(done.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
}
