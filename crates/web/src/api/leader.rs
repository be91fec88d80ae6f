//! Who leads, and letting another node lead.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use stargate_access::Role;
use stargate_leader::{Phase, Standing};
use stargate_queue::leadership::{TERMS_MAX, overlaps};
use utoipa::IntoParams;

use crate::api::types::leader as types;
use crate::app::Shared;
use crate::caller::{Actor, Change};
use crate::error::{Problem, Result};
use crate::input::Params;
use crate::lead::not_leader;

/// Terms that are shown without being asked for.
const TERMS_SHOWN: u32 = 20;
/// How long to wait for a step-down. Guarded work is dropped when the term is over, so it rarely takes a second.
const STEP_DOWN_TIMEOUT: Duration = Duration::from_secs(50);

/// How much is told.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct LeaderParams {
    /// How many terms; 20 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 500)]
    terms: Option<String>,
}

#[utoipa::path(get, path = "/leader", tag = "leader", summary = "Who leads, since when, and who did before",
    params(LeaderParams), responses((status = 200, body = types::Leader)))]
pub(crate) async fn show(
    State(shared): State<Shared>,
    Params(params): Params<LeaderParams>,
) -> Result<Json<types::Leader>> {
    let limit = match params.terms {
        Some(text) => {
            let wrong = || Problem::invalid("terms", format!("is {text:?}; allowed are 1 to {TERMS_MAX}"));
            text.parse().ok().filter(|number| (1..=TERMS_MAX).contains(number)).ok_or_else(wrong)?
        }
        None => TERMS_SHOWN,
    };
    view(&shared, limit).await.map(Json)
}

#[utoipa::path(post, path = "/leader/step-down", tag = "leader", summary = "Let another node lead; only on the leader itself",
    responses((status = 200, body = types::Leader)))]
pub(crate) async fn step_down(actor: Actor) -> Result<Json<types::Leader>> {
    give_up(&actor).await.map(Json)
}

/// Lets another node lead.
pub(crate) async fn give_up(actor: &Actor) -> Result<types::Leader> {
    let shared = actor.shared();
    let change = Change::new("leader.step-down", Role::Admin, &shared.about.instance);
    actor.audited(change, step_aside(shared)).await
}

async fn step_aside(shared: &Shared) -> Result<types::Leader> {
    let Some(leadership) = &shared.leadership else {
        let message = format!("{} takes no part in leadership", shared.about.instance);
        return Err(Problem::not_leader(message, None));
    };
    match tokio::time::timeout(STEP_DOWN_TIMEOUT, leadership.step_down()).await {
        Ok(Ok(())) => {}
        Ok(Err(_)) => return Err(not_leader(leadership)),
        // It goes on; the phase tells.
        Err(_) => tracing::warn!(timeout = ?STEP_DOWN_TIMEOUT, "guarded work still holds up the step-down"),
    }
    view(shared, TERMS_SHOWN).await
}

/// Who leads, seen from this node.
pub(crate) async fn view(shared: &Shared, terms_max: u32) -> Result<types::Leader> {
    let terms = shared.store().terms(terms_max).await?;
    let overlaps =
        overlaps(&terms).into_iter().map(|(earlier, later)| (earlier.get(), later.get())).collect();
    // After the store was asked: this answer ages faster.
    let standing = shared.leadership.as_ref().map(stargate_leader::Leadership::standing);
    let own = standing.as_ref().and_then(|standing| standing.term).map(|term| term.epoch.get());
    let newest = terms.first().map(|term| term.epoch.get());
    Ok(types::Leader {
        instance: shared.about.instance.clone(),
        role: standing.as_ref().map(|standing| types::role(standing).to_owned()),
        epoch: own.max(newest),
        lease_expires_in_ms: standing.as_ref().and_then(|standing| standing.lease_left).map(types::millis),
        phase: standing.as_ref().map(|standing| phase(standing).to_owned()),
        trouble: standing.as_ref().and_then(|standing| standing.trouble.clone()),
        leader: standing
            .and_then(|standing| standing.leader)
            .map(|leader| types::Node { instance: leader.instance, address: leader.address }),
        backend: shared.about.lock.to_owned(),
        terms: terms.into_iter().map(types::Term::from).collect(),
        overlaps,
    })
}

/// What a node is doing, in a word.
pub(crate) fn phase(standing: &Standing) -> &'static str {
    match standing.phase {
        Phase::Standby => types::STANDBY,
        Phase::Entering => "entering",
        Phase::Leader => types::LEADER,
        Phase::Leaving => "leaving",
        Phase::Ended => "ended",
    }
}
