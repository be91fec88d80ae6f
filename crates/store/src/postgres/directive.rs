//! Values, runs, batches and announcements of directives.
//!
//! Locks are taken in one order: the lease, the run, the cursor, the partial progress, rows. So two transactions of one
//! directive wait for each other and never in a circle.

mod batch;
mod note;
mod outbox;
mod quarantine;
mod runs;
mod values;

use std::time::Duration;

use async_trait::async_trait;
use stargate_base::Epoch;
use stargate_directive::outbox::{Announcement, OutboxId, Waiting};
use stargate_directive::quarantine::{QuarantineFilter, QuarantineId, Quarantined};
use stargate_directive::{
    Batch, Beat, Begin, Directives, End, Entry, Key, Lease, NewRun, Override, Persisted, Put, PutAnswer, Run,
    RunId, Standing,
};
use stargate_queue::Result;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connect::{Ask, Session};
use super::{Postgres, sql};
use crate::directive_rows::{count_batch, count_put};
use crate::terms::column;

#[async_trait]
impl Directives for Postgres {
    async fn kv_get(&self, key: &Key) -> Result<Option<Entry>> {
        values::get(&self.inner, key).await
    }

    async fn kv_put(&self, put: Put) -> Result<PutAnswer> {
        count_put(values::put(&self.inner, self.guard, &put).await)
    }

    async fn kv_list(&self, prefix: &str, after: Option<&str>, limit: u32) -> Result<Vec<Entry>> {
        values::list(&self.inner, prefix, after, limit).await
    }

    async fn kv_overrides(&self, prefix: &str, limit: u32) -> Result<Vec<Override>> {
        values::overrides(&self.inner, prefix, limit).await
    }

    async fn run_begin(&self, run: NewRun) -> Result<Begin> {
        runs::begin(&self.inner, self.guard, &run).await
    }

    async fn run_beat(&self, lease: &Lease, lease_for: Duration, beat: Beat) -> Result<Standing> {
        runs::beat(&self.inner, self.guard, lease, lease_for, &beat).await
    }

    async fn run_end(&self, lease: &Lease, end: End) -> Result<bool> {
        runs::end(&self.inner, self.guard, lease, &end).await
    }

    async fn run_cancel(&self, run: &RunId) -> Result<bool> {
        runs::cancel(&self.inner, self.guard, run).await
    }

    async fn run(&self, run: &RunId) -> Result<Option<Run>> {
        runs::get(&self.inner, run).await
    }

    async fn runs(&self, directive: Option<&str>, before: Option<&RunId>, limit: u32) -> Result<Vec<Run>> {
        runs::list(&self.inner, directive, before, limit).await
    }

    async fn persist(&self, batch: Batch) -> Result<Persisted> {
        count_batch(batch::persist(&self.inner, self.guard, &batch).await)
    }

    async fn quarantine(&self, filter: QuarantineFilter) -> Result<Vec<Quarantined>> {
        quarantine::list(&self.inner, &filter).await
    }

    async fn quarantine_resolve(&self, id: QuarantineId) -> Result<bool> {
        quarantine::resolve(&self.inner, self.guard, id).await
    }

    async fn outbox_next(
        &self,
        topic: &str,
        after: Option<OutboxId>,
        limit: u32,
    ) -> Result<Vec<Announcement>> {
        outbox::next(&self.inner, topic, after, limit).await
    }

    async fn outbox_done(&self, id: OutboxId) -> Result<bool> {
        outbox::done(&self.inner, self.guard, id).await
    }

    async fn outbox_notify(&self, channel: &str, id: OutboxId) -> Result<bool> {
        outbox::notify(&self.inner, self.guard, channel, id).await
    }

    async fn outbox_waiting(&self) -> Result<Vec<Waiting>> {
        outbox::waiting(&self.inner).await
    }

    async fn outbox_failed(&self, id: OutboxId, problem: &str) -> Result<()> {
        outbox::failed(&self.inner, self.guard, id, problem).await
    }
}

/// Begins a transaction with these statements. In a guarded one no term can begin or end until it ends; it is refused when
/// the caller's is over.
async fn begin(
    s: &mut Session<'_>,
    guard: Option<Epoch>,
    operation: &'static str,
    asks: Vec<Ask<'_>>,
) -> Result<Vec<Vec<Row>>> {
    if guard.is_none() {
        return s.begin_with(operation, &asks).await;
    }
    let epoch = column(guard);
    let mut guarded = vec![Ask::new(sql!("leader_hold"), [(&epoch as _, Type::INT8)])];
    guarded.extend(asks);
    let mut answers = s.begin_with(operation, &guarded).await?;
    answers.remove(0);
    Ok(answers)
}

/// The rows of one of several answers.
fn answer(answers: &[Vec<Row>], n: usize) -> &[Row] {
    answers.get(n).map_or(&[], Vec::as_slice)
}
