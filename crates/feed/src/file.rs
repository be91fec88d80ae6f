//! To come.

use stargate_directive::Pointer;
use stargate_directive::file::FileSource;
use stargate_directive::source::{Feed, SourceError};

pub(crate) async fn open(_source: &FileSource, _from: &Pointer) -> Result<Box<dyn Feed>, SourceError> {
    Err(SourceError::new(stargate_base::ErrorClass::Fatal, "SOURCE_ENGINE", "to come"))
}
