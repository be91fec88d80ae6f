//! The hooks that lie in a repository: two lines of shell that hand over to the one binary.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use stargate_base::durable;

use crate::error::{Error, Result};

/// The hooks that are installed.
pub const HOOKS: [&str; 2] = ["pre-receive", "post-receive"];

/// What hooks of others are called once ours are in their place; git does not run files of such names.
pub const KEPT_SUFFIX: &str = ".before-stargate";
/// Hooks of others that are kept of one name at most.
const KEPT_MAX: usize = 100;
/// How a hook of ours begins.
const OURS: &str = "#!/bin/sh\n# Written by stargate;";

/// The command that a hook hands over to, without the hook's name: usually the binary and `hook`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookCommand {
    program: PathBuf,
    arguments: Vec<String>,
}

impl HookCommand {
    /// Takes the path of a program, which must be absolute, and its first arguments.
    pub fn new(program: impl Into<PathBuf>, arguments: &[&str]) -> Result<Self> {
        let program = program.into();
        let refused =
            |problem: &str| Err(Error::Setting { setting: "hook program", problem: problem.to_owned() });
        if !program.is_absolute() {
            return refused("must be an absolute path: hooks run in the directory of their repository");
        }
        if program.to_str().is_none_or(|text| text.contains('\n')) {
            return refused("must be a path of plain text");
        }
        Ok(Self { program, arguments: arguments.iter().map(|&argument| argument.to_owned()).collect() })
    }

    /// The text of one hook.
    fn script(&self, hook: &str) -> String {
        let program = self.program.to_string_lossy();
        let words = std::iter::once(&*program).chain(self.arguments.iter().map(String::as_str));
        let words: Vec<String> = words.chain([hook]).map(quoted).collect();
        format!("{OURS} `stargate hook install` writes it anew.\nexec {}\n", words.join(" "))
    }

    /// Writes the hooks into a repository, in place of others of the same name. Those that are not ours are kept; the
    /// answer is what they are called now.
    pub(super) fn install(&self, repo: &Path) -> Result<Vec<PathBuf>> {
        let dir = repo.join("hooks");
        durable::create_dirs(&dir).map_err(Error::io("make", &dir))?;
        let mut kept = Vec::new();
        for hook in HOOKS {
            kept.extend(keep(&dir.join(hook)).map_err(Error::io("keep the hook", dir.join(hook)))?);
        }
        self.write(&dir)?;
        Ok(kept)
    }

    /// A directory below `all` with our hooks and no others. Programs that hand over differently have one each, so that
    /// none writes over the hooks of another. What is missing there is written.
    pub(super) fn directory(&self, all: &Path) -> Result<PathBuf> {
        let mut hasher = DefaultHasher::new();
        HOOKS.map(|hook| self.script(hook)).hash(&mut hasher);
        let dir = all.join(format!("{:016x}", hasher.finish()));
        let runs = |hook: &str| {
            let found = std::fs::metadata(dir.join(hook));
            found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 == 0o111)
        };
        if !HOOKS.into_iter().all(runs) {
            durable::create_dirs(&dir).map_err(Error::io("make", &dir))?;
            self.write(&dir)?;
        }
        Ok(dir)
    }

    fn write(&self, dir: &Path) -> Result<()> {
        for hook in HOOKS {
            let (to, from) = (dir.join(hook), dir.join(format!(".{hook}.{:08x}", rand::random::<u32>())));
            let written = durable::write_new(&from, self.script(hook).as_bytes()).and_then(|()| {
                std::fs::set_permissions(&from, std::fs::Permissions::from_mode(0o755))?;
                // Its mode too: git passes over a hook that may not be executed.
                std::fs::File::open(&from)?.sync_all()?;
                durable::replace(&from, &to)
            });
            if let Err(error) = written {
                let _ = std::fs::remove_file(&from);
                return Err(Error::io("write the hook", to)(error));
            }
        }
        Ok(())
    }
}

