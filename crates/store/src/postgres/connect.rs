//! Connections: each has one purpose, is made when first used, and is replaced when it breaks.
//!
//! Nothing here depends on the session: behind PgBouncer in transaction mode every transaction may run on another
//! server connection. Prepared statements are kept for each connection; where a pooler loses them, statements are sent
//! whole from then on.

mod copy;
mod together;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use stargate_base::{Backoff, Tasks};
use stargate_queue::Result;
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{CancelToken, Client, Config, NoTls, Row, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::{self, TimedOut, transient, translate};
pub(crate) use together::Ask;

/// How long a statement may take before the connection counts as dead, unless the options say otherwise.
pub(crate) const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long making a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a server may take to be left.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// After so much silence the kernel asks whether the server is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);

/// A parameter with its type: statements can then be prepared or sent whole alike.
pub(crate) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// For the few statements that run all the time: they are planned once, for every amount of data. A plan made while
/// the table was small must not read all of it when it has grown, and compiling costs more than it saves.
///
/// No statement of ours is worth starting further processes for, here and below: each takes milliseconds to come up, and
/// a busy server has no core to spare.
const STEADY: &str = "-c jit=off -c plan_cache_mode=force_generic_plan -c enable_seqscan=off \
                      -c max_parallel_workers_per_gather=0";

/// For claims: the same, and always in the order of the index. The few best rows of a lane are wanted, and to find all of it and
/// sort it looks cheap where the statistics take the lane for empty.
const ORDERED: &str = "-c jit=off -c plan_cache_mode=force_generic_plan -c enable_seqscan=off \
                       -c enable_bitmapscan=off -c max_parallel_workers_per_gather=0";

/// For everything else: planned anew for what is asked, because a page of fifty and all rows want different plans. The
/// statistics may not know yet that a table has grown, so rows are read in the order of an index wherever one fits, never
/// all of them to be sorted.
const FITTED: &str = "-c jit=off -c plan_cache_mode=force_custom_plan -c enable_seqscan=off \
                      -c enable_bitmapscan=off -c max_parallel_workers_per_gather=0";

/// How the server is to plan the statements of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Planning {
    /// The same way always.
    Steady,
    /// The same way always, and by the order of an index.
    Ordered,
    /// For the values at hand.
    Fitted,
    /// As the server does by itself: for statements and tables that are not ours.
    Theirs,
}

/// Makes connections.
pub(crate) struct Connector {
    config: Config,
    /// The same without our own settings, for poolers that refuse them. Nothing but speed depends on them.
    bare: Config,
    refused: AtomicBool,
    tls: Option<MakeRustlsConnect>,
    patience: Duration,
    tasks: Tasks,
    /// Statements are sent whole, because something in between does not keep prepared ones or none runs twice.
    unprepared: AtomicBool,
}

/// A connection that has just been made: the client, and what moves its bytes.
pub(crate) enum Made {
    Plain(Client, Box<tokio_postgres::Connection<tokio_postgres::Socket, tokio_postgres::tls::NoTlsStream>>),
    Tls(
        Client,
        Box<
            tokio_postgres::Connection<
                tokio_postgres::Socket,
                <MakeRustlsConnect as tokio_postgres::tls::MakeTlsConnect<tokio_postgres::Socket>>::Stream,
            >,
        >,
    ),
}

impl Connector {
    /// A maker of connections to `url` whose statements may take as long as `patience`; their drivers run as `tasks`.
    pub(crate) fn new(
        url: &str,
        planning: Planning,
        pooled: bool,
        patience: Duration,
        tasks: Tasks,
    ) -> Result<Self> {
        let (mut config, tls) = super::tls::read_url(url)?;
        config.connect_timeout(CONNECT_TIMEOUT).keepalives_idle(KEEPALIVE_IDLE);
        if config.get_application_name().is_none() {
            config.application_name("stargate");
        }
        let bare = config.clone();
        let ours = match planning {
            Planning::Steady => STEADY,
            Planning::Ordered => ORDERED,
            Planning::Fitted => FITTED,
            Planning::Theirs => "-c jit=off",
        };
        let options =
            config.get_options().map_or_else(|| ours.to_owned(), |theirs| format!("{ours} {theirs}"));
        config.options(options);
        let (refused, unprepared) = (AtomicBool::new(pooled), AtomicBool::new(pooled));
        Ok(Self { config, bare, refused, tls, patience, tasks, unprepared })
    }

