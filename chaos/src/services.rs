//! What a site needs beside our own processes, each behind a proxy that fails as networks do.

use std::sync::Mutex;

use anyhow::Result;
use stargate_testkit::cluster::Cluster;
use stargate_testkit::proxy::Proxy;
use stargate_testkit::redis::Redis;
use stargate_testkit::temporal::{Namespace, Server};

use crate::s3::S3;
use crate::secrets::Secrets;

/// The database, the lock and the bucket.
#[derive(Debug)]
pub(crate) struct Servers {
    /// The store.
    pub(crate) postgres: Cluster,
    /// The way to it.
    pub(crate) postgres_proxy: Proxy,
    /// The lock.
    pub(crate) redis: Mutex<Redis>,
    /// The way to it.
    pub(crate) redis_proxy: Proxy,
    /// Artifacts.
    pub(crate) s3: tokio::sync::Mutex<S3>,
    /// The way to them.
    pub(crate) s3_proxy: Proxy,
}

impl Servers {
    /// Starts all of them.
    pub(crate) async fn start(secrets: &Secrets) -> Result<Self> {
        let s3 = S3::start(&secrets.s3).await?;
        let postgres = tokio::task::block_in_place(Cluster::start);
        let redis = tokio::task::block_in_place(|| Redis::with(&["--requirepass", &secrets.redis]));
        let address = postgres.url().replace("postgres://postgres@", "").replace("/postgres", "");
        Ok(Self {
            postgres_proxy: Proxy::start(&address).await,
            redis_proxy: Proxy::start(&redis.address()).await,
            s3_proxy: Proxy::start(&s3.address()).await,
            postgres,
            redis: Mutex::new(redis),
            s3: tokio::sync::Mutex::new(s3),
        })
    }
}

/// Temporal, which executes directives on one kind of site.
#[derive(Debug)]
pub(crate) struct Workflows {
    /// The server.
    pub(crate) server: Mutex<Server>,
    /// The way to it.
    pub(crate) proxy: Proxy,
    /// Where workflows are, past the proxy.
    pub(crate) namespace: Namespace,
}

impl Workflows {
    /// Starts it.
    pub(crate) async fn start() -> Self {
        let server = tokio::task::block_in_place(Server::start);
        let namespace = server.namespace();
        let proxy = Proxy::start(&namespace.address).await;
        Self { server: Mutex::new(server), proxy, namespace }
    }
}
