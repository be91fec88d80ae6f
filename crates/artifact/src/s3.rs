//! Artifacts in a bucket of S3, or of a server that speaks its language.
//!
//! An object appears whole or not at all: a put or the completion of a multipart upload is one step of the server. So
//! a reader at the final key sees nothing, or a complete artifact, whenever a process dies.
//!
//! There is no lock, so every write is conditional: where nothing lies with `If-None-Match: *`, over a damaged artifact
//! with `If-Match` and its ETag. What holds where:
//!
//! - Amazon S3 documents both conditions, for puts and for completions, as one step with the write.
//! - SeaweedFS does the same for puts. For completions it looks first and writes then: of two completions in the same
//!   moment both may pass, and the last one stands. An attempt that is late by more than that moment is refused.
//! - A server that ignores conditions lets the last attempt win; [`Artifacts::check`] finds out.
//!
//! In all cases only complete objects meet. Afterwards each attempt looks at what stands there and describes that, not
//! what it sent (`settle`), with a condition on the manifest as well. So all agree in the end.
//!
//! An artifact carries its SHA-256, its attempt and what is to be known about it as metadata of the object, so it is clear at once what it should
//! be, even before its manifest is there. An attempt that finds a complete artifact without a manifest does not
//! replace it, since its author may be about to write one: it writes the same manifest.
//!
//! The [`Permit`](crate::Permit) is asked after the look at what lies there, and its answer must be fresh when the
//! request that makes the artifact appear is sent. If a pause falls in between, it looks and asks again.
//!
//! An upload that failed is aborted. One whose process died stays with the server, invisible to readers; a lifecycle
//! rule of the bucket (`AbortIncompleteMultipartUpload`) removes it.

mod chunks;
mod condition;
mod sources;
mod upload;

use std::path::Path as FilePath;
use std::time::Duration;

use async_trait::async_trait;
use object_store::aws::{AmazonS3, AmazonS3Builder, S3ConditionalPut};
use object_store::path::Path;
use object_store::{
    Attribute, BackoffConfig, ClientOptions, GetOptions, ObjectStore as _, ObjectStoreExt as _, PutMode,
    PutPayload, RetryConfig, UpdateVersion,
};
use stargate_base::{Secret, Tasks};

use crate::error::{Error, Result};
use crate::key::Key;
use crate::manifest::{self, Manifest};
use crate::permit::Permission;
use crate::{Artifacts, Found, Published, Publisher, Step};

pub use sources::Sources;

use condition::{Condition, Conditional, is_expired};

/// The size of a part, and of what is read at once. A file that is not larger is put at once.
const PART: u64 = 8 << 20;
/// How long one request may take, its body included.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a request is tried again; only trouble of the network and of the server (5xx) is.
const RETRIES_MAX: usize = 4;
/// No further try begins after this.
const RETRY_TIMEOUT: Duration = Duration::from_secs(60);
/// How often a publication looks again because somebody else wrote meanwhile, or it took too long itself.
const ROUNDS_MAX: u32 = 5;

const META_SHA256: Attribute = Attribute::Metadata(std::borrow::Cow::Borrowed("stargate-sha256"));
const META_ATTEMPT: Attribute = Attribute::Metadata(std::borrow::Cow::Borrowed("stargate-attempt"));
const META_ABOUT: Attribute = Attribute::Metadata(std::borrow::Cow::Borrowed("stargate-about"));

/// Where a bucket is and how to get in.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The bucket. It must exist.
    pub bucket: String,
    /// Put before every key; may be empty.
    pub prefix: String,
    /// The address of another server than Amazon's. With `http://` nothing is encrypted.
    pub endpoint: Option<String>,
    /// The region; other servers than Amazon's mostly take any.
    pub region: String,
    /// The name of the key. Without one the roles of the machine (instance, container) are used.
    pub access_key_id: Option<String>,
    /// The secret of the key.
    pub secret_access_key: Option<Secret>,
    /// Goes with a key that was lent for a while.
    pub session_token: Option<Secret>,
}

