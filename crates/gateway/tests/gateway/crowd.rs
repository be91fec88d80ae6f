//! Many clients at once.

use std::time::Instant;

use futures::future::join_all;
use stargate_gateway::Settings;

use crate::client::Client;
use crate::fixture::{Fixture, PATIENCE, TestGate};

const CLONES: usize = 50;
const PUSHERS: usize = 10;
const PUSHES: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn fifty_clones_and_ten_pushers_at_once_all_succeed() {
    // Fewer slots than clients, so that some wait for their turn; on a busy machine for long.
    let settings = Settings { fetches_max: 16, pushes_max: 4, wait_max: PATIENCE, ..Settings::default() };
    let fixture = Fixture::start_with(settings, TestGate::default()).await;
    fixture.repo("shared").await;
    let source = Client::with_commit().await;
    let head = source.work_ok(&["rev-parse", "HEAD"]).await;
    source.work_ok(&["push", "--quiet", &fixture.url("shared"), "main"]).await;
    for n in 0..PUSHERS {
        fixture.repo(&format!("own/{n}")).await;
    }
    let begin = Instant::now();
    let clones = join_all((0..CLONES).map(|_| async {
        let client = Client::new();
        client.ok(&["clone", "--quiet", &fixture.url("shared"), "work"]).await;
        assert_eq!(client.work_ok(&["rev-parse", "HEAD"]).await, head);
    }));
    let pushes = join_all((0..PUSHERS).map(|n| {
        let fixture = &fixture;
        async move {
            let client = Client::with_commit().await;
            for push in 0..PUSHES {
                client.commit(&format!("file-{push}")).await;
                client
                    .work_ok(&["push", "--quiet", &fixture.url(&format!("own/{n}")), "HEAD:refs/kv/main"])
                    .await;
            }
        }
    }));
    futures::join!(clones, pushes);
    println!("{CLONES} clones and {PUSHERS} × {PUSHES} pushes took {:?}", begin.elapsed());
    // And the one that filled the shared repository.
    assert_eq!(fixture.recorded().len(), PUSHERS * PUSHES + 1);
    fixture.nothing_left().await;
}
