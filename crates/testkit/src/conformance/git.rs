//! Pushes: recorded whole and once, processed once, whatever dies in between. The rules are in `stargate_repo::store`.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use stargate_base::Epoch;
use stargate_queue::store::{ClaimRequest, KindSlots};
use stargate_queue::{Error, SharedStore};
use stargate_repo::repository::DEFAULT_BRANCH;
use stargate_repo::{
    EventFilter, NewPush, NewWebhook, Occasion, PUSH_PROCESS, Processed, PushEvent, PushEventId, Pushes,
    RefUpdate, RepoSpec, SIZE_RECALC, WEBHOOK_DELIVER,
};

use super::prelude::*;
use crate::tables::Tables;

pub(super) const REPO: &str = "team/app";

/// A commit; 0 is none.
pub(super) fn oid(n: u32) -> String {
    format!("{n:040x}")
}

pub(super) fn update(ref_name: &str, old: u32, new: u32) -> RefUpdate {
    RefUpdate { ref_name: ref_name.to_owned(), old_oid: oid(old), new_oid: oid(new) }
}

pub(super) fn push(request: &str, updates: Vec<RefUpdate>) -> NewPush {
    NewPush {
        repo: REPO.to_owned(),
        pusher: Some("ann é".to_owned()),
        request_id: request.to_owned(),
        epoch: None,
        default_branch: None,
        updates,
        at: "2025-01-02T03:04:05.678901Z".parse().expect("an instant"),
        trace_id: Some("00-ab-cd-01".to_owned()),
    }
}

/// A push of the default branch.
pub(super) fn main(request: &str, old: u32, new: u32) -> NewPush {
    push(request, vec![update(DEFAULT_BRANCH, old, new)])
}

pub(super) async fn record(t: &Tables, push: NewPush) -> Vec<PushEventId> {
    t.pushes.record(push).await.expect("a good push is recorded")
}

pub(super) async fn process(t: &Tables, event: PushEventId) -> Processed {
    t.pushes.process(event).await.expect("an event is processed")
}

async fn event(t: &Tables, id: PushEventId) -> PushEvent {
    t.pushes.event(id).await.unwrap().unwrap_or_else(|| panic!("event {id} is gone"))
}

pub(super) async fn events(pushes: &dyn Pushes) -> Vec<PushEvent> {
    pushes.events(EventFilter { limit: PAGE_MAX, ..EventFilter::default() }).await.expect("events are listed")
}

pub(super) async fn jobs(store: &SharedStore, kind: &str) -> Vec<Job> {
    let filter = JobFilter { kind: Some(kind.to_owned()), limit: PAGE_MAX, ..JobFilter::default() };
    store.jobs(filter).await.expect("jobs are listed")
}

/// The events that jobs were made for, in order.
async fn jobs_for(store: &SharedStore) -> Vec<i64> {
    let mut events: Vec<i64> = jobs(store, PUSH_PROCESS)
        .await
        .iter()
        .map(|job| value(&job.payload)["push_event_id"].as_i64().expect("a number"))
        .collect();
    events.sort_unstable();
    events
}

pub(super) async fn default_oid(t: &Tables) -> Option<String> {
    t.pushes.repo(REPO).await.unwrap().expect("the repository is known").default_oid
}

pub(super) fn hook(repo: Option<&str>, url: &str, events: &[Occasion]) -> NewWebhook {
    NewWebhook {
        repo: repo.map(str::to_owned),
        url: url.to_owned(),
        secret_ref: Some("HOOK".to_owned()),
        events: events.to_vec(),
    }
}

/// Polls a future so often and then drops it, as a process does that is killed there.
pub(super) async fn cut<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let (mut future, mut left) = (pin!(future), polls);
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

