//! The API to look through, offline: rendered from the same document that programs read.

use std::collections::BTreeMap;

use askama::Template;
use serde_json::{Map, Value};

use super::frame::{Frame, Shown, Visit, ask};
use super::html::{self, Html};
use super::json;

const VERBS: [&str; 5] = ["get", "post", "put", "patch", "delete"];
/// Schemas name each other; deeper than this is not spelled out.
const DEPTH_MAX: usize = 5;

/// A parameter.
struct Parameter {
    name: String,
    place: String,
    kind: String,
    required: bool,
    text: String,
}

/// An answer.
struct Answer {
    status: String,
    text: String,
    schema: Option<String>,
}

/// A route.
struct Route {
    verb: &'static str,
    path: String,
    summary: String,
    description: String,
    parameters: Vec<Parameter>,
    body: Option<Html>,
    answers: Vec<Answer>,
    curl: String,
}

/// Routes that belong together.
struct Group {
    name: String,
    routes: Vec<Route>,
}

/// A type.
struct Schema {
    name: String,
    text: String,
    fields: Vec<Parameter>,
}

#[derive(Template)]
#[template(path = "api.html")]
struct ApiPage {
    frame: Frame,
    version: String,
    description: String,
    groups: Vec<Group>,
    schemas: Vec<Schema>,
}

