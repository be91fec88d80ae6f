//! Delivers lanes side by side: each key in its order, several keys at a time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::carrier::{Carried, Carrier, Uncarried};
use super::plan::{Lane, Sweep};
use super::{AGAIN, STORE_AGAIN, Shift};

/// How long a server that has too much of everything can keep a whole topic waiting at a time.
const FLOOD_MAX: Duration = Duration::from_secs(60);

/// How a lane ended.
#[derive(Debug)]
pub(super) struct LaneEnd {
    key: String,
    failed: Option<Pause>,
}

/// How long to wait after a failure.
#[derive(Debug)]
struct Pause {
    key_for: Duration,
    topic_for: Option<Duration>,
}

/// Delivers until it is told to stop and what has begun has ended.
pub(super) async fn run(
    shift: &Shift,
    carrier: &Arc<Carrier>,
    at_once: usize,
    flights: &mut JoinSet<LaneEnd>,
) {
    let mut desk = Desk::new();
    while shift.goes_on() {
        desk.start(shift, carrier, at_once, flights);
        let wake = desk.wake(flights.len() < at_once);
        tokio::select! {
            Some(end) = flights.join_next() => match end {
                Ok(end) => desk.ended(end),
                Err(error) => {
                    tracing::error!(topic = shift.office.topic, %error, "a delivery broke down; beginning anew");
                    return;
                }
            },
            () = sleep_until(wake) => desk.read(shift).await,
            () = shift.stop.cancelled() => {}
        }
    }
    while flights.join_next().await.is_some() {}
}

/// `None` is never.
async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// What is to be delivered and when.
struct Desk {
    sweep: Sweep,
    waiting: VecDeque<Lane>,
    /// Until when nothing is begun, because the server wants so.
    flooded_until: Instant,
    counted: Option<Instant>,
    store_failures: u32,
}

impl Desk {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            sweep: Sweep::new(now),
            waiting: VecDeque::new(),
            flooded_until: now,
            counted: None,
            store_failures: 0,
        }
    }

    /// Begins as many lanes as there is room for.
    fn start(
        &mut self,
        shift: &Shift,
        carrier: &Arc<Carrier>,
        at_once: usize,
        flights: &mut JoinSet<LaneEnd>,
    ) {
        while flights.len() < at_once
            && self.flooded_until <= Instant::now()
            && let Some(lane) = self.waiting.pop_front()
        {
            flights.spawn(travel(shift.clone(), carrier.clone(), lane));
        }
    }

    /// When there is something to do besides waiting for a lane to end.
    fn wake(&self, has_room: bool) -> Option<Instant> {
        let next = if self.waiting.is_empty() { self.sweep.next().0 } else { self.flooded_until };
        has_room.then_some(next.max(self.flooded_until))
    }

    /// Reads a page, unless there is something from the last one.
    async fn read(&mut self, shift: &Shift) {
        if !self.waiting.is_empty() {
            return;
        }
        if self.sweep.is_at_start() {
            shift.count_waiting(&mut self.counted).await;
        }
        match shift.next(self.sweep.next().1).await {
            Ok(page) => {
                self.store_failures = 0;
                self.waiting.extend(self.sweep.take(page, Instant::now()));
            }
            Err(error) => {
                self.store_failures += 1;
                tracing::warn!(topic = shift.office.topic, %error, "cannot read announcements; trying again");
                self.sweep.unread(Instant::now(), STORE_AGAIN.delay(self.store_failures));
            }
        }
    }

    fn ended(&mut self, end: LaneEnd) {
        let now = Instant::now();
        match end.failed {
            None => self.sweep.ended(&end.key, now),
            Some(pause) => {
                if let Some(delay) = pause.topic_for {
                    self.flooded_until = self.flooded_until.max(now + delay);
                }
                self.sweep.failed(end.key, now + pause.key_for);
            }
        }
    }
}

/// Delivers the announcements of one key, up to the first that fails.
async fn travel(shift: Shift, carrier: Arc<Carrier>, lane: Lane) -> LaneEnd {
    let mut failed = None;
    for announcement in &lane.announcements {
        if !shift.goes_on() {
            break;
        }
        match carrier.carry(announcement).await {
            Ok(Carried::Noted) => shift.office.counts.delivered.increment(1),
            Ok(Carried::Sent) => {
                if !shift.note_done(announcement.id).await {
                    break;
                }
            }
            Err(uncarried) => {
                shift.note_failed(announcement, &uncarried.problem).await;
                failed = Some(pause(&uncarried, announcement.attempts));
                break;
            }
        }
    }
    LaneEnd { key: lane.key, failed }
}

/// How long to wait after a failure that `attempts` came before. The server's own wish takes the place of ours.
fn pause(uncarried: &Uncarried, attempts: u32) -> Pause {
    let asked = uncarried.retry_after.map(|delay| delay.max(AGAIN.first));
    let key_for = asked.unwrap_or_else(|| AGAIN.delay(attempts.saturating_add(1)));
    let topic_for = uncarried.is_flooded.then(|| key_for.min(FLOOD_MAX));
    Pause { key_for, topic_for }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uncarried(retry_after: Option<u64>, is_flooded: bool) -> Uncarried {
        let retry_after = retry_after.map(Duration::from_secs);
        Uncarried { problem: String::new(), retry_after, is_flooded }
    }

    #[test]
    fn a_key_waits_from_a_second_to_five_minutes_or_as_long_as_the_server_says() {
        for (attempts, seconds) in [(0, 1.0), (1, 2.0), (2, 4.0), (8, 256.0), (9, 300.0), (u32::MAX, 300.0)] {
            let pause = pause(&uncarried(None, false), attempts);
            let share = pause.key_for.as_secs_f64() / seconds;
            assert!((0.89..=1.11).contains(&share), "{attempts}: {pause:?}");
            assert_eq!(pause.topic_for, None);
        }
        assert_eq!(pause(&uncarried(Some(7), false), 20).key_for, Duration::from_secs(7));
        assert_eq!(pause(&uncarried(Some(0), false), 0).key_for, Duration::from_secs(1));
    }

    #[test]
    fn only_a_server_with_too_much_of_everything_holds_up_the_topic_and_not_for_long() {
        assert_eq!(pause(&uncarried(Some(7), true), 0).topic_for, Some(Duration::from_secs(7)));
        assert_eq!(pause(&uncarried(Some(3600), true), 0).topic_for, Some(FLOOD_MAX));
        assert_eq!(pause(&uncarried(Some(7), false), 0).topic_for, None);
    }
}
