//! The short forms of `cargo xtask chaos` and `cargo xtask soak`: the whole product under seeded faults, some twenty seconds on each
//! store, and what grows under a steady load.
//!
//! What a seed has found elsewhere is a test of its own, beside what was wrong: the same faults need not meet the same instructions.
//! `STARGATE_CHAOS_SEED` and `STARGATE_CHAOS_SECONDS` run another seed, or a longer one.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![expect(clippy::print_stdout, reason = "the faults and figures of the run")]

use std::time::Duration;

use stargate_chaos::{Kind, Namespaces, Options, Soak, soak};

/// What each run of the suite goes through, one seed for each site.
const SEEDS: [u64; 3] = [1, 2, 3];

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs the same test again with disks and a network that nobody else sees and that go with the last process. Whether it did.
fn ran_in_a_namespace(name: &str) -> bool {
    let Some(namespaces) = Namespaces::find() else { return false };
    let mut again = namespaces.command();
    again.arg(std::env::current_exe().unwrap()).args(["--exact", name, "--nocapture"]);
    let status = again.status().unwrap();
    assert!(status.success(), "{status}");
    true
}

async fn under_faults(kind: Kind, seed: u64) {
    let options = Options {
        binary: env!("CARGO_BIN_EXE_stargate").into(),
        seed: number("STARGATE_CHAOS_SEED").unwrap_or(seed),
        time: Duration::from_secs(number("STARGATE_CHAOS_SECONDS").unwrap_or(20)),
        faults: None,
        sites: vec![kind],
        only: Vec::new(),
    };
    let report = stargate_chaos::run(&options).await.unwrap();
    println!("{}", report.text());
    assert!(report.is_well(), "{}", report.text());
    assert!(report.faults() > 10 && report.acknowledged() > 20, "the run shows nothing:\n{}", report.text());
    // Who may have disks and a network of its own has the rest from `cargo xtask services`.
    let left_out = report.left_out();
    assert!(left_out.is_empty() || !rustix::process::geteuid().is_root(), "left out: {left_out:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn every_invariant_holds_under_faults_on_sqlite() {
    if !ran_in_a_namespace("every_invariant_holds_under_faults_on_sqlite") {
        under_faults(Kind::Sqlite, SEEDS[0]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn every_invariant_holds_under_faults_on_postgres() {
    if !ran_in_a_namespace("every_invariant_holds_under_faults_on_postgres") {
        under_faults(Kind::Postgres, SEEDS[1]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn every_invariant_holds_under_faults_with_temporal() {
    if !ran_in_a_namespace("every_invariant_holds_under_faults_with_temporal") {
        under_faults(Kind::Temporal, SEEDS[2]).await;
    }
}

/// The short form of `cargo xtask soak`.
async fn soaked(postgres: bool, pinned: bool) {
    let binary = env!("CARGO_BIN_EXE_stargate").into();
    let options = Soak { binary, time: Duration::from_secs(20), postgres, pinned, rate: None };
    assert!(soak(&options).await.unwrap(), "something grows: the figures are above");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn nothing_grows_under_a_steady_load() {
    for postgres in [false, true] {
        soaked(postgres, false).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn nothing_grows_under_a_steady_load_with_a_transaction_held_open() {
    for postgres in [false, true] {
        soaked(postgres, true).await;
    }
}
