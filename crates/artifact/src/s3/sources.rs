//! Sources that lie in S3: fetched into a file, within a limit.

use std::path::Path as FilePath;

use object_store::aws::AmazonS3;
use object_store::path::Path;
use object_store::{GetOptions, ObjectStore as _};
use tokio::io::AsyncWriteExt as _;

use super::{Settings, chunks};
use crate::error::{Error, Result};

/// Objects of any bucket that the credentials of the settings can read.
#[derive(Debug, Clone)]
pub struct Sources {
    settings: Settings,
}

impl Sources {
    /// Reads with the endpoint, region and credentials of `settings`; its bucket and prefix do not matter.
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }

    /// Whether an address is one of an object.
    pub fn is_address(address: &str) -> bool {
        parse(address).is_ok()
    }

    /// Fetches `s3://bucket/key` into `file`, which is made or emptied. Gives its size.
    ///
    /// An object that is larger than `bytes_max` is refused before anything is fetched. One that changes meanwhile
    /// is an error, not a mixture.
    pub async fn download(&self, address: &str, file: &FilePath, bytes_max: u64) -> Result<u64> {
        let (bucket, key) = parse(address)?;
        let store = Settings { bucket: bucket.to_owned(), ..self.settings.clone() }.build()?;
        let head = head(&store, &key).await.map_err(|error| translate(address, error))?;
        if head.size > bytes_max {
            return Err(Error::SourceTooLarge { address: address.to_owned(), bytes: head.size, bytes_max });
        }
        let written = |error| Error::file("write", file, error);
        let mut out = tokio::fs::File::create(file).await.map_err(written)?;
        let mut bytes = 0;
        let mut chunks = chunks::Chunks::new(&store, &key, &head);
        while let Some(chunk) = chunks.next().await.map_err(|error| translate(address, error))? {
            bytes += chunk.len() as u64;
            out.write_all(&chunk).await.map_err(written)?;
        }
        out.flush().await.map_err(written)?;
        if bytes != head.size {
            let detail = format!("{bytes} bytes came instead of {}", head.size);
            return Err(Error::SourceUnavailable { address: address.to_owned(), source: detail.into() });
        }
        Ok(bytes)
    }
}

async fn head(store: &AmazonS3, key: &Path) -> object_store::Result<object_store::ObjectMeta> {
    let options = GetOptions { head: true, ..GetOptions::default() };
    Ok(store.get_opts(key, options).await?.meta)
}

/// Bucket and key of an address.
fn parse(address: &str) -> Result<(&str, Path)> {
    let wrong = || Error::SourceAddress { address: address.to_owned() };
    let (bucket, key) =
        address.strip_prefix("s3://").and_then(|rest| rest.split_once('/')).ok_or_else(wrong)?;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    if !(3..=63).contains(&bucket.len()) || !bucket.chars().all(plain) || key.is_empty() {
        return Err(wrong());
    }
    Ok((bucket, Path::parse(key).map_err(|_| wrong())?))
}

fn translate(address: &str, error: object_store::Error) -> Error {
    let address = address.to_owned();
    match error {
        object_store::Error::NotFound { .. } => Error::SourceMissing { address },
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
            Error::SourceDenied { address, source: error.into() }
        }
        _ => Error::SourceUnavailable { address, source: error.into() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_a_bucket_and_a_key() {
        let (bucket, key) = parse("s3://videos/2026/a b.mp4").unwrap();
        assert_eq!((bucket, key.as_ref()), ("videos", "2026/a b.mp4"));
        for wrong in
            ["s3://videos", "s3://videos/", "s3:///a", "s3://a?b/c", "http://videos/a", "s3://videos/../a"]
        {
            assert!(!Sources::is_address(wrong), "{wrong}");
        }
    }
}
