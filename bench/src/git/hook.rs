//! What our hooks add to a push: the same empty commits pushed through one gateway to repositories that have none of
//! them, one, the other, and both.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::client::Client;
use super::node::Home;
use super::{MIRRORED, in_turn};
use crate::report::{Goal, heading, line, median};
use crate::throughput::fresh_database;

const WARM_UP: usize = 3;
/// Between pushes: the job that a recorded push leaves behind has run by then.
const GAP: Duration = Duration::from_millis(100);
/// What repositories are called and which hooks they have; the first is what the others are held against.
const VARIANTS: [(&str, &[&str]); 4] = [
    ("none", &[]),
    ("pre", &["pre-receive"]),
    ("post", &["post-receive"]),
    ("both", &["pre-receive", "post-receive"]),
];

/// On SQLite, and on Postgres if a server is given.
pub(crate) async fn run(client: &Client, stargate: &Path, server: Option<&str>, pushes: usize) -> Result<()> {
    on(client, &Home::new(stargate)?, "SQLite", pushes).await?;
    if let Some(server) = server {
        let home = Home::with_store(stargate, Some(fresh_database(server).await?))?;
        on(client, &home, "Postgres", pushes).await?;
    }
    Ok(())
}

async fn on(client: &Client, home: &Home, store: &str, pushes: usize) -> Result<()> {
    let node = home.up().await?;
    for (name, _) in VARIANTS {
        home.repository(name).await?;
    }
    let work = client.home().join(format!("hooked-{store}"));
    client.init_bare(&work).await?;
    let chain = client.chain(&work, WARM_UP + pushes).await?;
    let mut rounds = Vec::with_capacity(pushes);
    for (round, oid) in chain.iter().enumerate() {
        let mut took = [0.0; VARIANTS.len()];
        for place in in_turn(VARIANTS.len(), round) {
            tokio::time::sleep(GAP).await;
            home.serve_hooks(VARIANTS[place].1)?;
            let (url, refs) = (home.url(VARIANTS[place].0), format!("{oid}:{MIRRORED}"));
            took[place] = client.time(&work, &["push", "--quiet", &url, &refs]).await? * 1e3;
        }
        if round >= WARM_UP {
            rounds.push(took);
        }
    }
    node.stop().await?;
    heading(&format!(
        "hooks on {store}: a push of an empty commit with and without them, alternating, median of {pushes}"
    ));
    let of = |place: usize| median(rounds.iter().map(|took| took[place]).collect());
    let added = |place: usize| median(rounds.iter().map(|took| took[place] - took[0]).collect());
    line("push without hooks", of(0), "ms", &Goal::None);
    line("push with pre-receive and post-receive", of(3), "ms", &Goal::None);
    line("pre-receive adds, median of pairs", added(1), "ms", &Goal::None);
    line("post-receive adds, median of pairs", added(2), "ms", &Goal::AtMost(15.0));
    line("both add, median of pairs", added(3), "ms", &Goal::None);
    Ok(())
}
