//! What happens on this node, live: one producer for everybody who watches.
//!
//! ```text
//!  store, mirrors, leadership ─▶ Live::run, once a second at most ─▶ ring of the last 1000 messages
//!                                                                      ├▶ stream 1 (from where it was)
//!                                                                      └▶ stream 200
//! ```
//!
//! A stream costs its connection and a position in the ring; it asks the store nothing. Messages are numbered. A client
//! that comes back with the last number it saw goes on there, or is told to read everything again (`reset`) if the ring
//! does not reach so far back. While nobody watches, and has not for a while, nothing is looked at.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use stargate_base::clock;
use stargate_queue::State as JobState;
use stargate_queue::store::JobFilter;
use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::api::types::leader as leadership;
use crate::api::types::live::{JobsChanged, LeaderNow, MirrorNow, MirrorsNow, Reset};
use crate::api::{leader, operate};
use crate::app::Shared;

/// Messages that are kept for those who come back.
const RING: usize = 1000;
/// The shortest time between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// A look may take a twentieth of the time, as long as that is no longer than `EVERY_MAX`: a store that is slow is looked at less often.
const SHARE: u32 = 20;
/// The longest time between two looks: one that a busy machine held up says little about the next, and people wait.
const EVERY_MAX: Duration = Duration::from_secs(5);
/// How long it is looked on after the last stream has ended: a browser that lost its connection comes back.
const LINGER: Duration = Duration::from_secs(30);
/// Streams at once.
const STREAMS_MAX: usize = 1000;
/// The newest jobs and those that run, as far as they are compared.
const NEWEST: u32 = 20;
const RUNNING: u32 = 100;

/// A message.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) id: u64,
    pub(crate) event: &'static str,
    pub(crate) data: Arc<str>,
}

/// What is new since a position.
#[derive(Debug)]
pub(crate) enum News {
    /// Nothing.
    Nothing,
    /// These.
    Messages(Vec<Message>),
    /// More than is kept.
    Missed(Message),
}

/// The ring and those who wait for it.
#[derive(Debug)]
pub(crate) struct Live {
    ring: Mutex<Ring>,
    /// The number of the last message; who waits for it is a stream.
    head: watch::Sender<u64>,
    came: Notify,
    pub(crate) permits: Arc<Semaphore>,
}

#[derive(Debug)]
struct Ring {
    messages: VecDeque<Message>,
    last: u64,
}

impl Live {
    pub(crate) fn new() -> Self {
        // Numbers of an earlier process are smaller, so they are never mistaken for one of ours.
        let last = u64::try_from(clock::wall().as_millisecond()).unwrap_or(1);
        Self {
            ring: Mutex::new(Ring { messages: VecDeque::new(), last }),
            head: watch::channel(last).0,
            came: Notify::new(),
            permits: Arc::new(Semaphore::new(STREAMS_MAX)),
        }
    }

    /// A place at the ring: what tells of news, and the position to begin at. Without a number that is remembered it
    /// begins with what was last said of each thing.
    pub(crate) fn join(&self, last_seen: Option<u64>) -> (watch::Receiver<u64>, Position) {
        let receiver = self.head.subscribe();
        self.came.notify_one();
        (receiver, last_seen.map_or(Position::Fresh, Position::After))
    }

    /// What is new since a position, which moves on.
    pub(crate) fn news(&self, position: &mut Position) -> News {
        let ring = self.ring();
        let last = ring.last;
        let seen = match *position {
            Position::Fresh => {
                *position = Position::After(last);
                let newest = ring.newest_of_each();
                return if newest.is_empty() { News::Nothing } else { News::Messages(newest) };
            }
            Position::After(seen) => seen,
        };
        *position = Position::After(last);
        let kept_from = ring.messages.front().map_or(last + 1, |first| first.id);
        if seen == last {
            return News::Nothing;
        }
        if seen > last || seen + 1 < kept_from {
            let reason = "messages were missed: read again what you show";
            return News::Missed(message(last, "reset", &Reset { reason: reason.to_owned() }));
        }
        News::Messages(ring.messages.iter().filter(|message| message.id > seen).cloned().collect())
    }

    fn publish(&self, event: &'static str, data: &impl Serialize) {
        let mut ring = self.ring();
        ring.last += 1;
        let message = message(ring.last, event, data);
        ring.messages.push_back(message);
        if ring.messages.len() > RING {
            ring.messages.pop_front();
        }
        self.head.send_replace(ring.last);
    }

