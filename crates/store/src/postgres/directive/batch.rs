//! Writes a batch: all of it in one transaction, or nothing.
//!
//! ```text
//!   begin, lease, run, cursor, partial, what is there of the items' entities ─▶ one round trip
//!   compare in here
//!   rows, announcements, quarantine, cursor, partial, the run's counts ───────▶ one round trip
//!   commit ────────────────────────────────────────────────────────────────────▶ one round trip
//! ```
//!
//! Rejects, many changed rows and large ones take more. If all rows are new they are copied, in a round trip of their own,
//! and those of a run that has brought nothing but new rows are not looked for first.

use std::sync::Arc;

use jiff::Timestamp;
use stargate_base::Epoch;
use stargate_directive::kv::Keys;
use stargate_directive::source::Owner;
use stargate_directive::{Advance, Batch, Counts, Key, Persisted, Rows, Table};
use stargate_queue::{Error, Result};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::super::connect::{Ask, Session};
use super::super::enqueue::finish;
use super::super::error::{again, code};
use super::super::sink::{self, Registry};
use super::super::sink_copy::{self, Expecting, Moment};
use super::super::sink_rows::{self, Change, Chunk, Sought, Texts};
use super::super::{Inner, leadership};
use super::note::{Announced, Note, Progress};
use super::quarantine::{self, Resolved};
use super::runs::{self, Found};
use super::values::{Last, lock};
use super::{answer, begin};
use crate::directive_rows::{check_batch, cursor_moved, entities, expected_column, lease_lost, writer_of};
use crate::repo_rows::signed;

const OPERATION: &str = "write the batch";

/// The table or a column of it is not there or has another type, or the statement is older than the table.
const TABLE_CHANGED: [&str; 4] = ["42P01", "42703", "42804", "0A000"];

/// The schema of the store's own tables.
const OWN_SCHEMA: &str = "stargate";

pub(super) async fn persist(inner: &Inner, guard: Option<Epoch>, batch: &Batch) -> Result<Persisted> {
    check_batch(batch)?;
    let (mut tries, mut is_looked_at) = (0, false);
    loop {
        tries += 1;
        let result = persist_once(inner, guard, batch).await;
        if result.as_ref().is_err_and(|error| inner.expectations.failed(&batch.lease, error)) {
            continue;
        }
        let is_changed = result.as_ref().is_err_and(|e| code(e).is_some_and(|c| TABLE_CHANGED.contains(&c)));
        if let (true, false, Rows::Here { table, .. }) = (is_changed, is_looked_at, &batch.rows) {
            inner.sinks.forget(table);
            is_looked_at = true;
        } else if !again(&result, tries) {
            return result;
        }
    }
}

async fn persist_once(inner: &Inner, guard: Option<Epoch>, batch: &Batch) -> Result<Persisted> {
    let mut s = inner.directives.session().await?;
    let sink = match &batch.rows {
        Rows::Here { table, items, .. } => {
            let texts = known_table(inner, &mut s, guard, table).await?;
            Some(Target { texts, table, sought: Sought::of(items) })
        }
        Rows::Elsewhere { .. } => None,
    };
    let now = inner.clock.for_statement();
    let expecting = inner.expectations.of(&batch.lease);
    let result = Writing { batch, now, sink, expecting }.run(&mut s, guard).await;
    let result = match &batch.rows {
        Rows::Here { table, .. } => result.map_err(|error| sink::of_row(error, table, Some(OWN_SCHEMA))),
        Rows::Elsewhere { .. } => result,
    };
    let written = finish(&mut s, result).await?;
    if let Rows::Here { items, .. } = &batch.rows {
        inner.expectations.wrote(&batch.lease, items.len(), written.counts.created);
    }
    Ok(written)
}

/// The statements of a table, which is made or widened first if need be. That stays even if the batch does not.
async fn known_table(
    inner: &Inner,
    s: &mut Session<'_>,
    guard: Option<Epoch>,
    table: &Table,
) -> Result<Arc<Texts>> {
    if let Some(texts) = inner.sinks.texts(table) {
        return Ok(texts);
    }
    leadership::begin(s, guard).await?;
    let result = sink::ensure(s, Registry::Own, inner.clock.for_statement(), table).await;
    finish(s, result).await?;
    Ok(inner.sinks.remember(table))
}

/// Where items go.
struct Target<'b> {
    texts: Arc<Texts>,
    table: &'b Table,
    sought: Sought<'b>,
}

/// A batch under way.
struct Writing<'b> {
    batch: &'b Batch,
    now: Option<Timestamp>,
    sink: Option<Target<'b>>,
    expecting: Expecting,
}

/// What was found before anything is written.
struct Standing {
    lease: Last,
    run: Option<Found>,
    beyond: Option<Beyond>,
}

/// What depends on whose batch it is.
struct Beyond {
    cursor: Last,
    partial: Last,
    /// How a copy would find the table, if there are items.
    moment: Option<Row>,
    /// The items that are new or differ, if they were looked for.
    differing: Option<Vec<Row>>,
}

