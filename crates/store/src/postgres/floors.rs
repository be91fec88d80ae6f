//! Where claims need not look while dead rows stay.
//!
//! Jobs are taken from the front of the index of ready jobs, and what was taken stays there, dead, until a vacuum. As long
//! as a transaction is held open somewhere, none can remove it, and a claim that begins at the front steps over every
//! job that was taken since. So a claim begins where the last one ended: for each lane and priority there is a floor, a due
//! time below which nothing was left. Lanes and priorities without one are read whole; they have few dead.
//!
//! A job can appear below a floor: its transaction committed late, or it was handed back with its old due time. Floors
//! stay a little behind the present for that. And again and again a claim reads what is below them as well: at once
//! when this process knows of such a job, else as often as it costs a small share of the time. So such a job waits longer
//! the more dead there are, a second or two with a million of them. Nothing else depends on floors, and there are none as
//! long as vacuums do their work.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use stargate_queue::job::PRIORITY_MAX;
use stargate_queue::store::ClaimRequest;
use tokio::time::Instant;
use tokio_postgres::types::Type;

use super::connect::Param;

/// So many dead rows are left by a vacuum only if it is kept from removing them.
const DEAD_ROWS: i64 = 10_000;
/// So much before the present a floor stays, for transactions that commit out of order.
const BEHIND: SignedDuration = SignedDuration::from_secs(1);
/// What is below is read again after so many times as long as that took.
const WHOLE_SHARE: u32 = 30;
/// But after no longer than this: what took so long need not have been the dead.
const WHOLE_AFTER_MAX: Duration = Duration::from_secs(60);
/// A claim that took no longer has read few dead.
const CHEAP: Duration = Duration::from_millis(5);
/// Floors that are kept: those from which the most jobs were taken.
const FLOORS_MAX: usize = 64;
/// The bounds of priorities, and of the numbers of lanes.
const PRIORITIES: (i16, i16) = (0, PRIORITY_MAX);
const LANES: (i32, i32) = (-1, i32::MAX);

/// A lane and a priority, in the order of the index.
type Place = (i32, Reverse<i16>);

/// What is known of the dead.
#[derive(Debug, Default)]
pub(super) struct Floors(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Whether the dead stay.
    kept: bool,
    always: bool,
    ready: BTreeMap<Place, Floor>,
    /// Of delayed jobs, with the time when they are all looked at again.
    delayed: Option<(Timestamp, Instant)>,
    /// Whether a delayed job may be below, and no claim has looked there since.
    delayed_owed: bool,
    /// How often everything was forgotten: a claim that was under way has not seen why.
    forgotten: u64,
    /// The latest time that a claim has told.
    now: Option<Timestamp>,
}

#[derive(Debug, Clone)]
struct Floor {
    queue: Arc<str>,
    kind: Arc<str>,
    run_at: Timestamp,
    taken: u64,
    /// When what is below is read again; at once when absent.
    whole_at: Option<Instant>,
    /// Whether a job may be below, and no claim has looked there since and seen all of it.
    owed: bool,
}

impl Floor {
    fn is_served(&self, request: &ClaimRequest) -> bool {
        request.kinds.iter().any(|kind| kind.slots > 0 && *kind.kind == *self.kind)
            && (request.queues.is_empty() || request.queues.iter().any(|queue| **queue == *self.queue))
    }
}

impl State {
    fn owe(&mut self) {
        self.delayed_owed = self.kept;
        self.ready.values_mut().for_each(|floor| floor.owed = true);
    }
}

/// A job that was taken from the front of what a claim looked at.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) lane: i32,
    pub(super) queue: Arc<str>,
    pub(super) kind: Arc<str>,
    pub(super) priority: i16,
    pub(super) run_at: Timestamp,
}

/// Where a claim looks, as its statement takes it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// Between which lanes others are searched for.
    pub(super) above: Vec<i32>,
    pub(super) below: Vec<i32>,
    /// Parts of the lanes that have floors, the highest priorities first. One with a floor has a single priority; a lane that is
    /// read whole has no priorities.
    pub(super) lanes: Vec<i32>,
    pub(super) most: Vec<Option<i16>>,
    pub(super) least: Vec<Option<i16>>,
    pub(super) since: Vec<Option<Timestamp>>,
    /// From when on delayed jobs are looked for.
    pub(super) delayed: Option<Timestamp>,
    /// Floors below which it looks, because that is due.
    whole: Vec<Place>,
    began: Instant,
    forgotten: u64,
}

