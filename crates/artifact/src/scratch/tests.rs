//! Scratch directories on a real file system.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;

const KIB: u64 = 1 << 10;
const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);

fn root(dir: &tempfile::TempDir, bytes_max: u64) -> Root {
    Root::new(dir.path().join("scratch"), Limits { age_max: WEEK, bytes_max }, false)
}

fn fill(dir: &Path, name: &str, kib: usize) {
    std::fs::write(dir.join(name), vec![7; kib << 10]).unwrap();
}

fn age(path: &Path, by: Duration) {
    let then = SystemTime::from(stargate_base::clock::wall()) - by;
    File::open(path).unwrap().set_modified(then).unwrap();
}

/// What is there without asking the code under test.
fn on_disk(root: &Root) -> u64 {
    let sizes = std::fs::read_dir(root.path()).unwrap().flat_map(|dir| {
        std::fs::read_dir(dir.unwrap().path()).unwrap().map(|file| file.unwrap().metadata().unwrap().len())
    });
    sizes.sum()
}

#[tokio::test]
async fn a_success_leaves_nothing_and_a_failure_leaves_everything() {
    let home = tempfile::tempdir().unwrap();
    let root = root(&home, 1 << 30);
    let good = root.enter("17", 1).await.unwrap();
    let bad = root.enter("17", 1).await.unwrap();
    assert_ne!(good.path(), bad.path(), "each execution has its own");
    let (good_path, bad_path) = (good.path().to_owned(), bad.path().to_owned());
    fill(&good_path, "out", 64);
    fill(&bad_path, "out", 64);
    good.succeeded().await;
    let kept = bad.failed().await;
    assert!(!good_path.exists());
    assert!(kept >= 64 * KIB, "{kept}");
    assert_eq!(std::fs::read(bad_path.join("out")).unwrap().len(), 64 << 10);
}

#[tokio::test]
async fn successes_stay_when_that_is_asked_for() {
    let home = tempfile::tempdir().unwrap();
    let root = Root::new(home.path(), Limits::default(), true);
    let scratch = root.enter("17", 1).await.unwrap();
    let path = scratch.path().to_owned();
    scratch.succeeded().await;
    assert!(path.exists());
}

#[tokio::test]
async fn a_directory_in_use_is_never_collected_and_one_left_behind_is() {
    let home = tempfile::tempdir().unwrap();
    let root = root(&home, 0);
    let scratch = root.enter("17", 1).await.unwrap();
    let path = scratch.path().to_owned();
    fill(&path, "out", 64);
    age(&path, 2 * WEEK);
    // Another process has its own view of the same root.
    let other = Root::new(root.path(), Limits { age_max: WEEK, bytes_max: 0 }, false);
    let done = other.collect().await.unwrap();
    assert_eq!((done.in_use, done.removed, done.kept), (1, 0, 0));
    assert!(path.join("out").exists());

    drop(scratch);
    assert!(path.exists(), "an execution that was ended leaves its directory");
    let done = other.collect().await.unwrap();
    assert_eq!((done.in_use, done.removed, done.kept), (0, 1, 0));
    assert!(!path.exists());
}

#[tokio::test]
async fn a_child_process_does_not_hold_the_lock() {
    let home = tempfile::tempdir().unwrap();
    let root = root(&home, 0);
    let scratch = root.enter("17", 1).await.unwrap();
    #[expect(clippy::disallowed_methods, reason = "a child that outlives its execution")]
    let mut child =
        std::process::Command::new("sleep").arg("600").current_dir(scratch.path()).spawn().unwrap();
    drop(scratch);
    let done = root.collect().await.unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!((done.in_use, done.kept), (0, 0));
}

#[tokio::test]
async fn what_is_too_old_goes_and_age_counts_from_the_end() {
    let home = tempfile::tempdir().unwrap();
    let root = root(&home, 1 << 30);
    let (old, long) = (root.enter("1", 1).await.unwrap(), root.enter("2", 1).await.unwrap());
    let (old_path, long_path) = (old.path().to_owned(), long.path().to_owned());
    age(&long_path, 2 * WEEK);
    old.failed().await;
    long.failed().await;
    age(&old_path, WEEK + Duration::from_secs(60));
    let done = root.collect().await.unwrap();
    assert_eq!((done.removed, done.kept), (1, 1));
    assert!(!old_path.exists() && long_path.exists());
}

