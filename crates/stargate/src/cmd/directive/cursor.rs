//! `stargate directive cursor …`: where a directive stands, and moving it by hand.

use clap::{Args, Subcommand};
use stargate_directive::kv::Keys;
use stargate_directive::store::PAGE_MAX;
use stargate_directive::{Cursor, Directives, Pointer};

use super::found;
use crate::assemble::Stores;
use crate::auditing::audited;
use crate::directing::steer::{self, Move};
use crate::directing::{Catalogue, view};
use crate::failure::{Failure, Result};
use crate::output::{self, Output};
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
    pub(super) name: String,
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
    pub(super) name: String,
    /// Where the source is to go on, as 'cursor show' prints it: JSON
    #[arg(long, value_name = "JSON", required_unless_present = "beginning")]
    pub(super) pointer: Option<String>,
    /// Back to the beginning of the source
    #[arg(long, conflicts_with = "pointer")]
    pub(super) beginning: bool,
    /// Why: an issue, a decision, a document
    #[arg(long, value_name = "REF")]
    pub(super) spec_ref: String,
    /// Only if the cursor still has this version
    #[arg(long, value_name = "N")]
    pub(super) expected_version: Option<u64>,
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
            Self::Set(set) => set.run(&stores, &keys, app.out).await,
            Self::History(_) => history(store, &keys, app.out).await,
        }
    }
}

async fn show(store: &dyn Directives, keys: &Keys, out: Output) -> Result<()> {
    let (cursor, partial) = (store.kv_get(&keys.cursor).await?, store.kv_get(&keys.partial).await?);
    if out.json {
        let partial = partial.map(|entry| entry.value);
        out.json(&serde_json::json!({ "cursor": cursor.map(view::entry), "partial": partial }));
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

impl Set {
    async fn run(&self, stores: &Stores, keys: &Keys, out: Output) -> Result<()> {
        let pointer = match &self.pointer {
            None => Pointer::Null,
            Some(text) => serde_json::from_str(text)
                .map_err(|error| Failure::input(format!("--pointer is not JSON: {error}")))?,
        };
        let (spec_ref, expected_version) = (self.spec_ref.clone(), self.expected_version);
        let wanted = Move { pointer, spec_ref, expected_version };
        let detail = serde_json::json!({ "spec_ref": self.spec_ref, "beginning": self.beginning });
        let work = steer::move_cursor(stores.directives.as_ref(), keys, &self.name, wanted);
        let (version, cursor) = audited(&stores.audit, "cursor.set", &self.name, detail, work).await?;
        match out.json {
            true => {
                out.json(&serde_json::json!({ "directive": self.name, "version": version, "cursor": cursor }))
            }
            false => out.line(format!("the cursor of {} has version {version} now", self.name)),
        }
        Ok(())
    }
}

async fn history(store: &dyn Directives, keys: &Keys, out: Output) -> Result<()> {
    let moves = store.kv_overrides(keys.cursor.as_str(), PAGE_MAX).await?;
    if out.json {
        out.json(&moves.into_iter().map(view::moved).collect::<Vec<_>>());
        return Ok(());
    }
    let mut table = output::table(&["when", "by", "spec ref", "version", "from", "to"]);
    for found in &moves {
        table.add_row(vec![
            found.at.to_string(),
            found.writer.clone(),
            found.spec_ref.clone(),
            found.version.to_string(),
            view::pointer(found.before.as_ref()),
            view::pointer(found.after.as_ref()),
        ]);
    }
    out.table(&table, "nobody has moved this cursor by hand");
    Ok(())
}
