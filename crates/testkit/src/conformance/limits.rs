//! Rule 11, first half: concurrency and rate of a key, over all workers.

use super::prelude::*;

fn limit(pattern: &str, concurrency: Option<u32>, rate: Option<&str>) -> Limit {
    let rate = rate.map(|text| text.parse().unwrap());
    Limit { pattern: pattern.into(), concurrency, rate, weight: 1 }
}

pub async fn a_key_runs_no_more_than_its_concurrency(f: &Fixture) {
    f.store.limit_set(limit("a", Some(2), None)).await.unwrap();
    let all = f.enqueue_all(vec![keyed("a"); 5]).await;
    let (w, v) = (f.worker("w").await, f.worker("v").await);
    let claimed = f.claim(w, 10).await.jobs;
    assert_eq!(ids(&claimed), all[..2], "two at once");
    f.nothing_for(v, "two run, on whatever worker").await;
    f.done(claimed[0].fence).await;
    assert_eq!(f.claim_ids(v, 10).await, all[2..3], "one ended, one starts");
    f.nothing_for(v, "two run again").await;
}

pub async fn a_full_key_does_not_hold_up_others(f: &Fixture) {
    f.store.limit_set(limit("a", Some(1), None)).await.unwrap();
    let first = f.enqueue(NewJob { priority: 9, ..keyed("a") }).await;
    f.enqueue_all(vec![NewJob { priority: 9, ..keyed("a") }; 30]).await;
    let others = f.enqueue_all(vec![job(), keyed("b")]).await;
    let worker = f.worker("w").await;
    let mut given = f.claim_ids(worker, 10).await;
    given.sort();
    assert_eq!(given, [first, others[0], others[1]], "one of the full key and all others");
}

pub async fn a_keys_concurrency_holds_across_queues_and_kinds(f: &Fixture) {
    f.store.limit_set(limit("a", Some(3), None)).await.unwrap();
    let mut jobs = Vec::new();
    for queue in ["q", "r"] {
        for kind in [WORK, OTHER] {
            jobs.extend(vec![NewJob { queue: queue.into(), kind: kind.into(), ..keyed("a") }; 3]);
        }
    }
    f.enqueue_all(jobs).await;
    let worker = f.worker("w").await;
    assert_eq!(f.claim(worker, 20).await.jobs.len(), 3, "three of the key, in whatever lane");
    f.nothing_for(worker, "three run").await;
}

pub async fn a_kind_without_slots_does_not_use_up_a_keys_room(f: &Fixture) {
    f.store.limit_set(limit("a", Some(1), None)).await.unwrap();
    let first = f.enqueue(NewJob { priority: 9, ..job() }).await;
    // The key's best job is of a kind whose only slot goes to the first; its next one could run.
    f.enqueue(NewJob { priority: 5, ..keyed("a") }).await;
    let other = f.enqueue(NewJob { kind: OTHER.into(), ..keyed("a") }).await;
    let worker = f.worker("w").await;
    let mut request = claim_request(worker, 10);
    for kind in &mut request.kinds {
        kind.slots = 1;
    }
    let claim = f.claim_as(request).await;
    assert_eq!(ids(&claim.jobs), [first, other], "one of each kind");
}

pub async fn every_way_to_end_an_execution_frees_its_place(f: &Fixture) {
    f.store.limit_set(limit("a", Some(1), None)).await.unwrap();
    let worker = f.worker("w").await;
    for outcome in every_outcome() {
        let id = f.enqueue(keyed("a")).await;
        let claimed = f.claim_one(worker).await;
        assert_eq!(f.store.limit_state("a").await.unwrap().unwrap().running, 1, "it runs");
        f.accept(claimed.fence, outcome.clone()).await;
        let running = f.store.limit_state("a").await.unwrap().unwrap().running;
        assert_eq!(running, 0, "its place is free after {outcome:?}");
        if !f.job(id).await.state.is_finished() {
            f.store.cancel(id).await.unwrap();
        }
    }
}

pub async fn a_recovered_job_frees_its_place(f: &Fixture) {
    f.store.limit_set(limit("a", Some(1), None)).await.unwrap();
    let id = f.enqueue(keyed("a")).await;
    let a = f.worker("a").await;
    f.claim_one(a).await;
    f.expire();
    let b = f.worker("b").await;
    assert_eq!(f.claim_ids(b, 10).await, [id], "the dead worker's place is free");
    assert_eq!(f.store.limit_state("a").await.unwrap().unwrap().running, 1, "and taken by the rescuer");
    f.nothing_for(b, "one runs").await;
}

