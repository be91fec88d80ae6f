//! `stargate directive cursor …`: where a directive stands, and moving it by hand.

use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use stargate_directive::kv::{Keys, Purpose};
use stargate_directive::store::PAGE_MAX;
use stargate_directive::{Cursor, Directives, Entry, Expected, Override, Pointer, Put, PutAnswer};

use super::found;
use crate::directing::Catalogue;
use crate::failure::{Exit, Failure, Result};
use crate::output::{self, Output};
use crate::payload;
use crate::run::App;

/// `directive cursor …`
#[derive(Debug, Subcommand)]
pub(crate) enum CursorCommand {
    /// Show where a directive stands
    Show(Show),
    /// Move it by hand; the reason is kept
    Set(Set),
    /// List moves by hand
    History(Show),
}

/// `directive cursor show`
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The directive
    name: String,
}

/// `directive cursor set`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stargate directive cursor set issues --beginning --spec-ref OPS-12
  stargate directive cursor set issues --pointer '{\"after\": \"abc\"}' --spec-ref OPS-12

A run that goes on meanwhile notices, and goes on from the new place. Items that were read
before are read again and not written again, as long as they have not changed.")]
pub(crate) struct Set {
    /// The directive
    name: String,
    /// Where the source is to go on, as 'cursor show' prints it: JSON
    #[arg(long, value_name = "JSON", required_unless_present = "beginning")]
    pointer: Option<String>,
    /// Back to the beginning of the source
    #[arg(long, conflicts_with = "pointer")]
    beginning: bool,
    /// Why: an issue, a decision, a document
    #[arg(long, value_name = "REF")]
    spec_ref: String,
    /// Only if the cursor still has this version
    #[arg(long, value_name = "N")]
    expected_version: Option<u64>,
}

#[derive(Serialize)]
struct EntryView<'a> {
    key: &'a str,
    value: &'a RawValue,
    version: u64,
    request_id: &'a str,
    last_writer: &'a str,
    spec_ref: Option<&'a str>,
    updated_at: Timestamp,
}

#[derive(Serialize)]
struct OverrideView<'a> {
    at: Timestamp,
    writer: &'a str,
    spec_ref: &'a str,
    before: Option<&'a RawValue>,
    after: Option<&'a RawValue>,
    version: u64,
}

impl CursorCommand {
    /// Runs the command.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        let (Self::Show(Show { name }) | Self::Set(Set { name, .. }) | Self::History(Show { name })) = self;
        let directive = found(Catalogue::of(&app.settings).find(name))?;
        let keys = Keys::of(&directive.tenant, &directive.project, &directive.name)?;
        let stores = app.stores().await?;
        let store = stores.directives.as_ref();
        match self {
            Self::Show(_) => show(store, &keys, app.out).await,
            Self::Set(set) => set.run(store, &keys, app.out).await,
            Self::History(_) => history(store, &keys, app.out).await,
        }
    }
}

async fn show(store: &dyn Directives, keys: &Keys, out: Output) -> Result<()> {
    let (cursor, partial) = (store.kv_get(&keys.cursor).await?, store.kv_get(&keys.partial).await?);
    if out.json {
        let partial = partial.as_ref().map(|entry| &*entry.value);
        out.json(&serde_json::json!({ "cursor": cursor.as_ref().map(view), "partial": partial }));
        return Ok(());
    }
    let Some(entry) = cursor else {
        out.note(output::dim("no cursor yet; the first run begins at the source's beginning"));
        return Ok(());
    };
    out.line(format!("key        {}", entry.key));
    match serde_json::from_str::<Cursor>(entry.value.get()) {
        Ok(cursor) => {
            out.line(format!("pointer    {}", cursor.source_pointer));
            out.line(format!("processed  {}", output::grouped(cursor.processed_count)));
            out.line(format!("checksum   {}", cursor.checksum));
        }
        Err(_) => out.line(format!("value      {}", entry.value)),
    }
    out.line(format!("version    {}", entry.version));
    out.line(format!("written    {} by {}", entry.updated_at, entry.last_writer));
    if let Some(reason) = &entry.spec_ref {
        out.line(format!("spec ref   {reason}"));
    }
    if let Some(partial) = partial {
        out.line(format!("beyond it  {}", partial.value));
    }
    Ok(())
}

