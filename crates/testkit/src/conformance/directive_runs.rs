//! Runs and their leases. The rules are in `stargate_directive::store`.

use stargate_directive::retry::Failures;
use stargate_directive::run::{Beat as RunBeat, Begin, End, NewRun, Outcome as RunOutcome, RunId, Step};
use stargate_directive::{Lease, Standing};

use super::prelude::*;
use crate::ingest::{ISSUES, Ingest, RUN_LEASE, batch, counts, items, keys, new_run, page, run_of};

fn absent() -> stargate_directive::Expected {
    stargate_directive::Expected::Absent
}

fn beat() -> RunBeat {
    RunBeat {
        step: Some(Step::FetchSourceData),
        page_size: Some(50),
        failures: Failures { transient: 2, conflict: 1, reached: 9 },
        waiting_for: Some("the source: \"429\"".to_owned()),
    }
}

fn done() -> End {
    End { outcome: RunOutcome::Succeeded, error: None }
}

fn id(name: &str) -> RunId {
    RunId(name.to_owned())
}

async fn standing(t: &Ingest, lease: &Lease) -> Standing {
    t.directives.run_beat(lease, RUN_LEASE, RunBeat::default()).await.unwrap()
}

pub async fn a_run_begins_with_the_lease_and_reads_back(t: &Ingest) {
    let (lease, run) = t.begin_as(new_run("r1")).await;
    assert_eq!((&lease.run, &lease.key, lease.version), (&id("r1"), &keys().run, 1));
    assert_eq!((run.directive.as_str(), run.tenant.as_str(), run.project.as_str()), (ISSUES, "acme", "core"));
    assert_eq!((run.engine.as_str(), run.workflow_id.as_str(), run.outcome), ("embedded", "job-r1", None));
    assert_eq!(
        (run.pages, run.counts, &run.cursor, &run.beat),
        (0, counts(0, 0, 0, 0), &None, &RunBeat::default())
    );
    assert!(!run.cancel_asked && !run.source_ended);
    assert_eq!((run.started_at, run.updated_at, run.ended_at), (t.clock.now(), t.clock.now(), None));
    assert_eq!(t.another().await.run(&id("r1")).await.unwrap(), Some(run));
    assert_eq!(t.directives.run(&id("r2")).await.unwrap(), None);
    let kept = t.entry(&keys().run).await.expect("the lease is a value");
    assert_eq!(value(&kept.value)["run"], json!("r1"));
}

pub async fn a_second_run_is_told_who_has_the_lease(t: &Ingest) {
    t.begin("r1").await;
    let until = t.clock.now() + RUN_LEASE;
    let told = t.another().await.run_begin(new_run("r2")).await.unwrap();
    assert_eq!(told, Begin::Held { run: id("r1"), worker: "worker-r1".to_owned(), until });
    assert_eq!(t.directives.run(&id("r2")).await.unwrap(), None, "it left nothing");
    t.begin_as(run_of("r3", "other", ISSUES)).await;
    t.begin_as(run_of("r4", "acme", "pulls")).await;
}

pub async fn racing_runs_get_the_lease_once(t: &Ingest) {
    let others = [t.another().await, t.another().await];
    let answers = race(9, |number| {
        let directives = [&t.directives, &others[0], &others[1]][number % 3].clone();
        async move { directives.run_begin(new_run(&format!("r{number}"))).await.unwrap() }
    })
    .await;
    let begun = answers.iter().filter(|answer| matches!(answer, Begin::Begun { .. })).count();
    assert_eq!(begun, 1);
    assert_eq!(t.directives.runs(None, None, 10).await.unwrap().len(), 1);
}

pub async fn a_lease_that_ran_out_is_taken_and_its_run_has_failed(t: &Ingest) {
    let first = t.begin("r1").await;
    t.clock.advance(RUN_LEASE - Duration::from_micros(1));
    assert!(matches!(t.directives.run_begin(new_run("r2")).await.unwrap(), Begin::Held { .. }));
    t.clock.advance(Duration::from_micros(1));
    let second = t.begin("r2").await;
    assert_eq!(second.version, first.version + 1);
    let failed = t.run("r1").await;
    assert_eq!((failed.outcome, failed.ended_at), (Some(RunOutcome::Failed), Some(t.clock.now())));
    let error = failed.error.expect("a reason");
    assert!(error.contains("r2") && error.contains("worker-r2"), "{error}");
    assert_eq!(t.run("r2").await.outcome, None);
    assert_eq!(standing(t, &first).await, Standing::Lost);
    assert!(!t.directives.run_end(&first, done()).await.unwrap());
    assert_eq!(t.run("r1").await.outcome, Some(RunOutcome::Failed), "its end is not recorded twice");
}

