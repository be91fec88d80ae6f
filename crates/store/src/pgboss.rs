//! Jobs that an application sends with pg-boss, a queue for Node.js in Postgres: taken from its tables, run here, and
//! ended there, so that the application sees them as its own.
//!
//! pg-boss knows nothing of us. What tells our claim of a job from anybody else's is what pg-boss itself keeps of one:
//! `retry_count`, `retry_limit` and the exact `started_on` that we wrote. Every claim, expiry, retry, restoration or
//! resumption by pg-boss changes one of them or the state, so one comparison fences every write of ours, against its
//! workers, its maintenance and its users alike.
//!
//! pg-boss gives an active job up when it takes longer than `expire_seconds`, counted from `started_on`, or is silent for
//! longer than `heartbeat_seconds`. While a job is unfinished here the former is raised, to half a minute at least, and the
//! latter's time renewed; at its end the former is put back.

mod mark;
mod output;
mod statements;
mod take;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde_json::value::RawValue;
use stargate_base::Tasks;
use stargate_queue::intake::{Accept, Claim, Ending, EndingOutcome, Settled, Source, Standing, Taken};
use stargate_queue::job::check_name;
use stargate_queue::{Error, Result};
use tokio_postgres::types::Type;

use crate::postgres::connect::{Connector, Line, Planning, STATEMENT_TIMEOUT, Session};
use crate::postgres::error::is_unique_key_taken;
use mark::{Mark, Marks};
use statements::Statements;

/// The pg-boss schemas this program knows.
pub const VERSIONS: std::ops::RangeInclusive<i32> = 44..=46;
/// The name its links are kept under.
const NAME: &str = "pgboss";
/// How long a look at the schema's version counts: the application may be upgraded while we run.
const VERSION_AGE: Duration = Duration::from_secs(60);

/// How pg-boss is reached.
#[derive(Debug, Clone)]
pub struct Options {
    /// The schema it lives in: a name as pg-boss takes it, in double quotes where capital letters matter.
    pub schema: String,
    /// The queues whose jobs are run here.
    pub queues: Vec<String>,
    /// The URL leads to a pooler that does not keep prepared statements. Found out by itself when absent.
    pub pooled: bool,
    /// How long a statement may take; 30 s when absent.
    pub statement_timeout: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self { schema: "pgboss".to_owned(), queues: Vec::new(), pooled: false, statement_timeout: None }
    }
}

/// What a look at pg-boss found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The version of its schema.
    pub version: i32,
    /// Queues that are to be served and that nobody has created yet.
    pub queues_missing: Vec<String>,
}

/// A pg-boss database.
#[derive(Debug)]
pub struct PgBoss {
    queues: Vec<String>,
    sql: &'static Statements,
    /// For the transactions that take jobs.
    taking: Line,
    /// For everything else, so that a take under way holds nothing up.
    keeping: Line,
    /// The queue that the next take begins with.
    turn: AtomicUsize,
    version_seen: Mutex<Option<Instant>>,
    tasks: Tasks,
}

impl PgBoss {
    /// Reads the settings; connects when first used.
    pub fn new(dsn: &str, options: Options) -> Result<Self> {
        if options.queues.is_empty() {
            return Err(Error::invalid(
                "queues",
                "names none; name the pg-boss queues whose jobs are to be run here",
            ));
        }
        options.queues.iter().try_for_each(|queue| check_name("queues", queue))?;
        let sql = statements::of_schema(&options.schema)?;
        let tasks = Tasks::new();
        let patience = options.statement_timeout.unwrap_or(STATEMENT_TIMEOUT);
        let connector =
            Arc::new(Connector::new(dsn, Planning::Fitted, options.pooled, patience, tasks.clone())?);
        Ok(Self {
            queues: options.queues,
            sql,
            taking: Line::new(connector.clone()),
            keeping: Line::new(connector),
            turn: AtomicUsize::new(0),
            version_seen: Mutex::new(None),
            tasks,
        })
    }

    /// Answers when pg-boss is reachable and has a schema that this program knows.
    pub async fn check(&self) -> Result<Report> {
        self.checked().await.map_err(explain)
    }

    async fn checked(&self) -> Result<Report> {
        let mut s = self.keeping.session().await?;
        let version: i32 = s.value("tell the schema of pg-boss", self.sql.version, &[]).await?;
        if !VERSIONS.contains(&version) {
            let problem = format!(
                "has pg-boss with schema version {version}; supported are {} to {} (pg-boss 12); {}",
                VERSIONS.start(),
                VERSIONS.end(),
                if version < *VERSIONS.start() { "upgrade pg-boss" } else { "use a newer stargate" },
            );
            return Err(Error::invalid("sources.pgboss", problem));
        }
        let params = [(&self.queues as _, Type::TEXT_ARRAY)];
        let rows = s.rows("list the queues of pg-boss", self.sql.queue_missing, &params).await?;
        *self.version_seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        Ok(Report { version, queues_missing: rows.iter().map(|row| row.get(0)).collect() })
    }

    /// Closes the connections and waits for what drives them.
    pub async fn close(self) {
        let tasks = self.tasks.clone();
        drop(self);
        tasks.join().await;
    }

    fn version_is_fresh(&self) -> bool {
        let seen = *self.version_seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.is_some_and(|seen| seen.elapsed() < VERSION_AGE)
    }

