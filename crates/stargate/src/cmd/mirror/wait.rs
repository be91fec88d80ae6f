//! `stargate mirror wait`: reading one's writes on the other side.

use std::time::Duration;

use clap::Args;
use stargate_git::{Oid, RefName};
use stargate_mirror::Routes;
use stargate_mirror::wait::{LOOK_EVERY, Waited, wait};

use super::At;
use crate::config::interval;
use crate::failure::{Exit, Failure, Result};
use crate::mirroring::Target;
use crate::output::short;
use crate::run::App;

/// How long to wait before asking whether there is anything to wait for: the push may still be under way.
const GRACE: Duration = Duration::from_secs(3);
/// Ledgers whose history is looked into, and those that are named, at most.
const LEDGERS_MAX: usize = 100;
const NAMED_MAX: usize = 5;

/// `mirror wait`
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  git push origin HEAD:refs/kv/main && stargate mirror wait --repo tools --oid $(git rev-parse HEAD)

Exits 0 when the watermark of the namespace on the remote is the commit or descends from it, and 10
when it is not in time. Only ledgers (mirror.ledgers, by default refs/kv/*) move a watermark.")]
pub(crate) struct Wait {
    #[command(flatten)]
    at: At,
    /// The commit, with all its digits
    #[arg(long, value_name = "OID", value_parser = Oid::parse)]
    oid: Oid,
    /// The namespace: the last part of the name of a ledger
    #[arg(long, value_name = "NAME", default_value = "main")]
    ns: String,
    /// How long to wait
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = interval::parse)]
    timeout: Duration,
}

impl Wait {
    pub(super) async fn run(&self, app: &App) -> Result<()> {
        let target = self.at.target(app).await?;
        let (ns, oid) = (&self.ns, &self.oid);
        namespace(&target.config.routes, ns)?;
        let first = self.timeout.min(GRACE);
        let mut waited = self.wait(&target, first).await?;
        let mut ledgers = None;
        // Nothing there has the name: it may be too early, or there may be nothing that would ever move it.
        if let Waited::TimedOut { watermark: None, error: None } = waited {
            ledgers = Some(Ledgers::look(&target, ns, oid).await?);
        }
        if self.timeout > first && matches!(waited, Waited::TimedOut { .. }) {
            if let Some(ledgers) = ledgers.as_ref().filter(|ledgers| ledgers.is_hopeless()) {
                let message = format!("{oid} is here, but in no ledger, and {}", ledgers.problem(ns));
                return Err(Failure::input(message).help(ledgers.advice()));
            }
            waited = self.wait(&target, self.timeout - first).await?;
        }
        match waited {
            Waited::Visible { watermark } => {
                match app.out.json {
                    true => {
                        app.out.json(&serde_json::json!({ "oid": oid, "ns": ns, "watermark": watermark }))
                    }
                    false => app.out.line(format!("the remote has {oid} (watermark {watermark})")),
                }
                Ok(())
            }
            Waited::TimedOut { watermark, error } => {
                let ledgers = ledgers.filter(|ledgers| watermark.is_none() && !ledgers.have_name);
                Err(self.late(watermark.as_ref(), error.as_deref(), ledgers.as_ref()))
            }
        }
    }

    async fn wait(&self, target: &Target, length: Duration) -> Result<Waited> {
        let (git, repo, config) = (&target.git, &target.repo, &target.config);
        Ok(wait(git, repo, config, &self.ns, &self.oid, length, LOOK_EVERY).await?)
    }

    /// The watermark does not have it. `ledgers` are those of the repository, if none of them has the name.
    fn late(&self, watermark: Option<&Oid>, error: Option<&str>, ledgers: Option<&Ledgers>) -> Failure {
        let (ns, oid, length) = (&self.ns, &self.oid, short(self.timeout));
        let there = match (watermark, error) {
            (Some(oid), _) => format!("it is {oid}"),
            (None, Some(_)) => "the remote cannot be asked".to_owned(),
            (None, None) => "there is none".to_owned(),
        };
        let why = ledgers.map(|ledgers| format!(", and {}", ledgers.problem(ns))).unwrap_or_default();
        let said = error.map(|error| format!("; {error}")).unwrap_or_default();
        let message = format!("the watermark of {ns} does not have {oid} after {length}: {there}{why}{said}");
        let usual = || "'stargate mirror status' tells how far the mirror is behind, and why".to_owned();
        Failure::new(Exit::TimedOut, "TIMED_OUT", message).help(ledgers.map_or_else(usual, Ledgers::advice))
    }
}

/// Refuses what can be no namespace: the name of a ref, or any where nothing is a ledger.
fn namespace(routes: &Routes, ns: &str) -> Result<()> {
    let patterns = patterns(routes);
    if routes.ledgers().is_empty() {
        return Err(Failure::input("no ref is a ledger here, and only ledgers move a watermark")
            .help("name some in mirror.ledgers, or compare the refs: stargate mirror verify"));
    }
    let Some(name) = ns.strip_prefix("refs/").and_then(|_| RefName::parse(ns).ok()) else { return Ok(()) };
    if routes.watches(&name) && routes.is_ledger(&name) {
        let message = format!("{name} is the name of a ref, not of a namespace");
        return Err(Failure::input(message).help(format!("its namespace: --ns {}", name.last_part())));
    }
    Err(Failure::input(format!("{name} is no ledger, and only ledgers move a watermark"))
        .help(format!("ledgers are {patterns} (mirror.ledgers); for other refs: stargate mirror verify")))
}

fn patterns(routes: &Routes) -> String {
    routes.ledgers().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The ledgers of a repository, as seen by somebody who waits for a commit.
#[derive(Debug)]
struct Ledgers {
    /// What they are by the configuration.
    patterns: String,
    /// Some of those that there are.
    names: Vec<String>,
    /// Whether one has the namespace for a name.
    have_name: bool,
    /// One that has the commit.
    with_commit: Option<RefName>,
    /// Whether the commit is here at all.
    is_here: bool,
}

impl Ledgers {
    async fn look(target: &Target, ns: &str, oid: &Oid) -> Result<Self> {
        let (git, repo, routes) = (&target.git, &target.repo, &target.config.routes);
        let mut refs = git.local_refs(repo, routes.ledgers()).await?;
        refs.retain(|name, _| routes.watches(name));
        let is_here = git.has_commit(repo, oid).await?;
        let mut with_commit = None;
        for (name, tip) in refs.iter().take(LEDGERS_MAX).filter(|_| is_here) {
            // A ledger need not be a commit; then it has none.
            if git.is_ancestor(repo, oid, tip).await.unwrap_or(false) {
                with_commit = Some(name.clone());
                break;
            }
        }
        Ok(Self {
            patterns: patterns(routes),
            names: refs.keys().take(NAMED_MAX).map(ToString::to_string).collect(),
            have_name: refs.keys().any(|name| name.last_part() == ns),
            with_commit,
            // Of more than that nobody knows.
            is_here: is_here && refs.len() <= LEDGERS_MAX,
        })
    }

    /// Whether nothing that is here now will ever move the watermark to the commit.
    fn is_hopeless(&self) -> bool {
        self.is_here && !self.have_name && self.with_commit.is_none()
    }

    fn problem(&self, ns: &str) -> String {
        format!("no ledger of this repository has the namespace {ns}")
    }

    fn advice(&self) -> String {
        if let Some(name) = &self.with_commit {
            return format!("{name} has the commit: --ns {}", name.last_part());
        }
        let there = match self.names.as_slice() {
            [] => "there is none here yet".to_owned(),
            names => format!("here: {}", names.join(", ")),
        };
        let patterns = &self.patterns;
        format!("only ledgers move a watermark: {patterns} (mirror.ledgers); {there}")
    }
}

#[cfg(test)]
mod tests {
    use stargate_git::RefPattern;

    use super::*;

    fn ledgers(have_name: bool, with_commit: Option<&str>, is_here: bool) -> Ledgers {
        let with_commit = with_commit.map(|name| RefName::parse(name).unwrap());
        let names = vec!["refs/kv/a".to_owned()];
        Ledgers { patterns: "refs/kv/*".to_owned(), names, have_name, with_commit, is_here }
    }

    #[test]
    fn waiting_is_given_up_only_if_nothing_can_come() {
        assert!(ledgers(false, None, true).is_hopeless());
        for (have_name, with_commit, is_here) in
            [(true, None, true), (false, Some("refs/kv/a"), true), (false, None, false)]
        {
            assert!(!ledgers(have_name, with_commit, is_here).is_hopeless());
        }
    }

    #[test]
    fn the_advice_names_the_ledger_that_has_the_commit_or_the_setting() {
        assert!(ledgers(false, Some("refs/kv/deep/a"), true).advice().ends_with("--ns a"));
        let advice = ledgers(false, None, true).advice();
        assert!(advice.contains("mirror.ledgers") && advice.contains("refs/kv/a"), "{advice}");
    }

    #[test]
    fn the_name_of_a_ref_is_no_namespace() {
        let routes = Routes::standard().unwrap();
        assert!(namespace(&routes, "main").is_ok());
        let other = namespace(&routes, "refs/heads/main").unwrap_err();
        assert!(other.message.contains("no ledger") && other.help.unwrap().contains("mirror.ledgers"));
        assert!(namespace(&routes, "refs/kv/main").unwrap_err().help.unwrap().contains("--ns main"));
        let none =
            Routes::new(vec![RefPattern::parse("refs/kv/*").unwrap()], Vec::new(), Vec::new()).unwrap();
        assert!(namespace(&none, "main").unwrap_err().help.unwrap().contains("mirror.ledgers"));
    }
}
