//! Runs that are told to stop.

use stargate_testkit::source_server::{Fault, SourceServer};

use crate::stage::{Kind, Place, Stage};
use crate::steps::{field, records};
use crate::{code, stderr};

pub(crate) async fn in_the_middle_of_a_page(place: Place) {
    let stage = Stage::new(place, SourceServer::start(1000)).await;
    stage.server.fault_at(4, Fault::Hang);
    let mut worker = stage.worker();
    worker.ready().await;
    stage.begin();
    stage.run_is(|run| run["pages"] == 3).await;
    let run = stage.json(&["cancel", "issues"]);
    assert_eq!(
        (&run["outcome"], &run["pages"], &run["created"]),
        (&"cancelled".into(), &3.into(), &300.into())
    );
    assert_eq!(stage.server.request_count(), 4, "nothing is fetched any more");
    let log = worker.log();
    let all = records(&log);
    let said = all.iter().find(|record| field(record, "outcome") == "cancelled").expect("outcome=cancelled");
    assert_eq!(field(said, "level"), "INFO");
    assert!(field(said, "cursor").contains("\"processed_count\":300"), "{said}");
    // What is there is whole, and the next run goes on after it.
    assert_eq!(stage.number("select count(*) from items").await, 300);
    let next = stage.run();
    assert_eq!((&next["created"], &next["unchanged"]), (&700.into(), &0.into()));
    stage.assert_equal_to_the_source().await;
    stage.remove().await;
}

pub(crate) async fn while_it_waits_for_its_source(place: Place) {
    let stage = Stage::new(place, SourceServer::start(300)).await;
    stage.server.fault_at(2, Fault::status(503));
    let mut worker = stage.worker();
    worker.ready().await;
    stage.begin();
    stage.run_is(|run| run["waiting_for"].is_string()).await;
    let run = stage.json(&["cancel", "issues"]);
    assert_eq!((&run["outcome"], &run["created"]), (&"cancelled".into(), &100.into()));
    let none = stage.directive(&["cancel", "issues"]);
    assert_eq!(code(&none), 3, "{}", stderr(&none));
    assert_eq!(stage.run()["created"], 200);
    stage.remove().await;
}

#[tokio::test]
async fn cancelling_the_job_cancels_the_run() {
    let stage = Stage::new(Kind::Sqlite, SourceServer::start(300)).await;
    stage.server.fault_at(2, Fault::Hang);
    let mut worker = stage.worker();
    worker.ready().await;
    let job = stage.enqueue();
    stage.run_is(|run| run["pages"] == 1).await;
    stage.program.answer(&["job", "cancel", &job]);
    stage.run_is(|run| run["outcome"] == "cancelled").await;
    stage.remove().await;
}

pub(crate) async fn a_worker_that_stops_leaves_its_run_to_the_next(place: Place) {
    let stage = Stage::new(place, SourceServer::start(300)).await;
    stage.server.fault_at(2, Fault::Hang);
    let mut worker = stage.worker();
    worker.ready().await;
    stage.begin();
    stage.run_is(|run| run["pages"] == 1).await;
    worker.terminate();
    assert!(worker.ended(crate::stage::PATIENCE).await.success());
    assert!(stage.last_run().unwrap()["outcome"].is_null());
    let mut next = stage.worker();
    next.ready().await;
    let run = stage.run_is(|run| run["outcome"] == "succeeded").await;
    assert_eq!((&run["created"], &run["unchanged"]), (&300.into(), &0.into()));
    stage.remove().await;
}
