//! `stargate token …`: who may use the API and the repositories.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use serde::Serialize;
use stargate_access::tokens::PAGE_MAX;
use stargate_access::{Grant, NewToken, RepoPattern, Role, Token, TokenId, Tokens};

use crate::assemble::Stores;
use crate::auditing::{audited, failure};
use crate::config::interval;
use crate::failure::Result;
use crate::output;
use crate::run::App;

/// `token …`
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token; its text is printed once, alone on standard output
    #[command(visible_alias = "create")]
    Add(Add),
    /// List tokens: what each allows, when it ends, when it was last used
    List,
    /// Take a token back, for good
    Revoke(Revoke),
}

/// `token add`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stargate token add admin --role admin
  stargate token add ci --role write --repo 'team/*' --expires 90d > ci.token

From the first token on, every request needs one: as the password for git, as
'Authorization: Bearer TOKEN' for the API, in STARGATE_TOKEN for this program.
A token for some repositories opens these and nothing else of the API.")]
pub(crate) struct Add {
    /// What it is for; shown in lists and written beside what is done with it
    name: String,
    /// What it allows; each includes those before it
    #[arg(long)]
    role: RoleName,
    /// Only these repositories: a name, or all below a prefix (team/*); repeatable [default: everything]
    #[arg(long = "repo", value_name = "PATTERN")]
    repos: Vec<RepoPattern>,
    /// How long it is good for [default: until it is revoked]
    #[arg(long, value_name = "TIME", value_parser = interval::parse)]
    expires: Option<Duration>,
}

/// `token revoke`
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  stargate token revoke Xk3b9QwLz0aR\n\nRunning nodes notice within 5 seconds."
)]
pub(crate) struct Revoke {
    /// The id, as listed; not the token itself
    id: String,
}

/// The roles as they are written. The values carry no text of their own, which keeps the help short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RoleName {
    Read,
    Write,
    Operate,
    Admin,
}

impl RoleName {
    /// The role on repositories; on everything where none is named.
    pub(crate) fn grants(self, repos: &[RepoPattern]) -> Vec<Grant> {
        let role = match self {
            Self::Read => Role::Read,
            Self::Write => Role::Write,
            Self::Operate => Role::Operate,
            Self::Admin => Role::Admin,
        };
        match repos {
            [] => vec![Grant { role, repo: RepoPattern::All }],
            repos => repos.iter().map(|repo| Grant { role, repo: repo.clone() }).collect(),
        }
    }
}

#[derive(Serialize)]
struct TokenView<'a> {
    id: &'a str,
    name: &'a str,
    grants: Vec<String>,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    last_used_at: Option<Timestamp>,
    revoked_at: Option<Timestamp>,
}

fn view(token: &Token) -> TokenView<'_> {
    TokenView {
        id: token.id.as_str(),
        name: &token.name,
        grants: token.grants.iter().map(ToString::to_string).collect(),
        created_at: token.created_at,
        expires_at: token.expires_at,
        last_used_at: token.last_used_at,
        revoked_at: token.revoked_at,
    }
}

impl TokenCommand {
    /// Runs the command.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        let stores = app.stores().await?;
        match self {
            Self::Add(add) => add.run(app, &stores).await,
            Self::List => list(app, &*stores.tokens, stores.jobs.now().await?).await,
            Self::Revoke(revoke) => revoke.run(app, &stores).await,
        }
    }
}

impl Add {
    async fn run(&self, app: &App, stores: &Stores) -> Result<()> {
        let grants = self.role.grants(&self.repos);
        let (token, text) =
            NewToken::issue(&self.name, grants, self.expires).map_err(|error| failure(&error))?;
        let id = token.id.clone();
        let grants: Vec<String> = token.grants.iter().map(ToString::to_string).collect();
        let detail = serde_json::json!({ "name": self.name, "grants": grants });
        let work = async { stores.tokens.add(token).await.map_err(|error| failure(&error)) };
        audited(&stores.audit, "token.add", &id, detail, work).await?;
        match app.out.json {
            true => app.out.json(&serde_json::json!({
                "id": id.as_str(), "name": self.name, "grants": grants, "token": text.reveal(),
            })),
            false => {
                app.out.note(format!(
                    "token {id} ({}); keep its text now, it cannot be shown again",
                    grants.join(", ")
                ));
                app.out.line(text.reveal());
            }
        }
        Ok(())
    }
}

async fn list(app: &App, tokens: &dyn Tokens, now: Timestamp) -> Result<()> {
    let mut all: Vec<Token> = Vec::new();
    loop {
        let page = tokens
            .list(all.last().map(|token| &token.id), PAGE_MAX)
            .await
            .map_err(|error| failure(&error))?;
        let is_last = page.len() < PAGE_MAX as usize;
        all.extend(page);
        if is_last {
            break;
        }
    }
    all.sort_by_key(|token| token.created_at);
    if app.out.json {
        app.out.json(&all.iter().map(view).collect::<Vec<_>>());
        return Ok(());
    }
    let mut table = output::table(&["id", "name", "allows", "created", "last used", "ends"]);
    for token in &all {
        let or = |at: Option<Timestamp>, none: &str| at.map_or(none.to_owned(), |at| output::when(at, now));
        let ends = match (token.revoked_at, token.expires_at) {
            (Some(_), _) => "revoked".to_owned(),
            (None, Some(end)) if end <= now => "expired".to_owned(),
            (None, end) => or(end, "never"),
        };
        table.add_row(vec![
            token.id.to_string(),
            token.name.clone(),
            token.grants.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            output::when(token.created_at, now),
            or(token.last_used_at, "never"),
            ends,
        ]);
    }
    app.out.table(
        &table,
        "no tokens: everybody on this machine gets in; 'stargate token add --help' shows how to make one",
    );
    Ok(())
}

impl Revoke {
    async fn run(&self, app: &App, stores: &Stores) -> Result<()> {
        let id: TokenId = self.id.parse().map_err(|error| failure(&error))?;
        let work = async { stores.tokens.revoke(&id).await.map_err(|error| failure(&error)) };
        let first = audited(&stores.audit, "token.revoke", &id, serde_json::Value::Null, work).await?;
        match app.out.json {
            true => app.out.json(&serde_json::json!({ "id": id.as_str(), "revoked": true, "first": first })),
            false if first => app.out.line(format!("token {id} is revoked")),
            false => app.out.line(format!("token {id} was revoked before")),
        }
        Ok(())
    }
}
