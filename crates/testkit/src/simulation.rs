//! Seeded random histories: the store against a small model of the rules.
//!
//! Each seed is one history of a few hundred steps: producers, workers that crash, stall and answer too late,
//! operators, and a clock that jumps. After every step the store must say what the model says; at the end everything
//! is drained, and every accepted job must have ended once, with a legal timeline without gaps.
//!
//! What the contract leaves open (which of two due moments within [`RECOVERY_SLACK`](crate::fixture::RECOVERY_SLACK)
//! a recovery takes place at, which key is served first) the model takes over from the store after checking that it
//! was allowed.

mod model;
mod steps;
mod world;

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures::{FutureExt as _, StreamExt as _, stream};

use crate::Fixture;
use world::World;

/// Steps of one history.
pub const STEPS: u32 = 200;
/// One seed to replay.
pub const SEED_VARIABLE: &str = "STARGATE_SIM_SEED";
/// How many seeds to run.
pub const SEEDS_VARIABLE: &str = "STARGATE_SIM_SEEDS";
/// Histories at once.
const AT_ONCE: usize = 4;
/// How much of the history a failure shows.
const SHOWN: usize = 40;

/// Runs `seeds` histories, each on a fresh store; `test` is the name of the calling test, for the replay command.
pub async fn run<F, Fut>(test: &str, seeds: u64, open: F)
where
    F: Fn() -> Fut,
    Fut: Future<Output = Fixture>,
{
    let chosen = match (number(SEED_VARIABLE), number(SEEDS_VARIABLE)) {
        (Some(seed), _) => seed..=seed,
        (None, count) => 1..=count.unwrap_or(seeds),
    };
    // Histories mostly wait for the store, so a few of them share the time.
    stream::iter(chosen).for_each_concurrent(AT_ONCE, |seed| run_one(test, seed, &open)).await;
}

async fn run_one<F, Fut>(test: &str, seed: u64, open: &F)
where
    F: Fn() -> Fut,
    Fut: Future<Output = Fixture>,
{
    let fixture = open().await;
    let mut world = World::new(&fixture, seed).await;
    let history = world.history();
    let outcome = AssertUnwindSafe(play(&mut world)).catch_unwind().await;
    drop(world);
    if let Err(panic) = outcome {
        let lines = history.lines();
        let shown = lines[lines.len().saturating_sub(SHOWN)..].join("\n  ");
        panic!(
            "seed {seed} failed after {} lines: {}\n\nreplay: {SEED_VARIABLE}={seed} cargo test -p stargate-store \
             --test simulation {test}\n\nlast lines:\n  {shown}",
            lines.len(),
            text(panic.as_ref())
        );
    }
    fixture.close().await;
}

async fn play(world: &mut World<'_>) {
    for _ in 0..STEPS {
        world.step().await;
        world.compare().await;
    }
    world.drain().await;
    world.check_the_end().await;
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text:?} is not a number")))
}

fn text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
        .unwrap_or_else(|| "a panic without text".to_owned())
}
