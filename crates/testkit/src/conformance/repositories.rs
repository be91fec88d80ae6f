//! Repositories, hooks and what they hear, and how long events are kept. The rules are in `stargate_repo::store`.

use stargate_repo::store::EVENTS_KEPT;
use stargate_repo::webhook::HOOKS_MAX;
use stargate_repo::{
    DeliveryId, EventFilter, NewPush, NewWebhook, Occasion, PushEventId, RepoSize, RepoSpec, WEBHOOK_DELIVER,
    WebhookId,
};

use super::git::{REPO, default_oid, events, hook, jobs, main, oid, process, push, record, update};
use super::prelude::*;
use crate::tables::Tables;

pub async fn each_hook_hears_once_of_what_it_wants(t: &Tables) {
    t.pushes.repo_put(RepoSpec::new(REPO)).await.unwrap();
    t.pushes.repo_put(RepoSpec::new("other")).await.unwrap();
    let all = t.pushes.webhook_put(hook(None, "https://example.com/all", &[Occasion::Push])).await.unwrap();
    let own = hook(Some(REPO), "https://example.com/own", &[Occasion::Create, Occasion::Delete]);
    let own = t.pushes.webhook_put(own).await.unwrap();
    t.pushes.webhook_put(hook(Some("other"), "https://example.com/o", &[Occasion::Push])).await.unwrap();
    let refs = vec![update("refs/heads/a", 0, 1), update("refs/heads/b", 1, 2), update("refs/heads/c", 1, 0)];
    let mut heard: Vec<Vec<WebhookId>> = Vec::new();
    for id in record(t, push("r1", refs)).await {
        let done = process(t, id).await;
        let deliveries = t.pushes.deliveries(id).await.unwrap();
        assert_eq!(done.deliveries as usize, deliveries.len());
        heard.push(deliveries.iter().map(|one| one.hook.id).collect());
    }
    assert_eq!(heard, [vec![all, own], vec![all], vec![all, own]]);
    let made = jobs(&t.queue.store, WEBHOOK_DELIVER).await;
    let named: HashSet<i64> =
        made.iter().map(|job| value(&job.payload)["delivery_id"].as_i64().expect("a number")).collect();
    assert_eq!((made.len(), named.len()), (5, 5));
    for id in named {
        let delivery = t.pushes.delivery(DeliveryId(id)).await.unwrap().expect("it is there");
        assert_eq!((delivery.id.0, delivery.event.repo.as_str()), (id, REPO));
    }
}

pub async fn a_delivery_arrives_once(t: &Tables) {
    t.pushes.webhook_put(hook(None, "https://example.com/all", &[Occasion::Push])).await.unwrap();
    let event = record(t, main("r1", 0, 1)).await[0];
    process(t, event).await;
    let id = t.pushes.deliveries(event).await.unwrap()[0].id;
    assert!(t.pushes.delivered(id).await.unwrap());
    let at = t.queue.now();
    t.queue.advance(Duration::from_secs(9));
    assert!(!t.pushes.delivered(id).await.unwrap(), "once");
    assert_eq!(t.pushes.delivery(id).await.unwrap().unwrap().delivered_at, Some(at));
    assert!(!t.pushes.delivered(DeliveryId(4711)).await.unwrap());
    assert_eq!(t.pushes.delivery(DeliveryId(4711)).await.unwrap(), None);
}

pub async fn a_removed_hook_hears_nothing_more(t: &Tables) {
    let id = t.pushes.webhook_put(hook(None, "https://example.com/all", &[Occasion::Push])).await.unwrap();
    let first = record(t, main("r1", 0, 1)).await[0];
    process(t, first).await;
    let waiting = t.pushes.deliveries(first).await.unwrap()[0].id;
    assert!(t.pushes.webhook_remove(id).await.unwrap());
    assert!(!t.pushes.webhook_remove(id).await.unwrap());
    assert_eq!(t.pushes.delivery(waiting).await.unwrap(), None, "what waited goes with it");
    let second = record(t, main("r2", 1, 2)).await[0];
    assert_eq!(process(t, second).await.deliveries, 0);
}

