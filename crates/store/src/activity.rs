//! What ended when, remembered: the past does not change, so it is asked for once.
//!
//! ```text
//!   past ◀── asked for in steps ──│──── the books ────│── the last seconds ──▶ now
//!                                from                 to    asked for each time
//! ```
//!
//! An end is entered under its second and its minute. Ends of the last [`LAG`] are asked for anew by every call: their
//! transactions may be under way. Further back the books grow with each call, for as long as its time allows; so the
//! first answer of a process may be incomplete (and says so), and no answer costs more than what is new, however many
//! jobs there are.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use stargate_queue::State;
use stargate_queue::listing::Activity;

/// How long a commit may take after the time it wrote.
const LAG: i64 = 5;
/// A gap that is not worth filling from its old end: the books are begun anew.
const GAP_MAX: i64 = 60;
/// How long one call may go on looking further back.
const PATIENCE: Duration = Duration::from_millis(20);
/// How far back seconds are kept apart.
const SECONDS_KEPT: i64 = 2 * 3600 + 600;
/// How far back anything is kept.
const KEPT: i64 = 32 * 86_400;
const STEP_FIRST: i64 = 30;
/// A step with fewer ends than this is followed by a longer one, with more than the other by a shorter one.
const STEP_FEW: u64 = 2000;
const STEP_MANY: u64 = 10_000;
/// How much longer the waits of one bin are than those of the bin before.
const BIN_GROWTH: f64 = 1.05;
const BINS: usize = 512;
const MICROS: i64 = 1_000_000;

/// Jobs that ended in the same second, in the same state, after the same wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) second: i64,
    pub(crate) state: State,
    /// From due to claimed; none if it never ran.
    pub(crate) wait_ms: Option<u64>,
    pub(crate) count: u64,
}

#[derive(Debug, Clone, Default)]
struct Cell {
    done: u64,
    failed: u64,
    cancelled: u64,
    /// Bins that are not empty, in order.
    waits: Vec<(u16, u64)>,
}

impl Cell {
    fn enter(&mut self, ended: &Ended) {
        match ended.state {
            State::Failed => self.failed += ended.count,
            State::Cancelled => self.cancelled += ended.count,
            _ => self.done += ended.count,
        }
        if let Some(wait) = ended.wait_ms {
            self.wait(bin(wait), ended.count);
        }
    }

    fn wait(&mut self, bin: u16, count: u64) {
        match self.waits.binary_search_by_key(&bin, |(bin, _)| *bin) {
            Ok(at) => self.waits[at].1 += count,
            Err(at) => self.waits.insert(at, (bin, count)),
        }
    }

    fn add(&mut self, other: &Self) {
        self.done += other.done;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
        for (bin, count) in &other.waits {
            self.wait(*bin, *count);
        }
    }

    /// The wait that so many of a hundred did not exceed.
    fn wait_ms(&self, percent: u64) -> Option<u64> {
        let total: u64 = self.waits.iter().map(|(_, count)| count).sum();
        let wanted = (total * percent).div_ceil(100);
        let mut seen = 0;
        self.waits.iter().find_map(|(bin, count)| {
            seen += count;
            (seen >= wanted).then(|| wait_of(*bin))
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "a wait is told within five per cent")]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below BINS")]
fn bin(wait_ms: u64) -> u16 {
    match wait_ms {
        0 => 0,
        ms => ((ms as f64).ln() / BIN_GROWTH.ln()).floor().min((BINS - 2) as f64) as u16 + 1,
    }
}

/// The middle of a bin.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive, and waits are not that long"
)]
fn wait_of(bin: u16) -> u64 {
    if bin == 0 { 0 } else { BIN_GROWTH.powf(f64::from(bin) - 0.5).round() as u64 }
}

#[derive(Debug, Default)]
struct Books {
    /// Whole seconds since 1970: everything that ended from the one up to the other is entered.
    covered: Option<Range<i64>>,
    seconds: BTreeMap<i64, Cell>,
    minutes: BTreeMap<i64, Cell>,
    /// How long the next step back is.
    step: i64,
}

/// What ended when, as far as this process knows.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Books>);

/// One look at the ledger: what is asked for, and what still has to be found out.
#[derive(Debug)]
pub(crate) struct Look<'l> {
    ledger: &'l Ledger,
    now: i64,
    /// Where each bucket begins, in seconds; all are equally long.
    from: i64,
    length: i64,
    buckets: i64,
    begun: Option<Instant>,
}