impl Floors {
    /// Nothing is known yet. For tests the dead may count as kept, however few they are.
    pub(super) fn new(always: bool) -> Self {
        Self(Mutex::new(State { always, kept: always, ..State::default() }))
    }

    /// So many dead rows were there after a vacuum, or in the beginning; whether they are too many to be read each time.
    pub(super) fn found_dead(&self, dead: i64) -> bool {
        let mut state = self.lock();
        let kept = state.always || dead >= DEAD_ROWS;
        if kept != state.kept {
            *state = State { kept, forgotten: state.forgotten + 1, ..State::default() };
        }
        kept
    }

    /// A job may have become ready with a due time of long ago: the next claims look below the floors.
    pub(super) fn forget(&self) {
        let mut state = self.lock();
        state.owe();
        state.forgotten += 1;
        state.delayed = None;
        state.ready.values_mut().for_each(|floor| floor.whole_at = None);
    }

    /// The same if it was due that long ago.
    pub(super) fn forget_before(&self, now: Timestamp, due_at: Option<Timestamp>) {
        if due_at.is_some_and(|due| due < behind(now)) {
            self.forget();
        }
    }

    /// Somebody else may have such a job: no claim is to be the last before one has looked below the floors.
    pub(super) fn owe(&self) {
        self.lock().owe();
    }

