//! Heads of refs, and what is recorded of pushes whose hooks failed. The rules are in `stargate_repo::store`.

use jiff::Timestamp;
use stargate_base::Epoch;
use stargate_queue::Error;
use stargate_repo::reconcile::{self, Gap, Here, Place};
use stargate_repo::repository::DEFAULT_BRANCH;
use stargate_repo::{Head, PUSH_PROCESS, PushEventId, SharedPushes};

use super::git::{REPO, cut, default_oid, events, jobs, main, oid, process, push, record, update};
use super::prelude::*;
use crate::tables::Tables;

async fn heads(t: &Tables) -> Vec<Head> {
    t.pushes.heads(REPO, None, PAGE_MAX).await.expect("heads are listed")
}

/// Refs and where the store believes them to be.
async fn believed(t: &Tables) -> Vec<(String, String)> {
    heads(t).await.into_iter().map(|head| (head.update.ref_name, head.update.new_oid)).collect()
}

fn here(refs: &[(&str, u32)]) -> Here {
    refs.iter().map(|&(name, n)| (name.to_owned(), oid(n))).collect()
}

async fn look(pushes: &SharedPushes, here: &Here) -> Vec<Gap> {
    reconcile::look(pushes.as_ref(), REPO, here, |_| true).await.expect("a comparison")
}

async fn fill(pushes: &SharedPushes, epoch: Epoch, gaps: Vec<Gap>) -> Result<usize, Error> {
    reconcile::record(pushes.as_ref(), REPO, None, epoch, gaps, Timestamp::UNIX_EPOCH).await
}

async fn term(t: &Tables) -> Epoch {
    t.queue.store.term_begin("a", None, None).await.expect("a term")
}

/// Numbers of events, and of jobs for them.
async fn counts(t: &Tables) -> (usize, usize) {
    (events(t.pushes.as_ref()).await.len(), jobs(&t.queue.store, PUSH_PROCESS).await.len())
}

pub async fn the_head_of_a_ref_is_the_last_event_that_does_not_tell_of_the_past(t: &Tables) {
    assert_eq!(heads(t).await, [], "of a repository that nobody knows");
    let first = push("r1", vec![update("refs/heads/a", 0, 1), update("refs/heads/b", 0, 2)]);
    record(t, first.clone()).await;
    record(t, push("r3", vec![update("refs/heads/a", 3, 4)])).await;
    record(t, push("r2", vec![update("refs/heads/a", 1, 3)])).await;
    let at = |refs: &[(&str, u32)]| here(refs).into_iter().collect::<Vec<_>>();
    assert_eq!(believed(t).await, at(&[("refs/heads/a", 4), ("refs/heads/b", 2)]));
    record(t, first).await;
    assert_eq!(believed(t).await, at(&[("refs/heads/a", 4), ("refs/heads/b", 2)]), "a repeated report");
    let gone = record(t, push("r4", vec![update("refs/heads/b", 2, 0)])).await;
    assert_eq!(believed(t).await, at(&[("refs/heads/a", 4), ("refs/heads/b", 0)]));
    assert_eq!(heads(t).await[1].event, gone[0]);
    t.pushes.repo_remove(REPO).await.unwrap();
    assert_eq!(heads(t).await, []);
}

pub async fn heads_are_listed_by_ref_page_by_page(t: &Tables) {
    record(t, push("r1", (1..=7).map(|n| update(&format!("refs/tags/v{n}"), 0, n)).collect())).await;
    record(t, stargate_repo::NewPush { repo: "other".to_owned(), ..main("r1", 0, 1) }).await;
    let mut found: Vec<String> = Vec::new();
    loop {
        let page = t.pushes.heads(REPO, found.last().map(String::as_str), 3).await.unwrap();
        assert!(page.len() <= 3);
        if page.is_empty() {
            break;
        }
        found.extend(page.into_iter().map(|head| head.update.ref_name));
    }
    assert_eq!(found, (1..=7).map(|n| format!("refs/tags/v{n}")).collect::<Vec<_>>());
}

pub async fn a_head_follows_its_event_all_or_nothing(t: &Tables) {
    const POLLS_MAX: usize = 400;
    for polls in 0..POLLS_MAX {
        let n = u32::try_from(polls).unwrap();
        let done = cut(polls, t.pushes.record(main(&format!("cut {polls}"), n, n + 1))).await;
        // One transaction after the other: what is recorded now sees what was cut off, or comes before it.
        record(t, main(&format!("cut {polls}"), n, n + 1)).await;
        let newest = events(t.pushes.as_ref()).await[0].id;
        let found = heads(t).await;
        assert_eq!((found.len(), found[0].event), (1, newest), "after {polls} polls");
        if done.is_some() {
            return;
        }
    }
    panic!("recording took more than {POLLS_MAX} polls");
}

