//! What a hook of a repository needs from the rest of the system: who leads, and where pushes are recorded.
//!
//! git starts a hook as a process of its own, with an environment of git's making. The gateway and `ssh-dispatch` tell it
//! everything in one variable, so that it need not read a configuration whose secrets are in the environment of the
//! server. A push that came by neither (a path on this machine) is told nothing; its hooks read the configuration that
//! they were installed with.

use std::ffi::OsString;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stargate_access::RepoPattern;
use stargate_base::{Epoch, Secret, clock};
use stargate_gateway::RepoName;
use stargate_gateway::handover::{self, Desk};
use stargate_gateway::hook::{
    Context, Journaling, Leadership, PushRecord, PushSink, RefUpdate, Rules, SinkError, Standing,
};
use stargate_git::{Git, RefPattern};
use stargate_repo::push::check_ref;
use stargate_repo::{NewPush, SharedPushes};
use tokio::sync::OnceCell;
use url::Url;

use crate::assemble::{self, Stores};
use crate::config::Settings;
use crate::config::store_url::{self, StoreUrl};
use crate::failure::{Failure, Result};
use crate::node::Node;

/// The variable in which a hook is told all of it.
pub(crate) const TOLD: &str = "STARGATE_HOOK";
/// How long the node may take to say whether it leads.
const STANDING_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the node may take to record a push, which takes it milliseconds: so short that there is time for the store.
const HANDOVER_TIME_MAX: Duration = Duration::from_millis(500);
/// Bytes of a file that names a branch.
const HEAD_BYTES_MAX: u64 = 4096;

/// What a hook is told. Holds the address of the store, so it is not printed.
#[derive(Serialize, Deserialize)]
pub(crate) struct Told {
    store: String,
    /// The node that says who leads.
    node: String,
    /// With which that node takes over what the hook has to record; absent: the hook records it itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    root: PathBuf,
    git: PathBuf,
    /// Refs that only move forward, those that are mirrored among them.
    protected: Vec<String>,
    mirrored: Vec<String>,
    /// Repositories that take the watermarks of another mirror.
    take_watermarks: Vec<String>,
    refs_max: usize,
}

impl Told {
    /// By a process with these settings, beside the node that they describe.
    pub(crate) fn of(settings: &Settings) -> Result<Self> {
        Self::at(settings, settings.api_listen)
    }

    /// By the node that listens here, and takes over under this key.
    pub(crate) fn by_node(settings: &Settings, listening: SocketAddr, key: &Secret) -> Result<Self> {
        Ok(Self { key: Some(key.reveal().to_owned()), ..Self::at(settings, listening)? })
    }

    fn at(settings: &Settings, listening: SocketAddr) -> Result<Self> {
        let absolute = |path: &Path| {
            std::path::absolute(path)
                .map_err(|error| Failure::io("cannot find the working directory", &error))
        };
        let store = match &settings.store {
            StoreUrl::Sqlite(path) => format!("sqlite:{}", absolute(path)?.display()),
            StoreUrl::Postgres(url) => url.reveal().to_owned(),
        };
        let texts = |patterns: &[RefPattern]| patterns.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mirrored = texts(settings.mirror.config.routes.watched());
        let mut protected = texts(&settings.git.fast_forward_only);
        protected.extend(mirrored.iter().cloned());
        Ok(Self {
            store,
            node: format!("http://{}", reachable(listening)),
            key: None,
            root: absolute(&settings.git.root)?,
            git: settings.git.program.clone(),
            protected,
            mirrored,
            take_watermarks: settings.git.take_watermarks.iter().map(ToString::to_string).collect(),
            refs_max: settings.git.refs_max,
        })
    }

    /// As the environment of a hook.
    pub(crate) fn environment(&self) -> Result<Vec<(OsString, OsString)>> {
        let text = serde_json::to_string(self);
        let text = text.map_err(|error| Failure::config(format!("hooks cannot be told: {error}")))?;
        Ok(vec![(TOLD.into(), text.into())])
    }

    /// What the environment of a hook says, if it says something.
    pub(crate) fn read(text: Option<OsString>) -> Result<Option<Self>> {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
        let told = text.to_str().and_then(|text| serde_json::from_str(text).ok());
        // The text is not repeated: it holds the address of the store.
        told.map(Some).ok_or_else(|| {
            Failure::input(format!("{TOLD} is not what the gateway of this version writes")).help(
                "restart the gateway with the program that the hooks name, or run 'stargate hook install'",
            )
        })
    }

    /// The git that the gateway uses.
    pub(crate) fn git(&self) -> Git {
        Git::new(&self.git, std::env::var_os("PATH").unwrap_or_default())
    }

    /// What a push to the repository in this directory may do.
    pub(crate) fn rules(&self, context: &Context, repo_dir: &Path) -> Result<Rules> {
        let mut rules = Rules { refs_max: self.refs_max, ..Rules::protecting(patterns(&self.protected)?) };
        let name = context.repo.clone().or_else(|| self.name(repo_dir));
        let is_remote = |text: &String| {
            let pattern = text.parse::<RepoPattern>().ok();
            pattern.zip(name.as_deref()).is_some_and(|(pattern, name)| pattern.matches(name))
        };
        if self.take_watermarks.iter().any(is_remote) {
            rules.reserved.clear();
        }
        Ok(rules)
    }

