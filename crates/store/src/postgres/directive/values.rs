//! Small values with a version.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::value::RawValue;
use stargate_base::Epoch;
use stargate_directive::kv::Purpose;
use stargate_directive::{Entry, Key, Override, Put, PutAnswer};
use stargate_queue::Result;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::super::connect::{Ask, Session};
use super::super::enqueue::finish;
use super::super::error::{COLLISIONS_MAX, again, fatal, transient};
use super::super::rows::{json, micros};
use super::super::{Inner, sql};
use super::{answer, begin};
use crate::directive_rows::{check_put, expected_column, prefix_end, purpose, purpose_word, request_hash};
use crate::repo_rows::page;

const WRITE: &str = "keep the value";

/// The last request of a key, which stays so until the transaction ends.
const LOCK: &str = concat!(sql!("kv_last"), "for update");

/// What is known of a key.
#[derive(Debug, Default)]
pub(super) struct Last {
    /// 0 if it was never written.
    pub(super) version: i64,
    request_id: String,
    request_hash: String,
    /// Also of a value whose time is over.
    pub(super) value: Option<String>,
    pub(super) expires_at: Option<Timestamp>,
    /// The version of what is there, if something is.
    pub(super) alive: Option<i64>,
    pub(super) writer: String,
}

impl Last {
    /// From what [`lock`] asked.
    pub(super) fn read(rows: &[Row]) -> Self {
        let Some(row) = rows.first() else { return Self::default() };
        Self {
            version: row.get(0),
            request_id: row.get(1),
            request_hash: row.get(2),
            value: row.get(3),
            expires_at: row.get(4),
            alive: row.get(5),
            writer: row.get(6),
        }
    }
}

/// Asks what is known of a key, and keeps others from writing it.
pub(super) fn lock<'a>(now: &'a Option<Timestamp>, key: &'a &'a str) -> Ask<'a> {
    Ask::new(LOCK, [(now as _, Type::TIMESTAMPTZ), (key as _, Type::TEXT)])
}

/// A write that compares only with what was found before it.
#[derive(Debug)]
pub(super) struct Write<'w> {
    key: &'w str,
    value: Option<&'w str>,
    expected: Option<i64>,
    request_id: &'w str,
    request_hash: String,
    writer: &'w str,
    purpose: &'static str,
    spec_ref: Option<&'w str>,
    ttl: Option<i64>,
}

impl<'w> Write<'w> {
    /// A write of a run's.
    pub(super) fn new(
        key: &'w Key,
        value: Option<&'w RawValue>,
        purpose: Purpose,
        request_id: &'w str,
        writer: &'w str,
    ) -> Self {
        let request_hash = request_hash(value, purpose, None, None);
        let (key, value, purpose) = (key.as_str(), value.map(RawValue::get), purpose_word(purpose));
        Self {
            key,
            value,
            expected: None,
            request_id,
            request_hash,
            writer,
            purpose,
            spec_ref: None,
            ttl: None,
        }
    }

    /// The same for so long.
    pub(super) fn lasting(mut self, ttl: Duration) -> Self {
        self.ttl = Some(micros(ttl));
        self
    }

    /// The same if this is there.
    pub(super) fn expecting(mut self, alive: Option<i64>) -> Self {
        self.expected = alive;
        self
    }

    fn of(put: &'w Put) -> Self {
        let value = put.value.as_deref();
        Self {
            spec_ref: put.spec_ref.as_deref(),
            ttl: put.ttl.map(micros),
            request_hash: request_hash(value, put.purpose, put.spec_ref.as_deref(), put.ttl),
            ..Self::new(&put.key, value, put.purpose, &put.request_id, &put.writer)
        }
        .expecting(expected_column(put.expected))
    }

    pub(super) fn ask<'a>(&'a self, now: &'a Option<Timestamp>) -> Ask<'a> {
        let params = [
            (now as _, Type::TIMESTAMPTZ),
            (&self.key as _, Type::TEXT),
            (&self.value as _, Type::TEXT),
            (&self.expected as _, Type::INT8),
            (&self.request_id as _, Type::TEXT),
            (&self.request_hash as _, Type::TEXT),
            (&self.writer as _, Type::TEXT),
            (&self.purpose as _, Type::TEXT),
            (&self.spec_ref as _, Type::TEXT),
            (&self.ttl as _, Type::INT8),
        ];
        Ask::new(sql!("kv_put"), params)
    }
}

pub(super) async fn get(inner: &Inner, key: &Key) -> Result<Option<Entry>> {
    find(inner, &mut inner.readers.session().await?, key).await
}

