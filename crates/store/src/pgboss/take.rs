//! Taking jobs: locked there, accepted here, and only then made ours there.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::value::RawValue;
use stargate_queue::Result;
use stargate_queue::intake::{Accept, Answer, Claim, Offer, Taken, Terms};
use stargate_queue::job::{ATTEMPTS_MAX, PRIORITY_MAX};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::mark::{self, Mark};
use super::{PgBoss, output};
use crate::postgres::connect::Session;
use crate::postgres::error::is_unique_key_taken;

/// How long our own store may take to accept what pg-boss gives.
const ACCEPTING: Duration = Duration::from_secs(60);

impl PgBoss {
    /// Takes from one queue, in one transaction there.
    pub(super) async fn take_from(
        &self,
        queue: &str,
        limit: usize,
        except: &[String],
        accept: &dyn Accept,
        taken: &mut Taken,
    ) -> Result<()> {
        let mut s = self.taking.session().await?;
        s.begin().await?;
        s.idle_at_most(ACCEPTING).await?;
        let rows = self.due(&mut s, queue, limit, except).await?;
        if rows.is_empty() {
            return s.rollback().await;
        }
        let offers: Vec<Offer> = rows.iter().map(|row| offer(queue, row)).collect();
        let claims: Vec<Claim> =
            offers.iter().map(|offer| Claim { item: offer.item.clone(), mark: offer.mark.clone() }).collect();
        let answers = match accept.accept(offers).await {
            Ok(answers) => answers,
            Err(error) => {
                // If even that fails, dropping the session closes the connection, with the same effect.
                let _ = s.rollback().await;
                return Err(error);
            }
        };
        let wanted = claims.iter().zip(&answers).filter(|(_, answer)| **answer != Answer::Skip);
        let marks: Vec<Mark> = wanted.clone().map(|(claim, _)| Mark::of(claim)).collect::<Result<_>>()?;
        let active = self.activate(&mut s, queue, &marks).await?;
        let (mut acknowledged, mut slipped, mut refused) = (Vec::new(), Vec::new(), 0);
        for ((claim, answer), mark) in wanted.zip(&marks) {
            match (answer, active.contains(&mark.id)) {
                (Answer::Refused(error), true) => {
                    self.end(&mut s, mark, self.sql.job_fail, 1, Some(&output::of_error(error, 1))).await?;
                    refused += 1;
                }
                (Answer::Refused(_), false) => {}
                (_, true) => acknowledged.push(claim.clone()),
                (_, false) => slipped.push(claim.clone()),
            }
        }
        s.commit().await?;
        taken.acknowledged.append(&mut acknowledged);
        taken.slipped.append(&mut slipped);
        taken.refused += refused;
        Ok(())
    }

    async fn due(
        &self,
        s: &mut Session<'_>,
        queue: &str,
        limit: usize,
        except: &[String],
    ) -> Result<Vec<Row>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let except: Vec<&str> = except
            .iter()
            .filter_map(|item| mark::split(item))
            .filter(|(of, _)| *of == queue)
            .map(|(_, id)| id)
            .collect();
        let params = [(&queue as _, Type::TEXT), (&limit as _, Type::INT8), (&except as _, Type::TEXT_ARRAY)];
        s.rows("take jobs of pg-boss", self.sql.job_due, &params).await
    }

    /// Makes jobs ours; answers the ids of those that are. A policy may forbid a job to become active, because a worker
    /// of pg-boss was faster with another: then the rest goes on without it.
    async fn activate(&self, s: &mut Session<'_>, queue: &str, marks: &[Mark]) -> Result<Vec<String>> {
        s.batch("take jobs of pg-boss", self.sql.savepoint).await?;
        match self.activate_all(s, queue, marks).await {
            Err(error) if is_unique_key_taken(&error) => {
                s.batch("take jobs of pg-boss", self.sql.savepoint_rollback).await?;
                let mut active = Vec::new();
                for mark in marks {
                    s.batch("take jobs of pg-boss", self.sql.savepoint).await?;
                    match self.activate_all(s, queue, std::slice::from_ref(mark)).await {
                        Ok(mut one) => active.append(&mut one),
                        Err(error) if is_unique_key_taken(&error) => {
                            s.batch("take jobs of pg-boss", self.sql.savepoint_rollback).await?;
                        }
                        Err(error) => return Err(error),
                    }
                }
                Ok(active)
            }
            result => result,
        }
    }

    async fn activate_all(&self, s: &mut Session<'_>, queue: &str, marks: &[Mark]) -> Result<Vec<String>> {
        let Some(first) = marks.first() else { return Ok(Vec::new()) };
        let ids: Vec<&str> = marks.iter().map(|mark| mark.id.as_str()).collect();
        let counts: Vec<i32> = marks.iter().map(|mark| mark.retry_count).collect();
        let grants: Vec<i32> = marks.iter().map(Mark::grant_s).collect();
        // The time of the transaction, so the same for all.
        let started = first.started_on;
        let params = [
            (&queue as _, Type::TEXT),
            (&ids as _, Type::TEXT_ARRAY),
            (&counts as _, Type::INT4_ARRAY),
            (&started as _, Type::TIMESTAMPTZ),
            (&grants as _, Type::INT4_ARRAY),
        ];
        let rows = s.rows("take jobs of pg-boss", self.sql.job_activate, &params).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }
}

/// A row of `job_due.sql` as an offer.
fn offer(queue: &str, row: &Row) -> Offer {
    let id: String = row.get(0);
    let payload: Option<String> = row.get(1);
    let (priority, retry_limit, retry_count): (i32, i32, i32) = (row.get(2), row.get(3), row.get(4));
    let seconds = |column| u32::try_from(row.get::<_, Option<i32>>(column).unwrap_or(0)).unwrap_or(0);
    let started_on: Timestamp = row.get(10);
    let mark =
        Mark { queue: queue.to_owned(), id, retry_count, retry_limit, started_on, expire_s: row.get(8) };
    let attempts = retry_limit.saturating_sub(retry_count).saturating_add(1);
    Offer {
        item: mark.item(),
        queue: queue.to_owned(),
        payload: payload
            .and_then(|text| RawValue::from_string(text).ok())
            .unwrap_or_else(|| RawValue::NULL.to_owned()),
        priority: i16::try_from(priority.clamp(0, PRIORITY_MAX.into())).unwrap_or(PRIORITY_MAX),
        max_attempts: u16::try_from(attempts.clamp(1, ATTEMPTS_MAX.into())).unwrap_or(ATTEMPTS_MAX),
        mark: mark.text(),
        trace_id: row.get(9),
        terms: Terms {
            retry_count: u32::try_from(retry_count).unwrap_or(0),
            retry_delay_s: seconds(5),
            retry_backoff: row.get(6),
            retry_delay_max_s: row.get::<_, Option<i32>>(7).map(|_| seconds(7)),
        },
    }
}
