//! Push and clone of data that cannot be compressed, through the gateway and through `git http-backend`.
//!
//! Both serve repositories of the same root with the same configuration and without hooks, so what differs is who stands
//! between the client and git.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::backend::Backend;
use super::client::Client;
use super::in_turn;
use super::node::Home;
use crate::report::{Goal, heading, line, median};
use crate::scale::peak_memory;

/// More than git unpacks into single files (`receive.unpackLimit`), so that the server keeps the pack.
const FILES: u64 = 128;
pub(crate) const BRANCH: &str = "refs/heads/main";
/// Fewer rounds are too noisy for a ratio of two to be judged.
const JUDGED_ROUNDS: usize = 3;

pub(crate) async fn run(
    client: &Client,
    stargate: &Path,
    python: &Path,
    mib: u64,
    repeats: usize,
) -> Result<()> {
    let home = Home::new(stargate)?;
    let node = home.up().await?;
    let backend = Backend::start(python, &home.root(), home.dir()).await?;
    let work = working_copy(client, "data", mib).await?;
    let bench = Bench { client, home: &home, backend: &backend, work };
    let mut pushes = Pairs::default();
    // The first round is for the caches.
    for round in 0..=repeats {
        pushes.add(round, bench.push(round).await?);
    }
    let path = home.repository("cloned").await?;
    fill(client, &bench.work, &path).await?;
    let mut clones = Pairs::default();
    for round in 0..=repeats {
        clones.add(round, bench.clone(round).await?);
    }
    heading(&format!(
        "gateway, beside git http-backend behind a CGI server, {mib} MiB, alternating, median of {repeats}"
    ));
    pushes.report("push", mib);
    clones.report("clone", mib);
    let memory = peak_memory(&node.id()?.to_string())?;
    line("peak memory of stargate up", memory, "MiB", &Goal::AtMost(100.0));
    node.stop().await
}

/// A working copy with one commit of random data, packed and not compressed: compressing is not what is measured.
pub(crate) async fn working_copy(client: &Client, name: &str, mib: u64) -> Result<PathBuf> {
    let work = client.home().join(name);
    client.git(client.home(), &["init", "--quiet", "--initial-branch=main", name]).await?;
    for (name, value) in [
        ("core.compression", "0"),
        ("pack.window", "0"),
        ("gc.auto", "0"),
        ("user.name", "a"),
        ("user.email", "a@b"),
    ] {
        client.git(&work, &["config", name, value]).await?;
    }
    for n in 0..FILES {
        let mut random = std::fs::File::open("/dev/urandom")?.take((mib << 20) / FILES);
        std::io::copy(&mut random, &mut std::fs::File::create(work.join(format!("file-{n}")))?)?;
    }
    client.git(&work, &["add", "."]).await?;
    client.git(&work, &["commit", "--quiet", "--message=data"]).await?;
    client.git(&work, &["repack", "-adq"]).await?;
    Ok(work)
}

/// Puts the commit into a repository, past the gateway.
pub(crate) async fn fill(client: &Client, work: &Path, path: &Path) -> Result<()> {
    let refs = format!("HEAD:{BRANCH}");
    let arguments = ["push".as_ref(), "--quiet".as_ref(), path.as_os_str(), refs.as_ref()];
    client.git(work, &arguments).await.map(drop)
}

struct Bench<'a> {
    client: &'a Client,
    home: &'a Home,
    backend: &'a Backend,
    work: PathBuf,
}

impl Bench<'_> {
    fn url(&self, place: usize, name: &str) -> String {
        if place == 0 { self.home.url(name) } else { self.backend.url(name) }
    }

    /// One push through each into a new repository; answers seconds: gateway, backend.
    async fn push(&self, round: usize) -> Result<[f64; 2]> {
        let mut took = [0.0; 2];
        for place in in_turn(2, round) {
            let name = format!("pushed-{round}-{place}");
            let path = self.home.repository(&name).await?;
            self.home.serve_hooks(&[])?;
            // What the one before has left to be written must not be this one's work.
            rustix::fs::sync();
            let url = self.url(place, &name);
            let refs = format!("HEAD:{BRANCH}");
            took[place] = self.client.time(&self.work, &["push", "--quiet", &url, &refs]).await?;
            std::fs::remove_dir_all(path)?;
        }
        Ok(took)
    }

    /// One clone through each of the same repository.
    async fn clone(&self, round: usize) -> Result<[f64; 2]> {
        let mut took = [0.0; 2];
        for place in in_turn(2, round) {
            rustix::fs::sync();
            let url = self.url(place, "cloned");
            let home = self.client.home();
            took[place] = self.client.time(home, &["clone", "--quiet", "--bare", &url, "clone"]).await?;
            std::fs::remove_dir_all(home.join("clone"))?;
        }
        Ok(took)
    }
}

/// Seconds of the gateway, of the backend, and the ratios of the pairs.
#[derive(Default)]
struct Pairs {
    ours: Vec<f64>,
    theirs: Vec<f64>,
    ratios: Vec<f64>,
}

impl Pairs {
    fn add(&mut self, round: usize, [ours, theirs]: [f64; 2]) {
        if round > 0 {
            self.ours.push(ours);
            self.theirs.push(theirs);
            self.ratios.push(theirs / ours);
        }
    }

    fn report(self, what: &str, mib: u64) {
        let rate = |seconds: Vec<f64>| mib as f64 / median(seconds);
        line(&format!("http-backend: {what}"), rate(self.theirs), "MiB/s", &Goal::None);
        line(&format!("gateway: {what}"), rate(self.ours), "MiB/s", &Goal::None);
        let what = format!("{what}: gateway / http-backend, median");
        let goal = goal_after(self.ratios.len());
        line(&what, median(self.ratios), "", &goal);
    }
}

/// What the gateway must reach of the backend.
fn goal_after(rounds: usize) -> Goal {
    if rounds < JUDGED_ROUNDS { Goal::None } else { Goal::AtLeast(0.9) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_round_is_not_judged_and_the_one_for_the_caches_is_none() {
        let goals = [1, 2, 5].map(|repeats| {
            let mut pairs = Pairs::default();
            (0..=repeats).for_each(|round| pairs.add(round, [1.0, 1.0]));
            goal_after(pairs.ratios.len())
        });
        assert_eq!(goals, [Goal::None, Goal::None, Goal::AtLeast(0.9)]);
    }
}
