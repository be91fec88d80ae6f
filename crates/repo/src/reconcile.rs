//! Finds refs that have moved without the store knowing, and records them (INV-1).
//!
//! git ignores a failing `post-receive`: the term has ended, the store was away, the hook was killed. The ref has moved,
//! and nothing follows from it. The leader compares what is there with what was recorded last, and records the
//! difference as one step, whoever made it and in however many steps.
//!
//! A push whose hook still runs looks the same. So a [`Gap`] counts only when it is seen unchanged twice, with
//! [`SETTLE`] between: more than a hook may take. Should a hook be later still, it finds that its push is recorded
//! (`Head::stands_for`).
//!
//! The receive is named after the event beside the gap. Whoever finds the same gap at the same time writes the same
//! row; a later gap of the ref is beside another event.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use stargate_base::Epoch;
use stargate_queue::Result;
use stargate_queue::store::PAGE_MAX;

use crate::head::Head;
use crate::hole::{self, Link};
use crate::push::{NewPush, PushEventId, RefUpdate, check_ref, is_zero};
use crate::store::Pushes;

/// Who "pushed" what was found.
pub const PUSHER: &str = "reconcile";
/// For how long a gap has to be there: twice what a hook may take.
pub const SETTLE: Duration = Duration::from_secs(10);
/// Gaps of one repository that are recorded at once; the others follow with the next round.
pub const GAPS_MAX: usize = 1000;
/// Heads of one repository that are read at most, and events of refs with holes.
pub const HEADS_MAX: usize = 500_000;
/// How the receive of a gap between two events is named.
const BEFORE: &str = "before-";

/// Refs of a repository and where they are.
pub type Here = BTreeMap<String, String>;

/// A step of a ref that the store does not know of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Gap {
    /// From what was recorded to what is there, or to where the next recorded step begins.
    pub update: RefUpdate,
    /// Where it is among the events of its ref.
    pub place: Place,
}

/// Where a gap is among the events of its ref.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// After the one that was recorded last; none if there is none. The ref is elsewhere than the store believes.
    End(Option<PushEventId>),
    /// Between this one and the one before it.
    Before(PushEventId),
}

/// Names the receive of gaps at a place.
fn request(place: Place) -> String {
    match place {
        Place::End(after) => format!("{PUSHER}-{}", after.map_or(0, |id| id.0)),
        Place::Before(event) => format!("{PUSHER}-{BEFORE}{event}"),
    }
}

/// Whether a receive was named here for a gap at the end. Hooks append a random number to what clients choose, so none is
/// named like this.
pub fn is_request(request_id: &str) -> bool {
    named(request_id).is_some_and(is_number)
}

/// Whether a receive was named here for a gap between two events. Such an event tells of the past: it is never the head of
/// its ref.
pub fn is_fill(request_id: &str) -> bool {
    named(request_id).and_then(|rest| rest.strip_prefix(BEFORE)).is_some_and(is_number)
}

