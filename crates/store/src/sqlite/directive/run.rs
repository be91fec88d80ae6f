//! Runs and their leases.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, Row};
use serde::de::DeserializeOwned;
use stargate_directive::Standing;
use stargate_directive::item::Counts;
use stargate_directive::kv::Purpose;
use stargate_directive::run::{Beat, Begin, End, Lease, NewRun, Run, RunId};
use stargate_directive::store::{RUNS_KEPT, RUNS_PURGED_MAX};

use super::super::error::Step;
use super::super::rows::{instant, span_micros, wrong};
use super::super::session::{Session, sql};
use super::value::{self, Write};
use crate::directive_rows::{
    LeaseValue, lease_lost, outcome, replaced, run_ended, run_of_another, storable, to_json, writer_of,
};
use crate::repo_rows::{page, signed};

/// A run with what its last batch was answered.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) run: Run,
    pub(super) batch: Option<LastBatch>,
}

/// What was answered to a run's last batch.
#[derive(Debug)]
pub(super) struct LastBatch {
    pub(super) request_id: String,
    pub(super) lease: i64,
    pub(super) counts: Counts,
    pub(super) cursor: Option<i64>,
}

pub(super) fn begin(s: &Session<'_>, new: &NewRun) -> Step<Begin> {
    let known = get(s.conn, &new.id)?.map(|found| found.run);
    if let Some(run) = &known {
        check_known(run, new)?;
    }
    let lease = value::last(s, &new.lease)?;
    let alive = lease.as_ref().and_then(|last| last.alive);
    if let Some(last) = lease.filter(|last| last.alive.is_some()) {
        let holder = LeaseValue::read(&new.lease, last.value.as_deref().unwrap_or_default())?;
        if holder.run != new.id.0 {
            let until = instant(last.expires_at.unwrap_or(i64::MAX));
            return Ok(Begin::Held { run: RunId(holder.run), worker: holder.worker, until });
        }
    }
    let mut supersede = s.conn.prepare_cached(sql!("directive_run_supersede"))?;
    supersede.execute((s.now, new.lease.as_str(), &new.id.0, replaced(new)))?;
    let version = take_lease(s, new, alive)?;
    enter(s, new, known.is_some())?;
    let Some(found) = get(s.conn, &new.id)? else { return Err(lease_lost(&new.id).into()) };
    let lease = Lease { run: new.id.clone(), key: new.lease.clone(), version: version.unsigned_abs() };
    Ok(Begin::Begun { lease, run: Box::new(found.run) })
}

fn check_known(run: &Run, new: &NewRun) -> Step<()> {
    if (&run.directive, &run.tenant, &run.project) != (&new.directive, &new.tenant, &new.project) {
        return Err(run_of_another(&run.id, &run.directive).into());
    }
    match run.outcome {
        Some(outcome) => Err(run_ended(&run.id, outcome.as_str()).into()),
        None => Ok(()),
    }
}

fn take_lease(s: &Session<'_>, new: &NewRun, alive: Option<i64>) -> Step<i64> {
    let (value, writer) = (LeaseValue::of(new)?, writer_of(&new.directive));
    let write = Write {
        key: &new.lease,
        value: Some(&value),
        expected: alive,
        request_id: &new.id.0,
        writer: &writer,
        purpose: Purpose::Lock,
        spec_ref: None,
        ttl: Some(new.lease_for),
    };
    value::store(s, &write)?.ok_or_else(|| lease_lost(&new.id).into())
}

fn enter(s: &Session<'_>, new: &NewRun, is_known: bool) -> Step<()> {
    let (id, lease) = (&new.id.0, new.lease.as_str());
    if is_known {
        s.conn.prepare_cached(sql!("directive_run_take_up"))?.execute((s.now, id, &new.worker, lease))?;
        return Ok(());
    }
    let beat = to_json(&Beat::default())?;
    s.conn.prepare_cached(sql!("directive_run_insert"))?.execute((
        s.now,
        id,
        &new.directive,
        &new.tenant,
        &new.project,
        &new.engine,
        &new.workflow_id,
        &new.worker,
        lease,
        beat.get(),
    ))?;
    Ok(())
}

pub(super) fn beat(s: &Session<'_>, lease: &Lease, lease_for: Duration, beat: &Beat) -> Step<Standing> {
    let values = (s.now, lease.key.as_str(), signed(lease.version), span_micros(lease_for));
    if !s.conn.prepare_cached(sql!("directive_lease_beat"))?.exists(values)? {
        return Ok(Standing::Lost);
    }
    let beat = to_json(beat)?;
    let mut keep = s.conn.prepare_cached(sql!("directive_run_beat"))?;
    let asked: Option<bool> =
        keep.query_row((s.now, &lease.run.0, beat.get()), |row| row.get(0)).optional()?;
    Ok(match asked {
        None => Standing::Lost,
        Some(true) => Standing::CancelAsked,
        Some(false) => Standing::Held,
    })
}

