//! What is in the store, read by plain SQL and by nothing of ours.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rusqlite::types::ValueRef;
use tokio::task::JoinSet;
use tokio_postgres::{NoTls, SimpleQueryMessage};

/// A row: its columns as text.
pub(crate) type Row = Vec<Option<String>>;

/// Where to read.
#[derive(Debug, Clone)]
pub(crate) enum Reader {
    /// A file.
    Sqlite(PathBuf),
    /// A server.
    Postgres(String),
}

impl Reader {
    /// The rows of a query in which `@` stands for the schema of our tables, and `µ(column)` for an instant in
    /// microseconds.
    pub(crate) async fn rows(&self, query: &str) -> Result<Vec<Row>> {
        match self {
            Self::Sqlite(path) => {
                let (path, query) = (path.clone(), query.replace(['@', 'µ'], ""));
                let read = tokio::task::spawn_blocking(move || read_sqlite(&path, &query));
                read.await.context("the reader panicked")?
            }
            Self::Postgres(url) => read_postgres(url, &for_postgres(query)).await,
        }
    }

    /// One number.
    pub(crate) async fn number(&self, query: &str) -> Result<i64> {
        let rows = self.rows(query).await?;
        let text = rows.first().and_then(|row| row.first()).and_then(Option::as_deref);
        text.and_then(|text| text.parse().ok()).with_context(|| format!("no number: {query}"))
    }

    /// All tables as text, those that directives write to as well, to look for secrets in.
    pub(crate) async fn dump(&self) -> Result<String> {
        let tables = match self {
            Self::Sqlite(_) => {
                "select name from sqlite_schema where type = 'table' and name not like 'sqlite_%'"
            }
            Self::Postgres(_) => {
                "select table_schema || '.' || table_name from information_schema.tables \
                 where table_schema not in ('pg_catalog', 'information_schema') and table_type = 'BASE TABLE'"
            }
        };
        let mut text = String::new();
        for table in self.rows(tables).await?.into_iter().flatten().flatten() {
            for row in self.rows(&format!("select * from {table}")).await? {
                text.extend(row.into_iter().flatten().map(|column| column + " "));
                text.push('\n');
            }
        }
        Ok(text)
    }
}

fn for_postgres(query: &str) -> String {
    let mut out = String::new();
    let mut rest = query;
    while let Some((before, after)) = rest.split_once("µ(") {
        let (column, tail) = after.split_once(')').unwrap_or((after, ""));
        out += &format!("{before}(extract(epoch from {column}) * 1000000)::bigint");
        rest = tail;
    }
    (out + rest).replace('@', "stargate.")
}

fn read_sqlite(path: &PathBuf, query: &str) -> Result<Vec<Row>> {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let connection = rusqlite::Connection::open_with_flags(path, flags).context("cannot open the store")?;
    connection.busy_timeout(Duration::from_secs(20)).context("cannot wait for the store")?;
    let mut statement = connection.prepare(query).with_context(|| query.to_owned())?;
    let columns = statement.column_count();
    let rows = statement.query_map([], |row| {
        let text = |at| {
            Ok(match row.get_ref(at)? {
                ValueRef::Null => None,
                ValueRef::Integer(number) => Some(number.to_string()),
                ValueRef::Real(number) => Some(number.to_string()),
                ValueRef::Text(text) | ValueRef::Blob(text) => {
                    Some(String::from_utf8_lossy(text).into_owned())
                }
            })
        };
        (0..columns).map(text).collect::<rusqlite::Result<Row>>()
    });
    rows.and_then(Iterator::collect).with_context(|| query.to_owned())
}

async fn read_postgres(url: &str, query: &str) -> Result<Vec<Row>> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.context("cannot reach the store")?;
    let mut tasks = JoinSet::new();
    tasks.spawn(connection);
    let answer = client.simple_query(query).await.with_context(|| query.to_owned())?;
    let row = |message| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect())
        }
        _ => None,
    };
    Ok(answer.into_iter().filter_map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_put_into_the_words_of_postgres() {
        assert_eq!(
            for_postgres("select id, µ(at), µ(now) from @job where x"),
            "select id, (extract(epoch from at) * 1000000)::bigint, (extract(epoch from now) * 1000000)::bigint \
             from stargate.job where x"
        );
    }
}
