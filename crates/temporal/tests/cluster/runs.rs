//! Runs that go to their end, and what becomes of those that cannot.

use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::json;
use stargate_base::ErrorClass;
use stargate_directive::{Counts, Outcome};
use stargate_temporal::{ServeOptions, Status};
use stargate_testkit::eventually;

use crate::world::{PATIENCE, QUEUE, Reel, World, error};

#[tokio::test(flavor = "multi_thread")]
async fn a_run_goes_to_its_end_in_stretches() {
    let recorder = PrometheusBuilder::new().install_recorder().unwrap();
    let world = World::new(Reel::new(25, 4)).await;
    let options = ServeOptions { pages_per_activity: 10, metrics: true, ..World::options() };
    let serving = world.serve("one", options).await;
    let run = world.start().await;
    let summary = world.completed(&run).await.summary.unwrap();
    assert_eq!((summary.outcome, summary.pages, &summary.run), (Outcome::Succeeded, 25, &run));
    assert_eq!(summary.counts, Counts { created: 100, ..Counts::default() });
    assert_eq!(world.rows(), 100);
    let kept = world.run(&run).await.unwrap();
    assert_eq!((kept.outcome, kept.engine.as_str()), (Some(Outcome::Succeeded), "temporal"));
    assert_eq!(world.namespace.status("directive:issues"), "COMPLETED");
    // One begin and three stretches; what is read ahead of a stretch is read again by the next.
    assert_eq!(world.namespace.count("directive:issues", "ACTIVITY_TASK_SCHEDULED"), 4);
    assert_eq!(*world.reel.opened.lock().unwrap(), [json!(null), json!(10), json!(20)]);
    let query = "StargateTenant = 'acme' AND StargateProject = 'core' AND StargateDirective = 'issues'";
    eventually(PATIENCE, "the run by its search attributes", || async {
        let found = world.namespace.json(&["workflow", "list", "--query", query]);
        if found.as_array().is_some_and(|found| found.len() == 1) { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
    world.record("run").await;
    let measured = recorder.render();
    let succeeded = measured.lines().find(|line| line.starts_with("temporal_workflow_completed{"));
    assert!(
        succeeded.is_some_and(|line| line.contains("task_queue=\"meta-py\"") && line.ends_with(" 1")),
        "{measured}"
    );
    assert!(measured.contains("temporal_activity_execution_latency_seconds"), "{measured}");
    let listed = world.cluster.workflows().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!((&listed[0].run, listed[0].status), (&run, Status::Completed));
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_run_at_a_time_and_the_next_after_it() {
    let world = World::new(Reel::new(3, 2).closed_after(1)).await;
    let serving = world.serve("one", World::options()).await;
    let run = world.start().await;
    let again = world.cluster.start(&world.directive).await.unwrap();
    assert_eq!((again.run, again.existing), (run.clone(), true));
    world.reel.open_gate();
    world.completed(&run).await;
    let next = world.start().await;
    assert_ne!(next, run);
    let summary = world.completed(&next).await.summary.unwrap();
    assert_eq!(summary.counts, Counts { unchanged: 6, ..Counts::default() });
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_pass_is_tried_again_after_its_delay() {
    let wait = Some(Duration::from_secs(6));
    let reel = Reel::new(5, 2).troubled(2, error(ErrorClass::RetryableTransient, wait));
    let world = World::new(reel).await;
    let serving = world.serve("one", World::options()).await;
    let run = world.start().await;
    let pending = eventually(PATIENCE, "a wait", || async {
        let workflow = world.cluster.workflow("issues").await.unwrap().unwrap();
        let found = workflow.pending.into_iter().find(|pending| pending.last_failure.is_some());
        found.ok_or_else(|| "nothing failed yet".to_owned())
    })
    .await;
    assert_eq!(pending.activity, "stargate.directive.pages");
    assert_eq!(pending.last_failure.as_deref(), Some("SOURCE_STATUS: the source says no"));
    let summary = world.completed(&run).await.summary.unwrap();
    assert_eq!((summary.pages, world.rows()), (5, 10));
    assert_eq!(world.reel.opened.lock().unwrap().last(), Some(&json!(2)));
    world.record("retry").await;
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_will_stay_wrong_fails_the_run_at_once() {
    let reel = Reel::new(5, 2).troubled(2, error(ErrorClass::ValidationFailure, None));
    let world = World::new(reel).await;
    let serving = world.serve("one", World::options()).await;
    let run = world.start().await;
    let closed = world.closed(&run).await;
    assert_eq!((closed.status, closed.code.as_deref()), (Status::Failed, Some("SOURCE_STATUS")));
    assert_eq!(world.namespace.status("directive:issues"), "FAILED");
    let kept = world.run(&run).await.unwrap();
    assert_eq!((kept.outcome, kept.pages), (Some(Outcome::Failed), 2));
    assert_eq!(kept.error.as_deref(), Some("SOURCE_STATUS: the source says no"));
    let shown = world.cluster.workflow("issues").await.unwrap().unwrap();
    assert_eq!(shown.error.as_deref(), Some("SOURCE_STATUS: the source says no"));
    world.record("failed").await;
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_run_continues_as_new_and_stays_one_run() {
    let world = World::new(Reel::new(12, 2)).await;
    let options = ServeOptions { pages_per_activity: 1, history_events_max: Some(20), ..World::options() };
    let serving = world.serve("one", options).await;
    let run = world.start().await;
    let summary = world.completed(&run).await.summary.unwrap();
    assert_eq!((summary.pages, &summary.run, world.rows()), (12, &run, 24));
    let latest = world.namespace.describe("directive:issues");
    assert_ne!(latest["workflowExecutionInfo"]["execution"]["runId"], run.0.as_str());
    let shown = world.cluster.workflow("issues").await.unwrap().unwrap();
    assert_eq!((shown.run, shown.status), (run.clone(), Status::Completed));
    assert_eq!(world.cluster.workflows().await.unwrap().len(), 1);
    assert_eq!(world.store.runs(Some("issues"), None, 10).await.unwrap().len(), 1);
    world.record_of("continued-first", "directive:issues", Some(&run)).await;
    world.record("continued-last").await;
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_workflow_was_terminated_is_ended_by_the_next() {
    let world = World::new(Reel::new(4, 2).closed_after(1)).await;
    let serving = world.serve("one", World::options()).await;
    let lost = world.start().await;
    world.pages(&lost, 1).await;
    let terminated = world.namespace.run(&["workflow", "terminate", "--workflow-id", "directive:issues"]);
    assert!(terminated.status.success(), "{terminated:?}");
    assert_eq!(world.closed(&lost).await.status, Status::Terminated);
    let run = world.start().await;
    let kept = eventually(PATIENCE, "the end of the lost run", || async {
        let kept = world.run(&lost).await.unwrap();
        if kept.outcome.is_some() { Ok(kept) } else { Err(format!("{kept:?}")) }
    })
    .await;
    assert_eq!(kept.outcome, Some(Outcome::Failed));
    assert!(kept.error.as_deref().is_some_and(|error| error.starts_with("RUN_ABANDONED")), "{kept:?}");
    world.reel.open_gate();
    world.completed(&run).await;
    assert_eq!(world.rows(), 8);
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cluster_tells_who_polls_and_what_is_missing() {
    let world = World::new(Reel::new(1, 1)).await;
    let queues = [QUEUE.to_owned()];
    let before = world.cluster.describe(&queues).await.unwrap();
    assert_eq!(before.search_attributes_missing.len(), 3);
    assert!(before.namespace_is_active && !before.server_version.is_empty() && before.retention.is_some());
    assert_eq!(before.polled[0].workflow_pollers, [""; 0]);
    let serving = world.serve("one", World::options()).await;
    let after = eventually(PATIENCE, "pollers", || async {
        let after = world.cluster.describe(&queues).await.unwrap();
        let polled = &after.polled[0];
        match polled.workflow_pollers == ["one"] && polled.steps_pollers == ["one"] {
            true => Ok(after),
            false => Err(format!("{after:?}")),
        }
    })
    .await;
    assert_eq!(after.search_attributes_missing, [""; 0]);
    // Activities of the queue itself are those of other languages.
    assert_eq!(after.polled[0].activity_pollers, [""; 0]);
    serving.stop().await;
}
