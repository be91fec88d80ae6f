//! Locks that a killed git has left behind.
//!
//! git moves a ref by way of `NAME.lock` beside it, and removes that file however it ends, but not when it is killed or the
//! machine loses power. Nobody can move that ref afterwards: every push to it is refused until somebody removes the file.
//! In a repository of ours that is us.
//!
//! A lock is held for moments. One that is old, while no git works in the repository, belongs to nobody. Both are asked for:
//! a git of another user or another machine that shares the folder cannot be seen from here.

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::repo::RepoDir;

/// From which age on a lock may be somebody's who is dead.
pub const ABANDONED: Duration = Duration::from_secs(60);

/// What git locks beside the refs, whoever pushes.
const FILES: [&str; 3] = ["HEAD.lock", "packed-refs.lock", "config.lock"];

/// Removes the locks of gits that are dead; gives their paths within the repository.
pub fn remove_abandoned(repo: &RepoDir, now: SystemTime) -> io::Result<Vec<PathBuf>> {
    let mut old: Vec<PathBuf> = FILES.iter().map(|name| repo.path().join(name)).collect();
    find(&repo.path().join("refs"), &mut old)?;
    old.retain(|path| fs::symlink_metadata(path).is_ok_and(|data| is_old(&data, now)));
    if old.is_empty() || git_works_in(repo.path()) {
        return Ok(Vec::new());
    }
    let mut removed = Vec::new();
    for path in old {
        match fs::remove_file(&path) {
            Ok(()) => removed.push(path.strip_prefix(repo.path()).unwrap_or(&path).to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(removed)
}

fn is_old(data: &Metadata, now: SystemTime) -> bool {
    data.is_file() && data.modified().is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age >= ABANDONED))
}

/// All locks below a folder. What disappears meanwhile was none of a dead git.
fn find(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            find(&entry.path(), found)?;
        } else if entry.path().extension().is_some_and(|end| end == "lock") {
            found.push(entry.path());
        }
    }
    Ok(())
}

/// Whether a git stands in this folder or below. Where processes cannot be listed, one may.
fn git_works_in(folder: &Path) -> bool {
    let Ok(folder) = folder.canonicalize() else { return true };
    let Ok(processes) = fs::read_dir("/proc") else { return true };
    processes.flatten().any(|process| {
        let is_git = fs::read(process.path().join("comm")).is_ok_and(|name| name.starts_with(b"git"));
        is_git && fs::read_link(process.path().join("cwd")).is_ok_and(|there| there.starts_with(&folder))
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn only_old_locks_go_and_only_while_no_git_works_there() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("r.git");
        #[expect(clippy::disallowed_methods, reason = "a git that stands in the repository")]
        let git = || Command::new("git");
        assert!(git().args(["init", "-q", "--bare"]).arg(&path).status().unwrap().success());
        let repo = RepoDir::open(&path).unwrap();
        let now = SystemTime::from(stargate_base::clock::wall());
        let lock = |name: &str, age: Duration| {
            let file = path.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            File::create(&file).unwrap().set_modified(now - age).unwrap();
        };
        lock("refs/heads/team/old.lock", ABANDONED);
        lock("refs/heads/new.lock", ABANDONED - Duration::from_secs(1));
        lock("refs/heads/ahead.lock", Duration::ZERO);
        lock("packed-refs.lock", 2 * ABANDONED);
        lock("refs/heads/no-lock", 2 * ABANDONED);
        let mut here = git();
        let here = here.args(["cat-file", "--batch"]).current_dir(&path).stdin(Stdio::piped());
        let mut working = here.spawn().unwrap();
        assert!(remove_abandoned(&repo, now).unwrap().is_empty(), "a git works there");
        drop(working.stdin.take());
        working.wait().unwrap();
        let mut removed = remove_abandoned(&repo, now).unwrap();
        removed.sort();
        assert_eq!(removed, ["packed-refs.lock", "refs/heads/team/old.lock"].map(PathBuf::from));
        assert!(remove_abandoned(&repo, now).unwrap().is_empty());
        assert!(path.join("refs/heads/new.lock").exists() && path.join("refs/heads/no-lock").exists());
    }
}
