//! How many jobs each queue has.
//!
//! Every page shows it, and it is counted, not kept: a count that enqueue and settle keep up to date would be a row that
//! all of them wait for. Few jobs are counted each time. Many ([`LARGE`]), and those that took [`LONG`], are counted in the
//! background, at most every [`FRESH`], and only while somebody asks; meanwhile the last counts are told.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stargate_queue::Result;
use stargate_queue::store::{COUNTS_AGE_MAX, PauseTarget, QueueCounts};
use tokio_postgres::Row;

use super::connect::Session;
use super::rows::count;
use super::{Inner, operate, sql};

/// So many jobs take long enough to count that an answer is kept.
const LARGE: u64 = 50_000;
/// Few jobs take as long where the dead among them cannot be removed.
const LONG: Duration = Duration::from_millis(100);
/// How long somebody waits for the count of another before counting too: a server that does not answer is waited for once.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// For how long they are not counted again.
const FRESH: Duration = Duration::from_secs(4);

/// The last counts of very many jobs.
#[derive(Debug, Default)]
pub(super) struct Counts {
    kept: Mutex<Kept>,
    /// Who has no counts to tell counts; whoever comes meanwhile waits for that, because a page asks twice at once.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Kept {
    counted: Option<(Instant, Vec<QueueCounts>)>,
    /// Somebody counts in the background.
    counting: bool,
}

impl Counts {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last counts, if they may be told, and whether they should be counted anew.
    fn recent(&self) -> Option<(Vec<QueueCounts>, bool)> {
        let mut kept = self.kept();
        let (at, counts) = kept.counted.clone()?;
        let age = at.elapsed();
        if age > COUNTS_AGE_MAX {
            return None;
        }
        let anew = age > FRESH && !kept.counting;
        kept.counting |= anew;
        Some((counts, anew))
    }

    /// Keeps counts that are many or took long; they are as old as the question.
    fn keep(&self, asked: Instant, counts: &[QueueCounts]) {
        let jobs: u64 =
            counts.iter().map(|q| q.ready + q.delayed + q.blocked + q.processing + q.failed).sum();
        let is_dear = jobs >= LARGE || asked.elapsed() >= LONG;
        self.kept().counted = is_dear.then(|| (asked, counts.to_vec()));
    }
}

/// Jobs per queue and stage.
pub(super) async fn queues(inner: &Arc<Inner>) -> Result<Vec<QueueCounts>> {
    let mut recent = inner.counts.recent();
    let _turn = match recent {
        Some(_) => None,
        None => tokio::time::timeout(WAIT_MAX, inner.counts.turn.lock()).await.ok(),
    };
    recent = recent.or_else(|| inner.counts.recent());
    let Some((mut counts, anew)) = recent else {
        return count_now(inner, &mut inner.readers.session().await?).await;
    };
    if anew {
        let inner = Arc::clone(inner);
        inner.tasks.clone().spawn(async move {
            let counted = async { count_now(&inner, &mut inner.spare.session().await?).await };
            if let Err(error) = counted.await {
                tracing::debug!(error = &error as &dyn std::error::Error, "jobs were not counted anew");
            }
            inner.counts.kept().counting = false;
        });
    }
    // Whoever pauses a queue wants to see that it is.
    show_pauses(&mut counts, operate::pauses(inner).await?);
    Ok(counts)
}

async fn count_now(inner: &Inner, s: &mut Session<'_>) -> Result<Vec<QueueCounts>> {
    let asked = Instant::now();
    let rows = s.rows("count jobs", sql!("queue_counts"), &[]).await?;
    let counts = |row: &Row| QueueCounts {
        queue: row.get(0),
        ready: count(row, 1),
        delayed: count(row, 2),
        blocked: count(row, 3),
        processing: count(row, 4),
        failed: count(row, 5),
        paused: row.get(6),
    };
    let counts: Vec<QueueCounts> = rows.iter().map(counts).collect();
    inner.counts.keep(asked, &counts);
    Ok(counts)
}

fn show_pauses(counts: &mut Vec<QueueCounts>, pauses: Vec<PauseTarget>) {
    let mut paused: BTreeSet<String> = pauses
        .into_iter()
        .filter_map(|target| match target {
            PauseTarget::Queue(name) => Some(name),
            PauseTarget::Kind(_) => None,
        })
        .collect();
    for queue in counts.iter_mut() {
        queue.paused = paused.remove(&queue.queue);
    }
    counts.extend(paused.into_iter().map(|queue| QueueCounts {
        queue,
        paused: true,
        ..QueueCounts::default()
    }));
    counts.sort_by(|a, b| a.queue.cmp(&b.queue));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: &str, ready: u64) -> QueueCounts {
        QueueCounts { queue: name.to_owned(), ready, ..QueueCounts::default() }
    }

    #[test]
    fn few_jobs_are_counted_each_time_and_many_are_not() {
        let counts = Counts::default();
        counts.keep(Instant::now(), &[queue("a", LARGE - 1)]);
        assert_eq!(counts.recent(), None);
        let many = [queue("a", LARGE), queue("b", 1)];
        counts.keep(Instant::now(), &many);
        assert_eq!(counts.recent(), Some((many.to_vec(), false)));
        let ago = |span| Instant::now().checked_sub(span).unwrap();
        counts.keep(ago(FRESH + Duration::from_millis(1)), &many);
        assert_eq!(counts.recent(), Some((many.to_vec(), true)), "told, and counted anew");
        assert_eq!(counts.recent(), Some((many.to_vec(), false)), "by one at a time");
        counts.keep(ago(COUNTS_AGE_MAX + Duration::from_millis(1)), &many);
        assert_eq!(counts.recent(), None, "too old to be told");
        counts.keep(Instant::now(), &[queue("a", 1)]);
        assert_eq!(counts.recent(), None, "few again");
    }

    #[test]
    fn pauses_are_shown_at_once() {
        let mut counts = vec![queue("a", 1), QueueCounts { paused: true, ..queue("c", 1) }];
        let pauses = ["a", "b"].map(|name| PauseTarget::Queue(name.to_owned()));
        show_pauses(&mut counts, [&pauses[..], &[PauseTarget::Kind("c".to_owned())]].concat());
        let told: Vec<(&str, bool)> =
            counts.iter().map(|queue| (queue.queue.as_str(), queue.paused)).collect();
        assert_eq!(told, [("a", true), ("b", true), ("c", false)]);
    }
}
