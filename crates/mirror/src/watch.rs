//! Wakes workers when somebody writes to their journals: a hook, a command, or a program of others.
//!
//! The system tells it (inotify), once for all journals of a process. That is for speed only: a worker also looks by
//! itself now and then, because some file systems tell nothing of what other machines write.

#[cfg(target_os = "linux")]
mod system {
    use std::collections::HashMap;
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;
    use std::path::Path;
    use std::sync::{Arc, Mutex, PoisonError, Weak};

    use rustix::fs::inotify::{self, CreateFlags, Event, ReadFlags, Reader, WatchFlags};
    use rustix::io::Errno;

    use crate::files::DIR;
    use crate::journal::ACTIVE;
    use crate::worker::Handle;

    /// Room for what the system tells at once.
    const EVENT_BYTES: usize = 8 * 1024;

    /// Tells workers of new lines. Cheap to clone.
    #[derive(Debug, Clone)]
    pub struct Watch(Arc<Inner>);

    #[derive(Debug)]
    struct Inner {
        told: OwnedFd,
        workers: Mutex<HashMap<i32, Handle>>,
    }

    /// A journal is watched for as long as this lives.
    #[derive(Debug)]
    pub struct Watched {
        inner: Arc<Inner>,
        id: i32,
    }

    impl Watch {
        /// Starts a thread that waits for what the system tells. It ends when nobody uses this any more.
        pub fn start() -> io::Result<Self> {
            let told = inotify::init(CreateFlags::CLOEXEC)?;
            let ear = told.try_clone()?;
            let inner = Arc::new(Inner { told, workers: Mutex::default() });
            let weak = Arc::downgrade(&inner);
            std::thread::Builder::new()
                .name("stargate-watch".to_owned())
                .spawn(move || listen(&ear, &weak))?;
            Ok(Self(inner))
        }

        /// Wakes a worker from now on whenever the journal of its repository is written.
        pub fn add(&self, repo: &Path, worker: Handle) -> io::Result<Watched> {
            // The directory, because the file is another one when a segment is full.
            let flags = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
            // Nobody is told of the first event before the worker is entered.
            let mut workers = self.0.workers.lock().unwrap_or_else(PoisonError::into_inner);
            let id = inotify::add_watch(&self.0.told, repo.join(DIR), flags)?;
            // What was written before is seen now.
            worker.wake();
            workers.insert(id, worker);
            Ok(Watched { inner: Arc::clone(&self.0), id })
        }
    }

    fn listen(ear: &OwnedFd, inner: &Weak<Inner>) {
        let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
        let mut events = Reader::new(ear, &mut buffer);
        loop {
            match events.next() {
                Ok(event) => match inner.upgrade() {
                    Some(inner) => inner.pass_on(&event),
                    None => return,
                },
                Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::warn!(%error, "the system tells no more of new entries; they are looked for");
                    return;
                }
            }
        }
    }

    impl Inner {
        fn pass_on(&self, event: &Event<'_>) {
            let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                workers.values().for_each(Handle::wake);
            } else if event.file_name().is_some_and(|name| name.to_bytes() == ACTIVE.as_bytes())
                && let Some(worker) = workers.get(&event.wd())
            {
                worker.wake();
            }
        }
    }

    impl Drop for Inner {
        fn drop(&mut self) {
            // The end of a watch is told too, so the thread looks up and sees that nobody is left.
            if let Ok(id) = inotify::add_watch(&self.told, "/", WatchFlags::DELETE_SELF) {
                let _ = inotify::remove_watch(&self.told, id);
            }
        }
    }

    impl Drop for Watched {
        fn drop(&mut self) {
            let mut workers = self.inner.workers.lock().unwrap_or_else(PoisonError::into_inner);
            workers.remove(&self.id);
            // It is gone already if the directory is.
            let _ = inotify::remove_watch(&self.inner.told, self.id);
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::io;
    use std::path::Path;

    use crate::worker::Handle;

    /// Here nobody tells of new lines, and workers look by themselves.
    #[derive(Debug, Clone)]
    pub struct Watch(());

    /// Never made here.
    #[derive(Debug)]
    pub struct Watched(());

    impl Watch {
        /// Not on this system.
        pub fn start() -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        /// Not on this system.
        pub fn add(&self, _: &Path, _: Handle) -> io::Result<Watched> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }
}

pub use system::{Watch, Watched};

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::sync::Notify;

    use super::*;
    use crate::worker::Handle;
    use crate::{Journal, NewEntry};

    const PATIENCE: Duration = Duration::from_secs(30);

    async fn woken(wake: &Arc<Notify>, what: &str) {
        let woken = tokio::time::timeout(PATIENCE, wake.notified()).await;
        woken.unwrap_or_else(|_| panic!("nobody was woken by {what}"));
    }

    fn entry() -> NewEntry {
        let (ref_name, new_oid) = ("refs/kv/main".to_owned(), "c".repeat(40));
        NewEntry { ref_name, new_oid, source: "test".to_owned(), ..NewEntry::default() }
    }

    #[tokio::test]
    async fn a_worker_is_woken_by_each_entry_also_when_the_file_is_another_one() {
        let (repo, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        // Each segment holds one entry.
        let journals = [&repo, &other].map(|repo| Journal::open_with(repo.path(), 1).unwrap());
        let watch = Watch::start().unwrap();
        let ((handle, wake), (other_handle, other_wake)) = (Handle::of_nobody(), Handle::of_nobody());
        let watched = watch.add(repo.path(), handle).unwrap();
        let _other = watch.add(other.path(), other_handle).unwrap();
        for wake in [&wake, &other_wake] {
            woken(wake, "the beginning").await;
        }
        for n in 0..5 {
            journals[0].append(&[entry()]).unwrap();
            woken(&wake, &format!("entry {n}")).await;
        }
        drop(watched);
        journals[0].append(&[entry()]).unwrap();
        // What the system tells is in order: the other one is woken after whatever the first could have been told.
        journals[1].append(&[entry()]).unwrap();
        woken(&other_wake, "an entry of the other repository").await;
    }

    #[tokio::test]
    async fn the_thread_ends_with_the_last_user() {
        let name = |task: &std::path::Path| std::fs::read_to_string(task.join("comm")).unwrap_or_default();
        let count = || {
            let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
            tasks.filter(|task| name(&task.path()).trim() == "stargate-watch").count()
        };
        let until = async |done: fn(usize) -> bool, what: &str| {
            let wait = async {
                while !done(count()) {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("{} {what}", count()));
        };
        let watches: Vec<Watch> = (0..20).map(|_| Watch::start().unwrap()).collect();
        // A thread gets its name when it begins.
        until(|count| count >= 20, "threads have begun").await;
        drop(watches);
        // Another test of this process may have one.
        until(|count| count <= 1, "threads do not end").await;
    }
}