fn view(entry: &Entry) -> EntryView<'_> {
    EntryView {
        key: entry.key.as_str(),
        value: &entry.value,
        version: entry.version,
        request_id: &entry.request_id,
        last_writer: &entry.last_writer,
        spec_ref: entry.spec_ref.as_deref(),
        updated_at: entry.updated_at,
    }
}

impl Set {
    async fn run(&self, store: &dyn Directives, keys: &Keys, out: Output) -> Result<()> {
        if self.spec_ref.trim().is_empty() {
            return Err(
                Failure::input("--spec-ref is empty").help("name what asks for this: an issue, a decision")
            );
        }
        let pointer = match &self.pointer {
            None => Pointer::Null,
            Some(text) => serde_json::from_str(text)
                .map_err(|error| Failure::input(format!("--pointer is not JSON: {error}")))?,
        };
        let entry = store.kv_get(&keys.cursor).await?;
        let found = entry.as_ref().map_or(0, |entry| entry.version);
        if let Some(expected) = self.expected_version.filter(|expected| *expected != found) {
            return Err(moved(&format!("the cursor has version {found}, not {expected}")));
        }
        let expected = entry.map_or(Expected::Absent, |entry| Expected::Version(entry.version));
        let cursor = Cursor {
            source_pointer: pointer,
            processed_count: 0,
            checksum: String::new(),
            batch_id: None,
            spec_ref: Some(self.spec_ref.clone()),
        };
        let put = Put {
            key: keys.cursor.clone(),
            value: Some(payload::of(&cursor)?),
            expected,
            request_id: format!("operator/{found}/{}", ulid()),
            writer: format!("operator:{}", self.name),
            purpose: Purpose::Cursor,
            spec_ref: Some(self.spec_ref.clone()),
            ttl: None,
        };
        forget_partial(store, keys).await?;
        match store.kv_put(put).await? {
            PutAnswer::Stored { version } if out.json => {
                out.json(
                    &serde_json::json!({ "directive": self.name, "version": version, "cursor": cursor }),
                );
            }
            PutAnswer::Stored { version } => {
                out.line(format!("the cursor of {} has version {version} now", self.name));
            }
            PutAnswer::Conflict { .. } => return Err(moved("the cursor was moved meanwhile")),
        }
        Ok(())
    }
}

/// What was noted beyond the old place means nothing at the new one.
async fn forget_partial(store: &dyn Directives, keys: &Keys) -> Result<()> {
    let Some(partial) = store.kv_get(&keys.partial).await? else { return Ok(()) };
    let put = Put {
        key: keys.partial.clone(),
        value: None,
        expected: Expected::Version(partial.version),
        request_id: format!("operator/{}/{}", partial.version, ulid()),
        writer: "operator".to_owned(),
        purpose: Purpose::Checkpoint,
        spec_ref: None,
        ttl: None,
    };
    store.kv_put(put).await?;
    Ok(())
}

fn ulid() -> String {
    ulid::Ulid::generate().to_string()
}

fn moved(message: &str) -> Failure {
    Failure::new(Exit::Conflict, "CONFLICT", message)
        .help("look with 'stargate directive cursor show', then decide")
}

async fn history(store: &dyn Directives, keys: &Keys, out: Output) -> Result<()> {
    let moves = store.kv_overrides(keys.cursor.as_str(), PAGE_MAX).await?;
    if out.json {
        out.json(&moves.iter().map(override_view).collect::<Vec<_>>());
        return Ok(());
    }
    let mut table = output::table(&["when", "by", "spec ref", "version", "from", "to"]);
    for found in &moves {
        let pointer = |value: Option<&RawValue>| {
            let cursor = value.and_then(|value| serde_json::from_str::<Cursor>(value.get()).ok());
            cursor.map_or_else(|| "-".to_owned(), |cursor| cursor.source_pointer.to_string())
        };
        table.add_row(vec![
            found.at.to_string(),
            found.writer.clone(),
            found.spec_ref.clone(),
            found.version.to_string(),
            pointer(found.before.as_deref()),
            pointer(found.after.as_deref()),
        ]);
    }
    out.table(&table, "nobody has moved this cursor by hand");
    Ok(())
}

fn override_view(found: &Override) -> OverrideView<'_> {
    OverrideView {
        at: found.at,
        writer: &found.writer,
        spec_ref: &found.spec_ref,
        before: found.before.as_deref(),
        after: found.after.as_deref(),
        version: found.version,
    }
}
