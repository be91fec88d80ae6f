//! Draining a journal with `stargate mirror run --once`, beside `git push` in a loop.
//!
//! Every run has a new remote, and the same commits go to each. `git push` in a loop moves the ref alone; a second loop
//! moves ref and watermark together, as the mirror does, which tells the watermark's share from the mirror's own. The
//! mirror's time is that of the whole process, from its start to its end.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::client::Client;
use super::node::Home;
use super::{MIRRORED, WATERMARK, in_turn};
use crate::report::{Goal, heading, line, median};

const REMOTE: &str = "github-origin";

/// How much is drained in each round.
pub(crate) struct Sizes {
    /// One by one.
    pub(crate) entries: usize,
    /// With coalescing.
    pub(crate) backlog: usize,
}

/// Milliseconds for each entry.
#[derive(Clone, Copy, Default)]
struct Took {
    bare: f64,
    bare_both: f64,
    singly: f64,
}

pub(crate) async fn run(client: &Client, stargate: &Path, sizes: &Sizes, repeats: usize) -> Result<()> {
    // Nobody listens at its address, so no node is asked whether it leads.
    let home = Home::new(stargate)?;
    let bench = Bench { client, home: &home };
    let (mut rounds, mut coalesced) = (vec![], vec![]);
    for round in 0..repeats {
        rounds.push(bench.round(round, sizes.entries).await?);
        coalesced.push(bench.coalesced(round, sizes.backlog).await?);
    }
    let Sizes { entries, backlog } = sizes;
    heading(&format!(
        "mirror: {entries} entries one by one and {backlog} coalesced, alternating, median of {repeats}"
    ));
    let of = |what: fn(&Took) -> f64| median(rounds.iter().map(what).collect());
    line("git push in a loop", of(|took| took.bare), "ms/entry", &Goal::None);
    line("git push in a loop, with watermark", of(|took| took.bare_both), "ms/entry", &Goal::None);
    line("mirror, one by one", of(|took| took.singly), "ms/entry", &Goal::None);
    line("mirror / git push", of(|took| took.singly / took.bare), "", &Goal::AtMost(1.1));
    line("mirror / git push with watermark", of(|took| took.singly / took.bare_both), "", &Goal::None);
    line("mirror, coalesced", median(coalesced.clone()), "ms/entry", &Goal::None);
    let faster = rounds.iter().zip(coalesced).map(|(took, coalesced)| took.singly / coalesced);
    line("one by one / coalesced, per entry", median(faster.collect()), "", &Goal::AtLeast(50.0));
    Ok(())
}

struct Bench<'a> {
    client: &'a Client,
    home: &'a Home,
}

/// A repository with commits that are journaled and not mirrored.
struct Stage {
    repo: PathBuf,
    chain: Vec<String>,
}

impl Bench<'_> {
    async fn round(&self, round: usize, entries: usize) -> Result<Took> {
        let stage = self.stage(&format!("singly-{round}"), entries).await?;
        let mut took = Took::default();
        for place in in_turn(3, round) {
            rustix::fs::sync();
            match place {
                0 => took.bare = self.pushed(&stage, false).await?,
                1 => took.bare_both = self.pushed(&stage, true).await?,
                _ => took.singly = self.mirrored(&stage, &[]).await?,
            }
        }
        Ok(took)
    }

    async fn coalesced(&self, round: usize, backlog: usize) -> Result<f64> {
        let stage = self.stage(&format!("coalesced-{round}"), backlog).await?;
        rustix::fs::sync();
        self.mirrored(&stage, &["--coalesce"]).await
    }

    async fn stage(&self, name: &str, entries: usize) -> Result<Stage> {
        let repo = self.home.dir().join(format!("{name}.git"));
        self.client.init_bare(&repo).await?;
        let chain = self.client.chain(&repo, entries).await?;
        let newest = chain.last().context("no commits")?;
        self.client.git(&repo, &["update-ref", MIRRORED, newest]).await?;
        let journal = repo.join(".stargate/mirror-journal.ndjson");
        std::fs::create_dir_all(repo.join(".stargate"))?;
        std::fs::write(journal, lines(&chain))?;
        Ok(Stage { repo, chain })
    }

    /// A new remote of that name.
    async fn remote(&self, stage: &Stage, name: &str) -> Result<PathBuf> {
        let path = stage.repo.with_extension(format!("{name}.git"));
        self.client.init_bare(&path).await?;
        let url = path.to_str().context("the path of the remote is not text")?;
        self.client.git(&stage.repo, &["remote", "add", name, url]).await?;
        Ok(path)
    }

    /// `git push` for each commit; with the watermark as the mirror moves it, or without.
    async fn pushed(&self, stage: &Stage, watermark: bool) -> Result<f64> {
        let name = if watermark { "both" } else { "bare" };
        let remote = self.remote(stage, name).await?;
        let mut before = "";
        let began = Instant::now();
        for oid in &stage.chain {
            let mut arguments = vec!["push".to_owned(), "--porcelain".to_owned()];
            if watermark {
                arguments.push("--atomic".to_owned());
                arguments.push(format!("--force-with-lease={WATERMARK}:{before}"));
            }
            arguments.extend([name.to_owned(), format!("{oid}:{MIRRORED}")]);
            arguments.extend(watermark.then(|| format!("{oid}:{WATERMARK}")));
            self.client.git(&stage.repo, &arguments).await?;
            before = oid;
        }
        self.end(stage, &remote, began).await
    }

    /// The mirror, until nothing is left.
    async fn mirrored(&self, stage: &Stage, flags: &[&str]) -> Result<f64> {
        let remote = self.remote(stage, REMOTE).await?;
        let repo = stage.repo.to_str().context("the path of the repository is not text")?;
        let arguments = [&["mirror", "run", "--once", "--json", "--repo", repo], flags].concat();
        let began = Instant::now();
        let said = self.home.answer(&arguments).await?;
        let took = self.end(stage, &remote, began).await?;
        let done: Value = serde_json::from_str(&said).with_context(|| said.clone())?;
        let completed = done["processed"]["completed"].as_u64().unwrap_or(0);
        ensure!(done["end"] == "idle" && completed >= stage.chain.len() as u64, "not all mirrored: {said}");
        let watermark = self.client.ref_of(&remote, WATERMARK).await?;
        ensure!(Some(&watermark) == stage.chain.last(), "the watermark is at {watermark}");
        Ok(took)
    }

    /// Milliseconds for each entry, if the remote ended where it should.
    async fn end(&self, stage: &Stage, remote: &Path, began: Instant) -> Result<f64> {
        let took = began.elapsed().as_secs_f64() * 1e3 / stage.chain.len() as f64;
        let there = self.client.ref_of(remote, MIRRORED).await?;
        ensure!(Some(&there) == stage.chain.last(), "{} is at {there}", remote.display());
        Ok(took)
    }
}

/// The journal of a chain, as any writer may write it: without numbers and checksums.
fn lines(chain: &[String]) -> String {
    let line = |(n, oid): (usize, &String)| {
        let old = n.checked_sub(1).map(|n| &chain[n]);
        let entry = json!({
            "entry_id": format!("entry-{n}"), "timestamp": "2026-01-01T00:00:00Z", "event": "ref_update",
            "ref": MIRRORED, "old_oid": old, "new_oid": oid, "pusher": "bench", "repo": "bench",
            "source": "bench", "status": "pending",
        });
        format!("{entry}\n")
    };
    chain.iter().enumerate().map(line).collect()
}
