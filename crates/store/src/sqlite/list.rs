//! Pages of jobs, newest first, and how many there are.
//!
//! Every filter becomes a set of streams, each of which finds its next smaller ids with one look into an index; a
//! heap merges them. So a page costs as many looks as it has rows and streams, however large the tables are. What no
//! index answers is asked of the jobs that come out of the heap, as far as [`Scan`] goes.

use std::collections::{BinaryHeap, HashSet};

use rusqlite::{Connection, OptionalExtension as _};
use stargate_queue::listing::{Counted, Found, JobFilter};
use stargate_queue::{Job, JobId, State};

use super::error::Step;
use super::read::job;
use super::rows::{micros, state_number};
use super::session::sql;
use crate::scan::Scan;

/// Up to so many lanes, done jobs of all lanes are found lane by lane; beyond, by walking the history.
const LANES_MERGED_MAX: usize = 5000;
/// Ids that a stream looks up at once: few at first, because most streams of many are hardly read.
const LOOK_FIRST: i64 = 2;
const LOOK_MAX: i64 = 1000;

/// A source of ids in falling order.
struct Stream {
    /// The statement, the lane and the state it is asked for; none when all ids were found beforehand.
    look: Option<(&'static str, i64, i64)>,
    /// Ids found already, smallest first.
    found: Vec<i64>,
    /// How many to look up next.
    batch: i64,
}

/// What every look of a listing has in common.
struct Bounds<'f> {
    conn: &'f Connection,
    /// No smaller id.
    floor: i64,
    code: Option<&'f str>,
}

/// Streams merged: ids in falling order.
struct Merge<'f> {
    bounds: Bounds<'f>,
    streams: Vec<Stream>,
    heads: BinaryHeap<(i64, usize)>,
    /// The last id that was taken.
    taken: Option<i64>,
}

/// A page of jobs, and where the next one begins.
pub(super) fn found(conn: &Connection, filter: &JobFilter) -> Step<Found> {
    filter.check()?;
    let mut merge = Merge::new(conn, filter)?;
    let mut jobs = Vec::new();
    let mut scan = filter.scans().then(Scan::new);
    let full = |jobs: &Vec<Job>| jobs.len() >= filter.limit as usize;
    loop {
        let wanted = match &scan {
            Some(scan) => scan.next(),
            None => Some(filter.limit as usize - jobs.len()),
        };
        let Some(wanted) = wanted else {
            return Ok(Found { jobs, next_before: merge.last_taken(), scanned_all: false });
        };
        let ids = merge.take(wanted)?;
        let fits = match &mut scan {
            Some(scan) => Some(fitting(conn, filter, &ids, scan)?),
            None => None,
        };
        for id in &ids {
            if fits.as_ref().is_some_and(|fits| !fits.contains(id)) {
                continue;
            }
            jobs.extend(within(conn, filter, *id)?);
            if full(&jobs) {
                let more = Some(id) != ids.last() || merge.has_more();
                return Ok(Found { jobs, next_before: more.then_some(JobId(*id)), scanned_all: true });
            }
        }
        if !merge.has_more() {
            return Ok(Found { jobs, next_before: None, scanned_all: true });
        }
    }
}

/// How many jobs there are, counted no further than `up_to`.
pub(super) fn count(conn: &Connection, filter: &JobFilter, up_to: u64) -> Step<Counted> {
    JobFilter { limit: 1, ..filter.clone() }.check()?;
    let mut merge = Merge::new(conn, filter)?;
    if !filter.scans() {
        return Ok(Counted { count: merge.count(up_to)?, scanned_all: true });
    }
    let (mut scan, mut count) = (Scan::new(), 0_u64);
    while count < up_to && merge.has_more() {
        let Some(wanted) = scan.next() else { return Ok(Counted { count, scanned_all: false }) };
        let ids = merge.take(wanted)?;
        count += fitting(conn, filter, &ids, &mut scan)?.len() as u64;
    }
    Ok(Counted { count: count.min(up_to), scanned_all: true })
}

/// Those of the jobs in which the text occurs, and whose error has the code.
fn fitting(conn: &Connection, filter: &JobFilter, ids: &[i64], scan: &mut Scan) -> Step<HashSet<i64>> {
    let mut look = conn.prepare_cached(sql!("job_fits"))?;
    let list = serde_json::to_string(ids).expect("numbers always serialise");
    let text = filter.search.as_ref().map(|text| text.to_ascii_lowercase());
    let rows = look.query_map((list, &filter.code, text), |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, bool>(1)?, row.get::<_, i64>(2)?))
    })?;
    let (mut fits, mut bytes) = (HashSet::new(), 0);
    for row in rows {
        let (id, fit, size) = row?;
        bytes += u64::try_from(size).unwrap_or(0);
        if fit {
            fits.insert(id);
        }
    }
    scan.took(ids.len(), bytes);
    Ok(fits)
}

/// A job, unless it was created outside the filter's time: the clock may have jumped, and what is shown must be right
/// nevertheless.
fn within(conn: &Connection, filter: &JobFilter, id: i64) -> Step<Option<Job>> {
    let fits = |job: &Job| {
        let created = micros(job.created_at);
        filter.since.is_none_or(|since| created >= micros(since))
            && filter.until.is_none_or(|until| created < micros(until))
    };
    Ok(job(conn, JobId(id))?.map(|(job, _)| job).filter(fits))
}

