//! Terms and their epochs, and the transactions that a leader's writes run in.

use stargate_base::Epoch;
use stargate_queue::leadership::{TERMS_MAX, TermRow};
use stargate_queue::{Error, Result};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connect::{Param, Session};
use super::enqueue::finish;
use super::error::{again, transient};
use super::{Inner, sql};
use crate::terms::{TERMS_KEPT, column, number, overtaken};

/// Begins a transaction. In a guarded one no term can begin or end until it ends; it is refused when the caller's is over.
pub(super) async fn begin(s: &mut Session<'_>, guard: Option<Epoch>) -> Result<()> {
    let Some(epoch) = guard else { return s.begin().await };
    let mut tries = 0;
    loop {
        tries += 1;
        let held = hold(s, epoch).await;
        if held.is_ok() {
            return Ok(());
        }
        let held = finish(s, held).await;
        if !again(&held, tries) {
            return held;
        }
    }
}

async fn hold(s: &mut Session<'_>, epoch: Epoch) -> Result<()> {
    const OPERATION: &str = "write as leader";
    s.begin_guarded().await?;
    let newest = s.rows(OPERATION, sql!("term_check"), &[]).await?;
    let (current, goes_on) = newest.first().map_or((0, false), |row| (row.get::<_, i64>(0), row.get(1)));
    // A lower one is no better: the store was set back, and the caller's term with it.
    if current == column(Some(epoch)) && goes_on {
        return Ok(());
    }
    Err(Error::Deposed { epoch, current: Epoch::new(u64::try_from(current).unwrap_or(0)) })
}

/// Refuses the caller if its term is over now. Only for what would do no harm if it were over right afterwards.
pub(super) async fn check(s: &mut Session<'_>, guard: Option<Epoch>) -> Result<()> {
    begin(s, guard).await?;
    s.commit().await
}

/// Runs a statement that commits by itself, or in a guarded transaction.
pub(super) async fn write(
    s: &mut Session<'_>,
    guard: Option<Epoch>,
    operation: &'static str,
    sql: &'static str,
    params: &[Param<'_>],
) -> Result<Vec<Row>> {
    if guard.is_none() {
        return s.rows(operation, sql, params).await;
    }
    let mut tries = 0;
    loop {
        tries += 1;
        let result = write_once(s, guard, operation, sql, params).await;
        if !again(&result, tries) {
            return result;
        }
    }
}

async fn write_once(
    s: &mut Session<'_>,
    guard: Option<Epoch>,
    operation: &'static str,
    sql: &'static str,
    params: &[Param<'_>],
) -> Result<Vec<Row>> {
    begin(s, guard).await?;
    let result = s.rows(operation, sql, params).await;
    finish(s, result).await
}

/// The epoch of the newest term.
pub(super) async fn epoch(inner: &Inner) -> Result<Option<Epoch>> {
    let mut s = inner.leadership.session().await?;
    s.value("tell the epoch", sql!("leader_epoch_get"), &[]).await.map(number)
}

/// Begins a term after the one that the caller saw.
pub(super) async fn term_begin(
    inner: &Inner,
    instance: &str,
    address: Option<&str>,
    expected: Option<Epoch>,
) -> Result<Epoch> {
    const OPERATION: &str = "begin a term";
    let (now, seen) = (inner.clock.for_statement(), column(expected));
    let params = [
        (&now as _, Type::TIMESTAMPTZ),
        (&instance as _, Type::TEXT),
        (&address as _, Type::TEXT),
        (&seen as _, Type::INT8),
        (&TERMS_KEPT as _, Type::INT8),
    ];
    let mut s = inner.leadership.session().await?;
    let begun: Option<i64> = s.value(OPERATION, sql!("term_begin"), &params).await?;
    match begun {
        Some(epoch) => number(epoch).ok_or_else(|| transient(OPERATION, "the epoch is not a number above 0")),
        None => Err(overtaken(expected)),
    }
}

/// Records the end of a term, once, when nobody writes in it any more.
pub(super) async fn term_end(inner: &Inner, epoch: Epoch, reason: &str) -> Result<()> {
    let (now, epoch) = (inner.clock.for_statement(), column(Some(epoch)));
    let params = [(&now as _, Type::TIMESTAMPTZ), (&epoch as _, Type::INT8), (&reason as _, Type::TEXT)];
    let mut s = inner.leadership.session().await?;
    s.rows("end the term", sql!("term_end"), &params).await.map(drop)
}

/// The newest terms, newest first.
pub(super) async fn terms(inner: &Inner, limit: u32) -> Result<Vec<TermRow>> {
    let most = i64::from(limit.min(TERMS_MAX));
    let mut s = inner.readers.session().await?;
    let rows = s.rows("list terms", sql!("term_list"), &[(&most, Type::INT8)]).await?;
    let term = |row: &Row| TermRow {
        epoch: Epoch::new(row.get::<_, i64>(0).unsigned_abs()),
        instance: row.get(1),
        address: row.get(2),
        began_at: row.get(3),
        ended_at: row.get(4),
        reason: row.get(5),
    };
    Ok(rows.iter().map(term).collect())
}