    async fn look_at(&self, marks: &[Mark]) -> Result<Vec<Standing>> {
        let mut s = self.keeping.session().await?;
        let asked = Marks::of(marks.iter());
        let rows = s.rows("look at jobs of pg-boss", self.sql.job_look, &asked.params()).await?;
        let mut keep = Vec::new();
        let mut standings = Vec::with_capacity(marks.len());
        for (mark, row) in marks.iter().zip(&rows) {
            let (state, ours): (Option<&str>, Option<bool>) = (row.get(0), row.get(1));
            standings.push(match (state, ours == Some(true)) {
                (Some("active"), true) => {
                    let (left, whole) = (row.get::<_, Option<f64>>(2).unwrap_or(0.0), mark.whole(row.get(3)));
                    // In the last two thirds it is given its whole time again.
                    if left > whole / 3.0 * 2.0 {
                        Standing::Ours { safe: Duration::from_secs_f64(left) }
                    } else {
                        keep.push(mark);
                        Standing::Ours { safe: Duration::from_secs_f64(whole) }
                    }
                }
                (Some("created" | "retry"), true) => self.revive(&mut s, mark).await?,
                (Some("created" | "retry"), false) => Standing::Waiting,
                _ => Standing::Lost,
            });
        }
        if !keep.is_empty() {
            let kept = Marks::of(keep.into_iter());
            let mut params = kept.params().to_vec();
            params.push((&kept.grants_s, Type::INT4_ARRAY));
            s.rows("keep jobs of pg-boss", self.sql.job_keep, &params).await?;
        }
        Ok(standings)
    }

    /// Takes a job back that pg-boss gave up while nobody here could keep it.
    async fn revive(&self, s: &mut Session<'_>, mark: &Mark) -> Result<Standing> {
        let grant = mark.grant_s();
        let mut params = mark.params().to_vec();
        params.push((&grant, Type::INT4));
        match s.rows("take a job of pg-boss back", self.sql.job_revive, &params).await {
            Ok(rows) if rows.is_empty() => Ok(Standing::Waiting),
            Ok(_) => Ok(Standing::Ours { safe: Duration::from_secs_f64(mark.whole(None)) }),
            // Its policy allows one at a time, and another has the place.
            Err(error) if is_unique_key_taken(&error) => Ok(Standing::Waiting),
            Err(error) => Err(error),
        }
    }

    async fn end(
        &self,
        s: &mut Session<'_>,
        mark: &Mark,
        sql: &'static str,
        attempts: u16,
        output: Option<&Option<String>>,
    ) -> Result<Settled> {
        let retries = mark.retries_after(attempts);
        let mut params = mark.params().to_vec();
        params.push((&mark.expire_s, Type::INT4));
        params.push((&retries, Type::INT4));
        if let Some(output) = output {
            params.push((output, Type::TEXT));
        }
        let rows = s.rows("end a job of pg-boss", sql, &params).await?;
        Ok(if rows.is_empty() { Settled::NotOurs } else { Settled::Written })
    }
}

impl Drop for PgBoss {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}

#[async_trait]
impl Source for PgBoss {
    fn name(&self) -> &str {
        NAME
    }

    fn queues(&self) -> &[String] {
        &self.queues
    }

    async fn take(&self, limit: usize, except: &[String], accept: &dyn Accept) -> Result<Taken> {
        if !self.version_is_fresh() {
            self.check().await?;
        }
        let mut taken = Taken::default();
        let begin = self.turn.fetch_add(1, Ordering::Relaxed);
        for n in 0..self.queues.len() {
            let room = limit.saturating_sub(taken.acknowledged.len());
            if room == 0 {
                break;
            }
            let queue = &self.queues[(begin + n) % self.queues.len()];
            if let Err(error) = self.take_from(queue, room, except, accept, &mut taken).await {
                // What other queues gave is ours already.
                if taken == Taken::default() {
                    return Err(explain(error));
                }
                tracing::warn!(
                    queue,
                    error = &error as &dyn std::error::Error,
                    "cannot take jobs of pg-boss"
                );
                break;
            }
        }
        Ok(taken)
    }

    async fn look(&self, items: &[Claim]) -> Result<Vec<Standing>> {
        let marks: Vec<Mark> = items.iter().map(Mark::of).collect::<Result<_>>()?;
        self.look_at(&marks).await.map_err(explain)
    }

    async fn settle(&self, item: &Claim, ending: &Ending) -> Result<Settled> {
        let mark = Mark::of(item)?;
        let attempts = ending.attempts;
        let mut s = self.keeping.session().await.map_err(explain)?;
        let settled = match &ending.outcome {
            EndingOutcome::Done(result) => {
                let output = output::of_result(result.as_deref().map(RawValue::get));
                self.end(&mut s, &mark, self.sql.job_complete, attempts, Some(&output)).await
            }
            EndingOutcome::Failed(error) => {
                let output = output::of_error(error, attempts);
                self.end(&mut s, &mark, self.sql.job_fail, attempts, Some(&output)).await
            }
            EndingOutcome::Cancelled => self.end(&mut s, &mark, self.sql.job_cancel, attempts, None).await,
        };
        settled.map_err(explain)
    }
}

/// Says what to do in terms of pg-boss, where our own tables are not meant.
fn explain(error: Error) -> Error {
    match error {
        Error::Store { operation, class, hint, source } => {
            let code =
                source.downcast_ref::<tokio_postgres::Error>().and_then(|e| e.code()).map(|c| c.code());
            let hint = match code {
                Some("42P01" | "3F000" | "42883" | "42703") => Some(
                    "pg-boss is not in this schema; start the application once, or correct sources.pgboss.schema",
                ),
                Some("42501") => Some("the user lacks a right; it must read and write the tables of pg-boss"),
                _ => hint,
            };
            Error::Store { operation, class, hint, source }
        }
        other => other,
    }
}
