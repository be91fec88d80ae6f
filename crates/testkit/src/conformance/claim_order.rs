//! Rules 6, 7 and 9: one worker at a time; priority, then due time, then id; the attempt counted once.

use super::prelude::*;

pub async fn a_claimed_job_tells_what_is_to_be_done(f: &Fixture) {
    let new = NewJob { queue: "q".into(), max_attempts: Some(4), trace_id: Some("t".into()), ..job() };
    let id = f.enqueue(new).await;
    f.advance(Duration::from_secs(3));
    let worker = f.worker("a").await;
    let claimed = f.claim_one(worker).await;
    assert_eq!((claimed.fence.job, claimed.fence.attempt), (id, 1), "{claimed:?}");
    assert_eq!((&*claimed.kind, &*claimed.queue), (WORK, "q"), "{claimed:?}");
    assert_eq!((claimed.max_attempts, claimed.progress), (4, 0), "{claimed:?}");
    assert_eq!(claimed.trace_id.as_deref(), Some("t"), "{claimed:?}");
    assert_eq!(value(&claimed.payload), json!({ "n": 1 }), "{claimed:?}");
    assert_eq!(claimed.waited, Duration::from_secs(3), "from due to claim: {claimed:?}");
}

pub async fn a_claim_makes_the_job_processing(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let worker = f.worker("the worker").await;
    f.advance(Duration::from_secs(1));
    f.claim_one(worker).await;
    let job = f.job(id).await;
    assert_eq!((job.state, job.stage), (State::Processing, Some(Stage::Processing)), "{job:?}");
    assert_eq!(job.worker.as_deref(), Some("the worker"), "{job:?}");
    assert_eq!((job.attempt_count, job.started_at), (1, Some(f.now())), "{job:?}");
    let expires = f.now() + LEASE - Duration::from_secs(1);
    assert_eq!(job.lease_expires_at, Some(expires), "the worker's last beat plus the lease: {job:?}");
}

pub async fn the_second_worker_gets_nothing(f: &Fixture) {
    f.enqueue(job()).await;
    let (a, b) = (f.worker("a").await, f.worker("b").await);
    f.claim_one(a).await;
    f.nothing_for(b, "the only job runs").await;
    f.nothing_for(a, "the only job runs, here").await;
}

pub async fn racing_workers_never_get_the_same_job(f: &Fixture) {
    f.enqueue_all(vec![job(); 200]).await;
    let stores = [f.store.clone(), f.another().await];
    let mut workers = Vec::new();
    for number in 0..8 {
        workers.push(f.worker(&format!("w{number}")).await);
    }
    let claims = race(8, |number| {
        let (store, worker) = (stores[number % 2].clone(), workers[number]);
        async move {
            let mut got = Vec::new();
            loop {
                let jobs = store.claim(claim_request(worker, 7)).await.unwrap().jobs;
                if jobs.is_empty() {
                    return got;
                }
                got.extend(jobs.into_iter().map(|job| job.fence));
            }
        }
    })
    .await;
    let fences: Vec<Fence> = claims.into_iter().flatten().collect();
    let distinct: HashSet<JobId> = fences.iter().map(|fence| fence.job).collect();
    assert_eq!(distinct.len(), fences.len(), "a job was given out twice");
    // A claimer may find the last jobs locked by another and go home; nobody else may have got them twice.
    let rest = f.claim(workers[0], 200).await.jobs.len();
    assert_eq!(fences.len() + rest, 200, "every job was given out");
    assert!(fences.iter().all(|fence| fence.attempt == 1), "each attempt counted once");
}

pub async fn higher_priority_runs_first(f: &Fixture) {
    let with = |priority| NewJob { priority, ..job() };
    let ids = f.enqueue_all(vec![with(0), with(9999), with(5), with(5)]).await;
    let worker = f.worker("a").await;
    let order = f.claim_ids(worker, 10).await;
    assert_eq!(order, [ids[1], ids[2], ids[3], ids[0]], "priority, then id");
}

pub async fn earlier_due_time_runs_first_within_a_priority(f: &Fixture) {
    let due = |seconds| NewJob { due: Due::In(Duration::from_secs(seconds)), ..job() };
    let ids = f.enqueue_all(vec![due(30), due(10), due(20)]).await;
    f.advance(Duration::from_secs(60));
    let worker = f.worker("a").await;
    assert_eq!(f.claim_ids(worker, 10).await, [ids[1], ids[2], ids[0]], "by due time");
}

pub async fn the_order_holds_across_queues_and_kinds(f: &Fixture) {
    let place = |queue: &str, kind: &str, priority| NewJob {
        queue: queue.into(),
        kind: kind.into(),
        priority,
        ..job()
    };
    let jobs = vec![
        place("a", WORK, 1),
        place("b", OTHER, 3),
        place("c", WORK, 2),
        place("a", OTHER, 3),
        place("b", WORK, 1),
        place("c", OTHER, 2),
    ];
    let ids = f.enqueue_all(jobs).await;
    let worker = f.worker("a").await;
    let mut order = Vec::new();
    for _ in 0..3 {
        order.extend(f.claim_ids(worker, 2).await);
    }
    let expected = [ids[1], ids[3], ids[2], ids[5], ids[0], ids[4]];
    assert_eq!(order, expected, "priority, then id, wherever a job waits");
}

