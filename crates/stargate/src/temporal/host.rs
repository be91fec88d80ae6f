//! What activities need from this program.

use std::sync::Arc;

use stargate_base::Tasks;
use stargate_directive::file::Directive;
use stargate_directive::steps::{Assignment, Trouble};
use stargate_directive::{RunId, SharedDirectives};

use crate::config::Settings;
use crate::config::directives::Engine;
use crate::directing::Runner;

/// The same as runs on the queue have.
pub(super) struct Host(Runner);

impl Host {
    pub(super) fn new(settings: &Settings, store: &SharedDirectives, tasks: &Tasks) -> Self {
        Self(Runner::new(settings, store, tasks))
    }
}

impl stargate_temporal::Host for Host {
    fn plan(&self, directive: &str) -> Result<Directive, Trouble> {
        self.0.catalogue.find(directive)
    }

    fn assignment(&self, directive: Directive, run: RunId, attempt: u32) -> Result<Assignment, Trouble> {
        self.0.assignment(directive, run, Engine::Temporal, attempt)
    }

    fn store(&self) -> SharedDirectives {
        Arc::clone(&self.0.store)
    }
}
