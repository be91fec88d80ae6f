//! Records that could not become items.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use stargate_base::Epoch;
use stargate_directive::quarantine::{QuarantineFilter, QuarantineId, Quarantined};
use stargate_directive::source::Owner;
use stargate_directive::{Reject, RunId};
use stargate_queue::Result;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::super::connect::{Ask, Param, Session};
use super::super::rows::{count, json};
use super::super::{Inner, leadership, sql};
use super::answer;
use crate::directive_rows::{record_hash, storable};
use crate::repo_rows::page;

const KEEP: &str = "keep records aside";

pub(super) async fn list(inner: &Inner, filter: &QuarantineFilter) -> Result<Vec<Quarantined>> {
    const OPERATION: &str = "list quarantined records";
    let (before, limit) = (filter.before.map_or(i64::MAX, |id| id.0), page(filter.limit));
    let (before, limit) = ((&before as _, Type::INT8), (&limit as _, Type::INT8));
    let mut s = inner.readers.session().await?;
    let rows = match &filter.directive {
        None => {
            let params = [before, limit, (&filter.resolved as _, Type::BOOL)];
            s.rows(OPERATION, sql!("directive_quarantine_page"), &params).await?
        }
        Some(directive) => {
            let text = match filter.resolved {
                true => sql!("directive_quarantine_page_directive"),
                false => sql!("directive_quarantine_page_open"),
            };
            s.rows(OPERATION, text, &[before, limit, (directive as _, Type::TEXT)]).await?
        }
    };
    Ok(rows.iter().map(read).collect())
}

pub(super) async fn resolve(inner: &Inner, guard: Option<Epoch>, id: QuarantineId) -> Result<bool> {
    const OPERATION: &str = "resolve the quarantined record";
    let (now, ids) = (inner.clock.for_statement(), vec![id.0]);
    let params = [(&now as _, Type::TIMESTAMPTZ), (&ids as _, Type::INT8_ARRAY)];
    let mut s = inner.directives.session().await?;
    let text = sql!("directive_quarantine_resolve");
    Ok(!leadership::write(&mut s, guard, OPERATION, text, &params).await?.is_empty())
}

/// Records that a batch deals with: those it names, and those of its entities.
#[derive(Debug)]
pub(super) struct Resolved<'b> {
    ids: Vec<i64>,
    entities: Vec<&'b str>,
}

impl<'b> Resolved<'b> {
    pub(super) fn of(ids: &[QuarantineId], entities: Vec<&'b str>) -> Self {
        Self { ids: ids.iter().map(|id| id.0).collect(), entities }
    }

    pub(super) fn asks<'a>(&'a self, now: &'a Option<Timestamp>, owner: &'a Owner) -> Vec<Ask<'a>> {
        let now: Param<'a> = (now as _, Type::TIMESTAMPTZ);
        let mut asks = Vec::new();
        if !self.ids.is_empty() {
            let params = [now.clone(), (&self.ids as _, Type::INT8_ARRAY)];
            asks.push(Ask::new(sql!("directive_quarantine_resolve"), params));
        }
        if !self.entities.is_empty() {
            let mut params = vec![now];
            params.extend(owner_params(owner));
            params.push((&self.entities as _, Type::TEXT_ARRAY));
            asks.push(Ask::new(sql!("directive_quarantine_resolve_entity"), params));
        }
        asks
    }
}

fn owner_params(owner: &Owner) -> [Param<'_>; 3] {
    [(&owner.directive as _, Type::TEXT), (&owner.tenant as _, Type::TEXT), (&owner.project as _, Type::TEXT)]
}

/// Rejects column by column, each record once.
#[derive(Debug, Default)]
struct Kept<'r> {
    hashes: Vec<String>,
    records: Vec<&'r str>,
    causes: Vec<String>,
    reasons: Vec<String>,
    entities: Vec<Option<String>>,
    times: Vec<i64>,
}

