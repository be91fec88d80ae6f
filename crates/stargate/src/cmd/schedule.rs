//! `stargate schedule …`: durable cron schedules.

use clap::{Args, Subcommand};
use jiff::Timestamp;
use reqwest::Method;
use serde::Serialize;
use serde_json::value::RawValue;
use stargate_queue::schedule::{self, Schedule};
use stargate_queue::store::Store;
use stargate_queue::{Error, NewJob};
use stargate_web::api::types;

use crate::assemble;
use crate::auditing::Desk;
use crate::failure::Result;
use crate::output::{self, Output};
use crate::payload;
use crate::run::App;

/// `schedule …`
#[derive(Debug, Subcommand)]
pub(crate) enum ScheduleCommand {
    /// List schedules with their next instants
    List,
    /// Add or replace a schedule
    Add(Add),
    /// Remove a schedule
    Remove(Named),
    /// Enqueue the job of a schedule now; its next instant stays
    #[command(
        after_help = "Example:\n  stargate schedule fire nightly\n\nPrints the id of the job, alone, on standard output."
    )]
    Fire(Named),
}

/// `schedule add`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stargate schedule add nightly '0 3 * * *' report --time-zone Europe/Berlin
  stargate schedule add tick '*/10 * * * * *' ping '{\"n\": 1}'      six fields: seconds first

Instants missed while nothing ran are made up for by one firing.")]
pub(crate) struct Add {
    /// Its name
    name: String,
    /// Five fields (six with seconds), or @hourly, @daily, …
    cron: String,
    /// Kind of the job it enqueues
    kind: String,
    /// Payload of the job: JSON, @FILE, or - for standard input [default: {}]
    #[arg(value_name = "JSON|@FILE|-")]
    payload: Option<String>,
    /// Zone the fields are read in
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    time_zone: String,
    /// Queue of the job
    #[arg(long, default_value = "default")]
    queue: String,
    /// Priority of the job, 0 to 9999
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(i16).range(0..=9999))]
    priority: i16,
}

/// One schedule.
#[derive(Debug, Args)]
pub(crate) struct Named {
    /// Its name
    name: String,
}

#[derive(Serialize)]
struct ScheduleView<'a> {
    name: &'a str,
    cron: &'a str,
    time_zone: &'a str,
    kind: &'a str,
    queue: &'a str,
    payload: &'a RawValue,
    priority: i16,
    next_at: Option<Timestamp>,
    last_at: Option<Timestamp>,
    description: String,
}

impl ScheduleCommand {
    /// Runs the command.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        match self {
            Self::List => list(app.jobs().await?.as_ref(), app.out).await,
            Self::Add(add) => add.run(&Desk::open(app).await?, app).await,
            Self::Fire(named) => named.fire(app).await,
            Self::Remove(remove) => {
                let (desk, name) = (Desk::open(app).await?, &remove.name);
                let work = async {
                    match desk.jobs.schedule_remove(name).await? {
                        true => Ok(()),
                        false => Err(Error::NotFound { what: "schedule", name: name.clone() }),
                    }
                };
                desk.act("schedule.remove", name, serde_json::Value::Null, work).await?;
                match app.out.json {
                    true => app.out.json(&serde_json::json!({ "name": remove.name, "removed": true })),
                    false => app.out.line(format!("schedule {} is removed", remove.name)),
                }
                Ok(())
            }
        }
    }
}

