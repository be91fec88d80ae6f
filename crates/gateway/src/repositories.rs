//! The repositories of a node: bare, one directory each, below one root.
//!
//! ```text
//! root/tools.git, root/team/tools.git    what is served
//! root/.new/                             being made; gets its name when it is whole and on disk
//! root/.trash/<time>-<random>/           removed; nothing here is ever deleted by us
//! root/.hooks/<command>/                 the hooks of every push that is served (shim.rs)
//! root/.pushes/                          one empty file for each running push (claim.rs)
//! root/.turns/                           one file for each connection that may be served at once (ssh/turn.rs)
//! ```
//!
//! Names begin with a letter or digit, so none of ours can be asked for. Links are not followed: what is served lies
//! below the root. Everything but [`Repositories::create`] blocks, shortly.

mod shim;

use std::path::{Path, PathBuf};
use std::time::Duration;

use stargate_base::{clock, durable};
use stargate_git::{Git, Init, RefName, RepoDir};

pub use self::shim::{HOOKS, HookCommand, KEPT_SUFFIX};
use crate::error::{Error, Result};
use crate::name::{COMPONENTS_MAX, RepoName, SUFFIX};

/// Repositories that are listed at most.
pub const REPOSITORIES_MAX: usize = 100_000;

const NEW: &str = ".new";
const TRASH: &str = ".trash";
const SERVED_HOOKS: &str = ".hooks";
const PUSHES: &str = ".pushes";
const TURNS: &str = ".turns";

/// When something in `.new` or `.pushes` cannot belong to anybody any more.
const LEFT_OVER_AGE: Duration = Duration::from_secs(24 * 3600);

/// What is added to the configuration that git itself writes.
///
/// - `core.fsync`: git's default leaves loose objects and refs to the system; an accepted push could be lost with the
///   power (INV-1).
/// - `allowAnySHA1InWant`: who knows the id of an object that no ref reaches cannot fetch it, with protocol 0 and 1. In
///   protocol 2 git serves any object that is there, and knows no setting against it: what must not be read any more has
///   to be pruned (`git gc --prune=now`).
const CONFIGURATION: &str = "\
[core]
\tfsync = committed,reference
\tlogAllRefUpdates = true
[http]
\treceivepack = true
\tgetanyfile = false
[receive]
\tfsckObjects = true
\tadvertiseAtomic = true
[uploadpack]
\tallowFilter = true
\tallowAnySHA1InWant = false
";

/// The part of it without which a push is not safe.
const PUSH_SETTINGS: [&str; 3] =
    ["core.fsync=committed,reference", "receive.fsckObjects=true", "receive.advertiseAtomic=true"];

/// How git begins the names of directories in which the objects of a push wait until it is accepted.
const QUARANTINES: [&str; 2] = ["tmp_objdir-incoming-", "incoming-"];

/// The repositories below one root.
#[derive(Debug, Clone)]
pub struct Repositories {
    /// Absolute and without links.
    root: PathBuf,
    git: Git,
    hooks: HookCommand,
}

impl Repositories {
    /// Opens a root, which is made if it is not there.
    pub fn open(root: &Path, git: Git, hooks: HookCommand) -> Result<Self> {
        durable::create_dirs(root).map_err(Error::io("make", root))?;
        let root = root.canonicalize().map_err(Error::io("find", root))?;
        for name in [NEW, TRASH, SERVED_HOOKS, PUSHES, TURNS] {
            let path = root.join(name);
            durable::create_dirs(&path).map_err(Error::io("make", &path))?;
        }
        sweep(&root.join(NEW));
        sweep(&root.join(PUSHES));
        Ok(Self { root, git, hooks })
    }

    /// The git that serves them.
    pub fn git(&self) -> &Git {
        &self.git
    }

    /// What git is told for a push, as `name=value`, whatever the configuration of the repository says: one that was
    /// brought here from elsewhere has neither our hooks nor our settings.
    pub(crate) fn push_settings(&self, push_bytes_max: u64) -> Result<Vec<String>> {
        let hooks = self.hooks.directory(&self.root.join(SERVED_HOOKS))?;
        let mut settings: Vec<String> = PUSH_SETTINGS.map(str::to_owned).to_vec();
        settings.push(format!("core.hooksPath={}", hooks.display()));
        // The bound of the body once more, so that git stops before it has written more than that.
        settings.push(format!("receive.maxInputSize={push_bytes_max}"));
        Ok(settings)
    }

    /// Where the claims of running pushes are.
    pub(crate) fn pushes(&self) -> PathBuf {
        self.root.join(PUSHES)
    }

    /// Where SSH connections take turns.
    pub(crate) fn turns(&self) -> PathBuf {
        self.root.join(TURNS)
    }

    /// Removes what pushes that were killed with all their processes have left behind: git tidies up after itself, but
    /// not after SIGKILL.
    pub fn sweep_quarantines(&self) {
        for name in self.list().unwrap_or_default() {
            sweep_if(&name.path(&self.root).join("objects"), |name| {
                QUARANTINES.iter().any(|prefix| name.starts_with(prefix))
            });
        }
    }

    /// A repository by its name.
    pub fn find(&self, name: &RepoName) -> Result<RepoDir> {
        let path = name.path(&self.root);
        match RepoDir::open(&path) {
            // The opened path has no links, so any difference is one.
            Ok(dir) if dir.path() == path => Ok(dir),
            _ => Err(Error::NotFound { name: name.clone() }),
        }
    }

