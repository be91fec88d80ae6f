//! Webhooks from the push to the hook's server.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use stargate_base::{Secret, clock};
use stargate_jobs::courier::{HttpCourier, Settings};
use stargate_jobs::http::{self, signature};
use stargate_queue::store::JobFilter;
use stargate_queue::{Job, State};
use stargate_repo::{
    DeliveryId, NewPush, NewWebhook, Occasion, RefUpdate, SharedPushes, WEBHOOK_DELIVER, register,
};
use tokio::net::TcpListener;

use crate::fixture::Fixture;
use crate::http::serve_until;

const KEY: &str = "hmac-canary";
const PATIENCE: Duration = Duration::from_secs(60);

async fn fixture(secret: &'static str) -> (Fixture, SharedPushes, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = Settings { allow_private: true, ..Settings::default() };
    let secrets = Arc::new(move |name: &str| (name == secret).then(|| Secret::new(KEY)));
    let courier = Arc::new(HttpCourier::new(&settings, secrets).unwrap());
    let (f, pushes) = Fixture::start_with_pushes(|pushes, registry| {
        register(registry, pushes, None, Some(courier)).unwrap();
    })
    .await;
    let hook = NewWebhook {
        repo: None,
        url: format!("http://{}/path-canary", listener.local_addr().unwrap()),
        secret_ref: Some("HOOK".into()),
        events: vec![Occasion::Push],
    };
    pushes.webhook_put(hook).await.unwrap();
    (f, pushes, listener)
}

async fn push(pushes: &SharedPushes) {
    let update =
        RefUpdate { ref_name: "refs/heads/main".into(), old_oid: "0".repeat(40), new_oid: "b".repeat(40) };
    let push = NewPush {
        repo: "team/app".into(),
        pusher: None,
        request_id: "r1".into(),
        epoch: None,
        default_branch: None,
        updates: vec![update],
        at: clock::wall(),
        trace_id: None,
    };
    pushes.record(push).await.unwrap();
}

/// The one delivery's job, when it has ended.
async fn delivered(f: &Fixture) -> Job {
    let filter = || JobFilter { kind: Some(WEBHOOK_DELIVER.into()), limit: 10, ..JobFilter::default() };
    let first = async {
        loop {
            if let Some(job) = f.store.jobs(filter()).await.unwrap().into_iter().next() {
                return job.id;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let id = tokio::time::timeout(PATIENCE, first).await.expect("nothing is to be delivered");
    f.finished(id).await
}

#[tokio::test]
async fn a_push_reaches_a_hook_whose_server_is_busy_at_first() {
    let (f, pushes, listener) = fixture("HOOK").await;
    let answers = [
        "503 Busy\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n",
        "202 Accepted\r\ncontent-length: 0\r\n\r\n",
    ];
    push(&pushes).await;
    let both = async { tokio::join!(delivered(&f), serve_until(listener, "}", &answers)) };
    let (job, requests) = tokio::time::timeout(PATIENCE, both).await.expect("not done");
    assert_eq!((job.state, job.attempt_count), (State::Done, 2), "{job:?}");
    let mut numbers = Vec::new();
    for request in &requests {
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        let value = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
        let signed = value("x-stargate-signature: ");
        let time = signed["t=".len()..].split(',').next().unwrap().parse().unwrap();
        assert_eq!(signed, signature(&Secret::new(KEY), time, body));
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!(value("x-stargate-delivery: "), body["delivery"].to_string());
        numbers.push(body["delivery"].as_i64().unwrap());
    }
    assert_eq!(numbers[0], numbers[1], "tried again it is the same delivery");
    let row = pushes.delivery(DeliveryId(numbers[0])).await.unwrap().unwrap();
    assert!(row.delivered_at.is_some());
    f.stop().await;
}

#[tokio::test]
async fn a_refused_delivery_fails_at_once_and_nothing_secret_is_kept_with_the_job() {
    let (f, pushes, listener) = fixture("HOOK").await;
    let body = format!("Cannot POST /path-canary with {KEY}");
    let answer = format!("404 Not Found\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    push(&pushes).await;
    let answers = [answer.as_str()];
    let both = async { tokio::join!(delivered(&f), serve_until(listener, "}", &answers)) };
    let (job, _) = tokio::time::timeout(PATIENCE, both).await.expect("not done");
    assert_eq!((job.state, job.attempt_count), (State::Failed, 1), "{job:?}");
    assert_eq!(job.error.as_ref().unwrap().code, http::HTTP_REJECTED);
    let events = f.store.events(job.id, 0, 100).await.unwrap();
    for text in [format!("{job:?}"), format!("{events:?}")] {
        assert!(!text.contains("canary"), "{text}");
    }
    f.stop().await;
}

#[tokio::test]
async fn a_delivery_whose_secret_is_not_set_fails_unsent() {
    let (f, pushes, listener) = fixture("ANOTHER").await;
    push(&pushes).await;
    let job = delivered(&f).await;
    assert_eq!((job.state, job.attempt_count), (State::Failed, 1), "{job:?}");
    assert!(job.error.unwrap().message.contains("HOOK"));
    assert!(tokio::time::timeout(Duration::ZERO, listener.accept()).await.is_err(), "it was sent");
    f.stop().await;
}
