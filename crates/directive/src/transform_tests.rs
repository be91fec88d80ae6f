//! What becomes an item and what does not.

use super::*;

fn mapping(key: &[&str], hash: &[&str]) -> Mapping {
    let own = |pointers: &[&str]| pointers.iter().map(|p| (*p).to_owned()).collect();
    Mapping::new(own(key), own(hash), Vec::new(), None)
}

fn record(text: &str) -> Result<Json, Garbled> {
    Ok(RawValue::from_string(text.to_owned()).unwrap())
}

fn item(mapping: &Mapping, text: &str) -> Item {
    match mapping.apply(record(text)) {
        Transformed::Item(item) => item,
        Transformed::Reject(reject) => panic!("{reject:?}"),
    }
}

fn reject(mapping: &Mapping, text: &str) -> Reject {
    match mapping.apply(record(text)) {
        Transformed::Item(item) => panic!("{item:?}"),
        Transformed::Reject(reject) => reject,
    }
}

#[test]
fn one_value_is_the_key_and_several_are_told_apart() {
    let one = mapping(&["/id"], &[]);
    assert_eq!(item(&one, r#"{"id":"a"}"#).entity_id, "a");
    assert_eq!(item(&one, r#"{"id":7}"#).entity_id, "7");
    let two = mapping(&["/a", "/b"], &[]);
    assert_eq!(item(&two, r#"{"a":"x","b":1}"#).entity_id, r#"["x",1]"#);
    assert_ne!(
        item(&two, r#"{"a":"x,y","b":"z"}"#).entity_id,
        item(&two, r#"{"a":"x","b":"y,z"}"#).entity_id
    );
}

#[test]
fn a_record_without_a_key_is_kept_aside_with_its_reason() {
    let m = mapping(&["/id"], &[]);
    for (text, code) in [
        ("{}", "key-missing"),
        (r#"{"id":null}"#, "key-missing"),
        (r#"{"id":{"a":1}}"#, "key-missing"),
        (r#"{"id":""}"#, "key-length"),
        ("7", "key-missing"),
    ] {
        let reject = reject(&m, text);
        assert_eq!((reject.cause.as_str(), reject.record.get()), (code, text));
        assert!(!reject.reason.is_empty());
    }
}

#[test]
fn only_what_is_named_counts_for_the_hash() {
    let all = mapping(&["/id"], &[]);
    let some = mapping(&["/id"], &["/title"]);
    let (a, b) = (r#"{"id":1,"title":"x","seen":1}"#, r#"{"seen":2,"id":1,"title":"x"}"#);
    assert_ne!(item(&all, a).hash, item(&all, b).hash);
    assert_eq!(item(&some, a).hash, item(&some, b).hash);
}

#[test]
fn columns_are_filled_from_places_templates_and_constants() {
    use ColumnType::{Boolean, Float, Integer, Json, Text, Timestamp};
    let pointer = |pointer: &str| From::Pointer(pointer.to_owned());
    let field = |name: &str, kind, from| Field {
        column: Column { name: name.to_owned(), kind },
        from,
        default: None,
    };
    let template = vec![
        Piece::Pointer("/n".to_owned()),
        Piece::Text(" of ".to_owned()),
        Piece::Pointer("/t".to_owned()),
    ];
    let fields = vec![
        field("t", Text, pointer("/t")),
        field("n", Integer, pointer("/n")),
        field("m", Integer, pointer("/m")),
        field("f", Float, pointer("/f")),
        field("b", Boolean, pointer("/b")),
        field("d", Timestamp, pointer("/d")),
        field("j", Json, pointer("/j")),
        field("none", Text, pointer("/none")),
        field("tpl", Text, From::Template(template)),
        field("c", Text, From::Constant("k".into())),
        Field { default: Some("?".into()), ..field("dflt", Text, pointer("/none")) },
    ];
    let m = Mapping::new(vec!["/id".to_owned()], Vec::new(), fields, None);
    let made = item(
        &m,
        r#"{"id":1,"t":"x","n":5,"m":"6","f":1.5,"b":"true","d":"2026-01-02","j":{"a":[1]},"none":null}"#,
    );
    let shown: Vec<String> = made.columns.iter().map(|value| format!("{value:?}")).collect();
    assert_eq!(
        shown,
        [
            r#"Text("x")"#,
            "Integer(5)",
            "Integer(6)",
            "Float(1.5)",
            "Boolean(true)",
            "Timestamp(2026-01-02T00:00:00Z)",
            r#"Json(RawValue({"a":[1]}))"#,
            "Null",
            r#"Text("5 of x")"#,
            r#"Text("k")"#,
            r#"Text("?")"#,
        ]
    );
}

#[test]
fn a_value_of_another_type_is_named_with_its_place() {
    let column = Column { name: "n".to_owned(), kind: ColumnType::Integer };
    let fields = vec![Field { column, from: From::Pointer("/n".to_owned()), default: None }];
    let m = Mapping::new(vec!["/id".to_owned()], Vec::new(), fields, None);
    for text in
        [r#"{"id":1,"n":"five"}"#, r#"{"id":1,"n":1.5}"#, r#"{"id":1,"n":[1]}"#, r#"{"id":1,"n":1e40}"#]
    {
        let reject = reject(&m, text);
        assert_eq!((reject.cause.as_str(), reject.entity_id.as_deref()), ("type", Some("1")));
        assert!(reject.reason.contains("/n") && reject.reason.contains("column n"), "{}", reject.reason);
    }
}

#[test]
fn what_does_not_fit_the_schema_or_any_database_is_kept_aside() {
    let mut m = mapping(&["/id"], &[]);
    assert_eq!(reject(&m, r#"{"id":1,"x":["a\u0000b"]}"#).cause, "nul-character");
    assert_eq!(item(&m, r#"{"id":1,"x":"\\u0000"}"#).entity_id, "1", "a backslash and letters are no NUL");
    m.schema =
        Some(Box::new(|value| value.get("title").map(drop).ok_or_else(|| "title is missing".to_owned())));
    let reject = reject(&m, r#"{"id":1}"#);
    assert_eq!((reject.cause.as_str(), reject.reason.as_str()), ("schema", "title is missing"));
}

#[test]
fn text_that_is_no_json_is_kept_as_text() {
    let m = mapping(&["/id"], &[]);
    let garbled = Garbled { text: "<html>\0".to_owned(), problem: "line 3: expected value".to_owned() };
    let Transformed::Reject(reject) = m.apply(Err(garbled)) else { unreachable!() };
    assert_eq!((reject.cause.as_str(), reject.record.get()), ("garbled", "\"<html>\u{FFFD}\""));
}

#[test]
fn another_mapping_makes_another_hash_so_that_rows_are_written_again() {
    let text = r#"{"id":1,"title":"a"}"#;
    let field = |name: &str| Field {
        column: Column { name: name.to_owned(), kind: ColumnType::Text },
        from: From::Pointer("/title".to_owned()),
        default: None,
    };
    let with = |names: &[&str]| {
        let fields = names.iter().map(|name| field(name)).collect();
        item(&Mapping::new(vec!["/id".to_owned()], Vec::new(), fields, None), text).hash
    };
    assert_eq!(with(&["title"]), with(&["title"]));
    assert_ne!(with(&["title"]), with(&["title", "name"]));
    assert_ne!(with(&[]), with(&["title"]));
}

#[test]
fn numbers_beyond_64_bits_are_no_keys_and_still_tell_changes_apart() {
    let m = mapping(&["/id"], &[]);
    assert_eq!(reject(&m, r#"{"id":123456789012345678901}"#).cause, "key-number");
    let hash = |text: &str| item(&m, text).hash;
    assert_ne!(hash(r#"{"id":1,"n":123456789012345678901}"#), hash(r#"{"id":1,"n":123456789012345678902}"#));
    assert_eq!(hash(r#"{"id":1,"n":12.5}"#), hash(r#"{ "n": 12.5, "id": 1 }"#));
    assert_eq!(item(&m, r#"{"id":18446744073709551615}"#).entity_id, "18446744073709551615");
}

#[test]
fn numbers_that_no_database_keeps_are_kept_aside() {
    let m = mapping(&["/id"], &[]);
    for number in ["1e-20000", "0e17000", &format!("0.{}1", "0".repeat(17_000))] {
        assert_eq!(reject(&m, &format!(r#"{{"id":1,"n":{number}}}"#)).cause, "number", "{number:.20}");
    }
    let long = "9".repeat(17_000);
    let text =
        serde_json::json!({ "id": 1, "n": 1.5e-300, "text": format!("1e-20000 \"{long}") }).to_string();
    assert_eq!(item(&m, &text).entity_id, "1");
}
