//! The description of the API, made from the code of its routes.
//!
//! What every route can answer beside what it is for (no token, a wrong value, a leader that is away) is added here once.

use axum::extract::State;
use axum::http::{HeaderName, Method, header};
use axum::response::IntoResponse;
use serde_json::json;
use utoipa::openapi::extensions::ExtensionsBuilder;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{
    Components, ContentBuilder, Info, License, OpenApi, OpenApiBuilder, Ref, RefOr, Response,
    ResponseBuilder, SecurityRequirement, Server, Tag,
};
use utoipa::{PartialSchema as _, ToSchema as _};

use crate::access;
use crate::api::types::access::{ErrorBody, ErrorEnvelope};
use crate::api::types::live;
use crate::app::Shared;

/// The answer that every error has.
const ERROR: &str = "Error";
/// Where the API is.
pub(crate) const PREFIX: &str = "/api/v1";

const TAGS: [(&str, &str); 11] = [
    ("jobs", "Enqueue jobs, look at them, decide about them"),
    ("failures", "Failed jobs by their cause"),
    ("queues", "Queues and kinds"),
    ("schedules", "Jobs at set times"),
    ("limits", "Limits per key"),
    ("workers", "Who works, and how it goes"),
    ("mirror", "Repositories and their mirrors"),
    ("directives", "Directives, their runs and what they kept aside"),
    ("leader", "Leadership"),
    ("access", "Who asks, and who did what"),
    ("live", "What happens, live"),
];

#[utoipa::path(get, path = "/openapi.json", tag = "access", summary = "This document",
    responses((status = 200, content_type = "application/json", body = serde_json::Value)))]
pub(crate) async fn show(State(shared): State<Shared>) -> impl IntoResponse {
    const JSON: [(HeaderName, &str); 1] = [(header::CONTENT_TYPE, "application/json")];
    (JSON, document(&shared.options.base_path))
}

