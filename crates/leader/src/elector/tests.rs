//! Every rule of the state machine, one by one, with a clock moved by hand.

mod hints;

use rand::SeedableRng as _;

use super::*;
use crate::config::Settings;
use crate::lease::{Acquired, Bid, Hint, Holder, Incumbent, Server, Value};

/// A node on the bench.
struct Bench {
    elector: Elector,
    now: Instant,
    /// What the last event led to.
    out: Vec<Action>,
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn unreachable() -> Error {
    Error::Unreachable { operation: "ask", place: "nowhere".to_owned(), problem: "refused".to_owned() }
}

impl Bench {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings::of(Holder { instance: "a".to_owned(), address: None });
        settings.startup_guard = false;
        change(&mut settings);
        let now = Instant::since_boot(ms(1_000_000));
        let elector = Elector::new(Config::new(settings).unwrap(), StdRng::seed_from_u64(7), now);
        Self { elector, now, out: Vec::new() }
    }

    /// A node that leads with epoch 1, and has just been granted.
    fn leading() -> Self {
        Self::leading_with(|_| {})
    }

    fn leading_with(change: impl FnOnce(&mut Settings)) -> Self {
        let mut bench = Self::with(change);
        bench.lead(1);
        bench
    }

    fn lead(&mut self, epoch: u64) {
        self.send(Event::Tick);
        let id = self.acquire().0;
        self.send(Event::Acquired(id, Ok(Acquired::Granted)));
        let id = self.issue();
        self.send(Event::Issued(id, Ok(Epoch::new(epoch))));
        assert_eq!(self.elector.phase(), Phase::Leader);
    }

    fn send(&mut self, event: Event) {
        self.out = self.elector.handle(self.now, event);
    }

    /// Moves the clock; ticks at every moment the elector asked for.
    fn pass(&mut self, by: Duration) {
        let end = self.now + by;
        let mut out = Vec::new();
        while let Some(at) = self.elector.wake().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.send(Event::Tick);
            out.append(&mut self.out);
        }
        self.now = end;
        self.send(Event::Tick);
        out.append(&mut self.out);
        self.out = out;
    }

    fn find<T>(&self, what: &str, pick: impl Fn(&Action) -> Option<T>) -> T {
        self.out.iter().rev().find_map(pick).unwrap_or_else(|| panic!("no {what} in {:?}", self.out))
    }

    fn acquire(&self) -> (u64, Bid) {
        self.find("bid", |a| if let Action::Acquire(id, bid) = a { Some((*id, bid.clone())) } else { None })
    }

    fn renew(&self) -> (u64, Bid) {
        self.find("renewal", |a| if let Action::Renew(id, bid) = a { Some((*id, bid.clone())) } else { None })
    }

    fn release(&self) -> (u64, Bid) {
        self.find(
            "release",
            |a| if let Action::Release(id, bid) = a { Some((*id, bid.clone())) } else { None },
        )
    }

    fn issue(&self) -> u64 {
        self.find("call for an epoch", |a| if let Action::IssueEpoch(id, _) = a { Some(*id) } else { None })
    }

    fn stopped(&self) -> Option<Manner> {
        self.out.iter().rev().find_map(|a| if let Action::StopWork(m) = a { Some(*m) } else { None })
    }

    fn lost(&self) -> Option<Reason> {
        let pick = |a: &Action| match a {
            Action::Tell(Note::LostLeadership(_, reason)) => Some(*reason),
            _ => None,
        };
        self.out.iter().find_map(pick)
    }

    fn asks(&self) -> bool {
        self.out.iter().any(|a| matches!(a, Action::Acquire(..) | Action::Renew(..) | Action::Release(..)))
    }

    /// How long the elector would wait now.
    fn wait(&self) -> Duration {
        self.now.until(self.elector.wake().expect("something to wait for"))
    }

    fn held(&self, value: &str, left: Option<u64>) -> Acquired {
        Acquired::Held(Incumbent { value: Value::parse(value), left: left.map(ms) })
    }
}

