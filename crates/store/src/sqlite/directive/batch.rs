//! Writes a batch: all of it in one command of the writer, or nothing.

use stargate_directive::item::{Advance, Batch, Counts, Item, Persisted, Reject, Rows};
use stargate_directive::kv::{Key, Keys, Purpose};
use stargate_directive::run::Run;
use stargate_directive::source::Owner;

use super::super::error::Step;
use super::super::session::{Session, sql};
use super::super::sink::{self, Change, OWN_REGISTRY};
use super::value::{self, Write};
use super::{kept, run};
use crate::directive_rows::{
    counts_differ, cursor_moved, entities, lease_lost, outbox_key, payload, to_json, writer_of,
};
use crate::repo_rows::signed;

pub(super) fn persist(s: &Session<'_>, batch: &Batch) -> Step<Persisted> {
    let found = run::get(s.conn, &batch.lease.run)?.filter(|found| found.run.outcome.is_none());
    let held = value::last(s, &batch.lease.key)?.and_then(|last| last.alive);
    let Some(found) = found.filter(|_| held == Some(signed(batch.lease.version))) else {
        return Err(lease_lost(&batch.lease.run).into());
    };
    let cancel_asked = found.run.cancel_asked;
    if let Some(last) =
        found.batch.filter(|last| last.request_id == batch.request_id && Some(last.lease) == held)
    {
        let cursor_version = last.cursor.map(i64::unsigned_abs);
        return Ok(Persisted { counts: last.counts, cursor_version, first: false, cancel_asked });
    }
    let keys = Keys::of(&found.run.tenant, &found.run.project, &found.run.directive)?;
    let cursor = advance(s, batch, &keys, &found.run)?;
    let counts = write_items(s, batch, &found.run)?;
    note(s, batch, counts, cursor)?;
    Ok(Persisted { counts, cursor_version: cursor.map(i64::unsigned_abs), first: true, cancel_asked })
}

/// Moves the cursor or notes how far beyond it the run is; the cursor's version now.
fn advance(s: &Session<'_>, batch: &Batch, keys: &Keys, run: &Run) -> Step<Option<i64>> {
    let found = value::last(s, &keys.cursor)?.and_then(|last| last.alive);
    match &batch.advance {
        Advance::Still => Ok(found),
        Advance::Part(partial) => {
            let value = to_json(partial)?;
            let expected = value::last(s, &keys.partial)?.and_then(|last| last.alive);
            put(s, batch, run, &keys.partial, Some(&value), expected, Purpose::Checkpoint)?;
            Ok(found)
        }
        Advance::Page { expected, cursor, .. } => {
            if !value::is_expected(*expected, found) {
                return Err(cursor_moved(&keys.cursor, *expected, found).into());
            }
            let value = to_json(cursor)?;
            let version = put(s, batch, run, &keys.cursor, Some(&value), found, Purpose::Cursor)?;
            let partial = value::last(s, &keys.partial)?.and_then(|last| last.alive);
            if partial.is_some() {
                put(s, batch, run, &keys.partial, None, partial, Purpose::Checkpoint)?;
            }
            Ok(version)
        }
    }
}

fn put(
    s: &Session<'_>,
    batch: &Batch,
    run: &Run,
    key: &Key,
    value: Option<&serde_json::value::RawValue>,
    expected: Option<i64>,
    purpose: Purpose,
) -> Step<Option<i64>> {
    let writer = writer_of(&run.directive);
    let request_id = &batch.request_id;
    let write =
        Write { key, value, expected, request_id, writer: &writer, purpose, spec_ref: None, ttl: None };
    value::store(s, &write)
}

/// Rows, announcements and what is kept aside; what became of each record.
fn write_items(s: &Session<'_>, batch: &Batch, run: &Run) -> Step<Counts> {
    let owner =
        Owner { tenant: run.tenant.clone(), project: run.project.clone(), directive: run.directive.clone() };
    for &id in &batch.resolves {
        kept::resolve(s, id)?;
    }
    let mut counts = match &batch.rows {
        Rows::Elsewhere { counts, .. } => *counts,
        Rows::Here { table, items, topic } => {
            sink::ensure(s.conn, OWN_REGISTRY, table, s.now)?;
            let changes = sink::upsert(s.conn, &owner, table, items, s.now)?;
            if let Some(topic) = topic {
                announce(s, topic, &owner, items, &changes)?;
            }
            let counts = sink::counts(items.len(), &changes);
            check_sum(items.len(), counts)?;
            counts
        }
    };
    kept::resolve_entities(s, &owner, &entities(&batch.rows))?;
    let mut known = 0;
    for reject in &batch.rejects {
        known += u64::from(keep(s, batch, &owner, reject)?);
    }
    counts.failed += batch.rejects.len() as u64;
    if batch.replayed {
        counts.unchanged = 0;
        counts.failed -= known;
    }
    Ok(counts)
}

/// Whether the reject was known.
fn keep(s: &Session<'_>, batch: &Batch, owner: &Owner, reject: &Reject) -> Step<bool> {
    kept::put(s, owner, &batch.lease.run, reject, !batch.replayed)
}

fn check_sum(items: usize, counts: Counts) -> Step<()> {
    let given = items as u64;
    if counts.total() == given { Ok(()) } else { Err(counts_differ(given, counts.total()).into()) }
}

fn announce(s: &Session<'_>, topic: &str, owner: &Owner, items: &[Item], changes: &[Change]) -> Step<()> {
    let mut insert = s.conn.prepare_cached(sql!("directive_outbox_insert"))?;
    for change in changes {
        let Some(item) = items.get(change.index) else { continue };
        let payload = payload(owner, item, change.is_new, change.version)?;
        insert.execute((s.now, topic, outbox_key(owner, &item.entity_id), payload))?;
    }
    Ok(())
}

/// Adds the batch to its run, with what is answered.
fn note(s: &Session<'_>, batch: &Batch, counts: Counts, cursor_version: Option<i64>) -> Step<()> {
    let (pages, cursor, is_last) = match &batch.advance {
        Advance::Page { cursor, pages, is_last, .. } => (*pages, Some(to_json(cursor)?), *is_last),
        Advance::Part(_) | Advance::Still => (0, None, false),
    };
    s.conn.prepare_cached(sql!("directive_run_batch"))?.execute((
        s.now,
        &batch.lease.run.0,
        pages,
        signed(counts.created),
        signed(counts.updated),
        signed(counts.unchanged),
        signed(counts.failed),
        cursor.as_deref().map(serde_json::value::RawValue::get),
        &batch.request_id,
        signed(batch.lease.version),
        cursor_version,
        is_last,
    ))?;
    Ok(())
}
