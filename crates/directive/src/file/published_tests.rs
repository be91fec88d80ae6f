//! The published JSON Schema says the same as the code.

use std::collections::BTreeSet;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use super::json::json;
use super::tests::GOOD;
use super::{SCHEMA, parse, raw};

fn schema() -> Json {
    serde_json::from_str(SCHEMA).unwrap()
}

fn validator() -> jsonschema::Validator {
    jsonschema::draft202012::options().offline().build(&schema()).unwrap()
}

fn document(text: &str) -> Json {
    json(&toml::from_str(text).unwrap()).unwrap()
}

/// Each valid file of these tests; `GOOD` with one piece exchanged.
fn variants() -> Vec<String> {
    let (before, rest) = GOOD.split_once("[source]").unwrap();
    let (_, after) = rest.split_once("[item]").unwrap();
    let sources = [
        "type = \"http\"\nurl = \"${env:URL}\"\ntotal = \"/n\"\ntimeout = \"1h 30m\"",
        "type = \"http\"\nurl = \"http://h\"\npagination = { type = \"link\" }\nrate_limit = \"100 / h\"",
        "type = \"http\"\nurl = \"http://h\"\npagination = { type = \"page\", param = \"p\", start = 0 }",
        "type = \"http\"\nurl = \"http://h\"\npagination = { type = \"offset\", param = \"o\" }",
        "type = \"singer\"\ncommand = [\"tap\", \"\"]\nconfig = { a = 1, b = [\"x\"], c = 2026-01-01 }\nenv = { A = \"b\" }\n\
         catalog = \"c.json\"\nstream = \"s\"",
        "type = \"file\"\npath = \"x.csv\"\nformat = \"csv\"",
        "type = \"sql\"\nquery = \"select 1\"\nwatermark = \"at\"\nurl = \"postgres://h\"",
        "type = \"activity\"\nactivity = \"fetch\"\ntask_queue = \"q\"\nargs = [1]",
    ];
    let mut all: Vec<String> =
        sources.iter().map(|source| format!("{before}[source]\n{source}\n[item]{after}")).collect();
    for (from, to) in [
        ("spec_ref", "mode = \"incremental\"\nspec_ref"),
        ("outbox = \"items.changed\"", "url = \"postgres://h/d\""),
        ("title = \"/title\"", "_t1 = { constant = 1.5, type = \"float\", default = false }"),
        ("hash = [\"/title\", \"/state\"]\n", ""),
        ("\"/state\"", "\"/a~1b/~0\", \"\""),
    ] {
        assert!(GOOD.contains(from), "{from}");
        all.push(GOOD.replacen(from, to, 1));
    }
    all.push(GOOD.to_owned());
    all
}

#[test]
fn every_valid_file_passes() {
    let validator = validator();
    for text in variants() {
        let parsed = parse(Path::new("issues.toml"), &text, &["meta-py".to_owned()]);
        parsed.unwrap_or_else(|problems| panic!("{problems:?}\n{text}"));
        let errors: Vec<String> = validator
            .iter_errors(&document(&text))
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert_eq!(errors, [""; 0], "{text}");
    }
}

#[test]
fn the_examples_pass() {
    let validator = validator();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/directives");
    let files = super::files(&dir).unwrap();
    assert!(files.len() >= 5, "{files:?}");
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let errors: Vec<String> =
            validator.iter_errors(&document(&text)).map(|error| error.to_string()).collect();
        assert_eq!(errors, [""; 0], "{}", path.display());
    }
}

#[test]
fn what_a_schema_can_refuse_it_refuses() {
    let validator = validator();
    for (from, to) in [
        ("page_size = 200", "page_size = 501"),
        ("page_size = 200", "page_size = 49"),
        ("page_size = 200", "page_size = \"200\""),
        ("page_size = 200", "page_sise = 200"),
        ("concurrency = 3", "concurrency = 9"),
        ("concurrency = 3", "concurrency = 0"),
        ("tenant = \"acme\"", "tenant = \"Ac me\""),
        ("tenant = \"acme\"\n", ""),
        ("schedule = \"*/15 * * * *\"\n", ""),
        ("\"10s\"", "\"soon\""),
        ("\"10/s\"", "\"10 per s\""),
        ("\"10/s\"", "\"0/s\""),
        ("records = \"/items\"", "records = \"items\""),
        ("records = \"/items\"", "records = \"/a~2\""),
        ("records = \"/items\"", "query = \"select\""),
        ("type = \"http\"", "type = \"htpp\""),
        ("type = \"http\"", "type = \"sql\""),
        ("url = \"https://api.example/items\"\n", ""),
        ("https://api", "ftp://api"),
        ("type = \"cursor\"", "type = \"guess\""),
        (", next = \"/next\"", ""),
        (", next = \"/next\"", ", start = 1"),
        ("key = [\"/id\"]", "key = []"),
        ("key = [\"/id\"]", "key = [\"id\"]"),
        ("title = \"/title\"", "hash = \"/title\""),
        ("title = \"/title\"", "Title = \"/title\""),
        ("title = \"/title\"", "title = \"title\""),
        ("title = \"/title\"", "title = { type = \"text\" }"),
        ("title = \"/title\"", "title = { from = \"/a\", constant = 1 }"),
        ("type = \"timestamp\"", "type = \"date\""),
        ("table = \"items\"", "table = \"items; drop table job\""),
        ("table = \"items\"", "table = \"1items\""),
        ("table = \"items\"", "table = \"stargate_sink\""),
        ("title = \"/title\"", "rowid = \"/title\""),
        ("title = \"/title\"", "ctid = \"/title\""),
        ("outbox = \"items.changed\"", "outbox = \"items.changed\"\nurl = \"postgres://h/d\""),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let text = GOOD.replacen(from, to, 1);
        assert!(!validator.is_valid(&document(&text)), "{to}");
        assert!(parse(Path::new("issues.toml"), &text, &["meta-py".to_owned()]).is_err(), "{to}");
    }
}

/// The keys that the code knows, from what serde says about one that it does not.
fn known<T: DeserializeOwned + std::fmt::Debug>() -> BTreeSet<String> {
    let error = toml::from_str::<T>("no-such-key = 1").unwrap_err();
    let names = error.message().split_once("expected").unwrap().1.split('`').skip(1).step_by(2);
    names.map(str::to_owned).collect()
}

/// The keys of an object of the schema, in whichever of its forms.
fn published(schema: &Json, part: &Json) -> BTreeSet<String> {
    let mut keys: BTreeSet<String> =
        part["properties"].as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect();
    for form in part["oneOf"].as_array().into_iter().flatten() {
        let form = match form["$ref"].as_str() {
            Some(reference) => schema.pointer(reference.trim_start_matches('#')).unwrap(),
            None => form,
        };
        keys.extend(published(schema, form));
    }
    keys
}

#[test]
fn code_and_schema_know_the_same_keys() {
    let schema = schema();
    let part = |name: &str| published(&schema, &schema["$defs"][name]);
    assert_eq!(known::<raw::Directive>(), published(&schema, &schema));
    assert_eq!(known::<raw::Retry>(), part("retry"));
    assert_eq!(known::<raw::Source>(), part("source"));
    assert_eq!(known::<raw::Pagination>(), part("pagination"));
    assert_eq!(known::<raw::Item>(), part("item"));
    assert_eq!(known::<raw::FieldTable>(), part("field"));
    assert_eq!(known::<raw::Sink>(), part("sink"));
}
