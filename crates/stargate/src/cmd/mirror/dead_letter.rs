//! `stargate mirror dead-letter …`: entries that were given up.

use std::time::Duration;

use clap::{Args, Subcommand};
use stargate_mirror::dead_letter::{Payload, Requeue, State, Stored};
use stargate_mirror::metrics::reason_text;
use stargate_mirror::{DeadLetters, Journal};

use super::At;
use crate::auditing::audited_if_there;
use crate::config::interval;
use crate::failure::{Failure, Result};
use crate::output::{self, dim, when};
use crate::run::App;
use crate::view::cut;

/// Letters of one listing at most.
const LIST_MAX: i64 = 10_000;
/// Letters that are looked through at once.
const PAGE: usize = 1000;
/// How much of an error a table shows.
const ERROR_CHARS_MAX: usize = 100;

/// `mirror dead-letter …`
#[derive(Debug, Subcommand)]
pub(crate) enum DeadLetterCommand {
    /// Those that nobody has requeued
    #[command(after_help = "Example:\n  stargate mirror dead-letter list --repo tools --json")]
    List(List),
    /// Everything about one
    Show(Show),
    /// Put them into the journal again; works while a mirror runs
    #[command(after_help = "Examples:\n  stargate mirror dead-letter requeue --repo tools ID\n  \
        stargate mirror dead-letter requeue --repo tools --all\n\n\
        One that was requeued before is not requeued twice, unless --again is given. An entry that the \
        remote already has ends as superseded.")]
    Requeue(RequeueLetters),
    /// Remove old ones, at least 30 days old
    Purge(Purge),
}

/// `mirror dead-letter list`
#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    pub(super) at: At,
    /// Also those that were requeued
    #[arg(long)]
    pub(super) all: bool,
    /// How many, 1 to 10000
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=LIST_MAX))]
    pub(super) limit: u32,
    /// Only those after this one
    #[arg(long, value_name = "ID")]
    pub(super) after: Option<String>,
}

/// `mirror dead-letter show`
#[derive(Debug, Args)]
pub(crate) struct Show {
    #[command(flatten)]
    pub(super) at: At,
    /// Its id
    pub(super) id: String,
}

/// `mirror dead-letter requeue`
#[derive(Debug, Args)]
pub(crate) struct RequeueLetters {
    #[command(flatten)]
    pub(super) at: At,
    /// Their ids
    #[arg(value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
    pub(super) ids: Vec<String>,
    /// All that nobody has requeued
    #[arg(long)]
    pub(super) all: bool,
    /// Also those that were requeued before
    #[arg(long, conflicts_with = "all")]
    pub(super) again: bool,
}

/// `mirror dead-letter purge`
#[derive(Debug, Args)]
pub(crate) struct Purge {
    #[command(flatten)]
    pub(super) at: At,
    /// Remove those that were given up so long ago [default: mirror.dead_letter_retention, 30d]
    #[arg(long, value_name = "TIME", value_parser = interval::parse)]
    pub(super) older_than: Option<Duration>,
}

impl DeadLetterCommand {
    pub(super) async fn run(&self, app: &App) -> Result<()> {
        match self {
            Self::List(list) => list.run(app).await,
            Self::Show(show) => show.run(app).await,
            Self::Requeue(requeue) => requeue.run(app).await,
            Self::Purge(purge) => purge.run(app).await,
        }
    }
}

impl List {
    async fn run(&self, app: &App) -> Result<()> {
        let target = self.at.repository(app).await?;
        let letters = DeadLetters::open(target.repo.path())?;
        let wanted = |stored: &Stored| self.all || stored.state == State::Open;
        let found = collect(&letters, self.after.clone(), self.limit as usize, wanted)?;
        if app.out.json {
            app.out.json(&found);
            return Ok(());
        }
        let now = stargate_base::clock::wall();
        let mut table = output::table(&["id", "reason", "ref", "tries", "when", "state", "error"]);
        for stored in &found {
            let letter = &stored.letter;
            table.add_row([
                letter.dead_letter_id.clone(),
                reason_text(letter.reason).to_owned(),
                ref_of(stored),
                letter.attempts.to_string(),
                when(letter.dead_lettered_at, now),
                if stored.state == State::Open { "open" } else { "requeued" }.to_owned(),
                cut(&letter.error.replace('\n', " "), ERROR_CHARS_MAX),
            ]);
        }
        app.out.table(&table, "no dead letters");
        Ok(())
    }
}