impl Settings {
    fn build(&self) -> Result<AmazonS3> {
        let plain = self.endpoint.as_deref().is_some_and(|endpoint| endpoint.starts_with("http://"));
        let options = ClientOptions::new()
            .with_allow_http(plain)
            .with_timeout(REQUEST_TIMEOUT)
            .with_connect_timeout(CONNECT_TIMEOUT);
        let retry = RetryConfig {
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(100),
                max_backoff: Duration::from_secs(5),
                base: 2.0,
            },
            max_retries: RETRIES_MAX,
            retry_timeout: RETRY_TIMEOUT,
        };
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&self.bucket)
            .with_region(&self.region)
            .with_client_options(options)
            .with_retry(retry)
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            .with_http_connector(Conditional::default());
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        match (&self.access_key_id, &self.secret_access_key) {
            (Some(id), Some(secret)) => {
                builder = builder.with_access_key_id(id).with_secret_access_key(secret.reveal());
                if let Some(token) = &self.session_token {
                    builder = builder.with_token(token.reveal());
                }
            }
            (None, None) => {}
            _ => {
                let detail = "a key needs both its id and its secret".to_owned();
                return Err(Error::Settings { detail });
            }
        }
        builder.build().map_err(|error| Error::Settings { detail: error.to_string() })
    }
}

/// How often is looked at something that changes while it is read.
const LOOKS_MAX: u32 = 3;
/// What is wrong with it then.
const CHANGED: &str = "it changed while it was read";

/// Artifacts in a bucket.
#[derive(Debug)]
pub struct S3 {
    store: AmazonS3,
    bucket: String,
    prefix: Path,
    /// Uploads that were dropped half-way are aborted by tasks.
    tasks: Tasks,
}

/// What lies at a key.
enum There {
    Absent,
    /// What its manifest says.
    Valid(Manifest),
    /// What its own metadata says; the manifest is missing or wrong.
    Undescribed(Undescribed),
    Damaged {
        wrong: String,
        tag: Option<String>,
    },
}

struct Undescribed {
    manifest: Manifest,
    /// What is wrong with the manifest that is there.
    wrong: String,
    /// The artifact that was read.
    tag: Option<String>,
    /// The manifest that was read, if there is one.
    manifest_tag: Option<String>,
}

/// What lies at the place of a manifest.
struct Described {
    manifest: std::result::Result<Manifest, String>,
    tag: Option<String>,
}

impl S3 {
    /// Artifacts in the bucket that `settings` name. Connects to nothing yet. `tasks` owns what has to be tidied up
    /// when a publication is dropped.
    pub fn new(settings: &Settings, tasks: Tasks) -> Result<Self> {
        let prefix = Path::parse(settings.prefix.trim_matches('/'))
            .map_err(|error| Error::Settings { detail: format!("prefix {:?}: {error}", settings.prefix) })?;
        Ok(Self { store: settings.build()?, bucket: settings.bucket.clone(), prefix, tasks })
    }

    fn path(&self, key: &str) -> Path {
        key.split('/').fold(self.prefix.clone(), |path, segment| path.join(segment))
    }

    fn address(&self, path: &Path) -> String {
        format!("s3://{}/{path}", self.bucket)
    }

    /// What lies at a key. What is replaced while it is read is looked at again: another attempt publishes just now.
    async fn look(&self, key: &Key) -> Result<There> {
        let mut found = self.look_once(key).await?;
        for _ in 1..LOOKS_MAX {
            match found {
                There::Damaged { ref wrong, .. } if wrong == CHANGED => found = self.look_once(key).await?,
                _ => break,
            }
        }
        Ok(found)
    }

    async fn look_once(&self, key: &Key) -> Result<There> {
        let path = self.path(key.as_str());
        let failed = |error| Error::object("read", self.address(&path), error);
        let options = GetOptions { head: true, ..GetOptions::default() };
        let (head, attributes) = match self.store.get_opts(&path, options).await {
            Ok(found) => (found.meta.clone(), found.attributes),
            Err(object_store::Error::NotFound { .. }) => return Ok(There::Absent),
            Err(error) => return Err(failed(error)),
        };
        let sum = match chunks::sum(&self.store, &path, &head).await {
            Ok(sum) => sum,
            // It was replaced or removed while it was read.
            Err(object_store::Error::NotFound { .. } | object_store::Error::Precondition { .. }) => {
                return Ok(There::Damaged { wrong: CHANGED.to_owned(), tag: head.e_tag });
            }
            Err(error) => return Err(failed(error)),
        };
        let described = self.read_manifest(key).await?;
        let wrong = match described.manifest.and_then(|manifest| manifest.judge(&sum).map(|()| manifest)) {
            Ok(manifest) => return Ok(There::Valid(manifest)),
            Err(wrong) => wrong,
        };
        let own = |name: &Attribute| attributes.get(name).map(|value| value.as_ref().to_owned());
        let about = own(&META_ABOUT).and_then(|json| serde_json::from_str(&json).ok());
        Ok(match (own(&META_SHA256), own(&META_ATTEMPT)) {
            (Some(sha256), Some(attempt)) if sha256 == sum.sha256 => There::Undescribed(Undescribed {
                manifest: Manifest::new(key, sum, &attempt, about),
                wrong,
                tag: head.e_tag,
                manifest_tag: described.tag,
            }),
            _ => There::Damaged { wrong, tag: head.e_tag },
        })
    }