pub async fn what_is_missing_is_recorded_once_whoever_finds_it(t: &Tables) {
    let epoch = term(t).await;
    let refs = ["refs/heads/same", "refs/heads/moved", "refs/heads/gone"];
    record(t, push("r1", refs.iter().zip(1..).map(|(name, n)| update(name, 0, n)).collect())).await;
    let here = here(&[("refs/heads/same", 1), ("refs/heads/moved", 12), ("refs/heads/new", 14)]);
    let others = t.another().await.pushes;
    let (gaps, theirs) = (look(&t.pushes, &here).await, look(&others, &here).await);
    assert_eq!((gaps.len(), &gaps), (3, &theirs));
    let (one, two) = tokio::join!(fill(&t.pushes, epoch, gaps.clone()), fill(&others, epoch, theirs));
    assert_eq!((one.unwrap(), two.unwrap()), (3, 3));
    fill(&t.pushes, epoch, gaps).await.unwrap();
    assert_eq!(counts(t).await, (6, 6), "one event and one job for each");
    assert_eq!(look(&t.pushes, &here).await, []);
    let found = events(t.pushes.as_ref()).await;
    let found: Vec<_> =
        found.into_iter().filter(|event| event.pusher.as_deref() == Some("reconcile")).collect();
    assert!(found.iter().all(|event| event.epoch == Some(epoch)), "{found:?}");
    let mut updates: Vec<_> = found.into_iter().map(|event| event.update).collect();
    updates.sort_by(|a, b| a.ref_name.cmp(&b.ref_name));
    let expected =
        [update("refs/heads/gone", 3, 0), update("refs/heads/moved", 2, 12), update("refs/heads/new", 0, 14)];
    assert_eq!(updates, expected);
}

pub async fn a_hook_that_is_late_finds_its_push_recorded(t: &Tables) {
    let epoch = term(t).await;
    record(t, main("r1", 0, 1)).await;
    let gaps = look(&t.pushes, &here(&[("refs/heads/main", 2), ("refs/heads/new", 5)])).await;
    fill(&t.pushes, epoch, gaps).await.unwrap();
    let known: Vec<PushEventId> = heads(t).await.into_iter().map(|head| head.event).collect();
    let refs = ["refs/heads/more", "refs/heads/main", "refs/heads/new"];
    let late = push("late", vec![update(refs[0], 0, 7), update(refs[1], 1, 2), update(refs[2], 0, 5)]);
    let ids = record(t, late).await;
    assert_eq!(ids[1..], known, "in the order of its refs");
    assert_eq!(counts(t).await, (4, 4), "only what nobody had found is new");
    assert!(ids[0] > known[1]);
    record(t, main("r2", 2, 3)).await;
    let back = record(t, main("r3", 3, 1)).await;
    let forth = record(t, main("r4", 1, 2)).await;
    assert!(forth > back, "another push between the same ends is another event");
}

pub async fn a_hook_that_tells_while_its_push_is_being_found_is_recorded_once(t: &Tables) {
    let epoch = term(t).await;
    record(t, main("r1", 0, 1)).await;
    let gaps = look(&t.pushes, &here(&[("refs/heads/main", 2)])).await;
    let told = record(t, main("late", 1, 2)).await;
    fill(&t.pushes, epoch, gaps).await.unwrap();
    assert_eq!(counts(t).await, (2, 2), "one event and one job for each push");
    let known: Vec<PushEventId> = heads(t).await.into_iter().map(|head| head.event).collect();
    assert_eq!(known, told, "the hook's own");
}

pub async fn a_ref_that_goes_back_and_forth_is_found_each_time(t: &Tables) {
    let epoch = term(t).await;
    record(t, main("r1", 0, 1)).await;
    for round in 0..3 {
        for n in [2, 0, 1] {
            let refs = if n == 0 { here(&[]) } else { here(&[("refs/heads/main", n)]) };
            let gaps = look(&t.pushes, &refs).await;
            assert_eq!(gaps.len(), 1, "round {round}, at {n}");
            fill(&t.pushes, epoch, gaps).await.unwrap();
            assert_eq!(look(&t.pushes, &refs).await, [], "round {round}, at {n}");
        }
    }
    assert_eq!(counts(t).await, (10, 10));
}

pub async fn nothing_is_recorded_for_a_leader_whose_term_is_over(t: &Tables) {
    let first = term(t).await;
    let gaps = look(&t.pushes, &here(&[("refs/heads/main", 1)])).await;
    t.another().await.store.term_begin("b", None, Some(first)).await.unwrap();
    let refused = fill(&t.pushes, first, gaps).await.expect_err("its term is over");
    assert!(matches!(refused, Error::Deposed { .. }), "{refused}");
    assert_eq!(counts(t).await, (0, 0));
}