pub async fn a_recorded_push_is_an_event_and_a_job_for_each_ref(t: &Tables) {
    let refs = vec![update("refs/tags/v1", 0, 3), update(DEFAULT_BRANCH, 1, 2), update("refs/heads/ü", 4, 0)];
    let given = push("r1", refs.clone());
    let ids = record(t, given.clone()).await;
    assert_eq!(ids.len(), 3);
    let another = t.another().await;
    let found = events(another.pushes.as_ref()).await;
    assert_eq!(
        found.iter().rev().map(|event| event.id).collect::<Vec<_>>(),
        ids,
        "numbers rise with the refs"
    );
    for (event, update) in found.iter().rev().zip(&refs) {
        let expected = PushEvent {
            id: event.id,
            repo: REPO.to_owned(),
            update: update.clone(),
            pusher: given.pusher.clone(),
            request_id: "r1".to_owned(),
            epoch: None,
            received_at: given.at,
            created_at: t.queue.now(),
            processed_at: None,
        };
        assert_eq!(event, &expected, "seen by another process");
    }
    let made = jobs(&another.store, PUSH_PROCESS).await;
    assert_eq!(jobs_for(&another.store).await, ids.iter().map(|id| id.0).collect::<Vec<_>>());
    assert!(made.iter().all(|job| job.state == State::Queued && job.max_attempts == 25), "{made:?}");
    assert!(made.iter().all(|job| job.trace_id.as_deref() == Some("00-ab-cd-01")), "{made:?}");
    let repo = another.pushes.repo(REPO).await.unwrap().expect("a push makes its repository known");
    assert_eq!((repo.default_branch.as_str(), repo.default_oid), (DEFAULT_BRANCH, None));
    assert_eq!((repo.pushed_at, repo.created_at), (Some(t.queue.now()), t.queue.now()));
}

pub async fn a_push_recorded_again_is_the_same_events_and_no_more_jobs(t: &Tables) {
    let given = push("r1", vec![update("refs/heads/a", 0, 1), update("refs/heads/b", 0, 2)]);
    let first = record(t, given.clone()).await;
    assert_eq!(record(t, given.clone()).await, first);
    assert_eq!(t.another().await.pushes.record(given.clone()).await.unwrap(), first, "from another process");
    process(t, first[0]).await;
    assert_eq!(record(t, given.clone()).await, first, "processed or not");
    let mut turned = given.clone();
    turned.updates.reverse();
    assert_eq!(record(t, turned).await, [first[1], first[0]], "in the order of the refs");
    let mut longer = given;
    longer.updates.push(update("refs/heads/c", 0, 3));
    let longer = record(t, longer).await;
    assert_eq!(longer[..2], first);
    assert_eq!(jobs_for(&t.queue.store).await, longer.iter().map(|id| id.0).collect::<Vec<_>>());
}

pub async fn the_same_refs_in_another_receive_are_other_events(t: &Tables) {
    let first = record(t, main("r1", 1, 2)).await;
    let back = record(t, main("r2", 2, 1)).await;
    let again = record(t, main("r3", 1, 2)).await;
    let elsewhere = record(t, NewPush { repo: "other".to_owned(), ..main("r1", 1, 2) }).await;
    let all: HashSet<PushEventId> = [first, back, again, elsewhere].concat().into_iter().collect();
    assert_eq!(all.len(), 4);
    assert_eq!(jobs_for(&t.queue.store).await.len(), 4);
}

pub async fn a_ref_named_twice_in_one_push_is_one_event(t: &Tables) {
    let ids = record(t, push("r1", vec![update("refs/heads/a", 0, 1), update("refs/heads/a", 0, 1)])).await;
    assert_eq!((ids.len(), ids[0]), (2, ids[1]));
    assert_eq!(jobs_for(&t.queue.store).await, [ids[0].0]);
}

