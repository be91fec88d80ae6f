//! The lock of the embedded default.

use std::sync::Arc;
use std::time::Duration;

use stargate_leader::lease::{Acquired, Released, Renewed};
use stargate_leader::{FileLease, Lease as _, MemoryEpochs, Reason};

use crate::nodes::{Node, PATIENCE, bid, config};

const TTL: Duration = Duration::from_secs(3);

#[tokio::test]
async fn one_of_two_gets_the_lock_and_the_other_learns_who() {
    let home = tempfile::tempdir().unwrap();
    let (a, b) =
        (FileLease::new(home.path().join("leader.lock")), FileLease::new(home.path().join("leader.lock")));
    let (ours, theirs) = (bid("a", TTL), bid("b", TTL));
    assert_eq!(a.acquire(&ours).await.unwrap(), Acquired::Granted);
    let Acquired::Held(incumbent) = b.acquire(&theirs).await.unwrap() else {
        panic!("two locks on one file")
    };
    assert_eq!((incumbent.value.holder, incumbent.value.token), (ours.holder.clone(), Some(ours.token)));
    assert_eq!(b.inspect().await.unwrap().incumbent.unwrap().value.holder, ours.holder);
    assert_eq!(a.renew(&ours).await.unwrap(), Renewed::Extended);
    assert_eq!(b.renew(&theirs).await.unwrap(), Renewed::Lost);
}

#[tokio::test]
async fn a_release_frees_only_the_lock_of_the_same_bid() {
    let home = tempfile::tempdir().unwrap();
    let lease = FileLease::new(home.path().join("leader.lock"));
    let (first, second) = (bid("a", TTL), bid("a", TTL));
    assert_eq!(lease.acquire(&first).await.unwrap(), Acquired::Granted);
    assert_eq!(lease.release(&second).await.unwrap(), Released::NotOurs);
    assert_eq!(lease.renew(&first).await.unwrap(), Renewed::Extended);
    assert_eq!(lease.release(&first).await.unwrap(), Released::Freed);
    assert_eq!(lease.inspect().await.unwrap().incumbent, None);
    assert_eq!(lease.acquire(&second).await.unwrap(), Acquired::Granted);
    assert_eq!(lease.release(&first).await.unwrap(), Released::NotOurs);
    assert_eq!(lease.renew(&second).await.unwrap(), Renewed::Extended);
}

#[tokio::test]
async fn a_lock_whose_file_was_removed_or_replaced_is_lost() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("leader.lock");
    let (a, b) = (FileLease::new(&path), FileLease::new(&path));
    let (ours, theirs) = (bid("a", TTL), bid("b", TTL));
    assert_eq!(a.acquire(&ours).await.unwrap(), Acquired::Granted);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(a.renew(&ours).await.unwrap(), Renewed::Lost);
    assert_eq!(b.acquire(&theirs).await.unwrap(), Acquired::Granted);
    assert_eq!(a.renew(&ours).await.unwrap(), Renewed::Lost);
    assert_eq!(b.renew(&theirs).await.unwrap(), Renewed::Extended);
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_an_error_that_names_the_file() {
    let lease = FileLease::new("/nonexistent/leader.lock");
    let error = lease.acquire(&bid("a", TTL)).await.unwrap_err();
    assert!(
        error.to_string().starts_with("cannot acquire the leader lock in /nonexistent/leader.lock: "),
        "{error}"
    );
    assert_eq!(error.code(), "LEADER_LOCK_UNREACHABLE");
}

#[tokio::test]
async fn a_standby_takes_over_when_the_leader_ends_and_when_it_dies() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("leader.lock");
    let epochs = Arc::new(MemoryEpochs::default());
    // So long that nothing here happens because a lease ran out.
    let start = |name| {
        Node::start(config(name, Duration::from_secs(120)), Arc::new(FileLease::new(&path)), epochs.clone())
    };
    let a = start("a");
    drop(a.leads().await);
    let b = start("b");
    a.stop().await;
    drop(b.leads().await);
    let c = start("c");
    b.kill();
    drop(b);
    drop(tokio::time::timeout(PATIENCE, c.leadership.acquired()).await.expect("the kernel frees the lock"));
    let terms: Vec<_> =
        epochs.records().into_iter().map(|r| (r.epoch.get(), r.holder.instance, r.ended)).collect();
    let expected =
        [(1, "a".to_owned(), Some(Reason::Shutdown)), (2, "b".to_owned(), None), (3, "c".to_owned(), None)];
    assert_eq!(terms, expected);
    c.stop().await;
}
