//! The leader's mirrors: a worker for each repository that has the remote, for as long as this node leads.
//!
//! Repositories are looked for again and again; one that is new, or whose configuration has changed, gets a new worker.
//! Each worker compares the refs of both sides before it begins, so a new leader finds what the old one left undone. The
//! guard of the term is its permit, and stepping down waits until the last worker has let go of it. A lock that a leader
//! of an earlier term does not let go of, because it was stopped (SIGSTOP), is taken over after a while.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use stargate_base::chain;
use stargate_base::clock::Moment;
use stargate_git::RepoDir;
use stargate_leader::{Guard, Leadership};
use stargate_mirror::journal::trim_unread;
use stargate_mirror::report::WorkerState;
use stargate_mirror::{DeadLetters, Error, Handle, Round, Watch, Worker};
use stargate_web::MirrorPlace;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Places, Target};
use crate::failure::{Exit, Result};

/// Repositories that are mirrored at once at most.
const MIRRORS_MAX: usize = 256;
/// Looks for new lines in a second, all repositories together: with many, each is looked at less often.
const LOOKS_PER_SECOND_MAX: u32 = 200;
/// How long a leader of an earlier term may keep the lock of a repository: longer than a push that is under way is given
/// when its worker is to stop.
const TAKE_OVER_AFTER: Duration = Duration::from_secs(10);
/// How often old dead letters are looked for.
const PURGE_EVERY: Duration = Duration::from_secs(86_400);
/// How often journals that nobody reads are looked through.
const TRIM_EVERY: Duration = Duration::from_secs(3600);

/// What runs, for those who are asked how it is. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mirrors(Arc<Mutex<BTreeMap<String, Running>>>);

#[derive(Debug)]
struct Running {
    handle: Handle,
    place: MirrorPlace,
}

impl Mirrors {
    /// One line for people.
    pub(crate) fn summary(&self) -> String {
        let running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let states: Vec<_> = running.values().map(|running| running.handle.state()).collect();
        let waiting: u64 = states.iter().map(|state| state.backlog).sum();
        let away =
            states.iter().filter(|state| state.breaker == "open" || state.breaker == "probing").count();
        format!("{} mirrored, {waiting} entries waiting, {away} remotes away", states.len())
    }

    /// The repositories that are mirrored now.
    pub(crate) fn running(&self) -> Vec<MirrorPlace> {
        let running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        running.values().map(|running| running.place.clone()).collect()
    }

    /// What the workers say about themselves.
    pub(crate) fn states(&self) -> Vec<(String, WorkerState)> {
        let running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        running.iter().map(|(name, running)| (name.clone(), running.handle.state())).collect()
    }

    fn enter(&self, handle: Handle, place: MirrorPlace) {
        let name = place.repo.clone();
        let running = Running { handle, place };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name, running);
    }

    fn leave(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}

/// Mirrors in every term of this node until `stop`.
pub(crate) async fn run(places: Places, leadership: Leadership, mirrors: Mirrors, stop: CancellationToken) {
    let (places, mirrors, process, watch) = (&places, &mirrors, &stop, &watch());
    leadership
        .while_leading(stop.clone(), |guard| async move {
            let stopping = guard.stopping().child_token();
            let led = Term::new(places, mirrors, guard, watch.clone(), stopping.clone()).lead();
            tokio::pin!(led);
            tokio::select! {
                () = &mut led => {}
                () = process.cancelled() => {
                    stopping.cancel();
                    led.await;
                }
            }
        })
        .await;
}

/// Tells workers of new lines at once, where the system can.
pub(crate) fn watch() -> Option<Watch> {
    let complain = |error: &std::io::Error| {
        tracing::warn!(%error, "the system does not tell of new entries; they are looked for");
    };
    Watch::start().inspect_err(complain).ok()
}

/// One term.
struct Term<'a> {
    places: &'a Places,
    mirrors: &'a Mirrors,
    guard: Guard,
    watch: Option<Watch>,
    stopping: CancellationToken,
    /// Repositories whose lock a leader of an earlier term has, and since when that is known.
    held: HashMap<String, Moment>,
    /// What is known of each repository: when its configuration was changed, and what works for it.
    known: HashMap<String, Known>,
    workers: JoinSet<()>,
    /// The name of each of them.
    names: HashMap<tokio::task::Id, String>,
    /// What was complained about, so that it is said once.
    complaints: HashMap<String, String>,
}

struct Known {
    changed: Option<SystemTime>,
    /// Ends its worker; none if it needs none.
    stop: Option<CancellationToken>,
    worker: Option<tokio::task::Id>,
}

impl<'a> Term<'a> {
    fn new(
        places: &'a Places,
        mirrors: &'a Mirrors,
        guard: Guard,
        watch: Option<Watch>,
        stopping: CancellationToken,
    ) -> Self {
        let (known, held, complaints) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self {
            places,
            mirrors,
            guard,
            watch,
            stopping,
            held,
            known,
            workers: JoinSet::new(),
            names: HashMap::new(),
            complaints,
        }
    }