impl<'r> Kept<'r> {
    /// Of two with the same record the later one tells why.
    fn of(rejects: &'r [Reject]) -> Self {
        let mut kept = Self::default();
        let mut places: HashMap<String, usize> = HashMap::new();
        for reject in rejects {
            let hash = record_hash(&reject.record);
            let (cause, reason) = (storable(&reject.cause), storable(&reject.reason));
            let entity = reject.entity_id.as_deref().map(storable);
            if let Some(&place) = places.get(&hash) {
                (kept.causes[place], kept.reasons[place], kept.entities[place]) = (cause, reason, entity);
                kept.times[place] += 1;
                continue;
            }
            places.insert(hash.clone(), kept.hashes.len());
            kept.hashes.push(hash);
            kept.records.push(reject.record.get());
            kept.causes.push(cause);
            kept.reasons.push(reason);
            kept.entities.push(entity);
            kept.times.push(1);
        }
        kept
    }
}

/// Keeps records aside within the caller's transaction; how many of the rejects were not known before. A repetition of
/// what is known counts as seen once more unless the batch is `replayed`.
pub(super) async fn keep(
    s: &mut Session<'_>,
    now: &Option<Timestamp>,
    owner: &Owner,
    run: &RunId,
    rejects: &[Reject],
    replayed: bool,
) -> Result<u64> {
    if rejects.is_empty() {
        return Ok(0);
    }
    let kept = Kept::of(rejects);
    let new = insert(s, now, owner, run, &kept, replayed).await?;
    if new.len() < kept.hashes.len() {
        again(s, owner, &kept, &new, replayed).await?;
    }
    Ok(new.len() as u64)
}

/// Enters what is not known; the hashes of that.
async fn insert(
    s: &mut Session<'_>,
    now: &Option<Timestamp>,
    owner: &Owner,
    run: &RunId,
    kept: &Kept<'_>,
    replayed: bool,
) -> Result<HashSet<String>> {
    let times: Vec<i64> = kept.times.iter().map(|times| if replayed { 1 } else { *times }).collect();
    let [directive, tenant, project] = owner_params(owner);
    let params = [
        (now as _, Type::TIMESTAMPTZ),
        directive,
        tenant,
        project,
        (&kept.hashes as _, Type::TEXT_ARRAY),
        (&run.0 as _, Type::TEXT),
        (&kept.records as _, Type::TEXT_ARRAY),
        (&kept.causes as _, Type::TEXT_ARRAY),
        (&kept.reasons as _, Type::TEXT_ARRAY),
        (&kept.entities as _, Type::TEXT_ARRAY),
        (&times as _, Type::INT8_ARRAY),
    ];
    let answers = s.rows_together(KEEP, &[Ask::new(sql!("directive_quarantine_insert"), params)]).await?;
    Ok(answer(&answers, 0).iter().map(|row| row.get(0)).collect())
}

/// Opens what is known again.
async fn again(
    s: &mut Session<'_>,
    owner: &Owner,
    kept: &Kept<'_>,
    new: &HashSet<String>,
    replayed: bool,
) -> Result<()> {
    let known: Vec<usize> = (0..kept.hashes.len()).filter(|n| !new.contains(&kept.hashes[*n])).collect();
    let hashes: Vec<&str> = known.iter().map(|n| kept.hashes[*n].as_str()).collect();
    let causes: Vec<&str> = known.iter().map(|n| kept.causes[*n].as_str()).collect();
    let reasons: Vec<&str> = known.iter().map(|n| kept.reasons[*n].as_str()).collect();
    let entities: Vec<Option<&str>> = known.iter().map(|n| kept.entities[*n].as_deref()).collect();
    let times: Vec<i64> = known.iter().map(|n| if replayed { 0 } else { kept.times[*n] }).collect();
    let mut params = owner_params(owner).to_vec();
    params.extend([
        (&hashes as _, Type::TEXT_ARRAY),
        (&causes as _, Type::TEXT_ARRAY),
        (&reasons as _, Type::TEXT_ARRAY),
        (&entities as _, Type::TEXT_ARRAY),
        (&times as _, Type::INT8_ARRAY),
    ]);
    s.rows_together(KEEP, &[Ask::new(sql!("directive_quarantine_again"), params)]).await.map(drop)
}

fn read(row: &Row) -> Quarantined {
    Quarantined {
        id: QuarantineId(row.get(0)),
        directive: row.get(1),
        tenant: row.get(2),
        project: row.get(3),
        run: RunId(row.get(4)),
        record: json(row.get(5)),
        cause: row.get(6),
        reason: row.get(7),
        entity_id: row.get(8),
        seen: count(row, 9),
        created_at: row.get(10),
        resolved_at: row.get(11),
    }
}