/// A lease whose time is over is still the run's while nobody took it.
pub(super) fn end(s: &Session<'_>, lease: &Lease, end: &End) -> Step<bool> {
    let last = value::last(s, &lease.key)?;
    let Some(last) = last.filter(|last| last.is_at(lease.version) && last.value.is_some()) else {
        return Ok(false);
    };
    let mut note = s.conn.prepare_cached(sql!("directive_run_end"))?;
    let error = end.error.as_deref().map(storable);
    if !note.exists((s.now, &lease.run.0, end.outcome.as_str(), error))? {
        return Ok(false);
    }
    let write = Write {
        key: &lease.key,
        value: None,
        expected: last.alive,
        request_id: &format!("{}/end", lease.run),
        writer: last.writer(),
        purpose: Purpose::Lock,
        spec_ref: None,
        ttl: None,
    };
    value::store(s, &write)?;
    purge(s)?;
    Ok(true)
}

/// Removes what is older than anybody asks for.
fn purge(s: &Session<'_>) -> Step<()> {
    let until = s.now - span_micros(RUNS_KEPT);
    for text in [sql!("directive_run_purge"), sql!("directive_quarantine_purge"), sql!("kv_override_purge")] {
        s.conn.prepare_cached(text)?.execute((until, RUNS_PURGED_MAX))?;
    }
    Ok(())
}

pub(super) fn cancel(s: &Session<'_>, run: &RunId) -> Step<bool> {
    Ok(s.conn.prepare_cached(sql!("directive_run_cancel"))?.exists([&run.0])?)
}

pub(super) fn get(conn: &Connection, id: &RunId) -> Step<Option<Found>> {
    let mut get = conn.prepare_cached(sql!("directive_run_get"))?;
    let found = get.query_row([&id.0], |row| Ok(Found { run: read_run(row)?, batch: read_batch(row)? }));
    Ok(found.optional()?)
}

pub(super) fn list(
    conn: &Connection,
    directive: Option<&str>,
    before: Option<&RunId>,
    limit: u32,
) -> Step<Vec<Run>> {
    let before = before.map(|run| run.0.as_str());
    let rows = match directive {
        None => {
            let mut list = conn.prepare_cached(sql!("directive_run_page"))?;
            let rows = list.query_map((before, page(limit)), read_run)?;
            rows.collect::<rusqlite::Result<_>>()
        }
        Some(directive) => {
            let mut list = conn.prepare_cached(sql!("directive_run_page_directive"))?;
            let rows = list.query_map((before, page(limit), directive), read_run)?;
            rows.collect::<rusqlite::Result<_>>()
        }
    };
    Ok(rows?)
}

fn read_run(row: &Row<'_>) -> rusqlite::Result<Run> {
    let ended: Option<String> = row.get(6)?;
    Ok(Run {
        id: RunId(row.get(0)?),
        directive: row.get(1)?,
        tenant: row.get(2)?,
        project: row.get(3)?,
        engine: row.get(4)?,
        workflow_id: row.get(5)?,
        outcome: ended.as_deref().map(outcome),
        pages: number(row, 7)?,
        counts: read_counts(row, 8)?,
        cursor: row.get::<_, Option<String>>(12)?.map(|text| parsed(12, &text)).transpose()?,
        beat: parsed(13, row.get_ref(13)?.as_str()?)?,
        cancel_asked: row.get(14)?,
        error: row.get(15)?,
        started_at: instant(row.get(16)?),
        updated_at: instant(row.get(17)?),
        ended_at: row.get::<_, Option<i64>>(18)?.map(instant),
        source_ended: row.get(19)?,
    })
}

fn read_batch(row: &Row<'_>) -> rusqlite::Result<Option<LastBatch>> {
    let (request, lease): (Option<String>, Option<i64>) = (row.get(20)?, row.get(21)?);
    let Some((request_id, lease)) = request.zip(lease) else { return Ok(None) };
    Ok(Some(LastBatch { request_id, lease, counts: read_counts(row, 22)?, cursor: row.get(26)? }))
}

/// Four counts whose columns begin at `from`.
fn read_counts(row: &Row<'_>, from: usize) -> rusqlite::Result<Counts> {
    Ok(Counts {
        created: number(row, from)?,
        updated: number(row, from + 1)?,
        unchanged: number(row, from + 2)?,
        failed: number(row, from + 3)?,
    })
}

fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(i64::unsigned_abs)
}

fn parsed<T: DeserializeOwned>(column: usize, text: &str) -> rusqlite::Result<T> {
    serde_json::from_str(text).map_err(|error| wrong(column, error))
}
