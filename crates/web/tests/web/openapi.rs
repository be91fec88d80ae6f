//! The description of the API: up to date, whole, and what it says about roles is so.

use axum::http::Method;
use serde_json::Value;
use stargate_access::{Policy, Role};
use stargate_web::{Options, RateLimit};

use crate::access::Guarded;
use crate::fixture::Fixture;

/// An operation of the document.
pub(crate) struct Operation {
    pub(crate) method: Method,
    /// As it is described, without the prefix.
    pub(crate) template: String,
    /// To be called.
    pub(crate) path: String,
    described: Value,
}

/// All of them.
pub(crate) fn operations() -> Vec<Operation> {
    let document: Value = serde_json::from_str(&stargate_web::openapi()).unwrap();
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, described) in item.as_object().unwrap() {
            let method = method.to_uppercase().parse().unwrap();
            // Names that fit everywhere: a number is a job's id, a queue's name and a run's name.
            let template = path.clone();
            let path = path.split('/').map(|part| if part.starts_with('{') { "7" } else { part });
            let path = format!("/api/v1{}", path.collect::<Vec<_>>().join("/"));
            found.push(Operation { method, template, path, described: described.clone() });
        }
    }
    found
}

#[test]
fn the_document_in_the_docs_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    let generated = stargate_web::openapi();
    let written = std::fs::read_to_string(path).unwrap_or_default();
    if generated != written {
        let made = concat!(env!("CARGO_TARGET_TMPDIR"), "/openapi.json");
        std::fs::write(made, generated).unwrap();
        panic!(
            "docs/openapi.json is out of date; take {made}, or: cargo run -- docs openapi > docs/openapi.json"
        );
    }
}

#[test]
fn every_reference_in_the_document_leads_somewhere() {
    let text = stargate_web::openapi();
    let document: Value = serde_json::from_str(&text).unwrap();
    let mut references = 0;
    for part in text.split("\"$ref\": \"#").skip(1) {
        let pointer = part.split('"').next().unwrap();
        assert!(document.pointer(pointer).is_some(), "{pointer} leads nowhere");
        references += 1;
    }
    assert!(references > 100, "{references}");
}

#[tokio::test]
async fn every_route_of_the_document_is_there() {
    let f = Fixture::new().await;
    let operations = operations();
    assert!(operations.len() >= 55, "{}", operations.len());
    for Operation { method, path, described, .. } in operations {
        if path == "/api/v1/events" {
            continue;
        }
        let answer = f.call(method.clone(), &path, Value::Null).await;
        let status = answer.status.as_u16().to_string();
        assert!(!described["responses"][&status].is_null(), "{method} {path}: {status} {}", answer.text);
        assert_ne!(status, "405", "{method} {path}");
        assert!(!answer.text.contains("no such route"), "{method} {path}");
    }
}

#[tokio::test]
async fn each_route_lets_in_the_role_it_names_and_those_above_it_and_nobody_else() {
    let guarded = Guarded::new(Policy::Tokens).await;
    let mut tokens = Vec::new();
    for role in Role::ALL {
        tokens.push((role, guarded.token(&format!("{role}:*")).await));
    }
    for Operation { method, path, described, .. } in operations() {
        let need: Role = described["x-role"].as_str().unwrap().parse().unwrap();
        let what = format!("{method} {path}");
        let nobody = guarded.call(method.clone(), &path, &[], "null").await.expect(401);
        assert_eq!(nobody.code(), "UNAUTHENTICATED", "{what}");
        for (role, token) in &tokens {
            if path == "/api/v1/events" {
                // It has no end; that it begins is tested elsewhere.
                continue;
            }
            let bearer = format!("Bearer {}", token.reveal());
            let headers = [("authorization", bearer.as_str())];
            let answer = guarded.call(method.clone(), &path, &headers, "null").await;
            let status = answer.status.as_u16();
            match *role >= need {
                true => assert!(![401, 403].contains(&status), "{what} as {role}: {}", answer.text),
                false => assert_eq!((status, answer.code().as_str()), (403, "FORBIDDEN"), "{what} as {role}"),
            }
            assert!(!answer.text.contains(token.reveal()), "{what}: the answer holds the token");
            assert!(answer.headers.values().all(|value| value != bearer.as_str()), "{what}");
        }
    }
}

#[tokio::test]
async fn a_read_only_node_refuses_every_change_whoever_asks() {
    let read_only = Options { read_only: true, ..Options::default() };
    let guarded = Guarded::with(Policy::Tokens, |app| app.options = read_only).await;
    let admin = format!("Bearer {}", guarded.token("admin:*").await.reveal());
    let headers = [("authorization", admin.as_str())];
    for Operation { method, path, .. } in operations() {
        if method.is_safe() {
            continue;
        }
        let answer = guarded.call(method.clone(), &path, &headers, "{}").await.expect(403);
        assert_eq!(answer.code(), "READ_ONLY", "{method} {path}");
    }
    let who = guarded.call(Method::GET, "/api/v1/whoami", &headers, "").await.expect(200).json();
    assert_eq!(who, serde_json::json!({ "name": "a test", "role": "admin", "read_only": true }));
}

#[tokio::test]
async fn who_changes_too_much_is_told_when_to_come_back_and_may_still_look() {
    let (count, burst) = (1.try_into().unwrap(), 2.try_into().unwrap());
    let limit = RateLimit { count, per: std::time::Duration::from_secs(3600), burst };
    let options = Options { rate_limit: Some(limit), ..Options::default() };
    let guarded = Guarded::with(Policy::Tokens, |app| app.options = options).await;
    let (one, other) = (guarded.token("write:*").await, guarded.token("write:*").await);
    for _ in 0..2 {
        guarded.as_bearer(Method::POST, "/api/v1/jobs", &one).await.expect(201);
    }
    let refused = guarded.as_bearer(Method::POST, "/api/v1/jobs", &one).await.expect(429);
    assert_eq!(refused.code(), "RATE_LIMITED");
    assert!(refused.header("retry-after").parse::<u16>().unwrap() > 1000);
    guarded.as_bearer(Method::GET, "/api/v1/jobs", &one).await.expect(200);
    guarded.as_bearer(Method::POST, "/api/v1/jobs", &other).await.expect(201);
    for _ in 0..2 {
        guarded.ask(Method::GET, "/api/v1/jobs", Some("Bearer nonsense")).await.expect(401);
    }
    guarded.ask(Method::GET, "/api/v1/jobs", Some("Bearer nonsense")).await.expect(429);
}
