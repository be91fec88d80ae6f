//! A look at the server's health: what makes claims slow or answers less than durable.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use stargate_base::clock::wall;
use stargate_queue::Result;
use stargate_queue::store::{Finding, WakeMethod};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::{Postgres, sql};
use crate::bytes::human;

/// The oldest server on which everything used here exists.
const VERSION_MIN: i32 = 140_000;
/// Clocks that differ by more confuse people who compare logs; leases do not care (INV-6).
const SKEW_WARN: Duration = Duration::from_secs(2);
/// A transaction older than this keeps dead rows in the way of every claim.
const TRANSACTION_AGE_WARN: Duration = Duration::from_secs(300);
/// Transactions begun since the oldest snapshot that is still in use.
const HORIZON_WARN: i64 = 10_000_000;
/// Dead rows are normal; so many, and more than the live ones, mean that vacuum does not keep up.
const DEAD_ROWS_WARN: i64 = 200_000;
/// A process of ours takes up to so many connections.
const CONNECTIONS_FREE_WARN: i64 = 10;

pub(super) async fn diagnose(store: &Postgres) -> Result<Vec<Finding>> {
    let now = store.inner.clock.for_statement();
    let before = wall();
    let row = {
        let mut s = store.inner.readers.session().await?;
        let rows = s.rows("tell how it is", sql!("diagnose"), &[(&now, Type::TIMESTAMPTZ)]).await?;
        rows.into_iter().next()
    };
    let after = wall();
    let Some(row) = row else { return Ok(Vec::new()) };
    let mut findings = vec![version(&row), clock(&row, before, after), notifications(store).await];
    findings.extend([durability(&row), vacuum(&row), transaction(&row), horizon(&row), connections(&row)]);
    findings.push(sizes(&row));
    Ok(findings)
}

fn version(row: &Row) -> Finding {
    let version: &str = row.get("version");
    match row.get::<_, i32>("version_num") {
        old if old < VERSION_MIN => Finding::fail("server", version, "use Postgres 14 or newer"),
        _ => Finding::ok("server", format!("Postgres {version}")),
    }
}

fn clock(row: &Row, before: Timestamp, after: Timestamp) -> Finding {
    let theirs: Timestamp = row.get("server_now");
    // The answer was made somewhere between; the middle is the best guess.
    let middle = before.as_microsecond().midpoint(after.as_microsecond());
    let skew = Duration::from_micros(theirs.as_microsecond().abs_diff(middle));
    let found = format!("{} ms between this machine and the server", skew.as_millis());
    if skew > SKEW_WARN {
        let remedy = "synchronise both with NTP; the store's clock decides, but logs will disagree";
        return Finding::warn("clock", found, remedy);
    }
    Finding::ok("clock", found)
}

async fn notifications(store: &Postgres) -> Finding {
    const NAME: &str = "wake-up";
    let polling = "LISTEN does not get through; jobs of other processes are found by polling";
    let remedy =
        "behind PgBouncer in transaction mode name a direct connection with STARGATE_LISTEN_DSN (listen_dsn)";
    if store.ear.method() != WakeMethod::Notify {
        return Finding::warn(NAME, polling, remedy);
    }
    let begun = Instant::now();
    match store.ear.test().await {
        Ok(true) => {
            let time = begun.elapsed().as_millis();
            Finding::ok(NAME, format!("LISTEN/NOTIFY gets through, {time} ms with a fresh connection"))
        }
        Ok(false) => Finding::warn(NAME, polling, remedy),
        Err(error) => {
            Finding::warn(NAME, format!("cannot be tested: {error}"), "is the server at its limit?")
        }
    }
}

fn durability(row: &Row) -> Finding {
    let setting = |name: &'static str| (name, row.get::<_, &str>(name));
    let off: Vec<&str> = [setting("fsync"), setting("full_page_writes"), setting("synchronous_commit")]
        .into_iter()
        .filter(|(_, value)| *value == "off")
        .map(|(name, _)| name)
        .collect();
    match off.as_slice() {
        [] => Finding::ok(
            "durability",
            format!("fsync on, synchronous_commit {}", setting("synchronous_commit").1),
        ),
        off => {
            let found = format!(
                "not durable: {} is off; a crash of the server can lose accepted jobs",
                off.join(", ")
            );
            Finding::warn("durability", found, format!("alter system set {} = on", off[0]))
        }
    }
}

fn vacuum(row: &Row) -> Finding {
    const NAME: &str = "vacuum";
    let (live, dead): (i64, i64) = (row.get("job_live"), row.get("job_dead"));
    let found = format!("{dead} dead and {live} live rows in stargate.job");
    if row.get::<_, &str>("autovacuum") == "off" || row.get::<_, bool>("job_autovacuum_off") {
        let found = format!("autovacuum is off; {found}");
        return Finding::warn(NAME, found, "turn it on: claims get slower with every job that was ever run");
    }
    if dead > DEAD_ROWS_WARN && dead > live {
        let remedy = "end the oldest transaction (below) and run: vacuum stargate.job";
        return Finding::warn(NAME, found, remedy);
    }
    Finding::ok(NAME, found)
}

fn transaction(row: &Row) -> Finding {
    const NAME: &str = "oldest transaction";
    let Some(pid) = row.get::<_, Option<i32>>("pid") else { return Finding::ok(NAME, "none is open") };
    let age = row.get::<_, Option<f64>>("age_s").unwrap_or(0.0).max(0.0);
    let (who, state): (Option<&str>, Option<&str>) = (row.get("who"), row.get("state"));
    let found = format!(
        "open for {age:.0} s: process {pid} ({}), {}",
        who.filter(|who| !who.is_empty()).unwrap_or("unknown"),
        state.unwrap_or("in an unknown state")
    );
    if age > TRANSACTION_AGE_WARN.as_secs_f64() {
        let remedy =
            format!("rows that died since cannot be removed; end it: select pg_terminate_backend({pid})");
        return Finding::warn(NAME, found, remedy);
    }
    Finding::ok(NAME, found)
}

fn horizon(row: &Row) -> Finding {
    const NAME: &str = "vacuum horizon";
    if let Some(prepared) = row.get::<_, Option<&str>>("prepared") {
        let found = format!("prepared transactions hold it back: {prepared}");
        return Finding::warn(NAME, found, "commit prepared or rollback prepared them");
    }
    if let Some(slots) = row.get::<_, Option<&str>>("slots") {
        let found = format!("inactive replication slots hold it or the log back: {slots}");
        return Finding::warn(
            NAME,
            found,
            "start their consumer, or: select pg_drop_replication_slot('NAME')",
        );
    }
    let age = row.get::<_, Option<i64>>("horizon").unwrap_or(0);
    let found = format!("{age} transactions behind");
    if age > HORIZON_WARN {
        return Finding::warn(NAME, found, "end the oldest transaction");
    }
    Finding::ok(NAME, found)
}

fn connections(row: &Row) -> Finding {
    let (used, most): (i64, i64) = (row.get("connections"), row.get("connections_max"));
    let found = format!("{used} of {most} in use");
    if most - used < CONNECTIONS_FREE_WARN {
        let remedy =
            "raise max_connections, or put PgBouncer in between; each of our processes takes up to 8";
        return Finding::warn("connections", found, remedy);
    }
    Finding::ok("connections", found)
}

fn sizes(row: &Row) -> Finding {
    let size = |column: &str| human(row.get::<_, i64>(column).unsigned_abs());
    let (job, history, event) = (size("job_bytes"), size("history_bytes"), size("event_bytes"));
    Finding::ok("table sizes", format!("job {job}, job_history {history}, job_event {event}"))
}