    /// Forgets everything: nobody has looked for a while, so whoever comes back has missed something.
    fn forget(&self) {
        let mut ring = self.ring();
        ring.messages.clear();
        ring.last += 1;
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    fn newest_of_each(&self) -> Vec<Message> {
        let mut newest: Vec<Message> = Vec::new();
        for message in self.messages.iter().rev().filter(|message| message.event != "jobs") {
            if newest.iter().all(|other| other.event != message.event) {
                newest.push(message.clone());
            }
        }
        newest.reverse();
        newest
    }
}

/// Where a stream is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Position {
    /// It has seen nothing.
    Fresh,
    /// It has seen this one.
    After(u64),
}

fn message(id: u64, event: &'static str, data: &impl Serialize) -> Message {
    let data = serde_json::to_string(data).unwrap_or_else(|_| "null".to_owned());
    Message { id, event, data: data.into() }
}

/// Looks and tells until told to stop.
pub(crate) async fn run(shared: &Shared, closing: CancellationToken) {
    closing.run_until_cancelled(watch_over(shared)).await;
}

async fn watch_over(shared: &Shared) {
    let live = &shared.live;
    loop {
        live.came.notified().await;
        let mut before = Before::default();
        let mut left: Option<Instant> = None;
        loop {
            let began = Instant::now();
            look(shared, &mut before).await;
            match live.head.receiver_count() {
                0 if left.is_some_and(|left| left.elapsed() >= LINGER) => break,
                0 => left = left.or(Some(began)),
                _ => left = None,
            }
            tokio::time::sleep(rest(began.elapsed())).await;
        }
        live.forget();
    }
}

/// How long nothing is looked at after a look that took so long.
fn rest(look: Duration) -> Duration {
    look.saturating_mul(SHARE).clamp(EVERY, EVERY_MAX)
}

/// What was told last.
#[derive(Debug, Default)]
struct Before {
    jobs: Option<HashMap<i64, Glimpse>>,
    mirrors: Option<MirrorsNow>,
    leader: Option<LeaderNow>,
}

/// Enough of a job to see that it changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Glimpse {
    state: JobState,
    progress: u8,
    attempts: u16,
}

async fn look(shared: &Shared, before: &mut Before) {
    let live = &shared.live;
    match operate::stats(shared).await {
        Ok(stats) => live.publish("stats", &stats),
        Err(problem) => tracing::debug!(code = %problem.code, "nobody can be told how it goes"),
    }
    match glimpses(shared).await {
        Ok((now, cut_off)) => {
            if let Some(changed) = before.jobs.as_ref().and_then(|before| changed(before, &now, cut_off)) {
                live.publish("jobs", &changed);
            }
            before.jobs = Some(now);
        }
        Err(error) => tracing::debug!(%error, "nobody can be told which jobs changed"),
    }
    let mirrors = mirrors(shared);
    if before.mirrors.as_ref() != Some(&mirrors) {
        live.publish("mirror", &mirrors);
        before.mirrors = Some(mirrors);
    }
    let leader = leader_now(shared);
    if before.leader.as_ref() != Some(&leader) {
        live.publish("leader", &leader);
        before.leader = Some(leader);
    }
}

/// The newest jobs and those that run, and whether there may be more of either.
async fn glimpses(shared: &Shared) -> stargate_queue::Result<(HashMap<i64, Glimpse>, bool)> {
    let newest = JobFilter { limit: NEWEST, ..JobFilter::default() };
    let running = JobFilter { states: vec![JobState::Processing], limit: RUNNING, ..JobFilter::default() };
    let newest = shared.store().jobs(newest).await?;
    let running = shared.store().jobs(running).await?;
    let cut_off = running.len() >= RUNNING as usize;
    let glimpse = |job: &stargate_queue::Job| {
        (job.id.0, Glimpse { state: job.state, progress: job.percent(), attempts: job.attempt_count })
    };
    Ok((newest.iter().chain(&running).map(glimpse).collect(), cut_off))
}

/// What differs between two looks.
fn changed(
    before: &HashMap<i64, Glimpse>,
    now: &HashMap<i64, Glimpse>,
    cut_off: bool,
) -> Option<JobsChanged> {
    let differs = |(id, glimpse): &(&i64, &Glimpse)| before.get(id) != Some(glimpse);
    let mut ids: Vec<i64> = now.iter().filter(differs).map(|(id, _)| *id).collect();
    // What ran and is not seen any more has ended, or waits again.
    let gone = before
        .iter()
        .filter(|(id, glimpse)| glimpse.state == JobState::Processing && !now.contains_key(id))
        .map(|(id, _)| *id);
    ids.extend(gone);
    ids.sort_unstable_by(|a, b| b.cmp(a));
    let all_new = now.len() >= NEWEST as usize && now.keys().all(|id| !before.contains_key(id));
    let more = cut_off || (all_new && !before.is_empty());
    (!ids.is_empty()).then_some(JobsChanged { ids, more })
}