impl Beyond {
    fn read(answers: &mut Vec<Vec<Row>>) -> Self {
        let differing = (answers.len() > 3).then(|| answers.remove(3));
        Self {
            cursor: Last::read(answer(answers, 0)),
            partial: Last::read(answer(answers, 1)),
            moment: answers.get_mut(2).and_then(Vec::pop),
            differing,
        }
    }
}

/// The owner that the key of a lease tells of: `tenant/T/project/P/directive/D/run`. Only a guess, which saves a round
/// trip: the run says whose it is.
fn owner_in(lease: &Key) -> Option<Owner> {
    let parts: Vec<&str> = lease.as_str().split('/').collect();
    let ["tenant", tenant, "project", project, "directive", directive, "run"] = parts.as_slice() else {
        return None;
    };
    let [tenant, project, directive] = [tenant, project, directive].map(|part| (*part).to_owned());
    Some(Owner { tenant, project, directive })
}

fn keys_of(owner: &Owner) -> Result<Keys> {
    Keys::of(&owner.tenant, &owner.project, &owner.directive)
}

impl Writing<'_> {
    async fn run(&self, s: &mut Session<'_>, guard: Option<Epoch>) -> Result<Persisted> {
        let (batch, lease) = (self.batch, &self.batch.lease);
        let guess = owner_in(&lease.key);
        let mut found = self.look(s, guard, guess.as_ref()).await?;
        let held = found.lease.alive.filter(|version| *version == signed(lease.version));
        let run = found.run.take().filter(|found| held.is_some() && found.run.outcome.is_none());
        let Found { run, batch: last } = run.ok_or_else(|| lease_lost(&lease.run))?;
        let cancel_asked = run.cancel_asked;
        if let Some(last) = last.filter(|l| l.request_id == batch.request_id && Some(l.lease) == held) {
            let cursor_version = last.cursor.map(i64::unsigned_abs);
            return Ok(Persisted { counts: last.counts, cursor_version, first: false, cancel_asked });
        }
        let owner = Owner { tenant: run.tenant, project: run.project, directive: run.directive };
        let keys = keys_of(&owner)?;
        let beyond = match found.beyond.filter(|_| guess.as_ref() == Some(&owner)) {
            Some(beyond) => beyond,
            None => self.look_beyond(s, &owner, &keys).await?,
        };
        let alive = beyond.cursor.alive;
        if let Advance::Page { expected, .. } = &batch.advance
            && expected_column(*expected) != alive
        {
            return Err(cursor_moved(&keys.cursor, *expected, alive));
        }
        let (counts, cursor) = self.write(s, &owner, &keys, &beyond).await?;
        Ok(Persisted { counts, cursor_version: cursor.map(i64::unsigned_abs), first: true, cancel_asked })
    }

    /// Begins the transaction, takes the locks and reads what is there.
    async fn look(
        &self,
        s: &mut Session<'_>,
        guard: Option<Epoch>,
        guess: Option<&Owner>,
    ) -> Result<Standing> {
        let lease = &self.batch.lease;
        let lease_key = lease.key.as_str();
        let keys = guess.map(keys_of).transpose()?;
        let keys = keys.as_ref().map(|keys| (keys.cursor.as_str(), keys.partial.as_str()));
        let mut asks =
            vec![lock(&self.now, &lease_key), Ask::new(runs::LOCK, [(&lease.run.0 as _, Type::TEXT)])];
        if let (Some(owner), Some((cursor, partial))) = (guess, &keys) {
            asks.extend(self.reads(owner, cursor, partial));
        }
        let mut answers = begin(s, guard, OPERATION, asks).await?;
        let mut beyond = answers.split_off(answers.len().min(2));
        Ok(Standing {
            lease: Last::read(answer(&answers, 0)),
            run: Found::read(answer(&answers, 1))?,
            beyond: keys.map(|_| Beyond::read(&mut beyond)),
        })
    }

    async fn look_beyond(&self, s: &mut Session<'_>, owner: &Owner, keys: &Keys) -> Result<Beyond> {
        let (cursor, partial) = (keys.cursor.as_str(), keys.partial.as_str());
        let asks = self.reads(owner, &cursor, &partial);
        Ok(Beyond::read(&mut s.rows_together(OPERATION, &asks).await?))
    }

    fn reads<'a>(&'a self, owner: &'a Owner, cursor: &'a &'a str, partial: &'a &'a str) -> Vec<Ask<'a>> {
        let mut asks = vec![lock(&self.now, cursor), lock(&self.now, partial)];
        if let Some(sink) = self.sink.as_ref().filter(|sink| sink.sought.len() > 0) {
            asks.push(sink.texts.moment(&self.now));
            if self.expecting.looks(sink.sought.len()) {
                asks.push(sink.texts.find(owner, &sink.sought));
            }
        }
        asks
    }

    /// The items that are new or differ. Without a look they count as new if they can be copied.
    async fn changes(
        &self,
        s: &mut Session<'_>,
        owner: &Owner,
        beyond: &Beyond,
        can_copy: bool,
    ) -> Result<Vec<Change<'_>>> {
        let Some(Target { sought, texts, .. }) = self.sink.as_ref().filter(|sink| sink.sought.len() > 0)
        else {
            return Ok(Vec::new());
        };
        Ok(match &beyond.differing {
            Some(rows) => sought.differing(rows),
            None if can_copy => sought.all_new(),
            None => {
                let found = s.rows_together(OPERATION, &[texts.find(owner, sought)]).await?;
                sought.differing(answer(&found, 0))
            }
        })
    }

    /// Writes everything; what became of the records, and the cursor's version.
    async fn write(
        &self,
        s: &mut Session<'_>,
        owner: &Owner,
        keys: &Keys,
        beyond: &Beyond,
    ) -> Result<(Counts, Option<i64>)> {
        let batch = self.batch;
        let moment = self.moment(beyond).filter(|_| s.can_copy());
        let changes = self.changes(s, owner, beyond, moment.is_some()).await?;
        let mut counts = match &batch.rows {
            Rows::Here { items, .. } => sink_rows::counts(items.len(), &changes),
            Rows::Elsewhere { counts, .. } => *counts,
        };
        let mut chunks = sink_rows::chunks(&changes);
        let is_copied = self.copy(s, owner, moment, &changes).await?;
        let last = chunks.pop();
        for chunk in chunks {
            self.write_rows(s, owner, Some(chunk), is_copied, Vec::new()).await?;
        }
        let resolved = Resolved::of(&batch.resolves, entities(&batch.rows));
        let mut others = resolved.asks(&self.now, owner);
        if !batch.rejects.is_empty() {
            // In this order: what was kept aside is dealt with by its item, and what comes now is kept aside after that.
            s.rows_together(OPERATION, &others).await?;
            others = Vec::new();
        }
        self.keep_aside(s, owner, &mut counts).await?;
        let writer = writer_of(&owner.directive);
        let progress = Progress::of(batch)?;
        let writes = progress.writes(batch, keys, &writer, &beyond.cursor, &beyond.partial);
        let cursor = progress.cursor_version(&beyond.cursor);
        let note = Note::of(batch, counts, cursor, &progress);
        let steps = others.len();
        others.extend(writes.iter().map(|write| write.ask(&self.now)));
        others.push(note.ask(&self.now));
        let answers = self.write_rows(s, owner, last, is_copied, others).await?;
        // Whoever wrote a key that was not there has been faster.
        if answers.iter().skip(steps).any(Vec::is_empty) {
            let problem = format!("{} is being written by others; nothing was written", keys.cursor);
            return Err(Error::Conflict { problem });
        }
        Ok((counts, cursor))
    }

    fn moment(&self, beyond: &Beyond) -> Option<Moment> {
        Moment::of(self.sink.as_ref()?.table, beyond.moment.as_ref()?)
    }

    /// Copies the changes if they are for that; whether they were.
    async fn copy(
        &self,
        s: &mut Session<'_>,
        owner: &Owner,
        moment: Option<Moment>,
        changes: &[Change<'_>],
    ) -> Result<bool> {
        let moment = moment.filter(|_| self.expecting.copies(changes));
        let (Some(sink), Some(moment)) = (&self.sink, moment) else { return Ok(false) };
        sink_copy::copy(s, &sink.texts, &moment, owner, changes).await?;
        Ok(true)
    }

    /// Keeps the rejects, and counts them.
    async fn keep_aside(&self, s: &mut Session<'_>, owner: &Owner, counts: &mut Counts) -> Result<()> {
        let Batch { lease, rejects, replayed, .. } = self.batch;
        let new = quarantine::keep(s, &self.now, owner, &lease.run, rejects, *replayed).await?;
        if *replayed {
            counts.unchanged = 0;
            counts.failed += new;
        } else {
            counts.failed += rejects.len() as u64;
        }
        Ok(())
    }

    /// Writes a chunk of rows, unless it was copied, its announcements, and what goes with it; the answers to that.
    async fn write_rows(
        &self,
        s: &mut Session<'_>,
        owner: &Owner,
        changes: Option<&[Change<'_>]>,
        is_copied: bool,
        others: Vec<Ask<'_>>,
    ) -> Result<Vec<Vec<Row>>> {
        let (Some(sink), Some(changes)) = (&self.sink, changes) else {
            return s.rows_together(OPERATION, &others).await;
        };
        let chunk = (!is_copied).then(|| Chunk::of(sink.table, changes));
        let announced = Announced::of(self.batch, owner, changes)?;
        let mut asks: Vec<Ask<'_>> =
            chunk.iter().map(|chunk| sink.texts.put(&self.now, owner, chunk)).collect();
        asks.extend(announced.iter().map(|announced| announced.ask(&self.now)));
        let before = asks.len();
        asks.extend(others);
        let mut answers = s.rows_together(OPERATION, &asks).await?;
        if let Some(chunk) = &chunk {
            chunk.check(answer(&answers, 0))?;
        }
        Ok(answers.split_off(before))
    }
}
