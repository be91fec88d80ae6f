//! Where the default branch is, told from events that may be processed in any order.
//!
//! git moves a ref under a lock, so pushes to it form a chain. But the hooks that report them run after the lock, two at
//! a time, and the jobs run in any order on any worker. Taking the newest event, or the last one processed, would show a
//! commit of the past until the next push. What an event tells is an edge: from here to there. An edge that ends where
//! an applied one begins is the past.

use crate::push::{PushEventId, RefUpdate};

/// The event that the store last took the branch's commit from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied<'a> {
    /// Its number.
    pub id: PushEventId,
    /// Where it began; none where the branch was not there.
    pub old: Option<&'a str>,
}

/// What becomes of the branch's commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is where the event ends.
    Moves,
    /// The event tells of the past.
    Stays,
}

/// Decides what an event on the default branch means for it. `current` is the commit known so far.
pub fn decide(
    current: Option<&str>,
    applied: Option<Applied<'_>>,
    id: PushEventId,
    update: &RefUpdate,
) -> Verdict {
    let (old, new) = (end(&update.old_oid), end(&update.new_oid));
    let Some(applied) = applied else { return Verdict::Moves };
    // "Not there" is no place in a chain: a branch can be there, go and come back any number of times.
    let followed = new.is_some() && applied.old == new;
    let next = old.is_some() && current == old;
    // Where it was or is made from nothing, only the numbers tell what came first.
    let from_nothing = match id > applied.id {
        true => current.is_none() && old.is_none(),
        false => applied.old.is_none() && new.is_none(),
    };
    if from_nothing {
        return if id > applied.id { Verdict::Moves } else { Verdict::Stays };
    }
    match (id > applied.id, followed, next) {
        // Its hook was overtaken by that of its successor.
        (true, true, false) => Verdict::Stays,
        // The next step, or one after steps that were not recorded or not processed yet.
        (true, ..) => Verdict::Moves,
        // Its hook overtook that of its predecessor.
        (false, false, true) => Verdict::Moves,
        (false, ..) => Verdict::Stays,
    }
}

/// An end of an edge; none where there is nothing.
pub fn end(oid: &str) -> Option<&str> {
    (!crate::push::is_zero(oid)).then_some(oid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone)]
    struct Event {
        id: i64,
        update: RefUpdate,
    }

    fn oid(n: usize) -> String {
        if n == 0 { "0".repeat(40) } else { format!("{n:040x}") }
    }

    /// A chain through these commits, with these numbers.
    fn chain(commits: &[usize], ids: &[i64]) -> Vec<Event> {
        let edges = commits.windows(2).zip(ids);
        edges
            .map(|(edge, id)| Event {
                id: *id,
                update: RefUpdate {
                    ref_name: "refs/heads/main".into(),
                    old_oid: oid(edge[0]),
                    new_oid: oid(edge[1]),
                },
            })
            .collect()
    }

    /// Where the branch ends when events are processed in this order.
    fn run(order: &[&Event]) -> Option<String> {
        let mut current: Option<String> = None;
        let mut applied: Option<&Event> = None;
        for event in order {
            let last =
                applied.map(|event| Applied { id: PushEventId(event.id), old: end(&event.update.old_oid) });
            if decide(current.as_deref(), last, PushEventId(event.id), &event.update) == Verdict::Moves {
                current = end(&event.update.new_oid).map(str::to_owned);
                applied = Some(event);
            }
        }
        current
    }

    fn permutations(events: &[Event]) -> Vec<Vec<&Event>> {
        if events.is_empty() {
            return vec![Vec::new()];
        }
        let mut all = Vec::new();
        for n in 0..events.len() {
            let mut rest = events.to_vec();
            rest.remove(n);
            let places: Vec<usize> = (0..events.len()).filter(|m| *m != n).collect();
            for tail in permutations(&rest) {
                let mut order = vec![&events[n]];
                let at = |event: &Event| rest.iter().position(|other| other.id == event.id).unwrap();
                order.extend(tail.into_iter().map(|event| &events[places[at(event)]]));
                all.push(order);
            }
        }
        all
    }

    fn always_ends_at(events: &[Event], expected: Option<String>) {
        for order in permutations(events) {
            let ids: Vec<i64> = order.iter().map(|event| event.id).collect();
            assert_eq!(run(&order), expected, "processed in the order {ids:?} of {events:?}");
        }
    }

    #[test]
    fn a_chain_ends_at_its_end_in_whatever_order_it_is_processed() {
        let ids: Vec<i64> = (1..=6).collect();
        always_ends_at(&chain(&[0, 1, 2, 3, 4, 5, 6], &ids), Some(oid(6)));
        always_ends_at(&chain(&[0, 1, 2, 3, 0], &ids), None);
        always_ends_at(&chain(&[1, 0, 2, 3], &ids), Some(oid(3)));
    }

    #[test]
    fn neighbours_whose_hooks_overtook_each_other_do_not_matter() {
        for swap in 0..4 {
            let mut ids: Vec<i64> = (1..=5).collect();
            ids.swap(swap, swap + 1);
            always_ends_at(&chain(&[9, 1, 2, 3, 4, 5], &ids), Some(oid(5)));
        }
    }

    #[test]
    fn a_branch_that_was_pushed_back_and_forth_ends_where_the_last_push_left_it() {
        always_ends_at(&chain(&[1, 2, 1], &[1, 2]), Some(oid(1)));
        always_ends_at(&chain(&[0, 2, 0], &[1, 2]), None);
    }

    #[test]
    fn a_branch_that_went_and_came_back_is_there_wherever_it_came_back_to() {
        always_ends_at(&chain(&[0, 1, 0, 1], &[1, 2, 3]), Some(oid(1)));
        always_ends_at(&chain(&[2, 1, 0, 1], &[1, 2, 3]), Some(oid(1)));
        always_ends_at(&chain(&[0, 1, 0, 2], &[1, 2, 3]), Some(oid(2)));
        always_ends_at(&chain(&[0, 1, 0, 1, 0], &[1, 2, 3, 4]), None);
    }

    #[test]
    fn events_that_were_never_recorded_leave_no_trace_after_the_next() {
        let mut events = chain(&[0, 1, 2, 3, 4], &[1, 2, 3, 4]);
        events.remove(2);
        always_ends_at(&events, Some(oid(4)));
        let mut gone = chain(&[0, 1, 2, 3, 0], &[1, 2, 3, 4]);
        gone.remove(2);
        always_ends_at(&gone, None);
    }
}
