//! Items of other queues and the jobs they became.

use rusqlite::{Connection, OptionalExtension as _, Row};
use stargate_queue::intake::link::LINKS_MAX;
use stargate_queue::intake::{Claim, Link, LinkFilter, LinkStage, LinkTurn, Linked, NewLink, Terms};
use stargate_queue::{JobId, Stage};

use super::error::Step;
use super::session::{Session, sql};

/// Enters items as jobs that do not run yet, all or none.
pub(super) fn accept(s: &mut Session<'_>, source: &str, links: &[NewLink]) -> Step<Vec<Linked>> {
    links.iter().map(|link| accept_one(s, source, link)).collect()
}

fn accept_one(s: &mut Session<'_>, source: &str, link: &NewLink) -> Step<Linked> {
    let found: Option<(i64, i16, bool)> = s
        .conn
        .prepare_cached(sql!("link_find"))?
        .query_row((source, &link.item), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let terms = terms_json(&link.terms);
    let Some((job, stage, unfinished)) = found else {
        let job = insert_job(s, link)?;
        s.conn.prepare_cached(sql!("link_insert"))?.execute((source, &link.item, job, &link.mark, terms))?;
        return Ok(Linked { job: JobId(job), stage: LinkStage::Accepted });
    };
    let stage = stage_of(stage, unfinished);
    if stage == LinkStage::Accepted {
        s.conn.prepare_cached(sql!("link_amend"))?.execute((source, &link.item, &link.mark, terms))?;
        let new = &link.job;
        let max_attempts = new.max_attempts.unwrap_or(s.kind(&new.kind)?.max_attempts);
        s.conn.prepare_cached(sql!("job_amend"))?.execute((
            job,
            new.payload.get(),
            new.priority,
            max_attempts,
        ))?;
    }
    Ok(Linked { job: JobId(job), stage })
}

/// Inserts the job of an item, held back by its link.
fn insert_job(s: &mut Session<'_>, link: &NewLink) -> Step<i64> {
    let job = &link.job;
    let id = s.take_ids(1)?;
    let max_attempts = job.max_attempts.unwrap_or(s.kind(&job.kind)?.max_attempts);
    let lane = s.lane_of(&job.queue, &job.kind, job.limit_key.as_deref().unwrap_or_default())?.id;
    s.conn.prepare_cached(sql!("job_insert"))?.execute((
        id,
        lane,
        Stage::Blocked as i16,
        job.priority,
        max_attempts,
        1,
        s.now,
        s.now,
        job.payload.get(),
        None::<&str>,
        &job.trace_id,
    ))?;
    s.enter(lane, Stage::Blocked);
    Ok(id)
}

/// Turns links; answers how many turned.
pub(super) fn turn(s: &mut Session<'_>, source: &str, claims: &[Claim], turn: LinkTurn) -> Step<u64> {
    let mut turned = 0;
    for Claim { item, mark } in claims {
        turned += match turn {
            LinkTurn::Hold => hold(s, source, item, mark)?,
            LinkTurn::Disown => s.conn.prepare_cached(sql!("link_disown"))?.execute((source, item, mark))?,
            LinkTurn::Close => s.conn.prepare_cached(sql!("link_close"))?.execute((source, item, mark))?,
        };
    }
    Ok(turned as u64)
}

fn hold(s: &mut Session<'_>, source: &str, item: &str, mark: &str) -> Step<usize> {
    let mut hold = s.conn.prepare_cached(sql!("link_hold"))?;
    let Some(job) = hold.query_row((source, item, mark), |row| row.get::<_, i64>(0)).optional()? else {
        return Ok(0);
    };
    let mut look = s.conn.prepare_cached(sql!("job_cancel_look"))?;
    let lane: Option<i64> = look.query_row([job], |row| row.get(0)).optional()?;
    let mut unblock = s.conn.prepare_cached(sql!("job_unblock"))?;
    let stage: Option<i16> = unblock.query_row((job, s.now), |row| row.get(0)).optional()?;
    if let (Some(lane), Some(stage)) = (lane, stage.and_then(Stage::from_number)) {
        s.leave(lane, Stage::Blocked);
        s.enter(lane, stage);
        s.wake = true;
    }
    Ok(1)
}

/// A page of links, by item.
pub(super) fn list(conn: &Connection, filter: &LinkFilter) -> Step<Vec<Link>> {
    if let Some(JobId(job)) = filter.job {
        let mut get = conn.prepare_cached(sql!("link_of_job"))?;
        return Ok(get.query_row((&filter.source, job), read).optional()?.into_iter().collect());
    }
    let text = if filter.ended { sql!("link_list_ended") } else { sql!("link_list") };
    let after = filter.after.as_deref().unwrap_or_default();
    let mut list = conn.prepare_cached(text)?;
    let rows = list.query_map((&filter.source, after, filter.limit.clamp(1, LINKS_MAX)), read)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn read(row: &Row<'_>) -> rusqlite::Result<Link> {
    let terms: String = row.get(3)?;
    let job_stage: Option<i16> = row.get(5)?;
    Ok(Link {
        item: row.get(0)?,
        job: JobId(row.get(1)?),
        mark: row.get(2)?,
        terms: serde_json::from_str(&terms).map_err(|error| super::rows::wrong(3, error))?,
        stage: LinkStage::from_number(row.get(4)?).unwrap_or(LinkStage::Disowned),
        job_stage: job_stage.and_then(Stage::from_number),
    })
}

/// A job that has ended before its item was acknowledged cannot be taken again.
fn stage_of(number: i16, unfinished: bool) -> LinkStage {
    match LinkStage::from_number(number) {
        Some(LinkStage::Accepted) if !unfinished => LinkStage::Disowned,
        Some(stage) => stage,
        None => LinkStage::Disowned,
    }
}

fn terms_json(terms: &Terms) -> String {
    serde_json::to_string(terms).expect("numbers always serialise")
}
