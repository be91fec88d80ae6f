//! Pages of jobs, newest first, and how many there are.
//!
//! Ids come first, from the indexes: unfinished jobs, then finished ones, so that a job that ends in between is met at
//! least once. What no index answers is asked of those jobs, as far as [`Scan`] goes. Only what is shown is read whole.

use std::collections::HashMap;

use stargate_queue::listing::{Counted, Found, JobFilter};
use stargate_queue::{Job, JobId, Result, Stage, State};
use tokio_postgres::types::Type;

use super::connect::{Param, Session};
use super::rows::{self, state_number};
use super::{Inner, sql};
use crate::scan::Scan;

const OPERATION: &str = "list jobs";

/// What every question of a listing has in common.
struct Pager<'f> {
    filter: &'f JobFilter,
    stages: Vec<i16>,
    /// Finished ones that are found by their state.
    states: Vec<i16>,
    /// Failed ones are found by their code.
    by_code: bool,
    /// No smaller id.
    from: i64,
    /// No id from this one on.
    before: i64,
}

/// A page of jobs, and where the next one begins.
pub(super) async fn found(inner: &Inner, filter: &JobFilter) -> Result<Found> {
    filter.check()?;
    let mut s = inner.readers.session().await?;
    let mut pager = Pager::new(&mut s, filter).await?;
    let limit = filter.limit as usize;
    let mut scan = filter.scans().then(Scan::new);
    let mut jobs: Vec<Job> = Vec::new();
    loop {
        let wanted = match &scan {
            Some(scan) => scan.next(),
            None => Some(limit - jobs.len()),
        };
        let Some(wanted) = wanted else {
            return Ok(Found { jobs, next_before: Some(JobId(pager.before)), scanned_all: false });
        };
        let (ids, more) = pager.take(&mut s, wanted).await?;
        let fits = match &mut scan {
            Some(scan) => fitting(&mut s, filter, &ids, scan).await?,
            None => ids.clone(),
        };
        let room = limit - jobs.len();
        let shown = &fits[..fits.len().min(room)];
        jobs.extend(load(&mut s, filter, shown).await?);
        if let Some(last) = shown.last()
            && (jobs.len() >= limit || shown.len() < fits.len())
        {
            let more = more || Some(last) != ids.last();
            // A job that vanished between two statements leaves a gap on the page, which is no reason to look on.
            return Ok(Found { jobs, next_before: more.then_some(JobId(*last)), scanned_all: true });
        }
        if !more {
            return Ok(Found { jobs, next_before: None, scanned_all: true });
        }
    }
}

/// How many jobs there are, counted no further than `up_to`.
pub(super) async fn count(inner: &Inner, filter: &JobFilter, up_to: u64) -> Result<Counted> {
    JobFilter { limit: 1, ..filter.clone() }.check()?;
    let mut s = inner.readers.session().await?;
    let mut pager = Pager::new(&mut s, filter).await?;
    if !filter.scans() {
        return Ok(Counted { count: pager.count(&mut s, up_to).await?, scanned_all: true });
    }
    let (mut scan, mut count) = (Scan::new(), 0_u64);
    while count < up_to {
        let Some(wanted) = scan.next() else { return Ok(Counted { count, scanned_all: false }) };
        let (ids, more) = pager.take(&mut s, wanted).await?;
        count += fitting(&mut s, filter, &ids, &mut scan).await?.len() as u64;
        if !more {
            break;
        }
    }
    Ok(Counted { count: count.min(up_to), scanned_all: true })
}

/// Those of the jobs in which the text occurs, and whose error has the code, in their order.
async fn fitting(s: &mut Session<'_>, filter: &JobFilter, ids: &[i64], scan: &mut Scan) -> Result<Vec<i64>> {
    let text = filter.search.as_ref().map(|text| text.to_ascii_lowercase());
    let params = [(&ids as _, Type::INT8_ARRAY), (&filter.code as _, Type::TEXT), (&text as _, Type::TEXT)];
    let rows = s.rows(OPERATION, sql!("job_fits"), &params).await?;
    let Some(row) = rows.first() else { return Ok(Vec::new()) };
    scan.took(ids.len(), rows::count(row, 1));
    Ok(row.get(0))
}

/// Jobs by their ids, in that order. Those that have changed their state since are left out.
async fn load(s: &mut Session<'_>, filter: &JobFilter, ids: &[i64]) -> Result<Vec<Job>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let rows = s.rows(OPERATION, sql!("job_get"), &[(&ids, Type::INT8_ARRAY)]).await?;
    let jobs = rows.iter().map(|row| rows::job(row).0);
    let fits = |job: &Job| filter.states.is_empty() || filter.states.contains(&job.state);
    let mut jobs: HashMap<i64, Job> = jobs.filter(fits).map(|job| (job.id.0, job)).collect();
    Ok(ids.iter().filter_map(|id| jobs.remove(id)).collect())
}