pub async fn a_bad_push_changes_nothing(t: &Tables) {
    let good = update("refs/heads/a", 0, 1);
    let bad = [
        push("r1", vec![good.clone(), update("refs/heads/a b", 0, 1)]),
        push("r1", vec![]),
        push("", vec![good.clone()]),
        NewPush { repo: "../etc".to_owned(), ..push("r1", vec![good.clone()]) },
        NewPush { trace_id: Some("x".repeat(10_000)), ..push("r1", vec![good]) },
    ];
    for push in bad {
        let refused = t.pushes.record(push.clone()).await.expect_err("nonsense is refused");
        assert_eq!(refused.class(), ErrorClass::ValidationFailure, "{push:?}: {refused}");
    }
    assert_eq!(events(t.pushes.as_ref()).await, []);
    assert_eq!(t.pushes.repos(None, 10).await.unwrap(), []);
    assert!(jobs(&t.queue.store, PUSH_PROCESS).await.is_empty());
}

pub async fn racing_reports_of_one_push_make_one_set_of_events(t: &Tables) {
    let stores = [t.pushes.clone(), t.another().await.pushes];
    let given = push("r1", vec![update("refs/heads/a", 0, 1), update("refs/heads/b", 0, 2)]);
    let answers = race(8, |n| {
        let (store, given) = (stores[n % 2].clone(), given.clone());
        async move { store.record(given).await.expect("each is recorded") }
    })
    .await;
    assert!(answers.iter().all(|ids| *ids == answers[0]), "{answers:?}");
    assert_eq!(jobs_for(&t.queue.store).await.len(), 2);
}

pub async fn racing_pushes_to_one_repository_are_all_recorded(t: &Tables) {
    let stores = [t.pushes.clone(), t.another().await.pushes];
    let answers =
        race(40, |n| {
            let store = stores[n % 2].clone();
            let n = u32::try_from(n).unwrap();
            async move {
                store.record(push(&n.to_string(), vec![update(&format!("refs/heads/{n}"), 0, n + 1)])).await
            }
        })
        .await;
    let all: HashSet<PushEventId> =
        answers.into_iter().flat_map(|ids| ids.expect("each is recorded")).collect();
    assert_eq!((all.len(), jobs_for(&t.queue.store).await.len()), (40, 40));
}

pub async fn a_record_that_is_cut_off_leaves_all_or_nothing(t: &Tables) {
    const POLLS_MAX: usize = 400;
    let refs = |n: u32| {
        vec![update("refs/heads/a", 0, n), update("refs/heads/b", 0, n), update("refs/heads/c", 0, n)]
    };
    for polls in 0..POLLS_MAX {
        let request = format!("cut after {polls}");
        let given = push(&request, refs(u32::try_from(polls).unwrap() + 1));
        let done = cut(polls, t.pushes.record(given.clone())).await;
        let mut found = events(t.pushes.as_ref()).await;
        found.retain(|event| event.request_id == request);
        assert!([0, 3].contains(&found.len()), "half a push after {polls} polls: {found:?}");
        let made: HashSet<i64> = jobs_for(&t.queue.store).await.into_iter().collect();
        assert!(
            found.iter().all(|event| made.contains(&event.id.0)),
            "an event without a job after {polls} polls"
        );
        let again = record(t, given).await;
        if let Some(done) = &done {
            assert_eq!(done.as_ref().expect("a good push is recorded"), &again);
        }
        let listed: HashSet<PushEventId> = again.into_iter().collect();
        assert_eq!(listed.len(), 3);
        if done.is_some() {
            let made = jobs_for(&t.queue.store).await;
            assert_eq!(made.len(), 3 * (polls + 1), "one job for each event, over all cuts: {made:?}");
            return;
        }
    }
    panic!("recording took more than {POLLS_MAX} polls");
}

pub async fn a_recorded_push_wakes_workers_of_another_process(t: &Tables) {
    let another = t.another().await;
    let mut wakes = another.store.wakes();
    wakes.mark_unchanged();
    record(t, main("r1", 0, 1)).await;
    let woken = tokio::time::timeout(Duration::from_secs(10), wakes.changed()).await;
    assert!(woken.is_ok(), "nobody was told that there are jobs");
}

