//! Making room for others, hints, outages and feuds: when a node that does not lead tries again.

use super::*;
use crate::lease::{Hint, Inspection};

const OTHER: &str = "b:00000000000000000000000000000001:http://b";

impl Bench {
    /// A node that was asked to step down and has given the lock back.
    fn yielding() -> Self {
        let mut bench = Self::leading();
        bench.send(Event::StepDown);
        bench.give_back();
        bench
    }

    fn give_back(&mut self) {
        self.send(Event::Joined);
        let id = self.release().0;
        self.send(Event::Released(id, Ok(Released::Freed)));
    }

    fn look(&self) -> u64 {
        self.find("look", |a| if let Action::Inspect(id, _) = a { Some(*id) } else { None })
    }

    /// Answers the look: who has the lock, and for how long.
    fn sees(&mut self, holder: Option<(&str, u64)>) {
        let incumbent =
            holder.map(|(value, left)| Incumbent { value: Value::parse(value), left: Some(ms(left)) });
        let id = self.look();
        self.send(Event::Inspected(id, Ok(Inspection { server: None, incumbent })));
    }

    fn released_by(&mut self, instance: &str) {
        self.send(Event::Hint(Hint::Released(Some(instance.to_owned()))));
    }

    fn bids(&self) -> bool {
        self.out.iter().any(|a| matches!(a, Action::Acquire(..)))
    }
}

#[test]
fn after_stepping_down_a_node_looks_who_leads_and_does_not_bid() {
    let mut bench = Bench::yielding();
    let begin = bench.now;
    let mut looks = 0;
    while bench.now < begin + ms(10_000) {
        assert!(!bench.bids(), "{:?}", bench.out);
        bench.sees(None);
        looks += 1;
        bench.pass(bench.wait());
    }
    assert!((10..=100).contains(&looks), "{looks} looks in ten seconds");
    // Nobody wanted to lead.
    bench.acquire();
}

#[test]
fn a_node_that_stepped_down_knows_the_new_leader_and_follows_when_that_one_ends() {
    let mut bench = Bench::yielding();
    bench.sees(None);
    bench.pass(bench.wait());
    bench.sees(Some((OTHER, 29_000)));
    assert_eq!(bench.elector.known().unwrap().holder.instance, "b");
    assert_eq!(bench.wait(), ms(5_000), "a standby like any other");
    bench.released_by("b");
    bench.pass(ms(20));
    bench.acquire();
}

#[test]
fn another_nodes_release_ends_the_rest_even_if_its_term_was_not_seen() {
    let mut bench = Bench::yielding();
    bench.sees(None);
    // Its own release, heard back.
    bench.released_by("a");
    bench.pass(ms(20));
    bench.sees(None);
    assert!(!bench.bids());
    bench.released_by("b");
    bench.pass(ms(20));
    bench.acquire();
    // The same while a look is under way.
    let mut bench = Bench::yielding();
    let id = bench.look();
    bench.released_by("a");
    bench.released_by("b");
    bench.send(Event::Inspected(id, Ok(Inspection { server: None, incumbent: None })));
    bench.acquire();
}

#[test]
fn a_release_that_was_told_before_ones_own_does_not_end_the_rest() {
    let mut bench = Bench::yielding();
    bench.sees(None);
    // Left in the subscription from before this node led.
    bench.released_by("b");
    bench.pass(ms(20));
    bench.sees(None);
    assert!(!bench.bids() && bench.wait() > Duration::ZERO);
}

#[test]
fn a_look_that_fails_is_an_outage_and_the_rest_goes_on_after_it() {
    let mut bench = Bench::yielding();
    let id = bench.look();
    bench.send(Event::Inspected(id, Err(unreachable())));
    assert_eq!(bench.wait(), ms(5_000));
    bench.pass(ms(5_000));
    while !bench.bids() {
        bench.sees(None);
        bench.pass(bench.wait());
    }
}

#[test]
fn a_node_that_could_not_give_the_lock_back_makes_room_for_others_all_the_same() {
    let mut bench = Bench::leading();
    bench.send(Event::StepDown);
    bench.send(Event::Joined);
    let id = bench.release().0;
    bench.send(Event::Released(id, Err(unreachable())));
    bench.send(Event::Hint(Hint::Reachable));
    bench.pass(ms(20));
    let id = bench.release().0;
    bench.send(Event::Released(id, Ok(Released::Freed)));
    bench.look();
    assert!(!bench.bids());
}

