//! What an artifact must be: written beside it, after it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::Publisher;
use crate::key::Key;

/// A manifest is some hundred bytes; whatever is longer is none.
pub(crate) const BYTES_MAX: u64 = 16 << 10;

/// How long [`Manifest::about`] may be as JSON in ASCII. S3 takes 2 KB of metadata with an object, all in all, and
/// this must fit.
pub const ABOUT_BYTES_MAX: usize = 1 << 10;

/// Size and checksum of an artifact, and who made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Its key.
    pub key: String,
    /// Its length in bytes.
    pub size: u64,
    /// The SHA-256 of its bytes, in lower-case hexadecimal digits.
    pub sha256: String,
    /// The attempt that published it.
    pub attempt: String,
    /// What its publisher wanted to be known of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<Value>,
}

impl Manifest {
    pub(crate) fn new(key: &Key, sum: Sum, attempt: &str, about: Option<Value>) -> Self {
        let Sum { size, sha256 } = sum;
        Self { key: key.to_string(), size, sha256, attempt: attempt.to_owned(), about }
    }

    /// The one of a publisher.
    pub(crate) fn by(by: &Publisher<'_>, key: &Key, sum: Sum) -> Self {
        Self::new(key, sum, by.attempt, by.about.cloned())
    }

    /// As it is written.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec(self).expect("text and numbers can always be written as JSON");
        json.push(b'\n');
        json
    }

    /// What is wrong with bytes that were read from the place of a manifest, if they are not the one of `key`.
    pub(crate) fn read(key: &Key, json: &[u8]) -> Result<Self, String> {
        let manifest: Self =
            serde_json::from_slice(json).map_err(|error| format!("its manifest cannot be read: {error}"))?;
        if manifest.key != key.as_str() {
            return Err(format!("its manifest is of {:?}", manifest.key));
        }
        Ok(manifest)
    }

    /// What is wrong with an artifact that adds up to `sum`.
    pub(crate) fn judge(&self, sum: &Sum) -> Result<(), String> {
        if self.size != sum.size {
            return Err(format!("it has {} bytes, its manifest says {}", sum.size, self.size));
        }
        if self.sha256 != sum.sha256 {
            return Err(format!("its SHA-256 is {}, its manifest says {}", sum.sha256, self.sha256));
        }
        Ok(())
    }
}

/// JSON that may stand in a header: ASCII without spaces, since several in a row may become one on the way.
pub(crate) fn ascii(about: &Value) -> String {
    let mut text = String::new();
    for c in about.to_string().chars() {
        if c.is_ascii_graphic() {
            text.push(c);
        } else {
            // Outside of strings there is nothing else, and inside of them this is the same.
            let mut units = [0; 2];
            text.extend(c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    text
}

/// What bytes add up to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) size: u64,
    pub(crate) sha256: String,
}

/// Adds bytes up.
#[derive(Default)]
pub(crate) struct Summing {
    size: u64,
    hash: Sha256,
}

impl Summing {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.size += bytes.len() as u64;
        self.hash.update(bytes);
    }

    pub(crate) fn finish(self) -> Sum {
        let digest = self.hash.finalize();
        let sha256 = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Sum { size: self.size, sha256 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_a_header_is_the_same_json() {
        let about = serde_json::json!({ "name": "zwei  Räume 🎬\t\"x\\", "list": [1, 2.5, null, true] });
        let text = ascii(&about);
        assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), about);
    }

    #[test]
    fn a_manifest_without_more_is_written_as_ever_and_read() {
        let key = Key::result(17, "clip.mp4").unwrap();
        let json = br#"{"key":"results/17/clip.mp4","size":1,"sha256":"00","attempt":"17-1"}"#;
        let manifest = Manifest::read(&key, json).unwrap();
        assert_eq!(manifest.about, None);
        assert_eq!(manifest.to_json(), [json.as_slice(), b"\n"].concat());
    }
}