#[test]
fn a_node_bids_at_start_and_leads_once_the_store_has_issued_an_epoch() {
    let mut bench = Bench::new();
    bench.send(Event::Tick);
    let (id, bid) = bench.acquire();
    assert_eq!((bid.ttl, bid.timeout), (ms(30_000), ms(1_000)));
    let sent = bench.now;
    bench.now = bench.now + ms(300);
    bench.send(Event::Acquired(id, Ok(Acquired::Granted)));
    assert_eq!((bench.elector.phase(), bench.elector.term()), (Phase::Entering, None));
    let id = bench.issue();
    bench.send(Event::Issued(id, Ok(Epoch::new(9))));
    // From before the request, not from the answer.
    let term = Term { epoch: Epoch::new(9), deadline: sent + ms(28_000) };
    assert_eq!(bench.elector.term(), Some(term));
    assert!(bench.out.iter().any(|a| matches!(a, Action::StartWork(t) if *t == term)));
    assert!(bench.out.iter().any(|a| matches!(a, Action::Tell(Note::BecameLeader(e)) if e.get() == 9)));
}

#[test]
fn a_node_that_is_refused_does_not_lead_and_knows_who_does() {
    let mut bench = Bench::new();
    bench.send(Event::Tick);
    let id = bench.acquire().0;
    let held = bench.held("b:00000000000000000000000000000001:http://b", Some(20_000));
    bench.send(Event::Acquired(id, Ok(held)));
    assert_eq!((bench.elector.phase(), bench.elector.term()), (Phase::Standby, None));
    let known = bench.elector.known().unwrap();
    assert_eq!(known.holder, Holder { instance: "b".to_owned(), address: Some("http://b".to_owned()) });
    assert_eq!(known.until, bench.now + ms(20_000));
    assert_eq!(bench.wait(), ms(5_000), "long leases are looked at every 5 s");
}

#[test]
fn a_standby_tries_just_after_the_lock_ends() {
    for left in [0, 1, 700, 4_900] {
        let mut bench = Bench::new();
        bench.send(Event::Tick);
        let id = bench.acquire().0;
        let held = bench.held("b:00000000000000000000000000000001", Some(left));
        bench.send(Event::Acquired(id, Ok(held)));
        let wait = bench.wait();
        assert!(wait > ms(left) && wait <= ms(left + 50), "{wait:?} for {left} ms");
        bench.pass(wait);
        bench.acquire();
    }
}

#[test]
fn a_lock_without_end_is_looked_at_every_5_seconds() {
    let mut bench = Bench::new();
    bench.send(Event::Tick);
    let id = bench.acquire().0;
    let held = bench.held("somebody", None);
    bench.send(Event::Acquired(id, Ok(held)));
    assert_eq!(bench.wait(), ms(5_000));
}

#[test]
fn a_hint_that_the_lock_is_free_is_followed_at_once() {
    let mut bench = Bench::new();
    bench.send(Event::Tick);
    let id = bench.acquire().0;
    let held = bench.held("b:00000000000000000000000000000001", Some(29_000));
    bench.send(Event::Acquired(id, Ok(held)));
    bench.send(Event::Hint(Hint::Released(None)));
    assert!(bench.wait() <= ms(20));
}

#[test]
fn an_unreachable_lock_is_tried_after_5_10_20_40_60_60_seconds() {
    let mut bench = Bench::new();
    bench.send(Event::Tick);
    let mut pauses = Vec::new();
    for _ in 0..6 {
        let id = bench.acquire().0;
        bench.send(Event::Acquired(id, Err(unreachable())));
        pauses.push(bench.wait().as_secs());
        bench.pass(bench.wait());
    }
    assert_eq!(pauses, [5, 10, 20, 40, 60, 60]);
    // An answer, any answer, begins anew.
    let id = bench.acquire().0;
    let held = bench.held("b:00000000000000000000000000000001", Some(100));
    bench.send(Event::Acquired(id, Ok(held)));
    bench.pass(bench.wait());
    let id = bench.acquire().0;
    bench.send(Event::Acquired(id, Err(unreachable())));
    assert_eq!(bench.wait(), ms(5_000));
}

#[test]
fn a_bid_without_answer_fails_after_a_second() {
    let mut bench = Bench::new();
    bench.send(Event::Tick);
    let id = bench.acquire().0;
    bench.pass(ms(999));
    assert_eq!(bench.wait(), ms(1));
    bench.pass(ms(1));
    assert_eq!(bench.wait(), ms(5_000));
    bench.send(Event::Acquired(id, Ok(Acquired::Granted)));
    assert_eq!(bench.elector.phase(), Phase::Standby, "the answer to a question that nobody asks any more");
}

