//! Leases and connections for a test's own Redis.

use std::sync::Arc;

use stargate_base::Secret;
use stargate_leader::RedisLease;
use stargate_leader::redis::{Replicas, Settings};
use stargate_testkit::redis::Redis;

pub(super) fn lease_of(server: &Redis) -> Arc<RedisLease> {
    lease_at(&server.address(), Replicas::Connected)
}

pub(super) fn lease_at(address: &str, replicas: Replicas) -> Arc<RedisLease> {
    let settings = Settings { replicas, ..Settings::of(Secret::new(format!("redis://{address}"))) };
    Arc::new(RedisLease::new(settings).expect("a lease"))
}

/// A connection of the test's own.
pub(super) async fn client_of(server: &Redis) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(server.url()).expect("a URL");
    client.get_multiplexed_async_connection().await.expect("a connection to Redis")
}
