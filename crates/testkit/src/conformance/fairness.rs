//! Rule 11, second half: keys share by weight.

use super::prelude::*;

async fn weigh(f: &Fixture, key: &str, weight: u32) {
    f.store.limit_set(Limit { pattern: key.into(), concurrency: None, rate: None, weight }).await.unwrap();
}

/// How many jobs of each key were among the claimed ones.
async fn shares(f: &Fixture, claimed: &[ClaimedJob]) -> HashMap<String, usize> {
    let mut shares = HashMap::new();
    for job in claimed {
        let key = f.job(job.fence.job).await.limit_key.unwrap_or_default();
        *shares.entry(key).or_default() += 1;
    }
    shares
}

fn share(shares: &HashMap<String, usize>, key: &str) -> usize {
    shares.get(key).copied().unwrap_or(0)
}

pub async fn weights_of_one_and_three_share_one_to_three_in_single_claims(f: &Fixture) {
    weigh(f, "a", 1).await;
    weigh(f, "b", 3).await;
    f.enqueue_all(vec![keyed("a"); 60]).await;
    f.enqueue_all(vec![keyed("b"); 60]).await;
    let worker = f.worker("w").await;
    let mut claimed = Vec::new();
    for _ in 0..40 {
        claimed.push(f.claim_one(worker).await);
    }
    let shares = shares(f, &claimed).await;
    assert!((8..=12).contains(&share(&shares, "a")), "of 40 starts 10 belong to a, 30 to b: {shares:?}");
}

pub async fn weights_of_one_and_three_share_one_to_three_in_one_batch(f: &Fixture) {
    weigh(f, "a", 1).await;
    weigh(f, "b", 3).await;
    f.enqueue_all(vec![keyed("a"); 60]).await;
    f.enqueue_all(vec![keyed("b"); 60]).await;
    let worker = f.worker("w").await;
    let claimed = f.claim(worker, 40).await.jobs;
    let shares = shares(f, &claimed).await;
    assert!((8..=12).contains(&share(&shares, "a")), "of 40 starts 10 belong to a, 30 to b: {shares:?}");
}

pub async fn keys_without_a_limit_share_evenly(f: &Fixture) {
    f.enqueue_all(vec![keyed("big"); 100]).await;
    f.enqueue_all(vec![keyed("small"); 10]).await;
    let worker = f.worker("w").await;
    let mut claimed = f.claim(worker, 10).await.jobs;
    claimed.extend(f.claim(worker, 10).await.jobs);
    let shares = shares(f, &claimed).await;
    assert!(share(&shares, "small") >= 8, "the backlog of one key does not starve another: {shares:?}");
}

pub async fn jobs_without_key_share_as_one_more_key(f: &Fixture) {
    f.enqueue_all(vec![keyed("a"); 100]).await;
    f.enqueue_all(vec![job(); 100]).await;
    let worker = f.worker("w").await;
    let mut claimed = Vec::new();
    for _ in 0..20 {
        claimed.push(f.claim_one(worker).await);
    }
    let shares = shares(f, &claimed).await;
    assert!((7..=13).contains(&share(&shares, "")), "about half of 20 have no key: {shares:?}");
}

pub async fn an_idle_key_does_not_hoard_credit(f: &Fixture) {
    f.enqueue_all(vec![keyed("idle"); 3]).await;
    f.enqueue_all(vec![keyed("busy"); 200]).await;
    let worker = f.worker("w").await;
    for _ in 0..100 {
        let claimed = f.claim_one(worker).await;
        f.done(claimed.fence).await;
    }
    f.enqueue_all(vec![keyed("idle"); 60]).await;
    let mut claimed = Vec::new();
    for _ in 0..20 {
        claimed.push(f.claim_one(worker).await);
    }
    let shares = shares(f, &claimed).await;
    assert!(share(&shares, "busy") >= 7, "the returning key gets half, not everything: {shares:?}");
    assert!(share(&shares, "idle") >= 7, "and it does get half: {shares:?}");
}

pub async fn a_new_key_neither_starves_nor_takes_everything(f: &Fixture) {
    f.enqueue_all(vec![keyed("old"); 150]).await;
    let worker = f.worker("w").await;
    for claimed in f.claim(worker, 100).await.jobs {
        f.done(claimed.fence).await;
    }
    f.enqueue_all(vec![keyed("new"); 50]).await;
    let mut claimed = Vec::new();
    for _ in 0..20 {
        claimed.push(f.claim_one(worker).await);
    }
    let shares = shares(f, &claimed).await;
    assert!((7..=13).contains(&share(&shares, "new")), "half each: {shares:?}");
}

pub async fn priority_goes_before_fairness(f: &Fixture) {
    f.enqueue_all(vec![keyed("a"); 10]).await;
    let urgent = f.enqueue_all(vec![NewJob { priority: 5, ..keyed("b") }; 6]).await;
    let worker = f.worker("w").await;
    assert_eq!(f.claim_ids(worker, 6).await, urgent, "higher priority first, whoever it belongs to");
}

pub async fn within_a_key_the_order_is_due_time_then_id(f: &Fixture) {
    let a = f.enqueue_all(vec![keyed("a"); 5]).await;
    let b = f.enqueue_all(vec![keyed("b"); 5]).await;
    let worker = f.worker("w").await;
    let order = f.claim_ids(worker, 10).await;
    for own in [a, b] {
        let seen: Vec<JobId> = order.iter().copied().filter(|id| own.contains(id)).collect();
        assert_eq!(seen, own, "jobs of one key keep their order in {order:?}");
    }
}

pub async fn a_fair_share_leaves_no_place_empty(f: &Fixture) {
    weigh(f, "a", 1).await;
    weigh(f, "b", 1000).await;
    f.enqueue_all(vec![keyed("a"); 10]).await;
    f.enqueue(keyed("b")).await;
    let worker = f.worker("w").await;
    assert_eq!(f.claim(worker, 11).await.jobs.len(), 11, "who has nothing to run leaves its share to others");
}

pub async fn many_keys_are_all_served(f: &Fixture) {
    let mut jobs = Vec::new();
    for key in 0..50 {
        jobs.extend(vec![keyed(&format!("k{key}")); 3]);
    }
    f.enqueue_all(jobs).await;
    let worker = f.worker("w").await;
    let claimed = f.claim(worker, 50).await.jobs;
    assert_eq!(claimed.len(), 50);
    let shares = shares(f, &claimed).await;
    assert_eq!(shares.len(), 50, "fifty starts, one for each of fifty keys: {shares:?}");
}
