//! The demo's directive: items of an API in this process become rows, and one that does not fit is quarantined.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use stargate_base::Tasks;
use stargate_directive::file::Directive;
use stargate_directive::quarantine::QuarantineFilter;
use stargate_directive::{Outcome as Ending, RunId};
use stargate_queue::JobId;
use stargate_queue::store::Store;
use stargate_web::sample as api;
use tokio::net::TcpListener;

use super::check::Outcome;
use super::one;
use crate::assemble::{self, Migrate};
use crate::cmd::directive::sample;
use crate::config::Settings;
use crate::directing::{self, Catalogue};
use crate::failure::{Failure, Result};
use crate::output::{self, Output};

/// Items of the API, and how many of them do not fit.
const ITEMS: u64 = 1000;
const BAD: u64 = 1;
/// Where the directive lies, in the home.
const DIR: &str = "directives";

/// Starts the API on a free port and writes the directive that reads it.
pub(super) async fn prepare(home: &Path, tasks: &Tasks) -> Result<()> {
    let cannot = |error: std::io::Error| Failure::io("cannot start the demo's local API", &error);
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    tasks.spawn(api::serve(listener, api::Sample::new(ITEMS, BAD), tasks.stopping()));
    sample::write(&home.join(DIR), address, Output { json: true })
}

/// The job of the run.
pub(super) async fn enqueue(store: &dyn Store, settings: &Settings) -> Result<JobId> {
    one(store, directing::job(&directive(settings)?)?).await
}

fn directive(settings: &Settings) -> Result<Directive> {
    let found = Catalogue::of(settings).find(sample::NAME);
    found.map_err(|trouble| Failure::failed(&trouble.code, trouble.message))
}

/// Every item is a row or quarantined, and the cursor has seen them all.
pub(super) async fn outcome(settings: &Settings, job: JobId) -> Result<Outcome> {
    let stores = assemble::open_all(settings, Migrate::No).await?;
    let run = stores.directives.run(&RunId(job.to_string())).await?;
    let filter = QuarantineFilter {
        directive: Some(sample::NAME.to_owned()),
        resolved: false,
        before: None,
        limit: 10,
    };
    let quarantined = stores.directives.quarantine(filter).await?;
    let counts = run.as_ref().map(|run| run.counts).unwrap_or_default();
    let processed =
        run.as_ref().and_then(|run| run.cursor.as_ref()).map_or(0, |cursor| cursor.processed_count);
    let ending = run.as_ref().and_then(|run| run.outcome);
    let ok = ending == Some(Ending::Succeeded)
        && counts.created == ITEMS - BAD
        && counts.failed == BAD
        && quarantined.len() as u64 == BAD
        && processed == ITEMS;
    let reason = quarantined.first().map_or("nothing quarantined", |record| &record.reason);
    let found = format!(
        "{}, {} of {} items are rows, {} quarantined: {reason}",
        ending.map_or("not begun", |ending| ending.as_str()),
        output::grouped(counts.created),
        output::grouped(ITEMS),
        quarantined.len(),
    );
    Ok(Outcome { shows: "a directive that reads an API", jobs: vec![job], ok, found })
}
