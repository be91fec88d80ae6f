//! What directives reach outside the store, with the drivers of this program.

use async_trait::async_trait;
use stargate_directive::Pointer;
use stargate_directive::file::Directive;
use stargate_directive::source::{Feed, ForeignSink, SourceError, Sources};
use stargate_feed::Surroundings;
use stargate_store::databases::{Drivers, Own};

use crate::config::Settings;
use crate::config::store_url::StoreUrl;

/// Everything outside.
#[derive(Debug)]
pub(crate) struct Outside {
    around: Surroundings,
}

impl Outside {
    pub(crate) fn new(settings: &Settings) -> Self {
        let own = match &settings.store {
            StoreUrl::Sqlite(path) => Own::Sqlite(path.clone()),
            StoreUrl::Postgres(url) => Own::Postgres { url: url.clone(), pooled: false },
        };
        let scratch = settings.scratch.dir.clone();
        Self {
            around: Surroundings {
                environment: Box::new(|name| std::env::var(name).ok()),
                databases: Box::new(Drivers::new(own, &scratch)),
                scratch,
            },
        }
    }
}

#[async_trait]
impl Sources for Outside {
    async fn open(&self, directive: &Directive, from: &Pointer) -> Result<Box<dyn Feed>, SourceError> {
        // Most runs need no scratch folder. One that does and finds none tells so itself.
        if let Err(error) = tokio::fs::create_dir_all(&self.around.scratch).await {
            tracing::warn!(%error, "the scratch folder cannot be made");
        }
        stargate_feed::open(directive, from, &self.around).await
    }

    async fn sink(&self, directive: &Directive) -> Result<Option<Box<dyn ForeignSink>>, SourceError> {
        stargate_feed::sink(directive, &self.around).await
    }
}
