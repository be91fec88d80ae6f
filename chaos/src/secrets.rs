//! Words that must not be found anywhere: passwords and keys of this run, and where they were looked for (INV-8).

use std::path::Path;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

/// The secrets of a site.
#[derive(Debug, Clone)]
pub(crate) struct Secrets {
    /// The password in the URL of Postgres.
    pub(crate) postgres: String,
    /// The password of Redis.
    pub(crate) redis: String,
    /// What signs requests to S3.
    pub(crate) s3: String,
    /// What the directive shows its source, on every site.
    pub(crate) source: String,
    /// A token of the API, once it was made.
    pub(crate) token: String,
}

impl Secrets {
    /// Those of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed ^ 0x5ec2e7);
        let mut word = |name: &str| format!("canary{name}{:016x}", rng.random::<u64>());
        Self {
            postgres: word("pg"),
            redis: word("redis"),
            s3: word("sthree"),
            source: word("source"),
            token: String::new(),
        }
    }

    /// Which of them occur in a text.
    pub(crate) fn found_in(&self, text: &str) -> Vec<&'static str> {
        let all = [
            ("the password of Postgres", &self.postgres),
            ("the password of Redis", &self.redis),
            ("the secret key of S3", &self.s3),
            ("the token of the source", &self.source),
            ("the token of the API", &self.token),
        ];
        all.iter()
            .filter(|(_, word)| !word.is_empty() && text.contains(word.as_str()))
            .map(|(n, _)| *n)
            .collect()
    }

    /// Which of them stand in the arguments of a process.
    pub(crate) fn found_in_arguments(&self) -> Vec<String> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Ok(bytes) = std::fs::read(entry.path().join("cmdline")) else { continue };
            let text = String::from_utf8_lossy(&bytes).replace('\0', " ");
            // The servers of the run are given theirs by us.
            if text.contains("redis-server") {
                continue;
            }
            found.extend(
                self.found_in(&text).into_iter().map(|what| format!("{what} in the arguments of `{text}`")),
            );
        }
        found
    }

    /// Which of them stand in the files of a folder, of those that a filter names.
    pub(crate) fn found_in_files(&self, folder: &Path, wanted: &dyn Fn(&Path) -> bool) -> Vec<String> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                found.extend(self.found_in_files(&path, wanted));
            } else if kind.is_file() && wanted(&path) {
                let text = std::fs::read(&path).unwrap_or_default();
                let text = String::from_utf8_lossy(&text);
                found.extend(
                    self.found_in(&text).into_iter().map(|what| format!("{what} in {}", path.display())),
                );
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_in_texts_and_files_and_an_unknown_token_is_not_looked_for() {
        let secrets = Secrets::new(1);
        assert_eq!(secrets.found_in(&format!("a {} b", secrets.redis)), ["the password of Redis"]);
        assert_eq!(secrets.found_in("nothing"), [""; 0]);
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("log"), &secrets.s3).unwrap();
        assert_eq!(secrets.found_in_files(folder.path(), &|_| true).len(), 1);
        assert_eq!(secrets.found_in_files(folder.path(), &|_| false).len(), 0);
    }
}