pub async fn a_push_of_many_refs_is_recorded_in_order_and_listed_in_pages(t: &Tables) {
    let refs: Vec<RefUpdate> = (1..=1500).map(|n| update(&format!("refs/tags/v{n}"), 0, n)).collect();
    let ids = record(t, push("r1", refs)).await;
    assert!(ids.is_sorted(), "numbers rise with the refs");
    assert_eq!(events(t.pushes.as_ref()).await.len(), PAGE_MAX as usize);
    let page = |before, limit| EventFilter { before, limit, ..EventFilter::default() };
    let unbounded = t.pushes.events(page(None, u32::MAX)).await.unwrap();
    assert_eq!(unbounded.len(), PAGE_MAX as usize, "no page is larger than the maximum");
    let rest = t.pushes.events(page(Some(unbounded[999].id), u32::MAX)).await.unwrap();
    let all: Vec<PushEventId> = unbounded.iter().chain(&rest).map(|event| event.id).rev().collect();
    assert_eq!(all, ids, "newest first, each once");
    assert_eq!(t.pushes.events(page(None, 0)).await.unwrap().len(), 1, "a page has at least one row");
}

pub async fn a_push_of_the_current_leader_is_recorded_with_its_epoch(t: &Tables) {
    let epoch = t.queue.store.term_begin("a", None, None).await.unwrap();
    let ids = record(t, NewPush { epoch: Some(epoch), ..main("r1", 0, 1) }).await;
    assert_eq!(event(t, ids[0]).await.epoch, Some(epoch));
}

pub async fn a_push_of_a_deposed_leader_is_refused_whole(t: &Tables) {
    let first = t.queue.store.term_begin("a", None, None).await.unwrap();
    let before = record(t, NewPush { epoch: Some(first), ..main("r1", 0, 1) }).await;
    let second = t.another().await.store.term_begin("b", None, Some(first)).await.unwrap();
    let late = NewPush { epoch: Some(first), repo: "new".to_owned(), ..main("r2", 1, 2) };
    let refused = t.pushes.record(late).await.expect_err("its term is over");
    match refused {
        Error::Deposed { epoch, current } => assert_eq!((epoch, current), (first, second)),
        other => panic!("{other:?}"),
    }
    assert_eq!(refused_code(t, first).await, "NOT_LEADER", "a repeated report as well");
    assert_eq!(t.pushes.repo("new").await.unwrap(), None, "not even the repository");
    assert_eq!(jobs_for(&t.queue.store).await, [before[0].0]);
    record(t, NewPush { epoch: Some(second), ..main("r3", 1, 2) }).await;
}

async fn refused_code(t: &Tables, epoch: Epoch) -> &'static str {
    let again = NewPush { epoch: Some(epoch), ..main("r1", 0, 1) };
    t.pushes.record(again).await.map_or_else(|error| error.code(), |_| "recorded")
}

pub async fn an_event_is_processed_once(t: &Tables) {
    t.pushes.repo_put(RepoSpec::new(REPO)).await.unwrap();
    t.pushes.webhook_put(hook(Some(REPO), "https://example.com/a", &[Occasion::Push])).await.unwrap();
    let ids = record(t, main("r1", 0, 7)).await;
    t.queue.advance(Duration::from_secs(3));
    let first = process(t, ids[0]).await;
    assert_eq!(first, Processed { first: true, default_moved: true, deliveries: 1 });
    assert_eq!(event(t, ids[0]).await.processed_at, Some(t.queue.now()));
    assert_eq!(default_oid(t).await, Some(oid(7)));
    let state = async || {
        let size = jobs(&t.queue.store, SIZE_RECALC).await.len();
        let deliver = jobs(&t.queue.store, WEBHOOK_DELIVER).await.len();
        (size, deliver, t.pushes.deliveries(ids[0]).await.unwrap(), event(t, ids[0]).await)
    };
    let before = state().await;
    assert_eq!((before.0, before.1, before.2.len()), (1, 1, 1));
    t.queue.advance(Duration::from_secs(3));
    assert_eq!(process(t, ids[0]).await, Processed::BEFORE);
    assert_eq!(t.another().await.pushes.process(ids[0]).await.unwrap(), Processed::BEFORE);
    assert_eq!(state().await, before, "nothing changed");
}

