//! Tokens: kept for good, found by their public part, taken back for good. The rules are in `stargate_access::tokens`.

use std::sync::Arc;

use stargate_access::tokens::{PAGE_MAX as TOKENS_MAX, TOUCH_EVERY};
use stargate_access::{Authority, Grant, NewToken, Policy, Role, Token, TokenId, Tokens};
use stargate_base::{Secret, Tasks};

use super::prelude::*;
use crate::tables::Tables;

fn issue(grants: &[&str], life: Option<Duration>) -> (NewToken, Secret) {
    let grants = grants.iter().map(|grant| grant.parse().expect("a grant")).collect();
    NewToken::issue("ci é \"1\"", grants, life).expect("a token")
}

async fn add(t: &Tables, grants: &[&str], life: Option<Duration>) -> (TokenId, Secret) {
    let (token, text) = issue(grants, life);
    let id = token.id.clone();
    t.tokens.add(token).await.expect("a good token is kept");
    (id, text)
}

async fn found(tokens: &dyn Tokens, id: &TokenId) -> Token {
    tokens.find(id).await.expect("the store answers").token.expect("the token is there")
}

/// An authority that asks the store each time.
fn authority(tokens: &Arc<dyn Tokens>, policy: Policy) -> (Authority, Tasks) {
    let tasks = Tasks::new();
    (Authority::remembering(Duration::ZERO, tokens.clone(), policy, tasks.clone()), tasks)
}

async fn code(authority: &Authority, text: Option<&Secret>, need: Role, repo: Option<&str>) -> &'static str {
    authority.authorize(text, need, repo).await.map_or_else(|denied| denied.code(), |_| "ok")
}

pub async fn a_token_reads_back_as_it_was_added(t: &Tables) {
    let life = Duration::from_secs(3600);
    let (given, text) = issue(&["write:team/*", "read:*"], Some(life));
    t.tokens.add(given.clone()).await.unwrap();
    let another = t.another().await.tokens;
    let look = another.find(&given.id).await.unwrap();
    assert_eq!(look.now, t.queue.now(), "the store's time comes with it");
    let token = look.token.expect("seen by another process");
    assert_eq!((&token.id, &token.name, &token.grants), (&given.id, &given.name, &given.grants));
    assert_eq!(token.hash.as_bytes(), given.hash.as_bytes());
    assert_eq!((token.created_at, token.expires_at), (t.queue.now(), Some(t.queue.now() + life)));
    assert_eq!((token.last_used_at, token.revoked_at), (None, None));
    let listed = format!("{:?} {token:?}", another.list(None, 10).await.unwrap());
    assert!(!listed.contains(&text.reveal()[16..]), "the text itself is nowhere");
    let (for_ever, _) = add(t, &["admin:*"], None).await;
    assert_eq!(found(another.as_ref(), &for_ever).await.expires_at, None);
}

pub async fn an_id_that_nobody_has_is_not_found(t: &Tables) {
    let (stranger, _) = issue(&["admin:*"], None);
    let look = t.tokens.find(&stranger.id).await.unwrap();
    assert!(look.token.is_none());
    assert_eq!(look.now, t.queue.now());
}

pub async fn a_token_is_added_once(t: &Tables) {
    let (first, _) = issue(&["read:*"], None);
    t.tokens.add(first.clone()).await.unwrap();
    let (mut second, _) = issue(&["admin:*"], None);
    second.id = first.id.clone();
    let refused = t.tokens.add(second).await.expect_err("the id is taken");
    assert_eq!(refused.code(), "INVALID");
    let kept = found(t.tokens.as_ref(), &first.id).await;
    assert_eq!((kept.hash.as_bytes(), &kept.grants), (first.hash.as_bytes(), &first.grants));
}

pub async fn a_bad_token_is_not_kept(t: &Tables) {
    let (mut bad, _) = issue(&["read:*"], None);
    bad.grants.clear();
    assert_eq!(t.tokens.add(bad).await.expect_err("it allows nothing").code(), "INVALID");
    assert!(!t.tokens.any().await.unwrap());
}

pub async fn a_revoked_token_stays_revoked_and_listed(t: &Tables) {
    let (id, _) = add(t, &["read:*"], None).await;
    let at = t.queue.now();
    assert!(t.another().await.tokens.revoke(&id).await.unwrap());
    assert_eq!(found(t.tokens.as_ref(), &id).await.revoked_at, Some(at));
    t.queue.advance(Duration::from_secs(9));
    assert!(!t.tokens.revoke(&id).await.unwrap(), "once");
    assert_eq!(found(t.tokens.as_ref(), &id).await.revoked_at, Some(at), "the time stays");
    assert_eq!(t.tokens.list(None, 10).await.unwrap().len(), 1);
    let (stranger, _) = issue(&["read:*"], None);
    let missing = t.tokens.revoke(&stranger.id).await.expect_err("there is none");
    assert_eq!(missing.code(), "NOT_FOUND");
}