    /// Prepares nothing: for a process that runs each statement once.
    pub(crate) fn sending_whole(self) -> Self {
        self.unprepared.store(true, Ordering::Relaxed);
        self
    }

    /// How long a statement may take.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// Makes a connection, without a driver yet.
    pub(crate) async fn make(&self) -> Result<Made> {
        const OPERATION: &str = "connect to the database";
        let making = async {
            if !self.refused.load(Ordering::Relaxed) {
                match self.make_as(&self.config).await {
                    // Protocol violation: how PgBouncer refuses settings it does not know.
                    Err(error) if error.code().is_some_and(|code| code.code() == "08P01") => {
                        self.refused.store(true, Ordering::Relaxed);
                    }
                    made => return made,
                }
            }
            self.make_as(&self.bare).await
        };
        let most = CONNECT_TIMEOUT.min(self.patience);
        match tokio::time::timeout(most, making).await {
            Ok(made) => made.map_err(|e| translate(OPERATION, e)),
            Err(_) => Err(transient(OPERATION, TimedOut(most))),
        }
    }

    async fn make_as(&self, config: &Config) -> Result<Made, tokio_postgres::Error> {
        Ok(match &self.tls {
            None => {
                let (client, driver) = config.connect(NoTls).await?;
                Made::Plain(client, Box::new(driver))
            }
            Some(tls) => {
                let (client, driver) = config.connect(tls.clone()).await?;
                Made::Tls(client, Box::new(driver))
            }
        })
    }

    /// A connection for one who keeps it.
    pub(crate) async fn driven(&self) -> Result<Driven> {
        let (client, driver) = match self.make().await? {
            Made::Plain(client, driver) => (client, self.tasks.spawn(driver)),
            Made::Tls(client, driver) => (client, self.tasks.spawn(driver)),
        };
        Ok(Driven { client: Some(client), driver })
    }

    /// Makes a connection whose driver runs on the runtime of the caller.
    async fn open(&self) -> Result<Open> {
        let client = match self.make().await? {
            Made::Plain(client, driver) => {
                self.tasks.spawn(driver);
                client
            }
            Made::Tls(client, driver) => {
                self.tasks.spawn(driver);
                client
            }
        };
        Ok(Open { client, statements: HashMap::new(), texts: HashMap::new() })
    }
}

/// Ends what a connection has asked for and nobody waits for any more.
pub(crate) struct Cancel(CancelToken);

impl Cancel {
    /// Tells the server.
    pub(crate) async fn send(self, connector: &Connector) {
        let cancelling = async {
            match &connector.tls {
                None => self.0.cancel_query(NoTls).await,
                Some(tls) => self.0.cancel_query(tls.clone()).await,
            }
        };
        // A server that does not hear it has its own limit.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, cancelling).await;
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancel").finish_non_exhaustive()
    }
}

/// A connection of its own, for one who keeps it. Dropped, it is cut.
pub(crate) struct Driven {
    client: Option<Client>,
    driver: JoinHandle<Result<(), tokio_postgres::Error>>,
}

impl Driven {
    /// Runs statements. The connection is closed once this says so.
    pub(crate) fn client(&self) -> &Client {
        self.client.as_ref().expect("only closing takes it away")
    }

    /// What ends a statement of it.
    pub(crate) fn cancel(&self) -> Cancel {
        Cancel(self.client().cancel_token())
    }

    /// Takes leave of the server, if that still listens.
    pub(crate) async fn close(mut self) {
        self.client = None;
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, &mut self.driver).await;
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl fmt::Debug for Driven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driven").finish_non_exhaustive()
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("hosts", &self.config.get_hosts()).finish_non_exhaustive()
    }
}

/// An open connection and what is prepared on it, by the address of the statement's text, or by the text.
struct Open {
    client: Client,
    statements: HashMap<(usize, usize), Statement>,
    texts: HashMap<String, Statement>,
}

impl Open {
    /// Prepares everything anew.
    fn forget(&mut self) {
        self.statements.clear();
        self.texts.clear();
    }
}

/// The place of one connection.
pub(crate) struct Line {
    connector: Arc<Connector>,
    place: Mutex<Place>,
}

#[derive(Default)]
struct Place {
    open: Option<Open>,
    failures: u32,
    not_before: Option<Instant>,
}