async fn find(inner: &Inner, s: &mut Session<'_>, key: &Key) -> Result<Option<Entry>> {
    let (now, key) = (inner.clock.for_statement(), key.as_str());
    let params = [(&now as _, Type::TIMESTAMPTZ), (&key as _, Type::TEXT)];
    s.rows("read the value", sql!("kv_get"), &params).await?.first().map(read).transpose()
}

pub(super) async fn put(inner: &Inner, guard: Option<Epoch>, put: &Put) -> Result<PutAnswer> {
    check_put(put)?;
    let (mut tries, mut rounds) = (0, 0);
    loop {
        tries += 1;
        let mut s = inner.directives.session().await?;
        let result = put_within(inner, &mut s, guard, put).await;
        match finish(&mut s, result).await {
            Ok(Some(answer)) => return Ok(answer),
            // Somebody wrote a key that was not there a moment ago.
            Ok(None) if rounds < COLLISIONS_MAX => rounds += 1,
            Ok(None) => return Err(transient(WRITE, "others write it all the time")),
            failed if again(&failed, tries) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Nothing if the value came to be while it was written.
async fn put_within(
    inner: &Inner,
    s: &mut Session<'_>,
    guard: Option<Epoch>,
    put: &Put,
) -> Result<Option<PutAnswer>> {
    let (now, key) = (inner.clock.for_statement(), put.key.as_str());
    let last = Last::read(answer(&begin(s, guard, WRITE, vec![lock(&now, &key)]).await?, 0));
    let write = Write::of(put);
    if last.request_id == put.request_id && last.request_hash == write.request_hash {
        return Ok(Some(PutAnswer::Stored { version: last.version.unsigned_abs() }));
    }
    if last.request_id == put.request_id || last.alive != write.expected {
        return Ok(Some(PutAnswer::Conflict { current: find(inner, s, &put.key).await? }));
    }
    let written = s.rows_together(WRITE, &[write.ask(&now)]).await?;
    let Some(version) = answer(&written, 0).first().map(|row| row.get::<_, i64>(0)) else { return Ok(None) };
    if write.spec_ref.is_some() {
        let before = last.alive.and(last.value);
        let params = [
            (&now as _, Type::TIMESTAMPTZ),
            (&key as _, Type::TEXT),
            (&write.writer as _, Type::TEXT),
            (&write.spec_ref as _, Type::TEXT),
            (&before as _, Type::TEXT),
            (&write.value as _, Type::TEXT),
            (&version as _, Type::INT8),
        ];
        s.rows(WRITE, sql!("kv_override_insert"), &params).await?;
    }
    Ok(Some(PutAnswer::Stored { version: version.unsigned_abs() }))
}

pub(super) async fn list(inner: &Inner, prefix: &str, after: Option<&str>, limit: u32) -> Result<Vec<Entry>> {
    let (now, end, after, limit) =
        (inner.clock.for_statement(), prefix_end(prefix), after.unwrap_or_default(), page(limit));
    let params = [
        (&now as _, Type::TIMESTAMPTZ),
        (&prefix as _, Type::TEXT),
        (&end as _, Type::TEXT),
        (&after as _, Type::TEXT),
        (&limit as _, Type::INT8),
    ];
    let mut s = inner.readers.session().await?;
    s.rows("list values", sql!("kv_list"), &params).await?.iter().map(read).collect()
}

pub(super) async fn overrides(inner: &Inner, prefix: &str, limit: u32) -> Result<Vec<Override>> {
    let (end, limit) = (prefix_end(prefix), page(limit));
    let params = [(&prefix as _, Type::TEXT), (&end as _, Type::TEXT), (&limit as _, Type::INT8)];
    let mut s = inner.readers.session().await?;
    let rows = s.rows("list writes by hand", sql!("kv_override_list"), &params).await?;
    let read = |row: &Row| {
        Ok(Override {
            key: read_key(row)?,
            writer: row.get(1),
            spec_ref: row.get(2),
            before: row.get::<_, Option<String>>(3).map(json),
            after: row.get::<_, Option<String>>(4).map(json),
            version: row.get::<_, i64>(5).unsigned_abs(),
            at: row.get(6),
        })
    };
    rows.iter().map(read).collect()
}

fn read(row: &Row) -> Result<Entry> {
    Ok(Entry {
        key: read_key(row)?,
        value: json(row.get(1)),
        version: row.get::<_, i64>(2).unsigned_abs(),
        request_id: row.get(3),
        last_writer: row.get(4),
        purpose: purpose(row.get(5)),
        spec_ref: row.get(6),
        updated_at: row.get(7),
    })
}

fn read_key(row: &Row) -> Result<Key> {
    let hint = "a row of stargate.kv is damaged";
    Key::try_from(row.get::<_, String>(0)).map_err(|error| fatal("read a value", hint, error))
}
