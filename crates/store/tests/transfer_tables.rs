//! Repositories, pushes, hooks, tokens and audited actions go along when a store is moved.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests, which clippy does not take for tests")]

use std::sync::Arc;
use std::time::Duration;

use stargate_access::audit::{OK, Source};
use stargate_access::{
    ActionFilter, ActionId, Audit, Authority, NewAction, NewToken, Policy, Role, Token, TokenId, Tokens,
};
use stargate_base::clock::ManualClock;
use stargate_base::{Clock, Epoch, Secret, Tasks};
use stargate_queue::Store;
use stargate_repo::repository::DEFAULT_BRANCH;
use stargate_repo::{
    EventFilter, NewPush, NewWebhook, Occasion, Processed, PushEventId, Pushes, RefUpdate, RepoSize, RepoSpec,
};
use stargate_store::postgres::{self, Postgres};
use stargate_store::sqlite::{self, Sqlite};
use stargate_store::transfer::move_to_postgres;
use stargate_testkit::postgres::Database;
use stargate_testkit::start_of_time;

const TARGET: &str = "postgres://somewhere/jobs";

async fn connect(url: &str, clock: Clock) -> Postgres {
    let options = postgres::Options { clock, migrate: true, ..postgres::Options::default() };
    Postgres::connect(url, options).await.unwrap()
}

fn push(request: &str, old: u32, new: u32) -> NewPush {
    let update = |name: &str| RefUpdate {
        ref_name: name.to_owned(),
        old_oid: format!("{old:040x}"),
        new_oid: format!("{new:040x}"),
    };
    NewPush {
        repo: "team/app".to_owned(),
        pusher: Some("änn".to_owned()),
        request_id: request.to_owned(),
        epoch: None,
        default_branch: None,
        updates: vec![update(DEFAULT_BRANCH), update("refs/heads/é")],
        at: start_of_time(),
        trace_id: None,
    }
}

/// Fills a store with one of everything; the texts of two tokens, and an event that was not processed.
async fn fill(from: &Sqlite, clock: &ManualClock) -> (Vec<Secret>, PushEventId) {
    let epoch: Epoch = from.term_begin("a", None, None).await.unwrap();
    let hook = |repo: Option<&str>| NewWebhook {
        repo: repo.map(str::to_owned),
        url: "https://example.com/ü?q=\"1\"".to_owned(),
        secret_ref: repo.map(|_| "HOOK".to_owned()),
        events: vec![Occasion::Push, Occasion::Delete],
    };
    from.repo_put(RepoSpec::new("empty")).await.unwrap();
    let first = from.record(NewPush { epoch: Some(epoch), ..push("r1", 0, 1) }).await.unwrap();
    from.webhook_put(hook(None)).await.unwrap();
    from.webhook_put(hook(Some("team/app"))).await.unwrap();
    clock.advance(Duration::from_micros(1_234_567));
    from.process(first[0]).await.unwrap();
    let delivery = from.deliveries(first[0]).await.unwrap()[0].id;
    from.delivered(delivery).await.unwrap();
    from.size_set("team/app", RepoSize { bytes: 1 << 40, objects: 77 }).await.unwrap();
    let mut texts = Vec::new();
    for (name, life) in [("für immer", None), ("short", Some(Duration::from_secs(60)))] {
        let (token, text) = NewToken::issue(name, vec!["write:team/*".parse().unwrap()], life).unwrap();
        let id = token.id.clone();
        from.add(token).await.unwrap();
        from.touch(&id).await.unwrap();
        texts.push(text);
    }
    let (revoked, _) = NewToken::issue("revoked", vec!["admin:*".parse().unwrap()], None).unwrap();
    let id = revoked.id.clone();
    from.add(revoked).await.unwrap();
    from.revoke(&id).await.unwrap();
    let begun = from.begin(action(Some(id))).await.unwrap();
    from.finish(begun, OK).await.unwrap();
    from.begin(action(None)).await.unwrap();
    (texts, first[1])
}

fn action(token: Option<TokenId>) -> NewAction {
    NewAction {
        actor: "änn".to_owned(),
        request_id: token.as_ref().map(|_| "r-1".to_owned()),
        token,
        role: Role::Operate,
        action: "job.retry".to_owned(),
        target: "7".to_owned(),
        detail: serde_json::json!({ "x": ["é", null, 1.5] }),
        source: Source::Page,
    }
}

