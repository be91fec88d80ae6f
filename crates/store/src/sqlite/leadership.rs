//! Terms and their epochs, and the comparison that a leader's writes are subject to.

use rusqlite::{Connection, Row};
use stargate_base::Epoch;
use stargate_queue::Error;
use stargate_queue::leadership::{TERMS_MAX, TermRow};

use super::error::Step;
use super::rows::instant;
use super::session::{Session, sql};
use crate::terms::{TERMS_KEPT, column, number, overtaken};

/// Refuses a write of a term that is not the newest, or that has ended. A lower epoch is no better than a higher one: the store was set
/// back, and the caller's term with it. Nobody else writes while the caller's transaction does, so what is found here is
/// true when it commits.
pub(super) fn judge(conn: &Connection, guard: Option<Epoch>) -> Step<()> {
    let Some(epoch) = guard else { return Ok(()) };
    let mut check = conn.prepare_cached(sql!("term_check"))?;
    let (newest, goes_on) = check.query_row([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, bool>(1)?)))?;
    let current = number(newest).unwrap_or(Epoch::new(0));
    if current == epoch && goes_on { Ok(()) } else { Err(Error::Deposed { epoch, current }.into()) }
}

/// The epoch of the newest term.
pub(super) fn current(conn: &Connection) -> Step<Option<Epoch>> {
    let found: i64 = conn.prepare_cached(sql!("leader_epoch_get"))?.query_row([], |row| row.get(0))?;
    Ok(number(found))
}

/// Begins a term after the one that the caller saw.
pub(super) fn begin(
    s: &Session<'_>,
    instance: &str,
    address: Option<&str>,
    expected: Option<Epoch>,
) -> Step<Epoch> {
    use rusqlite::OptionalExtension as _;
    let mut raise = s.conn.prepare_cached(sql!("leader_epoch_raise"))?;
    let raised: Option<i64> = raise.query_row([column(expected)], |row| row.get(0)).optional()?;
    let Some(epoch) = raised else { return Err(overtaken(expected).into()) };
    let began_at: i64 = s.conn.prepare_cached(sql!("term_before"))?.query_row([s.now], |row| row.get(0))?;
    s.conn.prepare_cached(sql!("term_supersede"))?.execute([began_at])?;
    s.conn.prepare_cached(sql!("term_begin"))?.execute((epoch, instance, address, began_at))?;
    s.conn.prepare_cached(sql!("term_purge"))?.execute([epoch - TERMS_KEPT])?;
    Ok(Epoch::new(epoch.unsigned_abs()))
}

/// Records the end of a term, once.
pub(super) fn end(s: &Session<'_>, epoch: Epoch, reason: &str) -> Step<()> {
    s.conn.prepare_cached(sql!("term_end"))?.execute((column(Some(epoch)), s.now, reason))?;
    Ok(())
}

/// The newest terms, newest first.
pub(super) fn list(conn: &Connection, limit: u32) -> Step<Vec<TermRow>> {
    let mut list = conn.prepare_cached(sql!("term_list"))?;
    let rows = list.query_map([limit.min(TERMS_MAX)], |row: &Row<'_>| {
        Ok(TermRow {
            epoch: Epoch::new(row.get::<_, i64>(0)?.unsigned_abs()),
            instance: row.get(1)?,
            address: row.get(2)?,
            began_at: instant(row.get(3)?),
            ended_at: row.get::<_, Option<i64>>(4)?.map(instant),
            reason: row.get(5)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
