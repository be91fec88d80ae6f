//! What is wrong with directives only together: names that are taken, tables that two describe differently.

use std::collections::BTreeMap;

use super::{Directive, Place, Problem};

/// What was found in directives that are right one by one.
#[derive(Debug, Default)]
pub struct Found {
    /// What cannot work.
    pub problems: Vec<Problem>,
    /// What works and is hardly meant.
    pub warnings: Vec<Problem>,
}

/// Compares directives with each other. The later one is told, with the place of the earlier.
pub fn together(directives: &[Directive]) -> Found {
    let mut found = Found::default();
    let mut names: BTreeMap<&str, &Directive> = BTreeMap::new();
    let mut tables: BTreeMap<(String, &str), &Directive> = BTreeMap::new();
    for directive in directives {
        if let Some(other) = names.insert(&directive.name, directive) {
            let text = format!("the name {:?} is taken at {}", directive.name, at(other, other.places.name));
            found.problems.push(directive.places.name.problem(&directive.path, text));
        }
        let database = directive.sink.url.as_ref().map(ToString::to_string).unwrap_or_default();
        let table = (database, directive.sink.table.name.as_str());
        if let Some(other) = tables.get(&table) {
            compare_columns(directive, other, &mut found);
        } else {
            tables.insert(table, directive);
        }
    }
    found
}

fn at(directive: &Directive, place: Place) -> String {
    format!("{}:{}:{}", directive.path.display(), place.line, place.column)
}

/// A column has one type in a table. Columns that only one of the directives fills stay empty in the other's rows.
fn compare_columns(directive: &Directive, other: &Directive, found: &mut Found) {
    let place = |directive: &Directive, column: &str| {
        directive.places.columns.get(column).copied().unwrap_or(directive.places.table)
    };
    let (ours, theirs) = (&directive.sink.table, &other.sink.table);
    let mut lone = Vec::new();
    for column in &ours.columns {
        let Some(twin) = theirs.columns.iter().find(|twin| twin.name == column.name) else {
            lone.push(column.name.as_str());
            continue;
        };
        if twin.kind != column.kind {
            let text = format!(
                "the column {} of the table {} is {}, but {} at {}; give it the same type, or use another table",
                column.name,
                ours.name,
                column.kind.as_str(),
                twin.kind.as_str(),
                at(other, place(other, &column.name))
            );
            found.problems.push(place(directive, &column.name).problem(&directive.path, text));
        }
    }
    let missing = theirs.columns.iter().filter(|twin| ours.columns.iter().all(|one| one.name != twin.name));
    lone.extend(missing.map(|column| column.name.as_str()));
    if !lone.is_empty() {
        let text = format!(
            "the table {} has other columns at {}: {} stay empty in the rows of one of them",
            ours.name,
            at(other, other.places.table),
            lone.join(", ")
        );
        found.warnings.push(directive.places.table.problem(&directive.path, text));
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::parse;
    use super::*;

    fn directive(dir: &str, name: &str, map: &str, sink: &str) -> Directive {
        let text = format!(
            "name = \"{name}\"\nqueue = \"q\"\ntenant = \"t\"\nproject = \"p\"\n[source]\ntype = \"file\"\npath = \"x\"\n\
             [item]\nkey = [\"/id\"]\nmap = {{ {map} }}\n[sink]\n{sink}\n"
        );
        let path = PathBuf::from(format!("{dir}/{name}.toml"));
        parse(&path, &text, &["q".to_owned()]).unwrap()
    }

    fn texts(problems: &[Problem]) -> Vec<String> {
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_name_is_taken_once() {
        let table = "table = \"items\"";
        let twice = [directive("x", "a", "", table), directive("y", "a", "", table)];
        assert_eq!(
            texts(&together(&twice).problems),
            ["y/a.toml:1:8: the name \"a\" is taken at x/a.toml:1:8"]
        );
    }

    #[test]
    fn a_column_has_one_type_in_a_table() {
        let table = "table = \"items\"";
        let one = directive("x", "a", "n = \"/n\"", table);
        let two = directive("x", "b", "n = { from = \"/n\", type = \"integer\" }", table);
        let found = together(&[one.clone(), two]);
        assert_eq!(
            texts(&found.problems),
            ["x/b.toml:10:9: the column n of the table items is integer, but text at x/a.toml:10:9; \
                 give it the same type, or use another table"]
        );
        let elsewhere = directive(
            "x",
            "c",
            "n = { from = \"/n\", type = \"integer\" }",
            "table = \"items\"\nurl = \"postgres://h/d\"",
        );
        assert_eq!(together(&[one, elsewhere]).problems, []);
    }

    #[test]
    fn columns_that_only_one_fills_are_a_warning() {
        let table = "table = \"items\"";
        let all = [directive("x", "a", "n = \"/n\"", table), directive("x", "b", "m = \"/m\"", table)];
        let found = together(&all);
        assert_eq!(found.problems, []);
        assert_eq!(
            texts(&found.warnings),
            [
                "x/b.toml:12:9: the table items has other columns at x/a.toml:12:9: m, n stay empty in the rows of one of them"
            ]
        );
    }
}