impl Ledger {
    /// Begins a look at so many buckets up to now.
    pub(crate) fn look(&self, now: Timestamp, window: Duration, buckets: u32) -> Look<'_> {
        let buckets = i64::from(buckets);
        let window = i64::try_from(window.as_secs()).unwrap_or(KEPT);
        let mut length = (window + buckets - 1) / buckets;
        if length * buckets > SECONDS_KEPT - 600 {
            length = (length + 59) / 60 * 60;
        }
        let now = now.as_second();
        // The same edges whenever it is asked, so that bars do not slide.
        let from = (now.div_euclid(length) + 1 - buckets) * length;
        Look { ledger: self, now, from, length, buckets, begun: None }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Look<'_> {
    /// The next stretch of time to ask for, in microseconds; none when there is nothing more, or no more time.
    pub(crate) fn next(&mut self) -> Option<Range<i64>> {
        let spent = self.begun.get_or_insert_with(Instant::now).elapsed();
        let mut books = self.ledger.books();
        let edge = self.now - LAG;
        let covered = match &books.covered {
            Some(covered) if edge <= covered.end + GAP_MAX => covered.clone(),
            _ => {
                *books = Books { covered: Some(edge..edge), step: STEP_FIRST, ..Books::default() };
                edge..edge
            }
        };
        if edge > covered.end {
            return Some(covered.end * MICROS..edge * MICROS);
        }
        if covered.start <= self.from || (spent > PATIENCE && covered.start < covered.end) {
            return None;
        }
        let from = (covered.start - books.step).max(self.from);
        Some(from * MICROS..covered.start * MICROS)
    }

    /// Enters what ended in a stretch. If another look entered it first, nothing is changed.
    pub(crate) fn enter(&self, stretch: &Range<i64>, ended: &[Ended]) {
        let mut books = self.ledger.books();
        let Some(covered) = books.covered.clone() else { return };
        let stretch = stretch.start / MICROS..stretch.end / MICROS;
        if stretch.start == covered.end {
            books.covered = Some(covered.start..stretch.end);
            books.forget(stretch.end);
        } else if stretch.end == covered.start {
            books.covered = Some(stretch.start..covered.end);
            let count: u64 = ended.iter().map(|ended| ended.count).sum();
            books.step = match count {
                0..STEP_FEW => books.step.saturating_mul(4).min(KEPT),
                STEP_MANY.. => (books.step / 2).max(1),
                _ => books.step,
            };
        } else {
            return;
        }
        for one in ended {
            books.seconds.entry(one.second).or_default().enter(one);
            books.minutes.entry(one.second.div_euclid(60)).or_default().enter(one);
        }
    }

    /// What has to be asked for each time: the last seconds, in microseconds.
    pub(crate) fn tail(&self) -> Range<i64> {
        let end = self.ledger.books().covered.as_ref().map_or(self.now - LAG, |covered| covered.end);
        end * MICROS..(self.now + 1) * MICROS
    }

    /// The answer, with what ended in the `tail`.
    pub(crate) fn buckets(&self, tail: &[Ended]) -> Vec<Activity> {
        let mut cells = vec![Cell::default(); usize::try_from(self.buckets).unwrap_or(0)];
        let at = |second: i64| usize::try_from((second - self.from).div_euclid(self.length)).ok();
        let books = self.ledger.books();
        let end = self.from + self.length * self.buckets;
        if self.length % 60 == 0 {
            for (minute, cell) in books.minutes.range(self.from.div_euclid(60)..end.div_euclid(60)) {
                if let Some(into) = at(minute * 60).and_then(|at| cells.get_mut(at)) {
                    into.add(cell);
                }
            }
        } else {
            for (second, cell) in books.seconds.range(self.from..end) {
                if let Some(into) = at(*second).and_then(|at| cells.get_mut(at)) {
                    into.add(cell);
                }
            }
        }
        for one in tail {
            if let Some(into) = at(one.second).and_then(|at| cells.get_mut(at)) {
                into.enter(one);
            }
        }
        let known = books.covered.as_ref().map_or(self.now, |covered| covered.start);
        let told = |(from, cell): (i64, &Cell)| Activity {
            from: Timestamp::from_second(from).unwrap_or(Timestamp::MIN),
            done: cell.done,
            failed: cell.failed,
            cancelled: cell.cancelled,
            wait_p50_ms: cell.wait_ms(50),
            wait_p95_ms: cell.wait_ms(95),
            complete: from >= known,
        };
        (0..self.buckets).map(|n| self.from + n * self.length).zip(&cells).map(told).collect()
    }
}

