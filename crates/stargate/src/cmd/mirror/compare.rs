//! `stargate mirror sync`, `verify` and `reconcile`: the refs of both sides.

use clap::Args;
use comfy_table::{Cell, Color};
use stargate_mirror::Error;
use stargate_mirror::compare::{Pair, Standing};
use stargate_mirror::permit::Always;
use stargate_mirror::sync::{Mode, Refused, Synced, sync};
use stargate_mirror::verify::Verification;

use super::At;
use super::permit::NodePermit;
use crate::auditing::audited_if_there;
use crate::failure::{Exit, Failure, Result};
use crate::output::{grouped, table};
use crate::run::App;
use crate::view::cut;

/// How much of a refusal a table shows.
const REFUSAL_CHARS: usize = 80;
/// Digits of an object id that people are shown.
const OID_CHARS: usize = 12;

/// `mirror sync`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stargate mirror sync --repo tools             says what is different, changes nothing
  stargate mirror sync --repo tools --repair

A repair only ever fast-forwards the remote. Exits 11 when a ref could not be brought forward: the
remote has more, both sides have diverged, or it refuses. Exits 9 if another node leads, and 4 while
a mirror runs for the repository: that one does the same by itself, at once with 'mirror reconcile'.")]
pub(crate) struct Sync {
    #[command(flatten)]
    at: At,
    /// Bring the remote forward where this repository is ahead
    #[arg(long)]
    repair: bool,
}

impl Sync {
    pub(super) async fn run(&self, app: &App) -> Result<()> {
        let target = self.at.target(app).await?;
        let synced = match self.repair {
            true => {
                let permit = NodePermit::ask(app).await?;
                let work = async {
                    let synced = sync(&target.git, &target.repo, &target.config, Mode::Repair, &permit).await;
                    synced.map_err(|error| refusal(error, &permit))
                };
                audited_if_there(app, "mirror.sync", &target.name, serde_json::Value::Null, work).await?
            }
            false => sync(&target.git, &target.repo, &target.config, Mode::DryRun, &Always).await?,
        };
        if app.out.json {
            let mut shown = serde_json::to_value(&synced).unwrap_or_default();
            shown["aligned"] = synced.is_aligned().into();
            shown["dry_run"] = (!self.repair).into();
            app.out.json(&shown);
        } else {
            self.print(app, &synced);
        }
        if synced.refused.is_empty() {
            return Ok(());
        }
        let (count, first) = (synced.refused.len(), &synced.refused[0]);
        let were = if count == 1 { "ref was" } else { "refs were" };
        let message = format!("{count} {were} not brought forward; {}: {}", first.name, first.error);
        let refused_by_us = |refused: &Refused| {
            let standing =
                synced.refs.iter().find(|pair| pair.name == refused.name).map(|pair| pair.standing);
            !matches!(standing, Some(Standing::Ahead | Standing::OnlyHere))
        };
        let help = match synced.refused.iter().any(refused_by_us) {
            true => {
                "what the remote has is never overwritten: fetch and merge it here first, or correct it there"
            }
            false => "lift there what keeps it from taking the ref, then repeat this",
        };
        Err(Failure::new(Exit::Refused, "SYNC_REFUSED", message).help(help))
    }

    fn print(&self, app: &App, synced: &Synced) {
        print_pairs(app, &synced.refs, |pair| {
            let refusal = synced.refused.iter().find(|refused| refused.name == pair.name);
            match refusal {
                Some(refused) => format!("refused: {}", cut(&refused.error, REFUSAL_CHARS)),
                None if synced.repaired.contains(&pair.name) => "brought forward".to_owned(),
                None => match pair.standing {
                    Standing::Ahead | Standing::OnlyHere => "--repair brings it forward".to_owned(),
                    Standing::Behind | Standing::OnlyThere | Standing::Diverged => {
                        "for you to decide".to_owned()
                    }
                    Standing::Equal => String::new(),
                },
            }
        });
    }
}

/// Why a repair was not begun, or not ended.
fn refusal(error: Error, permit: &NodePermit) -> Failure {
    match error {
        Error::NotLeader => permit.failure().unwrap_or_else(|| error.into()),
        Error::Locked { .. } => Failure::from(error).help(
            "a mirror that runs brings forward what it can by itself; 'stargate mirror reconcile' makes it look now",
        ),
        error => error.into(),
    }
}

/// `mirror verify`
pub(super) async fn verify(app: &App, at: &At) -> Result<()> {
    let target = at.target(app).await?;
    let found = stargate_mirror::verify::verify(&target.git, &target.repo, &target.config).await?;
    match app.out.json {
        true => app.out.json(&found),
        false => print_pairs(app, &found.refs, |pair| {
            match found.stale_watermarks.contains(&pair.name.to_string()) {
                true => "its watermark is another commit".to_owned(),
                false => String::new(),
            }
        }),
    }
    let Verification { verified, different, stale_watermarks, .. } = &found;
    if *verified {
        return Ok(());
    }
    let refs = if *different == 1 { "ref differs" } else { "refs differ" };
    let stale = match stale_watermarks.len() {
        0 => String::new(),
        1 => ", 1 watermark is stale".to_owned(),
        count => format!(", {count} watermarks are stale"),
    };
    let message = format!("{different} {refs}{stale}");
    Err(Failure::failed("MIRROR_DIFFERS", message)
        .help("'stargate mirror status' tells what waits, 'stargate mirror sync' what could be done"))
}

/// `mirror reconcile`
pub(super) async fn reconcile(app: &App, at: &At) -> Result<()> {
    let target = at.target(app).await?;
    let done = stargate_mirror::reconcile::reconcile(&target.git, &target.repo, &target.config).await?;
    match app.out.json {
        true => app.out.json(&done),
        false => app.out.line(format!(
            "{} refs are not on the remote as they are here; {} entries were journaled",
            grouped(done.gaps.len() as u64),
            grouped(done.journaled as u64)
        )),
    }
    Ok(())
}

fn print_pairs(app: &App, pairs: &[Pair], remark: impl Fn(&Pair) -> String) {
    let mut rows = table(&["ref", "standing", "here", "there", ""]);
    let short = |oid: Option<&stargate_git::Oid>| {
        oid.map_or_else(|| "-".to_owned(), |oid| oid.as_str().chars().take(OID_CHARS).collect())
    };
    for pair in pairs {
        let (word, colour) = match pair.standing {
            Standing::Equal => ("equal", Color::Green),
            Standing::Ahead => ("ahead", Color::Yellow),
            Standing::OnlyHere => ("only here", Color::Yellow),
            Standing::Behind => ("behind", Color::Red),
            Standing::OnlyThere => ("only there", Color::Red),
            Standing::Diverged => ("diverged", Color::Red),
        };
        rows.add_row(vec![
            Cell::new(&pair.name),
            Cell::new(word).fg(colour),
            Cell::new(short(pair.local.as_ref())),
            Cell::new(short(pair.remote.as_ref())),
            Cell::new(remark(pair)),
        ]);
    }
    app.out.table(&rows, "neither side has refs that are mirrored");
}
