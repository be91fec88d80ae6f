//! What a directive's file may say, and where a wrong one is told to be wrong.

use super::*;
use crate::item::ColumnType;
use crate::transform::{From, Piece};

pub(super) const GOOD: &str = r#"
name = "issues"
queue = "meta-py"
tenant = "acme"
project = "core"
spec_ref = "specs/issues.md"
page_size = 200
concurrency = 3
schedule = "*/15 * * * *"
time_zone = "Europe/Berlin"
heartbeat = "10s"
deadline = "2h"

[retry]
transient_first = "1s"
conflict_max = "30s"
transient_tries = 9

[source]
type = "http"
url = "https://api.example/items"
records = "/items"
page_size_param = "limit"
pagination = { type = "cursor", param = "after", next = "/next" }
rate_limit = "10/s"
headers = { authorization = "Bearer ${env:ACME_TOKEN}" }

[item]
key = ["/id"]
hash = ["/title", "/state"]
map = { title = "/title", opened = { from = "/opened_at", type = "timestamp" }, label = { template = "{/a}-{{{/b}}}" } }

[sink]
table = "items"
outbox = "items.changed"
"#;

fn queues() -> Vec<String> {
    ["meta-py", "meta-ts"].map(str::to_owned).to_vec()
}

fn read(text: &str) -> Result<Directive, Vec<Problem>> {
    parse(Path::new("directives/issues.toml"), text, &queues())
}

