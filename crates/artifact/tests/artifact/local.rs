//! Folders: locks, leftovers, and disks that refuse.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use stargate_artifact::{Artifacts as _, Error, Local, Published, Publisher, Unobserved};
use stargate_base::ErrorClass;

use crate::fixture::{Always, Fixture, Place, SMALL};

fn root(f: &Fixture) -> std::path::PathBuf {
    let Place::Local(root) = &f.place else { panic!("a folder") };
    root.clone()
}

#[tokio::test]
async fn a_publication_that_stands_still_makes_the_next_one_fail_for_now() {
    let f = Fixture::local();
    let dir = root(&f).join("results/17");
    std::fs::create_dir_all(&dir).unwrap();
    let lock = File::create(dir.join(".lock")).unwrap();
    lock.lock().unwrap();
    let store = Local::new(root(&f)).with_lock_patience(Duration::from_millis(100));
    let by = Publisher { attempt: "17-1", permit: &Always(true), steps: &Unobserved };
    let error = store.publish(&f.key, &f.file(1, SMALL), by).await.unwrap_err();
    assert!(matches!(error, Error::Busy { .. }) && error.to_string().contains("results/17/.lock"), "{error}");
    assert_eq!(error.class(), ErrorClass::RetryableTransient);
    assert_eq!(f.place.names().await, [""; 0], "its temporary file is gone");
    drop(lock);
    assert!(matches!(store.publish(&f.key, &f.file(1, SMALL), by).await, Ok(Published::Stored(_))));
}

#[tokio::test]
async fn leftovers_of_the_dead_go_and_those_of_the_living_stay() {
    let f = Fixture::local();
    let dir = root(&f).join("results/17");
    std::fs::create_dir_all(&dir).unwrap();
    let dead = dir.join(".clip.mp4.17-1.0a1b2c3d.tmp");
    let living = dir.join(".clip.mp4.17-2.0a1b2c3d.tmp");
    let other = dir.join(".notes.17-1.0a1b2c3d.tmp");
    for path in [&dead, &living, &other] {
        std::fs::write(path, "half").unwrap();
    }
    let lock = File::open(&living).unwrap();
    lock.lock().unwrap();
    f.publish("17-3", &f.file(1, SMALL)).await.unwrap();
    assert_eq!((dead.exists(), living.exists(), other.exists()), (false, true, true));
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
    let by = Publisher { attempt: "17-1", permit: &Always(true), steps: &Unobserved };
    for error in
        [store.publish(&f.key, &f.file(1, SMALL), by).await.unwrap_err(), store.check().await.unwrap_err()]
    {
        let text = error.to_string();
        assert!(text.starts_with("not allowed to") || text.starts_with("cannot"), "{text}");
        assert_eq!(error.class(), ErrorClass::RetryableTransient);
    }
    std::fs::set_permissions(root(&f), Permissions::from_mode(0o700)).unwrap();
}
