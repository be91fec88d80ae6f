//! How many jobs each queue has, and how long the oldest has waited.
//!
//! Every page shows it, and it is counted, not kept: a count that enqueue and settle keep up to date would be a row that
//! all of them wait for. Few jobs are counted each time. Many ([`LARGE`]), and those that took [`LONG`], are counted in the
//! background, at most every [`FRESH`], and only while somebody asks; meanwhile the last counts are told. While a transaction
//! that is held open keeps the dead where they are, counting costs more from hour to hour; then it is given no more than a small
//! share of the time ([`SHARE`]), and the oldest job is looked for as seldom.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stargate_queue::Result;
use stargate_queue::store::{COUNTS_AGE_DEAD_MAX, COUNTS_AGE_MAX, PauseTarget, QueueCounts};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connect::Session;
use super::rows::{count, span};
use super::{Inner, operate, sql};

/// So many jobs take long enough to count that an answer is kept.
const LARGE: u64 = 50_000;
/// Few jobs take as long where the dead among them cannot be removed.
const LONG: Duration = Duration::from_millis(100);
/// How long somebody waits for the count of another before counting too: a server that does not answer is waited for once.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// For how long they are not counted again.
const FRESH: Duration = Duration::from_secs(4);
/// What steps over the dead is done again after so many times as long as it took.
const SHARE: u32 = 100;
/// The oldest job is found by skipping, which takes longer only where the dead are skipped one by one.
const CHEAP: Duration = Duration::from_millis(20);
/// Fewer dead are not what makes counting slow.
const DEAD_ROWS: u64 = 10_000;

/// The last counts of very many jobs.
#[derive(Debug, Default)]
pub(super) struct Counts {
    kept: Mutex<Kept>,
    /// Who has no counts to tell counts; whoever comes meanwhile waits for that, because a page asks twice at once.
    turn: tokio::sync::Mutex<()>,
    /// The last answer for the oldest job, if it took long.
    oldest: Mutex<Option<Dear<Option<Duration>>>>,
}

/// An answer that took a while.
#[derive(Debug, Clone)]
struct Dear<T> {
    asked: Instant,
    took: Duration,
    answer: T,
}

impl<T> Dear<T> {
    fn is_recent(&self, age_max: Duration) -> bool {
        self.asked.elapsed() <= age_max
    }

    /// For how long it is not asked for again where the dead are why it took so long.
    fn rest(&self) -> Duration {
        (self.took * SHARE).min(COUNTS_AGE_DEAD_MAX - COUNTS_AGE_MAX)
    }
}

#[derive(Debug, Default)]
struct Kept {
    counted: Option<Dear<Vec<QueueCounts>>>,
    /// Whether most of what was stepped over was dead.
    mostly_dead: bool,
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
        let counted = kept.counted.clone()?;
        let rest = if kept.mostly_dead { counted.rest() } else { Duration::ZERO };
        if !counted.is_recent(COUNTS_AGE_MAX + rest) {
            return None;
        }
        let anew = !counted.is_recent(FRESH.max(rest)) && !kept.counting;
        kept.counting |= anew;
        Some((counted.answer, anew))
    }

    /// Keeps counts that are many or took long; they are as old as the question.
    fn keep(&self, asked: Instant, took: Duration, counts: &[QueueCounts], dead: u64) {
        let jobs = number_of(counts);
        let is_dear = jobs >= LARGE || took >= LONG;
        let mut kept = self.kept();
        kept.counted = is_dear.then(|| Dear { asked, took, answer: counts.to_vec() });
        kept.mostly_dead = dead >= jobs.max(DEAD_ROWS);
    }

    fn oldest(&self) -> MutexGuard<'_, Option<Dear<Option<Duration>>>> {
        self.oldest.lock().unwrap_or_else(PoisonError::into_inner)
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
    let took = asked.elapsed();
    let dead: i64 =
        if took < LONG { 0 } else { s.value("count the dead rows", sql!("job_dead"), &[]).await? };
    inner.counts.keep(asked, took, &counts, dead.unsigned_abs());
    Ok(counts)
}