fn mirrors(shared: &Shared) -> MirrorsNow {
    let states = shared.mirrors.as_ref().map(|mirrors| mirrors.states()).unwrap_or_default();
    let now = |(repo, state): (String, stargate_mirror::report::WorkerState)| MirrorNow {
        repo,
        breaker: state.breaker,
        backlog: state.backlog,
        // Whole seconds, so that a lag alone is not news a thousand times.
        lag_seconds: Duration::from_millis(state.lag_ms).as_secs_f64().floor(),
    };
    MirrorsNow { mirrors: states.into_iter().map(now).collect() }
}

fn leader_now(shared: &Shared) -> LeaderNow {
    let standing = shared.leadership.as_ref().map(stargate_leader::Leadership::standing);
    LeaderNow {
        role: standing.as_ref().map(|standing| leadership::role(standing).to_owned()),
        phase: standing.as_ref().map(|standing| leader::phase(standing).to_owned()),
        epoch: standing.as_ref().and_then(|standing| standing.term).map(|term| term.epoch.get()),
        leader: standing.and_then(|standing| standing.leader).map(|leader| leader.instance),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(news: News) -> Vec<String> {
        match news {
            News::Nothing => Vec::new(),
            News::Messages(messages) => messages.iter().map(|m| format!("{} {}", m.event, m.data)).collect(),
            News::Missed(message) => vec![message.event.to_owned()],
        }
    }

    #[test]
    fn who_comes_back_goes_on_where_it_was_or_is_told_that_it_missed_something() {
        let live = Live::new();
        let first = live.ring().last;
        (0..5).for_each(|n| live.publish("jobs", &n));
        assert_eq!(events(live.news(&mut Position::After(first + 3))), ["jobs 3", "jobs 4"]);
        assert_eq!(events(live.news(&mut Position::After(first + 5))), [""; 0]);
        assert_eq!(events(live.news(&mut Position::After(first + 6))), ["reset"], "a number of the future");
        (0..RING).for_each(|n| live.publish("jobs", &n));
        assert_eq!(events(live.news(&mut Position::After(first + 4))), ["reset"]);
        assert_eq!(events(live.news(&mut Position::After(first + 5))).len(), RING);
        let mut position = Position::After(1);
        assert_eq!(events(live.news(&mut position)), ["reset"]);
        assert_eq!(events(live.news(&mut position)), [""; 0], "and goes on from there");
    }

    #[test]
    fn who_comes_first_is_told_what_was_last_said_of_each_thing() {
        let live = Live::new();
        for (event, n) in [("stats", 1), ("leader", 2), ("jobs", 3), ("stats", 4)] {
            live.publish(event, &n);
        }
        let mut position = Position::Fresh;
        assert_eq!(events(live.news(&mut position)), ["leader 2", "stats 4"]);
        assert_eq!(events(live.news(&mut position)), [""; 0]);
        live.publish("jobs", &5);
        assert_eq!(events(live.news(&mut position)), ["jobs 5"]);
    }

    #[test]
    fn after_a_time_without_anybody_everybody_begins_anew() {
        let live = Live::new();
        live.publish("stats", &1);
        let seen = live.ring().last;
        live.forget();
        assert_eq!(events(live.news(&mut Position::After(seen))), ["reset"]);
    }

    #[test]
    fn a_look_that_was_held_up_is_not_followed_by_a_minute_of_silence() {
        assert_eq!(rest(Duration::from_millis(2)), EVERY);
        assert_eq!(rest(Duration::from_millis(100)), Duration::from_secs(2), "a twentieth of the time");
        assert_eq!(rest(Duration::from_secs(4)), EVERY_MAX);
        assert_eq!(rest(Duration::MAX), EVERY_MAX);
    }

    #[test]
    fn jobs_that_began_moved_or_ended_are_told() {
        let at = |state, progress| Glimpse { state, progress, attempts: 1 };
        let before = HashMap::from([
            (1, at(JobState::Processing, 10)),
            (2, at(JobState::Processing, 10)),
            (3, at(JobState::Queued, 0)),
        ]);
        let now = HashMap::from([
            (2, at(JobState::Processing, 20)),
            (3, at(JobState::Queued, 0)),
            (4, at(JobState::Queued, 0)),
        ]);
        assert_eq!(changed(&before, &now, false), Some(JobsChanged { ids: vec![4, 2, 1], more: false }));
        assert_eq!(changed(&now, &now, false), None);
        let flood = (100..120).map(|id| (id, at(JobState::Queued, 0))).collect();
        assert!(changed(&before, &flood, false).unwrap().more, "more came in than were looked at");
    }
}
