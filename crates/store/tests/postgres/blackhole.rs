//! A server that takes everything and answers nothing.

use std::time::{Duration, Instant};

use stargate_base::ErrorClass;
use stargate_queue::store::{JobFilter, Verdict};
use stargate_queue::{Error, Store};
use stargate_store::postgres::{Options, Postgres};
use stargate_testkit::eventually;
use stargate_testkit::proxy::Proxy;

use crate::{PATIENCE, at, claim, database, done, host_port, new, request, worker};

const TIMEOUT: Duration = Duration::from_secs(1);
/// The wait for a connection and the statement, on a machine that does much else. Without a bound it is for ever.
const ANSWER_MAX: Duration = Duration::from_secs(30);

async fn behind(proxy: &Proxy, url: &str) -> Postgres {
    let options = Options { migrate: true, statement_timeout: Some(TIMEOUT), ..Options::default() };
    Postgres::connect(&at(url, &proxy.address()), options).await.unwrap()
}

/// The call has to end in time with an error that trying again can mend.
async fn is_transient<T: std::fmt::Debug>(name: &str, call: impl Future<Output = stargate_queue::Result<T>>) {
    let begun = Instant::now();
    let answer = call.await;
    let took = begun.elapsed();
    assert!(took < ANSWER_MAX, "{name} took {took:?}");
    let error: Error = answer.expect_err(name);
    assert_eq!(error.class(), ErrorClass::RetryableTransient, "{name}: {error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_answering_is_a_transient_error_in_time_and_all_is_well_when_it_answers_again() {
    let database = database().await;
    let proxy = Proxy::start(&host_port(database.url())).await;
    let store = behind(&proxy, database.url()).await;
    let me = worker(&store).await;
    store.enqueue(vec![new("a"), new("a")]).await.unwrap();
    let held = claim(&store, me).await;
    assert_eq!(held.len(), 2);
    store.beat(me).await.unwrap();

    proxy.stall();
    // The first round finds connections that have gone silent, the second cannot make new ones.
    for round in ["silent", "unreachable"] {
        let all = async |name: &str| {
            let name = format!("{round}: {name}");
            match name.rsplit(' ').next().unwrap() {
                "enqueue" => is_transient(&name, store.enqueue(vec![new("a")])).await,
                "claim" => is_transient(&name, store.claim(request(me))).await,
                "settle" => is_transient(&name, store.settle(vec![done(&held[0])])).await,
                "beat" => is_transient(&name, store.beat(me)).await,
                "check" => is_transient(&name, store.check()).await,
                _ => is_transient(&name, store.jobs(JobFilter::default())).await,
            }
        };
        tokio::join!(all("enqueue"), all("claim"), all("settle"), all("beat"), all("check"), all("jobs"));
    }
    // Many at once do not wait for each other in turn.
    let calls = (0..8).map(|_| is_transient("one of many", store.beat(me)));
    futures::future::join_all(calls).await;

    proxy.forward();
    eventually(PATIENCE, "an answer", || async { store.check().await.map_err(|error| error.to_string()) })
        .await;
    eventually(PATIENCE, "a beat", || async { store.beat(me).await.map_err(|error| error.to_string()) })
        .await;
    let verdicts = eventually(PATIENCE, "a settlement", || async {
        store.settle(vec![done(&held[1])]).await.map_err(|error| error.to_string())
    })
    .await;
    assert_eq!(verdicts, [Verdict::Accepted]);
    eventually(PATIENCE, "an enqueue", || async {
        store.enqueue(vec![new("b")]).await.map_err(|error| error.to_string())
    })
    .await;
    drop(store);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_died_without_a_word_is_replaced_even_if_callers_give_up_before_the_timeout() {
    let database = database().await;
    let proxy = Proxy::start(&host_port(database.url())).await;
    let store = behind(&proxy, database.url()).await;
    let me = worker(&store).await;
    store.beat(me).await.unwrap();
    proxy.forget();
    // As the heartbeat does: it waits for less than a statement may take.
    eventually(Duration::from_secs(5), "a beat on a new connection", || async {
        match tokio::time::timeout(TIMEOUT / 2, store.beat(me)).await {
            Ok(beat) => beat.map_err(|error| error.to_string()),
            Err(_) => Err("gave up".to_owned()),
        }
    })
    .await;
    drop(store);
    database.remove().await;
}
