//! How this node is seen from outside, and what it tells: who is let in, where traces go, what the system allows it.

use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use stargate_access::Tokens;
use stargate_base::chain;

use super::Check;
use crate::config::Settings;
use crate::otel;

/// Fewer file descriptors than this, and a busy node runs out of them: connections, programs, packs of git.
const FILES_WARN: u64 = 4096;
/// A collector that needs longer is as good as unreachable.
const PATIENCE: Duration = Duration::from_secs(10);

/// An address that others reach needs a token.
pub(super) async fn access(tokens: &dyn Tokens, settings: &Settings) -> Check {
    let open: Vec<String> = [("api.listen", settings.api_listen), ("worker.listen", settings.worker.listen)]
        .iter()
        .filter(|(_, address)| !address.ip().is_loopback())
        .map(|(name, address)| format!("{name} {address}"))
        .collect();
    let any = match tokens.any().await {
        Ok(any) => any,
        Err(error) => {
            return Check::fail("access", chain(&error), "see what the other checks say about the store");
        }
    };
    match (open.is_empty(), any) {
        (false, false) => Check::fail(
            "access",
            format!("{} is reached by others, and there is no token", open.join(" and ")),
            "stargate token add admin --role admin; or listen on 127.0.0.1",
        ),
        (false, true) => Check::ok("access", format!("{} with tokens", open.join(" and "))),
        (true, true) => Check::ok("access", "this machine only, with tokens"),
        (true, false) => Check::ok("access", "this machine only, without tokens"),
    }
}

/// The collector takes spans. It is no failure if it does not: nothing but traces suffers.
pub(super) async fn traces(settings: &Settings) -> Check {
    let Some(endpoint) = &settings.otel.endpoint else { return Check::ok("traces", "not collected") };
    let remedy = "is otel.endpoint a collector that takes OTLP over HTTP (usually port 4318, not 4317), and are otel.headers right?";
    match tokio::time::timeout(PATIENCE, otel::probe(&settings.otel)).await {
        Ok(Ok(())) => Check::ok("traces", format!("{endpoint} takes them")),
        Ok(Err(problem)) => Check::warn("traces", format!("{endpoint}: {problem}"), remedy),
        Err(_) => {
            Check::warn("traces", format!("{endpoint} did not answer in {} s", PATIENCE.as_secs()), remedy)
        }
    }
}

/// Enough files may be open at once.
pub(super) fn files() -> Check {
    let limit = getrlimit(Resource::Nofile).current;
    match limit {
        Some(limit) if limit < FILES_WARN => Check::warn(
            "open files",
            format!("{limit} may be open at once"),
            "LimitNOFILE=65536 in the unit, or ulimit -n 65536 before the start",
        ),
        Some(limit) => Check::ok("open files", format!("{limit} may be open at once")),
        None => Check::ok("open files", "without limit"),
    }
}