fn named(request_id: &str) -> Option<&str> {
    request_id.strip_prefix(PUSHER).and_then(|rest| rest.strip_prefix('-'))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Compares. `heads` may tell of refs that nobody looked for; `looked_for` says which were.
pub fn gaps(here: &Here, heads: &BTreeMap<String, Head>, looked_for: impl Fn(&str) -> bool) -> Vec<Gap> {
    let gap = |name: &str, old: String, new: String| Gap {
        update: RefUpdate { ref_name: name.to_owned(), old_oid: old, new_oid: new },
        place: Place::End(heads.get(name).map(|head| head.event)),
    };
    let zeros = |like: &str| "0".repeat(like.len());
    let moved = here.iter().filter_map(|(name, oid)| match heads.get(name) {
        Some(head) if head.update.new_oid == *oid => None,
        Some(head) => Some(gap(name, head.update.new_oid.clone(), oid.clone())),
        None => Some(gap(name, zeros(oid), oid.clone())),
    });
    let is_gone = |name: &str, head: &Head| {
        !is_zero(&head.update.new_oid) && !here.contains_key(name) && looked_for(name)
    };
    let gone = heads.iter().filter(|(name, head)| is_gone(name, head));
    let gone =
        gone.map(|(name, Head { update, .. })| gap(name, update.new_oid.clone(), zeros(&update.new_oid)));
    // What the store cannot keep was not recorded by the hook either.
    let gaps = moved.chain(gone).filter(|gap| check_ref("ref", &gap.update.ref_name).is_ok());
    gaps.take(GAPS_MAX).collect()
}

/// Looks once: what of these refs is not recorded as it is.
pub async fn look(
    pushes: &dyn Pushes,
    repo: &str,
    here: &Here,
    looked_for: impl Fn(&str) -> bool,
) -> Result<Vec<Gap>> {
    let mut heads: BTreeMap<String, Head> = BTreeMap::new();
    loop {
        let page = pushes.heads(repo, heads.keys().next_back().map(String::as_str), PAGE_MAX).await?;
        let is_last = page.len() < PAGE_MAX as usize;
        heads.extend(page.into_iter().map(|head| (head.update.ref_name.clone(), head)));
        if is_last {
            break;
        }
        if heads.len() >= HEADS_MAX {
            // Half a comparison would take what it has not read for missing.
            tracing::warn!(repo, max = HEADS_MAX, "too many refs are recorded to be compared");
            return Ok(Vec::new());
        }
    }
    let mut found = gaps(here, &heads, looked_for);
    found.extend(holes(pushes, repo).await?);
    found.truncate(GAPS_MAX);
    Ok(found)
}

/// What is missing between events. Those whose way is whole are not looked at again.
async fn holes(pushes: &dyn Pushes, repo: &str) -> Result<Vec<Gap>> {
    let mut links: Vec<Link> = Vec::new();
    loop {
        let page = pushes.links(repo, links.last().map(|link| link.event), PAGE_MAX).await?;
        let is_last = page.len() < PAGE_MAX as usize;
        links.extend(page);
        if is_last {
            break;
        }
        if links.len() >= HEADS_MAX {
            tracing::warn!(
                repo,
                max = HEADS_MAX,
                "too many pushes have to be looked at for one that is missing"
            );
            return Ok(Vec::new());
        }
    }
    let found = hole::holes(&links);
    if !found.whole.is_empty() {
        pushes.links_whole(&found.whole).await?;
    }
    Ok(found.holes)
}

/// What both looks found.
pub fn settled(first: &[Gap], second: Vec<Gap>) -> Vec<Gap> {
    let first: HashSet<&Gap> = first.iter().collect();
    second.into_iter().filter(|gap| first.contains(gap)).collect()
}

/// Records gaps under the epoch of the term; how many there were.
pub async fn record(
    pushes: &dyn Pushes,
    repo: &str,
    default_branch: Option<&str>,
    epoch: Epoch,
    gaps: Vec<Gap>,
    at: Timestamp,
) -> Result<usize> {
    let all = gaps.len();
    let mut receives: BTreeMap<Place, Vec<RefUpdate>> = BTreeMap::new();
    for gap in gaps {
        receives.entry(gap.place).or_default().push(gap.update);
    }
    for (place, updates) in receives {
        let push = NewPush {
            repo: repo.to_owned(),
            pusher: Some(PUSHER.to_owned()),
            request_id: request(place),
            epoch: Some(epoch),
            default_branch: default_branch.map(str::to_owned),
            updates,
            at,
            trace_id: None,
        };
        pushes.record(push).await?;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oid(n: u32) -> String {
        format!("{n:040x}")
    }

    fn update(name: &str, old: u32, new: u32) -> RefUpdate {
        RefUpdate { ref_name: name.into(), old_oid: oid(old), new_oid: oid(new) }
    }

    fn heads(of: &[(&str, i64, u32)]) -> BTreeMap<String, Head> {
        let head = |&(name, event, new): &(&str, i64, u32)| {
            let update = update(name, 9, new);
            (name.to_owned(), Head { event: PushEventId(event), update, request_id: "r".into() })
        };
        of.iter().map(head).collect()
    }

    fn here(of: &[(&str, u32)]) -> Here {
        of.iter().map(|&(name, n)| (name.to_owned(), oid(n))).collect()
    }

    #[test]
    fn new_moved_and_deleted_refs_are_gaps_and_nothing_else() {
        let here = here(&[
            ("refs/heads/same", 1),
            ("refs/heads/moved", 3),
            ("refs/heads/new", 4),
            ("refs/heads/back", 5),
        ]);
        let heads = heads(&[
            ("refs/heads/same", 11, 1),
            ("refs/heads/moved", 12, 2),
            ("refs/heads/gone", 13, 6),
            ("refs/heads/long-gone", 14, 0),
            ("refs/heads/back", 15, 0),
            ("refs/notes/x", 16, 7),
        ]);
        let found = gaps(&here, &heads, |name| name.starts_with("refs/heads/"));
        let gap = |name, old, new, after: i64| Gap {
            update: update(name, old, new),
            place: Place::End((after > 0).then_some(PushEventId(after))),
        };
        let expected = [
            gap("refs/heads/back", 0, 5, 15),
            gap("refs/heads/moved", 2, 3, 12),
            gap("refs/heads/new", 0, 4, 0),
            gap("refs/heads/gone", 6, 0, 13),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn gaps_are_bounded_and_names_that_cannot_be_kept_are_left_out() {
        let many = (0..GAPS_MAX + 5).map(|n| (format!("refs/heads/{n}"), oid(1)));
        let long = (format!("refs/heads/{}", "x".repeat(2000)), oid(1));
        let here: Here = many.chain([long.clone()]).collect();
        assert_eq!(gaps(&here, &BTreeMap::new(), |_| true).len(), GAPS_MAX);
        assert_eq!(gaps(&Here::from([long]), &BTreeMap::new(), |_| true), []);
    }

    #[test]
    fn a_gap_that_changes_between_two_looks_is_a_push_that_runs() {
        let gap = |new, after| Gap {
            update: update("refs/heads/a", 1, new),
            place: Place::End(Some(PushEventId(after))),
        };
        assert_eq!(settled(&[gap(2, 1)], vec![gap(2, 1)]), [gap(2, 1)]);
        assert_eq!(settled(&[gap(2, 1)], vec![gap(3, 1)]), [], "it moved");
        assert_eq!(settled(&[gap(2, 1)], vec![gap(2, 2)]), [], "something was recorded");
        assert_eq!(settled(&[], vec![gap(2, 1)]), [], "it is new");
    }

    #[test]
    fn receives_are_told_from_those_of_hooks() {
        let (end, fill) =
            (request(Place::End(Some(PushEventId(42)))), request(Place::Before(PushEventId(42))));
        assert!(is_request(&request(Place::End(None))) && is_request(&end) && !is_fill(&end), "{end}");
        assert!(is_fill(&fill) && !is_request(&fill), "{fill}");
        let before = ["reconcile-before-", "reconcile-before-1+00ff", "reconcile-before-x"];
        let after = ["reconcile", "reconcile-", "reconcile-1+00ff", "reconcile-x", "00ff", "xreconcile-1"];
        for other in before.iter().chain(&after) {
            assert!(!is_request(other) && !is_fill(other), "{other}");
        }
    }
}