/// `GET /api`
pub(crate) async fn show(visit: Visit) -> Shown {
    let document: Value = ask!(visit, visit.api.get("/openapi.json").await);
    let page = ApiPage {
        frame: visit.frame("API", "/api"),
        version: text(&document["info"]["version"]),
        description: text(&document["info"]["description"]),
        groups: groups(&document),
        schemas: schemas(&document),
    };
    visit.show(&page)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn groups(document: &Value) -> Vec<Group> {
    let mut groups: BTreeMap<String, Vec<Route>> = BTreeMap::new();
    let none = Map::new();
    for (path, item) in document["paths"].as_object().unwrap_or(&none) {
        for verb in VERBS {
            let operation = &item[verb];
            if operation.is_null() {
                continue;
            }
            let group = operation["tags"][0].as_str().unwrap_or("other").to_owned();
            groups.entry(group).or_default().push(route(document, verb, path, operation));
        }
    }
    groups.into_iter().map(|(name, routes)| Group { name, routes }).collect()
}

fn route(document: &Value, verb: &'static str, path: &str, operation: &Value) -> Route {
    let server = document["servers"][0]["url"].as_str().unwrap_or_default();
    let parameters = operation["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
    let body = operation["requestBody"]["content"]["application/json"]["schema"].clone();
    let body = (!body.is_null()).then(|| example(document, &body, 0));
    let data = body.as_ref().map_or_else(String::new, |body| {
        format!(" -H 'content-type: application/json' -d '{}'", body.to_string().replace('\'', r"'\''"))
    });
    let method = if verb == "get" { String::new() } else { format!(" -X {}", verb.to_uppercase()) };
    let summary = text(&operation["summary"]);
    let description = text(&operation["description"]);
    Route {
        verb,
        path: path.to_owned(),
        // Without a summary the first line says it.
        summary: if summary.is_empty() {
            description.lines().next().unwrap_or_default().to_owned()
        } else {
            summary
        },
        description,
        parameters: parameters.iter().map(parameter).collect(),
        body: body.map(|body| json::pretty(&body.to_string())),
        answers: answers(operation),
        curl: format!(
            "curl{method} -H \"authorization: Bearer $STARGATE_TOKEN\"{data} \"$STARGATE_URL{server}{path}\""
        ),
    }
}

fn parameter(value: &Value) -> Parameter {
    Parameter {
        name: text(&value["name"]),
        place: text(&value["in"]),
        kind: kind(&value["schema"]),
        required: value["required"].as_bool().unwrap_or(false),
        text: text(&value["description"]),
    }
}

fn answers(operation: &Value) -> Vec<Answer> {
    let none = Map::new();
    let answers = operation["responses"].as_object().unwrap_or(&none);
    let answer = |(status, answer): (&String, &Value)| Answer {
        status: status.clone(),
        text: text(&answer["description"]),
        schema: answer["content"]["application/json"]["schema"]["$ref"].as_str().map(last),
    };
    answers.iter().map(answer).collect()
}

fn last(reference: &str) -> String {
    reference.rsplit('/').next().unwrap_or_default().to_owned()
}

/// A type in a word or two.
fn kind(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        return last(reference);
    }
    for several in ["oneOf", "anyOf", "allOf"] {
        if let Some(options) = schema[several].as_array() {
            return options.iter().map(kind).collect::<Vec<_>>().join(" or ");
        }
    }
    let name = match &schema["type"] {
        Value::String(name) => name.clone(),
        Value::Array(names) => names.iter().map(text).collect::<Vec<_>>().join(" or "),
        _ => "any".to_owned(),
    };
    match name.strip_prefix("array") {
        Some(rest) => format!("list of {}{rest}", kind(&schema["items"])),
        None => name,
    }
}

/// A value that has the shape of a type.
fn example(document: &Value, schema: &Value, depth: usize) -> Value {
    if depth > DEPTH_MAX {
        return Value::Null;
    }
    if let Some(reference) = schema["$ref"].as_str() {
        return example(document, &document["components"]["schemas"][last(reference).as_str()], depth + 1);
    }
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    for several in ["oneOf", "anyOf", "allOf"] {
        if let Some(options) = schema[several].as_array() {
            let some = options.iter().find(|option| option["type"] != "null");
            return some.map_or(Value::Null, |some| example(document, some, depth + 1));
        }
    }
    let name = match &schema["type"] {
        Value::Array(names) => names.iter().find_map(|name| name.as_str().filter(|name| *name != "null")),
        name => name.as_str(),
    };
    match name {
        Some("object") => {
            let none = Map::new();
            let fields = schema["properties"].as_object().unwrap_or(&none).iter();
            fields
                .map(|(name, field)| (name.clone(), example(document, field, depth + 1)))
                .collect::<Map<_, _>>()
                .into()
        }
        Some("array") => Value::Array(vec![example(document, &schema["items"], depth + 1)]),
        Some("integer" | "number") => schema["minimum"].as_i64().unwrap_or(0).into(),
        Some("boolean") => false.into(),
        Some("string") => "".into(),
        _ => Value::Object(Map::new()),
    }
}

fn schemas(document: &Value) -> Vec<Schema> {
    let none = Map::new();
    let all = document["components"]["schemas"].as_object().unwrap_or(&none);
    let schema = |(name, schema): (&String, &Value)| {
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let fields = schema["properties"].as_object().into_iter().flatten().map(|(field, value)| Parameter {
            name: field.clone(),
            place: String::new(),
            kind: kind(value),
            required: required.contains(&field.as_str()),
            text: text(&value["description"]),
        });
        Schema { name: name.clone(), text: text(&schema["description"]), fields: fields.collect() }
    };
    all.iter().map(schema).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_body_is_spelled_out_and_a_type_that_holds_itself_ends() {
        let document = json!({"components": {"schemas": {
            "A": {"type": "object", "properties": {"n": {"type": ["integer", "null"]}, "more": {"$ref": "#/components/schemas/A"}}}
        }}});
        let spelled = example(&document, &json!({"$ref": "#/components/schemas/A"}), 0);
        assert_eq!(spelled["n"], 0);
        assert!(spelled["more"]["n"].is_number());
    }

    #[test]
    fn types_are_told_in_a_word_or_two() {
        assert_eq!(kind(&json!({"type": "array", "items": {"$ref": "#/x/Job"}})), "list of Job");
        assert_eq!(kind(&json!({"oneOf": [{"type": "null"}, {"$ref": "#/x/Job"}]})), "null or Job");
        assert_eq!(kind(&json!({})), "any");
    }
}
