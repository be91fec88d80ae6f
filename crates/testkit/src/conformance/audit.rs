//! Audited actions: begun before they are carried out, finished once. The rules are in `stargate_access::audit`.

use stargate_access::audit::{OK, PAGE_MAX as ACTIONS_MAX, Source};
use stargate_access::{ActionFilter, ActionId, ActionRow, Audit, Grant, NewAction, NewToken, Role};

use super::prelude::*;
use crate::tables::Tables;

fn action(actor: &str, action: &str, target: &str) -> NewAction {
    NewAction {
        actor: actor.to_owned(),
        token: None,
        role: Role::Operate,
        action: action.to_owned(),
        target: target.to_owned(),
        detail: json!({}),
        request_id: None,
        source: Source::Api,
    }
}

async fn all(audit: &dyn Audit) -> Vec<ActionRow> {
    audit.actions(ActionFilter { limit: ACTIONS_MAX, ..ActionFilter::default() }).await.expect("a page")
}

pub async fn an_action_is_there_from_its_beginning_and_gets_its_outcome_once(t: &Tables) {
    let (token, _) = NewToken::issue("ci", vec![Grant::EVERYTHING], None).unwrap();
    let given = NewAction {
        token: Some(token.id.clone()),
        detail: json!({ "filter": { "kind": "é \"1\"" }, "n": [1, null] }),
        request_id: Some("r-1".into()),
        source: Source::Page,
        ..action("ci", "job.retry", "7")
    };
    let begun_at = t.queue.now();
    let id = t.audit.begin(given.clone()).await.unwrap();
    let another = t.another().await.audit;
    let begun = all(another.as_ref()).await.remove(0);
    assert_eq!((begun.id, begun.at, begun.finished_at, &begun.outcome), (id, begun_at, None, &None));
    t.queue.advance(Duration::from_secs(3));
    another.finish(id, OK).await.unwrap();
    let finished_at = t.queue.now();
    t.queue.advance(Duration::from_secs(3));
    t.audit.finish(id, "CONFLICT").await.unwrap();
    let row = all(t.audit.as_ref()).await.remove(0);
    assert_eq!(
        (row.finished_at, row.outcome.as_deref()),
        (Some(finished_at), Some(OK)),
        "the first one counts"
    );
    assert_eq!((&row.actor, &row.token, row.role), (&given.actor, &given.token, given.role));
    assert_eq!((&row.action, &row.target, &row.detail), (&given.action, &given.target, &given.detail));
    assert_eq!((&row.request_id, row.source), (&given.request_id, given.source));
    t.audit.finish(ActionId(999_999), OK).await.expect("an action that was purged needs no outcome");
    assert_eq!(all(t.audit.as_ref()).await.len(), 1);
}

pub async fn actions_are_listed_newest_first_by_what_is_asked(t: &Tables) {
    let mut ids = Vec::new();
    for (actor, name, target) in [
        ("a", "job.retry", "1"),
        ("b", "job.cancel", "1"),
        ("a", "queue.pause", "q"),
        ("a", "job_x", "2"),
        ("a", "job.retry", "2"),
    ] {
        ids.push(t.audit.begin(action(actor, name, target)).await.unwrap());
    }
    assert!(ids.is_sorted(), "{ids:?}");
    let listed = async |filter: ActionFilter| -> Vec<usize> {
        let rows = t.audit.actions(filter).await.unwrap();
        rows.iter().map(|row| ids.iter().position(|id| *id == row.id).unwrap()).collect()
    };
    let text = |text: &str| Some(text.to_owned());
    let base = ActionFilter::default;
    assert_eq!(listed(base()).await, [4, 3, 2, 1, 0]);
    assert_eq!(listed(ActionFilter { actor: text("a"), ..base() }).await, [4, 3, 2, 0]);
    assert_eq!(listed(ActionFilter { action: text("job.retry"), ..base() }).await, [4, 0]);
    assert_eq!(listed(ActionFilter { action: text("job.*"), ..base() }).await, [4, 1, 0]);
    assert_eq!(listed(ActionFilter { action: text("*"), ..base() }).await, [4, 3, 2, 1, 0]);
    assert_eq!(listed(ActionFilter { target: text("1"), ..base() }).await, [1, 0]);
    let both = ActionFilter { actor: text("a"), action: text("job.*"), target: text("2"), ..base() };
    assert_eq!(listed(both).await, [4]);
    assert_eq!(listed(ActionFilter { limit: 2, before: Some(ids[4]), ..base() }).await, [3, 2]);
    for limit in [0, ACTIONS_MAX + 1] {
        let refused = t.audit.actions(ActionFilter { limit, ..base() }).await.unwrap_err();
        assert_eq!(refused.code(), "INVALID");
    }
}

pub async fn no_secret_and_nothing_endless_is_kept(t: &Tables) {
    let (_, text) = NewToken::issue("ci", vec![Grant::EVERYTHING], None).unwrap();
    let given = NewAction {
        detail: json!({ "password": "hunter2", "note": text.reveal() }),
        request_id: Some("x".repeat(10_000)),
        ..action("a\0b", "token.add", &"t".repeat(10_000))
    };
    let id = t.audit.begin(given).await.unwrap();
    t.audit.finish(id, &"X".repeat(10_000)).await.unwrap();
    let row = all(t.audit.as_ref()).await.remove(0);
    let told = format!("{row:?}");
    assert!(!told.contains("hunter2") && !told.contains(&text.reveal()[20..]), "{told}");
    assert!(told.len() < 3000, "{} bytes", told.len());
}

pub async fn old_actions_are_purged_and_young_ones_stay(t: &Tables) {
    const DAY: Duration = Duration::from_secs(86_400);
    for number in 0..5 {
        t.audit.begin(action("a", "x", &number.to_string())).await.unwrap();
    }
    t.queue.advance(399 * DAY);
    let young = t.audit.begin(action("a", "x", "young")).await.unwrap();
    let request = PurgeRequest { batch: 3, ..PurgeRequest::default() };
    assert_eq!(t.queue.store.purge(request).await.unwrap(), PurgeReport::default());
    t.queue.advance(DAY);
    let first = t.queue.store.purge(request).await.unwrap();
    assert_eq!(first.actions, 3, "no more than a batch");
    assert!(!first.is_short(request), "there may be more");
    let second = t.queue.store.purge(request).await.unwrap();
    assert_eq!(second.actions, 2);
    assert!(second.is_short(request));
    let left: Vec<ActionId> = all(t.audit.as_ref()).await.iter().map(|row| row.id).collect();
    assert_eq!(left, [young]);
    let next = t.audit.begin(action("a", "x", "next")).await.unwrap();
    assert!(next > young, "numbers are not given out again");
}