impl<'f> Merge<'f> {
    fn new(conn: &'f Connection, filter: &'f JobFilter) -> Step<Self> {
        let mut before = filter.before.map_or(i64::MAX, |JobId(id)| id);
        if let Some(until) = filter.until {
            before = before.min(first_since(conn, micros(until))?);
        }
        let floor = filter.since.map_or(Ok(i64::MIN), |since| first_since(conn, micros(since)))?;
        let bounds = Bounds { conn, floor, code: filter.code.as_deref() };
        let mut streams = streams(conn, filter)?;
        let mut heads = BinaryHeap::new();
        for (at, stream) in streams.iter_mut().enumerate() {
            heads.extend(stream.next(&bounds, before)?.map(|id| (id, at)));
        }
        Ok(Self { bounds, streams, heads, taken: None })
    }

    /// The next ids.
    fn take(&mut self, most: usize) -> Step<Vec<i64>> {
        let mut ids = Vec::new();
        while ids.len() < most
            && let Some((id, at)) = self.heads.pop()
        {
            self.heads.extend(self.streams[at].next(&self.bounds, id)?.map(|id| (id, at)));
            ids.push(id);
        }
        self.taken = ids.last().copied().or(self.taken);
        Ok(ids)
    }

    fn has_more(&self) -> bool {
        !self.heads.is_empty()
    }

    fn last_taken(&self) -> Option<JobId> {
        self.taken.filter(|_| self.has_more()).map(JobId)
    }

    /// How many ids there are: the streams have none in common, so they need not be merged.
    fn count(mut self, up_to: u64) -> Step<u64> {
        let mut count = 0;
        for (head, at) in std::mem::take(&mut self.heads) {
            let stream = &mut self.streams[at];
            stream.batch = LOOK_MAX;
            let mut last = head;
            count += 1;
            while count < up_to {
                let floor = self.bounds.floor;
                count += stream.found.iter().filter(|id| **id >= floor).count() as u64;
                last = stream.found.first().copied().unwrap_or(last);
                stream.found.clear();
                match stream.next(&self.bounds, last)? {
                    Some(id) => (last, count) = (id, count + 1),
                    None => break,
                }
            }
            if count >= up_to {
                return Ok(up_to);
            }
        }
        Ok(count)
    }
}

impl Stream {
    /// The next id below `before`.
    fn next(&mut self, bounds: &Bounds<'_>, before: i64) -> Step<Option<i64>> {
        while self.found.last().is_some_and(|id| *id >= before) {
            self.found.pop();
        }
        if self.found.is_empty() {
            self.refill(bounds, before)?;
        }
        Ok(self.found.pop().filter(|id| *id >= bounds.floor))
    }

    fn refill(&mut self, bounds: &Bounds<'_>, before: i64) -> Step<()> {
        let Some((sql, lane, state)) = self.look else { return Ok(()) };
        let mut look = bounds.conn.prepare_cached(sql)?;
        let numbers = [before, bounds.floor, lane, state, self.batch];
        let count = look.parameter_count();
        for (at, value) in numbers.into_iter().enumerate().take(count) {
            look.raw_bind_parameter(at + 1, value)?;
        }
        if count > numbers.len() {
            look.raw_bind_parameter(count, bounds.code)?;
        }
        let mut rows = look.raw_query();
        while let Some(row) = rows.next()? {
            self.found.push(row.get(0)?);
        }
        if i64::try_from(self.found.len()).is_ok_and(|found| found < self.batch) {
            // There is no more to look up.
            self.look = None;
        }
        self.found.reverse();
        self.batch = (self.batch * 4).min(LOOK_MAX);
        Ok(())
    }
}

/// The streams that together hold what the filter lets through, each id once.
fn streams(conn: &Connection, filter: &JobFilter) -> Step<Vec<Stream>> {
    let wanted = |state| filter.states.is_empty() || filter.states.contains(&state);
    let of_lanes = filter.queue.is_some() || filter.kind.is_some() || filter.limit_key.is_some();
    let lanes = of_lanes.then(|| lanes(conn, filter)).transpose()?;
    let mut streams = Vec::new();
    hot(conn, &mut streams, lanes.as_deref(), wanted(State::Queued), wanted(State::Processing))?;
    let finished: Vec<State> =
        [State::Done, State::Failed, State::Cancelled].into_iter().filter(|state| wanted(*state)).collect();
    if filter.code.is_some() {
        with_code(conn, &mut streams, lanes, &finished)?;
    } else if let Some(lanes) = lanes {
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
            streams.push(Stream { look: None, found: held(conn, lanes)?, batch: 0 });
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

/// Finished jobs whose error has a code. A job that is done has none; of failed ones there is an index.
fn with_code(
    conn: &Connection,
    streams: &mut Vec<Stream>,
    lanes: Option<Vec<i64>>,
    finished: &[State],
) -> Step<()> {
    let by_lanes = lanes.is_some();
    let lanes = match lanes {
        Some(lanes) => lanes,
        None => self::lanes(conn, &JobFilter::default())?,
    };
    if finished.contains(&State::Failed) {
        streams.extend(lanes.iter().map(|lane| look(sql!("job_history_page_code"), *lane, 0)));
    }
    if finished.contains(&State::Cancelled) {
        match by_lanes {
            true => streams.extend(by_lane(&lanes, State::Cancelled)),
            false => finished_in(conn, streams, State::Cancelled)?,
        }
    }
    Ok(())
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
    Stream { look: Some((sql, lane, state)), found: Vec::new(), batch: LOOK_FIRST }
}

/// The lanes that the filter lets through, in order.
fn lanes(conn: &Connection, filter: &JobFilter) -> Step<Vec<i64>> {
    let mut list = conn.prepare_cached(sql!("lane_list"))?;
    let rows = list.query_map((&filter.queue, &filter.kind, &filter.limit_key), |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
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
