//! How large a repository is: every byte in its directory, and every object.
//!
//! Objects are counted as git counts them, loose ones by their files and packed ones by the indexes of the packs, without
//! starting git. Nothing is locked: a repository that changes meanwhile is measured again after its next push.

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// Files and folders looked at before the walk is given up.
pub const ENTRIES_MAX: u64 = 50_000_000;

/// How much there is of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RepoSize {
    /// Bytes of all its files.
    pub bytes: u64,
    /// Its objects, loose and packed; one that is both counts twice.
    pub objects: u64,
}

/// Measures repositories.
#[async_trait]
pub trait Measure: Send + Sync + 'static {
    /// The size of a repository; none if it is not there.
    async fn measure(&self, repo: &str) -> io::Result<Option<RepoSize>>;
}

/// Where the directory of a repository is; none if the name is not one.
type Locate = Arc<dyn Fn(&str) -> Option<PathBuf> + Send + Sync>;

/// Repositories that are folders of this machine.
#[derive(Clone)]
pub struct Folders {
    locate: Locate,
}

impl Folders {
    /// Repositories whose directories `locate` knows.
    pub fn new(locate: impl Fn(&str) -> Option<PathBuf> + Send + Sync + 'static) -> Self {
        Self { locate: Arc::new(locate) }
    }
}

impl std::fmt::Debug for Folders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Folders").finish_non_exhaustive()
    }
}

