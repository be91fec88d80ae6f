//! The side of a move that is entered: one transaction, so that nobody sees half of it.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stargate_directive::item::Table as Sink;
use stargate_queue::Result;
use tokio_postgres::types::Type;

use super::connect::{Ask, Session};
use super::error::{fatal, transient};
use super::{Postgres, sink, sql};
use crate::sqlite::export::Counters;
use crate::transfer::Table;
use crate::transfer::sink::import_text;

/// The key in `meta` that says where the jobs came from.
const MOVED_FROM: &str = "moved_from";
/// How long the sums over all tables may take, on either side: this one stands still while the other reckons.
const SUMS_TIMEOUT: Duration = Duration::from_secs(1800);

/// Where the jobs came from.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// The source's name for itself.
    pub(crate) source: String,
    /// Rows of each table.
    pub(crate) rows: BTreeMap<String, u64>,
}

/// A move under way. Dropped before the commit it leaves no trace.
pub(crate) struct Import<'a> {
    s: Session<'a>,
    /// What is added to workers' numbers, because workers may wait here already.
    workers: i32,
}

impl Postgres {
    /// Begins the transaction and keeps everybody out who would enqueue.
    pub(crate) async fn import_begin(&self) -> Result<Import<'_>> {
        const OPERATION: &str = "keep others out during the move";
        let mut s = self.inner.readers.session().await?;
        s.begin().await?;
        s.idle_at_most(SUMS_TIMEOUT).await?;
        s.batch(OPERATION, sql!("import_leader_lock")).await?;
        s.batch(OPERATION, sql!("import_lock")).await?;
        Ok(Import { s, workers: 0 })
    }

    /// Tells the planner what is there now. Without it the first statements are slow, no more.
    pub(crate) async fn import_analyze(&self) {
        let analyzed = async {
            let mut s = self.inner.readers.session().await?;
            s.batch("count its rows", sql!("import_analyze")).await
        };
        if let Err(error) = analyzed.await {
            tracing::debug!(error = &error as &dyn std::error::Error, "cannot analyze after the move");
        }
        self.inner.wake_for_old();
    }
}

