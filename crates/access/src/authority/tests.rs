//! The authority over tokens in memory, which can be told to fail. Over the real stores it runs in the conformance suite.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;

use super::*;
use crate::error::Result;
use crate::token::NewToken;

#[derive(Debug, Default)]
struct Memory {
    rows: Mutex<BTreeMap<TokenId, Token>>,
    seconds: AtomicUsize,
    looks: AtomicUsize,
    touches: AtomicUsize,
    away: AtomicBool,
}

impl Memory {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(1_000_000 + i64::try_from(self.seconds.load(Ordering::SeqCst)).unwrap())
            .unwrap()
    }

    fn answer(&self) -> Result<()> {
        if !self.away.load(Ordering::SeqCst) {
            return Ok(());
        }
        Err(Error::Store { class: ErrorClass::RetryableTransient, source: "away".into() })
    }

    fn rows(&self) -> MutexGuard<'_, BTreeMap<TokenId, Token>> {
        self.rows.lock().unwrap()
    }
}

#[async_trait]
impl Tokens for Memory {
    async fn add(&self, new: NewToken) -> Result<()> {
        let now = self.now();
        let expires_at = new.life.map(|life| now + life);
        let token = Token {
            id: new.id.clone(),
            hash: new.hash,
            name: new.name,
            grants: new.grants,
            created_at: now,
            expires_at,
            last_used_at: None,
            revoked_at: None,
        };
        self.rows().insert(new.id, token);
        Ok(())
    }

    async fn list(&self, _: Option<&TokenId>, _: u32) -> Result<Vec<Token>> {
        Ok(self.rows().values().cloned().collect())
    }

    async fn revoke(&self, id: &TokenId) -> Result<bool> {
        let now = self.now();
        self.rows().get_mut(id).unwrap().revoked_at = Some(now);
        Ok(true)
    }

    async fn find(&self, id: &TokenId) -> Result<Found> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        self.answer()?;
        Ok(Found { token: self.rows().get(id).cloned(), now: self.now() })
    }

    async fn touch(&self, _: &TokenId) -> Result<()> {
        self.touches.fetch_add(1, Ordering::SeqCst);
        self.answer()
    }

    async fn any(&self) -> Result<bool> {
        self.answer()?;
        Ok(!self.rows().is_empty())
    }
}

async fn add(memory: &Memory, grants: &[&str], life: Option<Duration>) -> (TokenId, Secret) {
    let grants = grants.iter().map(|grant| grant.parse().unwrap()).collect();
    let (new, text) = NewToken::issue("ci", grants, life).unwrap();
    let id = new.id.clone();
    memory.add(new).await.unwrap();
    (id, text)
}

fn authority(age_max: Duration, memory: &Arc<Memory>, policy: Policy) -> Authority {
    Authority::remembering(age_max, memory.clone(), policy, Tasks::new())
}

/// One that believes nothing for longer than a question.
fn forgetful(memory: &Arc<Memory>) -> Authority {
    authority(Duration::ZERO, memory, Policy::Tokens)
}

async fn code(authority: &Authority, text: Option<&Secret>, need: Role, repo: Option<&str>) -> &'static str {
    match authority.authorize(text, need, repo).await {
        Ok(_) => "ok",
        Err(denied) => denied.code(),
    }
}

#[tokio::test]
async fn a_token_gives_its_rights_and_no_others() {
    let memory = Arc::new(Memory::default());
    let (id, text) = add(&memory, &["read:*", "write:team/*"], None).await;
    let authority = forgetful(&memory);
    let principal = authority.authorize(Some(&text), Role::Write, Some("team/a")).await.unwrap();
    assert_eq!((principal.token.as_ref(), principal.name.as_str()), (Some(&id), "ci"));
    assert!(principal.may(Role::Read, Some("other")) && !principal.may(Role::Write, Some("other")));
    assert_eq!(code(&authority, Some(&text), Role::Read, None).await, "ok");
    assert_eq!(code(&authority, Some(&text), Role::Write, Some("other")).await, "FORBIDDEN");
    assert_eq!(code(&authority, Some(&text), Role::Write, None).await, "FORBIDDEN");
    assert_eq!(code(&authority, Some(&text), Role::Admin, Some("team/a")).await, "FORBIDDEN");
}

