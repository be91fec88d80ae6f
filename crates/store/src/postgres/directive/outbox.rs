//! Announcements.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use stargate_base::Epoch;
use stargate_directive::outbox::{Announcement, OutboxId, Waiting};
use stargate_directive::store::{OUTBOX_KEPT, PAGE_MAX};
use stargate_queue::{Error, Result};
use tokio_postgres::types::Type;

use super::super::connect::{Ask, Param, Session};
use super::super::enqueue::finish;
use super::super::error::{again, fatal};
use super::super::rows::{count, json, micros};
use super::super::{Inner, leadership, sql};
use super::{answer, begin};
use crate::directive_rows::{OUTBOX_PURGED_MAX, short_problem};
use crate::repo_rows::page;

const DONE: &str = "note the delivery";
const NOTIFY: &str = "notify of the change";

/// A notification must be shorter.
const NOTIFICATION_BYTES_MAX: usize = 8000;
/// The longest name of a channel.
const CHANNEL_BYTES_MAX: usize = 63;

pub(super) async fn next(
    inner: &Inner,
    topic: &str,
    after: Option<OutboxId>,
    limit: u32,
) -> Result<Vec<Announcement>> {
    let (after, limit) = (after.map_or(0, |id| id.0), page(limit));
    let params = [(&topic as _, Type::TEXT), (&after as _, Type::INT8), (&limit as _, Type::INT8)];
    let mut s = inner.readers.session().await?;
    let rows = s.rows("list announcements", sql!("directive_outbox_next"), &params).await?;
    let read = |row: &tokio_postgres::Row| Announcement {
        id: OutboxId(row.get(0)),
        topic: row.get(1),
        key: row.get(2),
        payload: json(row.get(3)),
        created_at: row.get(4),
        attempts: row.get::<_, i32>(5).unsigned_abs(),
    };
    Ok(rows.iter().map(read).collect())
}

pub(super) async fn done(inner: &Inner, guard: Option<Epoch>, id: OutboxId) -> Result<bool> {
    let mut tries = 0;
    loop {
        tries += 1;
        let mut s = inner.directives.session().await?;
        let result = done_within(inner, &mut s, guard, id).await;
        let result = finish(&mut s, result).await;
        if !again(&result, tries) {
            return result;
        }
    }
}

async fn done_within(inner: &Inner, s: &mut Session<'_>, guard: Option<Epoch>, id: OutboxId) -> Result<bool> {
    let (now, kept) = (inner.clock.for_statement(), micros(OUTBOX_KEPT));
    let now: Param<'_> = (&now, Type::TIMESTAMPTZ);
    let answers = begin(s, guard, DONE, vec![arrived(&now, &id), purge(&now, &kept)]).await?;
    Ok(!answer(&answers, 0).is_empty())
}

fn arrived<'a>(now: &Param<'a>, id: &'a OutboxId) -> Ask<'a> {
    Ask::new(sql!("directive_outbox_done"), [now.clone(), (&id.0 as _, Type::INT8)])
}

fn purge<'a>(now: &Param<'a>, kept: &'a i64) -> Ask<'a> {
    let params = [now.clone(), (kept as _, Type::INT8), (&OUTBOX_PURGED_MAX as _, Type::INT8)];
    Ask::new(sql!("directive_outbox_purge"), params)
}

pub(super) async fn notify(inner: &Inner, guard: Option<Epoch>, channel: &str, id: OutboxId) -> Result<bool> {
    if channel.is_empty() || channel.len() > CHANNEL_BYTES_MAX || channel.contains('\0') {
        let problem = format!("must have 1 to {CHANNEL_BYTES_MAX} bytes, not {}", channel.len());
        return Err(Error::invalid("channel", problem));
    }
    let mut tries = 0;
    loop {
        tries += 1;
        let mut s = inner.directives.session().await?;
        let result = notify_within(inner, &mut s, guard, channel, id).await;
        let result = finish(&mut s, result).await;
        if !again(&result, tries) {
            return result;
        }
    }
}

