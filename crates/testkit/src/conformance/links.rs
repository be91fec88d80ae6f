//! Items of other queues: accepted whole, held back until their source was told, and never entered twice.

use stargate_queue::intake::{Claim, Link, LinkFilter, LinkStage, LinkTurn, Linked, NewLink, Terms};
use stargate_queue::{Error, SharedStore};

use super::prelude::*;

const SOURCE: &str = "elsewhere";

fn terms() -> Terms {
    Terms { retry_count: 1, retry_delay_s: 7, retry_backoff: true, retry_delay_max_s: Some(60) }
}

fn link(item: &str, mark: &str) -> NewLink {
    let job = NewJob { max_attempts: Some(2), priority: 5, ..job() };
    NewLink { item: item.to_owned(), mark: mark.to_owned(), terms: terms(), job }
}

fn claim(item: &str, mark: &str) -> Claim {
    Claim { item: item.to_owned(), mark: mark.to_owned() }
}

fn filter() -> LinkFilter {
    LinkFilter { source: SOURCE.to_owned(), job: None, ended: false, after: None, limit: 100 }
}

async fn links(store: &SharedStore, filter: LinkFilter) -> Vec<Link> {
    store.links(filter).await.expect("links are listed")
}

async fn accept(f: &Fixture, item: &str, mark: &str) -> Linked {
    f.store.links_accept(SOURCE, vec![link(item, mark)]).await.expect("an item is accepted")[0]
}

async fn turn(f: &Fixture, item: &str, mark: &str, turn: LinkTurn) -> u64 {
    f.store.links_turn(SOURCE, vec![claim(item, mark)], turn).await.expect("a link is turned")
}

pub async fn an_accepted_item_is_a_job_that_does_not_run_until_it_is_held(f: &Fixture) {
    let worker = f.worker("w").await;
    let linked = accept(f, "a", "m").await;
    assert_eq!(linked.stage, LinkStage::Accepted);
    let job = f.job(linked.job).await;
    assert_eq!((job.state, job.stage), (State::Queued, Some(Stage::Blocked)), "{job:?}");
    assert_eq!((job.max_attempts, job.priority), (2, 5), "{job:?}");
    f.nothing_for(worker, "the source was not told yet").await;
    assert_eq!(turn(f, "a", "m", LinkTurn::Hold).await, 1);
    assert_eq!(f.claim_one(worker).await.fence.job, linked.job);
    assert_eq!(turn(f, "a", "m", LinkTurn::Hold).await, 0, "it is held already");
    let expected = Link {
        item: "a".into(),
        job: linked.job,
        mark: "m".into(),
        terms: terms(),
        stage: LinkStage::Held,
        job_stage: Some(Stage::Processing),
    };
    assert_eq!(links(&f.another().await, filter()).await, [expected], "seen by another process");
}

pub async fn a_held_item_wakes_sleepers_of_another_process(f: &Fixture) {
    let another = f.another().await;
    accept(f, "a", "m").await;
    let mut wakes = another.wakes();
    // Whatever is still under way has nothing to do with the hold.
    wakes.mark_unchanged();
    turn(f, "a", "m", LinkTurn::Hold).await;
    let woken = tokio::time::timeout(Duration::from_secs(10), wakes.changed()).await;
    assert!(woken.is_ok(), "nobody was told that a job may run");
}

pub async fn a_batch_with_one_bad_item_is_refused_whole(f: &Fixture) {
    let mut bad = link("b", "m");
    bad.job.kind = "nobody knows it".replace(' ', "_");
    let refused = f.store.links_accept(SOURCE, vec![link("a", "m"), bad]).await;
    assert!(matches!(refused, Err(Error::UnknownKind { .. })), "{refused:?}");
    assert_eq!(links(&f.store, filter()).await, []);
    assert!(f.store.jobs(JobFilter::default()).await.unwrap().is_empty(), "a job without a link");
}

pub async fn an_item_accepted_again_is_the_same_job_with_the_new_values(f: &Fixture) {
    let worker = f.worker("w").await;
    let first = accept(f, "a", "old").await;
    let mut again = link("a", "new");
    again.job.payload = raw(&json!({ "n": 2 }));
    again.job.priority = 9;
    again.job.max_attempts = Some(4);
    again.terms.retry_delay_s = 1;
    let both = f.store.links_accept(SOURCE, vec![link("b", "m"), again]).await.unwrap();
    assert_eq!(both[1], first, "the same job");
    assert_ne!(both[0].job, first.job);
    assert_eq!(turn(f, "a", "old", LinkTurn::Hold).await, 0, "the old mark counts no more");
    assert_eq!(turn(f, "a", "new", LinkTurn::Hold).await, 1);
    let claimed = f.claim_one(worker).await;
    assert_eq!((claimed.fence.job, value(&claimed.payload)), (first.job, json!({ "n": 2 })));
    let job = f.job(first.job).await;
    assert_eq!((job.priority, job.max_attempts), (9, 4));
    let held = links(&f.store, LinkFilter { job: Some(first.job), ..filter() }).await;
    assert_eq!((held[0].mark.as_str(), held[0].terms.retry_delay_s), ("new", 1));
    let third = accept(f, "a", "third").await;
    assert_eq!((third.job, third.stage), (first.job, LinkStage::Held), "what is held stays as it is");
    assert_eq!(links(&f.store, LinkFilter { job: Some(first.job), ..filter() }).await, held);
}

