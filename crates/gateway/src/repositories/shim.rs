//! The hooks that lie in a repository: two lines of shell that hand over to the one binary.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use stargate_base::durable;

use crate::error::{Error, Result};

/// The hooks that are installed.
pub const HOOKS: [&str; 2] = ["pre-receive", "post-receive"];

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
        format!(
            "#!/bin/sh\n# Written by stargate; `stargate hook install` writes it anew.\nexec {}\n",
            words.join(" ")
        )
    }

    /// Writes the hooks into a repository, in place of others of the same name.
    pub(super) fn install(&self, repo: &Path) -> Result<()> {
        let dir = repo.join("hooks");
        durable::create_dirs(&dir).map_err(Error::io("make", &dir))?;
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
            HookCommand::new(program, &["hook"]).unwrap().install(repo.path()).unwrap();
        }
        for hook in HOOKS {
            let path = repo.path().join("hooks").join(hook);
            assert!(std::fs::read_to_string(&path).unwrap().contains("exec '/new' 'hook'"));
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o755);
        }
        assert_eq!(std::fs::read_dir(repo.path().join("hooks")).unwrap().count(), HOOKS.len());
    }
}
