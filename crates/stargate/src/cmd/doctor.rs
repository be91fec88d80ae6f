//! `stargate doctor`: what a support engineer would ask for, each with a remedy.

mod host;
mod leader;
mod mirror;
mod outside;
mod queue;
mod runtime;
mod webhook;

use comfy_table::{Cell, Color};
use serde::Serialize;

use crate::assemble::{self, Migrate, Stores};
use crate::config::directives::Engine;
use crate::failure::{Failure, Result};
use crate::run::App;
use crate::{output, temporal};

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    /// Nothing to do.
    Ok,
    /// Works, but will hurt.
    Warn,
    /// Does not work.
    Fail,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    check: &'static str,
    verdict: Verdict,
    found: String,
    remedy: Option<String>,
}

impl Check {
    pub(crate) fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, found: found.into(), remedy: None }
    }

    pub(crate) fn warn(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Warn, found: found.into(), remedy: Some(remedy.into()) }
    }

    pub(crate) fn fail(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Fail, found: found.into(), remedy: Some(remedy.into()) }
    }
}

/// Makes every check; the failure of one does not keep the others from being made.
pub(crate) async fn checks(app: &App) -> Vec<Check> {
    let mut checks = vec![host::home(&app.settings), host::disk(&app.settings), outside::files()];
    match assemble::open_all(&app.settings, Migrate::No).await {
        Ok(Stores { jobs: store, pushes, tokens, .. }) => {
            checks.extend(queue::checks(store.as_ref(), &app.settings).await);
            checks.extend(leader::checks(store.as_ref(), &app.settings).await);
            checks.extend(webhook::check(pushes.as_ref(), &app.settings).await);
            checks.push(outside::access(tokens.as_ref(), &app.settings).await);
        }
        Err(failure) => {
            let remedy = match failure.code.as_str() {
                "SCHEMA_TOO_OLD" => "stargate migrate".to_owned(),
                "SCHEMA_TOO_NEW" => "install the stargate that wrote it, or a newer one".to_owned(),
                _ => format!("is {} right, and is it running and reachable?", app.settings.store),
            };
            checks.push(Check::fail("store", failure.message, remedy));
        }
    }
    checks.push(mirror::git(&app.settings).await);
    checks.extend(mirror::checks(&app.settings).await);
    checks.extend(host::programs(&app.settings));
    checks.extend(runtime::checks(&app.settings).await);
    checks.push(outside::traces(&app.settings).await);
    if app.settings.directives.engine == Engine::Temporal {
        checks.extend(temporal::checks(&app.settings).await);
    }
    checks
}

/// Runs the command.
pub(crate) async fn run(app: &App) -> Result<()> {
    let checks = checks(app).await;
    if app.out.json {
        app.out.json(&checks);
    } else {
        print(&checks, app);
    }
    let failed = checks.iter().filter(|check| check.verdict == Verdict::Fail).count();
    match failed {
        0 => Ok(()),
        _ => Err(Failure::failed("UNHEALTHY", format!("{failed} of {} checks failed", checks.len()))),
    }
}

fn print(checks: &[Check], app: &App) {
    let mut table = output::table(&["", "check", "found"]);
    for check in checks {
        let (word, colour) = match check.verdict {
            Verdict::Ok => ("ok", Color::Green),
            Verdict::Warn => ("warn", Color::Yellow),
            Verdict::Fail => ("FAIL", Color::Red),
        };
        table.add_row(vec![Cell::new(word).fg(colour), Cell::new(check.check), Cell::new(&check.found)]);
        if let Some(remedy) = &check.remedy {
            table.add_row(vec![Cell::new(""), Cell::new(""), Cell::new(format!("-> {remedy}"))]);
        }
    }
    app.out.table(&table, "nothing to check");
}
