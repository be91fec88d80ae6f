//! What users do meanwhile: enqueue in every way there is, push, and change what the directive reads.

mod enqueue;
pub(crate) use enqueue::mark_digits;
mod push;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::task::JoinSet;

use crate::check::Change;
use crate::site::{BRANCHES, Kind, Site};

/// Items of the source that change at once.
const CHANGED: usize = 4;

/// How long users go on after the last fault if nothing of theirs was taken until then.
const PATIENCE: Duration = Duration::from_secs(60);

/// What was not done, for people to see.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Requests for jobs that were not acknowledged, or of which nobody knows.
    pub(crate) refused: AtomicU64,
    /// Pushes that were not acknowledged.
    pub(crate) failed_pushes: AtomicU64,
    /// Pushes that were.
    pub(crate) pushes: AtomicU64,
    /// Dead letters that were requeued.
    pub(crate) requeued: AtomicU64,
}

/// Everything that goes on; ends when told.
#[derive(Debug)]
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    /// What was done so far.
    pub(crate) counts: Arc<Counts>,
    tasks: JoinSet<anyhow::Result<()>>,
}

/// What each of them needs.
#[derive(Debug, Clone)]
struct Shift {
    site: Arc<Site>,
    stop: Arc<AtomicBool>,
    counts: Arc<Counts>,
}

impl Shift {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }
}

impl Load {
    /// Begins.
    pub(crate) fn start(site: &Arc<Site>, seed: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let counts = Arc::new(Counts::default());
        let shift = Shift { site: Arc::clone(site), stop: Arc::clone(&stop), counts: Arc::clone(&counts) };
        let rng = |salt: u64| StdRng::seed_from_u64(seed ^ salt << 48);
        let mut tasks = JoinSet::new();
        tasks.spawn(enqueue::over_http(shift.clone(), "h", rng(1)));
        tasks.spawn(enqueue::over_http(shift.clone(), "i", rng(2)));
        tasks.spawn(enqueue::by_command(shift.clone(), rng(3)));
        if site.kind != Kind::Sqlite {
            tasks.spawn(enqueue::by_sql(shift.clone(), rng(4)));
        }
        for branch in BRANCHES {
            tasks.spawn(push::run(shift.clone(), branch));
        }
        tasks.spawn(change_source(shift.clone(), rng(5)));
        tasks.spawn(repair(shift));
        Self { stop, counts, tasks }
    }

    /// Waits until a push was taken: a short run of faults may have no moment in which one could be, and would show nothing.
    pub(crate) async fn until_pushed(&self) {
        let begin = Instant::now();
        while self.counts.pushes.load(Ordering::Relaxed) == 0 && begin.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Ends it. An error is one of the harness, and of nobody else.
    pub(crate) async fn stop(mut self) -> anyhow::Result<Arc<Counts>> {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended??;
        }
        Ok(self.counts)
    }
}

async fn change_source(shift: Shift, mut rng: StdRng) -> anyhow::Result<()> {
    while shift.goes_on() {
        let changed = shift.site.source.edit(|data| {
            if rng.random_bool(0.3) {
                data.push();
            }
            let count = data.ids.len() as u64;
            [(); CHANGED].map(|()| {
                let item = rng.random_range(0..count);
                data.touch(item);
                item
            })
        });
        let at = Instant::now();
        for item in changed {
            let change = Change { at, item: i64::try_from(item)? };
            shift.site.changes.lock().unwrap_or_else(PoisonError::into_inner).push(change);
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    Ok(())
}

/// What an operator does to a mirror that seems to hang, again and again and at the wrong time: none of it may take the remote back.
async fn repair(shift: Shift) -> anyhow::Result<()> {
    const RECONCILE: &[&str] = &["mirror", "reconcile", "--repo", "r"];
    const LIST: &[&str] = &["mirror", "dead-letter", "list", "--repo", "r", "--all", "--json"];
    const REQUEUE: &[&str] = &["mirror", "dead-letter", "requeue", "--repo", "r", "--again"];
    const REPAIR: &[&str] = &["mirror", "sync", "--repo", "r", "--repair"];
    while shift.goes_on() {
        operate(&shift, RECONCILE.iter().map(ToString::to_string)).await?;
        let letters = operate(&shift, LIST.iter().map(ToString::to_string)).await?;
        let letters: Vec<serde_json::Value> = match letters {
            Some(told) => serde_json::from_slice(&told).context("not a list of dead letters")?,
            None => Vec::new(),
        };
        let ids = letters.iter().filter_map(|letter| letter["dead_letter_id"].as_str().map(str::to_owned));
        let requeue = REQUEUE.iter().map(ToString::to_string).chain(ids);
        if !letters.is_empty() && operate(&shift, requeue).await?.is_some() {
            shift.counts.requeued.fetch_add(letters.len() as u64, Ordering::Relaxed);
        }
        operate(&shift, REPAIR.iter().map(ToString::to_string)).await?;
    }
    Ok(())
}

/// Gives a command and waits for a while; what it wrote, if it succeeded. It may well come at a moment at which nothing can be done,
/// but it is one.
async fn operate(shift: &Shift, words: impl Iterator<Item = String>) -> anyhow::Result<Option<Vec<u8>>> {
    const USAGE: i32 = 2;
    let (site, words) = (Arc::clone(&shift.site), words.collect::<Vec<String>>());
    let output = tokio::task::spawn_blocking(move || {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        site.program.run(&words)
    })
    .await?;
    shift.site.overhear(&output)?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.code() != Some(USAGE), "an operator's command is none: {said}");
    tokio::time::sleep(Duration::from_millis(1500)).await;
    Ok(output.status.success().then_some(output.stdout))
}
