//! SIGTERM and SIGINT: the first asks for an orderly end, the second ends at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::failure::{Exit, Failure, Result};

/// A token that the first signal cancels.
pub(crate) fn stop_token(tasks: &stargate_base::Tasks) -> Result<CancellationToken> {
    let cannot = |error: std::io::Error| Failure::io("cannot listen for signals", &error);
    let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
    let stop = CancellationToken::new();
    let first = stop.clone();
    let end = tasks.stopping();
    tasks.spawn(async move {
        let mut count = 0;
        loop {
            let name = tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
                () = end.cancelled() => return,
            };
            count += 1;
            if count > 1 {
                tracing::warn!(signal = name, "second signal, ending at once");
                std::process::exit(Exit::Killed as i32);
            }
            first.cancel();
            tracing::info!(signal = name, "stopping; a second signal ends at once");
        }
    });
    Ok(stop)
}
