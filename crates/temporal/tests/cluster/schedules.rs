//! Schedules on the cluster.

use stargate_temporal::Scheduled;
use stargate_testkit::eventually;

use crate::world::{PATIENCE, QUEUE, Reel, World};

fn scheduled(directive: &str, cron: &str) -> Scheduled {
    Scheduled {
        directive: directive.to_owned(),
        cron: cron.to_owned(),
        time_zone: "Europe/Berlin".to_owned(),
        queue: QUEUE.to_owned(),
        installation: "here".to_owned(),
    }
}

async fn ids(world: &World, wanted: &[&str]) {
    eventually(PATIENCE, "schedules", || async {
        let listed = world.namespace.json(&["schedule", "list"]);
        let of =
            |schedule: &serde_json::Value| schedule["scheduleId"].as_str().unwrap_or_default().to_owned();
        let mut found: Vec<String> = listed.as_array().into_iter().flatten().map(of).collect();
        found.sort();
        if found == wanted { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schedules_are_those_of_the_directives_and_others_stay() {
    let world = World::new(Reel::new(1, 1)).await;
    let foreign = ["schedule", "create", "--schedule-id", "directive:theirs", "--interval", "100d"];
    let foreign =
        [&foreign[..], &["--type", "their.own", "--task-queue", "q", "--workflow-id", "w"]].concat();
    assert!(world.namespace.run(&foreign).status.success());
    let wanted = [scheduled("one", "0 3 * * *"), scheduled("two", "30 0 4 * * *")];
    world.cluster.apply_schedules("here", &wanted, &[]).await.unwrap();
    ids(&world, &["directive:one", "directive:theirs", "directive:two"]).await;
    let shown = world.namespace.json(&["schedule", "describe", "--schedule-id", "directive:two"]);
    let calendar = &shown["schedule"]["spec"]["structuredCalendar"][0];
    assert_eq!(
        (&calendar["second"][0]["start"], &calendar["hour"][0]["start"]),
        (&30.into(), &4.into()),
        "{shown}"
    );
    assert_eq!(shown["schedule"]["spec"]["timezoneName"], "Europe/Berlin");
    assert_eq!(shown["schedule"]["policies"]["overlapPolicy"], "SCHEDULE_OVERLAP_POLICY_SKIP");
    // The second is gone, the first has changed; a third cannot be read and was never there.
    let wanted = [scheduled("one", "0 5 * * *")];
    world.cluster.apply_schedules("here", &wanted, &["three".to_owned()]).await.unwrap();
    ids(&world, &["directive:one", "directive:theirs"]).await;
    let shown = world.namespace.json(&["schedule", "describe", "--schedule-id", "directive:one"]);
    assert_eq!(shown["schedule"]["spec"]["structuredCalendar"][0]["hour"][0]["start"], 5, "{shown}");
    world.cluster.apply_schedules("here", &[], &["one".to_owned()]).await.unwrap();
    ids(&world, &["directive:one", "directive:theirs"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_starts_the_workflow_of_the_directive() {
    let world = World::new(Reel::new(3, 2).closed_after(1)).await;
    let serving = world.serve("one", World::options()).await;
    world.cluster.apply_schedules("here", &[scheduled("issues", "0 3 1 1 *")], &[]).await.unwrap();
    let fired = trigger(&world, 1).await;
    world.record_of("scheduled", &fired, None).await;
    let workflow = world.cluster.workflow("issues").await.unwrap().unwrap();
    world.pages(&workflow.run, 1).await;
    // One that goes on stands for the next.
    let skipped = trigger(&world, 2).await;
    world.record_of("scheduled-skipped", &skipped, None).await;
    world.reel.open_gate();
    world.completed(&workflow.run).await;
    assert_eq!(world.rows(), 6);
    assert_eq!(world.store.runs(Some("issues"), None, 10).await.unwrap().len(), 1);
    assert_eq!(world.cluster.workflows().await.unwrap().len(), 1);
    serving.stop().await;
}

/// Has the schedule fire, and waits until what it starts has done its part.
async fn trigger(world: &World, times: usize) -> String {
    let triggered = world.namespace.run(&["schedule", "trigger", "--schedule-id", "directive:issues"]);
    assert!(triggered.status.success(), "{triggered:?}");
    let query = "WorkflowType = 'stargate.directive.scheduled' AND ExecutionStatus = 'Completed'";
    eventually(PATIENCE, "the schedule", || async {
        let found = world.namespace.json(&["workflow", "list", "--query", query]);
        let count = found.as_array().map_or(0, Vec::len);
        let newest = found[0]["execution"]["workflowId"].as_str().unwrap_or_default().to_owned();
        if count == times { Ok(newest) } else { Err(found.to_string()) }
    })
    .await
}
