//! What a writing command works with: the connection, what is remembered between commands, and the counts that
//! are written once at the command's end.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _};
use stargate_base::Clock;
use stargate_queue::limits::{Limit, applying};
use stargate_queue::{Error, KindSpec, Stage};

use super::error::Step;
use super::rows::{micros, read_limit};

/// A statement kept in `sql/sqlite`.
macro_rules! sql {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/sqlite/", $name, ".sql"))
    };
}
pub(super) use sql;

/// What jobs of one line have in common.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) id: i64,
    pub(super) queue: Arc<str>,
    pub(super) kind: Arc<str>,
    /// Empty when the jobs have no limit key.
    pub(super) key: Arc<str>,
}

/// Where a job is counted: the four stages, then failed jobs that are kept.
const FAILED: usize = 4;

/// What a writing command works with.
#[derive(Debug)]
pub(super) struct Session<'c> {
    pub(super) conn: &'c Connection,
    /// The store's time for this command, in microseconds.
    pub(super) now: i64,
    /// Set by a command after which somebody may find something to claim or to cancel.
    pub(super) wake: bool,
    /// Whether a commit returns only when it is on the disk.
    pub(super) waits_for_disk: bool,
    /// The driver's error that made the last command fail.
    pub(super) fault: Option<Arc<rusqlite::Error>>,
    clock: Clock,
    lanes: HashMap<i64, Arc<Lane>>,
    lanes_by_name: HashMap<String, Arc<Lane>>,
    kinds: HashMap<String, KindSpec>,
    workers: HashMap<i64, Option<String>>,
    counts: HashMap<i64, [i64; 5]>,
    released: HashMap<Arc<str>, u32>,
    name: String,
}

impl<'c> Session<'c> {
    pub(super) fn new(conn: &'c Connection, clock: Clock) -> Self {
        Self {
            conn,
            now: 0,
            wake: false,
            waits_for_disk: true,
            fault: None,
            clock,
            lanes: HashMap::new(),
            lanes_by_name: HashMap::new(),
            kinds: HashMap::new(),
            workers: HashMap::new(),
            counts: HashMap::new(),
            released: HashMap::new(),
            name: String::new(),
        }
    }

    /// Begins a command: its time is the store's time now.
    pub(super) fn begin(&mut self) -> Step<()> {
        self.now = now(self.conn, &self.clock)?;
        Ok(())
    }

    /// Ends a command: writes what was counted.
    pub(super) fn end(&mut self) -> Step<()> {
        self.flush()
    }

    /// Forgets what may have been rolled back, or changed by another process.
    pub(super) fn forget(&mut self) {
        self.lanes.clear();
        self.lanes_by_name.clear();
        self.forget_foreign();
        self.counts.clear();
        self.released.clear();
    }

    /// Forgets what another process may have changed. Lanes and workers' names never change.
    pub(super) fn forget_foreign(&mut self) {
        self.kinds.clear();
    }

    /// Writes the counts gathered so far.
    pub(super) fn flush(&mut self) -> Step<()> {
        if !self.counts.is_empty() {
            let mut add = self.conn.prepare_cached(sql!("lane_count_add"))?;
            for (lane, [ready, delayed, blocked, processing, failed]) in self.counts.drain() {
                add.execute((lane, ready, delayed, blocked, processing, failed))?;
            }
        }
        if !self.released.is_empty() {
            let mut release = self.conn.prepare_cached(sql!("limit_key_released"))?;
            for (key, count) in self.released.drain() {
                let concurrency: Option<Option<i64>> =
                    release.query_row((&*key, count), |row| row.get(0)).optional()?;
                self.wake |= concurrency.flatten().is_some();
            }
        }
        Ok(())
    }

    /// Counts a job out of a stage of its lane.
    pub(super) fn leave(&mut self, lane: i64, stage: Stage) {
        self.count(lane, stage as usize, -1);
    }

    /// Counts a job into a stage of its lane.
    pub(super) fn enter(&mut self, lane: i64, stage: Stage) {
        self.count(lane, stage as usize, 1);
    }

    /// Counts failed jobs that are kept.
    pub(super) fn failed(&mut self, lane: i64, change: i64) {
        self.count(lane, FAILED, change);
    }

    fn count(&mut self, lane: i64, place: usize, change: i64) {
        self.counts.entry(lane).or_default()[place] += change;
    }

    /// A worker no longer holds a job of this lane: its key's running count falls.
    pub(super) fn release(&mut self, lane: i64) -> Step<()> {
        let key = Arc::clone(&self.lane(lane)?.key);
        if !key.is_empty() {
            *self.released.entry(key).or_default() += 1;
        }
        Ok(())
    }

    /// Hands out `count` job ids; answers the first.
    pub(super) fn take_ids(&self, count: usize) -> Step<i64> {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        Ok(self.counter_add("job_id", count)? - count + 1)
    }

    /// Raises a counter and answers its new value.
    pub(super) fn counter_add(&self, name: &str, by: i64) -> Step<i64> {
        Ok(self.conn.prepare_cached(sql!("counter_add"))?.query_row((name, by), |row| row.get(0))?)
    }