#[test]
fn a_server_that_is_back_is_tried_at_once_and_the_pauses_go_on_growing_if_it_fails() {
    let mut bench = Bench::new();
    bench.send(Event::Tick);
    for pause in [5, 10, 20] {
        let id = bench.acquire().0;
        bench.send(Event::Acquired(id, Err(unreachable())));
        assert_eq!(bench.wait().as_secs(), pause);
        bench.pass(ms(100));
        bench.send(Event::Hint(Hint::Reachable));
        assert!(bench.wait() <= ms(20));
        bench.pass(ms(20));
    }
    bench.acquire();
}

#[test]
fn a_release_alone_does_not_end_the_pause_after_a_trouble() {
    // Two nodes whose replicas lag would otherwise wake each other for ever.
    for by in [None, Some("a"), Some("b")] {
        let mut bench = Bench::new();
        bench.send(Event::Tick);
        let id = bench.acquire().0;
        bench.send(Event::Acquired(id, Ok(Acquired::Unreplicated { reached: 0, expected: 1 })));
        let id = bench.release().0;
        bench.send(Event::Released(id, Ok(Released::Freed)));
        bench.send(Event::Hint(Hint::Released(by.map(str::to_owned))));
        assert_eq!(bench.wait(), ms(5_000), "{by:?}");
    }
}

#[test]
fn a_hint_that_overtakes_an_answer_is_not_lost() {
    let mut bench = Bench::new();
    bench.send(Event::Tick);
    let id = bench.acquire().0;
    bench.released_by("b");
    let held = bench.held(OTHER, Some(29_000));
    bench.send(Event::Acquired(id, Ok(held)));
    assert!(bench.wait() <= ms(20));
    bench.pass(ms(20));
    let id = bench.acquire().0;
    let held = bench.held(OTHER, Some(29_000));
    bench.send(Event::Acquired(id, Ok(held)));
    assert_eq!(bench.wait(), ms(5_000), "once");
}

#[test]
fn a_young_server_is_told_of_once_for_each_wait() {
    let mut bench = Bench::with(|s| s.startup_guard = true);
    bench.send(Event::Tick);
    let mut told = Vec::new();
    for (run, uptime) in [("r1", 1_000), ("r1", 6_000), ("r1", 11_000), ("r2", 1_000), ("r2", 6_000)] {
        let id = bench.acquire().0;
        let server = Server { run: run.to_owned(), uptime: ms(uptime) };
        bench.send(Event::Acquired(id, Ok(Acquired::Unapproved(server, None))));
        told.push(bench.find("note", |a| match a {
            Action::Tell(Note::Guarded { again, .. }) => Some(*again),
            _ => None,
        }));
        bench.pass(ms(5_000));
    }
    assert_eq!(told, [false, true, true, false, true]);
}

#[test]
fn a_leader_that_is_deposed_again_and_again_waits_longer_each_time() {
    let mut bench = Bench::leading();
    let mut pauses = Vec::new();
    for epoch in 1..=5 {
        bench.send(Event::Deposed(Epoch::new(epoch)));
        let pause = bench.find("note", |a| match a {
            Action::Tell(Note::Deposed(_, pause)) => Some(*pause),
            _ => None,
        });
        pauses.push(pause.as_secs());
        bench.give_back();
        let begin = bench.now;
        while !bench.bids() {
            bench.sees(None);
            bench.pass(bench.wait());
        }
        assert_eq!(bench.now.since(begin), pause);
        let id = bench.acquire().0;
        bench.send(Event::Acquired(id, Ok(Acquired::Granted)));
        let id = bench.issue();
        bench.send(Event::Issued(id, Ok(Epoch::new(epoch + 1))));
    }
    assert_eq!(pauses, [10, 20, 40, 60, 60]);
    // Long ago is forgotten.
    bench.now = bench.now + ms(601_000);
    bench.send(Event::Tick);
    assert_eq!(bench.lost(), Some(Reason::Expired));
    bench.give_back();
    let id = bench.acquire().0;
    bench.send(Event::Acquired(id, Ok(Acquired::Granted)));
    let id = bench.issue();
    bench.send(Event::Issued(id, Ok(Epoch::new(100))));
    bench.send(Event::Deposed(Epoch::new(100)));
    assert!(bench.out.iter().any(|a| matches!(a, Action::Tell(Note::Deposed(_, p)) if *p == ms(10_000))));
}