    /// When this claim has to look below the floors though nothing else calls for one.
    pub(super) fn owed_in(&self, request: &ClaimRequest) -> Option<Duration> {
        let state = self.lock();
        let owed = |floor: &&Floor| floor.owed && floor.is_served(request);
        let ready = state.ready.values().filter(owed).map(|floor| floor.whole_at);
        let delayed = state.delayed_owed.then(|| state.delayed.map(|(_, again)| again));
        let first = ready.chain(delayed).min()?;
        Some(first.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now())))
    }

    /// Where a claim looks.
    pub(super) fn look(&self, request: &ClaimRequest) -> Look {
        let (state, now) = (self.lock(), Instant::now());
        let is_due = |floor: &Floor| floor.whole_at.is_none_or(|at| at <= now) && floor.is_served(request);
        let whole: Vec<Place> =
            state.ready.iter().filter(|(_, floor)| is_due(floor)).map(|(place, _)| *place).collect();
        let floors = state.ready.iter().filter(|(place, _)| !whole.contains(place));
        let mut look = Look::above(floors);
        look.delayed = state.delayed.filter(|(_, whole_at)| *whole_at > now).map(|(since, _)| since);
        look.whole = whole;
        look.forgotten = state.forgotten;
        look
    }

    /// Everything above the floors, for who need not be exact.
    pub(super) fn above(&self) -> Look {
        let state = self.lock();
        let mut look = Look::above(state.ready.iter());
        look.delayed = state.delayed.map(|(since, _)| since);
        look
    }

    /// Where a claim in this lane alone looks.
    pub(super) fn look_in(&self, lane: i32) -> Look {
        let state = self.lock();
        let mut look = Look::above(state.ready.range((lane, Reverse(i16::MAX))..=(lane, Reverse(i16::MIN))));
        look.delayed = state.delayed.map(|(since, _)| since);
        if look.lanes.is_empty() {
            look.lanes.push(lane);
            look.most.push(None);
            look.least.push(None);
            look.since.push(None);
        }
        look.forgotten = state.forgotten;
        look
    }

    /// A claim that looked there took these. One that is full may have left others.
    pub(super) fn taken(&self, look: &Look, now: Timestamp, jobs: impl Iterator<Item = Taken>, full: bool) {
        let mut state = self.lock();
        if !state.kept {
            return;
        }
        if state.now.is_some_and(|before| now < before) {
            // The clock was set back: what is new is due before what was taken.
            state.ready.clear();
            state.delayed = None;
        }
        state.now = Some(now);
        let mut ends: BTreeMap<Place, Taken> = BTreeMap::new();
        for job in jobs {
            let place = (job.lane, Reverse(job.priority));
            state.ready.entry(place).and_modify(|floor| floor.taken += 1);
            if ends.get(&place).is_none_or(|end| end.run_at <= job.run_at) {
                ends.insert(place, job);
            }
        }
        let took = look.began.elapsed();
        // None: at once, because something was forgotten meanwhile.
        let again = (look.forgotten == state.forgotten).then(|| whole_after(took));
        for (place, Taken { queue, kind, run_at, .. }) in ends {
            let run_at = run_at.min(behind(now));
            let new = Floor { queue, kind, run_at, taken: 1, whole_at: again, owed: again.is_none() };
            state.ready.entry(place).or_insert(new).run_at = run_at;
        }
        if !full || took > CHEAP {
            for place in &look.whole {
                state.ready.entry(*place).and_modify(|floor| {
                    floor.whole_at = again;
                    floor.owed &= full || again.is_none();
                });
            }
        }
        while state.ready.len() > FLOORS_MAX {
            let least = state.ready.iter().min_by_key(|(_, floor)| floor.taken).map(|(place, _)| *place);
            least.and_then(|place| state.ready.remove(&place));
        }
    }

    /// A claim that looked there knows when the next delayed job is due.
    pub(super) fn delayed(&self, look: &Look, now: Timestamp, due_at: Option<Timestamp>) {
        let mut state = self.lock();
        if !state.kept {
            return;
        }
        let since = due_at.map_or(behind(now), |due| due.min(behind(now)));
        state.delayed = match (look.delayed, state.delayed) {
            // Forgotten meanwhile.
            _ if look.forgotten != state.forgotten => None,
            (Some(_), known) => known.map(|(_, again)| (since, again)),
            (None, _) => {
                state.delayed_owed = false;
                Some((since, whole_after(look.began.elapsed())))
            }
        };
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When to look below again, after that took so long.
fn whole_after(took: Duration) -> Instant {
    Instant::now() + (took * WHOLE_SHARE).min(WHOLE_AFTER_MAX)
}

fn behind(now: Timestamp) -> Timestamp {
    now.checked_sub(BEHIND).unwrap_or(now)
}

impl Look {
    /// Everything but what is below the floors.
    fn above<'f>(floors: impl Iterator<Item = (&'f Place, &'f Floor)>) -> Self {
        let mut look = Self {
            above: vec![LANES.0],
            below: Vec::new(),
            lanes: Vec::new(),
            most: Vec::new(),
            least: Vec::new(),
            since: Vec::new(),
            delayed: None,
            whole: Vec::new(),
            began: Instant::now(),
            forgotten: 0,
        };
        let mut last: Option<(i32, i16)> = None;
        for ((lane, Reverse(priority)), floor) in floors {
            let (lane, priority) = (*lane, *priority);
            let most = match last {
                Some((same, above)) if same == lane => above - 1,
                _ => {
                    look.end_lane(last);
                    look.below.push(lane);
                    look.above.push(lane);
                    PRIORITIES.1
                }
            };
            look.part(lane, most, priority + 1, None);
            look.part(lane, priority, priority, Some(floor.run_at));
            last = Some((lane, priority));
        }
        look.end_lane(last);
        look.below.push(LANES.1);
        look
    }

    /// The parameters that a statement which looks there ends with.
    pub(super) fn params(&self) -> [Param<'_>; 7] {
        [
            (&self.above, Type::INT4_ARRAY),
            (&self.below, Type::INT4_ARRAY),
            (&self.lanes, Type::INT4_ARRAY),
            (&self.most, Type::INT2_ARRAY),
            (&self.least, Type::INT2_ARRAY),
            (&self.since, Type::TIMESTAMPTZ_ARRAY),
            (&self.delayed, Type::TIMESTAMPTZ),
        ]
    }

    /// Whether nothing is left out.
    pub(super) fn is_everything(&self) -> bool {
        self.delayed.is_none() && self.since.iter().all(Option::is_none)
    }

    /// What is below the last priority with a floor.
    fn end_lane(&mut self, last: Option<(i32, i16)>) {
        if let Some((lane, priority)) = last {
            self.part(lane, priority - 1, PRIORITIES.0, None);
        }
    }

    fn part(&mut self, lane: i32, most: i16, least: i16, since: Option<Timestamp>) {
        if most >= least {
            self.lanes.push(lane);
            self.most.push(Some(most));
            self.least.push(Some(least));
            self.since.push(since);
        }
    }
}

