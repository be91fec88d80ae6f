//! Log lines: on standard error, for people or as JSON.

use tracing_subscriber::EnvFilter;

use crate::config::{LogFormat, Settings};
use crate::failure::{Failure, Result};

/// Starts logging. Short commands are quiet: their answer is on standard output.
pub(crate) fn install(settings: &Settings, verbose: u8, quiet: bool) -> Result<()> {
    let level = match (quiet, verbose) {
        (true, 0) => "error",
        (true, 1) | (false, 0) => "info,temporalio_sdk_core=warn",
        (true, 2) | (false, 1) => {
            "info,stargate=debug,stargate_queue=debug,stargate_store=debug,stargate_artifact=debug,\
             stargate_jobs=debug,stargate_web=debug,stargate_mirror=debug"
        }
        _ => "debug",
    };
    let filter = if settings.log_filter.is_empty() || verbose > 0 { level } else { &settings.log_filter };
    let filter = EnvFilter::try_new(filter).map_err(|error| {
        Failure::config(format!("log.filter {filter:?} is not a filter: {error}"))
            .help("write e.g. \"info,stargate_queue=debug\"")
    })?;
    // A log that nobody reads any more must not end the work: by default the failure to write is itself printed, and
    // that panics when the other end of a pipe is gone.
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .log_internal_errors(false);
    let installed = match settings.log_format {
        LogFormat::Json => {
            builder.json().flatten_event(true).with_current_span(true).with_span_list(false).try_init()
        }
        LogFormat::Human => {
            builder.with_ansi(crate::output::stderr_has_colours()).with_target(false).compact().try_init()
        }
    };
    installed.map_err(|error| Failure::config(format!("cannot start logging: {error}")))
}
