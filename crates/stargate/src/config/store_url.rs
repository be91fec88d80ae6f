//! Where jobs are kept: `sqlite:PATH` or `postgres://…`.

use std::path::PathBuf;

use stargate_base::Secret;
use url::Url;

/// Where jobs are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreUrl {
    /// A file.
    Sqlite(PathBuf),
    /// A server. The URL may hold a password.
    Postgres(Secret),
}

/// Shows everything but the password.
impl std::fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(url) => f.write_str(&without_secrets(url.reveal())),
        }
    }
}

/// Reads a store's URL.
pub(crate) fn parse(text: &str) -> Result<StoreUrl, String> {
    if let Some(path) = text.strip_prefix("sqlite:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() {
            return Err("names no file; write sqlite:PATH".to_owned());
        }
        return Ok(StoreUrl::Sqlite(path.into()));
    }
    if text.starts_with("postgres://") || text.starts_with("postgresql://") {
        Url::parse(text).map_err(|error| format!("is not a valid URL: {error}"))?;
        return Ok(StoreUrl::Postgres(Secret::new(text)));
    }
    // The text itself may hold a password, so it is not repeated (INV-8).
    Err("is neither sqlite:PATH nor postgres://USER@HOST/DATABASE".to_owned())
}

/// The URL with `***` for the password, in the user part and in the query.
fn without_secrets(text: &str) -> String {
    let Ok(mut url) = Url::parse(text) else { return "postgres://***".to_owned() };
    if url.password().is_some() && url.set_password(Some("***")).is_err() {
        return "postgres://***".to_owned();
    }
    if url.query_pairs().any(|(name, _)| name == "password") {
        let pairs: Vec<(String, String)> = url
            .query_pairs()
            .map(|(name, value)| {
                let value = if name == "password" { "***".to_owned() } else { value.into_owned() };
                (name.into_owned(), value)
            })
            .collect();
        url.query_pairs_mut().clear().extend_pairs(pairs);
    }
    url.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_never_shown() {
        for text in ["postgres://u:hunter2@h/d", "postgres://u@h/d?password=hunter2&sslmode=require"] {
            let shown = parse(text).unwrap().to_string();
            assert!(!shown.contains("hunter2") && shown.contains("***"), "{shown}");
        }
        assert!(!parse("mysql://u:hunter2@h/d").unwrap_err().contains("hunter2"));
    }

    #[test]
    fn both_spellings_of_sqlite_are_read() {
        assert_eq!(parse("sqlite:a.db"), Ok(StoreUrl::Sqlite("a.db".into())));
        assert_eq!(parse("sqlite:///tmp/a.db"), Ok(StoreUrl::Sqlite("/tmp/a.db".into())));
        assert!(parse("sqlite:").is_err());
    }
}
