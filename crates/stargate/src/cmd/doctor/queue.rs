//! The store and what is in it: reachable, migrated, same time, waking, workers alive, nothing stuck.

use std::time::Duration;

use stargate_queue::store::{Finding, Level, Store, WakeMethod};

use super::{Check, Verdict};
use crate::config::Settings;
use crate::output::short;

/// Round trips slower than this limit throughput.
const ROUND_TRIP_WARN: Duration = Duration::from_millis(50);
/// Clocks that differ by more confuse people who compare logs; leases do not care (INV-6).
const SKEW_WARN: Duration = Duration::from_secs(2);
/// A job that could run and has waited so long is stuck.
const READY_WARN: Duration = Duration::from_secs(300);

/// Every check of the store.
pub(super) async fn checks(store: &dyn Store, settings: &Settings) -> Vec<Check> {
    let mut checks = vec![reachable(store, settings).await];
    if checks.iter().all(|check| check.verdict != Verdict::Fail) {
        let found = findings(store).await;
        // The store's own word about the same thing is the better one.
        let untold = |name: &str| found.iter().all(|check| check.check != name);
        if untold("clock") {
            checks.push(clock(store).await);
        }
        if untold("wake-up") {
            checks.push(wake(store, settings));
        }
        checks.extend(found);
        checks.push(workers(store).await);
        checks.push(oldest(store).await);
        checks.push(failed(store).await);
    }
    checks
}

/// What the store finds by looking at itself.
async fn findings(store: &dyn Store) -> Vec<Check> {
    let found = match store.diagnose().await {
        Ok(found) => found,
        Err(error) => return vec![unreadable("store health", &error)],
    };
    let checks = found.into_iter().map(|Finding { name, level, detail, remedy }| {
        let verdict = match level {
            Level::Ok => Verdict::Ok,
            Level::Warn => Verdict::Warn,
            Level::Fail => Verdict::Fail,
        };
        Check { check: name, verdict, found: detail, remedy }
    });
    checks.collect()
}

fn unreadable(check: &'static str, error: &stargate_queue::Error) -> Check {
    Check::fail(check, stargate_base::chain(error), "see the first failing check")
}

async fn reachable(store: &dyn Store, settings: &Settings) -> Check {
    match store.check().await {
        Ok(health) => {
            let time = health.round_trip;
            let found = format!(
                "{}, schema {}, {:.1} ms a round trip",
                settings.store,
                health.schema,
                time.as_secs_f64() * 1e3
            );
            if time > ROUND_TRIP_WARN {
                return Check::warn(
                    "store",
                    found,
                    "run the workers nearer to the database, or look at its load",
                );
            }
            Check::ok("store", found)
        }
        Err(error) => {
            Check::fail("store", stargate_base::chain(&error), "run 'stargate migrate', or correct --store")
        }
    }
}

async fn clock(store: &dyn Store) -> Check {
    let before = stargate_base::clock::wall();
    let theirs = match store.now().await {
        Ok(now) => now,
        Err(error) => return unreadable("clock", &error),
    };
    let after = stargate_base::clock::wall();
    // The answer was made somewhere between; the middle is the best guess.
    let middle = before.as_microsecond().midpoint(after.as_microsecond());
    let skew = Duration::from_micros(theirs.as_microsecond().abs_diff(middle));
    let found = format!("{} between this machine and the store", short(skew));
    if skew > SKEW_WARN {
        return Check::warn(
            "clock",
            found,
            "synchronise both with NTP; the store's clock decides, but logs will disagree",
        );
    }
    Check::ok("clock", found)
}

fn wake(store: &dyn Store, settings: &Settings) -> Check {
    match store.facts().wake {
        WakeMethod::Notify => Check::ok("wake-up", "LISTEN/NOTIFY gets through"),
        WakeMethod::DataVersion => Check::ok("wake-up", "a watch on the file's data version"),
        WakeMethod::Poll => Check::warn(
            "wake-up",
            format!(
                "polling every {}: LISTEN does not get through; PgBouncer in transaction mode?",
                short(settings.worker.poll)
            ),
            "name a direct connection with STARGATE_LISTEN_DSN (listen_dsn), and jobs start at once",
        ),
    }
}

async fn workers(store: &dyn Store) -> Check {
    let workers = match store.workers().await {
        Ok(workers) => workers,
        Err(error) => return unreadable("workers", &error),
    };
    let alive = workers.iter().filter(|worker| worker.alive).count();
    let silent: Vec<&str> =
        workers.iter().filter(|w| !w.alive && w.holding > 0).map(|w| w.name.as_str()).collect();
    if !silent.is_empty() {
        let found = format!("{alive} alive; silent and still holding jobs: {}", silent.join(", "));
        return Check::warn(
            "workers",
            found,
            "their jobs are taken over when the lease ends, if another worker runs",
        );
    }
    match alive {
        0 => Check::warn("workers", "none alive", "start one with 'stargate up' or 'stargate worker'"),
        _ => Check::ok("workers", format!("{alive} alive")),
    }
}

async fn oldest(store: &dyn Store) -> Check {
    match store.oldest_ready().await {
        Ok(None) => Check::ok("oldest job", "nothing waits that could run"),
        Ok(Some(age)) if age > READY_WARN => Check::warn(
            "oldest job",
            format!("could have run for {}", short(age)),
            "'stargate job list --state queued' finds it, 'stargate explain JOB' tells why it waits",
        ),
        Ok(Some(age)) => Check::ok("oldest job", format!("could have run for {}", short(age))),
        Err(error) => unreadable("oldest job", &error),
    }
}

async fn failed(store: &dyn Store) -> Check {
    match store.queues().await {
        Ok(queues) => match queues.iter().map(|counts| counts.failed).sum::<u64>() {
            0 => Check::ok("failed jobs", "none"),
            failed => Check::warn(
                "failed jobs",
                format!("{failed} wait for a decision"),
                "stargate job list --state failed",
            ),
        },
        Err(error) => unreadable("failed jobs", &error),
    }
}
