//! How many dead letters wait for somebody, and since when, for whoever looks at the metrics.

use std::path::PathBuf;
use std::time::Duration;

use stargate_base::{chain, clock};
use stargate_mirror::DeadLetters;
use stargate_mirror::metrics::{OLDEST_LETTER, OPEN_LETTERS};
use tokio_util::sync::CancellationToken;

use super::supervise::Mirrors;

/// How often it is looked: letters are of interest in minutes.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// Looks until told to stop. A node that does not mirror has none.
pub(crate) async fn run(mirrors: Mirrors, stop: CancellationToken) {
    loop {
        let places = mirrors.running().into_iter().map(|place| place.path).collect();
        if let Ok((count, oldest)) = tokio::task::spawn_blocking(move || look(places)).await {
            metrics::gauge!(OPEN_LETTERS).set(count);
            metrics::gauge!(OLDEST_LETTER).set(oldest);
        }
        if stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_none() {
            return;
        }
    }
}

/// The number of open letters, and the age of the oldest in seconds.
fn look(places: Vec<PathBuf>) -> (f64, f64) {
    let (mut count, mut oldest) = (0.0, 0.0_f64);
    for place in places {
        let found = DeadLetters::open(&place).and_then(|letters| {
            let open = letters.open_count()?;
            Ok((open, if open == 0 { None } else { letters.oldest_open()? }))
        });
        match found {
            Ok((open, since)) => {
                count += u32::try_from(open).map_or(f64::INFINITY, f64::from);
                let age = since.map(|since| clock::wall().duration_since(since).as_secs_f64());
                oldest = oldest.max(age.unwrap_or_default());
            }
            Err(error) => tracing::debug!(error = chain(&error), "dead letters could not be counted"),
        }
    }
    (count, oldest)
}