    async fn read_manifest(&self, key: &Key) -> Result<Described> {
        let path = self.path(&key.manifest());
        let failed = |error| Error::object("read", self.address(&path), error);
        let found = match self.store.get(&path).await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { .. }) => {
                return Ok(Described { manifest: Err("it has no manifest".to_owned()), tag: None });
            }
            Err(error) => return Err(failed(error)),
        };
        let tag = found.meta.e_tag.clone();
        let manifest = match found.meta.size {
            0..=manifest::BYTES_MAX => Manifest::read(key, &found.bytes().await.map_err(failed)?),
            bytes => Err(format!("its manifest has {bytes} bytes")),
        };
        Ok(Described { manifest, tag })
    }

    /// Makes the upload appear at its key, unless a complete artifact is there. Tells whether it did.
    async fn place(&self, key: &Key, upload: &mut upload::Upload<'_>, by: &Publisher<'_>) -> Result<bool> {
        let mut refused = None;
        for round in 0..ROUNDS_MAX {
            let condition = match self.look(key).await? {
                There::Valid(_) | There::Undescribed(_) => return Ok(false),
                There::Absent => Condition::Absent,
                There::Damaged { wrong, tag: Some(tag) } => {
                    let artifact = self.location(key);
                    tracing::warn!(artifact, wrong, "a damaged artifact is replaced");
                    Condition::Unchanged(tag)
                }
                There::Damaged { wrong, tag: None } => {
                    let source =
                        format!("it is damaged ({wrong}) and has no ETag, so it cannot be replaced safely");
                    return Err(Error::Store {
                        what: "replace",
                        place: self.location(key),
                        source: source.into(),
                    });
                }
            };
            let permission = Permission::ask(by, round).await?;
            match upload.complete(condition, permission).await {
                Ok(()) => return Ok(true),
                // Somebody was faster, or the answer to a first try was lost: look again.
                Err(error) if is_refusal(&error) || is_expired(&error) => refused = Some(error),
                Err(error) => return Err(Error::object("write", self.location(key), error)),
            }
        }
        match refused {
            Some(error) if is_expired(&error) => Err(Error::Unsure { place: self.location(key) }),
            refused => Err(self.unsettled(key, refused)),
        }
    }

    /// Reads back the artifact that is there now, and gives it its manifest if it lacks it. Tells which one it is.
    ///
    /// The manifest follows from the artifact, so it does not matter who writes it. The condition on it, and the look
    /// at the artifact's ETag after it, make sure that no manifest stays that is not of the artifact.
    async fn settle(&self, key: &Key) -> Result<Manifest> {
        let mut refused = None;
        for _ in 0..ROUNDS_MAX {
            let there = match self.look(key).await? {
                There::Valid(manifest) => return Ok(manifest),
                There::Undescribed(there) => there,
                There::Absent => return Err(self.mismatch(key, "nothing is there".to_owned())),
                There::Damaged { wrong, .. } => return Err(self.mismatch(key, wrong)),
            };
            tracing::debug!(
                artifact = self.location(key),
                wrong = there.wrong,
                "an artifact gets its manifest"
            );
            match self.describe(key, &there).await {
                Ok(true) => return Ok(there.manifest),
                Ok(false) => {}
                Err(error) if is_refusal(&error) => refused = Some(error),
                Err(error) => {
                    return Err(Error::object("write", self.address(&self.path(&key.manifest())), error));
                }
            }
        }
        Err(self.unsettled(key, refused))
    }

    /// Tells whether the artifact is still the one described.
    async fn describe(&self, key: &Key, there: &Undescribed) -> object_store::Result<bool> {
        let mode = match &there.manifest_tag {
            Some(tag) => PutMode::Update(UpdateVersion { e_tag: Some(tag.clone()), version: None }),
            None => PutMode::Create,
        };
        let json = there.manifest.to_json();
        self.store.put_opts(&self.path(&key.manifest()), json.into(), mode.into()).await?;
        Ok(self.store.head(&self.path(key.as_str())).await?.e_tag == there.tag)
    }

    fn mismatch(&self, key: &Key, detail: String) -> Error {
        Error::Mismatch { place: self.location(key), detail }
    }

    fn unsettled(&self, key: &Key, refused: Option<object_store::Error>) -> Error {
        let source = refused.map_or_else(|| "others write to it all the time".into(), Into::into);
        Error::Store { what: "write", place: self.location(key), source }
    }
}