impl Add {
    async fn run(&self, desk: &Desk, app: &App) -> Result<()> {
        let store = desk.jobs.as_ref();
        let schedule = Schedule {
            name: self.name.clone(),
            cron: self.cron.clone(),
            time_zone: self.time_zone.clone(),
            kind: self.kind.clone(),
            queue: self.queue.clone(),
            payload: payload::read(self.payload.as_deref())?,
            priority: self.priority,
            next_at: None,
            last_at: None,
        };
        schedule.check()?;
        // What a node serves is its own affair.
        let ours = assemble::specs(&app.settings)?;
        if app.remote.is_none() && ours.iter().any(|spec| spec.name == schedule.kind) {
            store.kinds_register(ours).await?;
        }
        let known = store.kinds().await?;
        if !known.iter().any(|spec| spec.name == schedule.kind) {
            let known = known.into_iter().map(|spec| spec.name).collect();
            return Err(Error::UnknownKind { kind: schedule.kind, known }.into());
        }
        let detail = serde_json::json!({
            "cron": schedule.cron, "time_zone": schedule.time_zone, "kind": schedule.kind,
        });
        let work = schedule::put(store, schedule.clone());
        desk.act("schedule.put", &schedule.name, detail, work).await?;
        if app.out.json {
            let stored = store.schedules().await?;
            stored
                .iter()
                .filter(|other| other.name == schedule.name)
                .for_each(|stored| app.out.json(&view(stored)));
            return Ok(());
        }
        let words = schedule.in_words();
        app.out.line(format!(
            "schedule {}: {}, {}",
            schedule.name,
            words.trim_end_matches('.'),
            schedule.time_zone
        ));
        let now = store.now().await?;
        let mut instant = now;
        for _ in 0..3 {
            let Some(next) = schedule.next_after(instant)? else { break };
            app.out.note(output::dim(format!("  {next}  {}", output::when(next, now))));
            instant = next;
        }
        Ok(())
    }
}

impl Named {
    async fn fire(&self, app: &App) -> Result<()> {
        let accepted = match &app.remote {
            Some(node) => {
                let path = ["schedules", &self.name, "fire"];
                node.change::<types::Enqueued>(Method::POST, &path, None::<&()>).await?.id
            }
            None => self.enqueue(&Desk::open(app).await?).await?,
        };
        match app.out.json {
            true => app.out.json(&serde_json::json!({ "id": accepted })),
            false => app.out.line(accepted),
        }
        Ok(())
    }

    async fn enqueue(&self, desk: &Desk) -> Result<i64> {
        let work = async {
            let found = desk.jobs.schedules().await?.into_iter().find(|schedule| schedule.name == self.name);
            let missing = || Error::NotFound { what: "schedule", name: self.name.clone() };
            let Schedule { queue, priority, kind, payload, .. } = found.ok_or_else(missing)?;
            let job = NewJob { queue, priority, ..NewJob::new(kind, payload) };
            let accepted = desk.jobs.enqueue(vec![job]).await?;
            Ok::<_, Error>(accepted.first().map_or(0, |job| job.id.0))
        };
        Ok(desk.act("schedule.fire", &self.name, serde_json::Value::Null, work).await?)
    }
}

fn view(schedule: &Schedule) -> ScheduleView<'_> {
    ScheduleView {
        name: &schedule.name,
        cron: &schedule.cron,
        time_zone: &schedule.time_zone,
        kind: &schedule.kind,
        queue: &schedule.queue,
        payload: &schedule.payload,
        priority: schedule.priority,
        next_at: schedule.next_at,
        last_at: schedule.last_at,
        description: schedule.in_words(),
    }
}

async fn list(store: &dyn Store, out: Output) -> Result<()> {
    let schedules = store.schedules().await?;
    if out.json {
        out.json(&schedules.iter().map(view).collect::<Vec<_>>());
        return Ok(());
    }
    let now = store.now().await?;
    let mut table = output::table(&["schedule", "kind", "queue", "cron", "zone", "next", "last", "in words"]);
    for schedule in &schedules {
        let when = |at: Option<Timestamp>| at.map_or_else(|| "never".to_owned(), |at| output::when(at, now));
        table.add_row(vec![
            schedule.name.clone(),
            schedule.kind.clone(),
            schedule.queue.clone(),
            schedule.cron.clone(),
            schedule.time_zone.clone(),
            when(schedule.next_at),
            when(schedule.last_at),
            schedule.in_words(),
        ]);
    }
    out.table(&table, "no schedules; 'stargate schedule add --help' shows how to add one");
    Ok(())
}
