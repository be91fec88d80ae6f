//! Where directives read from: JSON APIs, Singer taps, files. Queries are the store's business (`Databases`).

mod body;
mod elements;
mod file;
mod http;
mod json;
mod problem;
mod singer;
mod squeeze;

use std::path::{Path, PathBuf};

use stargate_base::ErrorClass;
use stargate_directive::Pointer;
use stargate_directive::file::{Directive, Source};
use stargate_directive::source::{Databases, Feed, ForeignSink, SourceError};

/// Variables of the environment by their name.
pub type Environment = dyn Fn(&str) -> Option<String> + Send + Sync;

/// What sources need from their surroundings.
pub struct Surroundings {
    /// Where variables that directives name come from.
    pub environment: Box<Environment>,
    /// Where what is too large for memory is written meanwhile.
    pub scratch: PathBuf,
    /// Runs queries.
    pub databases: Box<dyn Databases>,
}

impl std::fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surroundings").field("scratch", &self.scratch).finish_non_exhaustive()
    }
}

/// Opens the source of a directive where its cursor points to; null is its beginning.
pub async fn open(
    directive: &Directive,
    from: &Pointer,
    around: &Surroundings,
) -> Result<Box<dyn Feed>, SourceError> {
    match &directive.source {
        Source::Http(source) => http::open(source, from, around).await,
        Source::File(source) => file::open(source, directive.mode, from).await,
        Source::Singer(source) => {
            let folder = directive.path.parent().unwrap_or(Path::new(""));
            singer::open(source, folder, from, around).await
        }
        Source::Sql(source) => {
            let url = source.url.as_ref().map(|url| reveal(url, around)).transpose()?;
            around.databases.feed(url.as_ref(), &source.query, &source.watermark, from).await
        }
        Source::Activity(_) => Err(SourceError::new(
            ErrorClass::Fatal,
            "SOURCE_ENGINE",
            "a source of type activity is served by Temporal workers; run the directive with --engine temporal",
        )),
    }
}

/// The place of a directive's rows, if that is not the store.
pub async fn sink(
    directive: &Directive,
    around: &Surroundings,
) -> Result<Option<Box<dyn ForeignSink>>, SourceError> {
    let Some(url) = &directive.sink.url else { return Ok(None) };
    around.databases.sink(&reveal(url, around)?).await.map(Some)
}

/// What a text of a directive is with the variables it names.
fn reveal(
    text: &stargate_directive::file::Secretive,
    around: &Surroundings,
) -> Result<stargate_base::Secret, SourceError> {
    text.reveal(&around.environment).map_err(|unset| {
        SourceError::new(ErrorClass::Fatal, "SOURCE_SETTING", format!("{unset}; set it where workers run"))
    })
}
