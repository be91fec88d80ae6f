//! What only the leader does: enters the limits and schedules of the configuration, and fires schedules.

use std::time::Duration;

use stargate_base::chain;
use stargate_leader::Leadership;
use stargate_queue::{Error, SharedStore, scheduler};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::assemble::{self, Planned};

/// Between two tries to enter the configuration, while the store does not take it.
const PAUSE: Duration = Duration::from_secs(5);

/// Leads in every term of this node until `stop`. `entered` turns true when a term has entered the configuration.
pub(crate) async fn run(
    store: SharedStore,
    planned: Planned,
    leadership: Leadership,
    entered: watch::Sender<bool>,
    stop: CancellationToken,
) {
    let (store, planned, entered, process) = (&store, &planned, &entered, &stop);
    leadership
        .while_leading(stop.clone(), |guard| async move {
            // With the term or with the process, whichever is first: whoever ends terms may have died.
            let stopping = guard.stopping().child_token();
            let led = lead(store.under(guard.epoch()), planned, stopping.clone(), entered);
            tokio::pin!(led);
            let ended = tokio::select! {
                ended = &mut led => ended,
                () = process.cancelled() => {
                    stopping.cancel();
                    led.await
                }
            };
            if ended == scheduler::Ended::Deposed {
                guard.deposed();
            }
        })
        .await;
}

/// One term.
async fn lead(
    store: SharedStore,
    planned: &Planned,
    stopping: CancellationToken,
    entered: &watch::Sender<bool>,
) -> scheduler::Ended {
    loop {
        let error = match assemble::enter(&*store, planned, &stopping).await {
            Ok(true) => break,
            Ok(false) => return scheduler::Ended::Stopped,
            Err(Error::Deposed { .. }) => return scheduler::Ended::Deposed,
            Err(error) => error,
        };
        tracing::warn!(
            error = chain(&error),
            retry_in = ?PAUSE,
            "the limits and schedules of the configuration could not be entered"
        );
        if tokio::time::timeout(PAUSE, stopping.cancelled()).await.is_ok() {
            return scheduler::Ended::Stopped;
        }
    }
    entered.send_replace(true);
    scheduler::run(store, stopping).await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stargate_store::sqlite::{Options, Sqlite};

    use super::*;
    use crate::config::layer::Environment;
    use crate::config::{Flags, load};

    async fn store(home: &std::path::Path) -> SharedStore {
        Arc::new(Sqlite::open(&home.join("jobs.db"), Options::default()).await.unwrap())
    }

    async fn planned(store: &SharedStore, home: &std::path::Path) -> Planned {
        let config = home.join("stargate.toml");
        let schedule = "[limits.\"a\"]\nconcurrency = 1\n[schedules.\"s\"]\ncron = \"* * * * * *\"\nkind = \"jobs:purge_completed\"\n";
        std::fs::write(&config, schedule).unwrap();
        let flags = Flags { config: Some(config), ..Flags::default() };
        let settings = load(flags, &Environment::default()).unwrap();
        assemble::announce(&**store, &settings).await.unwrap()
    }

    #[tokio::test]
    async fn a_leader_whose_term_is_over_enters_nothing_and_fires_nothing() {
        let home = tempfile::tempdir().unwrap();
        let store = store(home.path()).await;
        let planned = planned(&store, home.path()).await;
        let first = store.term_begin("one", None, None).await.unwrap();
        let old = store.under(first);
        let stop = CancellationToken::new();
        assert!(assemble::enter(&*old, &planned, &stop).await.unwrap());
        store.term_begin("two", None, Some(first)).await.unwrap();

        let refused = assemble::enter(&*old, &planned, &stop).await.unwrap_err();
        assert!(matches!(refused, Error::Deposed { .. }), "{refused}");
        // Ends by itself at the first instant that is due.
        let ended = scheduler::run(old, CancellationToken::new());
        let ended = tokio::time::timeout(Duration::from_secs(30), ended).await.expect("an end");
        assert_eq!(ended, scheduler::Ended::Deposed);
        assert_eq!(store.jobs(stargate_queue::store::JobFilter::default()).await.unwrap().len(), 0);
    }

    #[tokio::test]
    async fn a_leader_that_is_told_to_stop_enters_no_more() {
        let home = tempfile::tempdir().unwrap();
        let store = store(home.path()).await;
        let planned = planned(&store, home.path()).await;
        let stop = CancellationToken::new();
        stop.cancel();
        assert!(!assemble::enter(&*store, &planned, &stop).await.unwrap());
        let (sender, entered) = watch::channel(false);
        assert_eq!(lead(Arc::clone(&store), &planned, stop, &sender).await, scheduler::Ended::Stopped);
        assert!(!*entered.borrow());
        assert_eq!((store.limits().await.unwrap().len(), store.schedules().await.unwrap().len()), (0, 0));
    }

    #[tokio::test]
    async fn what_is_entered_twice_is_there_once() {
        let home = tempfile::tempdir().unwrap();
        let store = store(home.path()).await;
        let planned = planned(&store, home.path()).await;
        let stop = CancellationToken::new();
        assert!(assemble::enter(&*store, &planned, &stop).await.unwrap());
        let before = store.schedules().await.unwrap();
        assert!(assemble::enter(&*store, &planned, &stop).await.unwrap());
        let after = store.schedules().await.unwrap();
        assert_eq!(format!("{after:?}"), format!("{before:?}"));
        assert_eq!((before.len(), store.limits().await.unwrap().len()), (2, 1), "and that of the purge");
    }
}