pub async fn stale_settlements_do_not_free_a_place(f: &Fixture) {
    f.store.limit_set(limit("a", Some(1), None)).await.unwrap();
    f.enqueue_all(vec![keyed("a"); 2]).await;
    let worker = f.worker("w").await;
    let fence = f.claim_one(worker).await.fence;
    for outcome in every_outcome() {
        let stale = Fence { token: LeaseToken(fence.token.0.wrapping_add(1)), ..fence };
        assert_eq!(f.settle(stale, outcome).await, Verdict::Stale);
    }
    assert_eq!(f.store.limit_state("a").await.unwrap().unwrap().running, 1, "it still runs");
    f.nothing_for(worker, "the key is full").await;
}

pub async fn racing_claimers_never_exceed_a_keys_concurrency(f: &Fixture) {
    f.store.limit_set(limit("t*", Some(3), None)).await.unwrap();
    let mut jobs = Vec::new();
    for _ in 0..40 {
        jobs.extend([keyed("t1"), keyed("t2"), job()]);
    }
    f.enqueue_all(jobs).await;
    let stores = [f.store.clone(), f.another().await];
    let mut workers = Vec::new();
    for number in 0..8 {
        workers.push(f.worker(&format!("w{number}")).await);
    }
    for round in 0..8 {
        let claims = race(8, |number| {
            let (store, worker) = (stores[number % 2].clone(), workers[number]);
            async move { store.claim(claim_request(worker, 5)).await.unwrap().jobs }
        })
        .await;
        let given: Vec<ClaimedJob> = claims.into_iter().flatten().collect();
        let mut running: HashMap<Option<String>, u32> = HashMap::new();
        for claimed in &given {
            *running.entry(f.job(claimed.fence.job).await.limit_key).or_default() += 1;
        }
        for key in ["t1", "t2"] {
            let count = running.get(&Some(key.to_owned())).copied().unwrap_or(0);
            assert!(count <= 3, "round {round}: {count} jobs of {key} run, 3 are allowed");
            let told = f.store.limit_state(key).await.unwrap().unwrap().running;
            assert_eq!(told, count, "round {round}: the store's own count of {key}");
        }
        let done =
            |job: &ClaimedJob| Settlement { fence: job.fence, outcome: Outcome::Done { result: None } };
        f.store.settle(given.iter().map(done).collect()).await.unwrap();
    }
}

pub async fn a_rate_lets_its_count_start_at_once_and_then_by_the_clock(f: &Fixture) {
    f.store.limit_set(limit("a", None, Some("5/s"))).await.unwrap();
    f.enqueue_all(vec![keyed("a"); 30]).await;
    let worker = f.worker("w").await;
    assert_eq!(f.claim(worker, 20).await.jobs.len(), 5, "after a quiet time the whole count");
    f.nothing_for(worker, "the second has only begun").await;
    f.advance(Duration::from_millis(210));
    assert_eq!(f.claim(worker, 20).await.jobs.len(), 1, "a fifth of a second, one start");
    f.nothing_for(worker, "no more than that").await;
    f.advance(Duration::from_millis(610));
    assert_eq!(f.claim(worker, 20).await.jobs.len(), 3, "three fifths, three starts");
}

pub async fn a_rate_does_not_save_up_more_than_its_count(f: &Fixture) {
    f.store.limit_set(limit("a", None, Some("5/s"))).await.unwrap();
    f.enqueue_all(vec![keyed("a"); 30]).await;
    let worker = f.worker("w").await;
    f.advance(Duration::from_secs(10));
    f.store.beat(worker).await.unwrap();
    assert_eq!(f.claim(worker, 20).await.jobs.len(), 5, "ten quiet seconds give no more than the count");
}

pub async fn a_rate_counts_starts_not_ends(f: &Fixture) {
    f.store.limit_set(limit("a", None, Some("2/m"))).await.unwrap();
    f.enqueue_all(vec![keyed("a"); 4]).await;
    let worker = f.worker("w").await;
    for claimed in f.claim(worker, 2).await.jobs {
        f.done(claimed.fence).await;
    }
    f.nothing_for(worker, "two have started in this minute, though both have ended").await;
}

pub async fn a_rate_survives_a_clock_that_jumps_back(f: &Fixture) {
    f.store.limit_set(limit("a", None, Some("2/s"))).await.unwrap();
    f.enqueue_all(vec![keyed("a"); 10]).await;
    let worker = f.worker("w").await;
    assert_eq!(f.claim(worker, 10).await.jobs.len(), 2);
    f.jump_back(Duration::from_secs(3600));
    let early = f.claim(worker, 10).await.jobs.len();
    assert_eq!(early, 0, "going back in time gives no starts");
    f.advance(Duration::from_secs(3602));
    f.store.beat(worker).await.unwrap();
    assert_eq!(f.claim(worker, 10).await.jobs.len(), 2, "and does not stop the key for good");
}