#[tokio::test]
async fn a_wrong_id_and_a_wrong_secret_are_answered_alike() {
    let memory = Arc::new(Memory::default());
    let (id, text) = add(&memory, &["admin:*"], None).await;
    memory.revoke(&id).await.unwrap();
    let (other, _) = add(&memory, &["admin:*"], None).await;
    let (_, stranger) = NewToken::issue("x", vec![Grant::EVERYTHING], None).unwrap();
    let wrong_secret = Secret::new(text.reveal().replace(id.as_str(), other.as_str()));
    let last = if text.reveal().ends_with('A') { "B" } else { "A" };
    let typo = Secret::new(format!("{}{last}", &text.reveal()[..text.reveal().len() - 1]));
    let authority = forgetful(&memory);
    let mut answers = Vec::new();
    for presented in [&stranger, &wrong_secret, &typo, &Secret::new("nonsense")] {
        let denied = authority.authorize(Some(presented), Role::Read, None).await.unwrap_err();
        answers.push(format!("{} {denied} {denied:?}", denied.code()));
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(code(&authority, Some(&text), Role::Read, None).await, "TOKEN_REVOKED", "who has it is told");
    assert_eq!(code(&authority, None, Role::Read, None).await, "UNAUTHENTICATED");
}

#[tokio::test]
async fn an_expired_token_is_refused_from_its_last_instant_on() {
    let memory = Arc::new(Memory::default());
    let (_, text) = add(&memory, &["admin:*"], Some(Duration::from_secs(10))).await;
    let authority = forgetful(&memory);
    memory.seconds.store(9, Ordering::SeqCst);
    assert_eq!(code(&authority, Some(&text), Role::Read, None).await, "ok");
    memory.seconds.store(10, Ordering::SeqCst);
    assert_eq!(code(&authority, Some(&text), Role::Read, None).await, "TOKEN_EXPIRED");
}

#[tokio::test]
async fn a_revoked_token_is_refused_as_soon_as_its_row_is_asked_for_again() {
    let memory = Arc::new(Memory::default());
    let (id, text) = add(&memory, &["admin:*"], None).await;
    let (now, remembering) = (forgetful(&memory), authority(ROW_AGE_MAX, &memory, Policy::Tokens));
    for authority in [&now, &remembering] {
        assert_eq!(code(authority, Some(&text), Role::Read, None).await, "ok");
    }
    memory.revoke(&id).await.unwrap();
    assert_eq!(code(&now, Some(&text), Role::Read, None).await, "TOKEN_REVOKED");
    // How long a row is believed is the cache's business, tested there with a clock of its own.
    let found = memory.find(&id).await.unwrap();
    remembering.cache().put(id.clone(), found, Duration::MAX, Duration::MAX);
    assert_eq!(code(&remembering, Some(&text), Role::Read, None).await, "TOKEN_REVOKED");
}

#[tokio::test]
async fn the_store_is_asked_once_for_many_questions_about_known_and_unknown_ids() {
    let memory = Arc::new(Memory::default());
    let (_, text) = add(&memory, &["admin:*"], None).await;
    let (_, stranger) = NewToken::issue("x", vec![Grant::EVERYTHING], None).unwrap();
    let authority = authority(ROW_AGE_MAX, &memory, Policy::Tokens);
    for _ in 0..10 {
        assert_eq!(code(&authority, Some(&text), Role::Read, None).await, "ok");
        assert_eq!(code(&authority, Some(&stranger), Role::Read, None).await, "UNAUTHENTICATED");
    }
    let looks = memory.looks.load(Ordering::SeqCst);
    // A machine that stands still for five seconds asks again.
    assert!((2..=6).contains(&looks), "{looks} looks");
    authority.tasks.join().await;
    let touches = memory.touches.load(Ordering::SeqCst);
    assert!((1..=3).contains(&touches), "{touches} notes about the last use");
}

#[tokio::test]
async fn a_store_that_does_not_answer_lets_nobody_in_who_is_not_remembered() {
    let memory = Arc::new(Memory::default());
    let (_, text) = add(&memory, &["admin:*"], None).await;
    memory.away.store(true, Ordering::SeqCst);
    for policy in [Policy::Open, Policy::Tokens] {
        let authority = authority(ROW_AGE_MAX, &memory, policy);
        let denied = authority.authorize(Some(&text), Role::Read, None).await.unwrap_err();
        assert_eq!((denied.code(), denied.class()), ("STORE_UNAVAILABLE", ErrorClass::RetryableTransient));
        assert!(authority.authorize(None, Role::Read, None).await.is_err());
    }
}

#[tokio::test]
async fn an_open_store_is_open_until_its_first_token() {
    let memory = Arc::new(Memory::default());
    let authority = authority(Duration::ZERO, &memory, Policy::Open);
    let principal = authority.authorize(None, Role::Admin, None).await.unwrap();
    assert_eq!((principal.name.as_str(), principal.token), ("anonymous", None));
    let (id, text) = add(&memory, &["read:*"], None).await;
    assert_eq!(code(&authority, None, Role::Read, None).await, "UNAUTHENTICATED");
    assert_eq!(code(&authority, Some(&text), Role::Read, None).await, "ok");
    memory.revoke(&id).await.unwrap();
    assert_eq!(code(&authority, None, Role::Read, None).await, "UNAUTHENTICATED", "it does not open again");
}

#[test]
fn only_an_address_of_this_machine_may_be_open() {
    let at = |address: &str, any| Policy::at_start(address.parse().unwrap(), any);
    for own in ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"] {
        assert_eq!(at(own, false).unwrap(), Policy::Open, "{own}");
    }
    for others in ["0.0.0.0", "::", "10.0.0.1", "::ffff:10.0.0.1", "2001:db8::1"] {
        let refused = at(others, false).unwrap_err();
        assert_eq!(refused.code(), "OPEN_TO_OTHERS");
        assert!(refused.to_string().contains("token add"), "{refused}");
        assert_eq!(at(others, true).unwrap(), Policy::Tokens, "{others}");
    }
}

#[tokio::test]
async fn no_answer_and_nothing_that_is_printed_holds_a_token() {
    let memory = Arc::new(Memory::default());
    let (_, text) = add(&memory, &["read:a"], Some(Duration::from_secs(1))).await;
    let authority = forgetful(&memory);
    let canary = &text.reveal()[16..];
    let mut printed = format!("{:?}", authority.authorize(Some(&text), Role::Read, Some("a")).await);
    for seconds in [0, 5] {
        memory.seconds.store(seconds, Ordering::SeqCst);
        let denied = authority.authorize(Some(&text), Role::Admin, None).await.unwrap_err();
        printed += &format!("{denied} {denied:?}");
    }
    printed += &format!("{authority:?}");
    assert!(!printed.contains(canary), "{printed}");
}