impl Import<'_> {
    /// Where the jobs here came from, if they were moved here.
    pub(crate) async fn origin(&mut self) -> Result<Option<Origin>> {
        const OPERATION: &str = "tell where its jobs came from";
        let rows = self.s.rows(OPERATION, sql!("meta_get"), &[(&MOVED_FROM, Type::TEXT)]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let hint = "the row moved_from of stargate.meta is damaged";
        serde_json::from_str(row.get(0)).map(Some).map_err(|error| fatal(OPERATION, hint, error))
    }

    /// Whether jobs are or ever were kept here.
    pub(crate) async fn occupied(&mut self) -> Result<bool> {
        self.s.value("tell whether it is empty", sql!("import_occupied"), &[]).await
    }

    /// Keeps numbers free for the source's workers.
    pub(crate) async fn workers_set_aside(&mut self, last: i64) -> Result<()> {
        const OPERATION: &str = "set numbers for workers aside";
        let offset: i64 =
            self.s.value(OPERATION, sql!("import_workers_set_aside"), &[(&last, Type::INT8)]).await?;
        self.workers =
            i32::try_from(offset).map_err(|_| fatal(OPERATION, "there are too many workers", "overflow"))?;
        Ok(())
    }

    /// Writes rows; answers how many.
    pub(crate) async fn rows(&mut self, table: Table, json: &str) -> Result<u64> {
        const OPERATION: &str = "write the rows of a move";
        let rows = (&json as _, Type::TEXT);
        let workers = (&self.workers as _, Type::INT4);
        let count: i64 = match statement(table) {
            Statement::Plain(sql) => self.s.value(OPERATION, sql, &[rows]).await?,
            Statement::Workers(sql) => self.s.value(OPERATION, sql, &[rows, workers]).await?,
        };
        u64::try_from(count).map_err(|_| transient(OPERATION, "a negative count"))
    }

    /// Makes a table that directives write to.
    pub(crate) async fn sink(&mut self, table: &Sink) -> Result<()> {
        sink::ensure(&mut self.s, sink::Registry::Own, None, table).await
    }

    /// Writes rows of a sink; answers how many.
    pub(crate) async fn sink_rows(&mut self, table: &Sink, json: &str) -> Result<u64> {
        const OPERATION: &str = "write the rows of a sink";
        let text = import_text(table);
        let asks = [Ask::new(&text, [(&json as _, Type::TEXT)])];
        let answers = self.s.rows_together(OPERATION, &asks).await?;
        let count: i64 = answers.first().and_then(|rows| rows.first()).map_or(0, |row| row.get(0));
        u64::try_from(count).map_err(|_| transient(OPERATION, "a negative count"))
    }

    /// Has new numbers begin after the old ones.
    pub(crate) async fn counters(&mut self, counters: &Counters) -> Result<()> {
        let params = [
            (&counters.job as _, Type::INT8),
            (&counters.lane as _, Type::INT8),
            (&counters.vtime as _, Type::INT8),
            (&counters.epoch as _, Type::INT8),
        ];
        self.s.rows("raise its counters", sql!("import_counters"), &params).await?;
        self.s.rows("raise its counters", sql!("import_git_counters"), &[]).await?;
        let params = [(&counters.announcement as _, Type::INT8), (&counters.quarantined as _, Type::INT8)];
        self.s.rows("raise its counters", sql!("import_directive_counters"), &params).await?;
        let params = [(&counters.action as _, Type::INT8)];
        self.s.rows("raise its counters", sql!("import_audit_counter"), &params).await.map(drop)
    }

    /// Rows and a sum over the contents of each table that must arrive unchanged.
    pub(crate) async fn sums(&mut self) -> Result<HashMap<String, (i64, i64)>> {
        let params = [(&self.workers as _, Type::INT4)];
        let rows = self.s.rows_within(SUMS_TIMEOUT, "sum its rows up", sql!("transfer_sum"), &params).await?;
        Ok(rows.iter().map(|row| (row.get(0), (row.get(1), row.get(2)))).collect())
    }

    /// Keeps where the jobs came from, and has everybody woken by the commit.
    pub(crate) async fn finish(&mut self, origin: &Origin) -> Result<()> {
        const OPERATION: &str = "finish the move";
        self.s.rows(OPERATION, sql!("import_limits_apply"), &[]).await?;
        let value = serde_json::to_string(origin).map_err(|error| transient(OPERATION, error))?;
        let params = [(&MOVED_FROM as _, Type::TEXT), (&value as _, Type::TEXT)];
        self.s.rows(OPERATION, sql!("meta_put"), &params).await.map(drop)
    }

    /// Makes all of it visible at once.
    pub(crate) async fn commit(&mut self) -> Result<()> {
        self.s.commit().await
    }
}

enum Statement {
    Plain(&'static str),
    /// Takes what is added to workers' numbers.
    Workers(&'static str),
}

fn statement(table: Table) -> Statement {
    use Statement::{Plain, Workers};
    match table {
        Table::Kind => Plain(sql!("import_kind")),
        Table::Lane => Plain(sql!("import_lane")),
        Table::Worker => Workers(sql!("import_worker")),
        Table::LimitRule => Plain(sql!("import_limit_rule")),
        Table::LimitKey => Plain(sql!("import_limit_key")),
        Table::Pause => Plain(sql!("import_pause")),
        Table::Schedule => Plain(sql!("import_schedule")),
        Table::Idempotency => Plain(sql!("import_idempotency")),
        Table::JobHistory => Workers(sql!("import_job_history")),
        Table::Job => Workers(sql!("import_job")),
        Table::JobEvent => Plain(sql!("import_job_event")),
        Table::JobParent => Plain(sql!("import_job_parent")),
        Table::JobCancel => Workers(sql!("import_job_cancel")),
        Table::SourceLink => Plain(sql!("import_source_link")),
        Table::LeaderTerm => Plain(sql!("import_leader_term")),
        Table::Repo => Plain(sql!("import_repo")),
        Table::PushEvent => Plain(sql!("import_push_event")),
        Table::Webhook => Plain(sql!("import_webhook")),
        Table::WebhookOutbox => Plain(sql!("import_webhook_outbox")),
        Table::Token => Plain(sql!("import_token")),
        Table::Audit => Plain(sql!("import_audit")),
        Table::Kv => Plain(sql!("import_kv")),
        Table::KvOverride => Plain(sql!("import_kv_override")),
        Table::DirectiveRun => Plain(sql!("import_directive_run")),
        Table::DirectiveQuarantine => Plain(sql!("import_directive_quarantine")),
        Table::DirectiveOutbox => Plain(sql!("import_directive_outbox")),
        Table::DirectiveSink => Plain(sql!("import_directive_sink")),
    }
}
