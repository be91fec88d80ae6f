//! Rules for Rust files: a header, one subject's length, nothing left over.

use super::rust::{Kind, Piece, is_test_file, pieces, without_tests};
use super::{File, Problem};

/// Lines a file may have without its tests. 400 is the aim.
const LINES_MAX: usize = 800;

/// What must not stand in code, and what to do instead. Written apart, so that a plain search for what was left
/// over does not end here.
const FORBIDDEN: [(&str, &str); 6] = [
    (concat!("#[", "ignore"), "no test is ignored: assert what happens today and say what is wrong with it"),
    (concat!("#[", "allow("), "write #[expect(lint, reason = \"…\")]"),
    (concat!("#![", "allow("), "write #![expect(lint, reason = \"…\")]"),
    (concat!("db", "g!("), "left over from debugging"),
    (concat!("tod", "o!("), "what is not there does not reach main"),
    (concat!("unimple", "mented!("), "what is not there does not reach main"),
];

/// Checks one file.
pub(super) fn check(file: &File) -> Vec<Problem> {
    let mut problems = Vec::new();
    if file.path.ends_with("/mod.rs") {
        problems.push(Problem::of(&file.path, "write name.rs beside the folder name/ instead of mod.rs"));
    }
    if !file.text.trim_start().starts_with("//!") {
        problems.push(Problem::of(
            &file.path,
            "begin with //!: what the file is for and what it leaves to others",
        ));
    }
    let lines = without_tests(&file.text).lines().count();
    if lines > LINES_MAX {
        let message =
            format!("{lines} lines without tests, at most {LINES_MAX} are allowed; split it by subject");
        problems.push(Problem::of(&file.path, message));
    }
    let pieces = pieces(&file.text);
    problems.extend(forbidden(&file.path, &pieces));
    problems.extend(notes_to_self(&file.path, &pieces));
    if file.path.starts_with("crates/store/src/") && !is_test_file(&file.path) {
        problems.extend(sql_in_texts(file));
    }
    problems
}

fn forbidden(path: &str, pieces: &[Piece<'_>]) -> Vec<Problem> {
    let code = pieces.iter().filter(|piece| piece.kind == Kind::Code);
    code.flat_map(|piece| {
        FORBIDDEN.iter().flat_map(move |(word, remedy)| {
            piece.text.match_indices(word).map(move |(at, _)| {
                let line = piece.line + piece.text[..at].matches('\n').count();
                Problem::at(path, line, format!("{word}: {remedy}"))
            })
        })
    })
    .collect()
}

fn notes_to_self(path: &str, pieces: &[Piece<'_>]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for piece in pieces.iter().filter(|piece| piece.kind == Kind::Comment) {
        for (offset, line) in piece.text.lines().enumerate() {
            if has_word(line, concat!("FIX", "ME")) {
                problems.push(Problem::at(
                    path,
                    piece.line + offset,
                    "mend it, or open an issue and write TODO(#12)",
                ));
            }
            if has_word(line, "TODO") && !names_issue(line) {
                problems.push(Problem::at(
                    path,
                    piece.line + offset,
                    "a TODO needs an issue number: TODO(#12)",
                ));
            }
        }
    }
    problems
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric()).any(|part| part == word)
}

fn names_issue(line: &str) -> bool {
    line.match_indices('#').any(|(at, _)| line[at + 1..].starts_with(|c: char| c.is_ascii_digit()))
}

/// SQL belongs into `sql/`, where it can be prepared, compared and read.
fn sql_in_texts(file: &File) -> Vec<Problem> {
    let message = "SQL belongs into crates/store/sql/, one statement a file";
    pieces(without_tests(&file.text))
        .iter()
        .filter(|piece| piece.kind == Kind::Text && is_sql(piece.text))
        .map(|piece| Problem::at(&file.path, piece.line, message))
        .collect()
}

/// Whether a text is a statement that reads or changes rows: it begins with the verb and has its second word. One whose
/// table is known only when it runs, as those of directives are, can be no file.
fn is_sql(text: &str) -> bool {
    let text = text.to_lowercase();
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_filled_in = |pair: &[&str]| matches!(pair[0], "from" | "into" | "update") && pair[1].contains('{');
    if words.windows(2).any(is_filled_in) {
        return false;
    }
    match words.as_slice() {
        ["insert", "into", ..] | ["delete", "from", ..] => true,
        ["update", rest @ ..] => rest.contains(&"set"),
        ["select" | "with", rest @ ..] => rest.contains(&"from"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn problems(path: &str, text: &str) -> Vec<String> {
        check(&file(path, text)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_file_without_header_is_found() {
        assert!(problems("crates/a/src/lib.rs", "use x;\n")[0].contains("//!"));
        assert_eq!(problems("crates/a/src/lib.rs", "//! What it is for.\n"), [""; 0]);
    }

    #[test]
    fn length_is_counted_without_tests() {
        let body = "//! x\n".to_owned() + &"fn a() {}\n".repeat(LINES_MAX);
        assert!(problems("crates/a/src/lib.rs", &body)[0].contains("801 lines"));
        let tested =
            "//! x\n#[cfg(test)]\nmod tests {\n".to_owned() + &"fn a() {}\n".repeat(LINES_MAX) + "}\n";
        assert_eq!(problems("crates/a/src/lib.rs", &tested), [""; 0]);
    }

    #[test]
    fn what_is_forbidden_is_found_in_code_with_its_line_and_not_in_texts() {
        for (word, _) in FORBIDDEN {
            let found = problems("crates/a/src/lib.rs", &format!("//! x\n\nfn a() {{ {word}"));
            assert_eq!(found.len(), 1, "{word}: {found:?}");
            assert!(found[0].starts_with("crates/a/src/lib.rs:3: "), "{found:?}");
            assert_eq!(
                problems("crates/a/src/lib.rs", &format!("//! {word}\nlet a = \"{word}\";\n")),
                [""; 0]
            );
        }
    }

    #[test]
    fn notes_to_self_need_an_issue() {
        let fix = concat!("FIX", "ME");
        assert_eq!(problems("a.rs", &format!("//! x\n// {fix}: later\n")).len(), 1);
        assert_eq!(problems("a.rs", "//! x\n// TODO: later\n").len(), 1);
        assert_eq!(problems("a.rs", "//! x\n// TODO(#12): later\n"), [""; 0]);
        assert_eq!(problems("a.rs", "//! x\nlet a = \"TODO\";\n"), [""; 0]);
    }

    #[test]
    fn sql_is_found_in_the_store_but_not_in_its_tests_and_not_in_prose() {
        let path = "crates/store/src/sqlite/claim.rs";
        for sql in [
            "insert into job values (1)",
            "UPDATE job SET a = 1",
            "delete from job",
            "\\n select id\\n from job",
        ] {
            let text = format!("//! x\nconst A: &str = \"{}\";\n", sql.replace("\\n", "\n"));
            assert_eq!(problems(path, &text).len(), 1, "{sql}");
            assert_eq!(problems("crates/store/tests/a.rs", &text), [""; 0]);
            assert_eq!(problems(path, &format!("//! x\n#[cfg(test)]\nmod tests {{\n{text}}}\n")), [""; 0]);
        }
        for prose in [
            "update the set-up from",
            "select a kind",
            "the store could not delete from it",
            "pragma x",
            "select a from {name}",
        ] {
            assert_eq!(problems(path, &format!("//! x\nf(\"{prose}\");\n")), [""; 0], "{prose}");
        }
    }
}
