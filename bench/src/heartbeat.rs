//! What one beat of a worker costs that has many jobs in flight: it is one statement, however many there are.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use stargate_queue::store::{CLAIM_MAX, ClaimRequest, KindSlots, WorkerSpec};
use stargate_queue::{SharedStore, WorkerId};

use crate::report::{Goal, heading, line, percentile};
use crate::{noop, throughput};

/// Longer than the run, so that nothing runs out meanwhile.
const LEASE: Duration = Duration::from_secs(3600);
const WARM_UP: usize = 50;
const GAP: Duration = Duration::from_millis(5);

pub(crate) async fn run(url: &str, jobs: usize, beats: usize) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let store = noop::open(&format!("sqlite:{}", folder.path().join("bench.db").display())).await?;
    heading(&format!("SQLite, {jobs} jobs in flight, {beats} beats"));
    measure(&store, jobs, beats).await?;

    let url = throughput::fresh_database(url).await?;
    let client = crate::raw::connect(&url).await?;
    let store = noop::open(&url).await?;
    heading(&format!("Postgres, {jobs} jobs in flight, {beats} beats"));
    let worker = measure(&store, jobs, beats).await?;
    // A session tells what it did up to ten seconds late.
    tokio::time::sleep(Duration::from_secs(12)).await;
    let before = throughput::cost(&client).await?;
    for _ in 0..beats {
        store.beat(worker).await?;
    }
    tokio::time::sleep(Duration::from_secs(12)).await;
    let commits = throughput::cost(&client).await?.commits - before.commits;
    // The few others are this program's own and the server's.
    line("transactions per beat", commits / beats as f64, "", &Goal::AtMost(1.1));
    Ok(())
}

async fn measure(store: &SharedStore, jobs: usize, beats: usize) -> Result<WorkerId> {
    noop::insert(store, jobs).await?;
    let worker = hold(store, jobs).await?;
    let mut times = Vec::with_capacity(beats);
    for _ in 0..WARM_UP + beats {
        // Two beats within a millisecond say the same, and SQLite does not write what is there already.
        tokio::time::sleep(GAP).await;
        let began = Instant::now();
        let beat = store.beat(worker).await?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
        ensure!(beat.known && beat.recovered.is_empty(), "a beat went wrong: {beat:?}");
    }
    times.drain(..WARM_UP);
    line("beat, p50", percentile(&mut times, 50), "ms", &Goal::AtMost(1.0));
    line("beat, p99", percentile(&mut times, 99), "ms", &Goal::None);
    Ok(worker)
}

/// A worker that holds so many jobs.
async fn hold(store: &SharedStore, jobs: usize) -> Result<WorkerId> {
    let spec = WorkerSpec {
        name: "heartbeat".into(),
        kinds: vec![noop::KIND.into()],
        queues: vec![],
        concurrency: jobs,
        lease_min: LEASE,
        lease_max: LEASE,
    };
    let worker = store.worker_register(spec).await?;
    let mut held = 0;
    while held < jobs {
        let limit = u32::try_from(jobs - held)?.min(CLAIM_MAX);
        let kinds = vec![KindSlots { kind: noop::KIND.into(), slots: limit, lease: LEASE }];
        let claim = store.claim(ClaimRequest { worker, limit, queues: vec![], kinds }).await?;
        ensure!(!claim.jobs.is_empty(), "only {held} jobs could be claimed");
        held += claim.jobs.len();
    }
    Ok(worker)
}
