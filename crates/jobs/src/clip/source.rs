//! Gets hold of the recording: a local file is used where it is, everything else is downloaded into scratch.

use std::fs::Metadata;
use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;
use stargate_base::{ErrorClass, chain};
use stargate_queue::handler::Failure;

use super::payload::Source;
use super::{
    INPUT_TOO_LARGE, SOURCE_NOT_FOUND, SOURCE_UNAVAILABLE, SOURCE_UNREADABLE, SSRF_BLOCKED, Settings,
};
use crate::execution::{SCRATCH_UNAVAILABLE, shortened};
use crate::fetch::FetchError;

/// A recording that ffmpeg can open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Located {
    /// Absolute, without links.
    pub(super) path: String,
    pub(super) bytes: u64,
}

/// Finds a local file and checks that it is one that may be read.
pub(super) async fn local(settings: &Settings, path: &str, shown: &Source) -> Result<Located, Failure> {
    let (roots, path) = (settings.source_roots.clone(), PathBuf::from(path));
    let look = tokio::task::spawn_blocking(move || look(&roots, &path));
    let (path, metadata) = match look.await.map_err(io::Error::other).flatten() {
        Ok(Look::File(path, metadata)) => (path, metadata),
        Ok(Look::Outside) => {
            return Err(unreadable(format!("{shown} is not in a directory of clip.source_dirs")));
        }
        Err(error) => return Err(not_opened(shown, &error)),
    };
    // Before anything is opened: opening a pipe waits, and a device may do anything.
    if !metadata.is_file() {
        return Err(unreadable(format!("{shown} is not a regular file")));
    }
    check_size(settings, shown, metadata.len())?;
    match path.into_os_string().into_string() {
        Ok(path) => Ok(Located { path, bytes: metadata.len() }),
        Err(_) => Err(unreadable(format!("{shown} leads to a name that is not UTF-8"))),
    }
}

/// Refuses what is empty or too large.
pub(super) fn check_size(settings: &Settings, shown: &Source, bytes: u64) -> Result<(), Failure> {
    if bytes == 0 {
        return Err(unreadable(format!("{shown} is empty")));
    }
    if bytes > settings.input_bytes_max {
        return Err(too_large(shown, settings.input_bytes_max));
    }
    Ok(())
}

/// What a download's failure means.
pub(super) fn not_fetched(shown: &Source, error: FetchError) -> Failure {
    let invalid = ErrorClass::ValidationFailure;
    let message = format!("{shown} {error}");
    shortened(match error {
        FetchError::Blocked => {
            let message = format!("{message}, which is refused unless clip.allow_private is set");
            Failure::new(SSRF_BLOCKED, invalid, message)
        }
        FetchError::Scheme { .. } => Failure::new(SSRF_BLOCKED, invalid, message),
        FetchError::Absent { .. } => Failure::new(SOURCE_NOT_FOUND, invalid, message),
        FetchError::Refused { .. } | FetchError::Redirects => unreadable(message),
        FetchError::TooLarge { bytes_max } => too_large(shown, bytes_max),
        FetchError::Busy { retry_after, .. } => {
            let failure = unavailable(message);
            match retry_after {
                Some(delay) => failure.with_retry_after(delay),
                None => failure,
            }
        }
        FetchError::Network { .. } => unavailable(message),
        FetchError::Disk(source) => {
            let message = format!("{shown} cannot be stored in scratch: {source}");
            Failure::new(SCRATCH_UNAVAILABLE, ErrorClass::RetryableTransient, message)
        }
    })
}

/// What the failure of a download from a bucket means.
pub(super) fn not_downloaded(shown: &Source, bytes_max: u64, error: &stargate_artifact::Error) -> Failure {
    use stargate_artifact::Error;
    let message = chain(error);
    shortened(match error {
        Error::SourceMissing { .. } => Failure::new(SOURCE_NOT_FOUND, ErrorClass::ValidationFailure, message),
        Error::SourceTooLarge { .. } => too_large(shown, bytes_max),
        Error::SourceDenied { .. } | Error::SourceAddress { .. } => unreadable(message),
        // Trouble with the file it is written to.
        Error::Full { .. } | Error::Denied { .. } | Error::Store { .. } => {
            Failure::new(SCRATCH_UNAVAILABLE, ErrorClass::RetryableTransient, message)
        }
        _ => Failure::new(SOURCE_UNAVAILABLE, error.class(), message),
    })
}

pub(super) fn unreadable(message: impl Into<String>) -> Failure {
    Failure::new(SOURCE_UNREADABLE, ErrorClass::ValidationFailure, message)
}

pub(super) fn unavailable(message: impl Into<String>) -> Failure {
    Failure::new(SOURCE_UNAVAILABLE, ErrorClass::RetryableTransient, message)
}

fn too_large(shown: &Source, bytes_max: u64) -> Failure {
    let message = format!("{shown} is larger than {bytes_max} bytes (clip.max_input)");
    Failure::new(INPUT_TOO_LARGE, ErrorClass::ValidationFailure, message)
}

enum Look {
    File(PathBuf, Metadata),
    Outside,
}

fn look(roots: &[PathBuf], path: &Path) -> io::Result<Look> {
    let resolved = std::fs::canonicalize(path).and_then(|path| Ok((std::fs::metadata(&path)?, path)));
    if roots.is_empty() {
        return resolved.map(|(metadata, path)| Look::File(path, metadata));
    }
    let within = |path: &Path, roots: &[PathBuf]| roots.iter().any(|root| path.starts_with(root));
    // Links are resolved on both sides, so none leads out.
    let real_roots: Vec<PathBuf> = roots.iter().filter_map(|root| std::fs::canonicalize(root).ok()).collect();
    match resolved {
        Ok((metadata, path)) if within(&path, &real_roots) => Ok(Look::File(path, metadata)),
        Ok(_) => Ok(Look::Outside),
        Err(error) => {
            // Whether a file outside exists is nobody's business.
            let written = std::path::absolute(path)?;
            let climbs = written.components().any(|part| part == Component::ParentDir);
            let is_inside = !climbs && (within(&written, roots) || within(&written, &real_roots));
            if is_inside { Err(error) } else { Ok(Look::Outside) }
        }
    }
}

fn not_opened(shown: &Source, error: &io::Error) -> Failure {
    let message = format!("{shown} cannot be opened: {}", chain(error));
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            let message = format!("{shown} does not exist on this worker");
            Failure::new(SOURCE_NOT_FOUND, ErrorClass::ValidationFailure, message)
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidFilename | io::ErrorKind::InvalidInput => {
            unreadable(message)
        }
        _ if Errno::from_io_error(error) == Some(Errno::LOOP) => unreadable(message),
        // A network share that does not answer, for example.
        _ => unavailable(message),
    }
}
