//! Tokens: who gets in, who does not, and what they are told.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request};
use stargate_access::{Authority, Grant, NewToken, Policy, Tokens};
use stargate_base::{Secret, Tasks};
use stargate_store::sqlite::{Options, Sqlite};
use stargate_web::{App, Scope};

use crate::fixture::{Answer, Fixture, send};

pub(crate) struct Guarded {
    pub(crate) fixture: Fixture,
    tokens: Arc<dyn Tokens>,
    pub(crate) router: Router,
}

impl Guarded {
    pub(crate) async fn new(policy: Policy) -> Self {
        Self::with(policy, |_| {}).await
    }

    pub(crate) async fn with(policy: Policy, change: impl FnOnce(&mut App)) -> Self {
        let fixture = Fixture::with(change).await;
        let path = fixture.dir.path().join("stargate.db");
        let tokens: Arc<dyn Tokens> = Arc::new(Sqlite::open(&path, Options::default()).await.unwrap());
        // Nothing is remembered, so that a change is felt by the next request.
        let authority = Authority::remembering(Duration::ZERO, Arc::clone(&tokens), policy, Tasks::new());
        let app = App { authority: Some(Arc::new(authority)), ..fixture.app.clone() };
        Self { router: stargate_web::router(app, Scope::Full), fixture, tokens }
    }

    pub(crate) async fn token(&self, grant: &str) -> Secret {
        let grant: Grant = grant.parse().unwrap();
        let (token, text) = NewToken::issue("a test", vec![grant], None).unwrap();
        self.tokens.add(token).await.unwrap();
        text
    }

    pub(crate) async fn ask(&self, method: Method, path: &str, authorization: Option<&str>) -> Answer {
        let mut request =
            Request::builder().method(method).uri(path).header("content-type", "application/json");
        if let Some(value) = authorization {
            request = request.header("authorization", value);
        }
        send(&self.router, request.body(Body::from(r#"{"kind":"greet","payload":{}}"#)).unwrap()).await
    }

    /// Any method with a JSON body and some headers.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut request =
            Request::builder().method(method).uri(path).header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        send(&self.router, request.body(Body::from(body.to_owned())).unwrap()).await
    }

    pub(crate) async fn as_bearer(&self, method: Method, path: &str, token: &Secret) -> Answer {
        self.ask(method, path, Some(&format!("Bearer {}", token.reveal()))).await
    }
}

#[tokio::test]
async fn without_a_token_nothing_of_the_api_answers_and_the_rest_does() {
    let guarded = Guarded::new(Policy::Tokens).await;
    for (method, path) in [
        (Method::GET, "/api/v1/jobs"),
        (Method::GET, "/api/v1/leader"),
        (Method::POST, "/api/v1/jobs"),
        (Method::POST, "/api/v1/queues/default/pause"),
        (Method::POST, "/api/v1/leader/step-down"),
    ] {
        for wrong in [None, Some("Bearer nonsense"), Some("Basic !!!"), Some("Digest a")] {
            let refused = guarded.ask(method.clone(), path, wrong).await.expect(401);
            assert_eq!(refused.code(), "UNAUTHENTICATED", "{path} with {wrong:?}");
            let challenges = refused.headers.get_all("www-authenticate").iter().count();
            assert_eq!(challenges, 2, "{path}");
        }
    }
    for open in ["/healthz", "/readyz", "/metrics"] {
        guarded.ask(Method::GET, open, None).await.expect(200);
    }
    assert_eq!(guarded.fixture.get("/api/v1/jobs").await.json()["jobs"].as_array().unwrap().len(), 0);
}

#[tokio::test]
async fn a_role_opens_what_it_is_for_and_no_more() {
    let guarded = Guarded::new(Policy::Tokens).await;
    let [read, write, operate] =
        [guarded.token("read:*").await, guarded.token("write:*").await, guarded.token("operate:*").await];
    let admin = guarded.token("admin:*").await;
    let elsewhere = guarded.token("admin:team/*").await;
    let pause = "/api/v1/queues/default/pause";
    for (token, statuses) in [
        (&read, [200, 403, 403]),
        (&write, [200, 201, 403]),
        (&operate, [200, 201, 200]),
        (&admin, [200, 201, 200]),
        (&elsewhere, [403, 403, 403]),
    ] {
        let asked = [(Method::GET, "/api/v1/jobs"), (Method::POST, "/api/v1/jobs"), (Method::POST, pause)];
        for ((method, path), status) in asked.into_iter().zip(statuses) {
            let answer = guarded.as_bearer(method, path, token).await.expect(status);
            if status == 403 {
                assert_eq!(answer.code(), "FORBIDDEN");
            }
            assert!(!answer.text.contains(token.reveal()), "the answer holds the token");
        }
    }
}

#[tokio::test]
async fn a_revoked_token_is_told_so_and_lets_nobody_in() {
    let guarded = Guarded::new(Policy::Tokens).await;
    let token = guarded.token("read:*").await;
    guarded.as_bearer(Method::GET, "/api/v1/jobs", &token).await.expect(200);
    let id = guarded.tokens.list(None, 10).await.unwrap()[0].id.clone();
    guarded.tokens.revoke(&id).await.unwrap();
    let refused = guarded.as_bearer(Method::GET, "/api/v1/jobs", &token).await.expect(401);
    assert_eq!(refused.code(), "TOKEN_REVOKED");
}

#[tokio::test]
async fn an_open_door_closes_with_the_first_token() {
    let guarded = Guarded::new(Policy::Open).await;
    guarded.ask(Method::POST, "/api/v1/jobs", None).await.expect(201);
    let token = guarded.token("write:*").await;
    guarded.ask(Method::POST, "/api/v1/jobs", None).await.expect(401);
    guarded.as_bearer(Method::POST, "/api/v1/jobs", &token).await.expect(201);
}
