//! Rule 18: events are numbered from 1 without gaps, in the order in which they happened.

use super::prelude::*;

fn note(fence: Fence, name: &str) -> Note {
    Note { fence, progress: None, event: Some((name.into(), raw(&json!({ "name": name })))) }
}

pub async fn the_timeline_of_a_success(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let worker = f.worker("w").await;
    f.advance(Duration::from_secs(1));
    let claimed = f.claim_one(worker).await;
    f.advance(Duration::from_secs(1));
    f.done(claimed.fence).await;
    assert_eq!(f.timeline(id).await, "created processing done");
    let events = f.events(id).await;
    let times: Vec<_> = events.iter().map(|event| event.at).collect();
    let second = Duration::from_secs(1);
    assert_eq!(times, [f.now() - second - second, f.now() - second, f.now()], "each when it happened");
    assert_eq!(value(&events[0].data), json!({ "kind": WORK, "queue": "default" }));
    assert_eq!(value(&events[1].data), json!({ "attempt": 1, "worker": "w" }));
}

pub async fn the_timeline_of_a_failure_tells_its_error(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let worker = f.worker("w").await;
    let claimed = f.claim_one(worker).await;
    f.accept(claimed.fence, failed()).await;
    assert_eq!(f.timeline(id).await, "created processing failed");
    let last = f.events(id).await.pop().unwrap();
    assert_eq!(value(&last.data), json!({ "code": "BROKEN", "class": "Fatal", "message": "it is broken" }));
}

pub async fn the_timeline_of_a_retry_tells_why_and_for_how_long(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let worker = f.worker("w").await;
    let claimed = f.claim_one(worker).await;
    f.accept(claimed.fence, retry_in(Duration::from_millis(2500))).await;
    assert_eq!(f.timeline(id).await, "created processing requeued:retry");
    let data = value(&f.events(id).await[2].data);
    assert_eq!(data["attempt"], 1, "{data}");
    assert_eq!(data["code"], "UPSTREAM_BUSY", "{data}");
    assert_eq!(data["class"], "RetryableTransient", "{data}");
    assert_eq!(data["message"], "the other side is busy", "{data}");
    assert_eq!(data["delay_ms"], 2500, "{data}");
}

pub async fn an_event_that_becomes_a_row_keeps_its_text(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let worker = f.worker("w \"1\" \\ \u{1f}é").await;
    let texts =
        async || f.events(id).await.iter().map(|event| event.data.get().to_owned()).collect::<Vec<_>>();
    let first = f.claim_one(worker).await;
    let derived = texts().await;
    f.accept(first.fence, retry_in(Duration::ZERO)).await;
    assert_eq!(texts().await[..2], derived, "after a retry");
    let error = JobError::new("BROKEN", ErrorClass::Fatal, "a \"quote\",\na line and \u{1} é");
    let second = f.claim_one(worker).await;
    f.accept(second.fence, Outcome::Failed { error }).await;
    let derived = texts().await;
    f.store.retry(id).await.unwrap();
    assert_eq!(f.timeline(id).await, "created processing requeued:retry processing failed requeued:operator");
    assert_eq!(texts().await[..5], derived, "after an operator's retry");
}

pub async fn notes_stand_between_start_and_end(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let worker = f.worker("w").await;
    let claimed = f.claim_one(worker).await;
    for name in ["source:ready", "progress", "uploaded"] {
        let verdicts = f.store.note(vec![note(claimed.fence, name)]).await.unwrap();
        assert_eq!(verdicts, [Verdict::Accepted], "{name}");
    }
    f.done(claimed.fence).await;
    assert_eq!(f.timeline(id).await, "created processing source:ready progress uploaded done");
    assert_eq!(value(&f.events(id).await[3].data), json!({ "name": "progress" }), "with its data");
}

pub async fn several_notes_of_one_job_in_one_batch_keep_their_order(f: &Fixture) {
    let all = f.enqueue_all(vec![job(), job()]).await;
    let worker = f.worker("w").await;
    let jobs = f.claim(worker, 2).await.jobs;
    let (a, b) = (jobs[0].fence, jobs[1].fence);
    let batch = vec![note(a, "a1"), note(b, "b1"), note(a, "a2"), note(a, "a3"), note(b, "b2")];
    assert_eq!(f.store.note(batch).await.unwrap(), [Verdict::Accepted; 5]);
    assert_eq!(f.timeline(all[0]).await, "created processing a1 a2 a3");
    assert_eq!(f.timeline(all[1]).await, "created processing b1 b2");
}

