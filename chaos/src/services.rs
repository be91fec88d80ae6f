//! What a site needs beside our own processes, each behind a proxy that fails as networks do.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Mutex;

use anyhow::{Context as _, Result};
use stargate_testkit::cluster::Cluster;
use stargate_testkit::proxy::Proxy;
use stargate_testkit::redis::Redis;
use stargate_testkit::temporal::{Namespace, Server};
use tempfile::TempDir;

use crate::s3::S3;
use crate::secrets::Secrets;
use crate::site::run;

/// Room for a cluster and its log, little enough to be filled quickly.
const DATABASE_MIB: u32 = 400;

/// A folder for the database, on a small disk of its own where one can be mounted.
#[derive(Debug)]
pub(crate) struct Disk {
    folder: TempDir,
    is_mounted: bool,
}

impl Disk {
    fn new(is_mounted: bool) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("stargate-chaos-").tempdir().context("a folder")?;
        // The server runs as another user.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
        if is_mounted {
            let size = format!("size={DATABASE_MIB}m,mode=755");
            run("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", &folder.path().display().to_string()])?;
        }
        Ok(Self { folder, is_mounted })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.is_mounted {
            // Left to the end of the namespace if somebody is still there.
            let _ = run("umount", &["-l", &self.path().display().to_string()]);
        }
    }
}

/// The database, the lock and the bucket.
#[derive(Debug)]
pub(crate) struct Servers {
    /// The store.
    pub(crate) postgres: Cluster,
    /// What it writes to. After it: the first to be dropped is the first.
    pub(crate) disk: Disk,
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
    pub(crate) async fn start(secrets: &Secrets, has_disk: bool) -> Result<Self> {
        let s3 = S3::start(&secrets.s3).await?;
        let disk = Disk::new(has_disk)?;
        let postgres = tokio::task::block_in_place(|| Cluster::start_in(disk.path()));
        let redis = tokio::task::block_in_place(|| Redis::with(&["--requirepass", &secrets.redis]));
        let address = postgres.url().replace("postgres://postgres@", "").replace("/postgres", "");
        Ok(Self {
            postgres_proxy: Proxy::start(&address).await,
            redis_proxy: Proxy::start(&redis.address()).await,
            s3_proxy: Proxy::start(&s3.address()).await,
            postgres,
            disk,
            redis: Mutex::new(redis),
            s3: tokio::sync::Mutex::new(s3),
        })
    }
}

impl Servers {
    /// The address of the store as our processes have it: through the proxy, with the password.
    pub(crate) fn postgres_url(&self, secrets: &Secrets) -> String {
        format!("postgres://postgres:{}@{}/postgres", secrets.postgres, self.postgres_proxy.address())
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
