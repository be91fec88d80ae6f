//! The git gateway: the effective settings.

use std::path::{Path, PathBuf};

use stargate_access::RepoPattern;
use stargate_gateway::Settings;
use stargate_git::{Git, RefPattern};

use super::catalogue::git as catalogue;
use super::file::File;
use super::interval::Interval;
use super::layer::Layers;
use super::same;
use super::size::Size;
use crate::failure::{Failure, Result};

/// The settings of the git gateway.
#[derive(Debug, Clone)]
pub(crate) struct GitSettings {
    /// Where the repositories are.
    pub(crate) root: PathBuf,
    pub(crate) program: PathBuf,
    /// Refs that only move forward, beside those that are mirrored.
    pub(crate) fast_forward_only: Vec<RefPattern>,
    /// Repositories that take the watermarks of another mirror.
    pub(crate) take_watermarks: Vec<RepoPattern>,
    /// Refs that one push may move.
    pub(crate) refs_max: usize,
    /// The bounds of fetches and pushes.
    pub(crate) bounds: Settings,
}

impl GitSettings {
    /// The git program, with nothing of this process' environment but the search path.
    pub(crate) fn git(&self) -> Git {
        Git::new(&self.program, std::env::var_os("PATH").unwrap_or_default())
    }
}

/// Reads `[git]`.
pub(super) fn git(layers: &mut Layers<'_>, file: &File, home: &Path) -> Result<GitSettings> {
    let given = &file.git;
    let length = |Interval(length): Interval| length;
    let bytes = |Size(bytes): Size| bytes;
    let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let usual = Settings::default();
    let root = layers.pick(&catalogue::ROOT, None, &given.root, same, home.join("repos"))?;
    let program = layers.pick(&catalogue::PROGRAM, None, &given.program, same, PathBuf::from("git"))?;
    let patterns =
        layers.pick(&catalogue::FAST_FORWARD_ONLY, None, &given.fast_forward_only, same, Vec::new())?;
    let patterns = patterns.iter().map(|text| RefPattern::parse(text)).collect::<Result<_, _>>();
    let fast_forward_only = patterns.map_err(|error| Failure::config(error.to_string()))?;
    let take = layers.pick(&catalogue::TAKE_WATERMARKS, None, &given.take_watermarks, same, Vec::new())?;
    let take = take.iter().map(|text| text.parse::<RepoPattern>()).collect::<Result<_, _>>();
    let take_watermarks = take.map_err(|error| Failure::config(error.to_string()))?;
    let refs_max = layers.pick(&catalogue::MAX_REFS, None, &given.max_refs, same, 1000)?;
    let push_bytes_max =
        layers.pick(&catalogue::MAX_PUSH, None, &given.max_push, bytes, usual.push_bytes_max)?;
    let asked = &given.max_fetch_request;
    let asked_max = usual.fetch_request_bytes_max;
    let fetch_request_bytes_max =
        layers.pick(&catalogue::MAX_FETCH_REQUEST, None, asked, bytes, asked_max)?;
    let fetches_max = layers.pick(&catalogue::MAX_FETCHES, None, &given.max_fetches, same, 64)?;
    let pushes_max = layers.pick(&catalogue::MAX_PUSHES, None, &given.max_pushes, same, 16)?;
    let time_max = layers.pick(&catalogue::TIMEOUT, None, &given.timeout, length, usual.time_max)?;
    let bounds = Settings {
        push_bytes_max,
        fetch_request_bytes_max,
        fetches_max: count(fetches_max),
        pushes_max: count(pushes_max),
        time_max,
        ..usual
    };
    let refs_max = count(refs_max);
    Ok(GitSettings { root, program, fast_forward_only, take_watermarks, refs_max, bounds })
}

#[cfg(test)]
mod tests {
    use super::super::layer::Environment;
    use super::super::{Flags, Settings, load};
    use crate::failure::Result;

    fn settings(text: &str) -> Result<Settings> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stargate.toml");
        std::fs::write(&path, text).unwrap();
        load(Flags { config: Some(path), ..Flags::default() }, &Environment::default())
    }

    #[test]
    fn repositories_lie_in_the_home_unless_told_otherwise() {
        let git = settings("home = \"/h\"\n").unwrap().git;
        assert_eq!((git.root.to_str(), git.refs_max), (Some("/h/repos"), 1000));
        let text = "[git]\nroot = \"/r\"\nmax_push = \"1GiB\"\nmax_pushes = 2\nfast_forward_only = [\"refs/heads/main\"]\n";
        let git = settings(text).unwrap().git;
        assert_eq!((git.root.to_str(), git.bounds.push_bytes_max), (Some("/r"), 1 << 30));
        assert_eq!((git.bounds.pushes_max, git.fast_forward_only.len()), (2, 1));
    }

    #[test]
    fn what_cannot_work_is_refused_at_its_line() {
        for bad in [
            "max_refs = 0",
            "max_refs = 10001",
            "max_push = \"1B\"",
            "timeout = \"0s\"",
            "fast_forward_only = [\"main\"]",
            "take_watermarks = [\"../x\"]",
            "max_fetch_request = \"2GiB\"",
        ] {
            let failure = settings(&format!("[git]\n{bad}\n")).unwrap_err();
            assert_eq!(failure.position().map(|(_, line, _)| line), Some(2), "{bad}: {failure}");
        }
    }
}
