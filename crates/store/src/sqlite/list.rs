//! Pages of jobs, newest first.
//!
//! Every filter becomes a set of streams, each of which finds its next smaller id with one look into an index; a
//! heap merges them. So a page costs as many looks as it has rows and streams, however large the tables are.

use std::collections::BinaryHeap;

use rusqlite::{Connection, OptionalExtension as _};
use stargate_queue::store::{JobFilter, PAGE_MAX};
use stargate_queue::{Error, Job, JobId, State};

use super::error::Step;
use super::read::job;
use super::rows::{micros, state_number};
use super::session::sql;

/// Up to so many lanes, done jobs of all lanes are found lane by lane; beyond, by walking the history.
const LANES_MERGED_MAX: usize = 5000;

/// A source of ids in falling order.
enum Stream {
    /// One look a step: the statement, the lane and the state it is asked for.
    Look { sql: &'static str, lane: i64, state: i64 },
    /// Ids found beforehand, smallest first.
    Found(Vec<i64>),
}

/// A page of jobs.
pub(super) fn jobs(conn: &Connection, filter: &JobFilter) -> Step<Vec<Job>> {
    if !(1..=PAGE_MAX).contains(&filter.limit) {
        let problem = format!("is {}; allowed are 1 to {PAGE_MAX}", filter.limit);
        return Err(Error::invalid("limit", problem).into());
    }
    let before = filter.before.map_or(i64::MAX, |JobId(id)| id);
    let floor = filter.since.map_or(Ok(i64::MIN), |since| first_since(conn, micros(since)))?;
    let mut streams = streams(conn, filter)?;
    let mut heads = BinaryHeap::new();
    for (at, stream) in streams.iter_mut().enumerate() {
        heads.extend(stream.next(conn, before, floor)?.map(|id| (id, at)));
    }
    let mut page = Vec::new();
    while page.len() < filter.limit as usize
        && let Some((id, at)) = heads.pop()
    {
        heads.extend(streams[at].next(conn, id, floor)?.map(|id| (id, at)));
        // The clock may have jumped; what is shown must be right nevertheless.
        page.extend(
            job(conn, JobId(id))?
                .map(|(job, _)| job)
                .filter(|job| filter.since.is_none_or(|since| micros(job.created_at) >= micros(since))),
        );
    }
    Ok(page)
}

impl Stream {
    /// The next id below `before` and not below `floor`.
    fn next(&mut self, conn: &Connection, before: i64, floor: i64) -> Step<Option<i64>> {
        let id = match self {
            Self::Found(ids) => {
                while ids.last().is_some_and(|id| *id >= before) {
                    ids.pop();
                }
                ids.pop()
            }
            Self::Look { sql, lane, state } => {
                let mut look = conn.prepare_cached(sql)?;
                for (at, value) in
                    [before, floor, *lane, *state].into_iter().enumerate().take(look.parameter_count())
                {
                    look.raw_bind_parameter(at + 1, value)?;
                }
                let mut rows = look.raw_query();
                match rows.next()? {
                    Some(row) => row.get::<_, Option<i64>>(0)?,
                    None => None,
                }
            }
        };
        Ok(id.filter(|id| *id >= floor))
    }
}

/// The streams that together hold what the filter lets through, each id once.
fn streams(conn: &Connection, filter: &JobFilter) -> Step<Vec<Stream>> {
    let wanted = |state| filter.states.is_empty() || filter.states.contains(&state);
    let lanes = match (&filter.queue, &filter.kind) {
        (None, None) => None,
        _ => Some(lanes(conn, filter)?),
    };
    let mut streams = Vec::new();
    hot(conn, &mut streams, lanes.as_deref(), wanted(State::Queued), wanted(State::Processing))?;
    let finished: Vec<State> =
        [State::Done, State::Failed, State::Cancelled].into_iter().filter(|state| wanted(*state)).collect();
    if let Some(lanes) = lanes {
        streams.extend(finished.into_iter().flat_map(|state| by_lane(&lanes, state)));
    } else if finished.len() == 3 {
        streams.push(look(sql!("job_history_page"), 0, 0));
    } else {
        for state in finished {
            finished_in(conn, &mut streams, state)?;
        }
    }
    Ok(streams)
}

/// Unfinished jobs.
fn hot(
    conn: &Connection,
    streams: &mut Vec<Stream>,
    lanes: Option<&[i64]>,
    queued: bool,
    processing: bool,
) -> Step<()> {
    let (all, of_lane) = match (queued, processing) {
        (true, true) => (sql!("job_page"), sql!("job_page_lane")),
        (true, false) => (sql!("job_page_waiting"), sql!("job_page_lane_waiting")),
        (false, true) => {
            streams.push(Stream::Found(held(conn, lanes)?));
            return Ok(());
        }
        (false, false) => return Ok(()),
    };
    match lanes {
        None => streams.push(look(all, 0, 0)),
        Some(lanes) => streams.extend(lanes.iter().map(|lane| look(of_lane, *lane, 0))),
    }
    Ok(())
}

/// Jobs that workers hold; there are never many more than workers have hands.
fn held(conn: &Connection, lanes: Option<&[i64]>) -> Step<Vec<i64>> {
    let mut list = conn.prepare_cached(sql!("job_page_held"))?;
    let rows = list.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let rows: Vec<(i64, i64)> = rows.collect::<Result<_, _>>()?;
    let within = |lane| lanes.is_none_or(|lanes| lanes.binary_search(&lane).is_ok());
    let mut ids: Vec<i64> = rows.into_iter().filter(|(_, lane)| within(*lane)).map(|(id, _)| id).collect();
    ids.sort_unstable();
    Ok(ids)
}

/// Finished jobs in one state, of whatever lane.
fn finished_in(conn: &Connection, streams: &mut Vec<Stream>, state: State) -> Step<()> {
    if state != State::Done {
        streams.push(look(sql!("job_history_page_state"), 0, state_number(state)));
        return Ok(());
    }
    let lanes = lanes(conn, &JobFilter::default())?;
    if lanes.len() <= LANES_MERGED_MAX {
        streams.extend(by_lane(&lanes, state));
    } else {
        streams.push(look(sql!("job_history_page_done"), 0, 0));
    }
    Ok(())
}

fn by_lane(lanes: &[i64], state: State) -> impl Iterator<Item = Stream> {
    lanes.iter().map(move |lane| look(sql!("job_history_page_lane"), *lane, state_number(state)))
}

fn look(sql: &'static str, lane: i64, state: i64) -> Stream {
    Stream::Look { sql, lane, state }
}

/// The lanes that the filter lets through, in order.
fn lanes(conn: &Connection, filter: &JobFilter) -> Step<Vec<i64>> {
    let mut list = conn.prepare_cached(sql!("lane_list"))?;
    let rows = list.query_map((&filter.queue, &filter.kind), |row| row.get(0))?;
    let mut lanes: Vec<i64> = rows.collect::<Result<_, _>>()?;
    lanes.sort_unstable();
    Ok(lanes)
}

/// The smallest id that was created at or after an instant, found by halving: ids and times rise together.
fn first_since(conn: &Connection, since: i64) -> Step<i64> {
    let mut from = conn.prepare_cached(sql!("job_created_from"))?;
    let last: i64 = conn.prepare_cached(sql!("counter_get"))?.query_row(["job_id"], |row| row.get(0))?;
    let (mut low, mut high) = (0, last + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        let found: Option<(i64, i64)> =
            from.query_row([middle], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        match found {
            Some((id, created_at)) if created_at < since => low = id + 1,
            _ => high = middle,
        }
    }
    Ok(low)
}
