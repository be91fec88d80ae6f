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
    /// Whose schedule it is, of all that use the namespace: only theirs are removed by an installation.
    pub installation: String,
}

/// What is to be done about a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change<'a> {
    Create(&'a Scheduled),
    Update(&'a Scheduled),
    Delete(String),
}

impl Cluster {
    /// Makes the schedules of an installation those that are wanted. Those of `kept` stay as they are: their
    /// directives cannot be read now, which is no reason to forget them. Schedules of others are not touched.
    pub async fn apply_schedules(
        &self,
        installation: &str,
        wanted: &[Scheduled],
        kept: &[String],
    ) -> Result<()> {
        let known = self.known_schedules().await?;
        for change in changes(installation, &known, wanted, kept) {
            let applied = match &change {
                Change::Create(scheduled) => self.create(scheduled).await,
                Change::Update(scheduled) => self.update(scheduled).await,
                Change::Delete(id) => self.delete(id).await,
            };
            match applied {
                Ok(()) => tracing::info!(?change, "applied a schedule"),
                // The others are not to wait for one that the cluster cannot read.
                Err(error) if is(&error, Code::InvalidArgument) => {
                    let error = self.error("applying a schedule", &error);
                    tracing::error!(?change, %error, "the cluster does not take a schedule; the directive runs only when asked");
                }
                Err(error) => return Err(self.error("applying schedules", &error)),
            }
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
                && schedule.workflow_type() == Some(SCHEDULED);
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

fn changes<'a>(
    installation: &str,
    known: &HashMap<String, String>,
    wanted: &'a [Scheduled],
    kept: &[String],
) -> Vec<Change<'a>> {
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
    let is_ours = |note: &str| note.starts_with(&format!("{NOTE} {installation}: "));
    let gone = known.iter().filter(|(id, note)| !stays(id) && is_ours(note)).map(|(id, _)| id.clone());
    let mut gone: Vec<String> = gone.collect();
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
        .cron_strings(crons(&scheduled.cron))
        .timezone_name(scheduled.time_zone.clone())
        .build()
}

/// The expression as the cluster reads it. Where both a day of the month and one of the week are named, either will do
/// here, and there both must fit: so it is told twice.
fn crons(expression: &str) -> Vec<String> {
    let fields: Vec<&str> = expression.split_whitespace().collect();
    let first = fields.len().saturating_sub(5);
    let is_named = |field: usize| fields.get(first + field).is_some_and(|day| !["*", "?"].contains(day));
    if fields.len() < 5 || !is_named(2) || !is_named(4) {
        return vec![cron(expression)];
    }
    let without = |field: usize| {
        let mut fields = fields.clone();
        fields[first + field] = "*";
        cron(&fields.join(" "))
    };
    vec![without(4), without(2)]
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
    let Scheduled { cron, time_zone, queue, installation, .. } = scheduled;
    format!("{NOTE} {installation}: {cron} {time_zone} {queue}")
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
            installation: "here".to_owned(),
        }
    }

    #[test]
    fn only_what_differs_is_changed() {
        let wanted = [nightly("new"), nightly("same"), nightly("changed")];
        let known = HashMap::from([
            ("directive:same".to_owned(), note(&nightly("same"))),
            ("directive:changed".to_owned(), "stargate here: 0 4 * * * UTC meta-py".to_owned()),
            ("directive:elsewhere".to_owned(), "stargate there: 0 4 * * * UTC meta-py".to_owned()),
            ("directive:gone".to_owned(), note(&nightly("gone"))),
            ("directive:broken".to_owned(), note(&nightly("broken"))),
        ]);
        let found = changes("here", &known, &wanted, &["broken".to_owned()]);
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

    #[test]
    fn a_day_of_the_month_or_of_the_week_is_told_twice() {
        assert_eq!(crons("0 4 1 * MON"), ["0 4 1 * *", "0 4 * * MON"]);
        assert_eq!(crons("30 0 4 1 * MON"), ["30 0 4 1 * * *", "30 0 4 * * MON *"]);
        assert_eq!(crons("0 4 * * MON"), ["0 4 * * MON"]);
        assert_eq!(crons("@hourly"), ["@hourly"]);
    }
}