impl Line {
    /// A place without a connection yet.
    pub(crate) fn new(connector: Arc<Connector>) -> Self {
        Self { connector, place: Mutex::default() }
    }

    /// The connection for exclusive use, made anew if it broke.
    pub(crate) async fn session(&self) -> Result<Session<'_>> {
        self.within(async { self.ready(self.place.lock().await).await }).await
    }

    /// Bounds the wait for a connection: whoever queues behind others at a server that does not answer must not wait
    /// for each of them in turn.
    async fn within<'a>(&self, session: impl Future<Output = Result<Session<'a>>>) -> Result<Session<'a>> {
        let patience = self.connector.patience;
        match tokio::time::timeout(patience, session).await {
            Ok(session) => session,
            Err(_) => Err(transient("get a connection to the database", TimedOut(patience))),
        }
    }

    async fn ready<'a>(&'a self, mut place: MutexGuard<'a, Place>) -> Result<Session<'a>> {
        if place.open.as_ref().is_none_or(|open| open.client.is_closed()) {
            place.open = None;
            if let Some(instant) = place.not_before.take() {
                tokio::time::sleep_until(instant).await;
            }
            match self.connector.open().await {
                Ok(open) => {
                    place.open = Some(open);
                    place.failures = 0;
                }
                Err(error) => {
                    place.failures += 1;
                    place.not_before = Some(Instant::now() + Backoff::RECONNECT.delay(place.failures));
                    return Err(error);
                }
            }
        }
        Ok(Session { place, connector: &self.connector, in_transaction: false, asking: false })
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").finish_non_exhaustive()
    }
}

/// A few connections for whoever comes first.
#[derive(Debug)]
pub(crate) struct Lines {
    lines: Vec<Line>,
    next: AtomicUsize,
}

impl Lines {
    /// Places for `count` connections.
    pub(crate) fn new(connector: &Arc<Connector>, count: usize) -> Self {
        let lines = (0..count).map(|_| Line::new(connector.clone())).collect();
        Self { lines, next: AtomicUsize::new(0) }
    }

    /// A free connection, or the next one in turn.
    pub(crate) async fn session(&self) -> Result<Session<'_>> {
        for line in &self.lines {
            if let Ok(place) = line.place.try_lock() {
                return line.within(line.ready(place)).await;
            }
        }
        self.lines[self.next.fetch_add(1, Ordering::Relaxed) % self.lines.len()].session().await
    }
}

/// A connection in exclusive use. Dropped within a transaction, it closes the connection, and the server rolls back.
/// Dropped while a statement is under way, it closes it as well: whoever asked has given up on the answer, and a
/// connection that has gone dead without a word would otherwise be asked again and again.
pub(crate) struct Session<'a> {
    place: MutexGuard<'a, Place>,
    connector: &'a Connector,
    in_transaction: bool,
    /// A statement is under way.
    asking: bool,
}

