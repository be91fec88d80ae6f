//! Where a command does its work: beside the store, through a running node (`--url`), or on this machine alone.
//!
//! A command that cannot go through a node says so instead of quietly working on another store than the one that was
//! meant. What the environment says about a node does not concern those that never look into a store.

use std::sync::Arc;

use url::Url;

use crate::cli::{Command, Global};
use crate::cmd::directive::DirectiveCommand;
use crate::failure::{Exit, Failure, Result};
use crate::node::{self, Node};

/// Which node does the work unless a flag says so.
const URL: &str = "STARGATE_URL";

/// Where a command can do its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// In the store, or through a node.
    Both,
    /// Beside the store or the repositories only.
    Beside,
    /// Nowhere else than in its own process.
    Alone,
}

fn reach(command: &Command) -> Reach {
    match command {
        Command::Job(_)
        | Command::Queue(_)
        | Command::Schedule(_)
        | Command::Limit(_)
        | Command::Leader(_)
        | Command::Failures(_)
        | Command::Explain(_)
        | Command::Top(_)
        | Command::Audit(_)
        | Command::Bundle(_)
        | Command::Workers => Reach::Both,
        Command::Mirror(mirror) if mirror.goes_through_a_node() => Reach::Both,
        Command::Directive(directive) => match directive {
            DirectiveCommand::Check(_) | DirectiveCommand::Sample(_) | DirectiveCommand::Schema => {
                Reach::Alone
            }
            _ => Reach::Both,
        },
        Command::Mirror(_)
        | Command::Repo(_)
        | Command::Token(_)
        | Command::Webhook(_)
        | Command::Migrate
        | Command::Store(_)
        | Command::Purge(_)
        | Command::Drill(_)
        | Command::Doctor => Reach::Beside,
        Command::Up(_)
        | Command::Worker(_)
        | Command::Serve(_)
        | Command::Demo(_)
        | Command::Hook(_)
        | Command::SshDispatch(_)
        | Command::Scratch(_)
        | Command::Config(_)
        | Command::Bench(_)
        | Command::Help(_)
        | Command::Completions(_)
        | Command::Man(_)
        | Command::Docs(_) => Reach::Alone,
    }
}

/// The node that is to do the work of a command, if one was named.
pub(crate) fn remote(global: &Global, command: &Command) -> Result<Option<Arc<Node>>> {
    let Some((url, by)) = named(global)? else { return Ok(None) };
    match (reach(command), by) {
        (Reach::Both, _) => {}
        (Reach::Alone, URL) => return Ok(None),
        (Reach::Alone, _) => {
            let message = "this command does its work on this machine, not through a node";
            return Err(Failure::new(Exit::Usage, "USAGE", message).help("leave --url out"));
        }
        (Reach::Beside, _) => {
            let message = "this command needs the store itself and cannot go through a node";
            return Err(Failure::new(Exit::Usage, "USAGE", message)
                .help(format!("run it where the node runs, without {by}")));
        }
    }
    if global.store.is_some() {
        let message =
            format!("{by} and --store exclude each other: either a node does the work or the store");
        return Err(Failure::new(Exit::Usage, "USAGE", message));
    }
    let token = node::token(global.token_file.as_deref())?;
    Ok(Some(Arc::new(Node::with_token(url, token.as_ref())?)))
}

/// The node that was named, and by what.
fn named(global: &Global) -> Result<Option<(Url, &'static str)>> {
    if let Some(url) = &global.url {
        return Ok(Some((url.clone(), "--url")));
    }
    let Some(text) = std::env::var_os(URL).filter(|text| !text.is_empty()) else { return Ok(None) };
    let wrong = |problem: String| {
        Failure::config(format!("environment variable {URL}: {problem}"))
            .help(format!("correct or unset {URL}"))
    };
    let text = text.into_string().map_err(|_| wrong("is not text".to_owned()))?;
    node::parse_url(&text).map(|url| Some((url, URL))).map_err(wrong)
}
