//! The point of no return of a push, agreed on by two processes.
//!
//! A client that vanishes in mid-pack leaves a receive-pack behind that is best killed. But once refs may have moved
//! it must not be: `post-receive` would not run, and nobody would hear of the push until reconcile finds it. Neither
//! side can see how far the other is, so there is one file for each push, and whoever removes it has decided:
//! `pre-receive` does before it lets refs move, the gateway before it kills. Removing a file succeeds exactly once.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The gateway's end of it.
#[derive(Debug)]
pub(crate) struct Claim {
    path: PathBuf,
}

impl Claim {
    /// Makes the file for one push.
    pub(crate) fn create(dir: &Path) -> Result<Self> {
        let path = dir.join(format!("{:032x}", rand::random::<u128>()));
        std::fs::File::create_new(&path).map_err(Error::io("begin a push with", &path))?;
        Ok(Self { path })
    }

    /// What the hook is told.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the push may still be killed; if so, its hook will refuse it from now on.
    pub(crate) fn revoke(&self) -> bool {
        // Any other error than "not there" leaves the file, and with it the decision, open: then the push goes on.
        std::fs::remove_file(&self.path).is_ok()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The hook's end: whether the push goes on. From here on the gateway lets it finish.
pub(crate) fn go_on(path: &Path) -> io::Result<bool> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_side_decides() {
        let dir = tempfile::tempdir().unwrap();
        let hook_first = Claim::create(dir.path()).unwrap();
        assert!(go_on(hook_first.path()).unwrap());
        assert!(!hook_first.revoke());

        let gateway_first = Claim::create(dir.path()).unwrap();
        assert!(gateway_first.revoke());
        assert!(!go_on(gateway_first.path()).unwrap());

        let unused = Claim::create(dir.path()).unwrap();
        drop(unused);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
