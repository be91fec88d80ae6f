//! Who did what with a command: each change that is made beside the store is entered before it is made, as the API does
//! for those that come through a node.

use std::fmt::Display;
use std::future::Future;

use serde_json::Value;
use stargate_access::audit::Source;
use stargate_access::{NewAction, Role, SharedAudit};
use stargate_base::chain;
use stargate_queue::{Error, SharedStore};

use crate::config::store_url::StoreUrl;
use crate::failure::{Exit, Failure, Result, exit_of};
use crate::run::App;

/// The jobs, for commands that change something.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) jobs: SharedStore,
    /// Absent where a node does the work: it keeps its own record.
    audit: Option<SharedAudit>,
}

impl Desk {
    /// Opens the store, or turns to the node that was named.
    pub(crate) async fn open(app: &App) -> Result<Self> {
        match &app.remote {
            Some(_) => Ok(Self { jobs: app.jobs().await?, audit: None }),
            None => {
                let stores = app.stores().await?;
                Ok(Self { jobs: stores.jobs, audit: Some(stores.audit) })
            }
        }
    }

    /// Does something and enters it, before and after.
    pub(crate) async fn act<T, E: Ended>(
        &self,
        action: &str,
        target: impl Display,
        detail: Value,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        match &self.audit {
            Some(audit) => audited(audit, action, target, detail, work).await,
            None => work.await,
        }
    }
}

/// Does something and enters it, before and after. What cannot be entered is not done.
pub(crate) async fn audited<T, E: Ended>(
    audit: &SharedAudit,
    action: &str,
    target: impl Display,
    detail: Value,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let entered = NewAction {
        actor: actor(),
        token: None,
        // Who has the store at hand may do everything.
        role: Role::Admin,
        action: action.to_owned(),
        target: target.to_string(),
        detail,
        request_id: None,
        source: Source::Cli,
    };
    let id = audit.begin(entered).await.map_err(|error| E::unentered(failure(&error)))?;
    let ended = work.await;
    let outcome = ended.as_ref().map_or_else(Ended::code, |_| stargate_access::audit::OK.to_owned());
    if let Err(error) = audit.finish(id, &outcome).await {
        // It is done: failing now would only have it repeated.
        tracing::warn!(error = %chain(&error), "how this ended could not be entered in the audit");
    }
    ended
}

/// As `audited`, for what is done to repositories: they may lie where no store is, and none is made for the entry.
pub(crate) async fn audited_if_there<T>(
    app: &App,
    action: &str,
    target: impl Display,
    detail: Value,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let is_there = match &app.settings.store {
        StoreUrl::Sqlite(path) => path.exists(),
        StoreUrl::Postgres(_) => true,
    };
    let stores = if is_there { app.stores().await } else { return work.await };
    match stores {
        Ok(stores) => audited(&stores.audit, action, target, detail, work).await,
        Err(failure) => {
            tracing::warn!(error = %failure, "this could not be entered in the audit");
            work.await
        }
    }
}

/// How something ended that did not end well.
pub(crate) trait Ended {
    /// The stable code.
    fn code(&self) -> String;

    /// It was not begun, because it could not be entered.
    fn unentered(failure: Failure) -> Self;
}

impl Ended for Failure {
    fn code(&self) -> String {
        self.code.clone()
    }

    fn unentered(failure: Failure) -> Self {
        failure
    }
}

impl Ended for Error {
    fn code(&self) -> String {
        Error::code(self).to_owned()
    }

    fn unentered(failure: Failure) -> Self {
        crate::remote::carried(failure)
    }
}

/// What goes wrong with tokens and the audit, as a command fails.
pub(crate) fn failure(error: &stargate_access::Error) -> Failure {
    use stargate_access::Error;
    // What the store itself refused is told as it tells it: that it was moved, for instance.
    if let Error::Store { source, .. } = error
        && let Some(refused) = source.downcast_ref::<stargate_queue::Error>()
    {
        return Failure::new(exit_of(refused), refused.code(), chain(refused));
    }
    let exit = match error {
        Error::NotFound { .. } => Exit::NotFound,
        Error::OpenToOthers { .. } => Exit::Usage,
        Error::Invalid { .. } | Error::Store { .. } => Exit::Input,
    };
    Failure::new(exit, error.code(), chain(error))
}

/// `cli:ann@web-1`. Behind `sudo` it is the one who called it.
fn actor() -> String {
    let names = [std::env::var("SUDO_USER"), std::env::var("USER"), std::env::var("LOGNAME")];
    let user = names.into_iter().flatten().find(|name| !name.is_empty());
    let user = user.unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()));
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("cli:{user}@{host}")
}
