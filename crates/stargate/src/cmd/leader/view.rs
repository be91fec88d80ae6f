//! What is shown of leadership, as text and as JSON.

use serde::{Deserialize, Serialize};
use stargate_queue::leadership::{self, TermRow};

use crate::failure::{Exit, Failure, Result};
use crate::node::{Answer, Node};
use crate::output::{self, Output};
use crate::view::clock_time;

/// Leadership, with the stable fields of the documentation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LeaderView {
    /// The node that was asked; absent when only the store was.
    #[serde(default)]
    pub(crate) node: Option<String>,
    pub(crate) instance: Option<String>,
    pub(crate) role: Option<String>,
    pub(crate) leader: Option<HolderView>,
    pub(crate) epoch: Option<u64>,
    pub(crate) lease_expires_in_ms: Option<u64>,
    pub(crate) phase: Option<String>,
    pub(crate) trouble: Option<String>,
    pub(crate) backend: Option<String>,
    pub(crate) terms: Vec<TermView>,
    /// Pairs of epochs whose terms overlap. There are none, or INV-3 was broken.
    pub(crate) overlaps: Vec<(u64, u64)>,
}

/// A node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct HolderView {
    pub(crate) instance: String,
    pub(crate) address: Option<String>,
}

/// A term.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TermView {
    pub(crate) epoch: u64,
    pub(crate) instance: String,
    pub(crate) address: Option<String>,
    pub(crate) began_at: jiff::Timestamp,
    pub(crate) ended_at: Option<jiff::Timestamp>,
    pub(crate) reason: Option<String>,
}

impl From<&TermRow> for TermView {
    fn from(term: &TermRow) -> Self {
        Self {
            epoch: term.epoch.get(),
            instance: term.instance.clone(),
            address: term.address.clone(),
            began_at: term.began_at,
            ended_at: term.ended_at,
            reason: term.reason.clone(),
        }
    }
}

impl std::fmt::Display for HolderView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.address {
            Some(address) => write!(f, "{} at {address}", self.instance),
            None => f.write_str(&self.instance),
        }
    }
}

impl LeaderView {
    /// What the store alone knows: who began the newest term, and whether it has been ended.
    pub(crate) fn of_store(rows: &[TermRow], backend: &str) -> Self {
        let newest = rows.first();
        let open = newest.filter(|term| term.ended_at.is_none());
        let leader =
            open.map(|term| HolderView { instance: term.instance.clone(), address: term.address.clone() });
        let overlaps = leadership::overlaps(rows).into_iter().map(|(one, two)| (one.get(), two.get()));
        Self {
            node: None,
            instance: None,
            role: None,
            leader,
            epoch: newest.map(|term| term.epoch.get()),
            lease_expires_in_ms: None,
            phase: None,
            trouble: None,
            backend: Some(backend.to_owned()),
            overlaps: overlaps.collect(),
            terms: rows.iter().map(TermView::from).collect(),
        }
    }

    /// Who leads, in one line.
    pub(crate) fn headline(&self) -> String {
        let epoch = self.epoch.map(|epoch| format!(", epoch {epoch}")).unwrap_or_default();
        match &self.leader {
            Some(leader) => format!("leader {leader}{epoch}"),
            None => "nobody leads, as far as is known here".to_owned(),
        }
    }
}

/// Asks a node. One without an API tells less.
pub(crate) async fn ask(node: &Node, terms: u32) -> Result<LeaderView> {
    let answer = node.get(&format!("/api/v1/leader?terms={terms}")).await?;
    let view = match answer.status {
        200 => serde_json::from_value::<LeaderView>(answer.body.clone()).ok(),
        404 => of_health(&node.get("/healthz").await?),
        _ => None,
    };
    let view = view.ok_or_else(|| unexpected(node, &answer))?;
    Ok(LeaderView { node: Some(node.to_string()), ..view })
}

fn of_health(answer: &Answer) -> Option<LeaderView> {
    let text = |pointer: &str| answer.text(pointer).map(str::to_owned);
    let number = |pointer: &str| answer.body.pointer(pointer).and_then(serde_json::Value::as_u64);
    let instance = Some(text("/instance")?);
    let leader = text("/leader").map(|instance| HolderView { instance, address: text("/leader_address") });
    Some(LeaderView {
        node: None,
        instance,
        role: text("/role"),
        leader,
        epoch: number("/epoch"),
        lease_expires_in_ms: number("/lease_expires_in_ms"),
        phase: None,
        trouble: None,
        backend: None,
        terms: Vec::new(),
        overlaps: Vec::new(),
    })
}

/// An answer that this program does not understand.
pub(crate) fn unexpected(node: &Node, answer: &Answer) -> Failure {
    let said = answer.text("/error/message").unwrap_or("no JSON that this program knows");
    let code = answer.text("/error/code").unwrap_or("IO");
    let failure = Failure::new(Exit::Input, code, format!("{node} answers {}: {said}", answer.status));
    failure.help("is it a stargate of the same version?")
}

/// What one look found.
pub(crate) enum Seen {
    Answer(Box<LeaderView>),
    Silence(String),
}

/// What makes a new line worth while.
#[derive(PartialEq, Eq)]
pub(crate) enum Mark {
    Standing([Option<String>; 4], Option<u64>),
    Silence,
}

impl Seen {
    pub(crate) fn mark(&self) -> Mark {
        let Self::Answer(view) = self else { return Mark::Silence };
        let leader = view.leader.as_ref().map(ToString::to_string);
        Mark::Standing([view.role.clone(), leader, view.phase.clone(), view.trouble.clone()], view.epoch)
    }

    pub(crate) fn print(&self, out: Output) {
        let at = stargate_base::clock::wall();
        match self {
            Self::Answer(view) if out.json => {
                out.json_line(&serde_json::json!({
                    "at": at,
                    "node": view.node,
                    "instance": view.instance,
                    "role": view.role,
                    "leader": view.leader,
                    "epoch": view.epoch,
                    "phase": view.phase,
                    "trouble": view.trouble,
                    "error": null,
                }));
            }
            Self::Silence(message) if out.json => {
                out.json_line(&serde_json::json!({
                    "at": at, "node": null, "instance": null, "role": null, "leader": null, "epoch": null,
                    "phase": null, "trouble": null, "error": message,
                }));
            }
            Self::Answer(view) => {
                let node = match (&view.instance, &view.role) {
                    (Some(instance), Some(role)) => format!("  ({instance}: {role})"),
                    _ => String::new(),
                };
                let trouble = view.trouble.as_ref().map(|trouble| format!("  {trouble}")).unwrap_or_default();
                let line = format!(
                    "{}  {}{}{trouble}",
                    output::dim(clock_time(at)),
                    view.headline(),
                    output::dim(node)
                );
                out.line(line);
            }
            Self::Silence(message) => out.line(format!("{}  {message}", output::dim(clock_time(at)))),
        }
    }
}