pub async fn a_run_that_is_taken_up_goes_on_as_it_was(t: &Ingest) {
    let first = t.begin("r1").await;
    t.persist(batch(&first, "b1", items(0..3, "a"), page(absent(), 3))).await;
    t.directives.run_beat(&first, RUN_LEASE, beat()).await.unwrap();
    t.directives.run_cancel(&id("r1")).await.unwrap();
    t.clock.advance(Duration::from_secs(7));
    let again = NewRun { worker: "elsewhere".to_owned(), ..new_run("r1") };
    let (second, run) = t.begin_as(again).await;
    assert_eq!(second.version, first.version + 1, "although the lease was held");
    assert_eq!((run.pages, run.counts, &run.beat), (1, counts(3, 0, 0, 0), &beat()));
    assert!(run.cancel_asked);
    assert_eq!(run.started_at, t.clock.now() - Duration::from_secs(7));
    assert_eq!(run.cursor.expect("the cursor it wrote").processed_count, 3);
    t.clock.advance(RUN_LEASE * 2);
    assert_eq!(t.begin("r1").await.version, second.version + 1, "also after its time");
}

pub async fn an_execution_that_was_replaced_writes_nothing_more(t: &Ingest) {
    let first = t.begin("r1").await;
    let second = t.begin("r1").await;
    assert_eq!(t.refused(batch(&first, "b1", items(0..3, "a"), page(absent(), 3))).await, "CONFLICT");
    assert_eq!(standing(t, &first).await, Standing::Lost);
    assert!(!t.directives.run_end(&first, done()).await.unwrap());
    let run = t.run("r1").await;
    assert_eq!((run.outcome, run.counts.total()), (None, 0));
    assert_eq!(standing(t, &second).await, Standing::Held);
}

pub async fn a_run_that_has_ended_is_not_begun_again(t: &Ingest) {
    let lease = t.begin("r1").await;
    t.directives.run_end(&lease, done()).await.unwrap();
    let refused = t.directives.run_begin(new_run("r1")).await.expect_err("it has ended");
    assert_eq!(refused.code(), "CONFLICT");
    assert!(t.entry(&keys().run).await.is_none(), "the lease is free");
}

pub async fn a_run_of_another_directive_is_not_taken_up(t: &Ingest) {
    t.begin("r1").await;
    for other in [run_of("r1", "acme", "pulls"), run_of("r1", "other", ISSUES)] {
        assert_eq!(t.directives.run_begin(other).await.expect_err("another's").code(), "CONFLICT");
    }
    assert!(t.entry(&run_of("r1", "acme", "pulls").lease).await.is_none());
}

pub async fn a_run_without_a_name_is_refused(t: &Ingest) {
    for bad in [run_of("", "acme", ISSUES), run_of(&"x".repeat(300), "acme", ISSUES)] {
        assert_eq!(t.directives.run_begin(bad).await.expect_err("a bad name").code(), "INVALID");
    }
    assert!(t.entry(&keys().run).await.is_none());
}

pub async fn a_beat_keeps_the_lease_and_what_the_run_says(t: &Ingest) {
    let lease = t.begin("r1").await;
    for _ in 0..5 {
        t.clock.advance(RUN_LEASE - Duration::from_secs(1));
        assert_eq!(t.directives.run_beat(&lease, RUN_LEASE, beat()).await.unwrap(), Standing::Held);
    }
    assert_eq!(t.entry(&keys().run).await.expect("held").version, lease.version);
    let run = t.run("r1").await;
    assert_eq!((run.beat, run.updated_at), (beat(), t.clock.now()));
    t.persist(batch(&lease, "b1", items(0..1, "a"), page(absent(), 1))).await;
}

pub async fn a_late_beat_is_told_that_the_lease_is_lost(t: &Ingest) {
    let lease = t.begin("r1").await;
    t.clock.advance(RUN_LEASE);
    assert_eq!(t.directives.run_beat(&lease, RUN_LEASE, beat()).await.unwrap(), Standing::Lost);
    assert_eq!(t.run("r1").await.beat, RunBeat::default());
    assert_eq!(t.refused(batch(&lease, "b1", items(0..3, "a"), page(absent(), 3))).await, "CONFLICT");
    t.begin("r2").await;
}

pub async fn a_beat_never_makes_a_lease_shorter(t: &Ingest) {
    let lease = t.begin("r1").await;
    t.directives.run_beat(&lease, RUN_LEASE * 10, beat()).await.unwrap();
    t.clock.advance(Duration::from_secs(1));
    assert_eq!(standing(t, &lease).await, Standing::Held);
    t.clock.advance(RUN_LEASE * 10 - Duration::from_secs(2));
    assert!(matches!(t.directives.run_begin(new_run("r2")).await.unwrap(), Begin::Held { .. }));
    assert_eq!(standing(t, &lease).await, Standing::Held);
    t.clock.advance(RUN_LEASE);
    t.begin("r2").await;
}

pub async fn a_run_ends_with_any_text(t: &Ingest) {
    let lease = t.begin("r1").await;
    let end = End { outcome: RunOutcome::Failed, error: Some("the tap said \0 é".to_owned()) };
    assert!(t.directives.run_end(&lease, end).await.unwrap());
    assert_eq!(t.run("r1").await.error.as_deref(), Some("the tap said \u{FFFD} é"));
    assert!(t.entry(&keys().run).await.is_none(), "the lease is free");
}