    /// The name of the repository in this directory, by its place.
    fn name(&self, repo_dir: &Path) -> Option<String> {
        // The directory has no links in it, the root may.
        let root = self.root.canonicalize().unwrap_or_else(|_| self.root.clone());
        let name = repo_dir.strip_prefix(root).ok().and_then(Path::to_str);
        name.and_then(|name| RepoName::parse(name).ok()).map(|name| name.as_str().to_owned())
    }

    /// What is journaled of a push to the repository in this directory.
    pub(crate) fn journaling(&self, repo_dir: &Path) -> Result<Journaling> {
        Ok(Journaling { repo_dir: repo_dir.to_owned(), patterns: patterns(&self.mirrored)? })
    }

    fn node_url(&self) -> Result<Url> {
        Url::parse(&self.node).map_err(|error| Failure::input(format!("{}: {error}", self.node)))
    }

    /// The node that says who leads.
    pub(crate) fn node(&self) -> Result<AskNode> {
        Ok(AskNode { node: Node::at_url(self.node_url()?)? })
    }

    /// Where pushes to the repository in this directory are recorded.
    pub(crate) fn sink(&self, repo_dir: &Path) -> Result<Sink> {
        let key = self.key.as_deref().map(Secret::new);
        let node = key.map(|key| Node::with_token(self.node_url()?, Some(&key))).transpose()?;
        Ok(Sink {
            node,
            store: self.store.clone(),
            stores: OnceCell::new(),
            repo_dir: repo_dir.to_owned(),
            name: self.name(repo_dir),
        })
    }
}

fn patterns(texts: &[String]) -> Result<Vec<RefPattern>> {
    let parsed = texts.iter().map(|text| RefPattern::parse(text)).collect::<Result<_, _>>();
    parsed.map_err(|error| Failure::input(error.to_string()))
}

/// An address for those on this machine: who listens everywhere is called at home.
fn reachable(listening: SocketAddr) -> SocketAddr {
    match listening {
        SocketAddr::V4(address) if address.ip().is_unspecified() => {
            (Ipv4Addr::LOCALHOST, address.port()).into()
        }
        SocketAddr::V6(address) if address.ip().is_unspecified() => {
            (Ipv6Addr::LOCALHOST, address.port()).into()
        }
        other => other,
    }
}

/// Asks the running node whether it leads.
pub(crate) struct AskNode {
    node: Node,
}

impl AskNode {
    /// Whether the node leads, and in which term.
    pub(crate) async fn ask(&self) -> Result<(Standing, Option<u64>), String> {
        // Every node has this route, and it needs no token.
        let asked = tokio::time::timeout(STANDING_TIMEOUT, self.node.get("/healthz")).await;
        let answer = match asked {
            Ok(Ok(answer)) => answer,
            Ok(Err(failure)) => {
                return Err(format!("{}; pushes need a running 'stargate up' or 'serve'", failure.message));
            }
            Err(_) => return Err(format!("the node at {} does not say whether it leads", self.node)),
        };
        let epoch = answer.body["epoch"].as_u64();
        Ok((judge(&answer.body), epoch))
    }
}

fn judge(health: &Value) -> Standing {
    match health["role"].as_str() {
        Some("leader") if health["epoch"].is_u64() => Standing::Leads,
        Some(_) => Standing::NotLeader { leader: health["leader_address"].as_str().map(str::to_owned) },
        None => Standing::Unknown { problem: "the node takes no part in leadership".to_owned() },
    }
}

/// The answer for a push that was admitted in a term: another term is not the one that it was admitted in.
fn same_term(standing: Standing, epoch: Option<u64>, admitted: Option<u64>) -> Standing {
    match (&standing, admitted) {
        (Standing::Leads, Some(_)) if epoch != admitted => Standing::NotLeader { leader: None },
        _ => standing,
    }
}

#[async_trait]
impl Leadership for AskNode {
    async fn standing(&self, admitted: Option<u64>) -> Standing {
        match self.ask().await {
            Ok((standing, epoch)) => same_term(standing, epoch, admitted),
            Err(problem) => Standing::Unknown { problem },
        }
    }
}

/// Has the node record pushes. Where there is none, or it does not, they are recorded in the store, which is opened for that:
/// while the journal is written, if it is clear by then.
pub(crate) struct Sink {
    /// The node that takes over.
    node: Option<Node>,
    store: String,
    stores: OnceCell<Stores>,
    repo_dir: PathBuf,
    /// The repository's name by its place.
    name: Option<String>,
}

impl Sink {
    async fn stores(&self) -> Result<&Stores, SinkError> {
        let open = || async {
            let url = store_url::parse(&self.store).map_err(|problem| format!("the store {problem}"))?;
            Ok(assemble::open_for_hook(&url).await?)
        };
        self.stores.get_or_try_init(open).await
    }