pub async fn racing_operators_revoke_a_token_once(t: &Tables) {
    let (id, _) = add(t, &["read:*"], None).await;
    let stores = [t.tokens.clone(), t.another().await.tokens];
    let revoked = race(8, |n| {
        let (tokens, id) = (stores[n % 2].clone(), id.clone());
        async move { tokens.revoke(&id).await.expect("each is answered") }
    })
    .await;
    assert_eq!(revoked.iter().filter(|first| **first).count(), 1, "{revoked:?}");
}

pub async fn the_last_use_is_noted_once_a_minute(t: &Tables) {
    let (id, _) = add(t, &["read:*"], None).await;
    let used = async || found(t.tokens.as_ref(), &id).await.last_used_at;
    let first = t.queue.now();
    t.tokens.touch(&id).await.unwrap();
    assert_eq!(used().await, Some(first));
    t.queue.advance(TOUCH_EVERY - Duration::from_micros(1));
    t.tokens.touch(&id).await.unwrap();
    assert_eq!(used().await, Some(first), "a moment too early");
    t.queue.advance(Duration::from_micros(1));
    t.tokens.touch(&id).await.unwrap();
    assert_eq!(used().await, Some(t.queue.now()));
    let last = t.queue.now();
    t.queue.jump_back(Duration::from_secs(3600));
    t.tokens.touch(&id).await.unwrap();
    assert_eq!(used().await, Some(last), "it never falls");
    let (stranger, _) = issue(&["read:*"], None);
    t.tokens.touch(&stranger.id).await.unwrap();
    assert_eq!(t.tokens.list(None, 10).await.unwrap().len(), 1, "a use makes no token");
}

pub async fn tokens_are_listed_by_id_page_by_page(t: &Tables) {
    let tokens = t.tokens.clone();
    race(TOKENS_MAX as usize + 1, |_| {
        let (tokens, (token, _)) = (tokens.clone(), issue(&["read:*"], None));
        async move { tokens.add(token).await.expect("a token") }
    })
    .await;
    let first = t.tokens.list(None, u32::MAX).await.unwrap();
    assert_eq!(first.len(), TOKENS_MAX as usize, "no page is larger than the maximum");
    assert!(first.is_sorted_by_key(|token| token.id.clone()));
    let rest = t.tokens.list(Some(&first[first.len() - 1].id), 10).await.unwrap();
    assert_eq!(rest.len(), 1);
    assert!(rest[0].id > first[first.len() - 1].id);
    assert_eq!(t.tokens.list(None, 2).await.unwrap().len(), 2);
    assert_eq!(t.tokens.list(None, 0).await.unwrap().len(), 1, "a page has at least one row");
}

pub async fn there_is_a_token_from_the_first_one_on(t: &Tables) {
    assert!(!t.tokens.any().await.unwrap());
    let (authority, _) = authority(&t.tokens, Policy::Open);
    assert_eq!(code(&authority, None, Role::Admin, None).await, "ok", "open until then");
    let (id, text) = add(t, &["read:*"], None).await;
    t.tokens.revoke(&id).await.unwrap();
    assert!(t.another().await.tokens.any().await.unwrap());
    assert_eq!(code(&authority, None, Role::Read, None).await, "UNAUTHENTICATED");
    assert_eq!(code(&authority, Some(&text), Role::Read, None).await, "TOKEN_REVOKED");
}

pub async fn a_token_is_good_for_what_it_allows_until_it_expires_by_the_stores_clock(t: &Tables) {
    let (_, text) = add(t, &["write:team/*", "read:*"], Some(Duration::from_secs(60))).await;
    let (authority, _) = authority(&t.tokens, Policy::Tokens);
    assert_eq!(code(&authority, Some(&text), Role::Write, Some("team/app")).await, "ok");
    assert_eq!(code(&authority, Some(&text), Role::Write, Some("app")).await, "FORBIDDEN");
    assert_eq!(code(&authority, Some(&text), Role::Read, None).await, "ok");
    t.queue.advance(Duration::from_micros(59_999_999));
    assert_eq!(code(&authority, Some(&text), Role::Read, None).await, "ok");
    t.queue.advance(Duration::from_micros(1));
    assert_eq!(code(&authority, Some(&text), Role::Read, None).await, "TOKEN_EXPIRED");
    assert_eq!(code(&authority, None, Role::Read, None).await, "UNAUTHENTICATED");
    let (_, stranger) = NewToken::issue("x", vec![Grant::EVERYTHING], None).unwrap();
    assert_eq!(code(&authority, Some(&stranger), Role::Read, None).await, "UNAUTHENTICATED");
}

pub async fn a_token_revoked_in_one_process_is_refused_in_another_and_its_use_is_noted(t: &Tables) {
    let (id, text) = add(t, &["admin:*"], None).await;
    let another = t.another().await.tokens;
    let (authority, tasks) = authority(&another, Policy::Tokens);
    assert_eq!(code(&authority, Some(&text), Role::Admin, None).await, "ok");
    tasks.join().await;
    assert_eq!(found(t.tokens.as_ref(), &id).await.last_used_at, Some(t.queue.now()));
    t.tokens.revoke(&id).await.unwrap();
    assert_eq!(code(&authority, Some(&text), Role::Read, None).await, "TOKEN_REVOKED");
}