impl Books {
    /// Forgets what nobody asks for any more.
    fn forget(&mut self, end: i64) {
        self.seconds = self.seconds.split_off(&(end - SECONDS_KEPT));
        self.minutes = self.minutes.split_off(&(end - KEPT).div_euclid(60));
        if let Some(covered) = &mut self.covered {
            covered.start = covered.start.max(end - KEPT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_030;

    /// Ends that lie in a stretch, as a store would tell them.
    fn ask(all: &[Ended], stretch: &Range<i64>) -> Vec<Ended> {
        all.iter().filter(|one| stretch.contains(&(one.second * MICROS))).copied().collect()
    }

    /// The answer when all is known, and how often was asked for it. One look may run out of time.
    fn look(ledger: &Ledger, all: &[Ended], now: i64, window: u64, buckets: u32) -> (Vec<Activity>, usize) {
        let now = Timestamp::from_second(now).unwrap();
        let mut asked = 0;
        loop {
            let mut look = ledger.look(now, Duration::from_secs(window), buckets);
            while let Some(stretch) = look.next() {
                look.enter(&stretch, &ask(all, &stretch));
                asked += 1;
                assert!(asked < 1000, "it does not end");
            }
            let told = look.buckets(&ask(all, &look.tail()));
            if told.iter().all(|bucket| bucket.complete) {
                return (told, asked);
            }
        }
    }

    fn end(second: i64, state: State, wait_ms: u64) -> Ended {
        Ended { second, state, wait_ms: Some(wait_ms), count: 1 }
    }

    #[test]
    fn every_end_is_counted_once_in_the_bucket_of_its_second() {
        let all: Vec<Ended> = (0..3600).map(|n| end(NOW - n, State::Done, 10)).collect();
        let ledger = Ledger::default();
        for _ in 0..2 {
            let (buckets, _) = look(&ledger, &all, NOW, 3600, 60);
            assert_eq!(buckets.len(), 60);
            assert!(buckets[..59].iter().all(|one| one.done == 60 && one.complete), "{buckets:?}");
            assert_eq!(buckets[59].done, 31, "the last minute has begun half a minute ago");
            assert_eq!(buckets[59].from.as_second(), NOW - 30);
        }
        let (buckets, _) = look(&ledger, &all, NOW, 60, 60);
        assert!(buckets.iter().all(|one| one.done == 1), "{buckets:?}");
    }

    #[test]
    fn what_is_known_is_not_asked_for_again() {
        let all: Vec<Ended> = (0..7200).map(|n| end(NOW - n, State::Failed, 10)).collect();
        let ledger = Ledger::default();
        let (_, first) = look(&ledger, &all, NOW, 3600, 60);
        assert!(first > 1);
        assert_eq!(look(&ledger, &all, NOW, 3600, 60).1, 0);
        assert_eq!(look(&ledger, &all, NOW + 1, 3600, 60).1, 1, "one second is new");
        assert!(look(&ledger, &all, NOW + 1000, 3600, 60).1 > 1, "after a long gap it begins anew");
    }

    #[test]
    fn two_looks_at_once_enter_a_stretch_once() {
        let all: Vec<Ended> = (0..600).map(|n| end(NOW - n, State::Done, 1)).collect();
        let ledger = Ledger::default();
        let now = Timestamp::from_second(NOW).unwrap();
        let mut one = ledger.look(now, Duration::from_secs(300), 5);
        let mut other = ledger.look(now, Duration::from_secs(300), 5);
        while let (Some(stretch), Some(same)) = (one.next(), other.next()) {
            assert_eq!(stretch, same);
            one.enter(&stretch, &ask(&all, &stretch));
            other.enter(&same, &ask(&all, &same));
        }
        let (buckets, _) = look(&ledger, &all, NOW, 300, 5);
        assert!(buckets[..4].iter().all(|bucket| bucket.done == 60), "{buckets:?}");
    }

    #[test]
    fn waits_are_told_within_five_per_cent() {
        for wait in [0, 1, 2, 7, 10, 99, 1000, 12_345, 3_600_000, 2_678_400_000] {
            let told = wait_of(bin(wait));
            assert!(told.abs_diff(wait) * 20 <= wait, "{told} for {wait}");
        }
        let all: Vec<Ended> = (1..=100).map(|n| end(NOW - 10, State::Done, n * 10)).collect();
        let (buckets, _) = look(&Ledger::default(), &all, NOW, 60, 1);
        let (half, most) = (buckets[0].wait_p50_ms.unwrap(), buckets[0].wait_p95_ms.unwrap());
        assert!((475..=525).contains(&half) && (900..=1000).contains(&most), "{half} {most}");
        assert_eq!(u64::from(bin(u64::MAX)), BINS as u64 - 1);
    }

    #[test]
    fn odd_windows_have_as_many_buckets_as_asked_for_and_reach_back_as_far() {
        for (window, buckets) in [(1, 1), (7, 3), (3600, 7), (86_400, 24), (2_678_400, 1000), (100_000, 7)] {
            let (told, _) = look(&Ledger::default(), &[], NOW, window, buckets);
            assert_eq!(told.len(), buckets as usize);
            let reach = NOW - told[0].from.as_second();
            let length = i64::try_from(window / u64::from(buckets)).unwrap();
            assert!(reach + length + 60 >= i64::try_from(window).unwrap(), "{window} {buckets}: {reach}");
            assert!(told.iter().all(|bucket| bucket.complete && bucket.from.as_second() <= NOW));
        }
    }
}
