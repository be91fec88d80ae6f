//! Schedules of the cluster from those of directives.

use std::collections::HashMap;
use std::time::Duration;

use futures::StreamExt as _;
use temporalio_client::schedules::{
    CreateScheduleOptions, DeleteScheduleOptions, ListSchedulesOptions, ScheduleAction, ScheduleError,
    ScheduleOverlapPolicy, ScheduleSpec, ScheduleUpdate,
};
use temporalio_client::tonic::Code;

use crate::cluster::Cluster;
use crate::error::{Result, status_of};
use crate::plan::{Input, SCHEDULED};
use crate::workflow::ScheduledWorkflow;
use crate::{WORKFLOW_ID_PREFIX, workflow_id};

/// How late a run is still started that the cluster could not start in time.
const CATCH_UP: Duration = Duration::from_secs(60);
/// What the note of our schedules begins with; the rest of it says what was applied.
const NOTE: &str = "stargate";
/// Schedules that are looked at.
const SCHEDULES_MAX: usize = 10_000;

/// A directive that runs by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheduled {
    /// The directive.
    pub directive: String,
    /// A cron expression: five fields, or six with seconds first.
    pub cron: String,
    /// Where its hours are those of the clock.
    pub time_zone: String,
    /// Where its runs wait.
    pub queue: String,
}

/// What is to be done about a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change<'a> {
    Create(&'a Scheduled),
    Update(&'a Scheduled),
    Delete(String),
}

impl Cluster {
    /// Makes the cluster's schedules of directives those that are wanted. Those of `kept` stay as they are: their
    /// directives cannot be read now, which is no reason to forget them. Schedules of others are not touched.
    pub async fn apply_schedules(&self, wanted: &[Scheduled], kept: &[String]) -> Result<()> {
        let known = self.known_schedules().await?;
        for change in changes(&known, wanted, kept) {
            let applied = match &change {
                Change::Create(scheduled) => self.create(scheduled).await,
                Change::Update(scheduled) => self.update(scheduled).await,
                Change::Delete(id) => self.delete(id).await,
            };
            applied.map_err(|error| self.error("applying schedules", &error))?;
            tracing::info!(agent = "meta-worker", change = ?change, "applied a schedule");
        }
        Ok(())
    }

    /// Our schedules by their ids, with their notes.
    async fn known_schedules(&self) -> Result<HashMap<String, String>> {
        let listed = self.client.list_schedules(ListSchedulesOptions::default());
        let listed = listed.take(SCHEDULES_MAX).collect::<Vec<_>>();
        let mut known = HashMap::new();
        for schedule in self.timely("listing schedules", listed).await? {
            let schedule = schedule.map_err(|error| self.error("listing schedules", &error))?;
            let is_ours = schedule.schedule_id().starts_with(WORKFLOW_ID_PREFIX)
                && schedule.workflow_type().is_none_or(|kind| kind == SCHEDULED);
            if is_ours {
                known.insert(
                    schedule.schedule_id().to_owned(),
                    schedule.note().unwrap_or_default().to_owned(),
                );
            }
        }
        Ok(known)
    }

    async fn create(&self, scheduled: &Scheduled) -> Result<(), ScheduleError> {
        let options = CreateScheduleOptions::builder()
            .action(action(scheduled))
            .spec(spec(scheduled))
            .overlap_policy(ScheduleOverlapPolicy::Skip)
            .note(note(scheduled))
            .build();
        match self.client.create_schedule(workflow_id(&scheduled.directive), options).await {
            Err(error) if !is(&error, Code::AlreadyExists) => Err(error),
            // Another worker was faster, or what cannot be said with a new one is still to be said.
            _ => self.update(scheduled).await,
        }
    }

    async fn update(&self, scheduled: &Scheduled) -> Result<(), ScheduleError> {
        let scheduled = scheduled.clone();
        let handle = self.client.get_schedule_handle(workflow_id(&scheduled.directive));
        let change = move |update: &mut ScheduleUpdate| {
            update
                .set_action(action(&scheduled))
                .set_spec(spec(&scheduled))
                .set_overlap_policy(ScheduleOverlapPolicy::Skip)
                .set_catchup_window(CATCH_UP)
                .set_note(note(&scheduled));
        };
        handle.update(change, Default::default()).await
    }

    async fn delete(&self, id: &str) -> Result<(), ScheduleError> {
        match self.client.get_schedule_handle(id).delete(DeleteScheduleOptions::default()).await {
            Err(error) if is(&error, Code::NotFound) => Ok(()),
            deleted => deleted,
        }
    }
}

fn is(error: &ScheduleError, code: Code) -> bool {
    status_of(error).is_some_and(|status| status.code() == code)
}

fn changes<'a>(known: &HashMap<String, String>, wanted: &'a [Scheduled], kept: &[String]) -> Vec<Change<'a>> {
    let mut changes = Vec::new();
    for scheduled in wanted {
        match known.get(&workflow_id(&scheduled.directive)) {
            None => changes.push(Change::Create(scheduled)),
            Some(applied) if *applied != note(scheduled) => changes.push(Change::Update(scheduled)),
            Some(_) => {}
        }
    }
    let stays = |id: &String| {
        let is_named = |name: &str| workflow_id(name) == **id;
        wanted.iter().any(|scheduled| is_named(&scheduled.directive))
            || kept.iter().any(|name| is_named(name))
    };
    let mut gone: Vec<String> = known.keys().filter(|id| !stays(id)).cloned().collect();
    gone.sort();
    changes.extend(gone.into_iter().map(Change::Delete));
    changes
}