impl Session<'_> {
    /// Runs a statement and answers its rows.
    pub(crate) async fn rows(
        &mut self,
        operation: &'static str,
        sql: &'static str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>> {
        self.rows_within(self.connector.patience, operation, sql, params).await
    }

    /// As [`Session::rows`], for a statement that may take longer.
    pub(crate) async fn rows_within(
        &mut self,
        patience: Duration,
        operation: &'static str,
        sql: &'static str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>> {
        match self.run_within(patience, operation, sql, params).await? {
            Err(error) if error::is_lost_statement(&error) && !self.in_transaction => {
                self.whole_from_now_on();
                self.run_within(patience, operation, sql, params).await?.map_err(|e| translate(operation, e))
            }
            Err(error) => {
                self.learn(&error);
                Err(translate(operation, error))
            }
            Ok(rows) => Ok(rows),
        }
    }

    async fn run_within(
        &mut self,
        patience: Duration,
        operation: &'static str,
        sql: &'static str,
        params: &[Param<'_>],
    ) -> Result<Result<Vec<Row>, tokio_postgres::Error>> {
        self.asking = true;
        let answer = tokio::time::timeout(patience, self.run(sql, params)).await;
        self.asking = false;
        answer.map_err(|_| {
            // Whatever the server does with the statement, this connection's next answer would be to the last question.
            self.place.open = None;
            transient(operation, TimedOut(patience))
        })
    }

    /// Runs a statement and answers the first column of its only row.
    pub(crate) async fn value<T>(
        &mut self,
        operation: &'static str,
        sql: &'static str,
        params: &[Param<'_>],
    ) -> Result<T>
    where
        T: for<'r> tokio_postgres::types::FromSql<'r>,
    {
        let rows = self.rows(operation, sql, params).await?;
        let row = rows.first().ok_or_else(|| transient(operation, "the statement answered no row"))?;
        row.try_get(0).map_err(|e| translate(operation, e))
    }

    /// Begins a transaction.
    pub(crate) async fn begin(&mut self) -> Result<()> {
        self.batch("begin a transaction", include_str!("../../sql/postgres/begin.sql")).await?;
        self.in_transaction = true;
        Ok(())
    }

    /// Lets the transaction stand still for so long before the server takes its client for lost.
    pub(crate) async fn idle_at_most(&mut self, time: Duration) -> Result<()> {
        let milliseconds = time.as_millis().to_string();
        let params = [(&milliseconds as _, Type::TEXT)];
        self.rows("begin a transaction", include_str!("../../sql/postgres/idle_max.sql"), &params)
            .await
            .map(drop)
    }

    /// Begins a transaction during which no term can begin. If that fails there may be one all the same, to be rolled back.
    pub(crate) async fn begin_guarded(&mut self) -> Result<()> {
        self.in_transaction = true;
        self.batch("write as leader", include_str!("../../sql/postgres/begin_guarded.sql")).await
    }

    /// Ends the transaction; when it has answered, the changes survive any crash.
    pub(crate) async fn commit(&mut self) -> Result<()> {
        self.batch("commit", include_str!("../../sql/postgres/commit.sql")).await?;
        self.in_transaction = false;
        Ok(())
    }

    /// Ends the transaction without a trace.
    pub(crate) async fn rollback(&mut self) -> Result<()> {
        self.batch("roll back", include_str!("../../sql/postgres/rollback.sql")).await?;
        self.in_transaction = false;
        Ok(())
    }

    /// Runs several statements without parameters.
    pub(crate) async fn batch(&mut self, operation: &'static str, sql: &str) -> Result<()> {
        self.batch_within(self.connector.patience, operation, sql).await
    }

    /// As [`Session::batch`], but waits so long for the answer.
    pub(crate) async fn batch_within(
        &mut self,
        most: Duration,
        operation: &'static str,
        sql: &str,
    ) -> Result<()> {
        let Some(open) = &self.place.open else {
            return Err(transient(operation, "the connection is closed"));
        };
        self.asking = true;
        let answer = tokio::time::timeout(most, open.client.batch_execute(sql)).await;
        self.asking = false;
        match answer {
            Ok(done) => done.map_err(|e| translate(operation, e)),
            Err(_) => {
                self.place.open = None;
                Err(transient(operation, TimedOut(most)))
            }
        }
    }

    async fn run(
        &mut self,
        sql: &'static str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let Some(open) = &mut self.place.open else {
            // Only after a timeout within a transaction: the transaction is gone.
            return Err(tokio_postgres::Error::__private_api_timeout());
        };
        if self.connector.unprepared.load(Ordering::Relaxed) {
            return open.client.query_typed(sql, params).await;
        }
        let address = (sql.as_ptr().addr(), sql.len());
        let statement = match open.statements.get(&address) {
            Some(statement) => statement.clone(),
            None => {
                let types: Vec<Type> = params.iter().map(|(_, kind)| kind.clone()).collect();
                let statement = open.client.prepare_typed(sql, &types).await?;
                open.statements.insert(address, statement.clone());
                statement
            }
        };
        let values: Vec<&(dyn ToSql + Sync)> = params.iter().map(|(value, _)| *value).collect();
        open.client.query(&statement, &values).await
    }

    /// What an error says about prepared statements: that there are none, or that their tables have changed.
    fn learn(&mut self, error: &tokio_postgres::Error) {
        if error::is_lost_statement(error) {
            self.whole_from_now_on();
        }
        if error.code().is_some_and(|c| c.code() == "0A000")
            && let Some(open) = &mut self.place.open
        {
            open.forget();
        }
    }

    fn whole_from_now_on(&mut self) {
        if !self.connector.unprepared.swap(true, Ordering::Relaxed) {
            tracing::info!(
                "a connection pooler does not keep prepared statements; statements are sent whole"
            );
        }
        if let Some(open) = &mut self.place.open {
            open.forget();
        }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if self.in_transaction || self.asking {
            self.place.open = None;
        }
    }
}