    /// A lane by its number.
    pub(super) fn lane(&mut self, id: i64) -> Step<Arc<Lane>> {
        if let Some(lane) = self.lanes.get(&id) {
            return Ok(Arc::clone(lane));
        }
        let lane = self.conn.prepare_cached(sql!("lane_get"))?.query_row([id], |row| {
            let text = |i| row.get::<_, String>(i).map(Arc::from);
            Ok(Lane { id, queue: text(0)?, kind: text(1)?, key: text(2)? })
        })?;
        Ok(self.remember(lane))
    }

    /// The lane of a queue, kind and key, made when it is new.
    pub(super) fn lane_of(&mut self, queue: &str, kind: &str, key: &str) -> Step<Arc<Lane>> {
        self.name.clear();
        for part in [queue, "\0", kind, "\0", key] {
            self.name.push_str(part);
        }
        if let Some(lane) = self.lanes_by_name.get(&self.name) {
            return Ok(Arc::clone(lane));
        }
        let found: Option<i64> = self
            .conn
            .prepare_cached(sql!("lane_find"))?
            .query_row((queue, kind, key), |r| r.get(0))
            .optional()?;
        let id = match found {
            Some(id) => id,
            None => {
                self.ensure_key(key)?;
                self.conn
                    .prepare_cached(sql!("lane_insert"))?
                    .query_row((queue, kind, key), |row| row.get(0))?
            }
        };
        Ok(self.remember(Lane { id, queue: queue.into(), kind: kind.into(), key: key.into() }))
    }

    fn remember(&mut self, lane: Lane) -> Arc<Lane> {
        let lane = Arc::new(lane);
        let name = format!("{}\0{}\0{}", lane.queue, lane.kind, lane.key);
        self.lanes_by_name.insert(name, Arc::clone(&lane));
        self.lanes.insert(lane.id, Arc::clone(&lane));
        lane
    }

    /// A key's row exists from its first lane on.
    fn ensure_key(&self, key: &str) -> Step<()> {
        if key.is_empty() {
            return Ok(());
        }
        let rules = limits(self.conn)?;
        let rule = applying(&rules, key);
        let rate = rule.and_then(|rule| rule.rate);
        self.conn.prepare_cached(sql!("limit_key_ensure"))?.execute((
            key,
            rule.and_then(|rule| rule.concurrency),
            rate.map(|rate| rate.count),
            rate.map(|rate| millis(rate.per)),
            rule.map_or(1, |rule| rule.weight),
            self.now,
        ))?;
        Ok(())
    }

    /// A kind that has been registered.
    pub(super) fn kind(&mut self, name: &str) -> Step<&KindSpec> {
        if !self.kinds.contains_key(name) {
            self.kinds = kinds(self.conn)?.into_iter().map(|kind| (kind.name.clone(), kind)).collect();
        }
        self.kinds.get(name).ok_or_else(|| {
            let mut known: Vec<String> = self.kinds.keys().cloned().collect();
            known.sort();
            Error::UnknownKind { kind: name.to_owned(), known }.into()
        })
    }

    /// A worker's name, for the timeline.
    pub(super) fn worker_name(&mut self, id: Option<i64>) -> Step<Option<String>> {
        let Some(id) = id else { return Ok(None) };
        if !self.workers.contains_key(&id) {
            let name = self
                .conn
                .prepare_cached(sql!("worker_name"))?
                .query_row([id], |row| row.get(0))
                .optional()?;
            if self.workers.len() >= 10_000 {
                self.workers.clear();
            }
            self.workers.insert(id, name);
        }
        Ok(self.workers.get(&id).cloned().flatten())
    }

    /// Adds a row to a job's timeline.
    pub(super) fn event(&self, job: i64, seq: i64, at: i64, event: &str, data: &str) -> Step<()> {
        self.conn.prepare_cached(sql!("job_event_insert"))?.execute((job, seq, at, event, data))?;
        Ok(())
    }
}

/// The store's time in microseconds.
pub(super) fn now(conn: &Connection, clock: &Clock) -> Step<i64> {
    let given = clock.for_statement().map(micros);
    Ok(conn.prepare_cached(sql!("clock_now"))?.query_row([given], |row| row.get(0))?)
}

/// The known kinds, by name.
pub(super) fn kinds(conn: &Connection) -> Step<Vec<KindSpec>> {
    let mut list = conn.prepare_cached(sql!("kind_list"))?;
    let rows = list.query_map([], |row| {
        Ok(KindSpec { name: row.get(0)?, max_attempts: row.get(1)?, max_crashes: row.get(2)? })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The limits, most specific first.
pub(super) fn limits(conn: &Connection) -> Step<Vec<Limit>> {
    let mut list = conn.prepare_cached(sql!("limit_rule_list"))?;
    let rows = list.query_map([], read_limit)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// A duration as the columns keep it.
pub(super) fn millis(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 2000)
}
