//! Announcements over Postgres' own channels.

use std::time::Duration;

use futures::StreamExt as _;
use serde_json::Value;
use stargate_base::Tasks;
use stargate_jobs::relay::Destination;
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, NoTls};

use super::Fixture;
use super::outbox::{Directive, PATIENCE, emptied};

/// What is notified on a channel.
async fn listen(tasks: &Tasks, url: &str, channel: &str) -> mpsc::UnboundedReceiver<String> {
    let (client, mut connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    let (sender, receiver) = mpsc::unbounded_channel();
    tasks.spawn(async move {
        let mut messages = futures::stream::poll_fn(move |context| connection.poll_message(context));
        while let Some(Ok(message)) = messages.next().await {
            if let AsyncMessage::Notification(notification) = message {
                let _ = sender.send(notification.payload().to_owned());
            }
        }
    });
    client.batch_execute(&format!("listen {channel}")).await.unwrap();
    // The connection lasts as long as its client.
    tasks.spawn(async move {
        let _client = client;
        std::future::pending::<()>().await;
    });
    receiver
}

#[tokio::test]
async fn a_listener_hears_each_change_in_order_and_of_a_long_one_without_its_body() {
    let f = Fixture::over_postgres().await;
    let mut heard = listen(&f.tasks, f.database.as_ref().unwrap().url(), "changes").await;
    let directive = Directive::begin(&f.store).await;
    for _ in 0..5 {
        directive.change(&["a", "b"], 0).await;
    }
    directive.change(&["a"], 9000).await;
    let (stop, relay) = f.relay(Destination::Notify { channel: "changes".into() });
    emptied(&f.store).await;
    stop.cancel();
    relay.await.unwrap();

    let mut told: Vec<Value> = Vec::new();
    while told.len() < 11 {
        let text = tokio::time::timeout(PATIENCE, heard.recv()).await.expect("a notification").unwrap();
        assert!(text.len() < 8000);
        told.push(serde_json::from_str(&text).unwrap());
    }
    let of = |entity: &str| -> Vec<&Value> {
        told.iter().filter(|payload| payload["entity_id"] == entity).collect()
    };
    let versions =
        |of: &[&Value]| -> Vec<u64> { of.iter().map(|p| p["version"].as_u64().unwrap()).collect() };
    assert_eq!(versions(&of("a")), [1, 2, 3, 4, 5, 6]);
    assert_eq!(versions(&of("b")), [1, 2, 3, 4, 5]);
    assert!(of("a")[5]["body"].is_null(), "{:?}", of("a")[5]);
    assert!(of("a")[4]["body"].is_object());
    let more = tokio::time::timeout(Duration::ZERO, heard.recv()).await;
    assert!(more.is_err(), "told twice: {more:?}");
    f.remove().await;
}
