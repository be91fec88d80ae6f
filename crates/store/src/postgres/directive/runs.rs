//! Runs and their leases.

use std::time::Duration;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use stargate_base::Epoch;
use stargate_directive::kv::Purpose;
use stargate_directive::store::{RUNS_KEPT, RUNS_PURGED_MAX};
use stargate_directive::{Beat, Begin, Counts, End, Lease, NewRun, Run, RunId, Standing};
use stargate_queue::Result;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::super::connect::{Ask, Session};
use super::super::enqueue::finish;
use super::super::error::{COLLISIONS_MAX, again, fatal, transient};
use super::super::rows::{count, micros};
use super::super::{Inner, leadership, sql};
use super::values::{Last, Write, lock};
use super::{answer, begin as begin_with};
use crate::directive_rows::{
    LeaseValue, check_run, lease_lost, outcome, replaced, run_ended, run_of_another, storable, to_json,
    writer_of,
};
use crate::repo_rows::{page, signed};

const BEGIN: &str = "begin the run";
const BEAT: &str = "renew the lease of the run";
const END: &str = "end the run";

/// A run, which nobody else changes until the transaction ends.
pub(super) const LOCK: &str = concat!(sql!("directive_run_get"), "for update");

/// A run with what its last batch was answered.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) run: Run,
    pub(super) batch: Option<LastBatch>,
}

/// What was answered to a run's last batch.
#[derive(Debug)]
pub(super) struct LastBatch {
    pub(super) request_id: String,
    pub(super) lease: i64,
    pub(super) counts: Counts,
    pub(super) cursor: Option<i64>,
}

impl Found {
    /// From what [`LOCK`] answered.
    pub(super) fn read(rows: &[Row]) -> Result<Option<Self>> {
        let Some(row) = rows.first() else { return Ok(None) };
        let (request, lease): (Option<String>, Option<i64>) = (row.get(20), row.get(21));
        let batch = request.zip(lease).map(|(request_id, lease)| LastBatch {
            request_id,
            lease,
            counts: read_counts(row, 22),
            cursor: row.get(26),
        });
        Ok(Some(Self { run: read(row)?, batch }))
    }
}

