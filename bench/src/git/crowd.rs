//! Many at once: clones of one repository, and pushers with a repository each, through one gateway.
//!
//! Everything must succeed, and everything is looked at afterwards: what the clones have and where the pushed refs are.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use futures::future::join_all;

use super::client::Client;
use super::gateway::{BRANCH, fill, working_copy};
use super::node::Home;
use crate::report::{Goal, heading, line, percentile};
use crate::scale::peak_memory;

const CLONES: usize = 50;
const PUSHERS: usize = 10;
/// Pushes that each pusher makes, one after the other.
const PUSHES: usize = 5;

pub(crate) async fn run(client: &Client, stargate: &Path, mib: u64) -> Result<()> {
    let home = Home::new(stargate)?;
    let node = home.up().await?;
    let crowd = Crowd { client, home: &home };
    let head = crowd.prepare(mib).await?;
    let began = Instant::now();
    let clones = join_all((0..CLONES).map(|n| crowd.clone(n, &head)));
    let pushes = join_all((0..PUSHERS).map(|n| crowd.push(n)));
    let (clones, pushes) = tokio::join!(clones, pushes);
    let took = began.elapsed().as_secs_f64();
    let memory = peak_memory(&node.id()?.to_string())?;
    node.stop().await?;
    heading(&format!(
        "crowd: {CLONES} clones of {mib} MiB and {PUSHERS} pushers with {PUSHES} pushes each, at once"
    ));
    let (mut cloned, failed_clones) = apart(clones);
    let (pushed, failed_pushers) = apart(pushes);
    let mut pushed: Vec<f64> = pushed.into_iter().flatten().collect();
    line("clones that failed", failed_clones, "", &Goal::AtMost(0.0));
    line("pushers that failed", failed_pushers, "", &Goal::AtMost(0.0));
    line("all of it", took, "s", &Goal::None);
    for (what, times) in [("clone", &mut cloned), ("push", &mut pushed)] {
        if !times.is_empty() {
            line(&format!("{what}, p50"), percentile(times, 50), "s", &Goal::None);
            line(&format!("{what}, longest"), percentile(times, 100), "s", &Goal::None);
        }
    }
    line("peak memory of stargate up", memory, "MiB", &Goal::AtMost(100.0));
    Ok(())
}

/// What succeeded, and how many did not, which are printed.
fn apart<T>(results: Vec<Result<T>>) -> (Vec<T>, f64) {
    let mut failed = 0.0;
    let succeeded = results.into_iter().filter_map(|result| {
        result
            .inspect_err(|error| {
                failed += 1.0;
                println!("{error:#}");
            })
            .ok()
    });
    (succeeded.collect(), failed)
}

struct Crowd<'a> {
    client: &'a Client,
    home: &'a Home,
}

impl Crowd<'_> {
    /// The repository that is cloned and those that are pushed to; answers the commit that clones must have.
    async fn prepare(&self, mib: u64) -> Result<String> {
        let work = working_copy(self.client, "crowd-data", mib).await?;
        let path = self.home.repository("crowd").await?;
        fill(self.client, &work, &path).await?;
        for n in 0..PUSHERS {
            self.home.repository(&format!("pusher-{n}")).await?;
            self.client.init_bare(&self.work(n)).await?;
        }
        self.client.git(&work, &["rev-parse", "HEAD"]).await
    }

    fn work(&self, n: usize) -> PathBuf {
        self.client.home().join(format!("pusher-{n}"))
    }

    /// Seconds that a clone took.
    async fn clone(&self, n: usize, head: &str) -> Result<f64> {
        let path = self.client.home().join(format!("crowd-{n}"));
        let (url, to) = (self.home.url("crowd"), path.to_str().context("the path of the clone is not text")?);
        let took = self.client.time(self.client.home(), &["clone", "--quiet", "--bare", &url, to]).await?;
        let has = self.client.ref_of(&path, BRANCH).await?;
        ensure!(has == head, "the clone has {has}");
        std::fs::remove_dir_all(path)?;
        Ok(took)
    }

    /// Seconds that each push of one pusher took.
    async fn push(&self, n: usize) -> Result<Vec<f64>> {
        let (work, name) = (self.work(n), format!("pusher-{n}"));
        let chain = self.client.chain(&work, PUSHES).await?;
        let mut took = Vec::with_capacity(PUSHES);
        for oid in &chain {
            let refs = format!("{oid}:{BRANCH}");
            took.push(self.client.time(&work, &["push", "--quiet", &self.home.url(&name), &refs]).await?);
        }
        let there = self.client.ref_of(&self.home.root().join(format!("{name}.git")), BRANCH).await?;
        ensure!(Some(&there) == chain.last(), "{name} is at {there}");
        Ok(took)
    }
}
