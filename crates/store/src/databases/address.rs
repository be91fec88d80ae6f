//! Where a database is: `sqlite:PATH` or `postgres://…`, as for the store.

use std::path::PathBuf;

use stargate_base::Secret;
use stargate_directive::source::SourceError;

use super::error::setting;

/// Where a database is.
#[derive(Debug, Clone)]
pub(super) enum Address {
    /// A file.
    Sqlite(PathBuf),
    /// A server.
    Postgres {
        /// The URL, which may hold a password.
        url: Secret,
        /// It leads to a pooler that is known to keep no session.
        pooled: bool,
    },
}

/// Reads a URL. It may hold a password, so it is not repeated in the error (INV-8).
pub(super) fn read(url: &Secret) -> Result<Address, SourceError> {
    let text = url.reveal();
    if let Some(path) = text.strip_prefix("sqlite:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() {
            return Err(setting("the url names no file; write sqlite:PATH"));
        }
        return Ok(Address::Sqlite(path.into()));
    }
    if text.starts_with("postgres://") || text.starts_with("postgresql://") {
        return Ok(Address::Postgres { url: url.clone(), pooled: false });
    }
    Err(setting("the url is neither sqlite:PATH nor postgres://USER@HOST/DATABASE"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn both_forms_are_read_and_others_are_refused_without_being_shown() {
        let read = |text: &str| read(&Secret::new(text));
        assert!(matches!(read("sqlite:a.db"), Ok(Address::Sqlite(path)) if path == Path::new("a.db")));
        assert!(matches!(read("sqlite:///tmp/a"), Ok(Address::Sqlite(path)) if path == Path::new("/tmp/a")));
        assert!(matches!(read("postgres://u@h/d"), Ok(Address::Postgres { pooled: false, .. })));
        for wrong in ["mysql://u:hunter2@h/d", "sqlite:", "hunter2"] {
            let error = read(wrong).unwrap_err();
            assert_eq!(error.code, "SOURCE_SETTING");
            assert!(!error.message.contains("hunter2"), "{error}");
        }
    }
}
