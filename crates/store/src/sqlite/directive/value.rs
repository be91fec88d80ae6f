//! Small values with a version.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, Row};
use serde_json::value::RawValue;
use stargate_directive::kv::{Entry, Expected, Key, Override, Purpose, Put, PutAnswer};
use stargate_queue::job::Json;

use super::super::error::Step;
use super::super::rows::{instant, json, span_micros, wrong};
use super::super::session::{Session, sql};
use crate::directive_rows::{expected_column, prefix_end, purpose, purpose_word, request_hash};
use crate::repo_rows::page;

/// The last request of a key, and what is there.
#[derive(Debug)]
pub(super) struct Last {
    request_id: String,
    request_hash: String,
    writer: String,
    version: i64,
    /// Also of a value whose time is over.
    pub(super) value: Option<String>,
    pub(super) expires_at: Option<i64>,
    /// The version of what is there, if something is.
    pub(super) alive: Option<i64>,
}

impl Last {
    /// Whether this was the last write.
    pub(super) fn is_at(&self, version: u64) -> bool {
        self.version.unsigned_abs() == version
    }

    /// Who wrote it.
    pub(super) fn writer(&self) -> &str {
        &self.writer
    }
}

/// A write whose comparison is somebody else's business.
#[derive(Debug)]
pub(super) struct Write<'w> {
    pub(super) key: &'w Key,
    pub(super) value: Option<&'w RawValue>,
    pub(super) expected: Option<i64>,
    pub(super) request_id: &'w str,
    pub(super) writer: &'w str,
    pub(super) purpose: Purpose,
    pub(super) spec_ref: Option<&'w str>,
    pub(super) ttl: Option<Duration>,
}

pub(super) fn get(conn: &Connection, now: i64, key: &Key) -> Step<Option<Entry>> {
    let mut get = conn.prepare_cached(sql!("kv_get"))?;
    Ok(get.query_row((now, key.as_str()), read_entry).optional()?)
}

pub(super) fn put(s: &Session<'_>, put: &Put) -> Step<PutAnswer> {
    let last = last(s, &put.key)?;
    let hash = request_hash(put.value.as_deref(), put.purpose, put.spec_ref.as_deref(), put.ttl);
    if let Some(last) = last.as_ref().filter(|last| last.request_id == put.request_id) {
        if last.request_hash == hash {
            return Ok(PutAnswer::Stored { version: last.version.unsigned_abs() });
        }
        return Ok(PutAnswer::Conflict { current: get(s.conn, s.now, &put.key)? });
    }
    let write = Write {
        key: &put.key,
        value: put.value.as_deref(),
        expected: expected_column(put.expected),
        request_id: &put.request_id,
        writer: &put.writer,
        purpose: put.purpose,
        spec_ref: put.spec_ref.as_deref(),
        ttl: put.ttl,
    };
    let Some(version) = store(s, &write)? else {
        return Ok(PutAnswer::Conflict { current: get(s.conn, s.now, &put.key)? });
    };
    if let Some(spec_ref) = &put.spec_ref {
        let before = last.filter(|last| last.alive.is_some()).and_then(|last| last.value);
        let after = put.value.as_deref().map(RawValue::get);
        let values = (s.now, put.key.as_str(), &put.writer, spec_ref, before, after, version);
        s.conn.prepare_cached(sql!("kv_override_insert"))?.execute(values)?;
    }
    Ok(PutAnswer::Stored { version: version.unsigned_abs() })
}

/// Compares and writes; the version, or nothing if something else is there.
pub(super) fn store(s: &Session<'_>, write: &Write<'_>) -> Step<Option<i64>> {
    let hash = request_hash(write.value, write.purpose, write.spec_ref, write.ttl);
    let values = (
        s.now,
        write.key.as_str(),
        write.value.map(RawValue::get),
        write.expected,
        write.request_id,
        hash,
        write.writer,
        purpose_word(write.purpose),
        write.spec_ref,
        write.ttl.map(span_micros),
    );
    Ok(s.conn.prepare_cached(sql!("kv_put"))?.query_row(values, |row| row.get(0)).optional()?)
}

/// The last request of a key.
pub(super) fn last(s: &Session<'_>, key: &Key) -> Step<Option<Last>> {
    let mut get = s.conn.prepare_cached(sql!("kv_last"))?;
    let found = get.query_row((s.now, key.as_str()), |row| {
        Ok(Last {
            version: row.get(0)?,
            request_id: row.get(1)?,
            request_hash: row.get(2)?,
            value: row.get(3)?,
            expires_at: row.get(4)?,
            alive: row.get(5)?,
            writer: row.get(6)?,
        })
    });
    Ok(found.optional()?)
}

pub(super) fn list(conn: &Connection, now: i64, prefix: &str, after: &str, limit: u32) -> Step<Vec<Entry>> {
    let mut list = conn.prepare_cached(sql!("kv_list"))?;
    let rows = list.query_map((now, prefix, prefix_end(prefix), after, page(limit)), read_entry)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn overrides(conn: &Connection, prefix: &str, limit: u32) -> Step<Vec<Override>> {
    let mut list = conn.prepare_cached(sql!("kv_override_list"))?;
    let rows = list.query_map((prefix, prefix_end(prefix), page(limit)), |row| {
        Ok(Override {
            key: read_key(row, 0)?,
            writer: row.get(1)?,
            spec_ref: row.get(2)?,
            before: json_or_null(row, 3)?,
            after: json_or_null(row, 4)?,
            version: row.get::<_, i64>(5)?.unsigned_abs(),
            at: instant(row.get(6)?),
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn read_entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    Ok(Entry {
        key: read_key(row, 0)?,
        value: json(row, 1)?,
        version: row.get::<_, i64>(2)?.unsigned_abs(),
        request_id: row.get(3)?,
        last_writer: row.get(4)?,
        purpose: purpose(row.get_ref(5)?.as_str()?),
        spec_ref: row.get(6)?,
        updated_at: instant(row.get(7)?),
    })
}

fn read_key(row: &Row<'_>, column: usize) -> rusqlite::Result<Key> {
    let text: String = row.get(column)?;
    Key::try_from(text).map_err(|error| wrong(column, serde::de::Error::custom(error)))
}

fn json_or_null(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Json>> {
    let text: Option<String> = row.get(column)?;
    text.map(RawValue::from_string).transpose().map_err(|error| wrong(column, error))
}

/// The version that an expectation names.
pub(super) fn is_expected(expected: Expected, found: Option<i64>) -> bool {
    expected_column(expected) == found
}