#[tokio::test]
async fn the_oldest_go_first_until_the_rest_fits() {
    let home = tempfile::tempdir().unwrap();
    let generous = root(&home, 1 << 30);
    let mut paths = Vec::new();
    for job in 0..4_u64 {
        let scratch = generous.enter(&job.to_string(), 1).await.unwrap();
        paths.push(scratch.path().to_owned());
        fill(scratch.path(), "out", 256);
        scratch.failed().await;
        age(&paths[paths.len() - 1], Duration::from_secs(600 - 60 * job));
    }
    let done = root(&home, 600 * KIB).collect().await.unwrap();
    assert_eq!((done.removed, done.kept), (2, 2), "{done:?}");
    assert!(done.kept_bytes <= 600 * KIB, "{done:?}");
    assert_eq!(paths.iter().map(|path| path.exists()).collect::<Vec<_>>(), [false, false, true, true]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_failures_never_take_up_more_than_the_limit() {
    const LIMIT: u64 = 512 * KIB;
    const AT_ONCE: usize = 8;
    let home = tempfile::tempdir().unwrap();
    let root = root(&home, LIMIT);
    let tasks = stargate_base::Tasks::new();
    let mut most = 0;
    for round in 0..1000 / AT_ONCE {
        let failing: Vec<_> = (0..AT_ONCE)
            .map(|job| {
                let root = root.clone();
                tasks.spawn(async move {
                    let scratch = root.enter(&format!("{}", round * AT_ONCE + job), 1).await.unwrap();
                    fill(scratch.path(), "out", 16);
                    scratch.failed().await
                })
            })
            .collect();
        for failed in failing {
            assert!(failed.await.unwrap() >= 16 * KIB);
        }
        most = most.max(on_disk(&root));
    }
    assert!(most <= LIMIT, "{most} bytes were kept, the limit is {LIMIT}");
    assert!(most >= LIMIT / 2, "only {most} bytes were kept, the limit is {LIMIT}");
}

#[tokio::test]
async fn a_directory_left_behind_wakes_the_collector() {
    let home = tempfile::tempdir().unwrap();
    let root = root(&home, 0);
    let tasks = stargate_base::Tasks::new();
    let running = tasks.spawn(root.clone().run(WEEK, tasks.stopping()));
    let scratch = root.enter("17", 1).await.unwrap();
    let path = scratch.path().to_owned();
    fill(&path, "out", 64);
    drop(scratch);
    stargate_testkit::eventually(Duration::from_secs(20), "the collector", || {
        let there = path.exists();
        async move { if there { Err("it is still there".to_owned()) } else { Ok(()) } }
    })
    .await;
    tasks.join().await;
    running.await.unwrap();
}

#[tokio::test]
async fn what_is_not_ours_is_left_alone() {
    let home = tempfile::tempdir().unwrap();
    let root = root(&home, 0);
    root.enter("17", 1).await.unwrap().succeeded().await;
    for name in
        ["photos", "my-2-photos", "17-1-abcdef", "17-70000-00000000000a", "-1-00000000000a", "lost+found"]
    {
        let path = root.path().join(name);
        std::fs::create_dir(&path).unwrap();
        fill(&path, "out", 64);
        age(&path, 2 * WEEK);
    }
    // Named like ours, but a file and a link.
    std::fs::write(root.path().join("17-1-00000000000a"), "x").unwrap();
    symlink(root.path().join("photos"), root.path().join("17-1-00000000000b")).unwrap();
    assert_eq!(root.collect().await.unwrap(), Collected::default());
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 8);
    assert!(root.path().join("photos/out").exists());
    assert!(matches!(root.enter("../17", 1).await, Err(Error::ScratchName { .. })));
}

#[tokio::test]
async fn links_are_neither_measured_nor_followed() {
    let home = tempfile::tempdir().unwrap();
    let outside = home.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    fill(&outside, "precious", 1024);
    let root = root(&home, 1 << 30);
    for keep in [true, false] {
        let scratch = root.enter("17", 1).await.unwrap();
        let path = scratch.path().to_owned();
        symlink(&outside, path.join("dir")).unwrap();
        symlink(outside.join("precious"), path.join("file")).unwrap();
        symlink("loop", path.join("loop")).unwrap();
        if keep {
            let bytes = scratch.failed().await;
            assert!(bytes < 1024 * KIB, "{bytes}");
            age(&path, 2 * WEEK);
            assert_eq!(root.collect().await.unwrap().removed, 1);
        } else {
            scratch.succeeded().await;
        }
        assert!(!path.exists());
        assert_eq!(std::fs::metadata(outside.join("precious")).unwrap().len(), 1024 * KIB);
    }
}

#[tokio::test]
async fn unreadable_and_deep_directories_are_measured_and_removed() {
    let home = tempfile::tempdir().unwrap();
    let root = root(&home, 1 << 30);
    for keep in [true, false] {
        let scratch = root.enter("17", 1).await.unwrap();
        let path = scratch.path().to_owned();
        let inner = path.join("inner");
        std::fs::create_dir(&inner).unwrap();
        fill(&inner, "out", 64);
        let deep = (0..200).fold(path.clone(), |path, _| path.join("d"));
        std::fs::create_dir_all(&deep).unwrap();
        fill(&deep, "out", 4);
        for locked in [&inner, &path] {
            std::fs::set_permissions(locked, std::fs::Permissions::from_mode(0o000)).unwrap();
        }
        if keep {
            let bytes = scratch.failed().await;
            assert!(bytes >= 64 * KIB, "{bytes}");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
            let tight = Root::new(root.path(), Limits { age_max: WEEK, bytes_max: 0 }, false);
            assert_eq!(tight.collect().await.unwrap().removed, 1);
        } else {
            scratch.succeeded().await;
        }
        assert!(!path.exists());
    }
}

#[tokio::test]
async fn a_root_that_is_not_there_holds_nothing_and_one_that_cannot_be_made_is_an_error() {
    let home = tempfile::tempdir().unwrap();
    assert_eq!(root(&home, 0).collect().await.unwrap(), Collected::default());
    std::fs::write(home.path().join("file"), "x").unwrap();
    let root = Root::new(home.path().join("file/scratch"), Limits::default(), false);
    let error = root.enter("17", 1).await.unwrap_err();
    assert!(error.to_string().contains("file/scratch"), "{error}");
    assert_eq!(error.class(), stargate_base::ErrorClass::RetryableTransient);
}
