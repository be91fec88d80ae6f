//! Announcements to a server: what arrives, in which order, whatever fails.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use stargate_base::Secret;
use stargate_jobs::http::signature;
use stargate_jobs::relay::Settings;
use stargate_testkit::eventually;
use tokio::task::JoinHandle;

use super::outbox::{Directive, PATIENCE, TOPIC, emptied, waiting};
use super::receiver::{Arrival, Receiver};
use super::{Fixture, KEY, LOCK_OVER, http};

fn ok(_: &Arrival) -> Option<String> {
    Some("200 OK".to_owned())
}

#[tokio::test]
async fn an_announcement_arrives_with_its_number_its_key_and_a_signature_that_can_be_verified() {
    let f = Fixture::start().await;
    let receiver = Receiver::start(ok).await;
    let directive = Directive::begin(&f.store).await;
    directive.change(&["7"], 0).await;
    directive.change(&["7"], 0).await;
    let (stop, relay) = f.relay(http(&receiver.url));
    emptied(&f.store).await;
    stop.cancel();
    relay.await.unwrap();

    let arrivals = receiver.arrivals();
    assert_eq!(arrivals.len(), 2, "{arrivals:?}");
    assert!(arrivals[0].id < arrivals[1].id);
    for (arrival, (change, version)) in arrivals.iter().zip([("created", 1), ("updated", 2)]) {
        let body: Value = serde_json::from_str(&arrival.body).unwrap();
        assert_eq!((&body["entity_id"], &body["change"]), (&"7".into(), &change.into()));
        assert_eq!((&body["version"], &body["body"]["change"]), (&version.into(), &(version - 1).into()));
        assert!(arrival.head.starts_with("POST /hook?token=path-canary HTTP/1.1"), "{}", arrival.head);
        let number = arrival.id.to_string();
        assert_eq!(arrival.header("idempotency-key"), Some(number.as_str()));
        assert_eq!(arrival.header("x-stargate-topic"), Some(TOPIC));
        assert_eq!(arrival.header("x-stargate-key"), Some("acme%2Fcore%2Fissues%2F7"));
        assert_eq!(arrival.header("content-type"), Some("application/json"));
        let signed = arrival.header("x-stargate-signature").unwrap();
        let time = signed["t=".len()..].split(',').next().unwrap().parse().unwrap();
        assert_eq!(signed, signature(&Secret::new(KEY), time, &arrival.body));
    }
}

