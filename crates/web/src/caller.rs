//! Who asks, and changes that are written down.
//!
//! ```text
//!  request ─▶ access::check ─▶ Caller ─▶ route ─▶ function(&Shared, &Caller, …) ─▶ what is told
//!                                 └▶ Actor (Caller + Writer) ─▶ function(&Actor, …) ─▶ Change: role, audit, guard ─▶ store
//! ```
//!
//! The API and the page call the same functions, so what these check holds for both: the role, the read-only mode, the
//! audit. An action that cannot be written down is not carried out.

use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde_json::Value;
use stargate_access::audit::{self, Source};
use stargate_access::{NewAction, Principal, Role, TokenId};
use stargate_queue::{Result as StoreResult, SharedStore};

use crate::app::Shared;
use crate::error::{Problem, Result};
use crate::lead::{Reader, Writer};
use crate::redact::Sight;
use crate::request::REQUEST_ID;

/// How long an answer may be held up by writing down how the action ended: a store that does not answer has held up the
/// action already, and whoever asked wants to know.
const FINISH_TIMEOUT: Duration = Duration::from_secs(2);

/// The name of somebody who needed no token.
pub(crate) const LOCAL: &str = "local";

/// Who asks. Put into every request that was let in; as an argument of a route it is there.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// The token's name, or [`LOCAL`].
    pub(crate) name: String,
    /// The token.
    pub(crate) token: Option<TokenId>,
    /// The highest role on everything; none for a token that is for some repositories only.
    pub(crate) role: Option<Role>,
    /// The way the request came.
    pub(crate) source: Source,
    /// The request.
    pub(crate) request_id: Option<String>,
}

impl Caller {
    /// Somebody who was let in.
    pub(crate) fn of(principal: &Principal, source: Source) -> Self {
        let role = Role::ALL.into_iter().rev().find(|role| principal.may(*role, None));
        let name = match &principal.token {
            Some(_) => principal.name.clone(),
            None => LOCAL.to_owned(),
        };
        Self { name, token: principal.token.clone(), role, source, request_id: None }
    }

    /// Somebody where everybody gets in.
    pub(crate) fn local(source: Source) -> Self {
        Self { name: LOCAL.to_owned(), token: None, role: Some(Role::Admin), source, request_id: None }
    }

    /// Whether they may do what needs this role.
    pub(crate) fn may(&self, need: Role) -> bool {
        self.role >= Some(need)
    }

    /// Refuses what they may not do.
    pub(crate) fn need(&self, need: Role) -> Result<()> {
        match self.may(need) {
            true => Ok(()),
            false => Err(forbidden(need)),
        }
    }

    /// What they may see.
    pub(crate) fn sight<'a>(&self, shared: &'a Shared) -> Sight<'a> {
        match self.may(Role::Operate) {
            true => Sight::Whole,
            false => Sight::Without(&shared.redactor),
        }
    }
}

/// The answer to somebody whose role is not high enough.
pub(crate) fn forbidden(need: Role) -> Problem {
    let message = format!("the token does not give the right to {need} here");
    Problem::new(StatusCode::FORBIDDEN, "FORBIDDEN", message)
}

/// The answer to every change where nothing may be changed.
pub(crate) fn read_only() -> Problem {
    let message = "this node is read-only (api.read_only): nothing can be changed here, whoever asks";
    Problem::new(StatusCode::FORBIDDEN, "READ_ONLY", message)
}

impl FromRequestParts<Shared> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _shared: &Shared) -> Result<Self> {
        // A route that forgot to ask who it is answers nobody.
        let mut caller = parts.extensions.get::<Self>().cloned().ok_or_else(|| {
            tracing::error!(path = parts.uri.path(), "a route asks who it is and nobody found out");
            Problem::internal()
        })?;
        let id = parts.headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
        caller.request_id = id.map(str::to_owned);
        Ok(caller)
    }
}

/// Somebody who changes something, on a node that may. As an argument of a route it refuses the request on a node that
/// does not lead, before its body is read.
#[derive(Debug)]
pub(crate) struct Actor {
    pub(crate) caller: Caller,
    writer: Writer,
}

impl FromRequestParts<Shared> for Actor {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Self> {
        let caller = Caller::from_request_parts(parts, shared).await?;
        if shared.options.read_only {
            return Err(read_only());
        }
        let writer = Writer::from_request_parts(parts, shared).await?;
        Ok(Self { caller, writer })
    }
}

/// Something that is about to be changed.
#[derive(Debug)]
pub(crate) struct Change {
    /// What, such as `job.retry`.
    pub(crate) action: &'static str,
    /// The role it needs.
    pub(crate) need: Role,
    /// To what.
    pub(crate) target: String,
    /// More about it, without secrets.
    pub(crate) detail: Value,
}

impl Change {
    pub(crate) fn new(action: &'static str, need: Role, target: impl std::fmt::Display) -> Self {
        Self { action, need, target: target.to_string(), detail: Value::Null }
    }

    pub(crate) fn with(mut self, detail: Value) -> Self {
        self.detail = detail;
        self
    }
}

impl Actor {
    pub(crate) fn shared(&self) -> &Shared {
        self.writer.shared()
    }

    /// The store, for looking.
    pub(crate) fn store(&self) -> &Reader {
        self.shared().store()
    }

    /// What they may see.
    pub(crate) fn sight(&self) -> Sight<'_> {
        self.caller.sight(self.shared())
    }

    /// What writes jobs in. That is not written down in the audit: the job itself tells, and there may be thousands a
    /// second.
    pub(crate) fn writer(&self) -> Result<&Writer> {
        self.caller.need(Role::Write)?;
        Ok(&self.writer)
    }

    /// Changes something in the store, as leader, and writes down who did.
    pub(crate) async fn change<T, F>(&self, change: Change, work: impl FnOnce(SharedStore) -> F) -> Result<T>
    where
        F: Future<Output = StoreResult<T>>,
    {
        self.audited(change, async { Ok(self.writer.write(work).await?) }).await
    }

    /// Does something beside the store, as leader, and writes down who did. The work is given the store as the leader sees
    /// it.
    pub(crate) async fn carry_out<T, F>(
        &self,
        change: Change,
        work: impl FnOnce(SharedStore) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        self.audited(change, async { self.writer.carry_out(work).await }).await
    }

    /// Writes down that something is to be done, does it, and writes down what became of it.
    pub(crate) async fn audited<T>(
        &self,
        change: Change,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.caller.need(change.need)?;
        let Some(audit) = &self.shared().audit else { return work.await };
        let Change { action, target, detail, .. } = change;
        let new = NewAction {
            actor: self.caller.name.clone(),
            token: self.caller.token.clone(),
            role: self.caller.role.unwrap_or(Role::Read),
            action: action.to_owned(),
            target,
            detail,
            request_id: self.caller.request_id.clone(),
            source: self.caller.source,
        };
        tracing::info!(by = self.caller.name, action, target = new.target, "a change");
        let id = audit.begin(new).await.map_err(|error| {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                action,
                "an action cannot be written down"
            );
            Problem::unavailable(
                error.code(),
                "the audit cannot be written now, so nothing was done; try again",
            )
        })?;
        let done = work.await;
        let outcome = done.as_ref().err().map_or(audit::OK, |problem| &problem.code);
        // If it fails, the action is there as begun, and the log has the rest.
        match tokio::time::timeout(FINISH_TIMEOUT, audit.finish(id, outcome)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = &error as &dyn std::error::Error, %id, outcome, "an outcome was not written down");
            }
            Err(_) => tracing::warn!(%id, outcome, "an outcome was not written down in time"),
        }
        done
    }
}