impl<'f> Pager<'f> {
    async fn new(s: &mut Session<'_>, filter: &'f JobFilter) -> Result<Self> {
        let wanted = |state: State| filter.states.is_empty() || filter.states.contains(&state);
        let mut stages: Vec<i16> = Vec::new();
        if wanted(State::Queued) {
            stages.extend([Stage::Ready as i16, Stage::Delayed as i16, Stage::Blocked as i16]);
        }
        if wanted(State::Processing) {
            stages.push(Stage::Processing as i16);
        }
        // A job that is done has no error; of failed ones there is an index by the code.
        let ended: &[State] = match &filter.code {
            Some(_) => &[State::Cancelled],
            None => &[State::Done, State::Failed, State::Cancelled],
        };
        let states = ended.iter().filter(|state| wanted(**state)).map(|state| state_number(*state)).collect();
        let from: i64 = match &filter.since {
            Some(since) => {
                s.value(OPERATION, sql!("job_created_from"), &[(since, Type::TIMESTAMPTZ)]).await?
            }
            None => i64::MIN,
        };
        let mut before = filter.before.map_or(i64::MAX, |id| id.0);
        if let Some(until) = &filter.until {
            let end: i64 =
                s.value(OPERATION, sql!("job_created_until"), &[(until, Type::TIMESTAMPTZ)]).await?;
            before = before.min(end);
        }
        let by_code = filter.code.is_some() && wanted(State::Failed);
        Ok(Self { filter, stages, states, by_code, from, before })
    }

    fn by_lane(&self) -> bool {
        self.filter.kind.is_some() || self.filter.queue.is_some() || self.filter.limit_key.is_some()
    }

    /// The next ids, and whether there are more.
    async fn take(&mut self, s: &mut Session<'_>, most: usize) -> Result<(Vec<i64>, bool)> {
        let limit = i32::try_from(most).unwrap_or(i32::MAX - 1) + 1;
        let by_lane = self.by_lane();
        let (hot, cold) = match by_lane {
            true => (sql!("job_page_lane"), sql!("job_history_page_lane")),
            false => (sql!("job_page"), sql!("job_history_page")),
        };
        let mut ids: Vec<i64> = Vec::new();
        for (numbers, sql) in [(&self.stages, hot), (&self.states, cold)] {
            if !numbers.is_empty() {
                let params = self.params((numbers, Type::INT2_ARRAY), (&limit, Type::INT4), by_lane);
                ids.extend(s.rows(OPERATION, sql, &params).await?.iter().map(|row| row.get::<_, i64>(0)));
            }
        }
        if self.by_code {
            let params = self.params((&self.filter.code, Type::TEXT), (&limit, Type::INT4), true);
            let rows = s.rows(OPERATION, sql!("job_history_page_code"), &params).await?;
            ids.extend(rows.iter().map(|row| row.get::<_, i64>(0)));
        }
        ids.sort_unstable_by(|a, b| b.cmp(a));
        // A job that ended between two statements is in both.
        ids.dedup();
        let more = ids.len() > most;
        ids.truncate(most);
        self.before = ids.last().copied().unwrap_or(self.before);
        Ok((ids, more))
    }

    fn params<'a>(&'a self, which: Param<'a>, limit: Param<'a>, by_lane: bool) -> Vec<Param<'a>> {
        let filter = self.filter;
        let mut params = vec![
            (&self.before as _, Type::INT8),
            (&self.from as _, Type::INT8),
            which,
            (&filter.since as _, Type::TIMESTAMPTZ),
            limit,
            (&filter.until as _, Type::TIMESTAMPTZ),
        ];
        if by_lane {
            params.extend([
                (&filter.kind as _, Type::TEXT),
                (&filter.queue as _, Type::TEXT),
                (&filter.limit_key as _, Type::TEXT),
            ]);
        }
        params
    }

    /// How many jobs there are from here on.
    async fn count(&mut self, s: &mut Session<'_>, up_to: u64) -> Result<u64> {
        if self.by_code {
            // Nothing but the ids of failed jobs with the code, or each row would be looked at.
            let most = usize::try_from(up_to).unwrap_or(usize::MAX);
            return Ok(self.take(s, most).await?.0.len() as u64);
        }
        let (all, mut count) = (!self.by_lane(), 0);
        for (numbers, sql) in [(&self.stages, sql!("job_count")), (&self.states, sql!("job_history_count"))] {
            let left = i64::try_from(up_to - count).unwrap_or(i64::MAX);
            if numbers.is_empty() || left == 0 {
                continue;
            }
            let mut params = self.params((numbers, Type::INT2_ARRAY), (&left, Type::INT8), true);
            params.push((&all, Type::BOOL));
            let found: i64 = s.value("count jobs", sql, &params).await?;
            count += u64::try_from(found).unwrap_or(0);
        }
        Ok(count.min(up_to))
    }
}