/// Gives a hook of somebody else a second name, and says which. It keeps its own until ours takes it: at no moment is
/// there none.
fn keep(hook: &Path) -> io::Result<Option<PathBuf>> {
    // What leads elsewhere is kept as such, wherever it leads.
    let old = match std::fs::symlink_metadata(hook) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found?,
    };
    let is_ours = || std::fs::read(hook).is_ok_and(|bytes| bytes.starts_with(OURS.as_bytes()));
    if old.is_file() && is_ours() {
        return Ok(None);
    }
    for n in 1..=KEPT_MAX {
        let mut name = hook.as_os_str().to_owned();
        name.push(KEPT_SUFFIX);
        if n > 1 {
            name.push(format!(".{n}"));
        }
        let name = PathBuf::from(name);
        match std::fs::hard_link(hook, &name) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // The same one, if we died between the two steps.
                if !std::fs::symlink_metadata(&name).is_ok_and(|kept| kept.ino() == old.ino()) {
                    continue;
                }
            }
            Err(error) => return Err(error),
        }
        durable::sync_dir(hook.parent().unwrap_or(hook))?;
        return Ok(Some(name));
    }
    Err(io::Error::other(format!("{KEPT_MAX} of them are kept already; remove some")))
}

/// A word that a shell takes as it is.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_hands_over_whatever_the_program_is_called() {
        let command = HookCommand::new("/opt/it's $HOME/stargate", &["hook"]).unwrap();
        let script = command.script("pre-receive");
        assert!(script.starts_with("#!/bin/sh\n"));
        assert!(script.ends_with("\nexec '/opt/it'\\''s $HOME/stargate' 'hook' 'pre-receive'\n"), "{script}");
    }

    #[test]
    fn a_program_that_hooks_could_not_find_is_refused() {
        assert!(HookCommand::new("stargate", &[]).is_err());
        assert!(HookCommand::new("/a\nb", &[]).is_err());
    }

    #[test]
    fn hooks_are_executable_and_replace_older_ones() {
        let repo = tempfile::tempdir().unwrap();
        for program in ["/old", "/new"] {
            let kept = HookCommand::new(program, &["hook"]).unwrap().install(repo.path()).unwrap();
            assert_eq!(kept, [""; 0].map(PathBuf::from));
        }
        for hook in HOOKS {
            let path = repo.path().join("hooks").join(hook);
            assert!(std::fs::read_to_string(&path).unwrap().contains("exec '/new' 'hook'"));
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o755);
        }
        assert_eq!(std::fs::read_dir(repo.path().join("hooks")).unwrap().count(), HOOKS.len());
    }

    #[test]
    fn each_command_has_a_directory_of_its_own_and_what_is_missing_there_is_written() {
        let root = tempfile::tempdir().unwrap();
        let [old, new] = ["/old", "/new"].map(|program| HookCommand::new(program, &["hook"]).unwrap());
        let dir = old.directory(root.path()).unwrap();
        assert_ne!(new.directory(root.path()).unwrap(), dir);
        let hook = dir.join("pre-receive");
        std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o644)).unwrap();
        std::fs::remove_file(dir.join("post-receive")).unwrap();
        assert_eq!(old.directory(root.path()).unwrap(), dir);
        for hook in HOOKS {
            let path = dir.join(hook);
            assert!(std::fs::read_to_string(&path).unwrap().contains("exec '/old' 'hook'"));
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o755);
        }
    }

    #[test]
    fn hooks_of_others_are_kept_each_under_a_name_of_its_own() {
        let repo = tempfile::tempdir().unwrap();
        let dir = repo.path().join("hooks");
        std::fs::create_dir(&dir).unwrap();
        let install = || HookCommand::new("/new", &["hook"]).unwrap().install(repo.path()).unwrap();
        let hook = dir.join("post-receive");
        for (text, name) in
            [("first", "post-receive.before-stargate"), ("second", "post-receive.before-stargate.2")]
        {
            std::fs::write(&hook, text).unwrap();
            // As after a death between the two steps.
            let kept = keep(&hook).unwrap().unwrap();
            assert_eq!(install(), std::slice::from_ref(&kept));
            assert_eq!(kept, dir.join(name));
            assert_eq!(std::fs::read_to_string(kept).unwrap(), text);
            // Not in place, or what was kept would be written too.
            std::fs::remove_file(&hook).unwrap();
        }
        std::os::unix::fs::symlink("/elsewhere/script", &hook).unwrap();
        let kept = install();
        assert_eq!(std::fs::read_link(&kept[0]).unwrap(), Path::new("/elsewhere/script"));
        assert!(std::fs::read_to_string(&hook).unwrap().contains("exec '/new'"));
        assert_eq!(install(), [""; 0].map(PathBuf::from));
    }
}
