//! Rows of a query on a Postgres server. Every page is a transaction of its own that only reads; between pages nothing
//! is held on the server. Statements are sent whole, so that a pooler in between does not matter.

use std::sync::Arc;

use async_trait::async_trait;
use futures::TryStreamExt as _;
use serde_json::json;
use serde_json::value::RawValue;
use stargate_base::{Secret, Tasks};
use stargate_directive::Pointer;
use stargate_directive::source::{Feed, Garbled, Page, Record, Records, SourceError};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::error::{foreign_pointer, null_watermarks, of_connecting, of_postgres, timed_out};
use super::query::{Query, Statement, around};
use super::spool::Spool;
use super::{PAGE_ROWS_MAX, Terms};
use crate::postgres::connect::{Cancel, Connector, Driven, Planning};

/// A query on a Postgres server.
#[derive(Debug)]
pub(super) struct PostgresFeed {
    connector: Arc<Connector>,
    tasks: Tasks,
    client: Option<Driven>,
    /// Ends what the server is doing; there while nobody has heard how it went.
    asked: Option<Cancel>,
    query: Query,
    terms: Terms,
    position: Position,
    span: Option<Span>,
}

/// Where the next page begins. Watermarks are kept as the database writes them.
#[derive(Debug, Clone)]
enum Position {
    Beginning,
    /// With this value: rows may have got it since.
    At(String),
    /// Beyond it: all of its rows were in the page before.
    After(String),
}

/// How far the feed reads.
#[derive(Debug, Clone)]
struct Span {
    last: String,
    /// The watermark's type, as a cast names it.
    kind: String,
}

impl PostgresFeed {
    /// A feed that connects when it is first asked.
    pub(super) fn new(
        url: &Secret,
        pooled: bool,
        query: Query,
        from: &Pointer,
        terms: Terms,
    ) -> Result<Self, SourceError> {
        let tasks = Tasks::new();
        let connector =
            Connector::new(url.reveal(), Planning::Theirs, pooled, terms.page_time_max, tasks.clone())
                .map_err(|error| of_connecting(&error))?;
        Ok(Self {
            connector: Arc::new(connector),
            tasks,
            client: None,
            asked: None,
            query,
            terms,
            position: position(from)?,
            span: None,
        })
    }

    /// A page over the connection, which is kept only if all went well: dropped, it ends the transaction.
    async fn read(&mut self, size: u32) -> Result<Page, SourceError> {
        let driven = match self.client.take().filter(|driven| !driven.client().is_closed()) {
            Some(driven) => driven,
            None => self.connector.driven().await.map_err(|error| of_connecting(&error))?,
        };
        self.asked = Some(driven.cancel());
        let page = self.read_over(driven.client(), size).await;
        self.asked = None;
        let page = page?;
        self.client = Some(driven);
        Ok(page)
    }

    async fn read_over(&mut self, client: &Client, size: u32) -> Result<Page, SourceError> {
        let patience = self.terms.page_time_max.as_millis().to_string();
        let begin = around!("postgres_begin").replace("{patience_ms}", &patience);
        client.batch_execute(&begin).await.map_err(|error| of_postgres(&error, None))?;
        let span = match self.span.clone() {
            Some(span) => Some(span),
            None => self.look(client).await?,
        };
        let (records, last) = match &span {
            Some(span) => self.rows(client, span, size).await?,
            None => (Spool::new(self.terms.scratch.clone()), None),
        };
        let end = include_str!("../../sql/postgres/rollback.sql");
        client.batch_execute(end).await.map_err(|error| of_postgres(&error, None))?;
        let is_last = records.count() < size
            || matches!((&last, &span), (Some(last), Some(span)) if *last == span.last);
        let records = records.finish()?;
        if let Some(last) = last {
            self.position = Position::After(last);
        }
        self.span = span;
        Ok(self.page_of(records, is_last))
    }

    fn page_of(&self, records: Records, is_last: bool) -> Page {
        let next = match &self.position {
            Position::Beginning => Pointer::Null,
            Position::At(value) | Position::After(value) => json!({ "after": value }),
        };
        Page { records, next: Some(next), is_last }
    }