pub async fn an_item_whose_job_has_ended_before_it_was_held_is_not_taken(f: &Fixture) {
    let first = accept(f, "a", "m").await;
    assert_eq!(f.store.cancel(first.job).await.unwrap(), Cancelled::Ended);
    let again = accept(f, "a", "n").await;
    assert_eq!((again.job, again.stage), (first.job, LinkStage::Disowned));
    assert_eq!(turn(f, "a", "m", LinkTurn::Hold).await, 1, "the link itself can still be held");
    f.is(first.job, State::Cancelled, "was cancelled before").await;
}

pub async fn a_link_turns_only_forward_and_only_with_its_mark(f: &Fixture) {
    accept(f, "a", "m").await;
    for each in [LinkTurn::Hold, LinkTurn::Disown, LinkTurn::Close] {
        assert_eq!(turn(f, "a", "other", each).await, 0, "{each:?} with another mark");
        let elsewhere = f.store.links_turn("another source", vec![claim("a", "m")], each).await.unwrap();
        assert_eq!(elsewhere, 0, "{each:?} of another source");
    }
    assert_eq!(turn(f, "a", "m", LinkTurn::Disown).await, 1);
    assert_eq!(turn(f, "a", "m", LinkTurn::Disown).await, 0);
    assert_eq!(turn(f, "a", "m", LinkTurn::Hold).await, 0, "never back");
    let worker = f.worker("w").await;
    f.nothing_for(worker, "a disowned item does not run").await;
    assert_eq!(accept(f, "a", "n").await.stage, LinkStage::Disowned);
    assert_eq!(turn(f, "a", "m", LinkTurn::Close).await, 1);
    assert_eq!(turn(f, "a", "m", LinkTurn::Close).await, 0);
    assert_eq!(links(&f.store, filter()).await, []);
    assert_eq!(accept(f, "a", "n").await.stage, LinkStage::Accepted, "a closed item may come again");
}

pub async fn links_are_listed_by_item_page_by_page(f: &Fixture) {
    let worker = f.worker("w").await;
    let all: Vec<NewLink> = ["c", "a", "e", "b", "d"].map(|item| link(item, "m")).into();
    let linked = f.store.links_accept(SOURCE, all).await.unwrap();
    let claims = ["a", "b"].map(|item| claim(item, "m"));
    assert_eq!(f.store.links_turn(SOURCE, claims.into(), LinkTurn::Hold).await.unwrap(), 2);
    let items = async |filter| -> Vec<String> {
        links(&f.store, filter).await.into_iter().map(|link| link.item).collect()
    };
    assert_eq!(items(filter()).await, ["a", "b", "c", "d", "e"]);
    assert_eq!(items(LinkFilter { limit: 2, ..filter() }).await, ["a", "b"]);
    let page = LinkFilter { after: Some("b".into()), limit: 2, ..filter() };
    assert_eq!(items(page).await, ["c", "d"]);
    assert_eq!(items(LinkFilter { source: "nowhere".into(), ..filter() }).await, [""; 0]);
    assert_eq!(items(LinkFilter { job: Some(linked[0].job), ..filter() }).await, ["c"]);
    let other = LinkFilter { source: "nowhere".into(), job: Some(linked[0].job), ..filter() };
    assert_eq!(items(other).await, [""; 0]);
    assert_eq!(items(LinkFilter { ended: true, ..filter() }).await, [""; 0]);
    let claimed = f.claim_one(worker).await;
    f.done(claimed.fence).await;
    let ended = links(&f.store, LinkFilter { ended: true, ..filter() }).await;
    assert_eq!(ended.len(), 1, "{ended:?}");
    assert_eq!((ended[0].job, ended[0].job_stage), (claimed.fence.job, None));
}

pub async fn a_job_with_a_link_is_not_purged(f: &Fixture) {
    let linked = accept(f, "a", "m").await;
    let free = f.enqueue(job()).await;
    for id in [linked.job, free] {
        f.store.cancel(id).await.unwrap();
    }
    f.advance(Duration::from_secs(100));
    let request = PurgeRequest {
        done_age: Duration::ZERO,
        failed_age: Duration::ZERO,
        batch: 100,
        ..PurgeRequest::default()
    };
    assert_eq!(f.store.purge(request).await.unwrap().done, 1, "only the one without a link");
    f.is(linked.job, State::Cancelled, "has a link").await;
    turn(f, "a", "m", LinkTurn::Close).await;
    assert_eq!(f.store.purge(request).await.unwrap().done, 1);
}

pub async fn racing_processes_make_one_job_of_an_item(f: &Fixture) {
    let stores = [f.store.clone(), f.another().await];
    let jobs = race(8, |n| {
        let store = stores[n % 2].clone();
        async move { store.links_accept(SOURCE, vec![link("a", &n.to_string())]).await }
    })
    .await;
    // A source locks its items; without that lock a process may be told of a collision, but never enters a second job.
    let known: HashSet<JobId> = jobs.iter().flatten().map(|linked| linked[0].job).collect();
    assert_eq!(known.len(), 1, "{jobs:?}");
    let all = f.store.jobs(JobFilter::default()).await.unwrap();
    assert_eq!(all.len(), 1, "{all:?}");
}
