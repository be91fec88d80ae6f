//! Every error code has a page in `docs/errors/`, and every page has a code.
//!
//! A code is found where codes are given out: in a `fn code`, as `code:`/`code =`, as an argument of
//! `JobError::new` and its like, as a constant of the same name. A text of several words in capitals
//! (`QUEUE_FULL`) counts wherever it stands, unless it is the name of an environment variable or of an argument.

use std::collections::BTreeMap;

use super::rust::{Kind, Piece, is_test_file, pieces, without_tests};
use super::{File, Problem};

const PAGES: &str = "docs/errors/";
/// The list of all pages.
const INDEX: &str = "docs/errors/README.md";

/// What stands before a text that is the name of something else.
const OTHER_NAMES: [&str; 6] = ["env::var(", "var_os(", ".env(", "env =", "value_name =", "env!("];

/// What stands before a text that is a code, even if it is a single word.
const GIVEN_OUT: [&str; 6] =
    ["JobError::new(", "Failure::new(", "Failure::failed(", "code:", "code =", "code("];

/// Names of environment variables that do not begin with the prefix of ours.
const ENVIRONMENT: [&str; 43] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_ENDPOINT_URL",
    "AWS_REGION",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "CLICOLOR_FORCE",
    "DATABASE_URL",
    "GIT_ALLOW_PROTOCOL",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_NOSYSTEM",
    "GIT_DIR",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PROTOCOL",
    "GIT_SSH_COMMAND",
    "GIT_TERMINAL_PROMPT",
    "HEARTBEAT_INTERVAL_SEC",
    "HIGH_WATERMARK",
    "KEEP_SCRATCH_ON_SUCCESS",
    "LC_ALL",
    "LEASE_TIMEOUT_SEC",
    "LOAD_THRESHOLD",
    "MAX_ATTEMPTS",
    "MAX_CONCURRENCY",
    "NO_COLOR",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_SERVICE_NAME",
    "OTEL_TRACES_SAMPLER_ARG",
    "PAUSE_INTERVAL_SEC",
    "PUSH_TIMEOUT",
    "REDIS_URL",
    "RUST_LOG",
    "SHUTDOWN_TIMEOUT_SEC",
    "TEMPORAL_ADDRESS",
    "TEMPORAL_API_KEY",
    "TEMPORAL_NAMESPACE",
    "TEMPORAL_TLS",
    "TEMPORAL_TLS_CLIENT_CERT_PATH",
    "TEMPORAL_TLS_CLIENT_KEY_PATH",
    "TEMPORAL_TLS_SERVER_CA_CERT_PATH",
    "TEMPORAL_TLS_SERVER_NAME",
];

/// A code and where it was first seen.
type Codes = BTreeMap<String, (String, usize)>;

/// Checks the pairs of codes and pages.
pub(super) fn check(files: &[File]) -> Vec<Problem> {
    let codes = codes(files);
    let index = files.iter().find(|file| file.path == INDEX).map_or("", |file| file.text.as_str());
    let mut problems = Vec::new();
    for (code, (path, line)) in &codes {
        let page = format!("{PAGES}{code}.md");
        if !files.iter().any(|file| file.path == page) {
            problems.push(Problem::at(path, *line, format!("the code {code} has no page {page}")));
        }
    }
    for file in files {
        let Some(code) = file.path.strip_prefix(PAGES).and_then(|name| name.strip_suffix(".md")) else {
            continue;
        };
        if file.path == INDEX {
            continue;
        }
        if !codes.contains_key(code) {
            problems.push(Problem::of(&file.path, "nothing gives out this code"));
        }
        if !file.text.starts_with(&format!("# {code}\n")) {
            problems.push(Problem::of(&file.path, format!("begin with '# {code}'")));
        }
        if !index.contains(&format!("({code}.md)")) {
            problems.push(Problem::of(INDEX, format!("does not list {code}")));
        }
    }
    problems
}

fn codes(files: &[File]) -> Codes {
    let mut codes = Codes::new();
    for file in files.iter().filter(|file| file.path.starts_with("crates/") && !is_test_file(&file.path)) {
        let found = if file.path.ends_with(".rs") && file.path.contains("/src/") {
            in_rust(&file.text)
        } else if file.path.ends_with(".sql") {
            in_sql(&file.text)
        } else {
            Vec::new()
        };
        for (code, line) in found {
            codes.entry(code).or_insert_with(|| (file.path.clone(), line));
        }
    }
    codes
}

fn in_rust(source: &str) -> Vec<(String, usize)> {
    let pieces: Vec<Piece<'_>> =
        pieces(without_tests(source)).into_iter().filter(|piece| piece.kind != Kind::Comment).collect();
    let mut found = Vec::new();
    let mut answers_codes = false;
    for (index, piece) in pieces.iter().enumerate() {
        if piece.kind == Kind::Code {
            // From `fn code` to the next function its texts are codes.
            if let Some(at) = piece.text.rfind("fn ") {
                answers_codes = piece.text[at..].starts_with("fn code(");
            }
            continue;
        }
        let before = match index.checked_sub(1).map(|at| pieces[at]) {
            Some(Piece { kind: Kind::Code, text, .. }) => text.trim_end(),
            _ => "",
        };
        if is_code(piece.text, before, answers_codes) {
            found.push((piece.text.to_owned(), piece.line));
        }
    }
    found
}

