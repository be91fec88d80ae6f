//! Names that a table or a column cannot have, because a store has them for itself.

use super::value::identifier;

/// Columns that every table has on Postgres or SQLite, whether it names them or not.
const COLUMNS: [&str; 9] = ["ctid", "xmin", "xmax", "cmin", "cmax", "tableoid", "rowid", "oid", "_rowid_"];

/// Tables of the databases themselves, and those that we make beside a sink.
const PREFIXES: [&str; 3] = ["stargate", "pg_", "sqlite_"];

/// With what the names of the store's own tables and indexes begin. On SQLite they lie beside the sinks, and a later
/// schema may add some: so everything is reserved that begins with one of these words.
const OWN: [&str; 19] = [
    "counter",
    "directive",
    "idempotency",
    "job",
    "kind",
    "kv",
    "lane",
    "leader",
    "limit",
    "meta",
    "migration",
    "pause",
    "push",
    "repo",
    "schedule",
    "source",
    "token",
    "webhook",
    "worker",
];

/// Whether a table of this name would lie where the store has, or may come to have, its own.
pub fn is_own_table(name: &str) -> bool {
    let is_of =
        |word: &str| name.strip_prefix(word).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || OWN.into_iter().any(is_of)
}

/// The name of a mapped column.
pub(super) fn column(text: &str) -> Result<String, String> {
    let name = identifier(text)?;
    if COLUMNS.contains(&text) {
        return Err(format!(
            "{text:?} is a column that Postgres or SQLite keeps for itself; choose another name"
        ));
    }
    Ok(name)
}

/// The name of a sink's table. In another database only the databases' own names are reserved.
pub(super) fn table(text: &str, is_elsewhere: bool) -> Result<String, String> {
    let name = identifier(text)?;
    if let Some(prefix) = PREFIXES.iter().find(|prefix| text.starts_with(*prefix)) {
        return Err(format!(
            "must not begin with {prefix:?}, which is reserved, as {text:?} does; choose another name"
        ));
    }
    if !is_elsewhere && is_own_table(text) {
        let word = text.split('_').next().unwrap_or_default();
        return Err(format!(
            "{text:?} is reserved: the store's own tables are called {word:?} and \"{word}_…\"; choose another name, as \
             \"my_{text}\", or another database (sink.url)"
        ));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_stores_own_are_reserved_and_others_that_begin_alike_are_not() {
        for own in [
            "job",
            "job_history",
            "kv",
            "kv_later",
            "directive_run",
            "stargate",
            "stargate_sink",
            "pg_x",
            "sqlite_x",
        ] {
            assert!(is_own_table(own), "{own}");
        }
        for free in ["jobs", "issues", "repositories", "my_job", "kvass", "sources", "pgs"] {
            assert!(!is_own_table(free) && table(free, false).is_ok(), "{free}");
        }
        assert!(table("job", true).is_ok(), "in another database it is free");
        assert!(table("stargate_sink", true).is_err());
        let told = table("job_ads", false).unwrap_err();
        assert!(told.contains("choose another name, as \"my_job_ads\""), "{told}");
    }

    #[test]
    fn columns_that_a_database_keeps_for_itself_are_reserved() {
        for own in COLUMNS {
            assert!(column(own).unwrap_err().contains("choose another name"), "{own}");
        }
        assert_eq!(column("row_id").unwrap(), "row_id");
    }
}
