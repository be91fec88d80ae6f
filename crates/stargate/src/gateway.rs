//! The git gateway of this process: its repositories, and who may fetch from and push to them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use stargate_access::{Authority, Denied as NoAccess, Principal, Role, TokenId};
use stargate_base::{Secret, Tasks, chain};
use stargate_gateway::gate::{Access, Admission, Credentials, Denied, Gate, Hold};
use stargate_gateway::{Gateway, Handover, HookCommand, RepoName, Repositories};
use stargate_leader::Leadership;
use stargate_repo::{Folders, SharedPushes};

use crate::config::Settings;
use crate::config::layer::Origin;
use crate::failure::{Exit, Failure, Result};
use crate::hooks::{StoreDesk, Told};
use crate::program;

/// When to come back to a node that does not lead: a successor takes about so long.
const RETRY_AFTER_NOT_LEADER: Duration = Duration::from_secs(1);
/// When to come back while tokens cannot be checked.
const RETRY_AFTER_STORE: Duration = Duration::from_secs(2);
/// What a token begins with, wherever a client puts it.
const TOKEN_PREFIX: &str = stargate_access::token::PREFIX;

/// The repositories of the configuration; their root is made if it is not there.
pub(crate) fn repositories(settings: &Settings) -> Result<Repositories> {
    let hooks = hook_command(settings)?;
    Repositories::open(&settings.git.root, settings.git.git(), hooks).map_err(|error| {
        failure(&error).help("choose a place you may write to with git.root or STARGATE_GIT_ROOT")
    })
}

/// The same for a process that has other work too: where nobody has chosen a place and the usual one cannot be used, it
/// does without repositories.
pub(crate) fn repositories_if_possible(settings: &Settings) -> Result<Option<Repositories>> {
    let origin = settings.shown.iter().find(|shown| shown.key == "git.root").map(|shown| &shown.origin);
    match repositories(settings) {
        Err(failure) if origin == Some(&Origin::Default) => {
            tracing::warn!(
                error = failure.message,
                "there is no place for repositories, so /git is not served"
            );
            Ok(None)
        }
        opened => opened.map(Some),
    }
}

/// What a repository's hooks hand over to: this program, in this directory, with this configuration.
fn hook_command(settings: &Settings) -> Result<HookCommand> {
    let cannot = |what: &str, error: &std::io::Error| Failure::io(format!("cannot find {what}"), error);
    let program = std::env::current_exe().map_err(|error| cannot("this program", &error))?;
    let directory = std::env::current_dir().map_err(|error| cannot("the working directory", &error))?;
    let home = directory.join(&settings.home);
    let mut words: Vec<PathBuf> = Vec::new();
    if let Some(file) = &settings.file {
        words.extend(["--config".into(), directory.join(file)]);
    }
    words.extend(["--home".into(), home, "hook".into(), "--in".into(), directory]);
    let words: Option<Vec<&str>> = words.iter().map(|word| word.to_str()).collect();
    let words =
        words.ok_or_else(|| Failure::config("the paths of home and configuration must be plain text"))?;
    HookCommand::new(program, &words).map_err(|error| failure(&error))
}

/// An error of the gateway as a command tells it.
pub(crate) fn failure(error: &stargate_gateway::Error) -> Failure {
    let exit = match error.code() {
        "NOT_FOUND" => Exit::NotFound,
        "CONFLICT" => Exit::Conflict,
        "BUSY" => Exit::TimedOut,
        _ => Exit::Input,
    };
    let failure = Failure::new(exit, error.code(), chain(error));
    match exit {
        Exit::NotFound => failure.help("'stargate repo list' shows what there is"),
        _ => failure,
    }
}

/// What is served at `/git`; nothing where there is no git, or one that is too old to keep what it accepts.
pub(crate) async fn start(
    settings: &Settings,
    repositories: Repositories,
    authority: Arc<Authority>,
    leadership: Leadership,
    (listening, pushes): (SocketAddr, &SharedPushes),
    tasks: &Tasks,
) -> Result<Option<Gateway>> {
    if !program::found(&settings.git.program, None) {
        let program = settings.git.program.display();
        tracing::warn!(%program, "cannot be run, so /git is not served; install git or name it with git.program");
        return Ok(None);
    }
    if let Err(error) = repositories.git().version().await {
        tracing::warn!(
            error = chain(&error),
            "git cannot be used, so /git is not served; name another with git.program"
        );
        return Ok(None);
    }
    let handover = Handover::new(Arc::new(StoreDesk::new(pushes)));
    let told = Told::by_node(settings, listening, handover.key())?.environment()?;
    let left = repositories.clone();
    tasks.spawn(async move {
        // Nobody waits for it, and it is over in a moment.
        let _ = tokio::task::spawn_blocking(move || left.sweep_quarantines()).await;
    });
    let gate = Arc::new(Door { authority, leadership });
    let bounds = settings.git.bounds.clone();
    let gateway = Gateway::new(repositories, gate, bounds, told, Some(handover), tasks.clone());
    gateway.map(Some).map_err(|error| Failure::config(chain(&error)))
}