/// Two steps of a ref in one go, of which the first was not recorded.
pub async fn a_step_that_is_missing_between_two_is_recorded_once_and_moves_nothing(t: &Tables) {
    let epoch = term(t).await;
    process_all(t, record(t, main("r1", 0, 1)).await).await;
    process_all(t, record(t, main("r3", 2, 3)).await).await;
    process_all(
        t,
        record(t, push("r4", vec![update(DEFAULT_BRANCH, 3, 4), update("refs/heads/b", 7, 8)])).await,
    )
    .await;
    let refs = here(&[(DEFAULT_BRANCH, 4), ("refs/heads/b", 8)]);
    let others = t.another().await.pushes;
    let (gaps, theirs) = (look(&t.pushes, &refs).await, look(&others, &refs).await);
    assert_eq!((gaps.len(), &gaps), (2, &theirs));
    let (one, two) = tokio::join!(fill(&t.pushes, epoch, gaps.clone()), fill(&others, epoch, theirs));
    assert_eq!((one.unwrap(), two.unwrap()), (2, 2));
    assert_eq!(counts(t).await, (6, 6), "one event and one job for each");
    let found = events(t.pushes.as_ref()).await;
    let (found, _): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|event| event.pusher.as_deref() == Some("reconcile"));
    let mut updates: Vec<_> = found.iter().map(|event| event.update.clone()).collect();
    updates.sort_by(|a, b| a.ref_name.cmp(&b.ref_name));
    assert_eq!(updates, [update("refs/heads/b", 0, 7), update(DEFAULT_BRANCH, 1, 2)]);
    let at = |refs: &Here| refs.clone().into_iter().collect::<Vec<_>>();
    assert_eq!(believed(t).await, at(&refs), "the heads stay where they are");
    process_all(t, found.iter().map(|event| event.id).collect()).await;
    assert_eq!(default_oid(t).await, Some(oid(4)), "and so does the branch");
    for _ in 0..2 {
        assert_eq!(look(&t.pushes, &refs).await, []);
        assert_eq!(t.pushes.links(REPO, None, PAGE_MAX).await.unwrap(), [], "nothing is looked at for ever");
    }
}

pub async fn hooks_that_overtake_each_other_leave_nothing_to_be_found(t: &Tables) {
    for name in ["r1", "r3", "r2", "r5", "r6", "r4"] {
        let n: u32 = name[1..].parse().unwrap();
        record(t, main(name, n - 1, n)).await;
    }
    let gaps = look(&t.pushes, &here(&[(DEFAULT_BRANCH, 6)])).await;
    assert!(gaps.iter().all(|gap| matches!(gap.place, Place::End(_))), "{gaps:?}");
    assert_eq!(t.pushes.links(REPO, None, PAGE_MAX).await.unwrap(), []);
}

pub async fn a_hook_that_is_later_than_what_filled_its_hole_records_nothing(t: &Tables) {
    let epoch = term(t).await;
    for (request, old, new) in [("r1", 0, 1), ("r3", 2, 3), ("r4", 3, 4)] {
        record(t, main(request, old, new)).await;
    }
    let refs = here(&[(DEFAULT_BRANCH, 4)]);
    let gaps = look(&t.pushes, &refs).await;
    fill(&t.pushes, epoch, gaps).await.unwrap();
    let filled = events(t.pushes.as_ref()).await[0].id;
    assert_eq!(record(t, main("r2", 1, 2)).await, [filled]);
    assert_eq!((counts(t).await, look(&t.pushes, &refs).await), ((4, 4), vec![]));
    record(t, main("r5", 4, 1)).await;
    let again = record(t, main("r6", 1, 2)).await;
    assert!(again[0] > filled, "another push between the same ends is another event");
}

pub async fn a_ref_that_goes_and_comes_back_to_the_same_commit_is_there(t: &Tables) {
    for (request, old, new) in [("r1", 0, 1), ("r2", 1, 0), ("r3", 0, 1)] {
        let ids = record(t, main(request, old, new)).await;
        assert_eq!(heads(t).await[0].event, ids[0], "{request}");
        process_all(t, ids).await;
    }
    assert_eq!(look(&t.pushes, &here(&[(DEFAULT_BRANCH, 1)])).await, []);
    assert_eq!(default_oid(t).await, Some(oid(1)));
}

async fn process_all(t: &Tables, ids: Vec<PushEventId>) {
    for id in ids {
        process(t, id).await;
    }
}
