//! Rules for every text of the project: no paths of somebody's machine, a changelog that is kept.

use super::{File, Problem};

/// Folders that exist on one machine only. Written apart, so that this file does not find itself.
const MACHINE_PATHS: [&str; 2] = [concat!("/wo", "rk/"), concat!("/ro", "ot/")];

const CHANGELOG: &str = "CHANGELOG.md";
const UNRELEASED: &str = "## [Unreleased]";

/// Checks one file.
pub(super) fn check(file: &File) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for path in MACHINE_PATHS.iter().filter(|path| names_path(line, path)) {
            problems.push(Problem::at(
                &file.path,
                index + 1,
                format!("{path}… is a path of somebody's machine"),
            ));
        }
    }
    problems
}

/// Whether the line holds the path from its root: `/a/b/` is not in `x/a/b/`.
fn names_path(line: &str, path: &str) -> bool {
    let continues = |c: char| c.is_alphanumeric() || "._-}*".contains(c);
    line.match_indices(path).any(|(at, _)| !line[..at].ends_with(continues))
}

/// Checks that the changelog has a place for the next release with something in it.
pub(super) fn check_changelog(files: &[File]) -> Vec<Problem> {
    let Some(changelog) = files.iter().find(|file| file.path == CHANGELOG) else {
        return vec![Problem::of(CHANGELOG, "missing")];
    };
    let mut sections = changelog.text.lines().skip_while(|line| line.trim() != UNRELEASED);
    if sections.next().is_none() {
        return vec![Problem::of(CHANGELOG, format!("no section {UNRELEASED}"))];
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    #[test]
    fn paths_of_a_machine_are_found_with_their_line() {
        for path in MACHINE_PATHS {
            let found = check(&file("README.md", &format!("one\nsee `{path}main/x` and {path}y\n")));
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(found[0].line, 2);
            assert_eq!(check(&file("README.md", &format!("frame{path}x https://a.example{path}"))), []);
        }
    }

    #[test]
    fn a_changelog_needs_a_section_for_the_next_release() {
        assert_eq!(check_changelog(&[])[0].message, "missing");
        assert_eq!(check_changelog(&[file(CHANGELOG, "# Changelog\n## [0.1.0]\n")]).len(), 1);
        assert_eq!(check_changelog(&[file(CHANGELOG, "# Changelog\n\n## [Unreleased]\n")]), []);
    }
}
