//! What a node tells of its mirrors and does about them.

use std::path::Path;

use comfy_table::{Cell, Color};
use reqwest::Method;
use stargate_web::api::types::mirror as types;

use super::MirrorCommand;
use super::dead_letter::DeadLetterCommand;
use crate::config::interval;
use crate::failure::{Exit, Failure, Result};
use crate::node::Node;
use crate::output::{self, dim, grouped, short, when};
use crate::run::App;
use crate::view::cut;

/// How much of a text from outside a table shows.
const TEXT_CHARS: usize = 100;
/// Digits of an object id that people are shown.
const OID_CHARS: usize = 12;

/// Runs a command through a node.
pub(super) async fn run(command: &MirrorCommand, app: &App, node: &Node) -> Result<()> {
    match command {
        MirrorCommand::Status(status) => {
            refuse_remote(status.remote.is_some())?;
            match &status.repo {
                Some(repo) => one(app, node, name(repo)?).await,
                None => all(app, node).await,
            }
        }
        MirrorCommand::Verify(at) => {
            refuse_remote(at.remote.is_some())?;
            verify(app, node, name(&at.repo)?).await
        }
        MirrorCommand::DeadLetter(command) => letters(app, node, command).await,
        MirrorCommand::Run(_)
        | MirrorCommand::Wait(_)
        | MirrorCommand::Sync(_)
        | MirrorCommand::Reconcile(_) => {
            Err(Failure::input("this is done beside the repository, not through a node"))
        }
    }
}

/// A node knows its repositories by name.
fn name(repo: &Path) -> Result<&str> {
    let text = repo.to_str().filter(|text| !text.starts_with('/'));
    text.map(|text| text.trim_end_matches(".git")).ok_or_else(|| {
        let message = "a node knows its repositories by name, not by directory";
        Failure::new(Exit::Usage, "USAGE", message).help("--repo NAME; 'stargate mirror status' lists them")
    })
}

fn refuse_remote(is_named: bool) -> Result<()> {
    match is_named {
        true => Err(Failure::new(Exit::Usage, "USAGE", "the node knows which remote it mirrors to")
            .help("leave --remote out")),
        false => Ok(()),
    }
}

async fn all(app: &App, node: &Node) -> Result<()> {
    let found: types::Mirrors = node.read(&["mirror"], &[]).await?;
    if app.out.json {
        app.out.json(&found.mirrors);
        return Ok(());
    }
    let now = stargate_base::clock::wall();
    let mut table =
        output::table(&["repository", "standing", "waiting", "oldest for", "dead letters", "last push"]);
    for mirror in &found.mirrors {
        let about = if mirror.backlog_is_exact { "" } else { "about " };
        table.add_row(vec![
            Cell::new(&mirror.repo),
            Cell::new(mirror.standing.replace('-', " ")).fg(colour(&mirror.standing)),
            Cell::new(format!("{about}{}", grouped(mirror.backlog))),
            Cell::new(lag(mirror)),
            Cell::new(mirror.dead_letters),
            Cell::new(mirror.last_mirrored_at.map_or_else(|| "-".to_owned(), |at| when(at, now))),
        ]);
    }
    app.out.table(&table, "nothing is mirrored by this node; only the leader mirrors");
    Ok(())
}

fn colour(standing: &str) -> Color {
    match standing {
        "caught-up" => Color::Green,
        "catching-up" | "no-remote" => Color::Yellow,
        _ => Color::Red,
    }
}

fn lag(mirror: &types::Mirror) -> String {
    let lag = std::time::Duration::try_from_secs_f64(mirror.lag_seconds).unwrap_or_default();
    mirror.oldest_pending_at.map_or_else(|| "-".to_owned(), |_| short(lag))
}

async fn one(app: &App, node: &Node, repo: &str) -> Result<()> {
    let found: types::MirrorDetail = node.read(&["mirror", repo], &[]).await?;
    if app.out.json {
        app.out.json(&found);
        return Ok(());
    }
    let mirror = &found.mirror;
    let now = stargate_base::clock::wall();
    let error = mirror.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
    let facts = [
        ("repository", mirror.repo.clone()),
        ("remote", format!("{} {}", mirror.remote, mirror.url.as_deref().unwrap_or("(not configured)"))),
        ("standing", format!("{}{error}", mirror.standing.replace('-', " "))),
        ("waiting", format!("{} entries, the oldest for {}", grouped(mirror.backlog), lag(mirror))),
        ("dead letters", mirror.dead_letters.to_string()),
        ("last push", mirror.last_mirrored_at.map_or_else(|| "never".to_owned(), |at| when(at, now))),
    ];
    for (name, value) in facts {
        app.out.line(format!("{}  {}", dim(format!("{name:<12}")), safe(&value)));
    }
    if found.refs.is_empty() {
        return Ok(());
    }
    let mut table = output::table(&["ref", "waiting", "dead letters", ""]);
    for found in &found.refs {
        let remark = if found.parked { "parked: the remote refused its last entry" } else { "" };
        table.add_row([
            safe(&found.name),
            grouped(found.waiting),
            found.dead_letters.to_string(),
            remark.to_owned(),
        ]);
    }
    app.out.line("");
    app.out.table(&table, "");
    Ok(())
}

