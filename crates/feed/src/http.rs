//! To come.

use crate::Surroundings;
use stargate_directive::Pointer;
use stargate_directive::file::HttpSource;
use stargate_directive::source::{Feed, SourceError};

pub(crate) async fn open(
    _source: &HttpSource,
    _from: &Pointer,
    _around: &Surroundings,
) -> Result<Box<dyn Feed>, SourceError> {
    Err(SourceError::new(stargate_base::ErrorClass::Fatal, "SOURCE_ENGINE", "to come"))
}
