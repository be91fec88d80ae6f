//! In the place of traces, in a program that was built without them.

use crate::config::Settings;
use crate::config::otel::Otel;
use crate::failure::{Failure, Result};

/// What this file records: nothing.
pub(crate) const CATALOGUE: &[(&str, stargate_queue::metrics::MetricKind, &str)] = &[];

/// Refuses a setting that would have no effect.
pub(crate) fn install(settings: &Settings) -> Result<()> {
    match settings.otel.endpoint {
        None => Ok(()),
        Some(_) => Err(Failure::config("otel.endpoint is set, but this program was built without traces")
            .help("remove the setting (OTEL_EXPORTER_OTLP_ENDPOINT too), or build with the feature otel")),
    }
}

/// There is nothing to send.
pub(crate) fn flush() {}

/// There is nobody to ask.
#[expect(clippy::unused_async, reason = "the other one asks")]
pub(crate) async fn probe(_: &Otel) -> std::result::Result<(), String> {
    Ok(())
}
