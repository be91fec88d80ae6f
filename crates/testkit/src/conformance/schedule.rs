//! Rule 19: a schedule's due instant is fired once, however many processes try.

use super::prelude::*;

fn schedule(f: &Fixture, name: &str) -> Schedule {
    Schedule {
        name: name.into(),
        cron: "*/5 * * * *".into(),
        time_zone: "Europe/Berlin".into(),
        kind: WORK.into(),
        queue: "reports".into(),
        payload: raw(&json!({ "report": name })),
        priority: 4,
        next_at: Some(f.now() + Duration::from_secs(300)),
        last_at: None,
    }
}

pub async fn a_schedule_reads_back_as_it_was_put(f: &Fixture) {
    for name in ["b", "a"] {
        f.store.schedule_put(schedule(f, name)).await.unwrap();
    }
    let all = f.store.schedules().await.unwrap();
    assert_eq!(all.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["a", "b"], "by name");
    let (got, put) = (&all[0], schedule(f, "a"));
    assert_eq!((&got.cron, &got.time_zone), (&put.cron, &put.time_zone), "{got:?}");
    assert_eq!((&got.kind, &got.queue, got.priority), (&put.kind, &put.queue, put.priority), "{got:?}");
    assert_eq!((got.next_at, got.last_at), (put.next_at, None), "{got:?}");
    assert_eq!(value(&got.payload), json!({ "report": "a" }));
}

pub async fn a_schedule_put_again_is_replaced(f: &Fixture) {
    f.store.schedule_put(schedule(f, "a")).await.unwrap();
    let changed = Schedule { cron: "@hourly".into(), priority: 9, ..schedule(f, "a") };
    f.store.schedule_put(changed).await.unwrap();
    let all = f.store.schedules().await.unwrap();
    assert_eq!(all.len(), 1, "one of that name");
    assert_eq!((all[0].cron.as_str(), all[0].priority), ("@hourly", 9));
}

/// Who puts it again has looked before it was fired, perhaps.
pub async fn a_schedule_put_again_waits_for_no_instant_twice(f: &Fixture) {
    let put = schedule(f, "a");
    let due = put.next_at.unwrap();
    let next = due + Duration::from_secs(300);
    f.store.schedule_put(put.clone()).await.unwrap();
    f.clock.set(due);
    f.store.schedule_fire("a", due, Some(next)).await.unwrap().expect("its instant has come");
    f.store.schedule_put(Schedule { priority: 7, ..put.clone() }).await.unwrap();
    let again = f.store.schedules().await.unwrap().remove(0);
    assert_eq!((again.priority, again.next_at, again.last_at), (7, Some(next), Some(due)), "{again:?}");
    assert_eq!(f.store.schedule_fire("a", due, Some(next)).await.unwrap(), None, "fired before");
    f.store.schedule_put(Schedule { time_zone: "UTC".into(), ..put }).await.unwrap();
    let moved = f.store.schedules().await.unwrap().remove(0);
    assert_eq!((moved.next_at, moved.last_at), (Some(due), Some(due)), "other times, another instant");
}

pub async fn a_removed_schedule_is_gone(f: &Fixture) {
    f.store.schedule_put(schedule(f, "a")).await.unwrap();
    assert!(f.store.schedule_remove("a").await.unwrap(), "it was there");
    assert!(!f.store.schedule_remove("a").await.unwrap(), "it is not");
    assert!(f.store.schedules().await.unwrap().is_empty());
}

pub async fn an_instant_that_has_come_makes_the_job(f: &Fixture) {
    let put = schedule(f, "a");
    let due = put.next_at.unwrap();
    let next = due + Duration::from_secs(300);
    f.store.schedule_put(put).await.unwrap();
    f.clock.set(due);
    let id = f.store.schedule_fire("a", due, Some(next)).await.unwrap().expect("its instant has come");
    let job = f.job(id).await;
    assert_eq!((job.kind.as_str(), job.queue.as_str(), job.priority), (WORK, "reports", 4), "{job:?}");
    assert_eq!((value(&job.payload), job.max_attempts), (json!({ "report": "a" }), 5), "{job:?}");
    let read = f.store.schedules().await.unwrap().remove(0);
    assert_eq!((read.last_at, read.next_at), (Some(due), Some(next)), "it moved on");
    let worker = f.worker("w").await;
    assert_eq!(f.claim_ids(worker, 10).await, [id], "and its job runs");
}

pub async fn an_instant_that_has_not_come_makes_nothing(f: &Fixture) {
    let put = schedule(f, "a");
    let due = put.next_at.unwrap();
    f.store.schedule_put(put).await.unwrap();
    f.clock.set(due - Duration::from_millis(1));
    assert_eq!(f.store.schedule_fire("a", due, None).await.unwrap(), None, "a millisecond is missing");
    assert_eq!(f.store.schedules().await.unwrap()[0].next_at, Some(due), "it has not moved");
    assert_eq!(f.store.depth(10).await.unwrap(), 0, "and nothing was enqueued");
}

pub async fn an_instant_is_fired_once(f: &Fixture) {
    let put = schedule(f, "a");
    let due = put.next_at.unwrap();
    f.store.schedule_put(put).await.unwrap();
    f.clock.set(due);
    let next = Some(due + Duration::from_secs(300));
    assert!(f.store.schedule_fire("a", due, next).await.unwrap().is_some());
    assert_eq!(
        f.store.schedule_fire("a", due, next).await.unwrap(),
        None,
        "it waits for another instant now"
    );
    assert_eq!(f.store.depth(10).await.unwrap(), 1, "one job");
}

pub async fn racing_firers_make_one_job(f: &Fixture) {
    let put = schedule(f, "a");
    let due = put.next_at.unwrap();
    f.store.schedule_put(put).await.unwrap();
    f.clock.set(due + Duration::from_secs(1));
    let stores = [f.store.clone(), f.another().await];
    let fired = race(8, |number| {
        let store = stores[number % 2].clone();
        async move { store.schedule_fire("a", due, Some(due + Duration::from_secs(300))).await.unwrap() }
    })
    .await;
    assert_eq!(fired.iter().flatten().count(), 1, "fired once: {fired:?}");
    assert_eq!(f.store.depth(10).await.unwrap(), 1, "one job");
}

pub async fn a_schedule_without_a_next_instant_rests(f: &Fixture) {
    let put = schedule(f, "a");
    let due = put.next_at.unwrap();
    f.store.schedule_put(put).await.unwrap();
    f.clock.set(due);
    assert!(f.store.schedule_fire("a", due, None).await.unwrap().is_some());
    assert_eq!(f.store.schedules().await.unwrap()[0].next_at, None, "there is no next instant");
    assert_eq!(f.store.schedule_fire("a", due, None).await.unwrap(), None, "nothing to fire");
}

pub async fn nonsense_is_not_put(f: &Fixture) {
    let bad = [
        Schedule { cron: "whenever".into(), ..schedule(f, "a") },
        Schedule { time_zone: "Mars/Olympus".into(), ..schedule(f, "a") },
        Schedule { name: "no spaces".into(), ..schedule(f, "a") },
    ];
    for schedule in bad {
        let text = format!("{schedule:?}");
        assert_eq!(f.store.schedule_put(schedule).await.unwrap_err().code(), "INVALID", "{text}");
    }
    assert!(f.store.schedules().await.unwrap().is_empty(), "none was kept");
}
