//! Listings, counts and depth: what operators see. Rules 29 to 31.

use super::prelude::*;

/// Forty jobs in every state, in two queues, of two kinds and with three limit keys, and their ids, newest first.
async fn crowd(f: &Fixture) -> Vec<JobId> {
    let mut all = Vec::new();
    for number in 0..40 {
        let kind = if number % 2 == 0 { WORK } else { OTHER };
        let queue = if number % 3 == 0 { "q" } else { "default" };
        let new = NewJob {
            kind: kind.into(),
            queue: queue.into(),
            limit_key: [None, Some("tenant a"), Some("tenant b")][number % 3].map(str::to_owned),
            unique_key: (number % 7 == 0).then(|| format!("Order/{number}")),
            ..NewJob::of(kind, &json!({ "n": number, "name": format!("Café {number}") })).unwrap()
        };
        all.push(f.enqueue(new).await);
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
    for filter in filters(&all) {
        let expected: Vec<JobId> = all.iter().filter(|job| fits(&filter, job)).map(|job| job.id).collect();
        let listed: Vec<JobId> = pages(f, filter.clone()).await.iter().map(|job| job.id).collect();
        assert_eq!(listed, expected, "{filter:?}");
        assert_eq!(found_in_pages(f, filter.clone()).await, expected, "{filter:?}");
        for up_to in [0, 1, 5, 1000] {
            let counted = f.store.jobs_count(filter.clone(), up_to).await.unwrap();
            let expected = Counted { count: up_to.min(expected.len() as u64), scanned_all: true };
            assert_eq!(counted, expected, "up to {up_to}: {filter:?}");
        }
    }
}

/// Filters of every sort, alone and together.
fn filters(all: &[Job]) -> Vec<JobFilter> {
    let (since, until) = (all[20].created_at, all[10].created_at);
    let base = JobFilter { limit: 3, ..JobFilter::default() };
    let mut filters = vec![
        JobFilter { kind: Some(OTHER.into()), ..base.clone() },
        JobFilter { queue: Some("q".into()), ..base.clone() },
        JobFilter { since: Some(since), ..base.clone() },
        JobFilter { until: Some(until), ..base.clone() },
        JobFilter { since: Some(since), until: Some(until), ..base.clone() },
        JobFilter { since: Some(until), until: Some(since), ..base.clone() },
        JobFilter { until: Some(all[39].created_at), ..base.clone() },
        JobFilter { since: Some(all[30].created_at), states: vec![State::Processing], ..base.clone() },
        JobFilter { limit_key: Some("tenant b".into()), ..base.clone() },
        JobFilter { limit_key: Some("nobody".into()), ..base.clone() },
        JobFilter {
            queue: Some("q".into()),
            until: Some(until),
            states: vec![State::Queued],
            ..base.clone()
        },
        JobFilter { code: Some("BROKEN".into()), ..base.clone() },
        JobFilter { code: Some("BROKEN".into()), states: vec![State::Failed], ..base.clone() },
        JobFilter {
            code: Some("BROKEN".into()),
            kind: Some(WORK.into()),
            since: Some(since),
            ..base.clone()
        },
        JobFilter { code: Some("UPSTREAM_BUSY".into()), ..base.clone() },
        JobFilter { code: Some("UPSTREAM_BUSY".into()), states: vec![State::Failed], ..base.clone() },
        JobFilter { code: Some("broken".into()), ..base.clone() },
        JobFilter { search: Some("cAFé 1".into()), ..base.clone() },
        JobFilter { search: Some("order/".into()), ..base.clone() },
        JobFilter { search: Some("IS BUSY".into()), ..base.clone() },
        JobFilter { search: Some("%".into()), ..base.clone() },
        JobFilter { search: Some("'\"_\\".into()), ..base.clone() },
        JobFilter { search: Some("it is".into()), code: Some("BROKEN".into()), ..base.clone() },
        JobFilter {
            search: Some("café".into()),
            states: vec![State::Done, State::Queued],
            limit_key: Some("tenant a".into()),
            until: Some(until),
            ..base.clone()
        },
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
    filters
}

/// What the rules say about one job, in plain words.
fn fits(filter: &JobFilter, job: &Job) -> bool {
    let holds =
        |text: &str, search: &String| text.to_ascii_lowercase().contains(&search.to_ascii_lowercase());
    let message = job.error.as_ref().map_or("", |error| error.message.as_str());
    (filter.states.is_empty() || filter.states.contains(&job.state))
        && filter.kind.as_ref().is_none_or(|kind| *kind == job.kind)
        && filter.queue.as_ref().is_none_or(|queue| *queue == job.queue)
        && filter.limit_key.as_ref().is_none_or(|key| Some(key) == job.limit_key.as_ref())
        && filter.since.is_none_or(|since| job.created_at >= since)
        && filter.until.is_none_or(|until| job.created_at < until)
        && filter.code.as_ref().is_none_or(|code| job.error.as_ref().is_some_and(|error| error.code == *code))
        && filter.search.as_ref().is_none_or(|search| {
            holds(job.payload.get(), search)
                || holds(job.unique_key.as_deref().unwrap_or_default(), search)
                || holds(message, search)
        })
}

/// All pages, from where each says that the next begins.
async fn found_in_pages(f: &Fixture, filter: JobFilter) -> Vec<JobId> {
    let (mut all, mut before) = (Vec::new(), filter.before);
    loop {
        let found = f.store.jobs_found(JobFilter { before, ..filter.clone() }).await.unwrap();
        assert!(found.scanned_all, "there are few rows: {filter:?}");
        let full = found.jobs.len() == filter.limit as usize;
        assert!(full || found.next_before.is_none(), "a short page is the last: {filter:?}");
        all.extend(found.jobs.iter().map(|job| job.id));
        match found.next_before {
            Some(next) => before = Some(next),
            None => return all,
        }
    }
}

pub async fn a_look_for_what_is_rare_ends_and_says_where_to_go_on(f: &Fixture) {
    let rare = NewJob::of(WORK, &json!({ "needle": true })).unwrap();
    let first = f.enqueue(rare.clone()).await;
    for _ in 0..5 {
        f.enqueue_all(vec![job(); 5000]).await;
    }
    let last = f.enqueue(rare).await;
    let filter = JobFilter { search: Some("NEEDLE".into()), limit: 10, ..JobFilter::default() };
    let counted = f.store.jobs_count(filter.clone(), 10).await.unwrap();
    assert_eq!(counted, Counted { count: 1, scanned_all: false }, "nor is further counted");
    let (mut all, mut before, mut looks) = (Vec::new(), JobId(last.0 + 1), 0);
    loop {
        let filter = JobFilter { before: Some(before), ..filter.clone() };
        let found = f.store.jobs_found(filter).await.unwrap();
        all.extend(found.jobs.iter().map(|job| job.id));
        looks += 1;
        assert_eq!(
            found.scanned_all,
            found.next_before.is_none(),
            "it says whether it looked at all: {found:?}"
        );
        let Some(next) = found.next_before else { break };
        assert!((1000..=i64::from(SCAN_MAX)).contains(&(before.0 - next.0)), "from {before} to {next}");
        before = next;
    }
    assert_eq!(all, [last, first]);
    assert!(looks > 1, "there are more rows than it looks at");
}

pub async fn failed_jobs_with_a_code_are_counted_without_a_look_at_each(f: &Fixture) {
    let filter = JobFilter {
        code: Some("BROKEN".into()),
        states: vec![State::Failed],
        limit: 10,
        ..JobFilter::default()
    };
    f.enqueue_all(vec![job(); 5000]).await;
    f.enqueue_all(vec![job(); 5000]).await;
    let none = f.store.jobs_count(filter.clone(), 10).await.unwrap();
    assert_eq!(none, Counted { count: 0, scanned_all: true });
    let found = f.store.jobs_found(filter).await.unwrap();
    assert!(found.jobs.is_empty() && found.scanned_all && found.next_before.is_none(), "{found:?}");
}

pub async fn a_filter_that_cannot_be_meant_is_refused(f: &Fixture) {
    let base = JobFilter::default;
    let bad = [
        (JobFilter { limit: 0, ..base() }, "limit"),
        (JobFilter { limit: PAGE_MAX + 1, ..base() }, "limit"),
        (JobFilter { search: Some(String::new()), ..base() }, "search"),
        (JobFilter { search: Some("x".repeat(501)), ..base() }, "search"),
        (JobFilter { search: Some("a\0b".into()), ..base() }, "search"),
        (JobFilter { kind: Some("a\0b".into()), ..base() }, "kind"),
        (JobFilter { code: Some("\0".into()), ..base() }, "code"),
    ];
    for (filter, field) in bad {
        let error = f.store.jobs_found(filter.clone()).await.unwrap_err();
        assert_eq!(error.code(), "INVALID", "{filter:?}");
        assert!(error.to_string().starts_with(field), "{error}");
        assert!(f.store.jobs(filter).await.is_err());
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
    let refused = f.store.jobs(JobFilter { limit: PAGE_MAX + 5, ..JobFilter::default() }).await.unwrap_err();
    assert_eq!(refused.code(), "INVALID", "{refused}");
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