pub async fn a_stale_note_in_a_batch_leaves_no_gap(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let worker = f.worker("w").await;
    let fence = f.claim_one(worker).await.fence;
    let stale = Fence { token: LeaseToken(fence.token.0.wrapping_add(1)), ..fence };
    let batch = vec![note(fence, "one"), note(stale, "forged"), note(fence, "two")];
    let verdicts = f.store.note(batch).await.unwrap();
    assert_eq!(verdicts, [Verdict::Accepted, Verdict::Stale, Verdict::Accepted]);
    assert_eq!(f.timeline(id).await, "created processing one two");
}

pub async fn progress_is_kept_on_the_job_and_handed_to_the_next_attempt(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let worker = f.worker("w").await;
    let fence = f.claim_one(worker).await.fence;
    let progress = |percent| Note { fence, progress: Some(percent), event: None };
    assert_eq!(f.store.note(vec![progress(10), progress(40)]).await.unwrap(), [Verdict::Accepted; 2]);
    assert_eq!(f.job(id).await.progress, 40, "the last one of the batch");
    assert_eq!(f.timeline(id).await, "created processing", "a percentage alone leaves no event");
    f.accept(fence, retry_in(Duration::ZERO)).await;
    assert_eq!(f.claim_one(worker).await.progress, 40, "known to the next attempt");
}

pub async fn a_note_may_carry_both_progress_and_event(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let worker = f.worker("w").await;
    let fence = f.claim_one(worker).await.fence;
    let both = Note { progress: Some(55), ..note(fence, "progress") };
    f.store.note(vec![both]).await.unwrap();
    f.done(fence).await;
    assert_eq!(f.job(id).await.progress, 55, "kept when the job has ended");
    assert_eq!(f.timeline(id).await, "created processing progress done");
}

pub async fn notes_of_earlier_attempts_stay_in_their_place(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let worker = f.worker("w").await;
    let outcomes = [retry_in(Duration::ZERO), Outcome::Aborted, Outcome::Done { result: None }];
    for (number, outcome) in outcomes.into_iter().enumerate() {
        let fence = f.claim_one(worker).await.fence;
        f.store.note(vec![note(fence, &format!("n{number}"))]).await.unwrap();
        f.accept(fence, outcome).await;
    }
    let expected = "created processing n0 requeued:retry processing n1 aborted:shutdown processing n2 done";
    assert_eq!(f.timeline(id).await, expected);
}

pub async fn a_timeline_is_read_in_pages(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let worker = f.worker("w").await;
    let fence = f.claim_one(worker).await.fence;
    let notes = (0..20).map(|n| note(fence, &format!("n{n}"))).collect();
    f.store.note(notes).await.unwrap();
    f.done(fence).await;
    let whole: Vec<String> = f.events(id).await.into_iter().map(|event| event.event).collect();
    assert_eq!(whole.len(), 23);
    let (mut after, mut paged) = (0, Vec::new());
    loop {
        let page = f.store.events(id, after, 5).await.unwrap();
        assert!(page.len() <= 5, "a page of five has {}", page.len());
        let Some(last) = page.last() else { break };
        assert!(page[0].seq == after + 1, "the page after {after} begins with {}", page[0].seq);
        after = last.seq;
        paged.extend(page.into_iter().map(|event| event.event));
    }
    assert_eq!(paged, whole, "all of it, each once");
}

pub async fn a_job_that_is_not_there_has_no_timeline(f: &Fixture) {
    match f.store.events(JobId(123_456), 0, 10).await {
        Ok(events) => assert!(events.is_empty(), "{events:?}"),
        Err(error) => assert_eq!(error.code(), "NOT_FOUND", "{error}"),
    }
    assert!(f.store.job(JobId(123_456)).await.unwrap().is_none(), "nor a job");
}

pub async fn racing_notes_leave_no_gap(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let worker = f.worker("w").await;
    let fence = f.claim_one(worker).await.fence;
    let stores = [f.store.clone(), f.another().await];
    let verdicts = race(8, |number| {
        let store = stores[number % 2].clone();
        async move {
            let notes = (0..5).map(|n| note(fence, &format!("t{number}n{n}"))).collect();
            store.note(notes).await.unwrap()
        }
    })
    .await;
    assert!(verdicts.iter().flatten().all(|verdict| *verdict == Verdict::Accepted), "{verdicts:?}");
    f.done(fence).await;
    assert_eq!(f.events(id).await.len(), 43, "forty notes, created, processing and done");
}
