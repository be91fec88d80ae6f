//! Both stores have the same statements: same file name, same meaning. A statement that only one store needs says
//! why at its head.

use std::collections::BTreeSet;

use super::{File, Problem};

const SQLITE: &str = "crates/store/sql/sqlite/";
const POSTGRES: &str = "crates/store/sql/postgres/";
/// Statements for tables that are not ours: only their use is checked.
const PGBOSS: &str = "crates/store/sql/pgboss/";

/// Words of which the head of a one-sided file needs one.
const EXPLANATIONS: [&str; 2] = ["Only", "Differs"];

/// Checks all statements.
pub(super) fn check(files: &[File]) -> Vec<Problem> {
    let mut problems = one_sided(files, SQLITE, POSTGRES);
    problems.extend(one_sided(files, POSTGRES, SQLITE));
    problems.extend(unused(files));
    problems
}

fn statements<'a>(files: &'a [File], folder: &'a str) -> impl Iterator<Item = (&'a File, &'a str)> {
    files.iter().filter_map(move |file| Some((file, file.path.strip_prefix(folder)?.strip_suffix(".sql")?)))
}

fn one_sided(files: &[File], folder: &str, other: &str) -> Vec<Problem> {
    let counterparts: BTreeSet<&str> = statements(files, other).map(|(_, name)| name).collect();
    statements(files, folder)
        .filter(|(file, name)| !counterparts.contains(name) && !explains_itself(&file.text))
        .map(|(file, name)| {
            let message =
                format!("no counterpart {other}{name}.sql; begin with a comment: -- Only here because …");
            Problem::of(&file.path, message)
        })
        .collect()
}

fn explains_itself(text: &str) -> bool {
    let head = text.lines().take_while(|line| line.trim_start().starts_with("--"));
    head.flat_map(|line| line.split(|c: char| !c.is_alphabetic())).any(|word| EXPLANATIONS.contains(&word))
}

/// A statement that no Rust file names is never prepared and never run.
fn unused(files: &[File]) -> Vec<Problem> {
    let sources: Vec<&File> =
        files.iter().filter(|f| f.path.starts_with("crates/store/src/") && f.path.ends_with(".rs")).collect();
    statements(files, SQLITE)
        .chain(statements(files, POSTGRES))
        .chain(statements(files, PGBOSS))
        .filter(|(_, name)| !sources.iter().any(|source| names(&source.text, name)))
        .map(|(file, _)| Problem::of(&file.path, "nothing in crates/store/src uses it"))
        .collect()
}

/// Whether a source names the statement as a whole word: `job_claim` is not in `job_claim_all`.
fn names(source: &str, statement: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    source.match_indices(statement).any(|(at, _)| {
        let (before, after) = (&source[..at], &source[at + statement.len()..]);
        !before.ends_with(is_word) && !after.starts_with(is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn problems(files: &[File]) -> Vec<String> {
        check(files).iter().map(ToString::to_string).collect()
    }

    fn user(text: &str) -> File {
        file("crates/store/src/lib.rs", text)
    }

    #[test]
    fn a_pair_is_fine_and_a_lone_statement_is_not() {
        let pair = [
            file("crates/store/sql/sqlite/job_claim.sql", "select 1"),
            file("crates/store/sql/postgres/job_claim.sql", "select 1"),
            user("sql!(job_claim)"),
        ];
        assert_eq!(problems(&pair), [""; 0]);
        assert!(
            problems(&[file("crates/store/sql/sqlite/job_claim.sql", "select 1"), user("job_claim")])[0]
                .contains("no counterpart crates/store/sql/postgres/job_claim.sql")
        );
        assert_eq!(problems(&pair[1..]).len(), 1);
    }

    #[test]
    fn a_lone_statement_explains_itself_in_its_head_and_nowhere_else() {
        let lone = |text| [file("crates/store/sql/postgres/listen.sql", text), user("\"listen.sql\"")];
        assert_eq!(problems(&lone("-- Only Postgres notifies.\nlisten x")), [""; 0]);
        assert_eq!(problems(&lone("-- Wakes sleepers.\nlisten x -- Only here")).len(), 1);
    }

    #[test]
    fn statements_for_tables_of_others_need_a_user_and_no_counterpart() {
        let lone = || file("crates/store/sql/pgboss/job_due.sql", "select 1");
        assert_eq!(problems(&[lone(), user("statements!(job_due)")]), [""; 0]);
        assert!(problems(&[lone(), user("")])[0].contains("nothing in crates/store/src uses it"));
    }

    #[test]
    fn a_statement_that_nobody_uses_is_found() {
        let files = [
            file("crates/store/sql/sqlite/job_claim.sql", "-- Only x\nselect 1"),
            user("include_str!(\"../sql/sqlite/job_claim_all.sql\")"),
        ];
        assert_eq!(
            problems(&files),
            ["crates/store/sql/sqlite/job_claim.sql: nothing in crates/store/src uses it"]
        );
    }
}