#[test]
fn the_leader_renews_every_10_seconds_and_only_an_answer_moves_the_deadline() {
    let mut bench = Bench::leading();
    let first = bench.elector.term().unwrap().deadline;
    assert_eq!(bench.wait(), ms(10_000));
    bench.pass(ms(10_000));
    let sent = bench.now;
    let (id, bid) = bench.renew();
    assert_eq!(bid.timeout, ms(1_000));
    assert_eq!(bench.elector.term().unwrap().deadline, first);
    bench.now = bench.now + ms(400);
    bench.send(Event::Renewed(id, Ok(Renewed::Extended)));
    assert_eq!(bench.elector.term().unwrap().deadline, sent + ms(28_000));
    assert_eq!(bench.wait(), ms(9_600), "10 s after the last renewal was sent");
}

#[test]
fn a_failed_renewal_is_tried_after_500_ms_1_s_2_s_and_then_the_node_steps_down() {
    let mut bench = Bench::leading();
    bench.pass(ms(10_000));
    for pause in [500, 1_000, 2_000] {
        let id = bench.renew().0;
        bench.send(Event::Renewed(id, Err(unreachable())));
        assert_eq!((bench.wait(), bench.elector.phase()), (ms(pause), Phase::Leader));
        bench.pass(ms(pause));
    }
    let id = bench.renew().0;
    bench.send(Event::Renewed(id, Err(unreachable())));
    assert_eq!(bench.lost(), Some(Reason::RenewalFailed));
    assert_eq!(bench.stopped(), Some(Manner::Politely));
    assert_eq!(bench.elector.term(), None);
}

#[test]
fn renewals_without_answer_end_well_before_the_deadline() {
    let mut bench = Bench::leading();
    let deadline = bench.elector.term().unwrap().deadline;
    // 10 s, four tries of 1 s, pauses of 3.5 s.
    bench.pass(ms(17_499));
    assert_eq!(bench.elector.phase(), Phase::Leader);
    bench.pass(ms(1));
    assert_eq!(bench.lost(), Some(Reason::RenewalFailed));
    assert!(bench.now < deadline);
}

#[test]
fn one_good_renewal_forgives_the_failed_ones() {
    let mut bench = Bench::leading();
    bench.pass(ms(10_000));
    for answer in [Err(unreachable()), Err(unreachable()), Err(unreachable()), Ok(Renewed::Extended)] {
        let id = bench.renew().0;
        bench.send(Event::Renewed(id, answer));
        bench.pass(bench.wait());
    }
    let id = bench.renew().0;
    bench.send(Event::Renewed(id, Err(unreachable())));
    assert_eq!((bench.wait(), bench.elector.phase()), (ms(500), Phase::Leader));
}

#[test]
fn renewing_until_the_deadline_keeps_the_lead_as_long_as_it_is_trusted() {
    let mut bench = Bench::leading_with(|s| s.renew_until_deadline = true);
    bench.pass(ms(27_999));
    assert_eq!(bench.elector.phase(), Phase::Leader);
    bench.pass(ms(1));
    assert_eq!((bench.lost(), bench.stopped()), (Some(Reason::Expired), Some(Manner::AtOnce)));
}

#[test]
fn close_to_the_deadline_a_call_may_take_half_of_what_is_left() {
    let mut bench = Bench::leading_with(|s| s.renew_until_deadline = true);
    let deadline = bench.elector.term().unwrap().deadline;
    for _ in 0..20 {
        bench.pass(bench.wait());
        if let Some((_, bid)) = bench.out.iter().find_map(|a| match a {
            Action::Renew(id, bid) => Some((id, bid)),
            _ => None,
        }) {
            let limit = ms(1_000).min(bench.now.until(deadline) / 2).max(ms(1));
            assert!(bid.timeout <= limit, "{:?} with {:?} left", bid.timeout, bench.now.until(deadline));
        }
        if bench.elector.phase() != Phase::Leader {
            return;
        }
    }
    panic!("the lease did not end");
}

#[test]
fn an_answer_after_the_deadline_is_discarded_even_if_good() {
    let mut bench = Bench::leading();
    bench.pass(ms(10_000));
    let id = bench.renew().0;
    // The process was stopped: no tick came in between.
    bench.now = bench.now + ms(18_000);
    bench.send(Event::Renewed(id, Ok(Renewed::Extended)));
    assert_eq!((bench.elector.term(), bench.lost()), (None, Some(Reason::Expired)));
}

