//! What is written with a batch's rows: announcements, how far it has come, and the run's counts.

use jiff::Timestamp;
use stargate_directive::kv::{Keys, Purpose};
use stargate_directive::source::Owner;
use stargate_directive::{Advance, Batch, Counts, Rows};
use stargate_queue::Result;
use stargate_queue::job::Json;
use tokio_postgres::types::Type;

use super::super::connect::Ask;
use super::super::sink_rows::Change;
use super::super::sql;
use super::values::{Last, Write};
use crate::directive_rows::{outbox_key, payload, to_json};
use crate::repo_rows::signed;

/// Announcements of changes.
#[derive(Debug)]
pub(super) struct Announced<'b> {
    topic: &'b str,
    keys: Vec<String>,
    payloads: Vec<String>,
}

impl<'b> Announced<'b> {
    /// None without a topic.
    pub(super) fn of(batch: &'b Batch, owner: &Owner, changes: &[Change<'_>]) -> Result<Option<Self>> {
        let Rows::Here { topic: Some(topic), .. } = &batch.rows else { return Ok(None) };
        let keys = changes.iter().map(|change| outbox_key(owner, &change.item.entity_id)).collect();
        let payload = |change: &Change<'_>| payload(owner, change.item, change.is_new(), change.version);
        let payloads = changes.iter().map(payload).collect::<Result<_>>()?;
        Ok(Some(Self { topic, keys, payloads }))
    }

    pub(super) fn ask<'a>(&'a self, now: &'a Option<Timestamp>) -> Ask<'a> {
        let params = [
            (now as _, Type::TIMESTAMPTZ),
            (&self.topic as _, Type::TEXT),
            (&self.keys as _, Type::TEXT_ARRAY),
            (&self.payloads as _, Type::TEXT_ARRAY),
        ];
        Ask::new(sql!("directive_outbox_insert"), params)
    }
}

/// How far a batch brings its directive, as the store keeps it.
#[derive(Debug, Default)]
pub(super) struct Progress {
    cursor: Option<Json>,
    partial: Option<Json>,
    pages: i64,
    is_last: bool,
}

impl Progress {
    pub(super) fn of(batch: &Batch) -> Result<Self> {
        Ok(match &batch.advance {
            Advance::Page { cursor, pages, is_last, .. } => Self {
                cursor: Some(to_json(cursor)?),
                partial: None,
                pages: i64::from(*pages),
                is_last: *is_last,
            },
            Advance::Part(partial) => Self { partial: Some(to_json(partial)?), ..Self::default() },
            Advance::Still => Self::default(),
        })
    }

    /// The cursor's version afterwards, if there is one.
    pub(super) fn cursor_version(&self, found: &Last) -> Option<i64> {
        match self.cursor {
            Some(_) => Some(found.version + 1),
            None => found.alive,
        }
    }

    /// A cursor that moves ends what was noted as partial.
    pub(super) fn writes<'a>(
        &'a self,
        batch: &'a Batch,
        keys: &'a Keys,
        writer: &'a str,
        cursor: &Last,
        partial: &Last,
    ) -> Vec<Write<'a>> {
        let request = batch.request_id.as_str();
        let mut writes = Vec::new();
        if let Some(value) = &self.cursor {
            let write = Write::new(&keys.cursor, Some(value), Purpose::Cursor, request, writer);
            writes.push(write.expecting(cursor.alive));
        }
        if self.partial.is_some() || (self.cursor.is_some() && partial.alive.is_some()) {
            let value = self.partial.as_deref();
            let write = Write::new(&keys.partial, value, Purpose::Checkpoint, request, writer);
            writes.push(write.expecting(partial.alive));
        }
        writes
    }
}

/// What a run's row tells of a batch.
#[derive(Debug)]
pub(super) struct Note<'b> {
    run: &'b str,
    pages: i64,
    counts: [i64; 4],
    cursor: Option<&'b str>,
    request_id: &'b str,
    lease: i64,
    cursor_version: Option<i64>,
    is_last: bool,
}

impl<'b> Note<'b> {
    pub(super) fn of(
        batch: &'b Batch,
        counts: Counts,
        cursor_version: Option<i64>,
        progress: &'b Progress,
    ) -> Self {
        let Counts { created, updated, unchanged, failed } = counts;
        Self {
            run: &batch.lease.run.0,
            pages: progress.pages,
            counts: [created, updated, unchanged, failed].map(signed),
            cursor: progress.cursor.as_deref().map(|json| json.get()),
            request_id: &batch.request_id,
            lease: signed(batch.lease.version),
            cursor_version,
            is_last: progress.is_last,
        }
    }

    pub(super) fn ask<'a>(&'a self, now: &'a Option<Timestamp>) -> Ask<'a> {
        let [created, updated, unchanged, failed] = self.counts.each_ref();
        let params = [
            (now as _, Type::TIMESTAMPTZ),
            (&self.run as _, Type::TEXT),
            (&self.pages as _, Type::INT8),
            (created as _, Type::INT8),
            (updated as _, Type::INT8),
            (unchanged as _, Type::INT8),
            (failed as _, Type::INT8),
            (&self.cursor as _, Type::TEXT),
            (&self.request_id as _, Type::TEXT),
            (&self.lease as _, Type::INT8),
            (&self.cursor_version as _, Type::INT8),
            (&self.is_last as _, Type::BOOL),
        ];
        Ask::new(sql!("directive_run_batch"), params)
    }
}
