//! Files that somebody could have planted are not used.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use stargate_base::ErrorClass;
use stargate_mirror::status::Record;
use stargate_mirror::{Checkpoint, DeadLetters, Error, Journal, Result, Statuses, WorkerLock};

use crate::fixture::{Repo, entry};

fn allow(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn assert_unsafe<T>(result: Result<T>, what: &str) {
    match result {
        Err(error @ Error::Unsafe { .. }) => {
            assert_eq!((error.class(), error.code()), (ErrorClass::Fatal, "MIRROR_FILES_UNSAFE"));
        }
        Err(error) => panic!("{what}: {error}"),
        Ok(_) => panic!("{what} was used"),
    }
}

/// Everything that opens the file.
fn use_all(repo: &Repo) -> [(&'static str, Result<()>); 5] {
    let path = repo.path();
    let record = Record::new("1", 0, stargate_mirror::status::Status::Completed, 1);
    [
        ("mirror-journal.ndjson", Journal::open(path).and_then(|j| j.append(&[entry(1)])).map(drop)),
        ("mirror-worker.offset", Checkpoint::load(path).map(drop)),
        ("mirror-status.ndjson", Statuses::open(path).and_then(|s| s.append(&[record]))),
        ("mirror-dead-letter.ndjson", DeadLetters::open(path).and_then(|d| d.rebuild_view())),
        ("worker.lock", WorkerLock::acquire(path, "a").map(drop)),
    ]
}

#[test]
fn links_and_files_that_everybody_may_write_are_refused() {
    for index in 0..5 {
        type Plant = fn(&Path);
        let plants: [(&str, Plant); 4] = [
            ("a link to a file", |path| {
                let target = path.with_extension("elsewhere");
                std::fs::write(&target, "").unwrap();
                symlink(target, path).unwrap();
            }),
            ("a link to nothing", |path| symlink("/nowhere", path).unwrap()),
            ("a directory", |path| std::fs::create_dir(path).unwrap()),
            ("a file for everybody", |path| {
                std::fs::write(path, "").unwrap();
                allow(path, 0o666);
            }),
        ];
        for (what, plant) in plants {
            let repo = Repo::new();
            repo.journal();
            let name = use_all(&Repo::new())[index].0;
            plant(&repo.file(name));
            let [.., (_, result)] = &mut { use_all(&repo) }[..=index] else { unreachable!() };
            let result = std::mem::replace(result, Ok(()));
            // A directory cannot be opened for writing at all.
            if what == "a directory" && !matches!(result, Err(Error::Unsafe { .. })) {
                assert!(result.is_err(), "{name}");
                continue;
            }
            assert_unsafe(result, &format!("{what} as {name}"));
        }
    }
}

#[test]
fn a_directory_that_is_a_link_or_open_to_everybody_is_refused() {
    let elsewhere = tempfile::tempdir().unwrap();
    let repo = Repo::new();
    symlink(elsewhere.path(), repo.path().join(".stargate")).unwrap();
    for (name, result) in use_all(&repo) {
        assert_unsafe(result, name);
    }
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);

    let repo = Repo::new();
    repo.journal();
    allow(&repo.path().join(".stargate"), 0o777);
    for (name, result) in use_all(&repo) {
        assert_unsafe(result, name);
    }
}

#[test]
fn a_pipe_in_the_place_of_the_journal_holds_nobody_up() {
    let repo = Repo::new();
    repo.journal();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        repo.active(),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    assert_unsafe(repo.journal().append(&[entry(1)]), "a pipe");
    assert_unsafe(repo.journal().read_all(), "a pipe");
}

#[test]
fn what_is_made_may_be_written_by_its_owner_only() {
    let repo = Repo::new();
    for (name, result) in use_all(&repo) {
        result.unwrap();
        let Ok(found) = std::fs::metadata(repo.file(name)) else { continue };
        assert_eq!(found.permissions().mode() & 0o022, 0, "{name}");
    }
    assert_eq!(std::fs::metadata(repo.path().join(".stargate")).unwrap().permissions().mode() & 0o022, 0);
}

#[test]
fn a_repository_that_is_not_there_is_not_made() {
    let error = Journal::open(Path::new("/nonexistent/repo.git")).unwrap_err();
    assert_eq!(error.code(), "IO");
    assert!(error.to_string().contains("/nonexistent/repo.git/.stargate"), "{error}");
}

#[test]
fn the_second_worker_is_told_who_the_first_is() {
    let repo = Repo::new();
    let first = WorkerLock::acquire(repo.path(), "node-a").unwrap();
    let error = WorkerLock::acquire(repo.path(), "node-b").unwrap_err();
    assert_eq!(error.code(), "MIRROR_LOCKED");
    let text = error.to_string();
    assert!(text.contains("node-a") && text.contains(&std::process::id().to_string()), "{text}");
    drop(first);
    WorkerLock::acquire(repo.path(), "node-b").unwrap();
}

/// A child has all open files of its parent until it becomes another program, locks included.
#[test]
fn a_lock_that_is_let_go_is_free_at_once_although_children_are_being_started() {
    let repo = Repo::new();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    #[expect(clippy::disallowed_methods, reason = "a child, whatever it does")]
                    let mut child = std::process::Command::new("true");
                    child.status().unwrap();
                }
            });
        }
        let failed = (0..300).find_map(|_| WorkerLock::acquire(repo.path(), "node").err());
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(failed.is_none(), "{failed:?}");
    });
}
