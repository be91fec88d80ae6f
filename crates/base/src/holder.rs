//! Who holds a file lock, for the message of whoever waits for it in vain.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;

use rustix::fs::{major, minor};

/// How often the list of locks is looked through. The system tells it in pieces, and a line can be skipped when other
/// locks end between two of them.
const LOOKS: usize = 32;

/// A process that holds a lock, as far as the system tells.
#[derive(Debug, Clone)]
pub struct Holder(Option<Process>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Process {
    id: u32,
    name: String,
    state: char,
}

impl Holder {
    /// Looks who holds the lock on a file now. Costs too much for more than messages.
    pub fn of(file: &File) -> Self {
        let process = || {
            let about = file.metadata().ok()?;
            let place = format!("{:02x}:{:02x}:{}", major(about.dev()), minor(about.dev()), about.ino());
            let look = || {
                let locks = std::fs::read_to_string("/proc/locks").ok()?;
                locks.lines().find_map(|line| holder_in(line, &place))
            };
            let id = std::iter::repeat_with(look).take(LOOKS).flatten().next()?;
            let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
            process_in(&stat)
        };
        Self(process())
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Other systems, and processes of other containers.
        let Some(Process { id, name, state }) = &self.0 else { return f.write_str("a process unknown here") };
        write!(f, "process {id} ({name})")?;
        match state {
            'T' | 't' => write!(f, ", which is stopped (kill -CONT {id} lets it go on)"),
            'D' => f.write_str(", which waits for the disk"),
            _ => Ok(()),
        }
    }
}

/// The process of a line of `/proc/locks`, if that is about the holder of this lock:
/// `7: FLOCK  ADVISORY  WRITE 4242 fd:01:1234 0 EOF`. Those who wait have `->` after the number.
fn holder_in(line: &str, place: &str) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    if words.next()? != "FLOCK" {
        return None;
    }
    let id = words.nth(2)?;
    // Of a process that this one cannot see there is no id, or 0.
    if words.next()? == place { id.parse().ok().filter(|id| *id > 0) } else { None }
}

/// The process of `/proc/ID/stat`: `4242 (name) S …`; the name may hold anything.
fn process_in(stat: &str) -> Option<Process> {
    let (id, rest) = stat.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    Some(Process { id: id.parse().ok()?, name: name.to_owned(), state: rest.chars().next()? })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn the_holder_is_told_from_those_who_wait_and_from_other_locks() {
        let place = "fd:01:1234";
        assert_eq!(holder_in("7: FLOCK  ADVISORY  WRITE 4242 fd:01:1234 0 EOF", place), Some(4242));
        for other in [
            "7: -> FLOCK  ADVISORY  WRITE 4242 fd:01:1234 0 EOF",
            "7: FLOCK  ADVISORY  WRITE 4242 fd:01:12345 0 EOF",
            "7: POSIX  ADVISORY  WRITE 4242 fd:01:1234 0 EOF",
            "7: FLOCK  ADVISORY  WRITE -1 fd:01:1234 0 EOF",
            "7: FLOCK  ADVISORY  WRITE 0 fd:01:1234 0 EOF",
            "",
        ] {
            assert_eq!(holder_in(other, place), None, "{other}");
        }
    }

    #[test]
    fn a_stopped_process_is_named_with_its_remedy() {
        let process = process_in("42 (a) b (c) T 1 42 42 0").unwrap();
        assert_eq!(process, Process { id: 42, name: "a) b (c".to_owned(), state: 'T' });
        let text = Holder(Some(process)).to_string();
        assert_eq!(text, "process 42 (a) b (c), which is stopped (kill -CONT 42 lets it go on)");
    }

    #[test]
    fn a_lock_of_this_process_is_its_own() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(Holder::of(file.as_file()).to_string(), "a process unknown here");
        file.as_file().lock().unwrap();
        let text = Holder::of(file.as_file()).to_string();
        assert!(text.starts_with(&format!("process {} (", std::process::id())), "{text}");
    }

    #[test]
    fn the_holder_is_found_while_others_take_and_give_back_their_locks() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().lock().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (dir, done) = (dir.path(), &done);
                scope.spawn(move || {
                    let open = |n| File::create(dir.join(format!("{thread}-{n}"))).unwrap();
                    let files: Vec<File> = (0..200).map(open).collect();
                    while !done.load(Ordering::Relaxed) {
                        files.iter().for_each(|file| file.lock().unwrap());
                        files.iter().for_each(|file| file.unlock().unwrap());
                    }
                });
            }
            let unknown = (0..500).filter(|_| Holder::of(file.as_file()).0.is_none()).count();
            done.store(true, Ordering::Relaxed);
            assert_eq!(unknown, 0);
        });
    }
}
