//! Several statements of a transaction in one round trip.

use futures::future::join_all;

use super::*;

/// Texts prepared on one connection at most; tables of sinks may be many.
const TEXTS_MAX: usize = 256;
/// Statements sent together at most.
const TOGETHER_MAX: usize = 16;

/// A statement with its parameters. Its text need not be known when the program is built.
pub(crate) struct Ask<'a> {
    pub(crate) sql: &'a str,
    pub(crate) params: Vec<Param<'a>>,
}

impl<'a> Ask<'a> {
    /// A statement.
    pub(crate) fn new(sql: &'a str, params: impl Into<Vec<Param<'a>>>) -> Self {
        Self { sql, params: params.into() }
    }

    async fn run(
        &self,
        client: &Client,
        prepared: Option<&Statement>,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let Some(statement) = prepared else { return client.query_typed(self.sql, &self.params).await };
        let values: Vec<&(dyn ToSql + Sync)> = self.params.iter().map(|(value, _)| *value).collect();
        client.query(statement, &values).await
    }
}

impl Session<'_> {
    /// Begins a transaction with these statements.
    pub(crate) async fn begin_with(
        &mut self,
        operation: &'static str,
        asks: &[Ask<'_>],
    ) -> Result<Vec<Vec<Row>>> {
        self.together(operation, true, asks).await
    }

    /// Runs statements of a transaction one after the other without waiting for the answers between them. The first that
    /// fails is answered; those after it fail with it.
    pub(crate) async fn rows_together(
        &mut self,
        operation: &'static str,
        asks: &[Ask<'_>],
    ) -> Result<Vec<Vec<Row>>> {
        self.together(operation, false, asks).await
    }

    async fn together(
        &mut self,
        operation: &'static str,
        begins: bool,
        asks: &[Ask<'_>],
    ) -> Result<Vec<Vec<Row>>> {
        // In their order: more futures than this are not polled in the order in which they are given.
        debug_assert!(asks.len() <= TOGETHER_MAX, "{} statements together", asks.len());
        let patience = self.connector.patience;
        self.asking = true;
        let answer = tokio::time::timeout(patience, self.send(begins, asks)).await;
        self.asking = false;
        match answer {
            Err(_) => {
                self.place.open = None;
                Err(transient(operation, TimedOut(patience)))
            }
            Ok(Err(error)) => {
                self.learn(&error);
                Err(translate(operation, error))
            }
            Ok(Ok(rows)) => Ok(rows),
        }
    }

    async fn send(&mut self, begins: bool, asks: &[Ask<'_>]) -> Result<Vec<Vec<Row>>, tokio_postgres::Error> {
        let Some(open) = &mut self.place.open else {
            return Err(tokio_postgres::Error::__private_api_timeout());
        };
        let prepared = if self.connector.unprepared.load(Ordering::Relaxed) {
            vec![None; asks.len()]
        } else {
            open.prepared(asks).await?
        };
        self.in_transaction |= begins;
        let client = &open.client;
        let begin = async {
            match begins {
                true => client.batch_execute(include_str!("../../../sql/postgres/begin.sql")).await,
                false => Ok(()),
            }
        };
        let answers = join_all(asks.iter().zip(&prepared).map(|(ask, text)| ask.run(client, text.as_ref())));
        let (begun, answers) = futures::join!(begin, answers);
        begun?;
        answers.into_iter().collect()
    }
}

impl Open {
    /// The statements, prepared where they are not yet.
    async fn prepared(&mut self, asks: &[Ask<'_>]) -> Result<Vec<Option<Statement>>, tokio_postgres::Error> {
        let mut prepared = Vec::with_capacity(asks.len());
        for ask in asks {
            let types: Vec<Type> = ask.params.iter().map(|(_, kind)| kind.clone()).collect();
            prepared.push(Some(self.prepared_one(ask.sql, &types).await?));
        }
        Ok(prepared)
    }

    /// A statement, prepared if it is not yet.
    pub(super) async fn prepared_one(
        &mut self,
        sql: &str,
        types: &[Type],
    ) -> Result<Statement, tokio_postgres::Error> {
        if let Some(statement) = self.texts.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare_typed(sql, types).await?;
        if self.texts.len() >= TEXTS_MAX {
            self.texts.clear();
        }
        self.texts.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }
}