#[cfg(test)]
mod tests {
    use stargate_queue::WorkerId;
    use stargate_queue::store::KindSlots;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn request(kind: &str) -> ClaimRequest {
        let kinds = vec![KindSlots { kind: kind.into(), slots: 10, lease: Duration::from_secs(30) }];
        ClaimRequest { worker: WorkerId(1), limit: 10, queues: vec![], kinds }
    }

    /// The parts of a look: lane, highest and lowest priority, since when.
    fn parts(look: &Look) -> Vec<(i32, i16, i16, Option<i64>)> {
        (0..look.lanes.len())
            .map(|n| {
                (
                    look.lanes[n],
                    look.most[n].unwrap_or(-1),
                    look.least[n].unwrap_or(-1),
                    look.since[n].map(Timestamp::as_second),
                )
            })
            .collect()
    }

    /// A claim at the second 100 that takes so long and finds these: lanes, priorities and due times.
    async fn claim(floors: &Floors, took: Duration, jobs: &[(i32, i16, i64)], full: bool) -> Look {
        let look = floors.look(&request("a"));
        tokio::time::advance(took).await;
        let taken = |(lane, priority, due): &(i32, i16, i64)| Taken {
            lane: *lane,
            queue: "default".into(),
            kind: "a".into(),
            priority: *priority,
            run_at: at(*due),
        };
        floors.taken(&look, at(100), jobs.iter().map(taken), full);
        floors.delayed(&look, at(100), None);
        look
    }

    fn kept() -> Floors {
        let floors = Floors::new(false);
        assert!(floors.found_dead(DEAD_ROWS));
        floors
    }

    const SLOW: Duration = Duration::from_millis(100);
    const AGAIN: Duration = Duration::from_secs(3);