    async fn lead(mut self) {
        let mut scans = tokio::time::interval(self.places.mirror.rescan_every);
        scans.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut purges = tokio::time::interval(PURGE_EVERY);
        let mut trims = tokio::time::interval(TRIM_EVERY);
        let stopping = self.stopping.clone();
        loop {
            tokio::select! {
                biased;
                () = stopping.cancelled() => break,
                Some(ended) = self.workers.join_next_with_id(), if !self.workers.is_empty() => self.ended(ended),
                _ = scans.tick() => {
                    let scanned = self.scan().await;
                    self.complain("git.root", scanned.err().map(|failure| failure.message));
                }
                _ = purges.tick() => self.purge().await,
                _ = trims.tick() => self.trim().await,
            }
        }
        while let Some(ended) = self.workers.join_next_with_id().await {
            self.ended(ended);
        }
    }

    /// Looks at all repositories, starts what is missing and ends what is not wanted any more.
    async fn scan(&mut self) -> Result<()> {
        let places = self.places.clone();
        let listed = tokio::task::spawn_blocking(move || places.list()).await;
        let listed = listed.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        self.known.retain(|name, known| {
            let there = listed.iter().any(|(listed, _)| listed.as_str() == name);
            if let (false, Some(stop)) = (there, &known.stop) {
                stop.cancel();
            }
            there
        });
        let mut wanted = Vec::new();
        for (name, repo) in listed {
            if self.stopping.is_cancelled() {
                return Ok(());
            }
            // Before the configuration is read: what is changed from here on is seen by the next scan.
            let changed = changed(&repo);
            match self.known.get(name.as_str()) {
                Some(known) if known.changed == changed => continue,
                // Its remote may be another one now, and what lets us in there. The next scan starts it again.
                Some(Known { stop: Some(stop), .. }) => {
                    stop.cancel();
                    continue;
                }
                _ => {}
            }
            match self.places.target(name.to_string(), repo).await {
                Ok(target) if target.url.is_none() => {
                    self.known.insert(target.name, Known { changed, stop: None, worker: None });
                }
                Ok(target) => wanted.push((target, changed)),
                Err(failure) => self.complain(name.as_str(), Some(failure.message)),
            }
        }
        let all = self.workers.len() + wanted.len();
        for (target, changed) in wanted {
            if self.stopping.is_cancelled() || self.workers.len() >= MIRRORS_MAX {
                let problem = format!("more than {MIRRORS_MAX} repositories have a remote; the others wait");
                self.complain("repositories", Some(problem).filter(|_| all > MIRRORS_MAX));
                break;
            }
            let started = self.start(&target, changed, all).await;
            self.complain(&target.name, started.err().map(|failure| failure.message));
        }
        Ok(())
    }

    /// Starts the worker of a repository, one of so many.
    async fn start(&mut self, target: &Target, changed: Option<SystemTime>, all: usize) -> Result<()> {
        let mut worker = self.open(target, all).await?;
        let stop = self.stopping.child_token();
        self.mirrors.enter(worker.handle(), target.place());
        let watched =
            self.watch.as_ref().map(|watch| watch.add(target.repo.path(), worker.handle())).transpose();
        let watched = watched.map_err(|error| self.unwatched(&error)).ok();
        let (name, mirrors) = (target.name.clone(), self.mirrors.clone());
        tracing::info!(repo = name, remote = %target.config.remote, url = target.url, "mirroring");
        let ends = stop.clone();
        let worker = self.workers.spawn(async move {
            let (_shown, _watched) = (Shown { mirrors, name: name.clone() }, watched);
            match worker.run(stop).await {
                Ok(Round::NotLeader) => tracing::info!(repo = name, "not mirroring: another node leads"),
                Ok(_) => tracing::debug!(repo = name, "mirroring ended"),
                Err(error) => end_if_unsafe(&name, &error),
            }
        });
        self.names.insert(worker.id(), target.name.clone());
        let known = Known { changed, stop: Some(ends), worker: Some(worker.id()) };
        self.known.insert(target.name.clone(), known);
        Ok(())
    }

    fn unwatched(&mut self, error: &std::io::Error) {
        let problem =
            format!("the system tells of no more journals, so some are looked at again and again: {error}");
        self.complain("inotify", Some(problem));
    }

