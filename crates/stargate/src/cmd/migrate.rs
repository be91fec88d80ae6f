//! `stargate migrate`: brings the store's schema up to date.

use crate::assemble::{self, Migrate};
use crate::failure::Result;
use crate::run::App;

/// Runs the command.
pub(crate) async fn run(app: &App) -> Result<()> {
    let store = assemble::open(&app.settings, Migrate::Yes).await?;
    let health = store.check().await?;
    let (name, schema) = (store.facts().name, health.schema);
    match app.out.json {
        true => app.out.json(&serde_json::json!({ "store": name, "schema": schema })),
        false => app.out.line(format!("the {name} store is at schema {schema}")),
    }
    Ok(())
}