/// The document as text, for an API below this path.
pub(crate) fn document(base_path: &str) -> String {
    let mut api = complete(super::described());
    api.servers = Some(vec![Server::new(format!("{base_path}{PREFIX}"))]);
    let mut text = api.to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

/// Adds what the routes have in common.
fn complete(mut api: OpenApi) -> OpenApi {
    let about = Info::builder()
        .title("Stargate")
        .version("1")
        .description(Some(
            "Every answer carries x-request-id. Every error is {\"error\": {\"code\", \"message\", \"request_id\"}}; \
             docs/errors has a page for each code. What changes something is done by the leader; another node passes \
             it on, or refuses it with NOT_LEADER and the leader's address in x-stargate-leader.",
        ))
        .license(Some(License::new("MIT OR Apache-2.0")))
        .build();
    let mut whole = OpenApiBuilder::new().info(about).build();
    whole.tags = Some(TAGS.iter().map(|(name, about)| tag(name, about)).collect());
    whole.paths = std::mem::take(&mut api.paths);
    whole.components = Some(components(api.components.take().unwrap_or_default()));
    // Nobody needs a token where there never was one, so none is an alternative.
    whole.security = Some(vec![
        SecurityRequirement::new("token", [] as [&str; 0]),
        SecurityRequirement::new("session", [] as [&str; 0]),
        SecurityRequirement::default(),
    ]);
    for (path, item) in &mut whole.paths.paths {
        for (method, operation) in operations(item) {
            finish(operation, &method, path);
        }
    }
    whole
}

fn tag(name: &str, about: &str) -> Tag {
    let mut tag = Tag::new(name);
    tag.description = Some(about.to_owned());
    tag
}

fn components(mut components: Components) -> Components {
    let schemas = [
        (ErrorEnvelope::name(), ErrorEnvelope::schema()),
        (ErrorBody::name(), ErrorBody::schema()),
        (live::JobsChanged::name(), live::JobsChanged::schema()),
        (live::MirrorsNow::name(), live::MirrorsNow::schema()),
        (live::MirrorNow::name(), live::MirrorNow::schema()),
        (live::LeaderNow::name(), live::LeaderNow::schema()),
        (live::Reset::name(), live::Reset::schema()),
    ];
    components.responses.insert(ERROR.to_owned(), RefOr::T(error()));
    components.schemas.extend(schemas.map(|(name, schema)| (name.into_owned(), schema)));
    let token = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    let session = SecurityScheme::ApiKey(ApiKey::Cookie(ApiKeyValue::new(access::SESSION)));
    components.add_security_scheme("token", token);
    components.add_security_scheme("session", session);
    components
}

/// The operations of a path, each with its method.
pub(crate) fn operations(item: &mut PathItem) -> Vec<(Method, &mut Operation)> {
    let all = [
        (Method::GET, &mut item.get),
        (Method::PUT, &mut item.put),
        (Method::POST, &mut item.post),
        (Method::DELETE, &mut item.delete),
        (Method::PATCH, &mut item.patch),
    ];
    all.into_iter().filter_map(|(method, operation)| Some((method, operation.as_mut()?))).collect()
}

/// Adds the role and what may go wrong.
fn finish(operation: &mut Operation, method: &Method, path: &str) {
    let role = access::need(method, path);
    operation.extensions = Some(ExtensionsBuilder::new().add("x-role", json!(role.as_str())).build());
    let about = operation.description.take().map(|text| format!("{text}\n\n")).unwrap_or_default();
    operation.description = Some(format!("{about}Needs the role {role}."));
    let changes = !method.is_safe();
    let has_body = operation.request_body.is_some();
    operation.operation_id = Some(name(method, path));
    let mut add = |status: u16, about: &str| {
        let described = operation.responses.responses.entry(status.to_string());
        described.or_insert_with(|| {
            let mut error = Ref::from_response_name(ERROR);
            error.description = about.to_owned();
            RefOr::Ref(error)
        });
    };
    add(400, "The request cannot be read");
    add(401, "No token, or one that is not known, has expired or was revoked");
    add(403, "The role is not high enough, the node is read-only, or a page of another site asks");
    add(422, "A value is wrong; the message names it");
    add(429, "Too much waits, or too many changes or attempts came in a short time");
    add(500, "The server failed; its log has the request id");
    add(503, "The store, the leader or another server does not answer");
    add(504, "It took too long");
    // Both also for what is no operation of this path: a name that is left out, another method.
    add(404, "There is no such thing");
    add(405, "This route has no such method");
    if changes {
        add(409, "Not possible in the present state, or somebody was faster");
        add(502, "The leader did not answer: whether it was done is not known");
    }
    if has_body {
        add(408, "The body did not arrive in time");
        add(413, "The body or a value in it is too large");
        add(415, "The body is not sent as JSON");
    }
}

/// The name of an operation: of functions there are several with one name.
fn name(method: &Method, path: &str) -> String {
    let parts = path.split('/').map(|part| part.trim_matches(['{', '}']).replace(['-', '.'], "_"));
    let parts: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
    format!("{}_{}", method.as_str().to_lowercase(), parts.join("_"))
}

/// What every error looks like.
fn error() -> Response {
    let envelope = Ref::from_schema_name(ErrorEnvelope::name());
    let content = ContentBuilder::new().schema(Some(envelope)).build();
    let about = "What went wrong, with a stable code";
    ResponseBuilder::new().description(about).content("application/json", content).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_a_role_a_tag_and_a_summary() {
        let mut api = complete(super::super::described());
        let (mut count, mut names) = (0, std::collections::BTreeSet::new());
        for (path, item) in &mut api.paths.paths {
            for (method, operation) in operations(item) {
                count += 1;
                let what = format!("{method} {path}");
                assert!(operation.summary.as_ref().is_some_and(|text| !text.is_empty()), "{what}");
                assert!(names.insert(operation.operation_id.clone()), "{what}: its name is taken");
                let tag = operation.tags.as_ref().and_then(|tags| tags.first()).expect(&what);
                assert!(TAGS.iter().any(|(name, _)| name == tag), "{what}: {tag}");
            }
        }
        assert!(count >= 50, "{count}");
    }
}
