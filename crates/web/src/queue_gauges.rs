//! Gauges that only the store knows: how many jobs are where, and how long the oldest has been waiting.

use std::collections::BTreeSet;
use std::time::Duration;

use stargate_queue::SharedStore;
use stargate_queue::metrics::{OLDEST_FAILED, OLDEST_READY, QUEUE_DEPTH};
use stargate_queue::store::QueueCounts;
use tokio_util::sync::CancellationToken;

use crate::metrics::{STORE_TIME, STORE_UP};

/// How often the store is asked.
pub const INTERVAL: Duration = Duration::from_secs(15);
/// How long it may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Queues with a label of their own; the rest are added up, because every label costs memory for ever.
const QUEUES_MAX: usize = 200;
const OTHERS: &str = "(others)";
/// Groups of failed jobs that are looked through for the oldest.
const GROUPS_MAX: u32 = 500;

/// Refreshes the gauges until told to stop.
pub async fn run(store: SharedStore, stop: CancellationToken) {
    let mut gauges = Gauges::default();
    loop {
        let looked = tokio::time::timeout(TIMEOUT, gauges.run_once(&store)).await;
        metrics::gauge!(STORE_UP).set(if matches!(looked, Ok(Ok(()))) { 1.0 } else { 0.0 });
        match looked {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the queue gauges could not be refreshed"),
            Err(_) => tracing::warn!(timeout = ?TIMEOUT, "the queue gauges could not be refreshed in time"),
        }
        if stop.run_until_cancelled(tokio::time::sleep(INTERVAL)).await.is_none() {
            return;
        }
    }
}

/// The queues seen so far: one that becomes empty must fall to zero instead of keeping its last value.
#[derive(Debug, Default)]
pub struct Gauges {
    seen: BTreeSet<String>,
}

impl Gauges {
    /// Asks the store once and sets all gauges.
    pub async fn run_once(&mut self, store: &SharedStore) -> stargate_queue::Result<()> {
        let health = store.check().await?;
        metrics::gauge!(STORE_TIME).set(health.round_trip.as_secs_f64());
        let queues = store.queues().await?;
        let oldest = store.oldest_ready().await?;
        metrics::gauge!(OLDEST_READY).set(oldest.unwrap_or_default().as_secs_f64());
        metrics::gauge!(OLDEST_FAILED).set(oldest_failed(store).await?);
        self.set(queues);
        Ok(())
    }

    fn set(&mut self, queues: Vec<QueueCounts>) {
        let mut others = QueueCounts { queue: OTHERS.to_owned(), ..QueueCounts::default() };
        let mut absent = self.seen.clone();
        for counts in queues {
            if self.seen.len() >= QUEUES_MAX && !self.seen.contains(&counts.queue) {
                add(&mut others, &counts);
                continue;
            }
            absent.remove(&counts.queue);
            self.seen.insert(counts.queue.clone());
            show(&counts);
        }
        for queue in absent {
            show(&QueueCounts { queue, ..QueueCounts::default() });
        }
        if self.seen.len() >= QUEUES_MAX {
            show(&others);
        }
    }
}

/// How many seconds ago the oldest failed job ended that is in a group.
async fn oldest_failed(store: &SharedStore) -> stargate_queue::Result<f64> {
    let groups = store.failures(GROUPS_MAX).await?;
    let Some(oldest) = groups.iter().map(|group| group.oldest_at).min() else { return Ok(0.0) };
    Ok(store.now().await?.duration_since(oldest).as_secs_f64().max(0.0))
}

fn add(sum: &mut QueueCounts, counts: &QueueCounts) {
    sum.ready += counts.ready;
    sum.delayed += counts.delayed;
    sum.blocked += counts.blocked;
    sum.processing += counts.processing;
    sum.failed += counts.failed;
}

fn show(counts: &QueueCounts) {
    let states = [
        ("ready", counts.ready),
        ("delayed", counts.delayed),
        ("blocked", counts.blocked),
        ("processing", counts.processing),
        ("failed", counts.failed),
    ];
    for (state, jobs) in states {
        #[expect(clippy::cast_precision_loss, reason = "a gauge of more than 2^53 jobs does not exist")]
        metrics::gauge!(QUEUE_DEPTH, "queue" => counts.queue.clone(), "state" => state).set(jobs as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(queue: &str, ready: u64) -> QueueCounts {
        QueueCounts { queue: queue.to_owned(), ready, ..QueueCounts::default() }
    }

    #[test]
    fn a_queue_that_becomes_empty_falls_to_zero() {
        let (recorder, handle) = crate::metrics::build(None, &[]).unwrap();
        metrics::with_local_recorder(&recorder, || {
            let mut gauges = Gauges::default();
            gauges.set(vec![counts("a", 3), counts("b", 5)]);
            gauges.set(vec![counts("b", 4)]);
        });
        let text = handle.render();
        assert!(text.contains("worker_queue_depth{queue=\"a\",state=\"ready\"} 0"), "{text}");
        assert!(text.contains("worker_queue_depth{queue=\"b\",state=\"ready\"} 4"), "{text}");
    }

    #[test]
    fn many_queues_do_not_become_as_many_labels() {
        let (recorder, handle) = crate::metrics::build(None, &[]).unwrap();
        metrics::with_local_recorder(&recorder, || {
            Gauges::default().set((0..1000).map(|n| counts(&format!("q{n}"), 1)).collect());
        });
        let text = handle.render();
        assert_eq!(text.matches("state=\"ready\"").count(), QUEUES_MAX + 1);
        assert!(text.contains("{queue=\"(others)\",state=\"ready\"} 800"), "{text}");
    }
}
