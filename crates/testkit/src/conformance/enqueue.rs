//! Rules 1, 2 and 5: what is accepted is kept, a batch whole or not at all, unknown kinds not at all.

use super::prelude::*;

pub async fn an_accepted_job_reads_back_as_it_was_given(f: &Fixture) {
    let new = NewJob {
        queue: "mail".into(),
        priority: 7,
        max_attempts: Some(9),
        unique_key: Some("u".into()),
        limit_key: Some("tenant:a".into()),
        trace_id: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        ..NewJob::of(OTHER, &json!({ "to": "somebody" })).unwrap()
    };
    let id = f.enqueue(new).await;
    let job = f.job(id).await;
    assert_eq!((job.id, job.kind.as_str(), job.queue.as_str()), (id, OTHER, "mail"), "{job:?}");
    assert_eq!((job.state, job.stage), (State::Queued, Some(Stage::Ready)), "{job:?}");
    assert_eq!((job.priority, job.max_attempts), (7, 9), "{job:?}");
    assert_eq!((job.attempt_count, job.crash_count, job.progress), (0, 0, 0), "{job:?}");
    assert_eq!(job.unique_key.as_deref(), Some("u"), "{job:?}");
    assert_eq!(job.limit_key.as_deref(), Some("tenant:a"), "{job:?}");
    assert!(job.trace_id.as_deref().is_some_and(|t| t.starts_with("00-0af7")), "{job:?}");
    assert_eq!((job.created_at, job.run_at), (f.now(), f.now()), "{job:?}");
    assert!(
        job.started_at.is_none() && job.finished_at.is_none() && job.lease_expires_at.is_none(),
        "{job:?}"
    );
    assert!(job.worker.is_none() && job.error.is_none() && job.result.is_none(), "{job:?}");
    assert!(!job.cancel_requested, "{job:?}");
    assert_eq!(value(&job.payload), json!({ "to": "somebody" }));
}

pub async fn an_accepted_job_is_seen_by_another_process(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let elsewhere = f.another().await;
    let seen = elsewhere.job(id).await.unwrap();
    assert!(seen.is_some(), "job {id} was acknowledged here and is not there");
}

pub async fn an_accepted_job_outlives_its_process(f: &Fixture) {
    let first = f.another().await;
    let id = first.enqueue(vec![job()]).await.unwrap()[0].id;
    drop(first);
    let worker = f.worker("a").await;
    assert_eq!(f.claim_ids(worker, 10).await, [id], "the job of the closed process is claimable");
}

pub async fn ids_rise_in_the_order_of_the_batch(f: &Fixture) {
    let ids = f.enqueue_all(vec![job(); 50]).await;
    assert!(ids.is_sorted_by(|a, b| a < b), "ids of one batch rise: {ids:?}");
    let later = f.enqueue(job()).await;
    assert!(later > ids[49], "the next batch goes on above {}: {later}", ids[49]);
}

pub async fn an_empty_batch_is_accepted_and_changes_nothing(f: &Fixture) {
    assert_eq!(f.store.enqueue(Vec::new()).await.unwrap(), [], "no jobs, no answers");
    assert_eq!(f.store.depth(10).await.unwrap(), 0, "nothing waits");
}

pub async fn a_batch_with_one_unknown_kind_is_refused_whole(f: &Fixture) {
    let bad = NewJob { kind: "nobody".into(), ..job() };
    let error = f.store.enqueue(vec![job(), bad, job()]).await.unwrap_err();
    assert_eq!(error.code(), "UNKNOWN_KIND", "{error}");
    assert_eq!(f.store.depth(10).await.unwrap(), 0, "the good jobs of a refused batch must not stay");
}

pub async fn a_batch_with_one_bad_value_is_refused_whole(f: &Fixture) {
    let bad = NewJob { priority: -1, ..job() };
    let error = f.store.enqueue(vec![job(), bad]).await.unwrap_err();
    assert_eq!(error.code(), "INVALID", "{error}");
    assert_eq!(f.store.depth(10).await.unwrap(), 0, "the good job of a refused batch must not stay");
}

pub async fn a_batch_with_one_unknown_parent_is_refused_whole(f: &Fixture) {
    let bad = NewJob { after: vec![JobId(999_999)], ..job() };
    let error = f.store.enqueue(vec![job(), bad]).await.unwrap_err();
    assert_eq!(error.code(), "NOT_FOUND", "{error}");
    assert!(error.to_string().contains("999999"), "the error names the parent: {error}");
    assert_eq!(f.store.depth(10).await.unwrap(), 0, "the good job of a refused batch must not stay");
}

pub async fn an_unknown_kind_is_refused_naming_the_known_ones(f: &Fixture) {
    let error = f.store.enqueue(vec![NewJob { kind: "wrok".into(), ..job() }]).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("wrok") && text.contains(WORK) && text.contains(OTHER), "{text}");
}