#[test]
fn an_answer_to_an_earlier_renewal_is_dropped() {
    let mut bench = Bench::leading();
    bench.pass(ms(10_000));
    let old = bench.renew().0;
    bench.pass(ms(1_600));
    assert_ne!(bench.renew().0, old, "the second try");
    let before = bench.elector.term();
    bench.send(Event::Renewed(old, Ok(Renewed::Extended)));
    assert_eq!(bench.elector.term(), before);
    bench.send(Event::Renewed(old, Ok(Renewed::Lost)));
    assert_eq!(bench.elector.term(), before);
}

#[test]
fn a_grant_that_arrives_after_its_deadline_is_given_back() {
    let mut bench = Bench::new();
    bench.send(Event::Tick);
    let (id, bid) = bench.acquire();
    bench.now = bench.now + ms(28_000);
    bench.send(Event::Acquired(id, Ok(Acquired::Granted)));
    assert_eq!(bench.elector.phase(), Phase::Standby);
    assert_eq!(bench.release().1.token, bid.token);
}

#[test]
fn a_lost_lock_ends_the_term_at_once_and_is_not_released() {
    let mut bench = Bench::leading();
    bench.pass(ms(10_000));
    let id = bench.renew().0;
    bench.send(Event::Renewed(id, Ok(Renewed::Lost)));
    assert_eq!((bench.lost(), bench.stopped()), (Some(Reason::Lost), Some(Manner::AtOnce)));
    bench.send(Event::Joined);
    bench.acquire();
}

#[test]
fn the_lock_is_released_only_after_the_work_has_been_joined() {
    let mut bench = Bench::leading();
    bench.send(Event::StepDown);
    assert_eq!((bench.lost(), bench.elector.term()), (Some(Reason::StepDown), None));
    assert!(!bench.asks());
    bench.pass(ms(3_000));
    assert!(!bench.asks(), "{:?}", bench.out);
    bench.send(Event::Joined);
    bench.release();
    assert!(bench.out.iter().any(|a| matches!(a, Action::EndTerm(e, Reason::StepDown) if e.get() == 1)));
}

#[test]
fn in_a_handover_the_lock_is_renewed_until_the_work_has_ended() {
    let mut bench = Bench::leading();
    bench.send(Event::Stop);
    bench.pass(ms(10_000));
    let id = bench.renew().0;
    bench.send(Event::Renewed(id, Ok(Renewed::Extended)));
    assert_eq!(bench.elector.term(), None, "renewing does not bring the term back");
    bench.pass(ms(9_000));
    assert_eq!(bench.stopped(), None);
    bench.send(Event::Joined);
    let id = bench.release().0;
    bench.send(Event::Released(id, Ok(Released::Freed)));
    assert!(matches!(bench.out.last(), Some(Action::End)));
    assert_eq!((bench.elector.phase(), bench.elector.wake()), (Phase::Ended, None));
}

#[test]
fn in_a_handover_work_has_half_a_second_to_end_and_is_then_dropped() {
    for event in [Event::Stop, Event::StepDown] {
        let mut bench = Bench::leading();
        bench.send(event);
        assert_eq!(bench.stopped(), Some(Manner::Politely));
        bench.pass(ms(499));
        assert_eq!(bench.stopped(), None);
        bench.pass(ms(1));
        assert_eq!(bench.stopped(), Some(Manner::AtOnce), "a successor does not wait for a slow write");
        assert!(!bench.asks(), "what is dropped is joined before the lock goes");
        bench.send(Event::Joined);
        bench.release();
    }
}

#[test]
fn in_a_handover_close_to_the_deadline_work_has_until_then() {
    let mut bench = Bench::leading_with(|s| s.renew_until_deadline = true);
    bench.pass(ms(27_800));
    bench.send(Event::Stop);
    bench.pass(ms(199));
    assert_eq!(bench.stopped(), None);
    bench.pass(ms(1));
    assert_eq!(bench.stopped(), Some(Manner::AtOnce));
}

#[test]
fn without_a_handover_work_has_until_the_deadline_to_end() {
    let mut bench = Bench::leading();
    // Nobody could take over before.
    bench.pass(ms(17_500));
    assert_eq!((bench.lost(), bench.stopped()), (Some(Reason::RenewalFailed), Some(Manner::Politely)));
    bench.pass(ms(10_499));
    assert_eq!(bench.stopped(), None);
    bench.pass(ms(1));
    assert_eq!(bench.stopped(), Some(Manner::AtOnce));
}

