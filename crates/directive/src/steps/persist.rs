//! Steps 5 and 6: what was transformed is written, and the cursor moved with it.

use std::sync::Arc;
use std::time::Duration;

use stargate_base::ErrorClass;

use super::ahead::{PageEnd, Piece};
use super::heart::Halt;
use super::say::say;
use super::trouble::Trouble;
use super::{Broken, Execution, reached};
use crate::cursor::{Cursor, Partial, Pointer};
use crate::file::Mode;
use crate::item::{Advance, Batch, Counts, Persisted, Reject, Rows};
use crate::kv::Expected;
use crate::metrics;
use crate::parts::Part;
use crate::run::Step;
use crate::source::Owner;

/// How often a batch is tried where a store may only have lost the answer.
const TRIES: u32 = 3;
/// What lies between two tries.
const PAUSE: Duration = Duration::from_millis(500);
/// Rejects of a batch that are logged one by one.
const REJECTS_LOGGED: usize = 10;

impl Execution {
    /// Writes a piece; true if the source ends with it.
    pub(super) async fn persist(&mut self, piece: Piece) -> Result<bool, Broken> {
        self.say(Step::Persist);
        let Piece { part, replayed, accounted, checksum, page, pages, end, .. } = piece;
        if part.is_empty() && end.is_none() {
            return Ok(false);
        }
        let advance = self.advance(accounted, checksum, pages, end.as_ref());
        let is_last = matches!(advance, Advance::Page { is_last: true, .. });
        let moved = match &advance {
            Advance::Page { cursor, pages, .. } => Some((cursor.clone(), *pages)),
            Advance::Part(_) | Advance::Still => None,
        };
        self.log_rejects(&part.rejects);
        let (rows, rejects) = match self.rows(part, replayed).await {
            Ok(rows) => rows,
            Err(trouble) if trouble.class == ErrorClass::Conflict => {
                return Err(self.conflict(trouble).await);
            }
            Err(trouble) => return Err(trouble.into()),
        };
        let batch = Batch {
            lease: self.lease.clone(),
            request_id: self.next_name(),
            rows,
            rejects,
            resolves: Vec::new(),
            replayed,
            advance,
        };
        reached(self.given.watch.as_deref(), Step::Persist);
        let written = self.write(batch).await?;
        reached(self.given.watch.as_deref(), Step::AdvanceCursor);
        self.wrote(page, &written, moved, accounted);
        if let Some(end) = end {
            self.heart.say(|beat| beat.page_size = Some(end.page_size));
        }
        self.tell_progress();
        self.forget_failures(accounted).await;
        Ok(is_last)
    }

    /// A name that no other batch of this holder of the lease has; a batch that is tried again keeps it.
    pub(super) fn next_name(&mut self) -> String {
        self.batches += 1;
        format!("{}/{}/{}", self.lease.run, self.lease.version, self.batches)
    }

    /// What is accounted for beyond the cursor.
    fn partial(&self, accounted: u64) -> Partial {
        Partial {
            accounted: accounted.max(self.position.replayed()),
            run: self.lease.run.0.clone(),
            cursor_version: self.position.version(),
        }
    }

    /// What a piece does to the cursor.
    fn advance(&self, accounted: u64, checksum: String, pages: u32, end: Option<&PageEnd>) -> Advance {
        let part = Advance::Part(self.partial(accounted));
        let Some(end) = end else { return part };
        let pointer = match (&end.next, end.is_last, self.given.directive.mode) {
            (_, true, Mode::Full) => Pointer::Null,
            (Some(next), _, _) => next.clone(),
            // The source is at its end and has said nothing: the next run begins where this one did.
            (None, true, Mode::Incremental) => self.position.pointer.clone(),
            (None, false, _) => return part,
        };
        let cursor = Cursor {
            source_pointer: pointer,
            processed_count: self.position.processed + accounted,
            checksum,
            batch_id: None,
            spec_ref: None,
        };
        Advance::Page { expected: self.position.expected, cursor, pages, is_last: end.is_last }
    }

    /// Rows for the store; if they belong elsewhere they are written there first.
    pub(super) async fn rows(&self, part: Part, replayed: bool) -> Result<(Rows, Vec<Reject>), Trouble> {
        let directive = &self.given.directive;
        let Some(sink) = &self.sink else {
            let topic = directive.sink.outbox.as_deref().map(Arc::from);
            let rows = Rows::Here { table: self.table.clone(), items: Arc::new(part.items), topic };
            return Ok((rows, part.rejects));
        };
        let owner = Owner {
            tenant: directive.tenant.clone(),
            project: directive.project.clone(),
            directive: directive.name.clone(),
        };
        let entities: Vec<String> = part.items.iter().map(|item| item.entity_id.clone()).collect();
        let mut counts = sink.upsert(&owner, self.lease.version, &self.table, part.items).await?;
        if counts.total() != entities.len() as u64 {
            let message = format!("{} items were sent and {} counted", entities.len(), counts.total());
            return Err(Trouble::new(ErrorClass::Fatal, "SINK_COUNTS", message));
        }
        if replayed {
            counts.unchanged = 0;
        }
        Ok((Rows::Elsewhere { counts, entities }, part.rejects))
    }

