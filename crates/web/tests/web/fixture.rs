//! A router over a fresh SQLite store, and a client that calls it without a socket.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use serde_json::Value;
use stargate_base::ErrorClass;
use stargate_queue::job::JobError;
use stargate_queue::store::{
    ClaimRequest, ClaimedJob, KindSlots, Outcome, Settlement, SharedStore, Store as _, Verdict, WorkerSpec,
};
use stargate_queue::{KindSpec, Profile, WorkerId};
use stargate_store::sqlite::{Options, Sqlite};
use stargate_web::{App, Check, Health, Scope};
use tower::ServiceExt as _;

/// How long anything may take before a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Fixture {
    pub(crate) store: SharedStore,
    pub(crate) app: App,
    pub(crate) router: Router,
    pub(crate) dir: tempfile::TempDir,
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error} in {:?}", self.text))
    }

    /// The error's code, after checking that the envelope is whole.
    pub(crate) fn code(&self) -> String {
        let json = self.json();
        let error = &json["error"];
        assert!(!error["message"].as_str().unwrap().is_empty(), "{}", self.text);
        assert_eq!(error["request_id"].as_str().unwrap(), self.header("x-request-id"), "{}", self.text);
        assert_eq!(self.header("content-type"), "application/json");
        error["code"].as_str().unwrap().to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name}")).to_str().unwrap()
    }

    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        self
    }
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut App)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Sqlite::open(&dir.path().join("stargate.db"), Options::default()).await.unwrap();
        let kinds = ["greet", "other/kind"].map(|kind| KindSpec::new(kind, &Profile::default()).unwrap());
        store.kinds_register(kinds.to_vec()).await.unwrap();
        let sqlite = Arc::new(store);
        let store: SharedStore = sqlite.clone();
        let (_, metrics) = stargate_web::metrics::build(None, &[]).unwrap();
        let health: Arc<dyn Health> = Arc::new(|| vec![Check::passed("disk")]);
        let (instance, version) = ("node-1".to_owned(), "1.2.3".to_owned());
        let mut app = App {
            store: store.clone(),
            health,
            metrics,
            max_depth: None,
            instance,
            version,
            leadership: None,
            lock: "file",
            forward: None,
            authority: None,
            mirrors: None,
            audit: Some(sqlite),
            directing: None,
            pressure: None,
            options: stargate_web::Options::default(),
        };
        change(&mut app);
        Self { store, router: stargate_web::router(app.clone(), Scope::Full), app, dir }
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        send(&self.router, request).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path).body(Body::empty()).unwrap()).await
    }

    /// Any method with a JSON body.
    pub(crate) async fn call(&self, method: Method, path: &str, body: Value) -> Answer {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        self.send(request.body(Body::from(body.to_string())).unwrap()).await
    }

    pub(crate) async fn post(&self, path: &str, body: impl Into<Body>) -> Answer {
        self.post_with(path, &[], body).await
    }

    pub(crate) async fn post_with(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Answer {
        send(&self.router, post(path, headers, body)).await
    }

    /// Enqueues a job and answers its id.
    pub(crate) async fn job(&self, body: &str) -> i64 {
        self.post("/api/v1/jobs", body.to_owned()).await.expect(201).json()["id"].as_i64().unwrap()
    }

    pub(crate) async fn worker(&self) -> WorkerId {
        let lease = Duration::from_secs(30);
        let spec = WorkerSpec {
            name: "host-1-abc".into(),
            kinds: vec!["greet".into()],
            queues: Vec::new(),
            concurrency: 4,
            lease_min: lease,
            lease_max: lease,
        };
        self.store.worker_register(spec).await.unwrap()
    }

    pub(crate) async fn claim(&self, worker: WorkerId) -> Vec<ClaimedJob> {
        let kinds = vec![KindSlots { kind: "greet".into(), slots: 100, lease: Duration::from_secs(30) }];
        self.store.claim(ClaimRequest { worker, limit: 100, queues: Vec::new(), kinds }).await.unwrap().jobs
    }

    /// A job that has failed, and its id.
    pub(crate) async fn failed(&self, body: &str, code: &str) -> i64 {
        let id = self.job(body).await;
        let worker = self.worker().await;
        for claimed in self.claim(worker).await {
            let error = JobError::new(code, ErrorClass::Fatal, format!("{code} happened"));
            self.settle(&claimed, Outcome::Failed { error }).await;
        }
        id
    }

    pub(crate) async fn settle(&self, job: &ClaimedJob, outcome: Outcome) {
        let settled = self.store.settle(vec![Settlement { fence: job.fence, outcome }]).await.unwrap();
        assert_eq!(settled, [Verdict::Accepted]);
    }
}

/// A request that sends JSON.
pub(crate) fn post(path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Request<Body> {
    let mut request =
        Request::builder().method(Method::POST).uri(path).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(body.into()).unwrap()
}

/// Calls a router and reads the answer whole.
pub(crate) async fn send(router: &Router, request: Request<Body>) -> Answer {
    let answer = tokio::time::timeout(PATIENCE * 2, router.clone().oneshot(request)).await;
    let response = answer.expect("no answer").unwrap();
    let (parts, body) = response.into_parts();
    let read = axum::body::to_bytes(body, usize::MAX);
    let bytes = tokio::time::timeout(PATIENCE, read).await.expect("the body does not end").unwrap();
    Answer { status: parts.status, headers: parts.headers, text: String::from_utf8(bytes.to_vec()).unwrap() }
}
