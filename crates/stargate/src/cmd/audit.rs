//! `stargate audit`: who did what.

use clap::Args;
use comfy_table::{Cell, Color};
use stargate_access::audit::{OK, PAGE_MAX};
use stargate_access::{ActionFilter, ActionId, ActionRow};
use stargate_web::api::types::access::{Action, Actions};

use crate::auditing::failure;
use crate::failure::Result;
use crate::output;
use crate::run::App;
use crate::view::cut;

/// How much of the particulars a table shows.
const DETAIL_CHARS: usize = 60;

/// `audit`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stargate audit
  stargate audit --action 'job.*' --target 42
  stargate audit --actor ci --limit 500 --json

Every change is entered before it is made: by a node, by the page, or by a command beside
the store (as cli:USER@HOST). One without an outcome is under way, or its process died.")]
pub(crate) struct Audit {
    /// Only by this one: the name of a token, local, cli:USER@HOST
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// Only this action (job.retry), or all that begin so (job.*)
    #[arg(long)]
    action: Option<String>,
    /// Only to this: a job's id, the name of a queue
    #[arg(long, value_name = "NAME")]
    target: Option<String>,
    /// Only actions with a smaller id: the next page
    #[arg(long, value_name = "ID")]
    before: Option<i64>,
    /// At most so many, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=i64::from(PAGE_MAX)))]
    limit: u32,
}

impl Audit {
    /// Runs the command.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        let actions = actions(app, self.filter()).await?;
        if app.out.json {
            app.out.json(&actions);
            return Ok(());
        }
        print(&actions, app);
        let full = actions.len() >= usize::try_from(self.limit).unwrap_or(usize::MAX);
        if let (true, Some(last)) = (full, actions.last()) {
            app.out.note(output::dim(format!("there may be more: add --before {}", last.id)));
        }
        Ok(())
    }

    fn filter(&self) -> ActionFilter {
        ActionFilter {
            actor: self.actor.clone(),
            action: self.action.clone(),
            target: self.target.clone(),
            before: self.before.map(ActionId),
            limit: self.limit,
        }
    }
}

/// A page of actions: through the node that was named, else from the store.
pub(crate) async fn actions(app: &App, filter: ActionFilter) -> Result<Vec<Action>> {
    if let Some(node) = &app.remote {
        return Ok(node.read::<Actions>(&["audit"], &query(&filter)).await?.actions);
    }
    let rows = app.stores().await?.audit.actions(filter).await.map_err(|error| failure(&error))?;
    Ok(rows.into_iter().map(view).collect())
}

fn query(filter: &ActionFilter) -> Vec<(&'static str, String)> {
    let texts = [("actor", &filter.actor), ("action", &filter.action), ("target", &filter.target)];
    let mut query: Vec<_> =
        texts.into_iter().filter_map(|(name, text)| Some((name, text.clone()?))).collect();
    query.extend(filter.before.map(|before| ("before", before.to_string())));
    query.push(("limit", filter.limit.to_string()));
    query
}

/// An action with the stable fields of the documentation, which are those of the API.
fn view(row: ActionRow) -> Action {
    Action {
        id: row.id.0,
        at: row.at,
        actor: row.actor,
        token: row.token.map(|token| token.to_string()),
        role: Some(row.role.to_string()),
        action: row.action,
        target: row.target,
        detail: row.detail,
        request_id: row.request_id,
        source: row.source.to_string(),
        outcome: row.outcome,
        finished_at: row.finished_at,
    }
}

fn print(actions: &[Action], app: &App) {
    let now = stargate_base::clock::wall();
    let mut table = output::table(&["id", "when", "who", "action", "target", "outcome", "particulars"]);
    for action in actions {
        let outcome = match action.outcome.as_deref() {
            Some(OK) => Cell::new(OK).fg(Color::Green),
            Some(code) => Cell::new(code).fg(Color::Red),
            None => Cell::new("not known").fg(Color::Yellow),
        };
        let detail = if action.detail.is_null() { String::new() } else { action.detail.to_string() };
        table.add_row(vec![
            Cell::new(action.id),
            Cell::new(output::when(action.at, now)),
            Cell::new(&action.actor),
            Cell::new(&action.action),
            Cell::new(&action.target),
            outcome,
            Cell::new(cut(&detail, DETAIL_CHARS)),
        ]);
    }
    app.out.table(&table, "nothing was changed yet, or nothing that fits");
}
