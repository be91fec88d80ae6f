//! The statements, written for the schema `pgboss` and rewritten for the one that is configured.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use stargate_queue::{Error, Result};

/// The longest name of a schema that pg-boss allows.
const SCHEMA_BYTES_MAX: usize = 50;

/// How the files name the schema.
const WRITTEN: &str = "pgboss.";

macro_rules! statements {
    ($($name:ident),* $(,)?) => {
        /// The statements for one schema.
        #[derive(Debug)]
        pub(super) struct Statements {
            $(pub(super) $name: &'static str,)*
        }

        fn make(schema: &str) -> Statements {
            let rewritten = |text: &str| &*text.replace(WRITTEN, &format!("{schema}.")).leak();
            Statements {
                $($name: rewritten(include_str!(
                    concat!(env!("CARGO_MANIFEST_DIR"), "/sql/pgboss/", stringify!($name), ".sql")
                )),)*
            }
        }
    };
}

statements!(
    version,
    queue_missing,
    job_due,
    job_activate,
    job_look,
    job_keep,
    job_revive,
    job_complete,
    job_fail,
    job_cancel,
    savepoint,
    savepoint_rollback,
);

/// The statements for a schema. They are made once for each and then kept for ever: there are never more than a few.
pub(super) fn of_schema(schema: &str) -> Result<&'static Statements> {
    static MADE: LazyLock<Mutex<HashMap<String, &'static Statements>>> = LazyLock::new(Mutex::default);
    let quoted = quoted(schema)?;
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(made.entry(quoted.clone()).or_insert_with(|| Box::leak(Box::new(make(&quoted)))))
}

/// A name as pg-boss takes it: bare it is folded to lower case, in double quotes it counts as it stands. Only what
/// needs no escaping is allowed.
fn quoted(schema: &str) -> Result<String> {
    let verbatim = schema.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let name = verbatim.map_or_else(|| schema.to_ascii_lowercase(), str::to_owned);
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty()
        || name.len() > SCHEMA_BYTES_MAX
        || !name.chars().all(fits)
        || name.starts_with(|c: char| c.is_ascii_digit())
    {
        let problem = format!(
            "{schema:?} is not a name: 1 to {SCHEMA_BYTES_MAX} letters, digits and _ are allowed, no digit first; put it \
             in double quotes if its capital letters matter"
        );
        return Err(Error::invalid("schema", problem));
    }
    Ok(format!("\"{name}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_named_as_pg_boss_names_it() {
        assert_eq!(quoted("pgboss").unwrap(), "\"pgboss\"");
        assert_eq!(quoted("MyBoss").unwrap(), "\"myboss\"");
        assert_eq!(quoted("\"MyBoss\"").unwrap(), "\"MyBoss\"");
    }

    #[test]
    fn what_would_need_escaping_is_refused() {
        for name in ["", "a b", "a;drop table x", "a\"b", "\"a\"b\"", "1a", "a.b", "ä", &"x".repeat(51)] {
            assert!(quoted(name).unwrap_err().to_string().contains("is not a name"), "{name}");
        }
    }

    #[test]
    fn every_statement_speaks_of_the_configured_schema_only() {
        let made = of_schema("other").unwrap();
        assert!(made.job_due.contains("\"other\".job j") && !made.job_due.contains("pgboss."));
        assert!(std::ptr::eq(made, of_schema("OTHER").unwrap()), "made once");
    }
}
