//! Directives: values, runs, batches, what is kept aside and what is announced.

mod batch;
mod kept;
mod outbox;
mod run;
mod value;

use std::time::Duration;

use async_trait::async_trait;
use stargate_directive::kv::{Entry, Key, Override, Put, PutAnswer};
use stargate_directive::outbox::{Announcement, OutboxId, Waiting};
use stargate_directive::quarantine::{QuarantineFilter, QuarantineId, Quarantined};
use stargate_directive::run::{Beat, Begin, End, Lease, NewRun, Run, RunId};
use stargate_directive::{Batch, Directives, Persisted, Standing};
use stargate_queue::Result;

use super::Sqlite;
use crate::directive_rows::{check_batch, check_put, check_run, count_batch, count_put, no_notifications};

#[async_trait]
impl Directives for Sqlite {
    async fn kv_get(&self, key: &Key) -> Result<Option<Entry>> {
        let key = key.clone();
        self.readers.read("read the value", move |r| value::get(r.conn, r.now, &key)).await
    }

    async fn kv_put(&self, put: Put) -> Result<PutAnswer> {
        check_put(&put)?;
        count_put(self.write("keep the value", move |s| value::put(s, &put)).await)
    }

    async fn kv_list(&self, prefix: &str, after: Option<&str>, limit: u32) -> Result<Vec<Entry>> {
        let (prefix, after) = (prefix.to_owned(), after.unwrap_or_default().to_owned());
        self.readers.read("list values", move |r| value::list(r.conn, r.now, &prefix, &after, limit)).await
    }

    async fn kv_overrides(&self, prefix: &str, limit: u32) -> Result<Vec<Override>> {
        let prefix = prefix.to_owned();
        self.readers.read("list writes by hand", move |r| value::overrides(r.conn, &prefix, limit)).await
    }

    async fn run_begin(&self, run: NewRun) -> Result<Begin> {
        check_run(&run)?;
        self.write("begin the run", move |s| run::begin(s, &run)).await
    }

    async fn run_beat(&self, lease: &Lease, lease_for: Duration, beat: Beat) -> Result<Standing> {
        let lease = lease.clone();
        self.write("renew the lease of the run", move |s| run::beat(s, &lease, lease_for, &beat)).await
    }

    async fn run_end(&self, lease: &Lease, end: End) -> Result<bool> {
        let lease = lease.clone();
        self.write("end the run", move |s| run::end(s, &lease, &end)).await
    }

    async fn run_cancel(&self, run: &RunId) -> Result<bool> {
        let run = run.clone();
        self.write("ask the run to stop", move |s| run::cancel(s, &run)).await
    }

    async fn run(&self, run: &RunId) -> Result<Option<Run>> {
        let run = run.clone();
        self.readers.read("read the run", move |r| Ok(run::get(r.conn, &run)?.map(|found| found.run))).await
    }

    async fn runs(&self, directive: Option<&str>, before: Option<&RunId>, limit: u32) -> Result<Vec<Run>> {
        let (directive, before) = (directive.map(str::to_owned), before.cloned());
        self.readers
            .read("list runs", move |r| run::list(r.conn, directive.as_deref(), before.as_ref(), limit))
            .await
    }

    async fn persist(&self, batch: Batch) -> Result<Persisted> {
        check_batch(&batch)?;
        count_batch(self.write("write the batch", move |s| batch::persist(s, &batch)).await)
    }

    async fn quarantine(&self, filter: QuarantineFilter) -> Result<Vec<Quarantined>> {
        self.readers.read("list quarantined records", move |r| kept::list(r.conn, &filter)).await
    }

    async fn quarantine_resolve(&self, id: QuarantineId) -> Result<bool> {
        self.write("resolve the quarantined record", move |s| kept::resolve(s, id)).await
    }

    async fn outbox_next(
        &self,
        topic: &str,
        after: Option<OutboxId>,
        limit: u32,
    ) -> Result<Vec<Announcement>> {
        let topic = topic.to_owned();
        self.readers.read("list announcements", move |r| outbox::next(r.conn, &topic, after, limit)).await
    }

    async fn outbox_done(&self, id: OutboxId) -> Result<bool> {
        self.write("note the delivery", move |s| outbox::done(s, id)).await
    }

    async fn outbox_notify(&self, _channel: &str, _id: OutboxId) -> Result<bool> {
        Err(no_notifications())
    }

    async fn outbox_waiting(&self) -> Result<Vec<Waiting>> {
        self.readers.read("count announcements", |r| outbox::waiting(r.conn)).await
    }

    async fn outbox_failed(&self, id: OutboxId, problem: &str) -> Result<()> {
        let problem = crate::directive_rows::short_problem(problem);
        self.write("note the failed delivery", move |s| outbox::failed(s, id, &problem)).await
    }
}