pub async fn a_push_outlives_the_workers_that_it_loses(t: &Tables) {
    record(t, main("r1", 0, 7)).await;
    for lost in 0..10 {
        let worker = t.queue.worker(&format!("w{lost}")).await;
        let kinds = vec![KindSlots { kind: PUSH_PROCESS.into(), slots: 1, lease: LEASE }];
        let claim = t.queue.claim_as(ClaimRequest { kinds, ..claim_request(worker, 1) }).await;
        assert_eq!(claim.jobs.len(), 1, "given up after {lost} lost workers: {claim:?}");
        t.queue.advance(LEASE);
    }
}

pub async fn racing_workers_process_an_event_once(t: &Tables) {
    t.pushes.repo_put(RepoSpec::new(REPO)).await.unwrap();
    t.pushes.webhook_put(hook(None, "https://example.com/a", &[Occasion::Push])).await.unwrap();
    let id = record(t, main("r1", 0, 7)).await[0];
    let stores = [t.pushes.clone(), t.another().await.pushes];
    let done = race(8, |n| {
        let store = stores[n % 2].clone();
        async move { store.process(id).await.expect("each is answered") }
    })
    .await;
    assert_eq!(done.iter().filter(|one| one.first).count(), 1, "{done:?}");
    assert_eq!(jobs(&t.queue.store, WEBHOOK_DELIVER).await.len(), 1);
    assert_eq!(jobs(&t.queue.store, SIZE_RECALC).await.len(), 1);
}

pub async fn a_processing_that_is_cut_off_leaves_all_or_nothing(t: &Tables) {
    const POLLS_MAX: usize = 400;
    for polls in 0..POLLS_MAX {
        let repo = format!("cut/{polls}");
        t.pushes.repo_put(RepoSpec::new(&repo)).await.unwrap();
        t.pushes.webhook_put(hook(Some(&repo), "https://example.com/a", &[Occasion::Push])).await.unwrap();
        let id = record(t, NewPush { repo: repo.clone(), ..main("r", 0, 7) }).await[0];
        let done = cut(polls, t.pushes.process(id)).await;
        // The deliveries in the first place: what is seen later includes what is seen earlier.
        let delivered = t.pushes.deliveries(id).await.unwrap().len();
        let processed = event(t, id).await.processed_at.is_some();
        assert!(
            delivered == 0 || processed,
            "a delivery of an event that is not processed, after {polls} polls"
        );
        let last = process(t, id).await;
        assert!(!done.is_some_and(|done| done.unwrap().first) || !last.first, "processed twice");
        assert_eq!(t.pushes.repo(&repo).await.unwrap().unwrap().default_oid, Some(oid(7)));
        assert_eq!(t.pushes.deliveries(id).await.unwrap().len(), 1);
        let made = (
            jobs(&t.queue.store, WEBHOOK_DELIVER).await.len(),
            jobs(&t.queue.store, SIZE_RECALC).await.len(),
        );
        assert_eq!(made, (polls + 1, polls + 1), "one of each for each event, after {polls} polls");
        if !last.first && polls > 3 {
            return;
        }
    }
    panic!("processing took more than {POLLS_MAX} polls");
}

pub async fn an_event_that_is_not_there_is_poison(t: &Tables) {
    for id in [0, -1, 4711, i64::MAX] {
        let missing = t.pushes.process(PushEventId(id)).await.expect_err("there is none");
        assert_eq!((missing.code(), missing.class()), ("NOT_FOUND", ErrorClass::ValidationFailure));
    }
}