pub async fn a_claim_gives_no_more_than_asked_for(f: &Fixture) {
    let ids = f.enqueue_all(vec![job(); 5]).await;
    let worker = f.worker("a").await;
    assert_eq!(f.claim_ids(worker, 2).await, ids[..2]);
    assert_eq!(f.claim_ids(worker, 2).await, ids[2..4]);
    assert_eq!(f.claim_ids(worker, 2).await, ids[4..]);
}

pub async fn a_claim_of_no_jobs_gives_none(f: &Fixture) {
    f.enqueue(job()).await;
    let worker = f.worker("a").await;
    assert!(f.claim(worker, 0).await.jobs.is_empty(), "asked for none");
    assert_eq!(f.store.depth(10).await.unwrap(), 1, "and none was taken");
}

pub async fn slots_bound_each_kind(f: &Fixture) {
    let other = || NewJob { kind: OTHER.into(), ..job() };
    let ids = f.enqueue_all(vec![job(), job(), job(), other(), other()]).await;
    let worker = f.worker("a").await;
    let mut request = claim_request(worker, 10);
    request.kinds[0].slots = 1;
    let given: Vec<JobId> = f.claim_as(request).await.jobs.iter().map(|job| job.fence.job).collect();
    assert_eq!(given, [ids[0], ids[3], ids[4]], "one of {WORK} and all of {OTHER}");
}

pub async fn only_served_kinds_are_given_out(f: &Fixture) {
    let other = f.enqueue(NewJob { kind: OTHER.into(), priority: 9, ..job() }).await;
    let work = f.enqueue(job()).await;
    let worker = f.worker("a").await;
    let mut request = claim_request(worker, 10);
    request.kinds.retain(|slots| slots.kind == WORK);
    let claim = f.claim_as(request).await;
    assert_eq!(super::prelude::ids(&claim.jobs), [work], "{OTHER} is not served here");
    f.is(other, State::Queued, "waits for a worker that serves it").await;
}

pub async fn only_served_queues_are_given_out(f: &Fixture) {
    let queue = |name: &str| NewJob { queue: name.into(), ..job() };
    let ids = f.enqueue_all(vec![queue("a"), queue("b"), queue("c")]).await;
    let worker = f.worker("a").await;
    let mut request = claim_request(worker, 10);
    request.queues = vec!["a".into(), "c".into()];
    let claim = f.claim_as(request).await;
    assert_eq!(super::prelude::ids(&claim.jobs), [ids[0], ids[2]], "queue b is not served here");
}

pub async fn each_claim_has_its_own_token(f: &Fixture) {
    f.enqueue_all(vec![job(); 3]).await;
    let worker = f.worker("a").await;
    let mut tokens = HashSet::new();
    for _ in 0..3 {
        tokens.insert(f.claim_one(worker).await.fence.token);
    }
    assert_eq!(tokens.len(), 3, "three claims, three tokens: {tokens:?}");
}

pub async fn the_attempt_is_counted_at_each_claim_once(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let worker = f.worker("a").await;
    for attempt in 1..=4 {
        let claimed = f.claim_one(worker).await;
        assert_eq!(claimed.fence.attempt, attempt, "the fence names the attempt");
        assert_eq!(f.job(id).await.attempt_count, attempt, "counted at the claim");
        f.accept(claimed.fence, retry_in(Duration::ZERO)).await;
        assert_eq!(f.job(id).await.attempt_count, attempt, "and not again at its end");
    }
}

pub async fn a_lane_made_by_another_process_is_served_here(f: &Fixture) {
    let worker = f.worker("a").await;
    f.nothing_for(worker, "there are no jobs yet").await;
    let elsewhere = f.another().await;
    let new = NewJob { queue: "brand-new".into(), ..keyed("brand-new-key") };
    let id = elsewhere.enqueue(vec![new]).await.unwrap()[0].id;
    let claimed = f.claim_one(worker).await;
    assert_eq!((claimed.fence.job, &*claimed.queue), (id, "brand-new"), "{claimed:?}");
}

pub async fn many_unserved_jobs_do_not_hide_a_served_one(f: &Fixture) {
    let unserved = NewJob { kind: OTHER.into(), priority: 100, ..job() };
    f.enqueue_all(vec![unserved; 2000]).await;
    let id = f.enqueue(job()).await;
    let worker = f.worker("a").await;
    let mut request = claim_request(worker, 5);
    request.kinds.retain(|slots| slots.kind == WORK);
    assert_eq!(
        super::prelude::ids(&f.claim_as(request).await.jobs),
        [id],
        "behind 2000 jobs of higher priority"
    );
}
