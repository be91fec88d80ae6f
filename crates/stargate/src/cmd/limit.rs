//! `stargate limit …`: limits per key.

use clap::{Args, Subcommand};
use serde::Serialize;
use stargate_queue::Error;
use stargate_queue::limits::{Limit, Rate};

use crate::auditing::Desk;
use crate::config::kinds::limit_in_words;
use crate::failure::Result;
use crate::output;
use crate::run::App;

/// `limit …`
#[derive(Debug, Subcommand)]
pub(crate) enum LimitCommand {
    /// List limits, most specific first
    List,
    /// Set the limits of all keys that match a pattern
    Set(Set),
    /// Remove a limit
    Remove(Remove),
}

/// `limit set`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stargate limit set 'tenant:*' --concurrency 4 --rate 10/s
  stargate limit set tenant:acme --weight 5           five times the share of others

A key is what a job names with --limit-key. The most specific pattern holds.")]
pub(crate) struct Set {
    /// A key, or a prefix that ends in *
    pattern: String,
    /// Jobs of one key at once, over all workers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    concurrency: Option<u32>,
    /// Starts of one key per time: 10/s, 100/m, 1000/h
    #[arg(long)]
    rate: Option<Rate>,
    /// Share relative to other keys, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    weight: u32,
}

/// `limit remove`
#[derive(Debug, Args)]
pub(crate) struct Remove {
    /// The pattern as it was set
    pattern: String,
}

#[derive(Serialize)]
struct LimitView<'a> {
    pattern: &'a str,
    concurrency: Option<u32>,
    rate: Option<String>,
    weight: u32,
}

fn view(limit: &Limit) -> LimitView<'_> {
    let rate = limit.rate.map(|rate| rate.to_string());
    LimitView { pattern: &limit.pattern, concurrency: limit.concurrency, rate, weight: limit.weight }
}

impl LimitCommand {
    /// Runs the command.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        let out = app.out;
        match self {
            Self::List => {
                let limits = app.jobs().await?.limits().await?;
                if out.json {
                    out.json(&limits.iter().map(view).collect::<Vec<_>>());
                    return Ok(());
                }
                let mut table = output::table(&["pattern", "at once", "rate", "weight"]);
                for limit in &limits {
                    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
                    table.add_row(vec![
                        limit.pattern.clone(),
                        or_none(limit.concurrency.map(|n| n.to_string())),
                        or_none(limit.rate.map(|rate| rate.to_string())),
                        limit.weight.to_string(),
                    ]);
                }
                out.table(&table, "no limits; 'stargate limit set --help' shows how to set one");
            }
            Self::Set(set) => {
                let (pattern, rate) = (set.pattern.clone(), set.rate);
                let limit = Limit { pattern, concurrency: set.concurrency, rate, weight: set.weight };
                limit.check()?;
                let desk = Desk::open(app).await?;
                let detail = serde_json::to_value(view(&limit)).unwrap_or_default();
                desk.act("limit.set", &limit.pattern, detail, desk.jobs.limit_set(limit.clone())).await?;
                match out.json {
                    true => out.json(&view(&limit)),
                    false => out.line(format!("limit {}: {}", limit.pattern, limit_in_words(&limit))),
                }
            }
            Self::Remove(remove) => {
                let (desk, pattern) = (Desk::open(app).await?, &remove.pattern);
                let work = async {
                    match desk.jobs.limit_remove(pattern).await? {
                        true => Ok(()),
                        false => Err(Error::NotFound { what: "limit", name: pattern.clone() }),
                    }
                };
                desk.act("limit.remove", pattern, serde_json::Value::Null, work).await?;
                match out.json {
                    true => out.json(&serde_json::json!({ "pattern": remove.pattern, "removed": true })),
                    false => out.line(format!("limit {} is removed", remove.pattern)),
                }
            }
        }
        Ok(())
    }
}