/// Everything the contracts tell.
async fn all_of(store: &(impl Pushes + Tokens + Audit)) -> String {
    let events = store.events(EventFilter { limit: 100, ..EventFilter::default() }).await.unwrap();
    let mut deliveries = Vec::new();
    for event in &events {
        deliveries.extend(store.deliveries(event.id).await.unwrap());
    }
    let tokens: Vec<Token> = store.list(None, 100).await.unwrap();
    let hashes: Vec<[u8; 32]> = tokens.iter().map(|token| *token.hash.as_bytes()).collect();
    let mut heads = Vec::new();
    for repo in store.repos(None, 100).await.unwrap() {
        heads.extend(store.heads(&repo.name, None, 100).await.unwrap());
    }
    let (repos, hooks) = (store.repos(None, 100).await.unwrap(), store.webhooks(None, 100).await.unwrap());
    assert_eq!((repos.len(), events.len(), hooks.len(), deliveries.len(), tokens.len()), (2, 2, 2, 2, 3));
    assert!(!heads.is_empty());
    let actions = store.actions(ActionFilter::default()).await.unwrap();
    assert_eq!(actions.len(), 2);
    format!(
        "{repos:#?}\n{heads:#?}\n{events:#?}\n{hooks:#?}\n{deliveries:#?}\n{tokens:#?}\n{hashes:?}\n{actions:#?}"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn repositories_pushes_hooks_and_tokens_are_moved() {
    let clock = ManualClock::at(start_of_time());
    let folder = tempfile::tempdir().unwrap();
    let options = sqlite::Options { clock: Clock::Manual(clock.clone()) };
    let from = Sqlite::open(&folder.path().join("s.db"), options).await.unwrap();
    let (texts, open) = fill(&from, &clock).await;
    let database = Database::create(async |url| connect(&url, Clock::default()).await.close().await).await;
    let to = Arc::new(connect(database.url(), Clock::Manual(clock.clone())).await);
    let report = move_to_postgres(&from, &to, TARGET, |_| Ok(())).await.unwrap();
    let rows: Vec<(&str, u64)> =
        report.tables.iter().rev().skip(8).take(5).map(|moved| (moved.table, moved.rows)).collect();
    let expected = [("token", 3), ("webhook_outbox", 2), ("webhook", 2), ("push_event", 2), ("repo", 2)];
    assert_eq!(rows, expected);
    assert_eq!(all_of(&from).await, all_of(to.as_ref()).await);

    let authority = Authority::remembering(Duration::ZERO, to.clone(), Policy::Open, Tasks::new());
    for text in &texts {
        authority.authorize(Some(text), Role::Write, Some("team/app")).await.unwrap();
    }
    clock.advance(Duration::from_secs(60));
    assert_eq!(
        authority.authorize(Some(&texts[1]), Role::Read, None).await.unwrap_err().code(),
        "TOKEN_EXPIRED"
    );
    let again = to.record(push("r1", 0, 1)).await.unwrap();
    assert_eq!(again[1], open, "what was recorded there is known here");
    assert!(to.process(open).await.unwrap().first);
    assert_eq!(to.process(again[0]).await.unwrap(), Processed::BEFORE);
    let new = to.record(push("r2", 1, 2)).await.unwrap();
    assert!(new[0] > open, "numbers go on after the old ones");
    assert!(to.process(new[0]).await.unwrap().default_moved);
    assert_eq!(to.begin(action(None)).await.unwrap(), ActionId(3), "and so do those of actions");
    drop((authority, to));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_with_a_token_or_a_repository_is_not_moved_to() {
    let folder = tempfile::tempdir().unwrap();
    let from = Sqlite::open(&folder.path().join("s.db"), sqlite::Options::default()).await.unwrap();
    let database = Database::create(async |url| connect(&url, Clock::default()).await.close().await).await;
    let to = connect(database.url(), Clock::default()).await;
    to.repo_put(RepoSpec::new("a")).await.unwrap();
    let refused = move_to_postgres(&from, &to, TARGET, |_| Ok(())).await.unwrap_err();
    assert_eq!(refused.code(), "CONFLICT");
    from.repo_put(RepoSpec::new("a")).await.expect("this store still takes writes");
    to.repo_remove("a").await.unwrap();
    let (token, _) = NewToken::issue("x", vec!["admin:*".parse().unwrap()], None).unwrap();
    to.add(token).await.unwrap();
    assert_eq!(move_to_postgres(&from, &to, TARGET, |_| Ok(())).await.unwrap_err().code(), "CONFLICT");
    drop(to);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_in_which_somebody_acted_is_not_moved_to() {
    let folder = tempfile::tempdir().unwrap();
    let from = Sqlite::open(&folder.path().join("s.db"), sqlite::Options::default()).await.unwrap();
    let database = Database::create(async |url| connect(&url, Clock::default()).await.close().await).await;
    let to = connect(database.url(), Clock::default()).await;
    to.begin(action(None)).await.unwrap();
    assert_eq!(move_to_postgres(&from, &to, TARGET, |_| Ok(())).await.unwrap_err().code(), "CONFLICT");
    drop(to);
    database.remove().await;
}