pub async fn a_hook_put_again_keeps_its_number_and_takes_on_the_rest(t: &Tables) {
    t.pushes.repo_put(RepoSpec::new(REPO)).await.unwrap();
    let url = "https://example.com/é?x=1";
    let first = t.pushes.webhook_put(hook(Some(REPO), url, &[Occasion::Push])).await.unwrap();
    let all = t.pushes.webhook_put(hook(None, url, &[Occasion::Push])).await.unwrap();
    assert_ne!(first, all, "the repository is part of its name");
    let changed = NewWebhook { secret_ref: None, ..hook(Some(REPO), url, &[Occasion::Delete]) };
    assert_eq!(t.pushes.webhook_put(changed.clone()).await.unwrap(), first);
    let listed = t.another().await.pushes.webhooks(None, 10).await.unwrap();
    assert_eq!(listed.iter().map(|hook| hook.id).collect::<Vec<_>>(), [first, all]);
    assert_eq!(listed[0].hook, changed);
    assert_eq!(listed[1].hook, hook(None, url, &[Occasion::Push]));
    assert_eq!(t.pushes.webhooks(Some(first), 10).await.unwrap(), listed[1..]);
    assert_eq!(t.pushes.webhooks(None, 1).await.unwrap(), listed[..1]);
}

pub async fn hooks_are_bounded_and_of_repositories_that_are_there(t: &Tables) {
    let unknown = t.pushes.webhook_put(hook(Some("nobody"), "https://example.com/", &[Occasion::Push])).await;
    assert_eq!(unknown.expect_err("it is not there").code(), "NOT_FOUND");
    t.pushes.repo_put(RepoSpec::new(REPO)).await.unwrap();
    for n in 0..HOOKS_MAX {
        let one = hook(Some(REPO), &format!("https://example.com/{n}"), &[Occasion::Push]);
        t.pushes.webhook_put(one).await.unwrap();
    }
    let one_more =
        t.pushes.webhook_put(hook(Some(REPO), "https://example.com/more", &[Occasion::Push])).await;
    assert_eq!(one_more.expect_err("one too many").code(), "INVALID");
    let same = hook(Some(REPO), "https://example.com/0", &[Occasion::Create]);
    t.pushes.webhook_put(same).await.expect("one that is there can be changed");
    t.pushes.webhook_put(hook(None, "https://example.com/more", &[Occasion::Push])).await.expect("of all");
}

pub async fn a_repository_reads_back_as_it_was_put_and_measured(t: &Tables) {
    assert_eq!(t.pushes.repo(REPO).await.unwrap(), None);
    assert!(!t.pushes.size_set(REPO, RepoSize { bytes: 1, objects: 1 }).await.unwrap(), "there is none");
    assert_eq!(t.pushes.repo(REPO).await.unwrap(), None, "measuring makes no repository");
    let spec = RepoSpec { name: REPO.to_owned(), default_branch: "refs/heads/trunk".to_owned() };
    t.pushes.repo_put(spec).await.unwrap();
    let new = t.pushes.repo(REPO).await.unwrap().unwrap();
    assert_eq!((new.name.as_str(), new.default_branch.as_str()), (REPO, "refs/heads/trunk"));
    assert_eq!((new.size, new.sized_at, new.pushed_at), (None, None, None));
    for bytes in [1 << 40, 5] {
        t.queue.advance(Duration::from_secs(1));
        let size = RepoSize { bytes, objects: 3 };
        assert!(t.pushes.size_set(REPO, size).await.unwrap());
        let found = t.another().await.pushes.repo(REPO).await.unwrap().unwrap();
        assert_eq!((found.size, found.sized_at), (Some(size), Some(t.queue.now())), "the last one counts");
        assert_eq!(found.id, new.id);
    }
    let bad = RepoSpec::new("a/b/c/d");
    assert_eq!(t.pushes.repo_put(bad).await.expect_err("too deep").code(), "INVALID");
}

pub async fn a_removed_repository_takes_what_belongs_to_it_along(t: &Tables) {
    for repo in [REPO, "other"] {
        t.pushes.repo_put(RepoSpec::new(repo)).await.unwrap();
        t.pushes.webhook_put(hook(Some(repo), "https://example.com/a", &[Occasion::Push])).await.unwrap();
    }
    t.pushes.webhook_put(hook(None, "https://example.com/all", &[Occasion::Push])).await.unwrap();
    let mut ids = record(t, main("r1", 0, 1)).await;
    ids.extend(record(t, main("r2", 1, 2)).await);
    process(t, ids[0]).await;
    let other = record(t, NewPush { repo: "other".to_owned(), ..main("r1", 0, 1) }).await[0];
    process(t, other).await;
    assert!(t.pushes.repo_remove(REPO).await.unwrap());
    assert!(!t.pushes.repo_remove(REPO).await.unwrap());
    assert_eq!(t.pushes.repo(REPO).await.unwrap(), None);
    assert_eq!(events(t.pushes.as_ref()).await.iter().map(|event| event.id).collect::<Vec<_>>(), [other]);
    assert_eq!(t.pushes.webhooks(None, 10).await.unwrap().len(), 2);
    assert_eq!(t.pushes.deliveries(ids[0]).await.unwrap(), []);
    assert_eq!(t.pushes.deliveries(other).await.unwrap().len(), 2, "others keep theirs");
    let waiting = t.pushes.process(ids[1]).await.expect_err("its event is gone");
    assert_eq!(waiting.code(), "NOT_FOUND", "the job that waits is poison");
    let anew = record(t, main("r1", 0, 1)).await[0];
    assert!(!ids.contains(&anew), "a new repository of the name has new events");
}

