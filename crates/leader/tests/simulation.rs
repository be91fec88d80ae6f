//! Seeded histories of a few nodes, a lock server and a store, in simulated time.
//!
//! Clocks run at speeds that differ by up to 1 %; messages are lost, delayed and delivered twice; nodes crash, pause
//! and are suspended; the server restarts without its data, or fails over to a replica that lags. After every single
//! event at most one node may hold a valid term by true time, its epoch must be the one that the store accepts, and
//! epochs must rise. When the faults end, somebody
//! must lead again and go on leading.

mod server;
mod world;

use std::collections::BTreeMap;

use stargate_leader::Reason;
use world::{Flaw, World};

/// One seed to replay.
const SEED_VARIABLE: &str = "STARGATE_SIM_SEED";
/// How many seeds to run.
const SEEDS_VARIABLE: &str = "STARGATE_SIM_SEEDS";
/// How many seeds run in the suite.
const SEEDS: u64 = 300;

#[test]
fn random_histories_never_have_two_leaders_and_end_with_one() {
    let chosen = match (number(SEED_VARIABLE), number(SEEDS_VARIABLE)) {
        (Some(seed), _) => seed..=seed,
        (None, count) => 1..=count.unwrap_or(SEEDS),
    };
    let (first, last) = (*chosen.start(), *chosen.end());
    let mut terms = 0;
    let mut reasons: BTreeMap<&str, u32> = BTreeMap::new();
    for seed in chosen {
        match World::new(seed, Flaw::None).play() {
            Ok(summary) => {
                terms += summary.terms;
                for reason in summary.reasons {
                    *reasons.entry(reason.as_str()).or_default() += 1;
                }
            }
            Err(problem) => panic!(
                "seed {seed}: {problem}\n\nreplay: {SEED_VARIABLE}={seed} cargo test -p stargate-leader --test main \
                 random_histories"
            ),
        }
    }
    println!("{} seeds, {terms} terms, ended by {reasons:?}", last - first + 1);
    // A simulation in which nothing happens proves nothing.
    if last - first >= 100 {
        // The store never deposes a leader here: see `World::accepted`.
        for reason in Reason::ALL.into_iter().filter(|reason| *reason != Reason::Deposed) {
            assert!(reasons.contains_key(reason.as_str()), "no term ended by {reason}: {reasons:?}");
        }
    }
}

#[test]
fn the_simulation_finds_a_lock_that_anybody_can_delete() {
    finds(Flaw::BareDelete, "two leaders");
}

#[test]
fn the_simulation_finds_a_server_that_forgets_without_the_startup_guard() {
    finds(Flaw::NoGuard, "two leaders");
}

#[test]
fn the_simulation_finds_grants_that_no_replica_has() {
    finds(Flaw::NoWait, "two leaders");
}

#[test]
fn the_simulation_finds_clocks_that_differ_by_more_than_the_margin() {
    finds(Flaw::WildClocks, "two leaders");
}

#[test]
fn the_simulation_finds_late_epochs_that_depose_a_leader() {
    finds(Flaw::LateEpochs, "the store refuses the leader");
}

/// A check that never fails is no check: with the rule broken, the problem must be found.
fn finds(flaw: Flaw, expected: &str) {
    let found = (1..=2_000).find_map(|seed| World::new(seed, flaw).play().err());
    let problem = found.unwrap_or_else(|| panic!("no problem in 2000 seeds with {flaw:?}"));
    assert!(problem.starts_with(expected), "{problem}");
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text:?} is not a number")))
}