fn refused(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    let problems = read(&GOOD.replacen(from, to, 1)).unwrap_err();
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_whole_directive_is_understood() {
    let directive = read(GOOD).unwrap();
    assert_eq!((directive.name.as_str(), directive.page_size, directive.mode), ("issues", 200, Mode::Full));
    assert_eq!(directive.concurrency, 3);
    assert_eq!(directive.variables().collect::<Vec<_>>(), ["ACME_TOKEN"]);
    let unset = directive.unset(|_| None);
    assert!(
        unset[0].to_string().contains("issues.toml:26:37: the environment variable ACME_TOKEN is not set")
    );
    assert_eq!(directive.unset(|_| Some(String::new())), []);
    assert_eq!(directive.schedule.unwrap().time_zone, "Europe/Berlin");
    assert_eq!(directive.heartbeat, Duration::from_secs(10));
    assert_eq!(directive.deadline, Some(Duration::from_secs(7200)));
    let retry = directive.retry;
    assert_eq!((retry.transient.first, retry.transient_max), (Duration::from_secs(1), Some(9)));
    assert_eq!(retry.conflict.cap, Duration::from_secs(30));
    let Source::Http(http) = directive.source else { unreachable!() };
    assert_eq!(http.rate_limit, Some(Rate { count: 10, per: Duration::from_secs(1) }));
    assert_eq!(http.headers["authorization"].variables().collect::<Vec<_>>(), ["ACME_TOKEN"]);
    let columns = &directive.sink.table.columns;
    let kinds: Vec<(&str, ColumnType)> = columns.iter().map(|c| (c.name.as_str(), c.kind)).collect();
    let expected =
        [("label", ColumnType::Text), ("opened", ColumnType::Timestamp), ("title", ColumnType::Text)];
    assert_eq!(kinds, expected);
    let From::Template(pieces) = &directive.item.fields[0].from else { unreachable!() };
    let text = |text: &str| Piece::Text(text.to_owned());
    let place = |place: &str| Piece::Pointer(place.to_owned());
    assert_eq!(pieces, &[place("/a"), text("-{"), place("/b"), text("}")]);
}

#[test]
fn what_is_wrong_is_told_with_its_place_and_the_remedy() {
    for (from, to, expected) in [
        (
            "queue = \"meta-py\"",
            "queue = \"meta-go\"",
            "issues.toml:3:9: queue \"meta-go\" is not defined; defined are meta-py, meta-ts",
        ),
        ("page_size = 200", "page_size = 501", "issues.toml:7:13: must be 50 to 500, not 501"),
        ("concurrency = 3", "concurrency = 9", "issues.toml:8:15: must be 1 to 8, not 9"),
        ("\"10s\"", "\"11m\"", "issues.toml:11:13: must be 100ms to 10m"),
        (
            "outbox = \"items.changed\"",
            "outbox = \"items.changed\"\nurl = \"postgres://h/d\"",
            "issues.toml:35:10: announcements are written with the rows, into the store's own database: leave out",
        ),
        (", next = \"/next\"", ", start = 2", "start belongs to a pagination of type page, not cursor"),
        ("from = \"/opened_at\"", "form = \"/opened_at\"", "unknown field `form`"),
        ("title = \"/title\"", "title = 7", "must be a JSON pointer"),
        (
            "key = [\"/id\"]",
            "key = [\"/id\"]\nschema = \"none.json\"",
            "cannot read the schema directives/none.json",
        ),
        ("page_size = 200", "page_sise = 200", "issues.toml:7:1: unknown field `page_sise`"),
        ("tenant = \"acme\"", "tenant = \"Ac me\"", "issues.toml:4:10: must be 1 to 48 lower-case"),
        (
            "name = \"issues\"",
            "name = \"other\"",
            "issues.toml:2:8: the directive \"other\" must stand in other.toml",
        ),
        ("\"*/15 * * * *\"", "\"every day\"", "issues.toml:9:12:"),
        ("Europe/Berlin", "Europe/Bonn", "issues.toml:10:13: there is no time zone"),
        ("\"10s\"", "\"soon\"", "issues.toml:11:13: \"soon\" is not a length of time"),
        ("\"10/s\"", "\"10 per s\"", "issues.toml:25:14: \"10 per s\" is not a rate"),
        ("records = \"/items\"", "records = \"items\"", "issues.toml:22:11: \"items\" is no JSON pointer"),
        ("type = \"http\"", "type = \"htpp\"", "source type \"htpp\" is not known; known are http"),
        ("records = \"/items\"", "query = \"select\"", "query belongs to a source of type sql, not http"),
        ("url = \"https://api.example/items\"\n", "", "issues.toml:19:1: needs url"),
        ("https://api", "ftp://api", "must begin with http:// or https://"),
        ("${env:ACME_TOKEN}", "${env:}", "names no environment variable"),
        ("type = \"cursor\"", "type = \"guess\"", "pagination \"guess\" is not known"),
        (", next = \"/next\"", "", "needs next"),
        ("key = [\"/id\"]", "key = []", "issues.toml:29:7: must name at least one place"),
        ("title = \"/title\"", "hash = \"/title\"", "\"hash\" is a column that every table has"),
        ("type = \"timestamp\"", "type = \"date\"", "type \"date\" is not known"),
        ("{/a}-", "{/a-", "has a brace without its other half"),
        ("table = \"items\"", "table = \"items; drop table job\"", "must be 1 to 63 lower-case"),
        ("table = \"items\"", "table = \"pg_items\"", "issues.toml:34:9: must not begin with \"pg_\""),
        ("table = \"items\"", "table = \"job_history\"", "issues.toml:34:9: \"job_history\" is reserved"),
        (
            "title = \"/title\"",
            "xmin = \"/title\"",
            "\"xmin\" is a column that Postgres or SQLite keeps for itself",
        ),
    ] {
        let told = refused(from, to);
        assert!(told.contains(expected), "{to:?}: {told}");
    }
}

#[test]
fn all_problems_are_told_at_once_in_the_order_of_the_file() {
    let text =
        GOOD.replace("page_size = 200", "page_size = 1").replace("meta-py", "x").replace("\"/id\"", "\"id\"");
    let lines: Vec<usize> = read(&text).unwrap_err().iter().map(|problem| problem.line).collect();
    assert_eq!(lines, [3, 7, 29]);
}

#[test]
fn text_that_is_no_toml_is_told_with_its_place() {
    let problems = read("name = \"issues\"\nqueue = \n").unwrap_err();
    assert_eq!((problems.len(), problems[0].line), (1, 2), "{problems:?}");
}

/// The usual directive with a tap that has these settings.
fn tap(config: &str) -> Result<Directive, Vec<Problem>> {
    let (before, rest) = GOOD.split_once("[source]\n").unwrap();
    let (_, after) = rest.split_once("[item]\n").unwrap();
    read(&format!("{before}[source]\ntype = \"singer\"\ncommand = [\"tap\"]\n{config}\n[item]\n{after}"))
}

#[test]
fn variables_within_tables_and_lists_of_a_taps_settings_are_known_with_their_places() {
    let config = "[source.config]\nflat = \"${env:A}\"\nheaders = { auth = \"Bearer ${env:B}\" }\n\
                  keys = [\"x\", [{ deep = \"${env:C}\" }]]\n[source.config.more]\nlast = \"${env:D}\"\n\
                  # later = \"${env:E}\"\n";
    let directive = tap(config).unwrap();
    assert_eq!(directive.variables().collect::<Vec<_>>(), ["A", "B", "C", "D"]);
    let unset = directive.unset(|name| (name == "A").then(String::new));
    let places: Vec<_> = unset.iter().map(|problem| (problem.line, problem.column)).collect();
    assert_eq!(places, [(24, 28), (25, 25), (27, 9)], "{unset:?}");
    assert!(unset[1].to_string().contains("C is not set; a run would fail"), "{unset:?}");
}

#[test]
fn a_broken_reference_anywhere_in_a_taps_settings_is_refused() {
    for broken in ["\"${env:A\"", "{ a = \"${env:A\" }", "[\"x\", { b = [\"${env:A\"] }]"] {
        let problems = tap(&format!("config = {{ key = {broken} }}\n")).unwrap_err();
        assert_eq!((problems.len(), problems[0].line), (1, 22), "{broken}: {problems:?}");
        assert!(problems[0].to_string().contains("without \"}\""), "{broken}: {problems:?}");
    }
}

#[test]
fn secrets_are_not_repeated() {
    let told = refused("url = \"https://api.example/items\"", "url = \"redis://me:canary@h\"");
    assert!(!told.contains("canary"), "{told}");
}

#[test]
fn a_schema_beside_the_directive_is_compiled_and_a_wrong_one_is_told() {
    use crate::parts::Transformed;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("issues.toml");
    let text = GOOD.replace("key = [\"/id\"]", "key = [\"/id\"]\nschema = \"item.schema.json\"");
    let schema = dir.path().join("item.schema.json");
    std::fs::write(&schema, r#"{"required": ["title"]}"#).unwrap();
    let mapping = parse(&path, &text, &queues()).unwrap().mapping().unwrap();
    let record = |text: &str| Ok(serde_json::value::RawValue::from_string(text.to_owned()).unwrap());
    assert!(matches!(mapping.apply(record(r#"{"id":1,"title":"x"}"#)), Transformed::Item(_)));
    let Transformed::Reject(reject) = mapping.apply(record(r#"{"id":1}"#)) else { unreachable!() };
    assert_eq!(reject.cause, "schema");
    assert!(reject.reason.contains("\"title\" is a required property"), "{}", reject.reason);
    for (wrong, expected) in [
        (r#"{"type": 7}"#, "issues.toml:30:10: \"item.schema.json\" is no usable JSON Schema at \"/type\""),
        ("{", "cannot read the schema"),
        (r#"{"$ref": "other.json"}"#, "other documents are not read"),
    ] {
        std::fs::write(&schema, wrong).unwrap();
        let problems = parse(&path, &text, &queues()).unwrap_err();
        assert!(problems[0].to_string().contains(expected), "{problems:?}");
    }
}