pub async fn a_run_ends_once_and_gives_its_lease_back(t: &Ingest) {
    let lease = t.begin("r1").await;
    let end = End { outcome: RunOutcome::Failed, error: Some("the source \"is gone\"".to_owned()) };
    t.clock.advance(Duration::from_secs(3));
    assert!(t.directives.run_end(&lease, end).await.unwrap());
    assert!(!t.directives.run_end(&lease, done()).await.unwrap());
    let run = t.run("r1").await;
    assert_eq!((run.outcome, run.ended_at), (Some(RunOutcome::Failed), Some(t.clock.now())));
    assert_eq!(run.error.as_deref(), Some("the source \"is gone\""));
    assert!(t.entry(&keys().run).await.is_none());
    assert_eq!(standing(t, &lease).await, Standing::Lost);
    assert_eq!(t.refused(batch(&lease, "b1", items(0..3, "a"), page(absent(), 3))).await, "CONFLICT");
    assert!(t.begin("r2").await.version > lease.version, "versions go on");
}

pub async fn a_run_whose_lease_ran_out_may_end_while_nobody_took_it(t: &Ingest) {
    let lease = t.begin("r1").await;
    t.clock.advance(RUN_LEASE * 2);
    let cancelled = End { outcome: RunOutcome::Cancelled, error: None };
    assert!(t.directives.run_end(&lease, cancelled).await.unwrap());
    assert_eq!(t.run("r1").await.outcome, Some(RunOutcome::Cancelled));
    t.begin("r2").await;
    assert_eq!(t.run("r1").await.outcome, Some(RunOutcome::Cancelled));
}

pub async fn a_cancel_is_heard_by_beats_and_batches(t: &Ingest) {
    assert!(!t.directives.run_cancel(&id("r1")).await.unwrap());
    let lease = t.begin("r1").await;
    let first = t.persist(batch(&lease, "b1", items(0..1, "a"), page(absent(), 1))).await;
    assert!(!first.cancel_asked);
    assert!(t.another().await.run_cancel(&id("r1")).await.unwrap());
    assert_eq!(standing(t, &lease).await, Standing::CancelAsked);
    let at = stargate_directive::Expected::Version(1);
    let second = t.persist(batch(&lease, "b2", items(1..2, "a"), page(at, 2))).await;
    assert!(second.cancel_asked, "and written all the same");
    assert_eq!(t.run("r1").await.counts, counts(2, 0, 0, 0));
    t.directives.run_end(&lease, done()).await.unwrap();
    assert!(!t.directives.run_cancel(&id("r1")).await.unwrap());
}

pub async fn runs_are_listed_newest_first_page_by_page(t: &Ingest) {
    for number in 0..5 {
        let directive = if number % 2 == 0 { ISSUES } else { "pulls" };
        let (lease, _) = t.begin_as(run_of(&format!("r{number}"), "acme", directive)).await;
        t.directives.run_end(&lease, done()).await.unwrap();
        if number != 2 {
            t.clock.advance(Duration::from_secs(1));
        }
    }
    let names = |runs: Vec<stargate_directive::Run>| runs.into_iter().map(|run| run.id.0).collect::<Vec<_>>();
    let (mut seen, mut before) = (Vec::new(), None);
    loop {
        let page = names(t.directives.runs(None, before.as_ref(), 2).await.unwrap());
        let Some(last) = page.last() else { break };
        before = Some(id(last));
        seen.extend(page);
    }
    assert_eq!(seen, ["r4", "r3", "r2", "r1", "r0"]);
    assert_eq!(names(t.directives.runs(Some(ISSUES), Some(&id("r4")), 10).await.unwrap()), ["r2", "r0"]);
    assert!(t.directives.runs(None, Some(&id("nobody")), 10).await.unwrap().is_empty());
}

pub async fn a_deposed_leader_begins_no_run_and_writes_no_batch(t: &Ingest) {
    let epoch = t.opened.store.term_begin("a", None, None).await.unwrap();
    let leader = (t.opened.led)(epoch);
    let Begin::Begun { lease, .. } = leader.run_begin(new_run("r1")).await.unwrap() else { panic!("held") };
    leader.persist(batch(&lease, "b1", items(0..1, "a"), page(absent(), 1))).await.unwrap();
    t.opened.store.term_begin("b", None, Some(epoch)).await.unwrap();
    let before = t.traces().await;
    let at = stargate_directive::Expected::Version(1);
    let refused = [
        leader.persist(batch(&lease, "b2", items(1..2, "a"), page(at, 2))).await.map(drop),
        leader.run_begin(run_of("r2", "acme", "pulls")).await.map(drop),
        leader.run_beat(&lease, RUN_LEASE, beat()).await.map(drop),
        leader.run_end(&lease, done()).await.map(drop),
        leader.run_cancel(&id("r1")).await.map(drop),
        leader.kv_put(crate::ingest::put(&keys().cursor, None, at, "x")).await.map(drop),
    ];
    for answer in refused {
        assert_eq!(answer.expect_err("its term is over").code(), "NOT_LEADER");
    }
    assert_eq!(t.traces().await, before);
}
