//! Debian's Prometheus: tests let it scrape a real node, and have its tool check the rules that are shipped.
//!
//! Each test starts a server of its own. The one that the package starts on a machine with systemd is not asked anything.

use anyhow::{Context as _, Result};

use super::Variables;
use crate::process;

/// Each program with what tells tests where it is.
const PROGRAMS: [(&str, &str); 2] =
    [("STARGATE_TEST_PROMETHEUS", "prometheus"), ("STARGATE_TEST_PROMTOOL", "promtool")];

/// Finds the programs.
pub(super) fn install() -> Result<Variables> {
    let found = PROGRAMS.iter().map(|(variable, program)| {
        let path = process::find(program)
            .with_context(|| format!("{program} is missing: apt-get install prometheus"))?;
        Ok(((*variable).to_owned(), path.to_string_lossy().into_owned()))
    });
    found.collect()
}

/// Whether both are there.
pub(super) fn is_there() -> bool {
    PROGRAMS.iter().all(|(_, program)| process::find(program).is_some())
}