    /// Writes a batch; again if the answer may have been lost, which its name makes harmless.
    async fn write(&self, batch: Batch) -> Result<Persisted, Broken> {
        for attempt in 1.. {
            let error = match self.given.store.persist(batch.clone()).await {
                Ok(written) => return Ok(written),
                Err(error) => error,
            };
            match error.class() {
                ErrorClass::RetryableTransient if attempt < TRIES => {
                    say!(WARN, self.who, self.position.cursor.as_ref(), step = Step::Persist.as_str(),
                        error_class = %error.class(), %error, attempt, "the batch is tried again");
                    tokio::time::sleep(PAUSE * attempt).await;
                }
                ErrorClass::Conflict => return Err(self.conflict(error.into()).await),
                _ => return Err(error.into()),
            }
        }
        unreachable!("the last try answers")
    }

    /// Either the lease is gone, and then so is the run for us, or the cursor was moved by somebody.
    async fn conflict(&self, trouble: Trouble) -> Broken {
        let lease_for = self.given.directive.heartbeat * super::BEATS_PER_LEASE;
        match self.heart.beat_for(lease_for).await {
            Ok(crate::store::Standing::Lost) => {
                self.heart.stop_for(Halt::Lost);
                Broken::Halted
            }
            _ => Broken::Trouble(trouble),
        }
    }

    fn wrote(&mut self, page: u64, written: &Persisted, moved: Option<(Cursor, u32)>, accounted: u64) {
        let Persisted { counts, cursor_version, cancel_asked, .. } = *written;
        let Counts { created, updated, unchanged, failed } = counts;
        metrics::batch(&self.who.directive, counts);
        self.run.counts += counts;
        say!(
            INFO,
            self.who,
            self.position.cursor.as_ref(),
            step = Step::Persist.as_str(),
            page,
            created,
            updated,
            unchanged,
            failed,
            "persisted"
        );
        if unchanged > 0 {
            say!(
                INFO,
                self.who,
                self.position.cursor.as_ref(),
                outcome = "unchanged",
                page,
                items = unchanged,
                "not written, because their hash is the same"
            );
        }
        match moved {
            Some((cursor, pages)) => {
                self.run.pages += u64::from(pages);
                self.pages += u64::from(pages);
                say!(
                    INFO,
                    self.who,
                    Some(&cursor),
                    step = Step::AdvanceCursor.as_str(),
                    page,
                    version = cursor_version,
                    "advanced the cursor"
                );
                self.position.pointer = cursor.source_pointer.clone();
                self.position.processed = cursor.processed_count;
                self.position.checksum = cursor.checksum.clone();
                self.position.cursor = Some(cursor);
                self.position.partial = None;
                self.position.expected = cursor_version.map_or(Expected::Absent, Expected::Version);
            }
            None => self.position.partial = Some(self.partial(accounted)),
        }
        if cancel_asked {
            self.heart.stop_for(Halt::Cancelled);
        }
    }

    /// Something worked. If something had failed before, the store is told at once: whoever takes up the run must not
    /// count it.
    async fn forget_failures(&self, accounted: u64) {
        let before = self.heart.beat().failures;
        // With the cursor moved, what is accounted for is in it already.
        let records = self.position.processed + self.position.partial.as_ref().map_or(0, |_| accounted);
        self.heart.say(|beat| {
            beat.failures.forget(records);
            beat.waiting_for = None;
        });
        if before != self.heart.beat().failures {
            let lease_for = self.given.directive.heartbeat * super::BEATS_PER_LEASE;
            if let Ok(crate::store::Standing::Lost) = self.heart.beat_for(lease_for).await {
                self.heart.stop_for(Halt::Lost);
            }
        }
    }

    /// Puts the cursor to the beginning of the source.
    pub(super) async fn reset_cursor(&mut self) -> Result<(), Trouble> {
        let cursor = Cursor {
            source_pointer: Pointer::Null,
            processed_count: 0,
            checksum: String::new(),
            batch_id: None,
            spec_ref: None,
        };
        let batch = Batch {
            lease: self.lease.clone(),
            request_id: self.next_name(),
            rows: Rows::Elsewhere { counts: Counts::default(), entities: Vec::new() },
            rejects: Vec::new(),
            resolves: Vec::new(),
            replayed: false,
            advance: Advance::Page {
                expected: self.position.expected,
                cursor: cursor.clone(),
                pages: 0,
                is_last: false,
            },
        };
        let written = self.given.store.persist(batch).await?;
        self.position.expected = written.cursor_version.map_or(Expected::Absent, Expected::Version);
        say!(
            WARN,
            self.who,
            Some(&cursor),
            step = Step::AdvanceCursor.as_str(),
            "the source is read from its beginning again"
        );
        self.position.cursor = Some(cursor);
        Ok(())
    }

    fn log_rejects(&self, rejects: &[Reject]) {
        let cursor = self.position.cursor.as_ref();
        for reject in rejects.iter().take(REJECTS_LOGGED) {
            say!(ERROR, self.who, cursor, step = Step::Transform.as_str(),
                error_class = %ErrorClass::ValidationFailure, cause = reject.cause, reason = reject.reason,
                entity_id = reject.entity_id, "a record is kept aside");
        }
        if let Some(more) = rejects.len().checked_sub(REJECTS_LOGGED).filter(|more| *more > 0) {
            say!(ERROR, self.who, cursor, step = Step::Transform.as_str(),
                error_class = %ErrorClass::ValidationFailure, more, "further records are kept aside");
        }
    }
}