/// What came from outside must not steer the terminal.
fn safe(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

async fn verify(app: &App, node: &Node, repo: &str) -> Result<()> {
    let found: types::Verification =
        node.change(Method::POST, &["mirror", repo, "verify"], None::<&()>).await?;
    if app.out.json {
        app.out.json(&found);
    } else {
        let oid = |oid: &Option<String>| {
            oid.as_ref().map_or_else(|| "-".to_owned(), |oid| oid.chars().take(OID_CHARS).collect())
        };
        let mut table = output::table(&["ref", "standing", "here", "there"]);
        for pair in &found.refs {
            let colour = if pair.standing == "equal" { Color::Green } else { Color::Red };
            table.add_row(vec![
                Cell::new(safe(&pair.name)),
                Cell::new(pair.standing.replace('-', " ")).fg(colour),
                Cell::new(oid(&pair.local)),
                Cell::new(oid(&pair.remote)),
            ]);
        }
        app.out.table(&table, "neither side has refs that are mirrored");
    }
    if found.verified {
        return Ok(());
    }
    let message =
        format!("{} refs differ, {} watermarks are stale", found.different, found.stale_watermarks.len());
    Err(Failure::failed("MIRROR_DIFFERS", message).help("'stargate mirror status' tells what waits"))
}

async fn letters(app: &App, node: &Node, command: &DeadLetterCommand) -> Result<()> {
    match command {
        DeadLetterCommand::List(list) => {
            let mut query = vec![
                ("repo", name(&list.at.repo)?.to_owned()),
                ("limit", list.limit.min(1000).to_string()),
                ("state", if list.all { "all" } else { "open" }.to_owned()),
            ];
            query.extend(list.after.clone().map(|after| ("after", after)));
            let found: types::DeadLetters = node.read(&["mirror", "dead-letters"], &query).await?;
            match app.out.json {
                true => app.out.json(&found.dead_letters),
                false => print_letters(app, &found.dead_letters),
            }
        }
        DeadLetterCommand::Show(show) => {
            let query = [("repo", name(&show.at.repo)?.to_owned())];
            let letter: types::DeadLetter = node.read(&["mirror", "dead-letters", &show.id], &query).await?;
            match app.out.json {
                true => app.out.json(&letter),
                false => print_letter(app, &letter),
            }
        }
        DeadLetterCommand::Requeue(requeue) => {
            let repo = name(&requeue.at.repo)?;
            let ids = match requeue.all {
                true => open_ids(node, repo).await?,
                false => requeue.ids.clone(),
            };
            let body = serde_json::json!({ "repo": repo, "ids": ids, "again": requeue.again });
            let done: types::LettersRequeued =
                node.change(Method::POST, &["mirror", "dead-letters", "requeue"], Some(&body)).await?;
            match app.out.json {
                true => app.out.json(&done.requeued),
                false => done.requeued.iter().for_each(|one| app.out.line(&one.requeued.entry_id)),
            }
            if let Some(failed) = done.failed.first() {
                let message = format!("{}: {}", failed.dead_letter_id, failed.error);
                return Err(Failure::new(Exit::Conflict, "CONFLICT", message));
            }
        }
        DeadLetterCommand::Purge(purge) => {
            let older_than = purge.older_than.map(interval::show);
            let body = serde_json::json!({ "repo": name(&purge.at.repo)?, "older_than": older_than });
            let done: types::LettersPurged =
                node.change(Method::POST, &["mirror", "dead-letters", "purge"], Some(&body)).await?;
            match app.out.json {
                true => app.out.json(&serde_json::json!({ "purged": done.purged })),
                false => app.out.line(format!("removed {} dead letters", done.purged.len())),
            }
        }
    }
    Ok(())
}

async fn open_ids(node: &Node, repo: &str) -> Result<Vec<String>> {
    let query = [("repo", repo.to_owned()), ("limit", "1000".to_owned())];
    let found: types::DeadLetters = node.read(&["mirror", "dead-letters"], &query).await?;
    Ok(found.dead_letters.into_iter().map(|letter| letter.dead_letter_id).collect())
}

fn print_letters(app: &App, letters: &[types::DeadLetter]) {
    let now = stargate_base::clock::wall();
    let mut table = output::table(&["id", "reason", "ref", "tries", "when", "state", "error"]);
    for letter in letters {
        let name = letter.payload.get("ref").and_then(serde_json::Value::as_str).unwrap_or("-");
        table.add_row([
            letter.dead_letter_id.clone(),
            letter.reason.clone(),
            cut(&safe(name), TEXT_CHARS),
            letter.attempts.to_string(),
            when(letter.dead_lettered_at, now),
            letter.state.clone(),
            cut(&letter.error, TEXT_CHARS),
        ]);
    }
    app.out.table(&table, "no dead letters");
}

fn print_letter(app: &App, letter: &types::DeadLetter) {
    let mut facts = vec![
        ("id", letter.dead_letter_id.clone()),
        ("entry", letter.entry_id.clone()),
        ("reason", letter.reason.clone()),
        ("error", letter.error.clone()),
        ("tries", format!("{}, first at {}", letter.attempts, letter.first_attempt_at)),
        ("given up", letter.dead_lettered_at.to_string()),
        ("journal", letter.journal.to_string()),
    ];
    facts.extend(letter.git_exit.map(|exit| ("git exit", exit.to_string())));
    facts.extend(letter.per_ref.iter().map(|one| ("ref", format!("{}: {}", one.name, one.status))));
    if let Some(requeued) = &letter.requeued {
        facts.push(("requeued", format!("as {} at {}", requeued.entry_id, requeued.at)));
    }
    facts.push(("payload", letter.payload.to_string()));
    for (name, value) in facts {
        app.out.line(format!("{}  {}", dim(format!("{name:<9}")), safe(&value)));
    }
}