    /// What the repository is called. To be asked last: it may have been taken out of service since git began, and a new one may
    /// have its name.
    fn name(&self, push: &PushRecord) -> Result<&str, SinkError> {
        let name = self.name.as_deref().filter(|_| self.repo_dir.join("HEAD").exists());
        let name = name.ok_or("this repository does not lie below git.root (any more)")?;
        match &push.context.repo {
            Some(asked) if asked != name => Err(format!("this repository is {name} now").into()),
            _ => Ok(name),
        }
    }

    /// Whether the node has recorded it. If not, nobody knows whether it will.
    async fn hand_over(&self, push: &NewPush) -> bool {
        let Some(node) = &self.node else { return false };
        let handed = tokio::time::timeout(HANDOVER_TIME_MAX, node.hand_over(handover::PATH, push)).await;
        matches!(handed, Ok(Ok(())))
    }
}

#[async_trait]
impl PushSink for Sink {
    async fn prepare(&self) {
        if self.node.is_none() {
            drop(self.stores().await);
        }
    }

    async fn record(&self, push: &PushRecord) -> Result<(), SinkError> {
        let new = new_push(push, self.name(push)?, default_branch(&self.repo_dir));
        if self.hand_over(&new).await {
            return Ok(());
        }
        let stores = self.stores().await?;
        self.name(push)?;
        // Under the same id of the receive: should the node do it all the same, it is recorded once.
        stores.pushes.record(new).await?;
        Ok(())
    }
}

/// Records in the store of this node what hooks hand over.
pub(crate) struct StoreDesk {
    pushes: SharedPushes,
}

impl StoreDesk {
    pub(crate) fn new(pushes: &SharedPushes) -> Self {
        Self { pushes: Arc::clone(pushes) }
    }
}

#[async_trait]
impl Desk for StoreDesk {
    async fn record(&self, report: &[u8]) -> Result<(), SinkError> {
        self.pushes.record(serde_json::from_slice(report)?).await?;
        Ok(())
    }
}

/// What HEAD points to. Some repositories keep that elsewhere, and their HEAD names what is none.
pub(crate) fn default_branch(repo_dir: &Path) -> Option<String> {
    use std::io::Read as _;
    let mut text = String::new();
    let file = std::fs::File::open(repo_dir.join("HEAD")).ok()?;
    file.take(HEAD_BYTES_MAX).read_to_string(&mut text).ok()?;
    let name = text.strip_prefix("ref: ")?.trim_end();
    check_ref("default_branch", name).is_ok().then(|| name.to_owned())
}

fn new_push(push: &PushRecord, repo: &str, default_branch: Option<String>) -> NewPush {
    let context = &push.context;
    // A client may choose the id of its request, and use it twice; each push is another one.
    let receive = format!("{:016x}", rand::random::<u64>());
    let request_id = match &context.request_id {
        Some(id) => format!("{id}+{receive}"),
        None => receive,
    };
    let update = |update: &RefUpdate| stargate_repo::RefUpdate {
        ref_name: update.name.as_str().to_owned(),
        old_oid: update.old.as_str().to_owned(),
        new_oid: update.new.as_str().to_owned(),
    };
    NewPush {
        repo: repo.to_owned(),
        pusher: context.pusher.clone(),
        request_id,
        epoch: context.epoch.map(Epoch::new),
        default_branch,
        updates: push.updates.iter().map(update).collect(),
        at: clock::wall(),
        trace_id: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_leader_of_the_same_term_leads() {
        let leader = json!({ "role": "leader", "epoch": 7 });
        assert_eq!(same_term(judge(&leader), Some(7), Some(7)), Standing::Leads);
        assert_eq!(same_term(judge(&leader), Some(7), None), Standing::Leads);
        assert_eq!(same_term(judge(&leader), Some(7), Some(6)), Standing::NotLeader { leader: None });
        let standby = json!({ "role": "standby", "epoch": null, "leader_address": "http://b" });
        let expected = Standing::NotLeader { leader: Some("http://b".to_owned()) };
        assert_eq!(same_term(judge(&standby), None, Some(6)), expected);
        assert!(matches!(judge(&json!({ "status": "ok" })), Standing::Unknown { .. }));
        assert!(matches!(judge(&Value::Null), Standing::Unknown { .. }));
    }

    #[test]
    fn who_listens_everywhere_is_called_at_home() {
        for (listening, expected) in
            [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:2", "[::1]:2"), ("10.0.0.1:3", "10.0.0.1:3")]
        {
            assert_eq!(reachable(listening.parse().unwrap()).to_string(), expected);
        }
    }

    #[test]
    fn what_was_told_by_another_version_is_refused_without_being_shown() {
        let failure = Told::read(Some("{\"store\":\"hunter2\"}".into())).err().unwrap();
        assert!(!format!("{failure:?}").contains("hunter2"));
        assert!(Told::read(None).unwrap().is_none());
    }
}
