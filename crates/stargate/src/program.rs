//! Looks for programs as the system does.

use std::path::Path;

/// As the system looks for a program: a path as it is, a name in PATH.
pub(crate) fn found(program: &Path, working_dir: Option<&Path>) -> bool {
    if program.as_os_str().as_encoded_bytes().contains(&b'/') {
        let path = working_dir.map_or_else(|| program.to_owned(), |dir| dir.join(program));
        return executable(&path);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| executable(&dir.join(program)))
}

fn executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}