pub(super) async fn begin(inner: &Inner, guard: Option<Epoch>, new: &NewRun) -> Result<Begin> {
    check_run(new)?;
    let (mut tries, mut rounds) = (0, 0);
    loop {
        tries += 1;
        let mut s = inner.directives.session().await?;
        let result = begin_within(inner, &mut s, guard, new).await;
        let result = match result {
            // Nothing is to stay of a lease that somebody else took at the same moment.
            Ok(None) => s.rollback().await.map(|()| None),
            other => finish(&mut s, other).await,
        };
        match result {
            Ok(Some(begin)) => return Ok(begin),
            Ok(None) if rounds < COLLISIONS_MAX => rounds += 1,
            Ok(None) => return Err(transient(BEGIN, "others take the lease all the time")),
            failed if again(&failed, tries) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Nothing if the lease was taken while it was looked at.
async fn begin_within(
    inner: &Inner,
    s: &mut Session<'_>,
    guard: Option<Epoch>,
    new: &NewRun,
) -> Result<Option<Begin>> {
    let (now, key) = (inner.clock.for_statement(), new.lease.as_str());
    let asks = vec![lock(&now, &key), Ask::new(LOCK, [(&new.id.0 as _, Type::TEXT)])];
    let answers = begin_with(s, guard, BEGIN, asks).await?;
    let (last, known) = (Last::read(answer(&answers, 0)), Found::read(answer(&answers, 1))?);
    if let Some(known) = &known {
        check_known(&known.run, new)?;
    }
    if last.alive.is_some() {
        let holder = LeaseValue::read(&new.lease, last.value.as_deref().unwrap_or_default())?;
        if holder.run != new.id.0 {
            let until = last.expires_at.unwrap_or(Timestamp::MAX);
            return Ok(Some(Begin::Held { run: RunId(holder.run), worker: holder.worker, until }));
        }
    }
    let (value, writer) = (LeaseValue::of(new)?, writer_of(&new.directive));
    let take = Write::new(&new.lease, Some(&value), Purpose::Lock, &new.id.0, &writer)
        .expecting(last.alive)
        .lasting(new.lease_for);
    let Some((version, run)) = enter(s, &now, new, &take, known.is_some()).await? else { return Ok(None) };
    let lease = Lease { run: new.id.clone(), key: new.lease.clone(), version: version.unsigned_abs() };
    Ok(Some(Begin::Begun { lease, run: Box::new(run) }))
}

fn check_known(run: &Run, new: &NewRun) -> Result<()> {
    if (&run.directive, &run.tenant, &run.project) != (&new.directive, &new.tenant, &new.project) {
        return Err(run_of_another(&run.id, &run.directive));
    }
    run.outcome.map_or(Ok(()), |outcome| Err(run_ended(&run.id, outcome.as_str())))
}

/// Takes the lease, ends whom it was taken from, and makes the run or takes it up.
async fn enter(
    s: &mut Session<'_>,
    now: &Option<Timestamp>,
    new: &NewRun,
    take: &Write<'_>,
    is_known: bool,
) -> Result<Option<(i64, Run)>> {
    let (key, why, beat) = (new.lease.as_str(), replaced(new), to_json(&Beat::default())?);
    let beat = beat.get();
    let (now_param, id) = ((now as _, Type::TIMESTAMPTZ), (&new.id.0 as _, Type::TEXT));
    let (worker, key) = ((&new.worker as _, Type::TEXT), (&key as _, Type::TEXT));
    let supersede = [now_param.clone(), key.clone(), id.clone(), (&why as _, Type::TEXT)];
    let row = if is_known {
        Ask::new(sql!("directive_run_take_up"), [now_param, id.clone(), worker, key])
    } else {
        let params = [
            now_param,
            id.clone(),
            (&new.directive as _, Type::TEXT),
            (&new.tenant as _, Type::TEXT),
            (&new.project as _, Type::TEXT),
            (&new.engine as _, Type::TEXT),
            (&new.workflow_id as _, Type::TEXT),
            worker,
            key,
            (&beat as _, Type::TEXT),
        ];
        Ask::new(sql!("directive_run_insert"), params)
    };
    let asks = [
        take.ask(now),
        Ask::new(sql!("directive_run_supersede"), supersede),
        row,
        Ask::new(sql!("directive_run_get"), [id]),
    ];
    let answers = s.rows_together(BEGIN, &asks).await?;
    let Some(version) = answer(&answers, 0).first().map(|row| row.get(0)) else { return Ok(None) };
    let found = Found::read(answer(&answers, 3))?.ok_or_else(|| lease_lost(&new.id))?;
    Ok(Some((version, found.run)))
}

pub(super) async fn beat(
    inner: &Inner,
    guard: Option<Epoch>,
    lease: &Lease,
    lease_for: Duration,
    beat: &Beat,
) -> Result<Standing> {
    let beat = to_json(beat)?;
    let mut tries = 0;
    loop {
        tries += 1;
        let mut s = inner.directives.session().await?;
        let result = match beat_within(inner, &mut s, guard, lease, lease_for, beat.get()).await {
            // Who has lost the lease has nothing to say either.
            Ok(Standing::Lost) => s.rollback().await.map(|()| Standing::Lost),
            other => finish(&mut s, other).await,
        };
        if !again(&result, tries) {
            return result;
        }
    }
}

async fn beat_within(
    inner: &Inner,
    s: &mut Session<'_>,
    guard: Option<Epoch>,
    lease: &Lease,
    lease_for: Duration,
    beat: &str,
) -> Result<Standing> {
    let (now, key) = (inner.clock.for_statement(), lease.key.as_str());
    let (version, span) = (signed(lease.version), micros(lease_for));
    let renew = [
        (&now as _, Type::TIMESTAMPTZ),
        (&key as _, Type::TEXT),
        (&version as _, Type::INT8),
        (&span as _, Type::INT8),
    ];
    let keep = [(&now as _, Type::TIMESTAMPTZ), (&lease.run.0 as _, Type::TEXT), (&beat as _, Type::TEXT)];
    let asks =
        vec![Ask::new(sql!("directive_lease_beat"), renew), Ask::new(sql!("directive_run_beat"), keep)];
    let answers = begin_with(s, guard, BEAT, asks).await?;
    let asked = answer(&answers, 1).first().map(|row| row.get(0));
    Ok(match (answer(&answers, 0).is_empty(), asked) {
        (true, _) | (_, None) => Standing::Lost,
        (false, Some(true)) => Standing::CancelAsked,
        (false, Some(false)) => Standing::Held,
    })
}

pub(super) async fn end(inner: &Inner, guard: Option<Epoch>, lease: &Lease, end: &End) -> Result<bool> {
    let mut tries = 0;
    loop {
        tries += 1;
        let mut s = inner.directives.session().await?;
        let result = match end_within(inner, &mut s, guard, lease, end).await {
            Ok(false) => s.rollback().await.map(|()| false),
            other => finish(&mut s, other).await,
        };
        if !again(&result, tries) {
            return result;
        }
    }
}

/// A lease whose time is over is still the run's while nobody took it.
async fn end_within(
    inner: &Inner,
    s: &mut Session<'_>,
    guard: Option<Epoch>,
    lease: &Lease,
    end: &End,
) -> Result<bool> {
    let (now, key) = (inner.clock.for_statement(), lease.key.as_str());
    let last = Last::read(answer(&begin_with(s, guard, END, vec![lock(&now, &key)]).await?, 0));
    if last.version != signed(lease.version) || last.value.is_none() {
        return Ok(false);
    }
    let (request_id, outcome) = (format!("{}/end", lease.run), end.outcome.as_str());
    let error = end.error.as_deref().map(storable);
    let drop = Write::new(&lease.key, None, Purpose::Lock, &request_id, &last.writer).expecting(last.alive);
    let note = [
        (&now as _, Type::TIMESTAMPTZ),
        (&lease.run.0 as _, Type::TEXT),
        (&outcome as _, Type::TEXT),
        (&error as _, Type::TEXT),
    ];
    let (kept, most) = (micros(RUNS_KEPT), i64::from(RUNS_PURGED_MAX));
    let old = [(&now as _, Type::TIMESTAMPTZ), (&kept as _, Type::INT8), (&most as _, Type::INT8)];
    let asks = [
        Ask::new(sql!("directive_run_end"), note),
        drop.ask(&now),
        Ask::new(sql!("directive_run_purge"), old.clone()),
        Ask::new(sql!("directive_quarantine_purge"), old.clone()),
        Ask::new(sql!("kv_override_purge"), old),
    ];
    let answers = s.rows_together(END, &asks).await?;
    // A lease whose time ran out between the two statements is not as it was found: everything again.
    if answer(&answers, 1).is_empty() {
        return Err(transient(END, "the lease ran out at this moment"));
    }
    Ok(!answer(&answers, 0).is_empty())
}

pub(super) async fn cancel(inner: &Inner, guard: Option<Epoch>, run: &RunId) -> Result<bool> {
    let mut s = inner.directives.session().await?;
    let params = [(&run.0 as _, Type::TEXT)];
    let rows = leadership::write(&mut s, guard, "ask the run to stop", sql!("directive_run_cancel"), &params)
        .await?;
    Ok(!rows.is_empty())
}

pub(super) async fn get(inner: &Inner, run: &RunId) -> Result<Option<Run>> {
    let mut s = inner.readers.session().await?;
    let rows = s.rows("read the run", sql!("directive_run_get"), &[(&run.0, Type::TEXT)]).await?;
    rows.first().map(read).transpose()
}

pub(super) async fn list(
    inner: &Inner,
    directive: Option<&str>,
    before: Option<&RunId>,
    limit: u32,
) -> Result<Vec<Run>> {
    const OPERATION: &str = "list runs";
    let (before, limit) = (before.map(|run| run.0.as_str()), page(limit));
    let (before, limit) = ((&before as _, Type::TEXT), (&limit as _, Type::INT8));
    let mut s = inner.readers.session().await?;
    let rows = match &directive {
        None => s.rows(OPERATION, sql!("directive_run_page"), &[before, limit]).await?,
        Some(directive) => {
            let params = [before, limit, (directive as _, Type::TEXT)];
            s.rows(OPERATION, sql!("directive_run_page_directive"), &params).await?
        }
    };
    rows.iter().map(read).collect()
}

fn read(row: &Row) -> Result<Run> {
    Ok(Run {
        id: RunId(row.get(0)),
        directive: row.get(1),
        tenant: row.get(2),
        project: row.get(3),
        engine: row.get(4),
        workflow_id: row.get(5),
        outcome: row.get::<_, Option<&str>>(6).map(outcome),
        pages: count(row, 7),
        counts: read_counts(row, 8),
        cursor: row.get::<_, Option<&str>>(12).map(parsed).transpose()?,
        beat: parsed(row.get(13))?,
        cancel_asked: row.get(14),
        error: row.get(15),
        started_at: row.get(16),
        updated_at: row.get(17),
        ended_at: row.get(18),
        source_ended: row.get(19),
    })
}

/// Four counts whose columns begin at `from`.
fn read_counts(row: &Row, from: usize) -> Counts {
    Counts {
        created: count(row, from),
        updated: count(row, from + 1),
        unchanged: count(row, from + 2),
        failed: count(row, from + 3),
    }
}

fn parsed<T: DeserializeOwned>(text: &str) -> Result<T> {
    let hint = "a row of stargate.directive_run is damaged";
    serde_json::from_str(text).map_err(|error| fatal("read the run", hint, error))
}