    /// Makes a repository. When it answers, the repository will be there after a crash too; before, nothing is.
    pub async fn create(&self, name: &RepoName, default_branch: &RefName) -> Result<RepoDir> {
        let path = name.path(&self.root);
        if path.symlink_metadata().is_ok() {
            return Err(Error::Exists { name: name.clone() });
        }
        let new = self.root.join(NEW).join(format!("{:032x}", rand::random::<u128>()));
        let init = Init { default_branch: default_branch.clone(), sha256: false };
        let made = self.git.init_bare(&new, &init).await;
        made.map_err(|source| Error::Git { what: "make a repository", source })?;
        let (this, name) = (self.clone(), name.clone());
        let finish = tokio::task::spawn_blocking(move || this.finish(&new, &path, name));
        finish.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
    }

    fn finish(&self, new: &Path, path: &Path, name: RepoName) -> Result<RepoDir> {
        let published = self.furnish(new).and_then(|()| {
            let parent = path.parent().unwrap_or(&self.root);
            durable::create_dirs(parent).map_err(Error::io("make", parent))?;
            match durable::publish(new, path) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                    Err(Error::Exists { name: name.clone() })
                }
                moved => moved.map_err(Error::io("publish", path)),
            }
        });
        if let Err(error) = published {
            // Nobody has seen it. What stays behind is swept a day later.
            let _ = std::fs::remove_dir_all(new);
            return Err(error);
        }
        self.find(&name)
    }

    /// Everything that a repository has besides what git makes, and all of it on disk.
    fn furnish(&self, dir: &Path) -> Result<()> {
        let path = dir.join("config");
        let written = std::fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        std::fs::write(&path, written + CONFIGURATION).map_err(Error::io("write", &path))?;
        // git may have put some there from a template of the system.
        self.hooks.install(dir)?;
        sync_tree(dir).map_err(Error::io("sync", dir))
    }

    /// Writes the hooks of a repository anew, for a binary that has moved. The answer is where hooks of others are kept
    /// that were there.
    pub fn install_hooks(&self, name: &RepoName) -> Result<Vec<PathBuf>> {
        self.hooks.install(self.find(name)?.path())
    }

    /// The names of all repositories, sorted.
    pub fn list(&self) -> Result<Vec<RepoName>> {
        let mut names = Vec::new();
        self.list_below(&self.root, "", 1, &mut names)?;
        names.sort();
        Ok(names)
    }

    fn list_below(&self, dir: &Path, prefix: &str, depth: usize, names: &mut Vec<RepoName>) -> Result<()> {
        for entry in std::fs::read_dir(dir).map_err(Error::io("list", dir))? {
            let entry = entry.map_err(Error::io("list", dir))?;
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let Ok(file_name) = entry.file_name().into_string() else { continue };
            let text = format!("{prefix}{file_name}");
            // What cannot be asked for is not listed: our own directories, and whatever else lies there.
            let Ok(name) = RepoName::parse(&text) else { continue };
            if !is_dir {
                continue;
            }
            if file_name.ends_with(SUFFIX) {
                if names.len() == REPOSITORIES_MAX {
                    return Err(Error::TooMany { root: self.root.clone(), max: REPOSITORIES_MAX });
                }
                if self.find(&name).is_ok() {
                    names.push(name);
                }
            } else if depth < COMPONENTS_MAX {
                match self.list_below(&entry.path(), &format!("{text}/"), depth + 1, names) {
                    // Removed meanwhile, or not ours to read: the others are served all the same.
                    Err(error @ Error::Io { .. }) => {
                        let cause = std::error::Error::source(&error).map(ToString::to_string);
                        tracing::warn!(%error, cause, "some repositories cannot be listed");
                    }
                    listed => listed?,
                }
            }
        }
        Ok(())
    }

    /// Takes a repository out of service, and says where it lies in the trash. Nothing of it is deleted; whoever
    /// fetches or pushes right now ends in the trash too.
    pub fn remove(&self, name: &RepoName) -> Result<PathBuf> {
        let from = self.find(name)?;
        let time = clock::wall().strftime("%Y%m%dT%H%M%SZ");
        let place = self.root.join(TRASH).join(format!("{time}-{:08x}", rand::random::<u32>()));
        let to = name.path(&place);
        let parent = to.parent().unwrap_or(&place);
        durable::create_dirs(parent).map_err(Error::io("make", parent))?;
        durable::publish(from.path(), &to).map_err(Error::io("move to the trash", from.path()))?;
        Ok(to)
    }
}

/// Removes what processes that died have left behind.
fn sweep(dir: &Path) {
    sweep_if(dir, |_| true);
}

/// The same of some names only.
fn sweep_if(dir: &Path, is_ours: impl Fn(&str) -> bool) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(&is_ours)) {
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        let modified = modified.ok().and_then(|time| jiff::Timestamp::try_from(time).ok());
        let age = modified.map(|time| clock::wall().duration_since(time));
        if age.is_some_and(|age| age > jiff::SignedDuration::try_from(LEFT_OVER_AGE).unwrap_or_default()) {
            let path = entry.path();
            let _ = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        }
    }
}

/// Makes all files of a directory and their names durable.
fn sync_tree(dir: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_tree(&entry.path())?;
        } else {
            std::fs::File::open(entry.path())?.sync_all()?;
        }
    }
    durable::sync_dir(dir)
}
