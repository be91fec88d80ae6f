//! Listings, counts and depth: what operators see.

use super::prelude::*;

/// Forty jobs in every state, in two queues and of two kinds, and their ids, newest first.
async fn crowd(f: &Fixture) -> Vec<JobId> {
    let mut all = Vec::new();
    for number in 0..40 {
        let kind = if number % 2 == 0 { WORK } else { OTHER };
        let queue = if number % 3 == 0 { "q" } else { "default" };
        all.push(f.enqueue(NewJob { kind: kind.into(), queue: queue.into(), ..job() }).await);
        f.advance(Duration::from_millis(100));
    }
    let worker = f.worker("w").await;
    let claimed = f.claim(worker, 25).await.jobs;
    for (number, job) in claimed.iter().enumerate() {
        match number % 5 {
            0 => f.done(job.fence).await,
            1 => f.accept(job.fence, failed()).await,
            2 => f.accept(job.fence, Outcome::Cancelled).await,
            3 => f.accept(job.fence, retry_in(Duration::from_secs(600))).await,
            _ => {}
        }
    }
    all.reverse();
    all
}

async fn pages(f: &Fixture, filter: JobFilter) -> Vec<Job> {
    let mut all: Vec<Job> = Vec::new();
    loop {
        let before = all.last().map(|job| job.id);
        let page = f.store.jobs(JobFilter { before, ..filter.clone() }).await.unwrap();
        assert!(page.len() <= filter.limit as usize, "{} jobs on a page of {}", page.len(), filter.limit);
        if page.is_empty() {
            return all;
        }
        all.extend(page);
        assert!(all.len() < 1000, "the pages do not end");
    }
}

pub async fn all_jobs_come_once_newest_first(f: &Fixture) {
    let expected = crowd(f).await;
    for limit in [1, 7, 1000] {
        let listed = pages(f, JobFilter { limit, ..JobFilter::default() }).await;
        let listed: Vec<JobId> = listed.iter().map(|job| job.id).collect();
        assert_eq!(listed, expected, "pages of {limit}");
    }
}

pub async fn each_filter_gives_exactly_what_fits(f: &Fixture) {
    let everything = crowd(f).await;
    let mut all = Vec::new();
    for id in everything {
        all.push(f.job(id).await);
    }
    let since = all[20].created_at;
    let base = JobFilter { limit: 3, ..JobFilter::default() };
    let mut filters = vec![
        JobFilter { kind: Some(OTHER.into()), ..base.clone() },
        JobFilter { queue: Some("q".into()), ..base.clone() },
        JobFilter { since: Some(since), ..base.clone() },
        JobFilter { states: vec![State::Failed, State::Queued], ..base.clone() },
        JobFilter {
            kind: Some(WORK.into()),
            queue: Some("q".into()),
            states: vec![State::Done],
            ..base.clone()
        },
        JobFilter { kind: Some("nobody".into()), ..base.clone() },
        JobFilter { queue: Some("nowhere".into()), ..base.clone() },
    ];
    filters.extend(State::ALL.map(|state| JobFilter { states: vec![state], ..base.clone() }));
    for filter in filters {
        let fits = |job: &&Job| {
            (filter.states.is_empty() || filter.states.contains(&job.state))
                && filter.kind.as_ref().is_none_or(|kind| *kind == job.kind)
                && filter.queue.as_ref().is_none_or(|queue| *queue == job.queue)
                && filter.since.is_none_or(|since| job.created_at >= since)
        };
        let expected: Vec<JobId> = all.iter().filter(fits).map(|job| job.id).collect();
        let listed: Vec<JobId> = pages(f, filter.clone()).await.iter().map(|job| job.id).collect();
        assert_eq!(listed, expected, "{filter:?}");
    }
}

pub async fn a_listed_job_is_the_job(f: &Fixture) {
    crowd(f).await;
    for listed in pages(f, JobFilter { limit: 9, ..JobFilter::default() }).await {
        let single = f.job(listed.id).await;
        assert_eq!(format!("{listed:?}"), format!("{single:?}"), "listing and reading agree");
    }
}

pub async fn a_page_is_never_larger_than_the_maximum(f: &Fixture) {
    f.enqueue_all(vec![job(); 1005]).await;
    match f.store.jobs(JobFilter { limit: PAGE_MAX + 5, ..JobFilter::default() }).await {
        Ok(page) => assert_eq!(page.len(), PAGE_MAX as usize, "cut at the maximum"),
        Err(error) => assert_eq!(error.code(), "INVALID", "{error}"),
    }
    let page = f.store.jobs(JobFilter { limit: PAGE_MAX, ..JobFilter::default() }).await.unwrap();
    assert_eq!(page.len(), PAGE_MAX as usize, "the largest page");
}

pub async fn queues_are_counted_by_stage(f: &Fixture) {
    let parent = f.enqueue(job()).await;
    let mut jobs = vec![job(); 4];
    jobs.push(NewJob { due: Due::In(Duration::from_secs(60)), ..job() });
    jobs.push(NewJob { after: vec![parent], ..job() });
    jobs.push(NewJob { queue: "q".into(), ..job() });
    f.enqueue_all(jobs).await;
    let worker = f.worker("w").await;
    let claimed = f.claim(worker, 3).await.jobs;
    f.accept(claimed[1].fence, failed()).await;
    let mut counts = f.store.queues().await.unwrap();
    counts.sort_by(|a, b| a.queue.cmp(&b.queue));
    let default = QueueCounts {
        queue: "default".into(),
        ready: 2,
        delayed: 1,
        blocked: 1,
        processing: 2,
        failed: 1,
        paused: false,
    };
    let q = QueueCounts { queue: "q".into(), ready: 1, ..QueueCounts::default() };
    assert_eq!(counts, [default, q]);
}

pub async fn depth_counts_what_could_run_no_further_than_asked(f: &Fixture) {
    let mut jobs = vec![job(); 10];
    jobs.push(NewJob { due: Due::In(Duration::from_secs(60)), ..job() });
    f.enqueue_all(jobs).await;
    let worker = f.worker("w").await;
    f.claim(worker, 2).await;
    assert_eq!(f.store.depth(1000).await.unwrap(), 8, "neither the running nor the delayed ones");
    assert_eq!(f.store.depth(5).await.unwrap(), 5, "counted no further");
}

pub async fn the_oldest_ready_job_tells_its_age(f: &Fixture) {
    assert_eq!(f.store.oldest_ready().await.unwrap(), None, "nothing waits");
    f.enqueue(NewJob { due: Due::In(Duration::from_secs(3600)), ..job() }).await;
    assert_eq!(f.store.oldest_ready().await.unwrap(), None, "a delayed job does not wait yet");
    f.enqueue(job()).await;
    f.advance(Duration::from_secs(5));
    f.enqueue(job()).await;
    f.advance(Duration::from_secs(2));
    assert_eq!(f.store.oldest_ready().await.unwrap(), Some(Duration::from_secs(7)), "the first one's age");
}

pub async fn the_store_tells_the_clocks_time(f: &Fixture) {
    assert_eq!(f.store.now().await.unwrap(), f.now());
    f.advance(Duration::from_millis(1500));
    assert_eq!(f.store.now().await.unwrap(), f.now());
}

pub async fn a_reachable_store_says_it_is_well(f: &Fixture) {
    let health = f.store.check().await.expect("it is reachable");
    assert!(health.schema >= 1, "{health:?}");
    assert!(!f.store.facts().name.is_empty(), "it has a name");
}
