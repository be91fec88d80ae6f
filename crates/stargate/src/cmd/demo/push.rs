//! The demo's repository: a stock git pushes to it through the gateway, and the push is mirrored to another folder.

use std::path::Path;
use std::time::{Duration, Instant};

use stargate_base::chain;
use stargate_git::{Init, Oid, RefName};
use stargate_mirror::wait::{Waited, wait};
use stargate_mirror::{Entry, Journal, Next, Statuses, verify};
use stargate_queue::store::{JobFilter, Store};
use stargate_queue::{Job, JobId, NewJob, State};
use stargate_repo::handlers::PUSH_PROCESS;
use url::Url;

use super::check::Outcome;
use super::one;
use crate::cmd::repo;
use crate::config::Settings;
use crate::failure::{Failure, Result};
use crate::mirroring::{Places, Target};
use crate::output;
use crate::view::cut;
use crate::{gateway, program};

/// The repository of the demo.
pub(super) const REPO: &str = "tools";
const BRANCH: &str = "refs/heads/main";
/// Where it is mirrored to, in the home.
const MIRROR: &str = "mirror.git";
/// Its ledger's namespace.
const NAMESPACE: &str = "main";
/// What a push may take to be processed, and to be mirrored.
const DEADLINE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Digits of a commit that people are shown.
const OID_CHARS: usize = 10;

/// Where the mirror is, as a URL for the configuration.
pub(super) fn mirror_url(home: &Path) -> Result<String> {
    let url = Url::from_file_path(home.join(MIRROR));
    url.map(String::from).map_err(|()| Failure::input(format!("{} is no absolute path", home.display())))
}

/// Why there is nothing of git in the demo; nothing if there is.
pub(super) async fn lacks(settings: &Settings) -> Option<String> {
    if !program::found(&settings.git.program, None) {
        return Some("git is not installed, so nothing is pushed and mirrored".to_owned());
    }
    let asked = settings.git.git().version().await;
    asked.err().map(|error| format!("nothing is pushed and mirrored: {}", chain(&error)))
}

/// Makes both repositories, before there is a node that serves the one and mirrors it to the other.
pub(super) async fn prepare(settings: &Settings, home: &Path) -> Result<()> {
    let branch = RefName::parse(BRANCH).map_err(|error| Failure::input(error.to_string()))?;
    let repositories = gateway::repositories(settings)?;
    let made = repositories.create(&repo::name(REPO)?, &branch).await;
    made.map_err(|error| gateway::failure(&error))?;
    settings.git.git().init_bare(&home.join(MIRROR), &Init { default_branch: branch, sha256: false }).await?;
    Ok(())
}

/// Where the repository is served.
pub(super) fn url(node: std::net::SocketAddr) -> String {
    format!("http://{node}/git/{REPO}.git")
}

/// The job that pushes.
pub(super) async fn enqueue(store: &dyn Store, node: std::net::SocketAddr) -> Result<JobId> {
    one(store, NewJob::of("push", &url(node))?).await
}

/// What became of the push, here and on the other side.
pub(super) async fn outcomes(store: &dyn Store, settings: &Settings, pushing: &Job) -> Result<[Outcome; 2]> {
    let target = Places::of(settings).find(Path::new(REPO)).await?;
    let pushed = Pushed::of(pushing);
    Ok([accepted(store, &target, pushing, &pushed).await?, mirrored(&target, &pushed).await?])
}

/// What the pushing job says that it pushed.
#[derive(Debug, Default, serde::Deserialize)]
struct Pushed {
    commit: String,
    refs: Vec<String>,
}

impl Pushed {
    fn of(job: &Job) -> Self {
        let result = job.result.as_ref().and_then(|json| serde_json::from_str(json.get()).ok());
        result.unwrap_or_default()
    }
}

/// The refs are in the journal, and each has become a job that is done.
async fn accepted(store: &dyn Store, target: &Target, pushing: &Job, pushed: &Pushed) -> Result<Outcome> {
    let entries = journal(target).await?;
    let is_journaled =
        |name: &String| entries.iter().any(|entry| entry.ref_name == *name && entry.new_oid == pushed.commit);
    let journaled = pushed.refs.iter().filter(|name| is_journaled(name)).count();
    let done = processed(store, pushed.refs.len()).await?;
    let refs = pushed.refs.len();
    let ok = pushing.state == State::Done && refs > 0 && journaled == refs && done.len() >= refs;
    let found = format!(
        "{}, commit {} on {refs} refs, {journaled} journaled, {} processed",
        pushing.state,
        cut(&pushed.commit, OID_CHARS),
        done.len()
    );
    let jobs = [pushing.id].into_iter().chain(done).collect();
    Ok(Outcome { shows: "a git push through the gateway", jobs, ok, found })
}

/// The watermark has arrived, and both sides are the same, ref by ref.
async fn mirrored(target: &Target, pushed: &Pushed) -> Result<Outcome> {
    let (git, dir, config) = (&target.git, &target.repo, &target.config);
    let waited = match Oid::parse(&pushed.commit) {
        Ok(commit) => Some(wait(git, dir, config, NAMESPACE, &commit, DEADLINE, LOOK_EVERY).await?),
        Err(_) => None,
    };
    let arrived = matches!(waited, Some(Waited::Visible { .. }));
    // The tag is an entry of its own, after the branch.
    let begun = Instant::now();
    let mut proof = verify::verify(git, dir, config).await?;
    while arrived && !proof.verified && begun.elapsed() < DEADLINE {
        tokio::time::sleep(LOOK_EVERY).await;
        proof = verify::verify(git, dir, config).await?;
    }
    let ok = arrived && proof.verified && proof.equal >= pushed.refs.len();
    let lag = lag(target).await?.map(|lag| format!(" after {}", output::short(lag))).unwrap_or_default();
    let words = match arrived {
        true => format!("arrived{lag}"),
        false => "did not arrive".to_owned(),
    };
    let found = format!("{words}; verified: {} refs equal, {} different", proof.equal, proof.different);
    Ok(Outcome { shows: "and its mirror", jobs: Vec::new(), ok, found })
}

/// The jobs of the push that are done; waits for as many as it has refs.
async fn processed(store: &dyn Store, refs: usize) -> Result<Vec<JobId>> {
    let begun = Instant::now();
    loop {
        let (kind, states) = (Some(PUSH_PROCESS.to_owned()), vec![State::Done]);
        let mut done: Vec<JobId> = store
            .jobs(JobFilter { kind, states, ..JobFilter::default() })
            .await?
            .iter()
            .map(|job| job.id)
            .collect();
        if done.len() >= refs || begun.elapsed() > DEADLINE {
            done.sort_unstable();
            return Ok(done);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// All entries of the journal.
async fn journal(target: &Target) -> Result<Vec<Entry>> {
    let path = target.repo.path().to_owned();
    let read = move || -> stargate_mirror::Result<Vec<Entry>> {
        let mut reader = Journal::open(&path)?.read_all()?;
        let mut entries = Vec::new();
        while let Next::Line(line) = reader.next()? {
            entries.extend(line.entry);
        }
        Ok(entries)
    };
    let read = tokio::task::spawn_blocking(read).await;
    Ok(read.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?)
}

/// From the hook's line to the other side, for the slowest of the refs.
async fn lag(target: &Target) -> Result<Option<Duration>> {
    let path = target.repo.path().to_owned();
    let read = tokio::task::spawn_blocking(move || Statuses::open(&path)?.latest(10)).await;
    let records = read.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
    Ok(records.iter().filter_map(|record| record.lag_ms).max().map(Duration::from_millis))
}
