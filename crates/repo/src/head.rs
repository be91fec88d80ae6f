//! Where the store believes each ref to be: the event that was recorded last of it, whatever order hooks ran in.

use crate::branch::{Applied, Verdict, decide, end};
use crate::push::{PushEventId, RefUpdate};
use crate::reconcile;

/// The event that tells where a ref is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Its number.
    pub event: PushEventId,
    /// What it tells. A ref that is gone ends in zeros; such a head is forgotten with its event.
    pub update: RefUpdate,
    /// The receive that it was recorded for.
    pub request_id: String,
}

impl Head {
    /// Whether a newer event takes its place, and does not tell of the past.
    pub fn gives_way(&self, id: PushEventId, update: &RefUpdate) -> bool {
        let applied = Applied { id: self.event, old: end(&self.update.old_oid) };
        decide(end(&self.update.new_oid), Some(applied), id, update) == Verdict::Moves
    }

    /// Where the ref was believed to be, if a step that takes the head's place begins elsewhere: what is between them was
    /// not recorded, or not yet (`hole`).
    pub fn torn(before: Option<&Self>, update: &RefUpdate) -> Option<String> {
        let Some(head) = before else {
            return (!update.creates()).then(|| "0".repeat(update.old_oid.len()));
        };
        // The same step twice: found missing in the moment in which its hook told of it.
        let is_next = end(&head.update.new_oid) == end(&update.old_oid) || head.update == *update;
        (!is_next).then(|| head.update.new_oid.clone())
    }

    /// Whether this is what is now reported for a receive, and one of the two was found missing: recorded while the hook was late, or
    /// by the hook while it was being found. Then the push has its event already.
    pub fn stands_for(&self, request_id: &str, update: &RefUpdate) -> bool {
        self.update == *update && [&self.request_id, request_id].into_iter().any(reconcile::is_request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(old: u32, new: u32) -> RefUpdate {
        RefUpdate {
            ref_name: "refs/heads/a".into(),
            old_oid: format!("{old:040x}"),
            new_oid: format!("{new:040x}"),
        }
    }

    fn head(request: &str, old: u32, new: u32) -> Head {
        Head { event: PushEventId(5), update: update(old, new), request_id: request.into() }
    }

    #[test]
    fn a_head_gives_way_to_what_follows_and_not_to_what_it_overtook() {
        let head = head("r", 2, 3);
        assert!(head.gives_way(PushEventId(6), &update(3, 4)), "the next step");
        assert!(head.gives_way(PushEventId(6), &update(7, 8)), "after steps that were not recorded");
        assert!(head.gives_way(PushEventId(6), &update(3, 0)), "the end of the ref");
        assert!(!head.gives_way(PushEventId(6), &update(1, 2)), "the step before");
    }

    /// What is recorded of a gap is where the ref is afterwards, or it would be found again in every round.
    #[test]
    fn a_head_gives_way_to_every_step_that_begins_where_it_ends() {
        for old in 0..3 {
            for at in 0..3 {
                for new in (0..3).filter(|new| *new != at) {
                    let (head, step) = (head("r", old, at), update(at, new));
                    assert!(head.gives_way(PushEventId(6), &step), "{old} to {at}, then to {new}");
                }
            }
        }
    }

    #[test]
    fn only_what_was_found_missing_stands_for_the_report_of_a_late_hook() {
        assert!(head("reconcile-4", 1, 2).stands_for("some+0123", &update(1, 2)));
        assert!(!head("reconcile-4", 1, 2).stands_for("some+0123", &update(0, 2)));
        assert!(!head("some+0123", 1, 2).stands_for("other+0123", &update(1, 2)));
        assert!(
            !head("reconcile-4+0123", 1, 2).stands_for("some+0123", &update(1, 2)),
            "an id that a client chose"
        );
        assert!(
            head("some+0123", 1, 2).stands_for("reconcile-4", &update(1, 2)),
            "the hook was first after all"
        );
    }
}