pub async fn the_next_look_is_the_next_start_a_rate_allows(f: &Fixture) {
    f.store.limit_set(limit("a", None, Some("1/m"))).await.unwrap();
    f.enqueue_all(vec![keyed("a"); 2]).await;
    let worker = f.worker("w").await;
    f.claim_one(worker).await;
    f.advance(Duration::from_secs(20));
    f.store.beat(worker).await.unwrap();
    let look = f.claim(worker, 10).await.next_look.expect("the rate allows another start in a while");
    let fits = Duration::from_secs(39)..=Duration::from_secs(42);
    assert!(fits.contains(&look), "the next start is allowed in 40 s, the store says {look:?}");
}

pub async fn the_most_specific_limit_holds(f: &Fixture) {
    for (pattern, concurrency) in [("*", 4), ("tenant:*", 3), ("tenant:vip", 2)] {
        f.store.limit_set(limit(pattern, Some(concurrency), None)).await.unwrap();
    }
    let worker = f.worker("w").await;
    for (key, expected) in [("tenant:vip", 2), ("tenant:plain", 3), ("somebody", 4)] {
        f.enqueue_all(vec![keyed(key); 10]).await;
        assert_eq!(f.claim(worker, 10).await.jobs.len(), expected, "jobs of {key} at once");
        let state = f.store.limit_state(key).await.unwrap().expect("a key with jobs has a state");
        assert_eq!(state.concurrency.map(|c| c as usize), Some(expected), "{state:?}");
    }
    let patterns: Vec<String> =
        f.store.limits().await.unwrap().into_iter().map(|limit| limit.pattern).collect();
    assert_eq!(patterns, ["tenant:vip", "tenant:*", "*"], "the limits, most specific first");
}

pub async fn a_limit_set_later_holds_for_waiting_jobs(f: &Fixture) {
    let all = f.enqueue_all(vec![keyed("a"); 6]).await;
    let worker = f.worker("w").await;
    assert_eq!(f.claim_ids(worker, 1).await, all[..1], "no limit yet");
    f.store.limit_set(limit("a", Some(2), None)).await.unwrap();
    assert_eq!(f.claim_ids(worker, 10).await, all[1..2], "one runs already, two are allowed");
    f.store.limit_set(limit("a", Some(3), None)).await.unwrap();
    assert_eq!(f.claim_ids(worker, 10).await, all[2..3], "replaced by a wider one");
}

pub async fn a_removed_limit_holds_no_more(f: &Fixture) {
    f.store.limit_set(limit("a", Some(1), None)).await.unwrap();
    let all = f.enqueue_all(vec![keyed("a"); 4]).await;
    let worker = f.worker("w").await;
    assert_eq!(f.claim_ids(worker, 10).await, all[..1]);
    assert!(f.store.limit_remove("a").await.unwrap(), "there was one");
    assert!(!f.store.limit_remove("a").await.unwrap(), "and is none now");
    assert_eq!(f.claim_ids(worker, 10).await, all[1..], "nothing holds the others back");
    assert_eq!(f.store.limits().await.unwrap(), []);
}

pub async fn a_limit_removed_uncovers_the_wider_one(f: &Fixture) {
    f.store.limit_set(limit("a*", Some(2), None)).await.unwrap();
    f.store.limit_set(limit("ab", Some(1), None)).await.unwrap();
    f.enqueue_all(vec![keyed("ab"); 4]).await;
    let worker = f.worker("w").await;
    assert_eq!(f.claim(worker, 10).await.jobs.len(), 1, "the exact one holds");
    f.store.limit_remove("ab").await.unwrap();
    assert_eq!(f.claim(worker, 10).await.jobs.len(), 1, "the prefix allows one more");
}

pub async fn a_limit_set_by_another_process_holds_here(f: &Fixture) {
    f.enqueue_all(vec![keyed("a"); 4]).await;
    let worker = f.worker("w").await;
    f.another().await.limit_set(limit("a", Some(1), None)).await.unwrap();
    f.enqueue_all(vec![keyed("a"), keyed("a2")]).await;
    f.another().await.limit_set(limit("a2", Some(1), None)).await.unwrap();
    f.enqueue_all(vec![keyed("a2")]).await;
    assert_eq!(f.claim(worker, 10).await.jobs.len(), 2, "one of each key");
}

pub async fn a_key_nobody_used_has_no_state(f: &Fixture) {
    assert_eq!(f.store.limit_state("nobody").await.unwrap(), None);
}

pub async fn an_impossible_limit_is_refused(f: &Fixture) {
    for bad in [limit("", None, None), limit("a*b", None, None), limit("a", Some(0), None)] {
        let text = format!("{bad:?}");
        assert_eq!(f.store.limit_set(bad).await.unwrap_err().code(), "INVALID", "{text}");
    }
    assert_eq!(f.store.limits().await.unwrap(), [], "none was kept");
}
