//! Leadership: the lock can be reached, its Redis keeps what it is told, somebody leads, and terms never overlapped.

mod redis;

use stargate_base::chain;
use stargate_leader::lease::Inspection;
use stargate_queue::leadership::{TERMS_MAX, TermRow, overlaps};
use stargate_queue::store::Store;

use super::Check;
use crate::candidate;
use crate::config::Settings;
use crate::config::leader::Backend;
use crate::config::store_url::StoreUrl;
use crate::output::when;

/// Every check.
pub(super) async fn checks(store: &dyn Store, settings: &Settings) -> Vec<Check> {
    let (lock, seen) = lock(settings).await;
    let mut checks = vec![lock];
    if let Backend::Redis(redis) = &settings.leader.backend
        && seen.is_some()
    {
        checks.extend(redis::checks(redis).await);
    }
    checks.extend(terms(store, settings, seen.as_ref()).await);
    checks
}

/// The lock can be looked at.
async fn lock(settings: &Settings) -> (Check, Option<Inspection>) {
    let remedy = match &settings.leader.backend {
        Backend::Redis(_) => {
            "is leader.redis_url (REDIS_URL) right, and is Redis running and reachable from here?"
        }
        Backend::File => {
            "choose another place with --home or STARGATE_HOME, or give this user the right to write there"
        }
        Backend::None => "",
    };
    let lease = match candidate::lease(settings) {
        Ok(lease) => lease,
        Err(failure) => {
            let remedy = failure.help.unwrap_or_else(|| remedy.to_owned());
            return (Check::fail("leader lock", failure.message, remedy), None);
        }
    };
    match lease.inspect().await {
        Ok(seen) => (found(settings, &lease.place(), &seen), Some(seen)),
        Err(error) => (Check::fail("leader lock", chain(&error), remedy), None),
    }
}

fn found(settings: &Settings, place: &str, seen: &Inspection) -> Check {
    let holder = match &seen.incumbent {
        Some(incumbent) => format!("held by {}", incumbent.value.holder),
        None => "free".to_owned(),
    };
    let told = match settings.leader.backend {
        Backend::None => "none: this is the only node, it says".to_owned(),
        Backend::File | Backend::Redis(_) => format!("{place}, {holder}"),
    };
    match (&settings.leader.backend, &settings.store, seen.incumbent.as_ref()) {
        // A lock without an end outlives its owner.
        (Backend::Redis(_), _, Some(incumbent)) if incumbent.left.is_none() => Check::fail(
            "leader lock",
            format!("{told}, without a time to live"),
            "somebody else wrote this key: delete it, or choose another one with leader.key",
        ),
        (Backend::File, StoreUrl::Postgres(_), _) => Check::ok(
            "leader lock",
            format!("{told}; nodes on other machines need leader.backend = \"redis\""),
        ),
        _ => Check::ok("leader lock", told),
    }
}

/// Somebody leads, and at no time two did.
async fn terms(store: &dyn Store, settings: &Settings, seen: Option<&Inspection>) -> Vec<Check> {
    let (rows, now) = match (store.terms(TERMS_MAX).await, store.now().await) {
        (Ok(rows), Ok(now)) => (rows, now),
        (Err(error), _) | (_, Err(error)) => {
            return vec![Check::fail("leader terms", chain(&error), "see the first failing check")];
        }
    };
    let overlapping = overlaps(&rows);
    let history = match overlapping.first() {
        None => Check::ok("leader terms", format!("{} looked at, none overlap", rows.len())),
        Some((one, two)) => Check::fail(
            "leader terms",
            format!("{} pairs overlap, first those with the epochs {one} and {two}", overlapping.len()),
            "two nodes may have led at once: report this with 'stargate leader status --terms 500 --json'",
        ),
    };
    vec![leader(settings, rows.first(), seen, now), history]
}

fn leader(
    settings: &Settings,
    newest: Option<&TermRow>,
    seen: Option<&Inspection>,
    now: jiff::Timestamp,
) -> Check {
    let remedy = "start a node that may lead ('stargate up', 'stargate serve'), or see why it does not: 'stargate leader status'";
    // Without a lock only the history tells.
    let holder = match &settings.leader.backend {
        Backend::None => newest.filter(|term| term.ended_at.is_none()).map(|term| term.instance.clone()),
        Backend::File | Backend::Redis(_) => {
            seen.and_then(|seen| seen.incumbent.as_ref()).map(|i| i.value.holder.instance.clone())
        }
    };
    match (holder, newest) {
        (Some(holder), Some(term)) if term.ended_at.is_none() && term.instance == holder => {
            Check::ok("leader", format!("{holder}, epoch {}, since {}", term.epoch, when(term.began_at, now)))
        }
        (Some(holder), Some(term)) if term.ended_at.is_none() => Check::warn(
            "leader",
            format!("{holder} has the lock, but {} began the newest term ({})", term.instance, term.epoch),
            "right after a change that is normal; if it stays so, the nodes do not use the same lock and the same store",
        ),
        (Some(holder), _) => Check::warn(
            "leader",
            format!("{holder} has the lock and has not begun its term"),
            "right after a change that is normal; if it stays so, look at the log of that node",
        ),
        (None, None) => Check::ok("leader", "nobody yet: no node has led this store so far"),
        (None, Some(term)) => {
            let when = when(term.ended_at.unwrap_or(term.began_at), now);
            Check::warn("leader", format!("nobody; {} was the last, {when}", term.instance), remedy)
        }
    }
}
