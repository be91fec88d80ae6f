//! Where artifacts are kept: a folder, or `s3://BUCKET/PREFIX`.

use std::path::PathBuf;

/// Where artifacts are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ArtifactsUrl {
    /// A folder.
    Folder(PathBuf),
    /// A bucket of an S3 server, and what keys in it begin with; the prefix may be empty.
    S3 { bucket: String, prefix: String },
}

impl ArtifactsUrl {
    /// Where the artifact under a key is, for people.
    pub(crate) fn location(&self, key: &str) -> String {
        match self {
            Self::Folder(path) => path.join(key).display().to_string(),
            Self::S3 { .. } => format!("{self}/{key}"),
        }
    }
}

impl std::fmt::Display for ArtifactsUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Folder(path) => write!(f, "{}", path.display()),
            Self::S3 { bucket, prefix } if prefix.is_empty() => write!(f, "s3://{bucket}"),
            Self::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
        }
    }
}

/// Reads a place for artifacts.
pub(crate) fn parse(text: &str) -> Result<ArtifactsUrl, String> {
    let Some(rest) = text.strip_prefix("s3://") else {
        return match text.is_empty() || text.contains("://") {
            true => Err(format!("is {text:?}; allowed are a folder and s3://BUCKET/PREFIX")),
            false => Ok(ArtifactsUrl::Folder(text.into())),
        };
    };
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if !(3..=255).contains(&bucket.len()) || !bucket.chars().all(fits) {
        return Err(format!(
            "names the bucket {bucket:?}; write s3://BUCKET/PREFIX with a bucket of 3 or more letters, digits, '.', '_' and '-'"
        ));
    }
    let prefix = prefix.trim_end_matches('/');
    let plain =
        |segment: &str| !segment.is_empty() && segment != "." && segment != ".." && segment.chars().all(fits);
    if !prefix.is_empty() && !prefix.split('/').all(plain) {
        return Err(format!(
            "has the prefix {prefix:?}; allowed are names of letters, digits, '.', '_' and '-' between slashes"
        ));
    }
    Ok(ArtifactsUrl::S3 { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s3(bucket: &str, prefix: &str) -> Result<ArtifactsUrl, String> {
        Ok(ArtifactsUrl::S3 { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }

    #[test]
    fn folders_and_buckets_are_told_apart() {
        assert_eq!(parse("out/clips"), Ok(ArtifactsUrl::Folder("out/clips".into())));
        assert_eq!(parse("s3://media"), s3("media", ""));
        assert_eq!(parse("s3://media/"), s3("media", ""));
        assert_eq!(parse("s3://media/clips/v1/"), s3("media", "clips/v1"));
        assert_eq!(parse("s3://media/clips").unwrap().to_string(), "s3://media/clips");
        assert_eq!(parse("s3://media").unwrap().location("results/7/a"), "s3://media/results/7/a");
        assert_eq!(parse("out").unwrap().location("results/7/a"), "out/results/7/a");
    }

    #[test]
    fn what_is_neither_is_refused_with_what_is_allowed() {
        for bad in [
            "",
            "http://h/b",
            "gs://b/p",
            "s3://",
            "s3:///p",
            "s3://a b/p",
            "s3://media//p",
            "s3://media/../p",
        ] {
            assert!(
                parse(bad).unwrap_err().contains("s3://BUCKET/PREFIX")
                    || parse(bad).unwrap_err().contains("between slashes"),
                "{bad:?}"
            );
        }
    }
}