impl Show {
    async fn run(&self, app: &App) -> Result<()> {
        let target = self.at.repository(app).await?;
        let stored = DeadLetters::open(target.repo.path())?.show(&self.id)?;
        if app.out.json {
            app.out.json(&stored);
            return Ok(());
        }
        let letter = &stored.letter;
        let mut facts = vec![
            ("id", letter.dead_letter_id.clone()),
            ("entry", letter.entry_id.clone()),
            ("reason", reason_text(letter.reason).to_owned()),
            ("error", letter.error.clone()),
            ("tries", format!("{}, first at {}", letter.attempts, letter.first_attempt_at)),
            ("given up", letter.dead_lettered_at.to_string()),
            ("journal", format!("segment {}, byte {}", letter.journal.segment, letter.journal.offset)),
        ];
        facts.extend(letter.git_exit.map(|exit| ("git exit", exit.to_string())));
        facts.extend(letter.per_ref.iter().map(|one| ("ref", format!("{}: {}", one.ref_name, one.status))));
        if let Some(requeued) = &stored.requeued {
            facts.push(("requeued", format!("as {} at {}", requeued.entry_id, requeued.at)));
        }
        facts.push(("payload", String::from_utf8_lossy(&letter.payload.bytes()).into_owned()));
        for (name, value) in facts {
            // What came from outside must not steer the terminal.
            let value: String = value.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
            app.out.line(format!("{}  {value}", dim(format!("{name:<9}"))));
        }
        Ok(())
    }
}

impl RequeueLetters {
    async fn run(&self, app: &App) -> Result<()> {
        let target = self.at.repository(app).await?;
        let letters = DeadLetters::open(target.repo.path())?;
        let journal = Journal::open(target.repo.path())?;
        let ids = match self.all {
            true => open_ids(&letters)?,
            false => self.ids.clone(),
        };
        let detail = serde_json::json!({ "ids": ids.len(), "again": self.again });
        let work = async { self.requeue(app, &letters, &journal, &ids) };
        let (done, failed) = audited_if_there(app, "dead-letter.requeue", &target.name, detail, work).await?;
        match app.out.json {
            true => app.out.json(&done),
            false => done.iter().for_each(|one| app.out.line(one["entry_id"].as_str().unwrap_or_default())),
        }
        failed.map_or(Ok(()), Err)
    }
}

/// What was requeued, and the first that could not be.
type Requeued = (Vec<serde_json::Value>, Option<Failure>);

impl RequeueLetters {
    fn requeue(
        &self,
        app: &App,
        letters: &DeadLetters,
        journal: &Journal,
        ids: &[String],
    ) -> Result<Requeued> {
        let how = if self.again { Requeue::Again } else { Requeue::Once };
        let (mut done, mut failed) = (Vec::new(), None);
        for id in ids {
            match letters.requeue(journal, id, how) {
                Ok(requeued) => done.push(serde_json::json!({
                    "dead_letter_id": id, "entry_id": requeued.entry_id, "seq": requeued.seq, "at": requeued.at,
                })),
                Err(error) if error.is_fail_stop() => return Err(error.into()),
                // With --all the others are still worth it; what cannot be requeued stays where it is.
                Err(error) if self.all => {
                    app.out.note(format!("{id}: {error}"));
                    failed = failed.or(Some(Failure::from(error)));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok((done, failed))
    }
}

impl Purge {
    async fn run(&self, app: &App) -> Result<()> {
        let target = self.at.repository(app).await?;
        let older_than = self.older_than.unwrap_or(app.settings.mirror.retention);
        let letters = DeadLetters::open(target.repo.path())?;
        let detail = serde_json::json!({ "older_than_sec": older_than.as_secs() });
        let work = async { letters.purge(older_than).map_err(Failure::from) };
        let purged = audited_if_there(app, "dead-letter.purge", &target.name, detail, work).await?;
        match app.out.json {
            true => app.out.json(&serde_json::json!({ "purged": purged })),
            false => app.out.line(format!("removed {} dead letters", purged.len())),
        }
        Ok(())
    }
}

fn open_ids(letters: &DeadLetters) -> Result<Vec<String>> {
    let open = collect(letters, None, usize::MAX, |stored| stored.state == State::Open)?;
    Ok(open.into_iter().map(|stored| stored.letter.dead_letter_id).collect())
}

/// The first letters that are wanted, page by page.
fn collect(
    letters: &DeadLetters,
    mut after: Option<String>,
    limit: usize,
    wanted: impl Fn(&Stored) -> bool,
) -> Result<Vec<Stored>> {
    let mut found = Vec::new();
    loop {
        let page = letters.list(after.as_deref(), PAGE)?;
        let Some(last) = page.last() else { return Ok(found) };
        after = Some(last.letter.dead_letter_id.clone());
        for stored in page {
            if found.len() >= limit {
                return Ok(found);
            }
            if wanted(&stored) {
                found.push(stored);
            }
        }
    }
}

fn ref_of(stored: &Stored) -> String {
    let name = match &stored.letter.payload {
        Payload::Entry(fields) => fields.get("ref").and_then(|value| value.as_str()),
        Payload::Raw { .. } => None,
    };
    name.map_or_else(|| "-".to_owned(), |name| cut(name, ERROR_CHARS_MAX))
}