#[tokio::test]
async fn a_key_that_fails_keeps_its_order_and_holds_up_no_other() {
    let f = Fixture::start().await;
    let healed = Arc::new(AtomicUsize::new(0));
    let is_healed = healed.clone();
    let receiver = Receiver::start(move |arrival| {
        let refuse = arrival.key == "bad" && is_healed.load(Ordering::SeqCst) == 0;
        Some(if refuse { "500 Oops" } else { "204 No Content" }.to_owned())
    })
    .await;
    let directive = Directive::begin(&f.store).await;
    // More than a page of the bad one lies before the others.
    for _ in 0..130 {
        directive.change(&["bad"], 0).await;
    }
    for _ in 0..3 {
        directive.change(&["good", "better", "bad"], 0).await;
    }
    let (stop, relay) = f.relay(http(&receiver.url));
    eventually(PATIENCE, "only the bad one waits", || async {
        match waiting(&f.store).await {
            (133, Some(problem)) if problem.contains("answered 500") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let versions = receiver.versions();
    assert_eq!(versions["good"], [1, 2, 3]);
    assert_eq!(versions["better"], [1, 2, 3]);
    let first = receiver.arrivals().iter().find(|arrival| arrival.key == "bad").unwrap().id;
    let tried = receiver.arrivals().into_iter().filter(|arrival| arrival.key == "bad");
    assert!(tried.into_iter().all(|arrival| arrival.id == first), "a later one was tried before the first");

    healed.store(1, Ordering::SeqCst);
    emptied(&f.store).await;
    assert_eq!(receiver.versions()["bad"], (1..=133).collect::<Vec<u64>>());
    stop.cancel();
    relay.await.unwrap();
}

#[tokio::test]
async fn a_server_that_never_answers_one_key_holds_up_no_other() {
    let f = Fixture::start().await;
    let receiver = Receiver::start(|arrival| (arrival.key != "stuck").then(|| "200 OK".to_owned())).await;
    let directive = Directive::begin(&f.store).await;
    for _ in 0..5 {
        directive.change(&["stuck", "a", "b"], 0).await;
    }
    let (stop, relay) = f.relay(http(&receiver.url));
    eventually(PATIENCE, "the others", || async {
        let versions = receiver.versions();
        let all = |key: &str| versions.get(key).is_some_and(|versions| *versions == [1, 2, 3, 4, 5]);
        if all("a") && all("b") { Ok(()) } else { Err(format!("{versions:?}")) }
    })
    .await;
    stop.cancel();
    // It does not wait for the one that does not answer.
    tokio::time::timeout(PATIENCE / 2, relay).await.expect("the relay stops").unwrap();
    assert_eq!(waiting(&f.store).await.0, 5);
}

#[tokio::test]
async fn a_server_with_too_much_of_everything_is_asked_again_when_it_says() {
    let f = Fixture::start().await;
    let refusals = AtomicUsize::new(0);
    let receiver = Receiver::start(move |_| {
        let flooded = refusals.fetch_add(1, Ordering::SeqCst) == 0;
        Some(if flooded { "429 Later\r\nretry-after: 2" } else { "200 OK" }.to_owned())
    })
    .await;
    let directive = Directive::begin(&f.store).await;
    directive.change(&["a"], 0).await;
    let (stop, relay) = f.relay(http(&receiver.url));
    emptied(&f.store).await;
    stop.cancel();
    relay.await.unwrap();
    let answers: Vec<bool> = receiver.arrivals().iter().map(Arrival::is_accepted).collect();
    assert_eq!(answers, [false, true]);
}

#[tokio::test]
async fn a_private_address_is_refused_unless_it_is_allowed() {
    let f = Fixture::start().await;
    let receiver = Receiver::start(ok).await;
    Directive::begin(&f.store).await.change(&["a"], 0).await;
    let (stop, relay) = f.relay_with(http(&receiver.url), &Settings::default());
    let problem = eventually(PATIENCE, "the refusal", || async {
        waiting(&f.store).await.1.ok_or_else(|| "not tried".to_owned())
    })
    .await;
    stop.cancel();
    relay.await.unwrap();
    assert!(problem.contains("private address") && problem.contains("allow_private"), "{problem}");
    assert!(!problem.contains("canary"), "{problem}");
    assert!(receiver.arrivals().is_empty(), "it was contacted");
    let (stop, relay) = f.relay(http(&receiver.url));
    emptied(&f.store).await;
    stop.cancel();
    relay.await.unwrap();
}

#[tokio::test]
async fn a_failure_that_is_kept_shows_neither_the_secret_nor_the_path() {
    let f = Fixture::start().await;
    let receiver = Receiver::start(|arrival| {
        Some(format!("400 Bad\r\nx-echo: {KEY} {}", arrival.head.lines().next().unwrap()))
    })
    .await;
    Directive::begin(&f.store).await.change(&["a"], 0).await;
    let (stop, relay) = f.relay(http(&receiver.url));
    let problem = eventually(PATIENCE, "the refusal", || async {
        waiting(&f.store).await.1.ok_or_else(|| "not tried".to_owned())
    })
    .await;
    stop.cancel();
    relay.await.unwrap();
    assert!(problem.contains("answered 400"), "{problem}");
    assert!(!problem.contains("canary"), "{problem}");
}

#[tokio::test]
async fn a_relay_that_dies_after_a_delivery_delivers_it_again_and_in_order() {
    dies_after_deliveries(Fixture::start().await).await;
}

#[tokio::test]
async fn a_relay_over_postgres_that_dies_after_a_delivery_delivers_it_again_and_in_order() {
    dies_after_deliveries(Fixture::over_postgres().await).await;
}

/// Every so often the relay dies after a delivery has been accepted and before it could hear so.
async fn dies_after_deliveries(f: Fixture) {
    const KILLS: usize = 12;
    let victim: Arc<Mutex<Option<JoinHandle<()>>>> = Arc::default();
    let (accepted, target) = (AtomicUsize::new(0), victim.clone());
    let receiver = Receiver::start(move |_| {
        if accepted.fetch_add(1, Ordering::SeqCst) % 7 == 6
            && let Some(relay) = target.lock().unwrap().take()
        {
            relay.abort();
        }
        Some("200 OK".to_owned())
    })
    .await;
    let directive = Directive::begin(&f.store).await;
    for _ in 0..20 {
        directive.change(&["a", "b", "c", "d", "e"], 0).await;
    }
    let mut kills = 0;
    while kills < KILLS {
        let (_, relay) = f.relay(http(&receiver.url));
        *victim.lock().unwrap() = Some(relay);
        eventually(PATIENCE, "a kill", || async {
            let is_over = victim.lock().unwrap().is_none() || waiting(&f.store).await.0 == 0;
            if is_over { Ok(()) } else { Err(format!("{} arrived", receiver.arrivals().len())) }
        })
        .await;
        kills += 1;
        // What it had sent is not to arrive behind what the next one sends.
        eventually(PATIENCE, "the end of its connections", || async {
            if receiver.connected() == 0 { Ok(()) } else { Err(format!("{} left", receiver.connected())) }
        })
        .await;
        // The dead one gave nothing back.
        f.clock.advance(LOCK_OVER);
    }
    let (stop, relay) = f.relay(http(&receiver.url));
    emptied(&f.store).await;
    stop.cancel();
    relay.await.unwrap();

    let versions = receiver.versions();
    let total: usize = versions.values().map(Vec::len).sum();
    assert!(total > 100, "no kill of {KILLS} came between a delivery and its note");
    for (key, versions) in versions {
        // Each either follows the one before or is that one again.
        let mut last = 0;
        for version in &versions {
            assert!(*version == last + 1 || *version == last, "{key}: {versions:?}");
            last = *version;
        }
        assert_eq!(last, 20, "{key}: {versions:?}");
    }
    let mut by_id: BTreeMap<i64, String> = BTreeMap::new();
    for arrival in receiver.arrivals() {
        let body = by_id.entry(arrival.id).or_insert_with(|| arrival.body.clone());
        assert_eq!(*body, arrival.body, "the same number means the same announcement");
    }
    assert_eq!(by_id.len(), 100);
    f.remove().await;
}

#[tokio::test]
async fn of_two_relays_one_delivers_and_the_other_follows_when_it_stops() {
    let f = Fixture::start().await;
    let (first_place, second_place) = (Receiver::start(ok).await, Receiver::start(ok).await);
    let directive = Directive::begin(&f.store).await;
    let (stop_first, first) = f.relay(http(&first_place.url));
    directive.change(&["a", "b"], 0).await;
    emptied(&f.store).await;
    let (stop_second, second) = f.relay(http(&second_place.url));
    for _ in 0..10 {
        directive.change(&["a", "b"], 0).await;
    }
    emptied(&f.store).await;
    assert!(second_place.arrivals().is_empty(), "two relays delivered");

    stop_first.cancel();
    first.await.unwrap();
    directive.change(&["a"], 0).await;
    emptied(&f.store).await;
    stop_second.cancel();
    second.await.unwrap();
    assert_eq!(second_place.versions(), [("a".to_owned(), vec![12])].into());
    let expected: Vec<u64> = (1..=11).collect();
    let expected = [("a".to_owned(), expected.clone()), ("b".to_owned(), expected)].into();
    assert_eq!(first_place.versions(), expected, "nothing arrived twice");
}

#[tokio::test]
async fn a_relay_whose_lock_is_another_s_drops_what_it_has_begun_and_begins_nothing_more() {
    let f = Fixture::start().await;
    let receiver = Receiver::start(|_| None).await;
    let directive = Directive::begin(&f.store).await;
    directive.change(&["a"], 0).await;
    let (stop, relay) = f.relay(http(&receiver.url));
    eventually(PATIENCE, "a delivery that hangs", || async {
        if receiver.arrivals().is_empty() { Err("none yet".to_owned()) } else { Ok(()) }
    })
    .await;
    // The store's clock has been set: the lock is over for the store, and for its holder it is not.
    f.clock.advance(LOCK_OVER);
    let other = Receiver::start(ok).await;
    let (stop_other, second) = f.relay(http(&other.url));
    emptied(&f.store).await;
    // When it wants to renew the lock, it hears that it is another's.
    eventually(PATIENCE, "the end of the delivery", || async {
        if receiver.left() == 0 { Err("it still hangs".to_owned()) } else { Ok(()) }
    })
    .await;
    directive.change(&["a", "b"], 0).await;
    emptied(&f.store).await;
    assert_eq!(other.versions(), [("a".to_owned(), vec![1, 2]), ("b".to_owned(), vec![1])].into());
    assert_eq!(receiver.arrivals().len(), 1, "the one without the lock went on");
    for (stop, relay) in [(stop, relay), (stop_other, second)] {
        stop.cancel();
        relay.await.unwrap();
    }
}
