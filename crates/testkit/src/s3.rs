//! A corner of the S3 server for tests: one bucket for all, a prefix of its own for every test.
//!
//! `cargo xtask test` starts the server and names it in the environment.

use crate::environment;

/// Where a test may keep objects. What it leaves behind goes with the server.
#[derive(Debug, Clone)]
pub struct Corner {
    /// The server's address, `http://127.0.0.1:…`; buckets are part of the path.
    pub endpoint: String,
    /// The key's name.
    pub access_key: String,
    /// The key's secret.
    pub secret_key: String,
    /// The bucket; it exists.
    pub bucket: String,
    /// Begins the names of this test's objects; nobody else uses it. Without slashes.
    pub prefix: String,
}

impl Corner {
    /// A corner that is still empty.
    pub fn create() -> Self {
        let variable = |name| environment::required(name, "no S3 server for tests");
        Self {
            endpoint: variable("STARGATE_TEST_S3_ENDPOINT"),
            access_key: variable("STARGATE_TEST_S3_ACCESS_KEY"),
            secret_key: variable("STARGATE_TEST_S3_SECRET_KEY"),
            bucket: variable("STARGATE_TEST_S3_BUCKET"),
            prefix: format!("case-{:016x}", rand::random::<u64>()),
        }
    }

    /// `s3://bucket/prefix`.
    pub fn url(&self) -> String {
        format!("s3://{}/{}", self.bucket, self.prefix)
    }
}
