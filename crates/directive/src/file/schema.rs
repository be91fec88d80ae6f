//! What a record must look like: a JSON Schema beside the directive, read and compiled.

use std::path::Path;

use serde_json::Value as Json;

use super::read::text_of;
use crate::transform::Schema;

/// How much of a problem a reason shows: it may repeat a value of any length.
const PROBLEM_MAX: usize = 300;

/// Reads the schema; whether it is one shows when it is compiled.
pub(super) fn read(path: &Path) -> Result<Json, String> {
    let failed = |problem: String| format!("cannot read the schema {}: {problem}", path.display());
    let text = text_of(path).map_err(|problem| failed(problem.text))?;
    serde_json::from_str(&text).map_err(|error| failed(error.to_string()))
}

/// Makes a check of a schema. Other documents are neither fetched nor read, whatever `$ref` says.
pub(super) fn compile(schema: &Json) -> Result<Box<Schema>, String> {
    let validator = jsonschema::options().offline().build(schema).map_err(|error| {
        let place = error.instance_path().as_str().to_owned();
        let place = if place.is_empty() { String::new() } else { format!(" at {place:?}") };
        let remedy = match error.kind() {
            jsonschema::error::ValidationErrorKind::Referencing(_) => {
                "; other documents are not read: put what is referred to under \"$defs\""
            }
            _ => "",
        };
        cut(format!("is no usable JSON Schema{place}: {error}{remedy}"))
    })?;
    Ok(Box::new(move |record| {
        validator.validate(record).map_err(|error| {
            let place = error.instance_path().as_str();
            let place = if place.is_empty() { "the record".to_owned() } else { format!("{place:?}") };
            cut(format!("{place}: {error}"))
        })
    }))
}

fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(PROBLEM_MAX) {
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_record_that_does_not_fit_is_told_with_its_place() {
        let schema = json!({
            "type": "object",
            "required": ["id"],
            "properties": { "labels": { "items": { "$ref": "#/$defs/label" } } },
            "$defs": { "label": { "type": "string" } },
        });
        let check = compile(&schema).unwrap();
        check(&json!({ "id": 1, "labels": ["a"] })).unwrap();
        let problem = check(&json!({ "id": 1, "labels": ["a", 7] })).unwrap_err();
        assert!(problem.starts_with("\"/labels/1\": 7 is not of type"), "{problem}");
        let problem = check(&json!({})).unwrap_err();
        assert!(problem.starts_with("the record: \"id\" is a required property"), "{problem}");
        let problem = check(&json!("x".repeat(10_000))).unwrap_err();
        assert!(problem.chars().count() <= PROBLEM_MAX + 1, "{}", problem.len());
    }

    #[test]
    fn what_is_no_schema_is_refused_with_its_place() {
        let refused = |schema| compile(&schema).map(drop).unwrap_err();
        let told = refused(json!({ "properties": { "id": { "type": "strin" } } }));
        assert!(told.contains("\"/properties/id/type\""), "{told}");
        assert!(refused(json!(7)).contains("is no usable JSON Schema"));
        assert!(refused(json!({ "pattern": "(" })).contains("is no usable JSON Schema"));
    }

    #[test]
    fn other_documents_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let other = dir.path().join("other.json");
        std::fs::write(&other, "{}").unwrap();
        for reference in [format!("file://{}", other.display()), "http://127.0.0.1:1/x.json".to_owned()] {
            let told = compile(&json!({ "$ref": reference })).map(drop).unwrap_err();
            assert!(told.contains("other documents are not read"), "{told}");
        }
    }
}