fn is_code(text: &str, before: &str, answers_codes: bool) -> bool {
    let other = text.starts_with("STARGATE_") || ENVIRONMENT.contains(&text);
    if !is_capitals(text) || other || OTHER_NAMES.iter().any(|name| before.ends_with(name)) {
        return false;
    }
    let arm = answers_codes && before.ends_with("=>");
    let constant = before.ends_with(&format!("const {text}: &str ="));
    text.contains('_')
        || arm
        || constant
        || after_exit(before)
        || GIVEN_OUT.iter().any(|name| before.ends_with(name))
}

/// Failures of the binary and of the API name the answer first: `new(Exit::Input, "IO"`.
fn after_exit(before: &str) -> bool {
    ["new(Exit::", "new(StatusCode::"].iter().filter_map(|call| before.rsplit_once(call)).any(
        |(_, answer)| {
            let name = answer.strip_suffix(',').unwrap_or_default();
            !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_')
        },
    )
}

fn is_capitals(text: &str) -> bool {
    let words_are_whole = text.split('_').all(|word| !word.is_empty());
    let fits = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    text.len() > 1
        && text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.chars().all(fits)
        && words_are_whole
}

/// Codes that the database itself gives out: texts in single quotes.
fn in_sql(source: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (index, line) in source.lines().enumerate() {
        let code = line.split("--").next().unwrap_or_default();
        let texts = code.split('\'').skip(1).step_by(2).filter(|text| is_code(text, "", false));
        found.extend(texts.map(|text| (text.to_owned(), index + 1)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn found(source: &str) -> Vec<String> {
        in_rust(source).into_iter().map(|(code, _)| code).collect()
    }

    #[test]
    fn codes_are_found_where_they_are_given_out() {
        assert_eq!(found("JobError::new(\"PANIC\", class, \"x\")"), ["PANIC"]);
        assert_eq!(found("warn!(code = \"HEARTBEAT_DEGRADED\")"), ["HEARTBEAT_DEGRADED"]);
        assert_eq!(found("pub const QUEUE_FULL: &str = \"QUEUE_FULL\";"), ["QUEUE_FULL"]);
        assert_eq!(found("pub const PANIC: &str = \"PANIC\"; const NAME: &str = \"GET\";"), ["PANIC"]);
        assert_eq!(found("Self::new(Exit::Input, \"IO\", text)"), ["IO"]);
        assert_eq!(found("Problem::new(StatusCode::TOO_MANY, \"BUSY\", text)"), ["BUSY"]);
        assert_eq!(found("fn code(&self) -> &str { match self { A => \"INVALID\" } }"), ["INVALID"]);
    }

    #[test]
    fn other_words_in_capitals_are_no_codes() {
        assert_eq!(found("fn name() { match a { A => \"GET\" } }"), [""; 0]);
        assert_eq!(found("env::var(\"SOME_THING\"); f(\"DATABASE_URL\"); f(\"STARGATE_HOME\")"), [""; 0]);
        assert_eq!(found("#[arg(value_name = \"JOB_ID\")] // \"NOT_ME\""), [""; 0]);
        assert_eq!(found("#[cfg(test)]\nmod tests {\n f(\"MADE_UP\") }"), [""; 0]);
    }

    #[test]
    fn the_database_gives_codes_out_too() {
        let sql = "-- 'NOT_ME'\nselect json_object('code', 'WORKER_LOST', 'class', 'Fatal')";
        assert_eq!(in_sql(sql), [("WORKER_LOST".to_owned(), 2)]);
    }

    #[test]
    fn a_code_without_page_and_a_page_without_code_are_found() {
        let files = [
            file("crates/a/src/lib.rs", "//! x\nf(\"QUEUE_FULL\");\nf(\"WORKER_LOST\");\n"),
            file("docs/errors/WORKER_LOST.md", "# WORKER_LOST\n"),
            file("docs/errors/OLD_CODE.md", "# something else\n"),
            file("docs/errors/README.md", "[WORKER_LOST](WORKER_LOST.md) [OLD_CODE](OLD_CODE.md)"),
        ];
        let problems: Vec<String> = check(&files).iter().map(ToString::to_string).collect();
        assert_eq!(
            problems,
            [
                "crates/a/src/lib.rs:2: the code QUEUE_FULL has no page docs/errors/QUEUE_FULL.md",
                "docs/errors/OLD_CODE.md: nothing gives out this code",
                "docs/errors/OLD_CODE.md: begin with '# OLD_CODE'",
            ]
        );
    }

    #[test]
    fn a_page_that_the_list_leaves_out_is_found() {
        let files = [
            file("crates/a/src/lib.rs", "f(\"WORKER_LOST\")"),
            file("docs/errors/WORKER_LOST.md", "# WORKER_LOST\n"),
        ];
        assert_eq!(check(&files)[0].to_string(), "docs/errors/README.md: does not list WORKER_LOST");
    }
}
