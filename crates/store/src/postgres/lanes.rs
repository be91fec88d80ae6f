//! Lanes, remembered both ways. They are never removed, so what is remembered stays true.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use stargate_queue::{Error, NewJob, Result};
use tokio_postgres::types::Type;

use super::connect::{Param, Session};
use super::{operate, sql};

/// Lanes remembered at most; limit keys may be many.
const REMEMBERED_MAX: usize = 100_000;

/// Where a job waits.
#[derive(Debug, Clone)]
pub(super) struct Lane {
    pub(super) queue: Arc<str>,
    pub(super) kind: Arc<str>,
    /// Empty for jobs without one.
    pub(super) limit_key: Arc<str>,
}

/// The lanes this process has met.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    by_name: RwLock<HashMap<Name, i32>>,
    by_id: RwLock<HashMap<i32, Lane>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Name(String);

impl Name {
    fn of(job: &NewJob) -> Self {
        // NUL cannot be part of a name or key.
        Self(format!("{}\0{}\0{}", job.queue, job.kind, job.limit_key.as_deref().unwrap_or_default()))
    }
}

fn same_lane(a: &NewJob, b: &NewJob) -> bool {
    a.kind == b.kind && a.queue == b.queue && a.limit_key == b.limit_key
}

impl Lanes {
    /// The lanes of new jobs, in their order, made where they are missing.
    pub(super) async fn of_jobs(&self, s: &mut Session<'_>, jobs: &[&NewJob]) -> Result<Vec<i32>> {
        if let Some(lanes) = self.remembered(jobs) {
            return Ok(lanes);
        }
        self.ensure(s, jobs).await?;
        self.remembered(jobs).ok_or_else(|| super::error::transient("find the lane", "a lane has vanished"))
    }

    /// The lanes of new jobs if all of them are known.
    pub(super) fn remembered(&self, jobs: &[&NewJob]) -> Option<Vec<i32>> {
        let known = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        let mut lanes: Vec<i32> = Vec::with_capacity(jobs.len());
        for (n, job) in jobs.iter().enumerate() {
            // Most batches are of one kind.
            let lane = match n.checked_sub(1) {
                Some(before) if same_lane(jobs[before], job) => lanes[before],
                _ => *known.get(&Name::of(job))?,
            };
            lanes.push(lane);
        }
        Some(lanes)
    }

    async fn ensure(&self, s: &mut Session<'_>, jobs: &[&NewJob]) -> Result<()> {
        let missing: HashMap<Name, &NewJob> = jobs.iter().map(|job| (Name::of(job), *job)).collect();
        // In one order everywhere, so that two processes cannot wait for each other.
        let mut missing: Vec<(Name, &NewJob)> = missing.into_iter().collect();
        missing.sort_by(|a, b| a.0.0.cmp(&b.0.0));
        let queues: Vec<&str> = missing.iter().map(|(_, job)| job.queue.as_str()).collect();
        let kinds: Vec<&str> = missing.iter().map(|(_, job)| job.kind.as_str()).collect();
        let keys: Vec<&str> =
            missing.iter().map(|(_, job)| job.limit_key.as_deref().unwrap_or_default()).collect();
        let params: [Param<'_>; 3] =
            [(&queues, Type::TEXT_ARRAY), (&kinds, Type::TEXT_ARRAY), (&keys, Type::TEXT_ARRAY)];
        let mut rows = s.rows("find the lane", sql!("lane_find"), &params).await?;
        if rows.iter().any(|row| row.get::<_, Option<i32>>(0).is_none()) {
            rows = s.rows("make the lane", sql!("lane_ensure"), &params).await?;
        }
        let mut unknown = None;
        {
            let mut known = self.by_name.write().unwrap_or_else(PoisonError::into_inner);
            if known.len() + missing.len() > REMEMBERED_MAX {
                known.clear();
            }
            for (row, (name, job)) in rows.iter().zip(missing) {
                match row.get::<_, Option<i32>>(0) {
                    Some(lane) => {
                        known.insert(name, lane);
                    }
                    None => unknown = unknown.or(Some(job.kind.clone())),
                }
            }
        }
        match unknown {
            None => Ok(()),
            Some(kind) => {
                let known = operate::kinds(s).await?.into_iter().map(|kind| kind.name).collect();
                Err(Error::UnknownKind { kind, known })
            }
        }
    }

    /// The names of lanes by their numbers.
    pub(super) async fn named(&self, s: &mut Session<'_>, ids: &[i32]) -> Result<HashMap<i32, Lane>> {
        let mut found: HashMap<i32, Lane> = {
            let known = self.by_id.read().unwrap_or_else(PoisonError::into_inner);
            ids.iter().filter_map(|id| known.get(id).map(|lane| (*id, lane.clone()))).collect()
        };
        let missing: Vec<i32> = ids.iter().copied().filter(|id| !found.contains_key(id)).collect();
        if missing.is_empty() {
            return Ok(found);
        }
        let rows = s.rows("read lanes", sql!("lane_get"), &[(&missing, Type::INT4_ARRAY)]).await?;
        let mut known = self.by_id.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() + rows.len() > REMEMBERED_MAX {
            known.clear();
        }
        for row in rows {
            let text = |column| Arc::from(row.get::<_, &str>(column));
            let lane = Lane { queue: text(1), kind: text(2), limit_key: text(3) };
            known.insert(row.get(0), lane.clone());
            found.insert(row.get(0), lane);
        }
        Ok(found)
    }

    /// Forgets lanes that a transaction may have made and then rolled back.
    pub(super) fn forget(&self, jobs: &[&NewJob]) {
        let mut known = self.by_name.write().unwrap_or_else(PoisonError::into_inner);
        for job in jobs {
            known.remove(&Name::of(job));
        }
    }
}
