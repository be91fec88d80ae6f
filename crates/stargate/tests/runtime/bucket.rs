//! A test's corner of the S3 server, seen by a client that is not the program under test.

use futures::TryStreamExt as _;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{ObjectStore as _, ObjectStoreExt as _};
use stargate_testkit::s3::Corner;

pub(crate) struct Bucket {
    corner: Corner,
    client: AmazonS3,
}

impl Bucket {
    pub(crate) fn new(corner: Corner) -> Self {
        let client = AmazonS3Builder::new()
            .with_endpoint(&corner.endpoint)
            .with_allow_http(true)
            .with_region("us-east-1")
            .with_access_key_id(&corner.access_key)
            .with_secret_access_key(&corner.secret_key)
            .with_bucket_name(&corner.bucket);
        Self { client: client.build().expect("a client of the S3 server"), corner }
    }

    /// What a worker has to be told.
    pub(crate) fn settings(&self) -> [(&'static str, String); 5] {
        [
            ("STARGATE_ARTIFACTS", self.corner.url()),
            ("STARGATE_S3_ENDPOINT", self.corner.endpoint.clone()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ACCESS_KEY_ID", self.corner.access_key.clone()),
            ("AWS_SECRET_ACCESS_KEY", self.corner.secret_key.clone()),
        ]
    }

    /// The keys of all objects, sorted, without the prefix of the corner.
    pub(crate) async fn list(&self) -> Vec<String> {
        let prefix = format!("{}/", self.corner.prefix);
        let objects = self.client.list(Some(&Path::from(self.corner.prefix.as_str())));
        let objects: Vec<_> = objects.try_collect().await.expect("a list of objects");
        let key = |path: &Path| path.as_ref().strip_prefix(&prefix).expect("the prefix asked for").to_owned();
        let mut keys: Vec<String> = objects.iter().map(|object| key(&object.location)).collect();
        keys.sort();
        keys
    }

    /// The bytes of an object.
    pub(crate) async fn get(&self, key: &str) -> Vec<u8> {
        let path = Path::from(format!("{}/{key}", self.corner.prefix));
        self.client.get(&path).await.expect("an object").bytes().await.expect("its bytes").to_vec()
    }
}