pub async fn the_default_branch_ends_where_the_last_push_left_it(t: &Tables) {
    let mut ids = Vec::new();
    for n in 0..4 {
        ids.extend(record(t, main(&n.to_string(), n, n + 1)).await);
    }
    assert_eq!(default_oid(t).await, None, "nothing is processed yet");
    for (n, moved) in [(1, true), (0, false), (3, true), (2, false)] {
        assert_eq!(process(t, ids[n]).await.default_moved, moved, "push {n}");
    }
    assert_eq!(default_oid(t).await, Some(oid(4)));
    let gone = record(t, main("gone", 4, 0)).await[0];
    assert!(process(t, gone).await.default_moved);
    assert_eq!(default_oid(t).await, None, "a deleted branch has no commit");
}

pub async fn other_refs_do_not_move_the_default_branch(t: &Tables) {
    let refs = vec![
        update("refs/heads/other", 0, 1),
        update("refs/tags/main", 0, 2),
        update("refs/heads/main2", 0, 3),
    ];
    for id in record(t, push("r1", refs)).await {
        assert!(!process(t, id).await.default_moved);
    }
    assert_eq!(default_oid(t).await, None);
}

pub async fn another_default_branch_is_unknown_until_its_next_push(t: &Tables) {
    let id = record(t, main("r1", 0, 1)).await[0];
    process(t, id).await;
    t.pushes.repo_put(RepoSpec::new(REPO)).await.unwrap();
    assert_eq!(default_oid(t).await, Some(oid(1)), "the same one is not forgotten");
    let trunk = RepoSpec { default_branch: "refs/heads/trunk".to_owned(), ..RepoSpec::new(REPO) };
    t.pushes.repo_put(trunk).await.unwrap();
    assert_eq!(default_oid(t).await, None);
    let id = record(t, push("r2", vec![update("refs/heads/trunk", 0, 5)])).await[0];
    assert!(process(t, id).await.default_moved);
    assert_eq!(default_oid(t).await, Some(oid(5)));
    let told = NewPush { default_branch: Some(DEFAULT_BRANCH.to_owned()), ..main("r3", 1, 2) };
    let id = record(t, told).await[0];
    assert_eq!(default_oid(t).await, None, "the push tells what HEAD points to");
    process(t, id).await;
    assert_eq!(default_oid(t).await, Some(oid(2)));
}

pub async fn one_size_job_waits_however_many_pushes_there_were(t: &Tables) {
    for n in 0..5 {
        let id = record(t, main(&n.to_string(), n, n + 1)).await[0];
        process(t, id).await;
    }
    let waiting = jobs(&t.queue.store, SIZE_RECALC).await;
    assert_eq!(waiting.len(), 1);
    assert_eq!(value(&waiting[0].payload), json!({ "repo": REPO }));
    let id = record(t, NewPush { repo: "other".to_owned(), ..main("r", 0, 1) }).await[0];
    process(t, id).await;
    assert_eq!(jobs(&t.queue.store, SIZE_RECALC).await.len(), 2, "another repository has its own");
}

pub async fn a_size_job_that_runs_already_does_not_count_as_waiting(t: &Tables) {
    let worker = t.queue.worker("w").await;
    for round in 1..=3_u32 {
        for n in 0..2 {
            let id = record(t, main(&format!("{round} {n}"), round, round + 1)).await[0];
            process(t, id).await;
        }
        // What runs may have measured before these pushes.
        let kinds = vec![KindSlots { kind: SIZE_RECALC.to_owned(), slots: 10, lease: LEASE }];
        let request = ClaimRequest { worker, limit: 10, queues: Vec::new(), kinds };
        assert_eq!(t.queue.claim_as(request).await.jobs.len(), 1, "round {round}: one waits, and only one");
    }
}