/// Whether a condition did not hold.
fn is_refusal(error: &object_store::Error) -> bool {
    matches!(
        error,
        object_store::Error::AlreadyExists { .. }
            | object_store::Error::Precondition { .. }
            | object_store::Error::NotModified { .. }
            | object_store::Error::NotFound { .. }
    )
}

#[async_trait]
impl Artifacts for S3 {
    async fn find(&self, key: &Key) -> Result<Found> {
        Ok(match self.look(key).await? {
            There::Absent => Found::Absent,
            There::Valid(manifest) => Found::Valid(manifest),
            // Whoever believes in it should see its manifest too.
            There::Undescribed(_) => Found::Valid(self.settle(key).await?),
            There::Damaged { wrong, .. } => Found::Damaged(wrong),
        })
    }

    async fn publish(&self, key: &Key, file: &FilePath, by: Publisher<'_>) -> Result<Published> {
        by.check()?;
        by.steps.reached(Step::Begun);
        match self.look(key).await? {
            There::Valid(manifest) => return Ok(Published::Adopted(manifest)),
            There::Undescribed(_) => return self.settle(key).await.map(Published::Adopted),
            There::Absent | There::Damaged { .. } => {}
        }
        let mut upload = upload::Upload::begin(self, self.path(key.as_str()), file, &by).await?;
        let placed = async {
            upload.send(by.steps).await?;
            by.steps.reached(Step::Written);
            // The server has acknowledged every part: there is nothing that a sync could add.
            by.steps.reached(Step::Synced);
            self.place(key, &mut upload, &by).await
        }
        .await;
        upload.abort().await;
        let placed = placed?;
        if placed {
            by.steps.reached(Step::Moved);
        }
        let manifest = self.settle(key).await?;
        if placed {
            by.steps.reached(Step::Described);
        }
        // An attempt that lost its answer, or a race, learns here whose artifact it is.
        let ours = manifest.attempt == by.attempt && manifest.judge(&upload.sum).is_ok();
        Ok(if ours { Published::Stored(manifest) } else { Published::Adopted(manifest) })
    }

    async fn check(&self) -> Result<()> {
        const BYTES: &[u8] = b"stargate checks that it can write here\n";
        let path = self.path(&format!("check-{:016x}", rand::random::<u64>()));
        let address = self.address(&path);
        let failed = |what| {
            let address = address.clone();
            move |error| Error::object(what, address, error)
        };
        let create = || self.store.put_opts(&path, PutPayload::from_static(BYTES), PutMode::Create.into());
        create().await.map_err(failed("write"))?;
        let checked = async {
            let there = self.store.get(&path).await.map_err(failed("read"))?;
            if there.bytes().await.map_err(failed("read"))? != BYTES {
                let detail = "a small object came back different".to_owned();
                return Err(Error::Mismatch { place: self.address(&path), detail });
            }
            match create().await {
                Err(object_store::Error::AlreadyExists { .. }) => Ok(()),
                Ok(_) => Err(Error::Unconditional { place: self.address(&path) }),
                Err(error) => Err(failed("write")(error)),
            }
        }
        .await;
        let removed = self.store.delete(&path).await.map_err(failed("remove"));
        checked.and(removed)
    }

    fn location(&self, key: &Key) -> String {
        self.address(&self.path(key.as_str()))
    }
}

#[cfg(test)]
mod tests;