pub async fn repositories_are_listed_by_name_page_by_page(t: &Tables) {
    for name in ["b", "a/z", "a-b", "c", "a/y"] {
        t.pushes.repo_put(RepoSpec::new(name)).await.unwrap();
    }
    let names = async |after, limit| -> Vec<String> {
        t.pushes.repos(after, limit).await.unwrap().into_iter().map(|repo| repo.name).collect()
    };
    assert_eq!(names(None, 10).await, ["a-b", "a/y", "a/z", "b", "c"]);
    assert_eq!(names(None, 2).await, ["a-b", "a/y"]);
    assert_eq!(names(Some("a/y"), 2).await, ["a/z", "b"]);
    assert_eq!(names(Some("c"), 2).await, [""; 0]);
    let pushes = t.pushes.clone();
    race(PAGE_MAX as usize, |n| {
        let pushes = pushes.clone();
        async move { pushes.repo_put(RepoSpec::new(format!("many/{n}"))).await.expect("a repository") }
    })
    .await;
    assert_eq!(names(None, u32::MAX).await.len(), PAGE_MAX as usize, "no page is larger than the maximum");
}

pub async fn events_are_found_by_repository_and_by_what_is_missing(t: &Tables) {
    let mut mine =
        record(t, push("r1", vec![update("refs/heads/a", 0, 1), update("refs/heads/b", 0, 1)])).await;
    let other = record(t, NewPush { repo: "other".to_owned(), ..main("r1", 0, 1) }).await[0];
    mine.extend(record(t, main("r2", 0, 1)).await);
    process(t, mine[0]).await;
    process(t, other).await;
    let found = async |repo: Option<&str>, unprocessed, before: Option<PushEventId>| -> Vec<PushEventId> {
        let filter = EventFilter { repo: repo.map(str::to_owned), unprocessed, before, limit: 10 };
        t.pushes.events(filter).await.unwrap().into_iter().map(|event| event.id).collect()
    };
    assert_eq!(found(Some(REPO), false, None).await, [mine[2], mine[1], mine[0]]);
    assert_eq!(found(Some(REPO), false, Some(mine[2])).await, [mine[1], mine[0]]);
    assert_eq!(found(None, true, None).await, [mine[2], mine[1]]);
    assert_eq!(found(Some(REPO), true, Some(mine[2])).await, [mine[1]]);
    assert_eq!(found(Some("other"), true, None).await, []);
    assert_eq!(found(Some("nobody"), false, None).await, []);
}

pub async fn old_processed_events_go_and_unprocessed_ones_stay(t: &Tables) {
    t.pushes.webhook_put(hook(None, "https://example.com/all", &[Occasion::Push])).await.unwrap();
    let old =
        record(t, push("old", (1..=3).map(|n| update(&format!("refs/heads/{n}"), 0, n)).collect())).await;
    process(t, old[0]).await;
    process(t, old[1]).await;
    // The first is not the head of its ref any more; the second is one that is gone.
    let later =
        record(t, push("later", vec![update("refs/heads/1", 1, 11), update("refs/heads/2", 2, 0)])).await;
    process(t, later[0]).await;
    process(t, later[1]).await;
    let delivery = t.pushes.deliveries(old[0]).await.unwrap()[0].id;
    t.queue.advance(EVENTS_KEPT - Duration::from_secs(1));
    let young = record(t, main("young", 0, 9)).await[0];
    process(t, young).await;
    assert_eq!(events(t.pushes.as_ref()).await.len(), 6, "a second too young");
    t.queue.advance(Duration::from_secs(1));
    let last = record(t, main("last", 9, 10)).await[0];
    process(t, last).await;
    let kept: Vec<PushEventId> = events(t.pushes.as_ref()).await.iter().map(|event| event.id).collect();
    assert_eq!(kept, [last, young, later[0], old[2]], "what was not processed stays, and the head of a ref");
    assert_eq!(t.pushes.delivery(delivery).await.unwrap(), None);
    assert_eq!(default_oid(t).await, Some(oid(10)));
}
