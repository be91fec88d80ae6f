//! A Stargate whose mirror is another Stargate.

use stargate_testkit::eventually;

use crate::PATIENCE;
use crate::client::ref_of;
use crate::site::Site;

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_is_told_so_takes_the_watermarks_of_another_mirror() {
    let hub = Site::open("[git]\ntake_watermarks = [\"r\"]\n").await;
    hub.program.answer(&["repo", "create", "other"]);
    let toml = format!(
        "[mirror]\nprotocols = [\"http\"]\nrescan_every = \"200ms\"\n[mirror.remotes.\"r\"]\nurl = \"{}\"\n",
        hub.url()
    );
    let site = Site::open(&toml).await;
    let commit = site.client.commit("first");
    site.client.must(&["push", "-q", "origin", "HEAD:refs/kv/main"]);
    eventually(PATIENCE, "the ledger and its watermark", || {
        let there = ["refs/kv/main", "refs/kv-mirror/main"].map(|name| hub.ref_of(name));
        let (mirrored, log) = (there.iter().all(|oid| oid.as_deref() == Some(&*commit)), site.node.log());
        async move { if mirrored { Ok(()) } else { Err(format!("{there:?}; log:\n{log}")) } }
    })
    .await;
    assert_eq!(site.program.run(&["mirror", "verify", "--repo", "r"]).status.code(), Some(0));

    // Elsewhere watermarks are nobody's to push, and a ledger goes only forward here too.
    let other = hub.url().replace("r.git", "other.git");
    let said = site.client.refused(&["push", &other, "HEAD:refs/kv-mirror/main"]);
    assert!(said.contains("is moved by the mirror alone") && said.contains("git.take_watermarks"), "{said}");
    assert_eq!(ref_of(&hub.program.home().join("repos/other.git"), "refs/kv-mirror/main"), None);
    let said = site.client.refused(&["push", &hub.url(), ":refs/kv/main"]);
    assert!(said.contains("may not be deleted"), "{said}");
}
