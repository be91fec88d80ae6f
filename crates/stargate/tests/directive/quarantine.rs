//! Records that cannot become items.

use stargate_testkit::source_server::{Data, SourceServer};

use crate::stage::{Kind, Place, Stage, Wishes, total};
use crate::steps::{field, records};

/// Item 4711 has a number for a title that is no text, by the schema.
fn one_bad(count: u64) -> SourceServer {
    SourceServer::with_data(Data::generated(count, |id, version| match id {
        4711 => format!(r#"{{"id":{id},"title":{{"wrong":true}},"version":{version}}}"#),
        _ => format!(r#"{{"id":{id},"title":"item {id}","version":{version}}}"#),
    }))
}

const SCHEMA: &str =
    r#"{"type":"object","required":["id","title"],"properties":{"title":{"type":"string"}}}"#;

pub(crate) async fn one_in_ten_thousand(place: Place) {
    let wishes =
        Wishes { top: "page_size = 500", item: "schema = \"item.schema.json\"", ..Wishes::default() };
    let stage = Stage::new(place, one_bad(10_000)).await;
    std::fs::write(stage.file("directives/item.schema.json"), SCHEMA).unwrap();
    stage.write(&wishes);
    let mut worker = stage.worker();
    worker.ready().await;
    stage.begin();
    let run = stage.run_is(|run| run["outcome"] == "succeeded").await;
    assert_eq!((&run["created"], &run["failed"], total(&run)), (&9999.into(), &1.into(), 10_000));
    let list = stage.json(&["quarantine", "list", "issues"]);
    assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
    assert_eq!((&list[0]["entity_id"], &list[0]["cause"]), (&"4711".into(), &"schema".into()));
    assert!(list[0]["reason"].as_str().unwrap().contains("/title"), "{list}");
    assert_eq!(list[0]["record"]["title"]["wrong"], true);
    let log = worker.log();
    let all = records(&log);
    let said =
        all.iter().find(|record| field(record, "error_class") == "ValidationFailure").expect("an ERROR");
    assert_eq!((field(said, "level"), field(said, "entity_id")), ("ERROR", "4711"));
    // The same record is kept once, however often it comes.
    stage.run();
    let list = stage.json(&["quarantine", "list", "issues"]);
    assert_eq!((list.as_array().unwrap().len(), &list[0]["seen"]), (1, &2.into()));
    // The schema is mended, and the record becomes an item.
    stage.write(&Wishes { item: "", ..wishes });
    let text = std::fs::read_to_string(stage.file("directives/issues.toml")).unwrap();
    std::fs::write(
        stage.file("directives/issues.toml"),
        text.replace("title = \"/title\"", "title = { from = \"/title\", type = \"json\" }")
            .replace("\"items\"", "\"items2\""),
    )
    .unwrap();
    let retried = stage.json(&["quarantine", "retry", "issues"]);
    assert_eq!((&retried["resolved"], &retried["failed"]), (&1.into(), &0.into()));
    assert_eq!(stage.number("select count(*) from items2 where entity_id = '4711'").await, 1);
    assert_eq!(stage.json(&["quarantine", "list", "issues"]).as_array().unwrap().len(), 0);
    assert_eq!(stage.json(&["quarantine", "list", "issues", "--all"]).as_array().unwrap().len(), 1);
    stage.remove().await;
}

#[tokio::test]
async fn a_record_that_the_source_mended_is_no_longer_in_quarantine() {
    let bad = SourceServer::with_data(Data::generated(100, |id, version| match (id, version) {
        (7, 0) => r#"{"id":7,"title":{"wrong":true}}"#.to_owned(),
        _ => format!(r#"{{"id":{id},"title":"item {id}"}}"#),
    }));
    let stage = Stage::new(Kind::Sqlite, bad).await;
    assert_eq!(stage.run()["failed"], 1);
    stage.server.edit(|data| data.touch(7));
    assert_eq!(stage.run()["created"], 1);
    assert_eq!(stage.json(&["quarantine", "list"]).as_array().unwrap().len(), 0);
    stage.assert_equal_to_the_source().await;
    stage.remove().await;
}