/// The repositories for those who measure them, where there are some.
pub(crate) fn folders(settings: &Settings) -> Result<Option<Folders>> {
    if !settings.git.root.is_dir() {
        return Ok(None);
    }
    let Some(repositories) = repositories_if_possible(settings)? else { return Ok(None) };
    Ok(Some(Folders::new(move |name| {
        let name = RepoName::parse(name).ok()?;
        repositories.find(&name).ok().map(|dir| dir.path().to_owned())
    })))
}

/// Who gets in: tokens decide about rights, and pushes are the leader's.
struct Door {
    authority: Arc<Authority>,
    leadership: Leadership,
}

#[async_trait]
impl Gate for Door {
    async fn admit(
        &self,
        repo: &RepoName,
        access: Access,
        credentials: &Credentials,
    ) -> Result<Admission, Denied> {
        let secret = presented(credentials);
        let principal = self.authorize(secret.as_ref(), repo, access).await?;
        let pusher = principal.token.is_some().then_some(principal.name);
        if access == Access::Read {
            return Ok(Admission { pusher, epoch: None, hold: None });
        }
        let Ok(guard) = self.leadership.guard() else { return Err(self.not_leader()) };
        let epoch = Some(guard.epoch().get());
        Ok(Admission { pusher, epoch, hold: Some(Hold::new(guard.stopping(), guard.over(), guard)) })
    }
}

impl Door {
    async fn authorize(
        &self,
        secret: Option<&Secret>,
        repo: &RepoName,
        access: Access,
    ) -> Result<Principal, Denied> {
        let need = match access {
            Access::Read => Role::Read,
            Access::Write => Role::Write,
        };
        let repo = Some(repo.as_str());
        match self.authority.authorize(secret, need, repo).await {
            Ok(principal) => Ok(principal),
            // Who may not even read is not told that there is something.
            Err(NoAccess::Insufficient { .. }) => {
                match need > Role::Read && self.authority.authorize(secret, Role::Read, repo).await.is_ok() {
                    true => Err(Denied::Forbidden("the token may fetch here, but not push".to_owned())),
                    false => Err(Denied::NotFound),
                }
            }
            Err(NoAccess::Unavailable(error)) => {
                tracing::warn!(error = chain(&error), "a token could not be checked");
                let problem = "tokens cannot be checked now; try again".to_owned();
                Err(Denied::Unavailable { problem, retry_after: RETRY_AFTER_STORE })
            }
            Err(NoAccess::Missing) => Err(Denied::Unauthenticated),
            Err(NoAccess::Unknown) => Err(refused(secret, Denied::UnknownToken)),
            Err(NoAccess::Expired) => Err(refused(secret, Denied::ExpiredToken)),
            Err(NoAccess::Revoked) => Err(refused(secret, Denied::RevokedToken)),
        }
    }

    fn not_leader(&self) -> Denied {
        let own = &self.leadership.instance().instance;
        let leader = self.leadership.known_leader().filter(|leader| leader.instance != *own);
        let leader = leader.and_then(|leader| leader.address);
        Denied::NotLeader { leader, retry_after: RETRY_AFTER_NOT_LEADER }
    }
}

/// Notes which token was refused: its id, which is no secret.
fn refused(secret: Option<&Secret>, denied: Denied) -> Denied {
    let id = secret.and_then(TokenId::claimed);
    tracing::info!(token = id.as_ref().map(TokenId::as_str), why = ?denied, "a token was refused");
    denied
}

/// The token among what a client sent. git sends it as the password; some put it where the user belongs.
fn presented(credentials: &Credentials) -> Option<Secret> {
    match credentials {
        Credentials::None | Credentials::Key(_) => None,
        Credentials::Bearer(token) => Some(token.clone()),
        Credentials::Basic { user, password } => {
            let in_user = user.starts_with(TOKEN_PREFIX) && !password.reveal().starts_with(TOKEN_PREFIX);
            Some(if in_user { Secret::new(user.as_str()) } else { password.clone() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_where_git_clients_put_it() {
        let basic = |user: &str, password: &str| {
            let credentials = Credentials::Basic { user: user.to_owned(), password: Secret::new(password) };
            presented(&credentials).map(|secret| secret.reveal().to_owned())
        };
        assert_eq!(basic("git", "sg_a").as_deref(), Some("sg_a"));
        assert_eq!(basic("sg_a", "").as_deref(), Some("sg_a"));
        assert_eq!(basic("sg_a", "x-oauth-basic").as_deref(), Some("sg_a"));
        assert_eq!(basic("sg_a", "sg_b").as_deref(), Some("sg_b"));
        assert_eq!(presented(&Credentials::None), None);
    }
}