#[async_trait]
impl Measure for Folders {
    async fn measure(&self, repo: &str) -> io::Result<Option<RepoSize>> {
        let Some(folder) = (self.locate)(repo) else { return Ok(None) };
        // The flag ends the walk when nobody waits for it any more: a blocking task cannot be dropped.
        let walking = Arc::new(());
        let waited_for = Arc::downgrade(&walking);
        let walk = move || measure_folder(&folder, || waited_for.strong_count() > 0);
        let measured = tokio::task::spawn_blocking(walk).await;
        drop(walking);
        match measured.map_err(io::Error::other)? {
            Ok(size) => Ok(Some(size)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Walks a bare repository for as long as `go_on` says; links are not followed.
pub fn measure_folder(folder: &Path, go_on: impl Fn() -> bool) -> io::Result<RepoSize> {
    let mut size = RepoSize::default();
    let mut seen = 0_u64;
    // Only the repository itself must be there: what git removes during the walk is no error.
    let mut open = vec![(folder.to_owned(), fs::read_dir(folder)?)];
    while let Some((path, entries)) = open.pop() {
        let place = Place::of(folder, &path);
        for entry in entries {
            seen += 1;
            if seen > ENTRIES_MAX {
                return Err(io::Error::other(format!("there are more than {ENTRIES_MAX} files in it")));
            }
            if !go_on() {
                return Err(io::Error::from(io::ErrorKind::Interrupted));
            }
            let Some((path, metadata)) = vanishing(entry.and_then(|e| Ok((e.path(), e.metadata()?))))? else {
                continue;
            };
            if metadata.is_dir() {
                open.extend(vanishing(fs::read_dir(&path))?.map(|entries| (path, entries)));
            } else {
                size.bytes += metadata.len();
                size.objects += objects(place, &path, &metadata)?;
            }
        }
    }
    Ok(size)
}

/// What lies in a folder of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// `objects/ab`
    Loose,
    /// `objects/pack`
    Packs,
    Elsewhere,
}

impl Place {
    fn of(repo: &Path, folder: &Path) -> Self {
        let inside = folder.strip_prefix(repo).ok().and_then(|path| path.strip_prefix("objects").ok());
        match inside.and_then(Path::to_str) {
            Some("pack") => Self::Packs,
            Some(fan) if fan.len() == 2 && fan.bytes().all(|b| b.is_ascii_hexdigit()) => Self::Loose,
            _ => Self::Elsewhere,
        }
    }
}

fn objects(place: Place, path: &Path, metadata: &Metadata) -> io::Result<u64> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match place {
        Place::Loose => {
            let is_object = matches!(name.len(), 38 | 62) && name.bytes().all(|b| b.is_ascii_hexdigit());
            Ok(u64::from(is_object))
        }
        Place::Packs if name.ends_with(".idx") && metadata.is_file() => {
            Ok(vanishing(packed(path))?.unwrap_or(0))
        }
        Place::Packs | Place::Elsewhere => Ok(0),
    }
}

/// The number of objects in a pack: the last of the 256 running totals at the beginning of its index.
fn packed(index: &Path) -> io::Result<u64> {
    const MAGIC: [u8; 4] = [0xff, b't', b'O', b'c'];
    let mut file = File::open(index)?;
    let mut word = [0; 4];
    file.read_exact(&mut word)?;
    // The first version has no head.
    let head = if word == MAGIC { 8 } else { 0 };
    file.seek(SeekFrom::Start(head + 255 * 4))?;
    file.read_exact(&mut word)?;
    Ok(u64::from(u32::from_be_bytes(word)))
}

/// What git removed between the listing and the look is not there; an index it is still writing has nothing in it yet.
fn vanishing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, path: &str, bytes: &[u8]) {
        let file = root.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, bytes).unwrap();
    }

    fn index(objects: u32, version: u8) -> Vec<u8> {
        let mut bytes = if version == 2 { vec![0xff, b't', b'O', b'c', 0, 0, 0, 2] } else { Vec::new() };
        bytes.extend_from_slice(&[0; 255 * 4]);
        bytes.extend_from_slice(&objects.to_be_bytes());
        bytes
    }

    #[test]
    fn every_byte_and_every_object_counts_once() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        put(root, "HEAD", b"ref: refs/heads/main\n");
        put(root, &format!("objects/ab/{}", "c".repeat(38)), &[1; 100]);
        put(root, &format!("objects/ab/{}", "d".repeat(62)), &[1; 10]);
        put(root, "objects/ab/tmp_obj_xyz", &[1; 7]);
        put(root, "objects/info/packs", b"P");
        put(root, "objects/pack/pack-1.idx", &index(70_000, 2));
        put(root, "objects/pack/pack-2.idx", &index(5, 1));
        put(root, "objects/pack/pack-3.idx", b"");
        put(root, "objects/pack/pack-1.pack", &[2; 1000]);
        put(root, &format!("refs/ab/{}", "c".repeat(38)), b"no object");
        let size = measure_folder(root, || true).unwrap();
        assert_eq!(size.objects, 2 + 70_000 + 5);
        let bytes = 21 + 100 + 10 + 7 + 1 + (8 + 1024) + 1024 + 1000 + 9;
        assert_eq!(size.bytes, bytes);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/", folder.path().join("objects")).unwrap();
        let size = measure_folder(folder.path(), || true).unwrap();
        assert_eq!(size, RepoSize { bytes: 1, objects: 0 }, "the link itself");
    }

    #[test]
    fn a_walk_that_nobody_waits_for_ends() {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), "HEAD", b"x");
        let ended = measure_folder(folder.path(), || false).unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::Interrupted);
    }

    #[tokio::test]
    async fn a_repository_that_is_not_there_has_no_size() {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), "a.git/HEAD", b"12345");
        let root = folder.path().to_owned();
        let folders = Folders::new(move |name| (name != "hidden").then(|| root.join(format!("{name}.git"))));
        let size = folders.measure("a").await.unwrap();
        assert_eq!(size, Some(RepoSize { bytes: 5, objects: 0 }));
        assert_eq!(folders.measure("b").await.unwrap(), None);
        assert_eq!(folders.measure("hidden").await.unwrap(), None);
    }

    fn git(folder: &Path, arguments: &[&str]) -> String {
        #[expect(clippy::disallowed_methods, reason = "the git that the count is compared with")]
        let mut command = std::process::Command::new("git");
        let own = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "gc.auto=0"];
        command.current_dir(folder).args(own).args(arguments).env("GIT_CONFIG_GLOBAL", "/dev/null");
        let output = command.output().unwrap();
        assert!(output.status.success(), "git {arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn git_itself_counts_as_many_objects_loose_and_packed() {
        let folder = tempfile::tempdir().unwrap();
        let (work, bare) = (folder.path().join("work"), folder.path().join("bare.git"));
        git(folder.path(), &["init", "-q", "work"]);
        for n in 0..20 {
            put(&work, &format!("dir{}/file{n}", n % 3), n.to_string().as_bytes());
            git(&work, &["add", "."]);
            git(&work, &["commit", "-q", "-m", "more"]);
        }
        git(folder.path(), &["clone", "-q", "--bare", "--no-local", "work", "bare.git"]);
        let packed = measure_folder(&bare, || true).unwrap();
        assert!(packed.objects > 60, "{packed:?}");
        let counted = |folder: &Path| {
            let report = git(folder, &["count-objects", "-v"]);
            let number = |name: &str| -> u64 {
                let line = report.lines().find_map(|line| line.strip_prefix(name)).unwrap();
                line.trim().parse().unwrap()
            };
            number("count:") + number("in-pack:")
        };
        assert_eq!(packed.objects, counted(&bare));
        let loose = measure_folder(&work.join(".git"), || true).unwrap();
        assert_eq!(loose.objects, counted(&work));
        git(&work, &["push", "-q", "../bare.git", "HEAD:refs/heads/again", "HEAD~3:refs/tags/t"]);
        assert_eq!(measure_folder(&bare, || true).unwrap().objects, counted(&bare));
    }
}