#[test]
fn work_that_outlives_the_lease_is_complained_about() {
    let mut bench = Bench::leading();
    bench.send(Event::Stop);
    // Nothing is answered, so the lease ends at 28 s.
    bench.pass(ms(28_000));
    assert_eq!(bench.stopped(), Some(Manner::AtOnce));
    bench.pass(ms(1_999));
    assert!(!bench.asks(), "what has ended is not renewed: {:?}", bench.out);
    bench.pass(ms(1));
    assert!(bench.out.iter().any(|a| matches!(a, Action::Tell(Note::WorkLingers(_)))));
    assert_eq!(bench.elector.wake(), None, "nothing but the end of the work helps now");
    bench.send(Event::Joined);
    bench.release();
}

#[test]
fn work_that_never_ends_does_not_keep_the_lock_for_ever() {
    let mut bench = Bench::leading();
    bench.send(Event::StepDown);
    let (mut renewed, mut lingers) = (0, false);
    while !lingers {
        bench.pass(bench.wait());
        lingers = bench.out.iter().any(|a| matches!(a, Action::Tell(Note::WorkLingers(_))));
        let asked =
            bench.out.iter().find_map(|a| if let Action::Renew(id, _) = a { Some(*id) } else { None });
        if let Some(id) = asked {
            bench.send(Event::Renewed(id, Ok(Renewed::Extended)));
            renewed += 1;
        }
    }
    assert!(renewed >= 2, "it is kept for a while: {renewed}");
    bench.pass(ms(60_000));
    assert!(!bench.asks(), "then the lock is left to expire: {:?}", bench.out);
}

#[test]
fn a_lock_lost_in_a_handover_drops_the_work_and_is_not_released() {
    let mut bench = Bench::leading();
    // The next renewal is due before patience runs out.
    bench.pass(ms(9_800));
    bench.send(Event::Stop);
    bench.pass(ms(200));
    let id = bench.renew().0;
    bench.send(Event::Renewed(id, Ok(Renewed::Lost)));
    assert_eq!(bench.stopped(), Some(Manner::AtOnce));
    bench.send(Event::Joined);
    assert!(!bench.asks());
    assert_eq!(bench.elector.phase(), Phase::Ended);
}

#[test]
fn an_unreachable_lock_is_released_on_the_next_contact_before_another_bid() {
    let mut bench = Bench::leading();
    bench.pass(ms(17_500));
    assert_eq!(bench.lost(), Some(Reason::RenewalFailed));
    bench.send(Event::Joined);
    let (id, first) = bench.release();
    bench.send(Event::Released(id, Err(unreachable())));
    assert_eq!(bench.wait(), ms(5_000));
    bench.pass(ms(5_000));
    let (id, second) = bench.release();
    assert_eq!(first.token, second.token);
    bench.send(Event::Released(id, Err(unreachable())));
    assert_eq!(bench.wait(), ms(10_000));
    bench.pass(ms(10_000));
    let id = bench.release().0;
    bench.send(Event::Released(id, Ok(Released::NotOurs)));
    let bid = bench.acquire().1;
    assert_ne!(bid.token, first.token, "a token that was given back is never used again");
}

#[test]
fn a_bid_that_succeeded_unseen_is_adopted_by_a_renewal() {
    let mut bench = Bench::new();
    bench.send(Event::Tick);
    let first = bench.acquire().1;
    bench.pass(ms(6_000));
    let (id, second) = bench.acquire();
    assert_eq!(first.token, second.token);
    let held = bench.held(&second.value(), Some(24_000));
    bench.send(Event::Acquired(id, Ok(held)));
    let (id, bid) = bench.renew();
    assert_eq!(bid.token, first.token);
    let sent = bench.now;
    bench.send(Event::Renewed(id, Ok(Renewed::Extended)));
    let id = bench.issue();
    bench.send(Event::Issued(id, Ok(Epoch::new(1))));
    assert_eq!(bench.elector.term().unwrap().deadline, sent + ms(28_000));
}

#[test]
fn an_adoption_that_fails_leads_to_a_new_bid() {
    let mut bench = Bench::new();
    bench.send(Event::Tick);
    let (id, first) = bench.acquire();
    let held = bench.held(&first.value(), Some(10));
    bench.send(Event::Acquired(id, Ok(held)));
    let id = bench.renew().0;
    bench.send(Event::Renewed(id, Ok(Renewed::Lost)));
    bench.pass(ms(50));
    assert_ne!(bench.acquire().1.token, first.token);
}

