//! Runs that are cancelled, paused, or lose their worker.

use std::time::Duration;

use serde_json::json;
use stargate_base::ErrorClass;
use stargate_directive::Outcome;
use stargate_temporal::Status;
use stargate_testkit::eventually;
use stargate_testkit::temporal::Server;

use crate::world::{PATIENCE, Reel, World, error};

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_cancelled_in_a_stretch_leaves_a_safe_state() {
    let world = World::new(Reel::new(10, 2).closed_after(3)).await;
    let serving = world.serve("one", World::options()).await;
    let run = world.start().await;
    world.pages(&run, 3).await;
    assert!(world.cluster.cancel("issues").await.unwrap());
    let closed = world.closed(&run).await;
    assert_eq!(closed.status, Status::Cancelled);
    let summary = closed.summary.unwrap();
    assert_eq!((summary.outcome, summary.pages), (Outcome::Cancelled, 3));
    assert_eq!(summary.cursor.unwrap().source_pointer, json!(3));
    assert_eq!(world.namespace.status("directive:issues"), "CANCELED");
    assert_eq!(world.run(&run).await.unwrap().outcome, Some(Outcome::Cancelled));
    assert_eq!((world.rows(), world.cursor().await.unwrap().source_pointer), (6, json!(3)));
    world.record("cancel").await;
    assert!(!world.cluster.cancel("issues").await.unwrap());
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_waits_for_a_retry_is_cancelled_at_once() {
    let wait = Some(Duration::from_secs(3600));
    let reel = Reel::new(5, 2).troubled(1, error(ErrorClass::RetryableTransient, wait));
    let world = World::new(reel).await;
    let serving = world.serve("one", World::options()).await;
    let run = world.start().await;
    eventually(PATIENCE, "the wait", || async {
        let workflow = world.cluster.workflow("issues").await.unwrap().unwrap();
        let waits = workflow.pending.iter().any(|pending| pending.next_attempt_at.is_some());
        if waits { Ok(()) } else { Err(format!("{workflow:?}")) }
    })
    .await;
    assert!(world.cluster.cancel("issues").await.unwrap());
    assert_eq!(world.closed(&run).await.status, Status::Cancelled);
    assert_eq!(world.run(&run).await.unwrap().outcome, Some(Outcome::Cancelled));
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_worker_goes_on_where_the_first_one_stopped() {
    let world = World::new(Reel::new(10, 2).closed_after(4)).await;
    let first = world.serve("one", World::options()).await;
    let run = world.start().await;
    world.pages(&run, 4).await;
    first.stop().await;
    assert_eq!(world.namespace.status("directive:issues"), "RUNNING");
    world.reel.open_gate();
    let second = world.serve("two", World::options()).await;
    let summary = world.completed(&run).await.summary.unwrap();
    assert_eq!((summary.pages, world.rows()), (10, 20));
    assert_eq!(*world.reel.opened.lock().unwrap(), [json!(null), json!(4)]);
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_killed_and_comes_back_has_lost_nothing() {
    let mut server = Server::start();
    let world = World::on_server(&server, Reel::new(10, 2).closed_after(4)).await;
    let serving = world.serve("one", World::options()).await;
    let run = world.start().await;
    world.pages(&run, 4).await;
    server.kill();
    // The stretch does not need the cluster to go on.
    world.reel.open_gate();
    world.pages(&run, 10).await;
    assert_eq!(world.cluster.ended("issues", &run).await.unwrap_err().code(), "TEMPORAL_UNREACHABLE");
    server.up();
    let summary = world.completed(&run).await.summary.unwrap();
    assert_eq!((summary.pages, world.rows()), (10, 20));
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_waits_while_it_is_paused_and_goes_on_after() {
    let world = World::new(Reel::new(8, 2).closed_after(3)).await;
    let serving = world.serve("one", World::options()).await;
    let run = world.start().await;
    world.pages(&run, 3).await;
    world.cluster.pause("issues").await.unwrap();
    idle(&world).await;
    world.reel.open_gate();
    // The page that was being fetched when the pause came was given up with its stretch.
    assert_eq!((world.rows(), world.run(&run).await.unwrap().outcome), (6, None));
    world.cluster.page_size("issues", 50).await.unwrap();
    world.cluster.resume("issues").await.unwrap();
    let summary = world.completed(&run).await.summary.unwrap();
    assert_eq!((summary.pages, world.rows()), (8, 16));
    assert_eq!(*world.reel.opened.lock().unwrap(), [json!(null), json!(3)]);
    world.record("pause").await;
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_paused_can_be_asked_and_cancelled() {
    let world = World::new(Reel::new(8, 2).closed_after(2)).await;
    let serving = world.serve("one", World::options()).await;
    let run = world.start().await;
    world.pages(&run, 2).await;
    world.cluster.pause("issues").await.unwrap();
    idle(&world).await;
    let progress = world.cluster.progress("issues").await.unwrap();
    assert_eq!((progress.pages, progress.pointer), (2, json!(2)));
    assert_eq!(progress.cursor.unwrap().processed_count, 4);
    assert!(world.cluster.cancel("issues").await.unwrap());
    assert_eq!(world.closed(&run).await.status, Status::Cancelled);
    assert_eq!(world.run(&run).await.unwrap().outcome, Some(Outcome::Cancelled));
    assert_eq!(world.cluster.progress("issues").await.unwrap_err().code(), "TEMPORAL_NOT_RUNNING");
    assert_eq!(world.cluster.pause("issues").await.unwrap_err().code(), "TEMPORAL_NOT_RUNNING");
    serving.stop().await;
}

/// Waits until nothing of the run is under way.
async fn idle(world: &World) {
    eventually(PATIENCE, "the end of the stretch", || async {
        let workflow = world.cluster.workflow("issues").await.unwrap().unwrap();
        if workflow.pending.is_empty() { Ok(()) } else { Err(format!("{workflow:?}")) }
    })
    .await;
}
