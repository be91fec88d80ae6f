//! What a claim and a listing cost when the backlog is a hundred times larger.

use std::time::{Duration, Instant};

use anyhow::Result;
use stargate_queue::store::{ClaimRequest, JobFilter, KindSlots, Outcome, Settlement, WorkerSpec};
use stargate_queue::{SharedStore, State, WorkerId};

use crate::noop;
use crate::raw;
use crate::report::{Goal, heading, line, median};
use crate::throughput::{fresh_database, settle_tables};

const SMALL: usize = 10_000;
const LEASE: Duration = Duration::from_secs(3600);
/// Of a page, in ms. The slowest of all is held against it: a goal for each would fill the table of targets with the same one.
const PAGE: Goal = Goal::AtMost(50.0);

pub(crate) async fn run(store: &str, jobs: usize) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let url = match store {
        "sqlite" => format!("sqlite:{}", folder.path().join("bench.db").display()),
        server => fresh_database(server).await?,
    };
    let store = noop::open(&url).await?;
    noop::insert(&store, SMALL).await?;
    settle(&url).await?;
    let worker = register(&store).await?;
    let mut costs = vec![];
    for limit in [1, 500] {
        costs.push((limit, claim_cost(&store, worker, limit).await?));
    }
    noop::insert(&store, jobs - SMALL).await?;
    settle(&url).await?;
    heading(&format!("{}: a claim with {SMALL} and with {jobs} queued jobs", store.facts().name));
    for (limit, small) in costs {
        let large = claim_cost(&store, worker, limit).await?;
        line(&format!("claim of {limit}, {SMALL} queued"), small, "ms", &Goal::None);
        line(&format!("claim of {limit}, {jobs} queued"), large, "ms", &Goal::None);
        line(&format!("claim of {limit}: ratio"), large / small, "", &Goal::AtMost(1.2));
    }
    let queued = listings(&store, &format!("{jobs} queued")).await?;
    noop::drain(&store, jobs)
        .await
        .map(|rate| line("drain of the large backlog", rate, "jobs/s", &Goal::None))?;
    settle(&url).await?;
    heading(&format!("{}: listings with {jobs} finished jobs", store.facts().name));
    let finished = listings(&store, &format!("{jobs} finished")).await?;
    line(&slowest_listing(jobs), queued.max(finished), "ms", &PAGE);
    Ok(())
}

/// What follows from so many rows for the server and the disk is not what is measured.
async fn settle(url: &str) -> Result<()> {
    if !url.starts_with("sqlite:") {
        settle_tables(&raw::connect(url).await?).await?;
    }
    rustix::fs::sync();
    Ok(())
}

async fn register(store: &SharedStore) -> Result<WorkerId> {
    let spec = WorkerSpec {
        name: "growth".into(),
        kinds: vec![noop::KIND.into()],
        queues: vec![],
        concurrency: 1,
        lease_min: LEASE,
        lease_max: LEASE,
    };
    Ok(store.worker_register(spec).await?)
}

/// Median time of a claim in ms; the jobs are given back untouched.
async fn claim_cost(store: &SharedStore, worker: WorkerId, limit: u32) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..40 {
        let kinds = vec![KindSlots { kind: noop::KIND.into(), slots: limit, lease: LEASE }];
        let began = Instant::now();
        let claim = store.claim(ClaimRequest { worker, limit, queues: vec![], kinds }).await?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
        let back = claim
            .jobs
            .iter()
            .map(|job| Settlement { fence: job.fence, outcome: Outcome::Released })
            .collect();
        store.settle(back).await?;
    }
    Ok(median(times))
}

/// The slowest of a few looks at one page, for every filter; answers the slowest of all.
async fn listings(store: &SharedStore, jobs: &str) -> Result<f64> {
    let mut slowest_of_all = 0.0_f64;
    for (name, filter) in filters() {
        let mut slowest = 0.0_f64;
        for _ in 0..5 {
            let began = Instant::now();
            store.jobs(filter.clone()).await?;
            slowest = slowest.max(began.elapsed().as_secs_f64() * 1e3);
        }
        line(&listing(jobs, name), slowest, "ms", &Goal::None);
        slowest_of_all = slowest_of_all.max(slowest);
    }
    Ok(slowest_of_all)
}

/// Both listings have the same filters in the same group; what there is to list tells them apart.
fn listing(jobs: &str, filter: &str) -> String {
    format!("page of 50 of {jobs}, {filter}")
}

fn slowest_listing(jobs: usize) -> String {
    format!("slowest page of 50 of {jobs} jobs")
}

fn filters() -> [(&'static str, JobFilter); 7] {
    let base = || JobFilter { limit: 50, ..JobFilter::default() };
    [
        ("all", base()),
        ("state queued", JobFilter { states: vec![State::Queued], ..base() }),
        ("state done", JobFilter { states: vec![State::Done], ..base() }),
        ("state failed", JobFilter { states: vec![State::Failed], ..base() }),
        ("kind", JobFilter { kind: Some(noop::KIND.into()), ..base() }),
        ("a kind without jobs", JobFilter { kind: Some("none".into()), ..base() }),
        ("queue", JobFilter { queue: Some("default".into()), ..base() }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listing_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<String> = ["1000000 queued", "1000000 finished"]
            .iter()
            .flat_map(|jobs| filters().map(|(filter, _)| listing(jobs, filter)))
            .chain([slowest_listing(1_000_000)])
            .collect();
        assert_eq!(names.len(), 2 * filters().len() + 1, "{names:?}");
    }
}
