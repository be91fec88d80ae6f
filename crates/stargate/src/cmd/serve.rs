//! `stargate up`, `worker` and `serve`: the commands that stay.

use stargate_base::Tasks;

use crate::failure::Result;
use crate::run::App;
use crate::service::{Role, Service};
use crate::signals;

/// API, pool and scheduler in one process.
pub(crate) async fn up(app: &App) -> Result<()> {
    stay(app, Role::Everything).await
}

/// The pool, with health and metrics.
pub(crate) async fn worker(app: &App) -> Result<()> {
    stay(app, Role::Worker).await
}

/// The API.
pub(crate) async fn serve(app: &App) -> Result<()> {
    stay(app, Role::Api).await
}

async fn stay(app: &App, role: Role) -> Result<()> {
    let signals = Tasks::new();
    let stop = signals::stop_token(&signals)?;
    let service = Service::start(&app.settings, role, stop).await?;
    let kinds: Vec<&str> = app.settings.plans.kinds.iter().map(|kind| kind.name.as_str()).collect();
    tracing::info!(
        store = %app.settings.store,
        home = %app.settings.home.display(),
        workers = if role == Role::Api { 0 } else { app.settings.worker.concurrency },
        kinds = kinds.join(","),
        "listening on http://{}",
        service.address
    );
    if kinds.is_empty() && app.settings.pgboss.is_none() && role != Role::Api {
        tracing::info!(
            "no kinds of your own yet: describe one in stargate.toml, e.g. [kinds.\"hello\"] exec = [\"cat\"]"
        );
    }
    let ended = service.ended().await;
    tracing::info!("stopped");
    signals.join().await;
    ended
}
