//! Tables of directives on another Postgres server.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use stargate_base::{Secret, Tasks};
use stargate_directive::source::{ForeignSink, Owner, SourceError};
use stargate_directive::{Counts, Item, Table};
use stargate_queue::{Error, Result};
use tokio_postgres::types::Type;

use super::error::{of_connecting, of_sink, unverified};
use super::fence;
use super::query::around;
use crate::directive_rows::check_items;
use crate::postgres::connect::{Connector, Line, Planning, Session};
use crate::postgres::error::{again, code};
use crate::postgres::sink::{self, Registry, Sinks};
use crate::postgres::sink_rows;
use crate::repo_rows::signed;

const OPERATION: &str = "write rows elsewhere";

/// How long a statement may take: batches are small, but the server may be busy.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(120);

/// A Postgres server with tables for rows.
#[derive(Debug)]
pub(super) struct PostgresSink {
    line: Line,
    sinks: Sinks,
    tasks: Tasks,
}

impl PostgresSink {
    /// A sink that connects when it is first used.
    pub(super) fn new(url: &Secret, pooled: bool) -> Result<Self, SourceError> {
        let tasks = Tasks::new();
        let connector =
            Connector::new(url.reveal(), Planning::Theirs, pooled, STATEMENT_TIMEOUT, tasks.clone())
                .map_err(|error| of_connecting(&error))?;
        Ok(Self { line: Line::new(Arc::new(connector)), sinks: Sinks::default(), tasks })
    }

    async fn write(&self, given: &Given<'_>) -> Result<Counts> {
        let (mut tries, table) = (0, given.table);
        loop {
            tries += 1;
            let was_known = self.sinks.texts(table).is_some();
            let result = self.write_once(given, was_known).await;
            let is_gone = result.as_ref().is_err_and(is_table_gone);
            if result.is_err() {
                self.sinks.forget(table);
            }
            let is_worth_it = again(&result, tries) || (was_known && is_gone);
            if !is_worth_it {
                return result;
            }
        }
    }

    async fn write_once(&self, given: &Given<'_>, is_known: bool) -> Result<Counts> {
        let mut s = self.line.session().await?;
        s.begin().await?;
        let result = write_within(&mut s, given, is_known).await;
        let result = result.map_err(|error| sink::of_row(error, given.table, None));
        match result {
            Ok(counts) => {
                s.commit().await?;
                self.sinks.remember(given.table);
                Ok(counts)
            }
            Err(error) => {
                // Dropped with its transaction open, the connection is closed; that ends it as well.
                let _ = s.rollback().await;
                Err(error)
            }
        }
    }
}

/// Somebody dropped or changed the table, or a column of it, since it was looked at.
fn is_table_gone(error: &Error) -> bool {
    matches!(code(error), Some("42P01" | "42703" | "42804"))
}

/// What is to be written, for whom, and under which version of the lease.
struct Given<'b> {
    owner: &'b Owner,
    fence: i64,
    table: &'b Table,
    items: &'b [Item],
}

async fn write_within(s: &mut Session<'_>, given: &Given<'_>, is_known: bool) -> Result<Counts> {
    let Given { owner, table, items, .. } = *given;
    s.rows(OPERATION, around!("postgres_durable"), &[]).await?;
    if !is_known {
        sink::ensure(s, Registry::Foreign, None, table).await?;
    }
    raise_fence(s, owner, given.fence).await?;
    let counts = sink_rows::upsert(s, None, owner, table, items).await?;
    let differing = differing(s, owner, table, items).await?;
    if differing > 0 || counts.total() != items.len() as u64 {
        return Err(unverified(items.len(), differing));
    }
    Ok(counts)
}

async fn raise_fence(s: &mut Session<'_>, owner: &Owner, fence: i64) -> Result<()> {
    let params = [
        (&owner.tenant as _, Type::TEXT),
        (&owner.project as _, Type::TEXT),
        (&owner.directive as _, Type::TEXT),
        (&fence as _, Type::INT8),
    ];
    let highest = s.value(OPERATION, around!("postgres_fence_raise"), &params).await?;
    fence::check(owner, fence, highest)
}

/// How many items are not there with their hash: what was written is not only believed.
async fn differing(s: &mut Session<'_>, owner: &Owner, table: &Table, items: &[Item]) -> Result<usize> {
    let texts = sink_rows::Texts::of(table);
    let sought = sink_rows::Sought::of(items);
    let found = s.rows_together(OPERATION, &[texts.find(owner, &sought)]).await?;
    Ok(found.first().map_or(0, Vec::len))
}

#[async_trait]
impl ForeignSink for PostgresSink {
    async fn upsert(
        &self,
        owner: &Owner,
        fence: u64,
        table: &Table,
        items: Vec<Item>,
    ) -> Result<Counts, SourceError> {
        check_items(table, &items).map_err(|error| of_sink(&error))?;
        let given = Given { owner, fence: signed(fence), table, items: &items };
        self.write(&given).await.map_err(|error| of_sink(&error))
    }
}

impl Drop for PostgresSink {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}
