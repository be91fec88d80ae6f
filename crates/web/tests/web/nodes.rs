//! Nodes that compete for a real lock over one real store, for the tests of leadership.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use serde_json::Value;
use stargate_base::Tasks;
use stargate_leader::boot::{Clock, SystemClock};
use stargate_leader::{Config, FileLease, Holder, Leadership, Lease, Service, Settings, Unlocked};
use stargate_queue::NewJob;
use stargate_queue::store::{Outcome, PauseTarget};
use stargate_store::terms::Terms;
use stargate_web::{App, Forward, Scope};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::fixture::{Answer, Fixture, PATIENCE, post, send};

/// Every route that changes something, for a job, a queue and a kind that [`prepare`] has made, with the status on the
/// leader. Compared with the list of routes by a test.
pub(crate) const WRITES: [(&str, &str, u16); 8] = [
    ("/api/v1/jobs", r#"{"kind":"greet"}"#, 201),
    ("/api/v1/jobs/batch", r#"{"jobs":[{"kind":"greet"},{"kind":"greet"}]}"#, 201),
    ("/api/v1/jobs/1/retry", "", 200),
    ("/api/v1/jobs/2/cancel", "", 200),
    ("/api/v1/queues/default/pause", "", 200),
    ("/api/v1/queues/other/resume", "", 200),
    ("/api/v1/kinds/greet/pause", "", 200),
    ("/api/v1/kinds/other%2Fkind/resume", "", 200),
];

/// A store in which every write of [`WRITES`] changes something.
pub(crate) async fn prepare() -> Fixture {
    let f = Fixture::new().await;
    let job = || NewJob::new("greet", serde_json::value::RawValue::NULL.to_owned());
    f.store.enqueue(vec![job()]).await.unwrap();
    let claimed = f.claim(f.worker().await).await;
    let error = stargate_queue::job::JobError::new("X", stargate_base::ErrorClass::Fatal, "broken");
    f.settle(&claimed[0], Outcome::Failed { error }).await;
    f.store.enqueue(vec![job()]).await.unwrap();
    f.store.pause(PauseTarget::Queue("other".to_owned())).await.unwrap();
    f.store.pause(PauseTarget::Kind("other/kind".to_owned())).await.unwrap();
    f
}

/// Everything that a write could have changed.
pub(crate) async fn contents(f: &Fixture) -> String {
    let jobs = f.store.jobs(stargate_queue::store::JobFilter::default()).await.unwrap();
    let states: Vec<_> = jobs.iter().map(|job| (job.id, job.state)).collect();
    format!("{states:?} {:?}", f.store.pauses().await.unwrap())
}

/// What a node is made of.
pub(crate) struct Plan {
    pub(crate) instance: &'static str,
    pub(crate) address: Option<String>,
    pub(crate) lease: Arc<dyn Lease>,
    pub(crate) clock: Arc<dyn Clock>,
    /// How often a standby tries; a node that was asked to step down waits for twice that.
    pub(crate) retry_every: Duration,
    pub(crate) forward: bool,
}

impl Plan {
    /// A node that needs no lock.
    pub(crate) fn alone(instance: &'static str) -> Self {
        Self {
            instance,
            address: None,
            lease: Arc::new(Unlocked),
            clock: Arc::new(SystemClock),
            retry_every: Duration::from_millis(100),
            forward: false,
        }
    }

    /// A node that competes for the lock in a folder.
    pub(crate) fn sharing(instance: &'static str, folder: &Path) -> Self {
        Self { lease: Arc::new(FileLease::new(folder.join("leader.lock"))), ..Self::alone(instance) }
    }

    pub(crate) fn at(self, address: impl Into<String>) -> Self {
        Self { address: Some(address.into()), ..self }
    }

    pub(crate) fn forwarding(self) -> Self {
        Self { forward: true, ..self }
    }
}

/// A node that runs.
pub(crate) struct Node {
    pub(crate) leadership: Leadership,
    pub(crate) app: App,
    pub(crate) router: Router,
    tasks: Tasks,
}

impl Node {
    pub(crate) fn start(f: &Fixture, plan: Plan) -> Self {
        let (node, service) = Self::idle(f, plan);
        node.tasks.spawn(service.run(node.tasks.stopping()));
        node
    }

    /// A node whose service does not run yet.
    pub(crate) fn idle(f: &Fixture, plan: Plan) -> (Self, Service) {
        let holder = Holder { instance: plan.instance.to_owned(), address: plan.address };
        let settings = Settings {
            // Long: a busy machine must not cost a node its term.
            ttl: Duration::from_secs(30),
            retry_every: plan.retry_every,
            ..Settings::of(holder)
        };
        let epochs = Arc::new(Terms(f.store.clone()));
        let (service, leadership) =
            Service::with_clock(Config::new(settings).unwrap(), plan.lease, epochs, plan.clock);
        let mut app = f.app.clone();
        app.instance = plan.instance.to_owned();
        app.leadership = Some(leadership.clone());
        app.forward = plan.forward.then(|| Forward::new().unwrap());
        let router = stargate_web::router(app.clone(), Scope::Full);
        (Self { leadership, app, router, tasks: Tasks::new() }, service)
    }

    /// Waits until it leads.
    pub(crate) async fn leads(self) -> Self {
        let guard = tokio::time::timeout(PATIENCE, self.leadership.acquired()).await;
        guard.unwrap_or_else(|_| panic!("waited in vain to lead: {:?}", self.leadership));
        self
    }

    /// Waits until it knows that another node leads.
    pub(crate) async fn follows(self, leader: &str) -> Self {
        self.until(|node| node.known_leader().is_some_and(|known| known.instance == leader)).await;
        assert!(!self.leadership.is_leader());
        self
    }

    /// Waits for a change of leadership.
    pub(crate) async fn until(&self, holds: impl Fn(&Leadership) -> bool) {
        let mut changes = self.leadership.watch();
        let wait = async {
            while !holds(&self.leadership) {
                // Time alone changes something, too.
                let _ = tokio::time::timeout(Duration::from_millis(100), changes.changed()).await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, wait).await;
        waited.unwrap_or_else(|_| panic!("waited in vain: {:?}", self.leadership));
    }

    /// Serves on a socket until the node is dropped.
    pub(crate) fn listen(&self, listener: TcpListener) -> Listening {
        let stop = CancellationToken::new();
        self.tasks.spawn(stargate_web::serve(listener, self.app.clone(), Scope::Full, None, stop.clone()));
        Listening(stop.drop_guard())
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        send(&self.router, Request::get(path).body(Body::empty()).unwrap()).await
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

    pub(crate) async fn view(&self) -> Value {
        self.get("/api/v1/leader").await.expect(200).json()
    }
}

/// Ends a server when it goes.
pub(crate) struct Listening(
    #[expect(dead_code, reason = "works by being dropped")] tokio_util::sync::DropGuard,
);

/// A socket on a free port, and its address.
pub(crate) async fn socket() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    (listener, address)
}