    /// What there is to read; `None` if there are no rows.
    async fn look(&self, client: &Client) -> Result<Option<Span>, SourceError> {
        let asks = self.query.within(around!("postgres_has_nulls"), &[]);
        if value::<bool>(client, &asks).await? == Some(true) {
            let counts = self.query.within(around!("postgres_nulls"), &[]);
            let nulls: i64 = value(client, &counts).await?.unwrap_or_default();
            return Err(null_watermarks(&self.query, nulls));
        }
        let asks = self.query.within(around!("postgres_span"), &[]);
        let rows = client.query_typed(&asks.text, &[]).await.map_err(|e| of_postgres(&e, Some(&asks)))?;
        let Some(row) = rows.first() else { return Ok(None) };
        let kind: String = get(row, 1)?;
        Ok(Some(Span { last: get(row, 0)?, kind: castable(kind) }))
    }

    /// The rows of a page and the last watermark among them.
    async fn rows(
        &self,
        client: &Client,
        span: &Span,
        size: u32,
    ) -> Result<(Spool, Option<String>), SourceError> {
        let statement = self.page_statement(span, size);
        let from = match &self.position {
            Position::Beginning => None,
            Position::At(value) | Position::After(value) => Some(value.as_str()),
        };
        let params: [(&(dyn ToSql + Sync), Type); 2] = [(&from, Type::TEXT), (&span.last, Type::TEXT)];
        let refused = |error: tokio_postgres::Error| of_postgres(&error, Some(&statement));
        let rows = client.query_typed_raw(&statement.text, params).await.map_err(refused)?;
        let mut rows = std::pin::pin!(rows);
        let (mut spool, mut last) = (Spool::new(self.terms.scratch.clone()), None);
        while let Some(row) = rows.try_next().await.map_err(refused)? {
            // A large page goes to a file. Its writes end in the kernel's memory, so they may stand here.
            spool.push(record(get(&row, 0)?))?;
            last = Some(get(&row, 1)?);
        }
        Ok((spool, last))
    }

    fn page_statement(&self, span: &Span, size: u32) -> Statement {
        let compared =
            |sign: &str| format!("stargate_row.{} {sign} $1::text::{}", self.query.watermark(), span.kind);
        let after = match self.position {
            Position::Beginning => "$1::text is null".to_owned(),
            Position::At(_) => compared(">="),
            Position::After(_) => compared(">"),
        };
        let places = [("{after}", after.as_str()), ("{kind}", &span.kind), ("{size}", &size.to_string())];
        self.query.within(around!("postgres_page"), &places)
    }
}

#[async_trait]
impl Feed for PostgresFeed {
    async fn page(&mut self, size: u32) -> Result<Page, SourceError> {
        let most = self.terms.page_time_max;
        let reading = self.read(size.clamp(1, PAGE_ROWS_MAX));
        tokio::time::timeout(most, reading).await.unwrap_or_else(|_| Err(timed_out(most)))
    }

    async fn close(mut self: Box<Self>) {
        if let Some(asked) = self.asked.take() {
            asked.send(&self.connector).await;
        }
        if let Some(client) = self.client.take() {
            client.close().await;
        }
        self.tasks.join().await;
    }
}

fn position(from: &Pointer) -> Result<Position, SourceError> {
    match from {
        Pointer::Null => Ok(Position::Beginning),
        Pointer::Object(fields) => match fields.get("after") {
            Some(Pointer::String(text)) => Ok(Position::At(text.clone())),
            Some(value @ (Pointer::Number(_) | Pointer::Bool(_))) => Ok(Position::At(value.to_string())),
            _ => Err(foreign_pointer()),
        },
        _ => Err(foreign_pointer()),
    }
}

/// Types that mean a length of 1 when a cast names them without one.
fn castable(kind: String) -> String {
    match kind.as_str() {
        "character" => "bpchar".to_owned(),
        "bit" => "varbit".to_owned(),
        _ => kind,
    }
}

fn record(text: String) -> Record {
    RawValue::from_string(text).map_err(|error| Garbled { text: String::new(), problem: error.to_string() })
}

async fn value<T>(client: &Client, statement: &Statement) -> Result<Option<T>, SourceError>
where
    T: for<'r> tokio_postgres::types::FromSql<'r>,
{
    let rows =
        client.query_typed(&statement.text, &[]).await.map_err(|e| of_postgres(&e, Some(statement)))?;
    rows.first().map(|row| get(row, 0)).transpose()
}

fn get<T>(row: &Row, column: usize) -> Result<T, SourceError>
where
    T: for<'r> tokio_postgres::types::FromSql<'r>,
{
    row.try_get(column).map_err(|error| of_postgres(&error, None))
}