#[test]
fn a_suspend_ends_the_term_although_the_lease_goes_on() {
    let mut bench = Bench::leading();
    bench.now = bench.now + ms(2_000);
    bench.send(Event::Suspended);
    assert_eq!((bench.lost(), bench.stopped()), (Some(Reason::Suspended), Some(Manner::AtOnce)));
    bench.send(Event::Joined);
    let id = bench.release().0;
    bench.send(Event::Released(id, Ok(Released::Freed)));
    bench.acquire();
}

#[test]
fn without_an_epoch_the_lock_is_given_back() {
    let mut bench = Bench::new();
    bench.send(Event::Tick);
    let (id, bid) = bench.acquire();
    bench.send(Event::Acquired(id, Ok(Acquired::Granted)));
    let id = bench.issue();
    bench.send(Event::Issued(id, Err(Error::Epoch { problem: "closed".to_owned() })));
    let (id, release) = bench.release();
    assert_eq!(bid.token, release.token);
    bench.send(Event::Released(id, Ok(Released::Freed)));
    assert_eq!((bench.elector.phase(), bench.wait()), (Phase::Standby, ms(5_000)));
}

#[test]
fn an_epoch_that_comes_too_late_is_not_used() {
    let mut bench = Bench::new();
    bench.send(Event::Tick);
    let id = bench.acquire().0;
    bench.send(Event::Acquired(id, Ok(Acquired::Granted)));
    let id = bench.issue();
    bench.pass(ms(14_000));
    bench.release();
    bench.send(Event::Issued(id, Ok(Epoch::new(1))));
    assert_eq!((bench.elector.phase(), bench.elector.term()), (Phase::Leaving, None));
}

#[test]
fn an_epoch_that_is_not_higher_than_the_last_is_refused() {
    for epoch in [1, 0] {
        let mut bench = Bench::leading();
        bench.send(Event::Suspended);
        bench.send(Event::Joined);
        let id = bench.release().0;
        bench.send(Event::Released(id, Ok(Released::Freed)));
        let id = bench.acquire().0;
        bench.send(Event::Acquired(id, Ok(Acquired::Granted)));
        let id = bench.issue();
        bench.send(Event::Issued(id, Ok(Epoch::new(epoch))));
        assert_eq!(bench.elector.term(), None);
        bench.release();
    }
}

#[test]
fn a_young_server_is_asked_again_until_it_is_old_enough() {
    let mut bench = Bench::with(|s| s.startup_guard = true);
    bench.send(Event::Tick);
    let server = |uptime| Server { run: "r1".to_owned(), uptime: ms(uptime) };
    for (uptime, wait) in [(3_000, 5_000), (8_000, 5_000), (26_000, 4_000)] {
        let (id, bid) = bench.acquire();
        assert_eq!(bid.approved, None);
        bench.send(Event::Acquired(id, Ok(Acquired::Unapproved(server(uptime), None))));
        assert_eq!(bench.wait(), ms(wait));
        bench.pass(ms(wait));
    }
    let id = bench.acquire().0;
    bench.send(Event::Acquired(id, Ok(Acquired::Unapproved(server(30_000), None))));
    assert_eq!(bench.acquire().1.approved.as_deref(), Some("r1"), "asked at once");
}

#[test]
fn an_unapproved_server_still_tells_who_leads() {
    let mut bench = Bench::with(|s| s.startup_guard = true);
    bench.send(Event::Tick);
    let id = bench.acquire().0;
    let value = Value::parse("b:00000000000000000000000000000001");
    let server = Server { run: "r".to_owned(), uptime: ms(0) };
    let held = Some(Incumbent { value, left: Some(ms(9_000)) });
    bench.send(Event::Acquired(id, Ok(Acquired::Unapproved(server, held))));
    assert_eq!(bench.elector.known().unwrap().holder.instance, "b");
}

#[test]
fn a_lock_that_is_not_on_all_replicas_is_released() {
    let mut bench = Bench::new();
    bench.send(Event::Tick);
    let (id, bid) = bench.acquire();
    bench.send(Event::Acquired(id, Ok(Acquired::Unreplicated { reached: 0, expected: 1 })));
    let (id, release) = bench.release();
    assert_eq!(bid.token, release.token);
    bench.send(Event::Released(id, Ok(Released::Freed)));
    assert_eq!((bench.elector.phase(), bench.wait()), (Phase::Standby, ms(5_000)));
    bench.pass(ms(5_000));
    assert_ne!(bench.acquire().1.token, bid.token);
}

