//! Pushes that are under way when the term of their leader ends: refs move in it or not at all (INV-3).

use std::sync::{Arc, Weak};

use stargate_gateway::Hold;
use stargate_testkit::eventually;
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::fixture::{Fixture, PATIENCE};
use crate::log;
use crate::raw::answer;
use crate::vanish::push;

/// A term that pushes are admitted in.
struct Term {
    stopping: CancellationToken,
    over: CancellationToken,
    held: Weak<()>,
}

impl Term {
    fn begin(fixture: &Fixture) -> Self {
        let (stopping, over, held) = (CancellationToken::new(), CancellationToken::new(), Arc::new(()));
        let weak = Arc::downgrade(&held);
        *fixture.gate.hold.lock().unwrap() = Some(Hold::new(stopping.clone(), over.clone(), held));
        Self { stopping, over, held: weak }
    }

    /// From now on only pushes hold it.
    fn leave(&self, fixture: &Fixture) {
        fixture.gate.hold.lock().unwrap().take();
        assert!(self.is_held());
    }

    fn is_held(&self) -> bool {
        self.held.strong_count() > 0
    }

    /// Waits until nobody holds it.
    async fn ends(&self) {
        eventually(PATIENCE, "the end of the term", || {
            let held = self.is_held();
            async move { if held { Err("it is held".to_owned()) } else { Ok(()) } }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_is_not_decided_when_its_term_ends_is_refused_at_once() {
    let fixture = Fixture::start().await;
    let repo = fixture.repo("a").await;
    let client = Client::with_commit().await;
    let term = Term::begin(&fixture);
    fixture.tell_hooks("wait-before");
    let (stream, _) = push(&fixture, &client, "undecided", 0).await;
    fixture.hook_says("at-before").await;
    term.leave(&fixture);
    term.stopping.cancel();
    let refused = answer(stream).await;
    assert_eq!((refused.status, refused.body.contains("NOT_LEADER")), (503, true), "{}", refused.body);
    term.ends().await;
    fixture.nothing_left().await;
    assert_eq!(fixture.oid(&repo, "refs/kv/main").await, None);
    assert_eq!(fixture.recorded(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_term_does_not_end_before_a_push_that_is_decided() {
    let fixture = Fixture::start().await;
    let repo = fixture.repo("a").await;
    let client = Client::with_commit().await;
    let term = Term::begin(&fixture);
    fixture.tell_hooks("wait-after");
    let (stream, _) = push(&fixture, &client, "decided", 0).await;
    fixture.hook_says("at-after").await;
    term.leave(&fixture);
    term.stopping.cancel();
    assert!(term.is_held());
    fixture.tell_hooks("go");
    let accepted = answer(stream).await;
    assert!(accepted.body.contains("ok refs/kv/main"), "{}", accepted.body);
    term.ends().await;
    assert!(fixture.oid(&repo, "refs/kv/main").await.is_some());
    assert_eq!(fixture.recorded(), ["a tester refs/kv/main"]);
}

/// Whoever has lost the lock cannot wait: another may lead by now.
#[tokio::test(flavor = "multi_thread")]
async fn a_push_whose_term_is_lost_is_ended_before_its_refs_move() {
    let fixture = Fixture::start().await;
    let repo = fixture.repo("a").await;
    let client = Client::with_commit().await;
    let term = Term::begin(&fixture);
    fixture.tell_hooks("wait-after");
    let (stream, _) = push(&fixture, &client, "lost", 0).await;
    fixture.hook_says("at-after").await;
    term.leave(&fixture);
    term.over.cancel();
    term.stopping.cancel();
    term.ends().await;
    fixture.tell_hooks("go");
    fixture.nothing_left().await;
    assert_eq!(fixture.oid(&repo, "refs/kv/main").await, None);
    drop(stream);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_term_does_not_wait_for_ever_for_a_push_whose_client_has_gone() {
    let fixture = Fixture::start().await;
    let repo = fixture.repo("a").await;
    let client = Client::with_commit().await;
    let term = Term::begin(&fixture);
    fixture.tell_hooks("wait-after");
    let (stream, _) = push(&fixture, &client, "stuck", 0).await;
    fixture.hook_says("at-after").await;
    drop(stream);
    term.leave(&fixture);
    term.stopping.cancel();
    term.ends().await;
    fixture.nothing_left().await;
    assert_eq!(fixture.oid(&repo, "refs/kv/main").await, None);
}

/// In a handover the term is over soon, but the lock is kept for as long as somebody holds the term.
#[tokio::test(flavor = "multi_thread")]
async fn a_handover_does_not_end_a_push_whose_client_goes_meanwhile() {
    log::listen();
    let fixture = Fixture::start().await;
    let repo = fixture.repo("a").await;
    let client = Client::with_commit().await;
    let term = Term::begin(&fixture);
    fixture.tell_hooks("wait-after");
    let (stream, _) = push(&fixture, &client, "handover", 0).await;
    fixture.hook_says("at-after").await;
    term.leave(&fixture);
    term.stopping.cancel();
    // As long as the elector is polite.
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    term.over.cancel();
    drop(stream);
    log::says("handover", "goes on without its client").await;
    assert!(term.is_held());
    fixture.tell_hooks("go");
    term.ends().await;
    assert!(fixture.oid(&repo, "refs/kv/main").await.is_some());
    assert_eq!(fixture.recorded(), ["a tester refs/kv/main"]);
}
