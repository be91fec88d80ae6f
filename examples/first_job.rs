//! A first job: a handler with a typed payload, a pool that runs it, a job, and its outcome.
//!
//! `cargo run -p stargate-examples --bin first-job`. Nothing is set up before and nothing is left behind: the store is
//! a SQLite file in a temporary folder.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stargate_queue::{
    Context, Failure, Job, JobId, NewJob, Pool, PoolConfig, Profile, Registry, SharedStore,
};
use stargate_store::sqlite::{Options, Sqlite};
use tokio_util::sync::CancellationToken;

#[derive(Serialize, Deserialize)]
struct Mail {
    to: String,
}

/// May run more than once for the same mail: a worker can die after the work and before the record.
async fn send(context: Context, mail: Mail) -> Result<String, Failure> {
    if !mail.to.contains('@') {
        // Failed at once. `Failure::transient`, and any error passed on with `?`, would be tried again.
        return Err(Failure::invalid(format!("{:?} is no address", mail.to)));
    }
    context.progress(50).await;
    Ok(format!("sent to {}", mail.to))
}

/// Enqueues one mail, runs it, answers how it ended.
async fn deliver(store: SharedStore, to: &str) -> stargate_queue::Result<Job> {
    let mut registry = Registry::new();
    registry.handle("mail", Profile::default(), send)?;
    // Makes the kinds known. From here on they can be enqueued, by this process and by any other.
    let pool = Pool::start(store.clone(), registry, PoolConfig::default()).await?;
    let mail = Mail { to: to.to_owned() };
    // When this has answered, the job is on disk.
    let enqueued = store.enqueue(vec![NewJob::of("mail", &mail)?]).await?;
    let stop = CancellationToken::new();
    let ended = async {
        let job = ended(&store, enqueued[0].id).await;
        stop.cancel();
        job
    };
    // The pool runs until the token is cancelled; then it finishes what it has begun.
    let ((), job) = tokio::join!(pool.run(stop.clone()), ended);
    job
}

async fn ended(store: &SharedStore, id: JobId) -> stargate_queue::Result<Job> {
    loop {
        match store.job(id).await? {
            Some(job) if job.state.is_finished() => return Ok(job),
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example shows what it did")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let store: SharedStore =
        Arc::new(Sqlite::open(&folder.path().join("jobs.db"), Options::default()).await?);
    let job = deliver(store, "ann@example.org").await?;
    println!(
        "job {} is {}: {}",
        job.id,
        job.state,
        job.result.map_or_else(String::new, |json| json.to_string())
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use stargate_queue::State;

    use super::*;

    async fn delivered_to(to: &str) -> Job {
        let folder = tempfile::tempdir().unwrap();
        let store = Sqlite::open(&folder.path().join("jobs.db"), Options::default()).await.unwrap();
        deliver(Arc::new(store), to).await.unwrap()
    }

    #[tokio::test]
    async fn a_mail_is_sent_and_its_result_kept() {
        let job = delivered_to("ann@example.org").await;
        assert_eq!(job.state, State::Done, "{job:?}");
        assert_eq!(
            job.result.map(|json| json.get().to_owned()).as_deref(),
            Some("\"sent to ann@example.org\"")
        );
    }

    #[tokio::test]
    async fn a_wrong_address_fails_at_once() {
        let job = delivered_to("ann").await;
        assert_eq!((job.state, job.attempt_count), (State::Failed, 1), "{job:?}");
        assert_eq!(job.error.map(|error| error.code).as_deref(), Some("VALIDATION_FAILED"));
    }
}
