//! Items of other queues and the jobs they became.

use std::collections::HashMap;

use stargate_queue::intake::link::LINKS_MAX;
use stargate_queue::intake::{Claim, Link, LinkFilter, LinkStage, LinkTurn, Linked, NewLink, Terms};
use stargate_queue::{JobId, NewJob, Result, Stage};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connect::Session;
use super::enqueue::{check, finish, insert_blocked};
use super::error::{again, fatal, transient};
use super::{Inner, sql};

const OPERATION: &str = "accept items of a source";

/// Enters items as jobs that do not run yet, all or none.
pub(super) async fn accept(inner: &Inner, source: &str, links: &[NewLink]) -> Result<Vec<Linked>> {
    links.iter().try_for_each(|link| check(inner, std::slice::from_ref(&link.job)))?;
    let jobs: Vec<&NewJob> = links.iter().map(|link| &link.job).collect();
    let mut tries = 0;
    loop {
        tries += 1;
        let mut s = inner.readers.session().await?;
        // Lanes stay even if the transaction does not.
        inner.lanes.of_jobs(&mut s, &jobs).await?;
        s.begin().await?;
        let result = accept_within(inner, &mut s, source, links).await;
        let result = finish(&mut s, result).await;
        if result.is_err() {
            inner.lanes.forget(&jobs);
        }
        if !again(&result, tries) {
            return result;
        }
    }
}

async fn accept_within(
    inner: &Inner,
    s: &mut Session<'_>,
    source: &str,
    links: &[NewLink],
) -> Result<Vec<Linked>> {
    let items: Vec<&str> = links.iter().map(|link| link.item.as_str()).collect();
    let params = [(&source as _, Type::TEXT), (&items as _, Type::TEXT_ARRAY)];
    let rows = s.rows(OPERATION, sql!("link_find"), &params).await?;
    let found: HashMap<&str, Linked> = rows.iter().map(|row| (row.get(0), linked(row))).collect();
    for link in links {
        if found.get(link.item.as_str()).is_some_and(|linked| linked.stage == LinkStage::Accepted) {
            amend(s, source, link).await?;
        }
    }
    let new: Vec<&NewLink> = links.iter().filter(|link| !found.contains_key(link.item.as_str())).collect();
    let mut ids = insert(inner, s, source, &new).await?.into_iter();
    links
        .iter()
        .map(|link| match found.get(link.item.as_str()) {
            Some(linked) => Ok(*linked),
            None => {
                let id = ids.next().ok_or_else(|| transient(OPERATION, "the insert answered too few ids"))?;
                Ok(Linked { job: JobId(id), stage: LinkStage::Accepted })
            }
        })
        .collect()
}

fn linked(row: &Row) -> Linked {
    let stage = match LinkStage::from_number(row.get(2)) {
        // A job that has ended before its item was acknowledged cannot be taken again.
        Some(LinkStage::Accepted) if !row.get::<_, bool>(3) => LinkStage::Disowned,
        Some(stage) => stage,
        None => LinkStage::Disowned,
    };
    Linked { job: JobId(row.get(1)), stage }
}

async fn insert(inner: &Inner, s: &mut Session<'_>, source: &str, new: &[&NewLink]) -> Result<Vec<i64>> {
    if new.is_empty() {
        return Ok(Vec::new());
    }
    let jobs: Vec<&NewJob> = new.iter().map(|link| &link.job).collect();
    let ids = insert_blocked(inner, s, &jobs).await?;
    let items: Vec<&str> = new.iter().map(|link| link.item.as_str()).collect();
    let marks: Vec<&str> = new.iter().map(|link| link.mark.as_str()).collect();
    let terms: Vec<String> = new.iter().map(|link| terms_json(&link.terms)).collect();
    let params = [
        (&source as _, Type::TEXT),
        (&items as _, Type::TEXT_ARRAY),
        (&ids as _, Type::INT8_ARRAY),
        (&marks as _, Type::TEXT_ARRAY),
        (&terms as _, Type::TEXT_ARRAY),
    ];
    s.rows(OPERATION, sql!("link_insert"), &params).await?;
    Ok(ids)
}

async fn amend(s: &mut Session<'_>, source: &str, link: &NewLink) -> Result<()> {
    let (terms, payload) = (terms_json(&link.terms), link.job.payload.get());
    let attempts = link.job.max_attempts.map_or(1, u16::cast_signed);
    let params = [
        (&source as _, Type::TEXT),
        (&link.item as _, Type::TEXT),
        (&link.mark as _, Type::TEXT),
        (&terms as _, Type::TEXT),
        (&payload as _, Type::TEXT),
        (&link.job.priority as _, Type::INT2),
        (&attempts as _, Type::INT2),
    ];
    s.rows(OPERATION, sql!("link_amend"), &params).await.map(drop)
}

/// Turns links; answers how many turned.
pub(super) async fn turn(inner: &Inner, source: &str, claims: &[Claim], turn: LinkTurn) -> Result<u64> {
    let items: Vec<&str> = claims.iter().map(|claim| claim.item.as_str()).collect();
    let marks: Vec<&str> = claims.iter().map(|claim| claim.mark.as_str()).collect();
    let now = inner.clock.for_statement();
    let named =
        [(&source as _, Type::TEXT), (&items as _, Type::TEXT_ARRAY), (&marks as _, Type::TEXT_ARRAY)];
    let mut s = inner.readers.session().await?;
    let turned: i64 = match turn {
        LinkTurn::Hold => {
            let [source, items, marks] = named;
            let params =
                [(&now as _, Type::TIMESTAMPTZ), source, items, marks, (&inner.own as _, Type::TEXT)];
            let turned = s.value("let the jobs of a source run", sql!("link_hold"), &params).await?;
            inner.wake_for_old();
            turned
        }
        LinkTurn::Disown => s.value("disown items of a source", sql!("link_disown"), &named).await?,
        LinkTurn::Close => s.value("close the links of a source", sql!("link_close"), &named).await?,
    };
    Ok(turned.unsigned_abs())
}

/// A page of links, by item.
pub(super) async fn list(inner: &Inner, filter: &LinkFilter) -> Result<Vec<Link>> {
    const OPERATION: &str = "list the items of a source";
    let mut s = inner.readers.session().await?;
    let source = (&filter.source as _, Type::TEXT);
    let rows = if let Some(JobId(job)) = &filter.job {
        s.rows(OPERATION, sql!("link_of_job"), &[source, (job, Type::INT8)]).await?
    } else {
        let after = filter.after.as_deref().unwrap_or_default();
        let limit = i64::from(filter.limit.clamp(1, LINKS_MAX));
        let params = [source, (&after as _, Type::TEXT), (&limit as _, Type::INT8)];
        let text = if filter.ended { sql!("link_list_ended") } else { sql!("link_list") };
        s.rows(OPERATION, text, &params).await?
    };
    rows.iter().map(read).collect()
}

fn read(row: &Row) -> Result<Link> {
    const OPERATION: &str = "read a link";
    let hint = "a row of stargate.source_link is damaged";
    let terms: Terms = serde_json::from_str(row.get(3)).map_err(|error| fatal(OPERATION, hint, error))?;
    Ok(Link {
        item: row.get(0),
        job: JobId(row.get(1)),
        mark: row.get(2),
        terms,
        stage: LinkStage::from_number(row.get(4)).unwrap_or(LinkStage::Disowned),
        job_stage: row.get::<_, Option<i16>>(5).and_then(Stage::from_number),
    })
}

fn terms_json(terms: &Terms) -> String {
    serde_json::to_string(terms).expect("numbers always serialise")
}
