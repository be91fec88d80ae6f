//! How the API and the page behave: the effective settings.

use stargate_web::Options;

use super::catalogue::web as catalogue;
use super::file::File;
use super::layer::Layers;
use super::{parsed, same};
use crate::failure::Result;

/// How often a token may change something unless something else is said.
const RATE_LIMIT: &str = "100/s";

/// Reads `[web]` and the rest of `[api]`.
pub(super) fn web(layers: &mut Layers<'_>, file: &File) -> Result<Options> {
    let default = Options::default();
    let limited = catalogue::read_rate_limit(RATE_LIMIT).unwrap_or_default();
    let rate = parsed(&file.api.rate_limit, layers.source, "api.rate_limit", catalogue::read_rate_limit)?;
    Ok(Options {
        read_only: layers.pick(&catalogue::READ_ONLY, None, &file.api.read_only, same, default.read_only)?,
        rate_limit: layers.pick(&catalogue::RATE_LIMIT, None, &rate, same, limited)?,
        base_path: layers.pick(&catalogue::BASE_PATH, None, &file.web.base_path, same, default.base_path)?,
        redact: layers.pick(&catalogue::REDACT, None, &file.web.redact, same, default.redact)?,
    })
}