    async fn open(&mut self, target: &Target, all: usize) -> Result<Worker> {
        let (git, repo, mut config) = (target.git.clone(), target.repo.clone(), target.config.clone());
        let all = u32::try_from(all).unwrap_or(u32::MAX);
        config.poll_every = config.poll_every.max(Duration::from_secs(1) * all / LOOKS_PER_SECOND_MAX);
        config.epoch = Some(self.guard.epoch().get());
        config.take_over = self.held.get(&target.name).is_some_and(|since| since.age() >= TAKE_OVER_AFTER);
        let guard = self.guard.clone();
        let permit = Arc::new(move || guard.is_valid());
        let opened = tokio::task::spawn_blocking(move || Worker::open(git, repo, config, permit)).await;
        let opened = opened.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        if let Err(error) = &opened
            && error.is_fail_stop()
        {
            end_if_unsafe(&target.name, error);
        }
        match &opened {
            Err(Error::Locked { earlier: true, .. }) => {
                self.held.entry(target.name.clone()).or_insert_with(Moment::now);
            }
            _ => drop(self.held.remove(&target.name)),
        }
        Ok(opened?)
    }

    /// A worker is gone, also if it fell over. If its repository is still there, the next scan starts another.
    fn ended(&mut self, ended: Result<(tokio::task::Id, ()), tokio::task::JoinError>) {
        let id = match ended {
            Ok((id, ())) => id,
            Err(error) => {
                tracing::error!(%error, "a mirror fell over; it is started again");
                error.id()
            }
        };
        let Some(name) = self.names.remove(&id) else { return };
        // One that was removed and made again has a new worker already.
        if self.known.get(&name).is_some_and(|known| known.worker == Some(id)) {
            self.known.remove(&name);
        }
    }

    /// Removes dead letters that were requeued and are beyond their retention. Open ones are an operator's to remove: a
    /// clock that is years ahead when a node starts must not cost what exists nowhere else.
    async fn purge(&self) {
        let (places, retention) = (self.places.clone(), self.places.mirror.retention);
        let purged = tokio::task::spawn_blocking(move || {
            for (name, repo) in places.list().unwrap_or_default() {
                if !repo.path().join(".stargate/dead-letter").is_dir() {
                    continue;
                }
                match DeadLetters::open(repo.path()).and_then(|letters| letters.purge_requeued(retention)) {
                    Ok(ids) if ids.is_empty() => {}
                    Ok(ids) => {
                        tracing::info!(repo = %name, count = ids.len(), "old dead letters were removed")
                    }
                    Err(error) if error.is_fail_stop() => end_if_unsafe(name.as_str(), &error),
                    Err(error) => {
                        tracing::warn!(repo = %name, error = chain(&error), "old dead letters could not be removed");
                    }
                }
            }
        });
        drop(purged.await);
    }

    /// Bounds the journals of repositories that have no mirror. One whose mirror does not start keeps everything.
    async fn trim(&self) {
        let (places, stopping) = (self.places.clone(), self.stopping.clone());
        let unread = |name: &str| self.known.get(name).is_some_and(|known| known.stop.is_none());
        let listed = tokio::task::spawn_blocking(move || places.list().unwrap_or_default()).await;
        let idle = listed.unwrap_or_default().into_iter().filter(|(name, _)| unread(name.as_str()));
        let idle: Vec<_> = idle.filter(|(_, repo)| repo.path().join(".stargate").is_dir()).collect();
        let (instance, age) =
            (self.places.mirror.config.instance.clone(), self.places.mirror.config.journal_retention);
        let trimmed = tokio::task::spawn_blocking(move || {
            for (name, repo) in idle {
                if stopping.is_cancelled() {
                    return;
                }
                match trim_unread(repo.path(), &instance, age) {
                    Ok(numbers) if numbers.is_empty() => {}
                    Ok(numbers) => tracing::info!(
                        repo = %name,
                        segments = numbers.len(),
                        "old segments of a journal that nobody reads were removed"
                    ),
                    Err(error) if error.is_fail_stop() => end_if_unsafe(name.as_str(), &error),
                    Err(error) => {
                        tracing::warn!(repo = %name, error = chain(&error), "a journal could not be trimmed");
                    }
                }
            }
        });
        drop(trimmed.await);
    }

    /// Says what is wrong, once for as long as it is the same.
    fn complain(&mut self, about: &str, problem: Option<String>) {
        let Some(problem) = problem else {
            self.complaints.remove(about);
            return;
        };
        if self.complaints.get(about) != Some(&problem) {
            tracing::warn!(about, problem, "cannot mirror; tried again");
            self.complaints.insert(about.to_owned(), problem);
        }
    }
}

/// In the list for as long as the worker lives, also if it is dropped.
struct Shown {
    mirrors: Mirrors,
    name: String,
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.mirrors.leave(&self.name);
    }
}

/// When the configuration of a repository was changed.
fn changed(repo: &RepoDir) -> Option<SystemTime> {
    std::fs::metadata(repo.path().join("config")).and_then(|metadata| metadata.modified()).ok()
}

/// After a failed sync nobody knows what is on disk: this process must not go on with what it believes.
pub(super) fn end_if_unsafe(name: &str, error: &Error) {
    tracing::error!(repo = name, error = chain(error), "mirroring ended");
    if error.is_fail_stop() {
        tracing::error!("this process ends: a disk does not keep what was written");
        std::process::exit(Exit::Failed as i32);
    }
}