fn action(scheduled: &Scheduled) -> ScheduleAction {
    let input = Input::new(&scheduled.directive);
    let id = workflow_id(&scheduled.directive);
    ScheduleAction::start_workflow(ScheduledWorkflow::run, input, scheduled.queue.clone(), id)
}

fn spec(scheduled: &Scheduled) -> ScheduleSpec {
    ScheduleSpec::builder()
        .cron_strings(vec![cron(&scheduled.cron)])
        .timezone_name(scheduled.time_zone.clone())
        .build()
}

/// The expression as the cluster reads it: there the sixth field is the year, and seconds come with the seventh.
fn cron(expression: &str) -> String {
    match expression.split_whitespace().count() {
        6 => format!("{expression} *"),
        _ => expression.to_owned(),
    }
}

/// Says what was applied, so that the same is not applied again.
fn note(scheduled: &Scheduled) -> String {
    format!("{NOTE}: {} {} {}", scheduled.cron, scheduled.time_zone, scheduled.queue)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nightly(directive: &str) -> Scheduled {
        Scheduled {
            directive: directive.to_owned(),
            cron: "0 3 * * *".to_owned(),
            time_zone: "Europe/Berlin".to_owned(),
            queue: "meta-py".to_owned(),
        }
    }

    #[test]
    fn only_what_differs_is_changed() {
        let wanted = [nightly("new"), nightly("same"), nightly("changed")];
        let known = HashMap::from([
            ("directive:same".to_owned(), note(&nightly("same"))),
            ("directive:changed".to_owned(), "stargate: 0 4 * * * UTC meta-py".to_owned()),
            ("directive:gone".to_owned(), note(&nightly("gone"))),
            ("directive:broken".to_owned(), note(&nightly("broken"))),
        ]);
        let found = changes(&known, &wanted, &["broken".to_owned()]);
        let expected = [
            Change::Create(&wanted[0]),
            Change::Update(&wanted[2]),
            Change::Delete("directive:gone".to_owned()),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn seconds_are_written_as_the_cluster_reads_them() {
        assert_eq!(cron("0 3 * * *"), "0 3 * * *");
        assert_eq!(cron("30 0 3 * * *"), "30 0 3 * * * *");
        assert_eq!(cron("@hourly"), "@hourly");
    }
}
