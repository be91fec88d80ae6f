//! Directives from the disk, with clear words for what cannot be read.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::{Directive, FILE_BYTES_MAX, FILES_MAX, Place, Problem, parse};

/// Reads a file. `queues` are those that are declared.
pub fn read(path: &Path, queues: &[String]) -> Result<Directive, Vec<Problem>> {
    let text = text_of(path).map_err(|problem| vec![problem])?;
    parse(path, &text, queues)
}

/// The files of a directory that are directives by their name, in the order of their names. Others are passed over, and
/// so are directories in it.
pub fn files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if path.extension().is_some_and(|extension| extension == "toml") && !is_hidden && !path.is_dir() {
            found.push(path);
        }
        if found.len() > FILES_MAX {
            let problem = format!("there are more than {FILES_MAX} directives");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, problem));
        }
    }
    found.sort();
    Ok(found)
}

/// The text of a file, or why it has none.
pub(super) fn text_of(path: &Path) -> Result<String, Problem> {
    let problem = |text: String| Place::default().problem(path, text);
    let failed = |error: io::Error| problem(format!("cannot be read: {error}"));
    let about = std::fs::metadata(path).map_err(failed)?;
    // A pipe would keep the reader waiting.
    if !about.is_file() {
        return Err(problem("cannot be read: it is no file".to_owned()));
    }
    let mut bytes = Vec::new();
    let opened = File::open(path).map_err(failed)?;
    opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(problem(format!("has more than {FILE_BYTES_MAX} bytes, which is no directive's size")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let fits = error.utf8_error().valid_up_to();
        let before = String::from_utf8_lossy(&error.as_bytes()[..fits]);
        Place::of(&before, fits).problem(path, "is no UTF-8 from here on; save the file as UTF-8")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(path: &Path) -> String {
        let problems = read(path, &[]).unwrap_err();
        problems[0].to_string().replace(&path.parent().unwrap().display().to_string(), "")
    }

    #[test]
    fn files_that_cannot_be_read_are_told_in_words() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.toml");
        assert!(told(&path).starts_with("/a.toml:1:1: cannot be read: No such file"), "{}", told(&path));
        std::fs::write(&path, b"name = \"a\"\nqueue = \"\xff\"\n").unwrap();
        assert_eq!(told(&path), "/a.toml:2:10: is no UTF-8 from here on; save the file as UTF-8");
        std::fs::write(&path, vec![b'#'; FILE_BYTES_MAX as usize + 1]).unwrap();
        assert!(told(&path).contains("has more than 1048576 bytes"), "{}", told(&path));
        std::fs::create_dir(dir.path().join("b.toml")).unwrap();
        assert!(told(&dir.path().join("b.toml")).contains("it is no file"));
    }

    #[test]
    fn a_directory_is_read_in_the_order_of_names_without_what_is_no_directive() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b.toml", "a.toml", "a.schema.json", ".c.toml", "a.toml~"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        std::fs::create_dir(dir.path().join("d.toml")).unwrap();
        let names: Vec<PathBuf> = files(dir.path()).unwrap();
        assert_eq!(names, ["a.toml", "b.toml"].map(|name| dir.path().join(name)));
        assert!(files(&dir.path().join("none")).is_err());
    }
}
