//! Steps of a ref that are missing between two that are recorded.
//!
//! A push whose hook failed is followed by one whose hook did not: the ref is where the store believes it to be, and yet
//! a step of its way is not recorded. The store notes it with the event after the hole (`Head::torn`): where the ref was
//! believed to be, which is not where the event begins. Most such holes close by themselves, because hooks overtake each
//! other. [`holes`] walks the events in the order in which they were recorded and says which are open.

use std::collections::BTreeMap;

use crate::branch::end;
use crate::push::{PushEventId, RefUpdate};
use crate::reconcile::{Gap, Place, is_fill};

/// An event of a ref whose way may have a hole: the one after it, or a later one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its number.
    pub event: PushEventId,
    /// What it tells.
    pub update: RefUpdate,
    /// The receive that it was recorded for.
    pub request_id: String,
    /// Where the ref was believed to be, if this event begins elsewhere.
    pub follows: Option<String>,
}

/// What a walk has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Open holes.
    pub holes: Vec<Gap>,
    /// Events whose note is of no use any more: the way to them is whole.
    pub whole: Vec<PushEventId>,
}

struct Open {
    from: String,
    to: String,
    before: PushEventId,
}

/// Looks for holes; the links of each ref are in the order of their events.
pub fn holes(links: &[Link]) -> Found {
    let mut refs: BTreeMap<&str, Vec<&Link>> = BTreeMap::new();
    for link in links {
        refs.entry(&link.update.ref_name).or_default().push(link);
    }
    let mut found = Found::default();
    for (name, links) in refs {
        let open = walk(&links);
        if open.is_empty() {
            let noted = links.iter().filter(|link| link.follows.is_some());
            found.whole.extend(noted.map(|link| link.event));
        }
        found.holes.extend(open.into_iter().map(|hole| Gap {
            update: RefUpdate { ref_name: name.to_owned(), old_oid: hole.from, new_oid: hole.to },
            place: Place::Before(hole.before),
        }));
    }
    found
}

/// The holes of one ref.
fn walk(links: &[&Link]) -> Vec<Open> {
    let mut open: Vec<Open> = Vec::new();
    let mut at: Option<&str> = None;
    for link in links {
        let (old, new) = (&link.update.old_oid, &link.update.new_oid);
        let is_next = at.is_some_and(|at| end(at) == end(old));
        if is_next && !is_fill(&link.request_id) {
            at = Some(new);
        } else if !fill(&mut open, &link.update)
            && let Some(follows) = &link.follows
        {
            let from = at.unwrap_or(follows).to_owned();
            open.push(Open { from, to: old.clone(), before: link.event });
            at = Some(new);
        }
    }
    open
}

/// Lays a step into the hole that it begins or ends; false if it fits nowhere.
fn fill(open: &mut Vec<Open>, step: &RefUpdate) -> bool {
    let (old, new) = (end(&step.old_oid), end(&step.new_oid));
    let fits = |hole: &Open| end(&hole.from) == old || end(&hole.to) == new;
    let Some(hole) = open.iter_mut().find(|hole| fits(hole)) else { return false };
    if end(&hole.from) == old {
        hole.from.clone_from(&step.new_oid);
    } else {
        hole.to.clone_from(&step.old_oid);
    }
    open.retain(|hole| end(&hole.from) != end(&hole.to));
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::Head;

    fn oid(n: u32) -> String {
        format!("{n:040x}")
    }

    fn update(old: u32, new: u32) -> RefUpdate {
        RefUpdate { ref_name: "refs/heads/a".into(), old_oid: oid(old), new_oid: oid(new) }
    }

    /// Records steps in this order, as a store does; `head` is where the ref was before.
    fn recorded(before: Option<(u32, u32)>, steps: &[(u32, u32)]) -> Vec<Link> {
        let head = |event, update| Head { event: PushEventId(event), update, request_id: "r".into() };
        let mut now = before.map(|(old, new)| head(1, update(old, new)));
        let step = |(n, &(old, new)): (i64, &(u32, u32))| {
            let (event, update) = (PushEventId(n), update(old, new));
            let mut follows = None;
            if now.as_ref().is_none_or(|head| head.gives_way(event, &update)) {
                follows = Head::torn(now.as_ref(), &update);
                now = Some(head(n, update.clone()));
            }
            Link { event, update, request_id: "r".into(), follows }
        };
        (2..).zip(steps).map(step).collect()
    }

    fn hole(old: u32, new: u32, before: i64) -> Gap {
        Gap { update: update(old, new), place: Place::Before(PushEventId(before)) }
    }

    #[test]
    fn what_is_missing_between_two_events_is_a_hole() {
        assert_eq!(holes(&recorded(Some((0, 1)), &[(2, 3), (3, 4)])).holes, [hole(1, 2, 2)]);
        assert_eq!(holes(&recorded(None, &[(1, 2)])).holes, [hole(0, 1, 2)], "the creation");
        assert_eq!(holes(&recorded(Some((1, 0)), &[(2, 3)])).holes, [hole(0, 2, 2)], "the creation anew");
        assert_eq!(holes(&recorded(Some((0, 1)), &[(0, 2)])).holes, [hole(1, 0, 2)], "the end");
        let two = holes(&recorded(Some((0, 1)), &[(2, 3), (4, 5)]));
        assert_eq!((two.holes, two.whole), (vec![hole(1, 2, 2), hole(3, 4, 3)], vec![]));
    }

    #[test]
    fn steps_whose_hooks_overtook_each_other_leave_no_hole() {
        let steps = [(1, 2), (2, 3), (3, 4)];
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let links = recorded(Some((0, 1)), &order.map(|n: usize| steps[n]));
            let found = holes(&links);
            assert_eq!(found.holes, [], "{order:?}");
            let noted = links.iter().filter(|link| link.follows.is_some()).map(|link| link.event);
            assert_eq!(found.whole, noted.collect::<Vec<_>>(), "{order:?}");
        }
    }

    #[test]
    fn a_hole_is_as_large_as_what_is_missing_of_it() {
        assert_eq!(holes(&recorded(Some((0, 1)), &[(3, 4), (2, 3)])).holes, [hole(1, 2, 2)]);
        assert_eq!(holes(&recorded(Some((0, 1)), &[(3, 4), (1, 2)])).holes, [hole(2, 3, 2)]);
        let back = recorded(Some((0, 1)), &[(2, 3), (3, 1), (1, 5)]);
        assert_eq!(holes(&back).holes, [hole(1, 2, 2)], "a ref that comes by the same place fills nothing");
    }

    #[test]
    fn what_was_recorded_of_a_hole_closes_it_wherever_the_ref_is() {
        let mut links = recorded(Some((0, 1)), &[(2, 3), (3, 1)]);
        links.push(Link {
            event: PushEventId(9),
            update: update(1, 2),
            request_id: "reconcile-before-2".into(),
            follows: None,
        });
        assert_eq!(holes(&links), Found { holes: vec![], whole: vec![PushEventId(2)] });
    }
}