pub async fn a_kind_registered_by_another_process_is_known_here(f: &Fixture) {
    let late = NewJob { kind: "late".into(), ..job() };
    f.store.enqueue(vec![late.clone()]).await.unwrap_err();
    let elsewhere = f.another().await;
    let kind = KindSpec { name: "late".into(), max_attempts: 2, max_crashes: 1 };
    elsewhere.kinds_register(vec![kind]).await.unwrap();
    let id = f.enqueue(late).await;
    assert_eq!(f.job(id).await.max_attempts, 2, "with the values it was registered with");
}

pub async fn a_kind_registered_again_gets_the_new_values(f: &Fixture) {
    f.kind(WORK, 2, 1).await;
    let kinds = f.store.kinds().await.unwrap();
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name.as_str()).collect();
    assert_eq!(names, [OTHER, WORK], "kinds come by name, each once");
    assert_eq!((kinds[1].max_attempts, kinds[1].max_crashes), (2, 1), "the new values of {WORK}");
    let id = f.enqueue(job()).await;
    assert_eq!(f.job(id).await.max_attempts, 2, "jobs enqueued from now on get the new values");
}

pub async fn a_job_without_max_attempts_gets_those_of_its_kind(f: &Fixture) {
    let ids = f.enqueue_all(vec![job(), NewJob { max_attempts: Some(1), ..job() }]).await;
    assert_eq!(f.job(ids[0]).await.max_attempts, 5, "the kind's");
    assert_eq!(f.job(ids[1]).await.max_attempts, 1, "its own");
}

pub async fn jobs_of_one_batch_keep_what_sets_them_apart(f: &Fixture) {
    let of = |kind: &str, queue: &str, priority, max_attempts| NewJob {
        queue: queue.into(),
        priority,
        max_attempts,
        ..NewJob::of(kind, &json!({})).unwrap()
    };
    let like = [(WORK, "mail", 7, Some(9)), (OTHER, "mail", 7, Some(9)), (WORK, "sms", 7, Some(9))];
    let other = [(WORK, "mail", 8, Some(9)), (WORK, "mail", 7, Some(8)), (WORK, "mail", 7, None)];
    for batch in [vec![like[0]; 2], like.to_vec(), other.to_vec(), [like, other].concat()] {
        let jobs = batch.iter().map(|(kind, queue, priority, most)| of(kind, queue, *priority, *most));
        for (id, (kind, queue, priority, most)) in f.enqueue_all(jobs.collect()).await.into_iter().zip(batch)
        {
            let job = f.job(id).await;
            assert_eq!(
                (job.kind.as_str(), job.queue.as_str(), job.priority),
                (kind, queue, priority),
                "{job:?}"
            );
            assert_eq!(job.max_attempts, most.unwrap_or(5), "{job:?}");
        }
    }
}

pub async fn a_batch_of_five_thousand_is_accepted_in_order(f: &Fixture) {
    let jobs = (0..5000).map(|n| NewJob::of(WORK, &json!({ "n": n })).unwrap()).collect();
    let ids = f.enqueue_all(jobs).await;
    assert!(ids.is_sorted_by(|a, b| a < b), "ids of one batch rise");
    assert_eq!(
        value(&f.job(ids[4321]).await.payload),
        json!({ "n": 4321 }),
        "answers are in the order of input"
    );
    assert_eq!(f.store.depth(10_000).await.unwrap(), 5000, "all wait");
}

pub async fn many_producers_at_once_lose_nothing(f: &Fixture) {
    let store = f.store.clone();
    let answers = race(8, |_| {
        let store = store.clone();
        async move { store.enqueue(vec![job(); 25]).await.unwrap() }
    })
    .await;
    let ids: HashSet<JobId> = answers.into_iter().flatten().map(|answer| answer.id).collect();
    assert_eq!(ids.len(), 200, "each accepted job has an id of its own");
    assert_eq!(f.store.depth(1000).await.unwrap(), 200, "all of them wait");
}

pub async fn an_enqueue_wakes_sleepers_of_this_process(f: &Fixture) {
    let mut wakes = f.store.wakes();
    wakes.borrow_and_update();
    f.enqueue(job()).await;
    let woken = tokio::time::timeout(Duration::from_secs(5), wakes.changed()).await;
    assert!(woken.is_ok(), "nobody was woken by an enqueue in the same process");
}

pub async fn an_enqueue_wakes_sleepers_of_another_process(f: &Fixture) {
    if f.store.facts().wake == WakeMethod::Poll {
        return;
    }
    let elsewhere = f.another().await;
    let mut wakes = elsewhere.wakes();
    wakes.borrow_and_update();
    // A listener may still be connecting; it wakes once it is there, and has to wake again for the job.
    let woken = eventually(Duration::from_secs(10), "a wake in another process", || {
        wakes.borrow_and_update();
        let mut wakes = wakes.clone();
        async move {
            f.enqueue(job()).await;
            let woken = tokio::time::timeout(Duration::from_secs(2), wakes.changed()).await;
            woken.map_err(|_| "no wake within two seconds of an enqueue".to_owned())
        }
    })
    .await;
    assert!(woken.is_ok(), "the wakes ended while the store is open");
}