/// Age of the oldest job that could run now but does not.
pub(super) async fn oldest_ready(inner: &Inner) -> Result<Option<Duration>> {
    if let Some(last) = inner.counts.oldest().as_ref().filter(|last| last.is_recent(last.rest())) {
        return Ok(last.answer);
    }
    let mut s = inner.readers.session().await?;
    let (now, asked) = (inner.clock.for_statement(), Instant::now());
    let rows =
        s.rows("find the oldest ready job", sql!("lane_oldest_ready"), &[(&now, Type::TIMESTAMPTZ)]).await?;
    let oldest = |row: &Row| row.get::<_, Option<jiff::Timestamp>>(0).map(|at| span(at, row.get(1)));
    let (answer, took) = (rows.first().and_then(oldest), asked.elapsed());
    // A busy machine is slow once; only the dead make it slow the next time, too.
    let dead: i64 =
        if took > CHEAP { s.value("count the dead rows", sql!("job_dead"), &[]).await? } else { 0 };
    *inner.counts.oldest() = (dead.unsigned_abs() >= DEAD_ROWS).then_some(Dear { asked, took, answer });
    Ok(answer)
}

/// Something was paused or resumed, and what is paused is not waited for: the oldest job may be another.
pub(super) fn forget_oldest(inner: &Inner) {
    *inner.counts.oldest() = None;
}

fn number_of(counts: &[QueueCounts]) -> u64 {
    counts.iter().map(|q| q.ready + q.delayed + q.blocked + q.processing + q.failed).sum()
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
        let (counts, quick) = (Counts::default(), Duration::from_millis(1));
        counts.keep(Instant::now(), quick, &[queue("a", LARGE - 1)], 0);
        assert_eq!(counts.recent(), None);
        let many = [queue("a", LARGE), queue("b", 1)];
        counts.keep(Instant::now(), quick, &many, 0);
        assert_eq!(counts.recent(), Some((many.to_vec(), false)));
        counts.keep(ago(FRESH + quick), quick, &many, 0);
        assert_eq!(counts.recent(), Some((many.to_vec(), true)), "told, and counted anew");
        assert_eq!(counts.recent(), Some((many.to_vec(), false)), "by one at a time");
        counts.keep(ago(COUNTS_AGE_MAX + quick), quick, &many, 0);
        assert_eq!(counts.recent(), None, "too old to be told");
        counts.keep(Instant::now(), quick, &[queue("a", 1)], 0);
        assert_eq!(counts.recent(), None, "few again");
    }

    #[test]
    fn where_most_are_dead_counting_takes_a_small_share_of_the_time() {
        let (counts, took) = (Counts::default(), Duration::from_millis(500));
        let few = [queue("a", 1)];
        let aged = |age, dead| {
            counts.kept().counting = false;
            counts.keep(ago(age), took, &few, dead);
            counts.recent()
        };
        assert_eq!(aged(took * SHARE - took, DEAD_ROWS), Some((few.to_vec(), false)));
        assert_eq!(
            aged(took * SHARE + took, DEAD_ROWS),
            Some((few.to_vec(), true)),
            "told, and counted anew"
        );
        assert_eq!(aged(took * SHARE + COUNTS_AGE_MAX + took, DEAD_ROWS), None, "too old to be told");
        assert_eq!(aged(FRESH + took, DEAD_ROWS - 1), Some((few.to_vec(), true)), "it is not the dead");
        let long = Dear { asked: Instant::now(), took: Duration::from_secs(60), answer: () };
        assert_eq!(
            long.rest() + COUNTS_AGE_MAX,
            COUNTS_AGE_DEAD_MAX,
            "no answer is older, however long it takes"
        );
    }

    fn ago(span: Duration) -> Instant {
        Instant::now().checked_sub(span).unwrap()
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