#[test]
fn a_renewal_that_is_not_on_all_replicas_counts_as_failed() {
    let mut bench = Bench::leading();
    let before = bench.elector.term();
    bench.pass(ms(10_000));
    let id = bench.renew().0;
    bench.send(Event::Renewed(id, Ok(Renewed::Unreplicated { reached: 0, expected: 1 })));
    assert_eq!((bench.elector.term(), bench.wait()), (before, ms(500)));
}

#[test]
fn stopping_a_standby_ends_at_once() {
    let mut bench = Bench::new();
    bench.send(Event::Tick);
    let id = bench.acquire().0;
    let held = bench.held("b:00000000000000000000000000000001", Some(9_000));
    bench.send(Event::Acquired(id, Ok(held)));
    bench.send(Event::Stop);
    assert!(matches!(bench.out[..], [Action::End]), "{:?}", bench.out);
    bench.send(Event::Stop);
    assert!(bench.out.is_empty());
}

#[test]
fn stopping_waits_for_the_answer_to_a_bid_and_gives_a_granted_lock_back() {
    let mut bench = Bench::new();
    bench.send(Event::Tick);
    let (id, bid) = bench.acquire();
    bench.send(Event::Stop);
    assert!(bench.out.is_empty());
    bench.send(Event::Acquired(id, Ok(Acquired::Granted)));
    let (id, release) = bench.release();
    assert_eq!(bid.token, release.token);
    bench.send(Event::Released(id, Err(unreachable())));
    assert!(matches!(bench.out.last(), Some(Action::End)), "one try is enough");
}

#[test]
fn stopping_after_a_bid_without_answer_tries_once_to_remove_what_it_may_have_left() {
    for answered in [false, true] {
        let mut bench = Bench::new();
        bench.send(Event::Tick);
        let (id, bid) = bench.acquire();
        if answered {
            bench.send(Event::Acquired(id, Err(unreachable())));
            bench.send(Event::Stop);
        } else {
            bench.send(Event::Stop);
            bench.pass(ms(1_000));
        }
        let (id, release) = bench.release();
        assert_eq!(bid.token, release.token);
        bench.send(Event::Released(id, Ok(Released::NotOurs)));
        assert!(matches!(bench.out.last(), Some(Action::End)));
    }
}

#[test]
fn stopping_while_the_epoch_is_issued_gives_the_lock_back_and_never_leads() {
    let mut bench = Bench::new();
    bench.send(Event::Tick);
    let id = bench.acquire().0;
    bench.send(Event::Acquired(id, Ok(Acquired::Granted)));
    let epoch = bench.issue();
    bench.send(Event::Stop);
    let id = bench.release().0;
    bench.send(Event::Issued(epoch, Ok(Epoch::new(1))));
    assert_eq!(bench.elector.term(), None);
    bench.send(Event::Released(id, Ok(Released::Freed)));
    assert!(matches!(bench.out.last(), Some(Action::End)));
}

#[test]
fn a_leader_whose_epoch_the_store_refuses_steps_down_and_lets_others_go_first() {
    let mut bench = Bench::leading();
    bench.send(Event::Deposed(Epoch::new(0)));
    assert_eq!((bench.lost(), bench.elector.phase()), (None, Phase::Leader), "that was another term");
    bench.send(Event::Deposed(Epoch::new(1)));
    assert_eq!((bench.lost(), bench.stopped()), (Some(Reason::Deposed), Some(Manner::AtOnce)));
    bench.send(Event::Joined);
    let id = bench.release().0;
    bench.send(Event::Released(id, Ok(Released::Freed)));
    assert!(!bench.out.iter().any(|a| matches!(a, Action::Acquire(..))));
}

#[test]
fn stepping_down_is_for_the_leader_only() {
    let mut bench = Bench::new();
    bench.send(Event::Tick);
    bench.send(Event::StepDown);
    assert!(bench.out.is_empty());
    assert_eq!(bench.elector.phase(), Phase::Standby);
}

#[test]
fn every_reason_can_be_read_back() {
    for reason in Reason::ALL {
        assert_eq!(Reason::parse(reason.as_str()), Some(reason));
    }
    assert_eq!(Reason::parse("bored"), None);
}