async fn notify_within(
    inner: &Inner,
    s: &mut Session<'_>,
    guard: Option<Epoch>,
    channel: &str,
    id: OutboxId,
) -> Result<bool> {
    let look = Ask::new(sql!("directive_outbox_payload"), [(&id.0 as _, Type::INT8)]);
    let found = begin(s, guard, NOTIFY, vec![look]).await?;
    let Some(payload) = answer(&found, 0).first().map(|row| row.get::<_, String>(0)) else {
        return Ok(false);
    };
    let said = short(payload)?;
    let (now, kept) = (inner.clock.for_statement(), micros(OUTBOX_KEPT));
    let now: Param<'_> = (&now, Type::TIMESTAMPTZ);
    let params = [(&channel as _, Type::TEXT), (&said as _, Type::TEXT)];
    let asks = [Ask::new(sql!("directive_outbox_notify"), params), arrived(&now, &id), purge(&now, &kept)];
    let answers = s.rows_together(NOTIFY, &asks).await?;
    Ok(!answer(&answers, 1).is_empty())
}

/// A payload that fits into a notification: if need be without its body, which can be read from the table.
fn short(payload: String) -> Result<String> {
    #[derive(Serialize, Deserialize)]
    struct Payload<'p> {
        #[serde(borrow)]
        directive: &'p RawValue,
        #[serde(borrow)]
        tenant_id: &'p RawValue,
        #[serde(borrow)]
        project_id: &'p RawValue,
        #[serde(borrow)]
        entity_id: &'p RawValue,
        #[serde(borrow)]
        change: &'p RawValue,
        #[serde(borrow)]
        version: &'p RawValue,
        #[serde(borrow)]
        body: &'p RawValue,
    }
    if payload.len() < NOTIFICATION_BYTES_MAX {
        return Ok(payload);
    }
    let hint = "a row of stargate.directive_outbox is damaged";
    let damaged = |error| fatal(NOTIFY, hint, error);
    let mut parts: Payload<'_> = serde_json::from_str(&payload).map_err(damaged)?;
    parts.body = RawValue::NULL;
    serde_json::to_string(&parts).map_err(damaged)
}

pub(super) async fn waiting(inner: &Inner) -> Result<Vec<Waiting>> {
    let most = i64::from(PAGE_MAX);
    let mut s = inner.readers.session().await?;
    let params = [(&most as _, Type::INT8)];
    let rows = s.rows("count announcements", sql!("directive_outbox_waiting"), &params).await?;
    let read = |row: &tokio_postgres::Row| Waiting {
        topic: row.get(0),
        count: count(row, 1),
        since: row.get(2),
        problem: row.get(3),
    };
    Ok(rows.iter().map(read).collect())
}

pub(super) async fn failed(inner: &Inner, guard: Option<Epoch>, id: OutboxId, problem: &str) -> Result<()> {
    const OPERATION: &str = "note the failed delivery";
    let problem = short_problem(problem).replace('\0', "\u{FFFD}");
    let params = [(&id.0 as _, Type::INT8), (&problem as _, Type::TEXT)];
    let mut s = inner.directives.session().await?;
    leadership::write(&mut s, guard, OPERATION, sql!("directive_outbox_failed"), &params).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(body: &str) -> String {
        format!(
            r#"{{"directive":"d","tenant_id":"t","project_id":"p","entity_id":"e\"1","change":"created","version":1,"body":{body}}}"#
        )
    }

    #[test]
    fn a_payload_that_is_too_long_for_a_notification_loses_its_body_and_nothing_else() {
        let small = payload(r#"{"a":1}"#);
        assert_eq!(short(small.clone()).unwrap(), small);
        let rest = payload("").len();
        let fits = payload(&format!("\"{}\"", "x".repeat(NOTIFICATION_BYTES_MAX - 1 - rest - 2)));
        assert_eq!(fits.len(), NOTIFICATION_BYTES_MAX - 1);
        assert_eq!(short(fits.clone()).unwrap(), fits);
        let long = payload(&format!("\"{}\"", "x".repeat(NOTIFICATION_BYTES_MAX)));
        assert_eq!(short(long).unwrap(), payload("null"));
    }
}
