//! Folders: locks, leftovers, and disks that refuse.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use stargate_artifact::{Artifacts as _, Error, Local, Published};
use stargate_base::ErrorClass;

use crate::fixture::{Fixture, Place, SMALL, by};

fn root(f: &Fixture) -> PathBuf {
    let Place::Local(root) = &f.place else { panic!("a folder") };
    root.clone()
}

/// A place among the temporary files.
fn partial(f: &Fixture, name: &str) -> PathBuf {
    let dir = root(f).join(".partial");
    std::fs::create_dir_all(&dir).unwrap();
    dir.join(name)
}

#[tokio::test]
async fn a_publication_that_stands_still_makes_the_next_one_fail_for_now() {
    let f = Fixture::local();
    let path = partial(&f, "results+17+clip.mp4.lock");
    std::fs::write(&path, "attempt 17-1 in process 4711 on elsewhere").unwrap();
    let lock = File::open(&path).unwrap();
    lock.lock().unwrap();
    let store = Local::new(root(&f)).with_lock_patience(Duration::from_millis(100));
    let error = store.publish(&f.key, &f.file(1, SMALL), by("17-2")).await.unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    let text = error.to_string();
    assert!(text.starts_with(path.to_str().unwrap()) && text.ends_with("4711 on elsewhere"), "{text}");
    assert_eq!(error.class(), ErrorClass::RetryableTransient);
    let lock_name = ".partial/results+17+clip.mp4.lock";
    assert_eq!(f.place.names().await, [lock_name], "its temporary file is gone");
    assert_eq!(store.sweep(Duration::ZERO).await.unwrap(), 0, "it is in use");
    drop(lock);
    assert!(matches!(store.publish(&f.key, &f.file(1, SMALL), by("17-2")).await, Ok(Published::Stored(_))));
    assert_eq!(f.place.names().await, ["results/17/clip.mp4", "results/17/clip.mp4.json"]);
}

#[tokio::test]
async fn leftovers_of_the_dead_go_and_those_of_the_living_stay() {
    let f = Fixture::local();
    let dead = partial(&f, "results+17+clip.mp4+17-1+0a1b2c3d.tmp");
    let living = partial(&f, "results+17+clip.mp4+17-2+0a1b2c3d.tmp");
    let other = partial(&f, "results+17+notes+17-1+0a1b2c3d.tmp");
    for path in [&dead, &living, &other] {
        std::fs::write(path, "half").unwrap();
    }
    let lock = File::open(&living).unwrap();
    lock.lock().unwrap();
    f.publish("17-3", &f.file(1, SMALL)).await.unwrap();
    assert_eq!((dead.exists(), living.exists(), other.exists()), (false, true, true));
}

#[tokio::test]
async fn a_sweep_takes_what_is_old_and_unused_and_nothing_else() {
    const HOUR: Duration = Duration::from_secs(3600);
    let f = Fixture::local();
    assert_eq!(f.store.sweep(HOUR).await.unwrap(), 0, "there is nothing yet");
    f.publish("17-1", &f.file(1, SMALL)).await.unwrap();
    let old = SystemTime::from(stargate_base::clock::wall()) - 2 * HOUR;
    let make = |name: &str, is_old: bool| {
        let path = partial(&f, name);
        let file = File::create_new(&path).unwrap();
        if is_old {
            file.set_modified(old).unwrap();
        }
        (path, file)
    };
    let gone =
        ["results+18+clip.mp4+18-1+0a1b2c3d.tmp", "results+18+clip.mp4.lock"].map(|name| make(name, true).0);
    let (used, file) = make("results+19+clip.mp4+19-1+0a1b2c3d.tmp", true);
    file.lock().unwrap();
    let (held, lock) = make("results+19+clip.mp4.lock", true);
    lock.lock().unwrap();
    let young = make("results+20+clip.mp4+20-1+0a1b2c3d.tmp", false).0;
    let foreign = make("notes.txt", true).0;
    assert_eq!(f.store.sweep(HOUR).await.unwrap(), 2);
    assert!(gone.iter().all(|path| !path.exists()));
    assert!([used, held, young, foreign].iter().all(|path| path.exists()));
    drop((file, lock));
    assert_eq!(f.store.sweep(HOUR).await.unwrap(), 2, "those whose process is gone");
    assert!(f.place.read("results/17/clip.mp4").await.is_some());
}

#[tokio::test]
async fn a_folder_that_is_a_file_is_an_error_with_its_path() {
    let f = Fixture::local();
    std::fs::write(root(&f), "x").unwrap();
    let error = f.publish("17-1", &f.file(1, SMALL)).await.unwrap_err();
    assert!(error.to_string().contains("artifacts/results/17"), "{error}");
    assert_eq!(error.class(), ErrorClass::RetryableTransient);
    assert!(f.store.check().await.is_err());
}

#[tokio::test]
async fn a_folder_that_may_not_be_written_to_is_an_error_that_says_so() {
    let f = Fixture::local();
    std::fs::create_dir_all(root(&f)).unwrap();
    std::fs::set_permissions(root(&f), Permissions::from_mode(0o500)).unwrap();
    // The superuser may write anywhere; its files can be protected by the kernel's own file systems only.
    let store = match rustix::process::geteuid().is_root() {
        true => Local::new("/proc/sys/kernel"),
        false => Local::new(root(&f)),
    };
    let published = store.publish(&f.key, &f.file(1, SMALL), by("17-1")).await;
    for error in [published.unwrap_err(), store.check().await.unwrap_err()] {
        let text = error.to_string();
        assert!(text.starts_with("not allowed to") || text.starts_with("cannot"), "{text}");
        assert_eq!(error.class(), ErrorClass::RetryableTransient);
    }
    std::fs::set_permissions(root(&f), Permissions::from_mode(0o700)).unwrap();
}