    #[tokio::test(start_paused = true)]
    async fn while_vacuums_help_everything_is_looked_at() {
        let floors = Floors::new(false);
        claim(&floors, SLOW, &[(7, 0, 50)], false).await;
        let everywhere = Look::above(std::iter::empty());
        assert_eq!(floors.look(&request("a")), everywhere);
        assert!(!floors.found_dead(DEAD_ROWS - 1));
        assert_eq!(floors.look(&request("a")), everywhere);
        assert_eq!(parts(&floors.look_in(7)), [(7, -1, -1, None)]);
        assert!(floors.look_in(7).is_everything());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_taken_is_left_out_and_nothing_else() {
        let floors = kept();
        claim(&floors, SLOW, &[(7, 5, 50), (7, 5, 60), (7, 0, 70), (9, 9999, 80)], false).await;
        let look = floors.look(&request("a"));
        let of_seven = [(7, 9999, 6, None), (7, 5, 5, Some(60)), (7, 4, 1, None), (7, 0, 0, Some(70))];
        let of_nine = [(9, 9999, 9999, Some(80)), (9, 9998, 0, None)];
        assert_eq!(parts(&look), [&of_seven[..], &of_nine[..]].concat());
        assert_eq!((look.above, look.below), (vec![-1, 7, 9], vec![7, 9, i32::MAX]));
        assert_eq!(parts(&floors.look_in(7)), of_seven);
        assert_eq!(parts(&floors.look_in(8)), [(8, -1, -1, None)]);
        assert!(!floors.look_in(7).is_everything());
        assert!(!floors.found_dead(0));
        assert_eq!(parts(&floors.look(&request("a"))), []);
    }

    #[tokio::test(start_paused = true)]
    async fn floors_stay_behind_the_present() {
        let floors = kept();
        claim(&floors, SLOW, &[(7, 0, 100)], false).await;
        assert_eq!(parts(&floors.look_in(7))[1], (7, 0, 0, Some(99)));
        let look = floors.look(&request("a"));
        assert_eq!(look.delayed, Some(at(99)));
        floors.delayed(&look, at(200), Some(at(150)));
        assert_eq!(floors.look(&request("a")).delayed, Some(at(150)));
    }

    #[tokio::test(start_paused = true)]
    async fn again_and_again_a_claim_looks_below_by_one_that_serves_the_lane() {
        let floors = kept();
        claim(&floors, SLOW, &[(7, 0, 50)], false).await;
        tokio::time::advance(AGAIN - Duration::from_millis(1)).await;
        assert_eq!(floors.look(&request("a")).whole, []);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(floors.look(&request("b")).whole, []);
        let look = claim(&floors, SLOW, &[], false).await;
        assert_eq!((look.whole.len(), look.lanes.len(), look.delayed), (1, 0, None));
        // Nothing was there: the floor holds again.
        assert_eq!(parts(&floors.look(&request("a")))[1], (7, 0, 0, Some(50)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_came_from_below_is_looked_for_until_it_was_seen() {
        let floors = kept();
        claim(&floors, SLOW, &[(7, 0, 50)], false).await;
        floors.forget_before(at(100), Some(at(99)));
        assert_eq!(floors.look(&request("a")).whole, []);
        floors.forget_before(at(100), Some(at(98)));
        // A claim that was full of other things may have left it, unless the look is dear.
        let (quick, below) = (Duration::from_millis(1), (7, Reverse(0)));
        assert!(claim(&floors, quick, &[(9, 0, 40)], true).await.whole.contains(&below));
        assert!(claim(&floors, quick, &[(9, 0, 41)], true).await.whole.contains(&below));
        assert!(claim(&floors, SLOW, &[(9, 0, 42)], true).await.whole.contains(&below));
        assert!(!claim(&floors, quick, &[], false).await.whole.contains(&below));
        // The floor is where the last one was taken: there may be more like it.
        floors.forget();
        claim(&floors, SLOW, &[(7, 0, 20)], true).await;
        assert_eq!(parts(&floors.look_in(7))[1], (7, 0, 0, Some(20)));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_rests_before_what_may_be_below_was_looked_for() {
        let floors = kept();
        claim(&floors, SLOW, &[(7, 0, 50)], false).await;
        assert_eq!(floors.owed_in(&request("a")), None);
        floors.owe();
        assert_eq!(floors.owed_in(&request("a")), Some(AGAIN));
        tokio::time::advance(AGAIN).await;
        assert_eq!(floors.owed_in(&request("a")), Some(Duration::ZERO));
        claim(&floors, SLOW, &[], false).await;
        assert_eq!(floors.owed_in(&request("a")), None);
        // Others have other lanes.
        floors.forget();
        floors.delayed(&floors.look(&request("b")), at(100), None);
        assert_eq!(floors.owed_in(&request("b")), None);
        assert_eq!(floors.owed_in(&request("a")), Some(Duration::ZERO));
        // Nor has one to look for what it has no room for.
        let mut full = request("a");
        full.kinds[0].slots = 0;
        assert_eq!(floors.owed_in(&full), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_forgotten_during_a_claim_counts_after_it() {
        let floors = kept();
        claim(&floors, SLOW, &[(7, 0, 50)], false).await;
        tokio::time::advance(AGAIN).await;
        let look = floors.look(&request("a"));
        floors.forget();
        floors.taken(&look, at(100), std::iter::empty(), false);
        floors.delayed(&look, at(100), None);
        assert_eq!(floors.owed_in(&request("a")), Some(Duration::ZERO));
        let look = floors.look(&request("a"));
        assert_eq!((look.whole.len(), look.delayed), (1, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_set_back_leaves_no_floors() {
        let floors = kept();
        claim(&floors, SLOW, &[(7, 0, 50), (9, 0, 50)], false).await;
        let look = floors.look(&request("a"));
        floors.taken(&look, at(90), std::iter::empty(), false);
        assert_eq!(parts(&floors.look(&request("a"))), []);
    }

    #[tokio::test(start_paused = true)]
    async fn the_floors_that_matter_least_are_dropped() {
        let floors = kept();
        let jobs: Vec<(i32, i16, i64)> = (0..64).flat_map(|n| [(n, 0, 50), (n, 0, 51)]).collect();
        claim(&floors, SLOW, &jobs, false).await;
        claim(&floors, SLOW, &[(3, 0, 60)], false).await;
        claim(&floors, SLOW, &jobs, false).await;
        claim(&floors, SLOW, &[(500, 0, 60)], false).await;
        let look = floors.look(&request("a"));
        assert_eq!(look.below.len(), FLOORS_MAX + 1);
        assert!(look.lanes.contains(&3) && !look.lanes.contains(&500));
    }
}
