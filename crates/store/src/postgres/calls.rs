//! What this process has heard since it last looked: that there is something somewhere, or in which lane.
//!
//! A worker that has taken everything it could and then hears of one lane only need not search all of them: a small
//! statement takes its jobs. Whenever there is the least doubt, the general claim decides.

use std::sync::{Mutex, MutexGuard, PoisonError};

use stargate_queue::WorkerId;
use stargate_queue::store::ClaimRequest;
use tokio::sync::watch;

/// Wakes the sleepers of this process, and remembers what for.
#[derive(Debug)]
pub(super) struct Calls {
    wakes: watch::Sender<u64>,
    news: Mutex<News>,
}

#[derive(Debug, Default)]
struct News {
    /// Raised by every general claim that begins, so that two claimers do not trust each other's news.
    round: u64,
    /// Who took everything it could in its last claim, and how many kinds it asked for.
    caught_up: Option<(WorkerId, usize)>,
    since: Since,
}

/// What was heard since the last general claim began.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Since {
    #[default]
    Nothing,
    Lane(i32),
    Anything,
}

/// A general claim under way.
#[derive(Debug)]
pub(super) struct Round {
    number: u64,
    anything: bool,
}

impl Round {
    /// Whether something was heard before it that may be anywhere.
    pub(super) fn heard_of_anything(&self) -> bool {
        self.anything
    }
}

impl Calls {
    pub(super) fn new() -> Self {
        Self { wakes: watch::Sender::new(0), news: Mutex::default() }
    }

    /// Changes with every call.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.wakes.subscribe()
    }

    /// There may be something to do anywhere.
    pub(super) fn anywhere(&self) {
        self.hear(Since::Anything);
    }

    /// There are new jobs in these lanes.
    pub(super) fn lanes(&self, lanes: &[i32]) {
        match lanes {
            [lane, rest @ ..] if rest.iter().all(|other| other == lane) => self.hear(Since::Lane(*lane)),
            _ => self.hear(Since::Anything),
        }
    }

    fn hear(&self, what: Since) {
        {
            let mut news = self.lock();
            news.since = match (news.since, what) {
                (Since::Nothing, what) => what,
                (Since::Lane(known), Since::Lane(new)) if known == new => what,
                _ => Since::Anything,
            };
        }
        self.wakes.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// The one lane in which there is something for this claim, if that is certain. It is told once: the claim that
    /// follows is a general one.
    pub(super) fn only_lane(&self, request: &ClaimRequest) -> Option<i32> {
        let mut news = self.lock();
        match (news.caught_up, news.since) {
            (Some(who), Since::Lane(lane)) if who == asking(request) => {
                news.caught_up = None;
                Some(lane)
            }
            _ => None,
        }
    }

    /// A general claim begins: it will see everything heard so far.
    pub(super) fn begin(&self) -> Round {
        let mut news = self.lock();
        news.round += 1;
        news.caught_up = None;
        let anything = std::mem::take(&mut news.since) == Since::Anything;
        Round { number: news.round, anything }
    }

    /// A general claim took everything it could.
    pub(super) fn caught_up(&self, round: &Round, request: &ClaimRequest) {
        let mut news = self.lock();
        if news.round == round.number {
            news.caught_up = Some(asking(request));
        }
    }

    fn lock(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn asking(request: &ClaimRequest) -> (WorkerId, usize) {
    (request.worker, request.kinds.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(worker: i64) -> ClaimRequest {
        ClaimRequest { worker: WorkerId(worker), limit: 1, queues: vec![], kinds: vec![] }
    }

    fn caught_up(worker: i64) -> Calls {
        let calls = Calls::new();
        let round = calls.begin();
        calls.caught_up(&round, &request(worker));
        calls
    }

    #[test]
    fn one_lane_is_told_once_and_only_to_who_was_caught_up() {
        let calls = caught_up(1);
        calls.lanes(&[7, 7]);
        assert_eq!(calls.only_lane(&request(2)), None);
        assert_eq!(calls.only_lane(&request(1)), Some(7));
        assert_eq!(calls.only_lane(&request(1)), None);
    }

    #[test]
    fn news_from_two_lanes_or_from_anywhere_need_the_general_claim() {
        let calls = caught_up(1);
        calls.lanes(&[7]);
        calls.lanes(&[8]);
        assert_eq!(calls.only_lane(&request(1)), None);
        let calls = caught_up(1);
        calls.anywhere();
        calls.lanes(&[7]);
        assert_eq!(calls.only_lane(&request(1)), None);
        let calls = caught_up(1);
        calls.lanes(&[7, 8]);
        assert_eq!(calls.only_lane(&request(1)), None);
    }

    #[test]
    fn what_is_heard_during_a_general_claim_counts_after_it_and_a_second_claimer_spoils_it() {
        let calls = Calls::new();
        let round = calls.begin();
        calls.lanes(&[7]);
        calls.caught_up(&round, &request(1));
        assert_eq!(calls.only_lane(&request(1)), Some(7));
        let round = calls.begin();
        calls.begin();
        calls.lanes(&[7]);
        calls.caught_up(&round, &request(1));
        assert_eq!(calls.only_lane(&request(1)), None);
    }
}
