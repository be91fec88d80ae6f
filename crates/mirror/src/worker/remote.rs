//! What is known of the other side, and how to find out more.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use stargate_git::{Git, Oid, RefName, Refs, RepoDir, Update};

use crate::classify::{Verdict, judge_error};
use crate::config::Config;
use crate::plan::Task;

/// How many parked refs are remembered; of more, each entry gets all its tries.
const PARKED_MAX: usize = 10_000;

/// How many refs are remembered that the other side has further than we know them; of more, each comparison looks again.
const AHEAD_MAX: usize = 10_000;

/// How closely to look whether the other side has something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// Before a push. What follows on what is there is not looked at: the push will say.
    Glance,
    /// After the other side has refused: compare histories, and fetch what we do not have.
    Closely,
}

/// What is known of the other side.
pub(super) struct Remote {
    git: Git,
    repo: RepoDir,
    config: Config,
    /// Its refs, as far as they concern us; nothing until it was asked.
    known: Option<Refs>,
    /// Refs whose last entry it did not want.
    parked: HashSet<RefName>,
    /// Refs that it has further than we know them: what they are here, and what there.
    ahead: HashMap<RefName, (Oid, Oid)>,
}

impl Remote {
    pub(super) fn new(git: Git, repo: RepoDir, config: Config) -> Self {
        Self { git, repo, config, known: None, parked: HashSet::new(), ahead: HashMap::new() }
    }

    /// Its refs, as of the last time it was asked, and what was pushed since.
    pub(super) fn known(&self) -> Option<&Refs> {
        self.known.as_ref()
    }

    /// Asks for its refs. An error says what kind of trouble there is.
    pub(super) async fn ask(&mut self) -> Result<(), Verdict> {
        let Config { remote, routes, push_timeout, .. } = &self.config;
        match self.git.ls_remote(&self.repo, remote, &routes.there(), *push_timeout).await {
            Ok(refs) => {
                self.known = Some(refs);
                Ok(())
            }
            Err(error) => Err(Verdict::new(judge_error(&error), error.to_string())),
        }
    }

    /// These refs are there now: it said so itself.
    pub(super) fn learn(&mut self, updates: &[Update]) {
        let known = self.known.get_or_insert_default();
        for update in updates {
            known.insert(update.to.clone(), update.oid.clone());
        }
    }

    /// What is known may be wrong; ask before the next push.
    pub(super) fn forget(&mut self) {
        self.known = None;
    }

    /// Whether the other side has what a task wants: the same, or something that descends from it.
    pub(super) async fn has(&self, task: &Task, look: Look) -> bool {
        let Some(known) = &self.known else { return false };
        let Some(there) = known.get(&task.route.to) else { return false };
        if *there == task.oid {
            // A watermark that stayed behind is moved by pushing again.
            return task.route.watermark.as_ref().is_none_or(|watermark| known.get(watermark) == Some(there));
        }
        if look == Look::Glance && task.old.as_ref() == Some(there) {
            return false;
        }
        self.descends(&task.oid, there, &task.route.to, look).await
    }

    /// Whether `there`, which `name` is on the other side, descends from `oid`. What cannot be found out is a no: the
    /// push is then refused, not forced.
    async fn descends(&self, oid: &Oid, there: &Oid, name: &RefName, look: Look) -> bool {
        if let Ok(answer) = self.git.is_ancestor(&self.repo, oid, there).await {
            return answer;
        }
        if look == Look::Glance || self.git.has_object(&self.repo, there).await.unwrap_or(true) {
            return false;
        }
        let Config { remote, push_timeout, .. } = &self.config;
        match self.git.fetch_aside(&self.repo, remote, name, *push_timeout).await {
            Ok(aside) => aside.git().is_ancestor(&self.repo, oid, there).await.unwrap_or(false),
            Err(_) => false,
        }
    }

    /// Whether the repository has the object of a task.
    pub(super) async fn object_is_here(&self, task: &Task) -> bool {
        self.git.has_object(&self.repo, &task.oid).await.unwrap_or(true)
    }

    /// Whether the entries of one ref form a chain: each is the last one or an ancestor of it.
    pub(super) async fn is_chain(&self, oids: &[&Oid]) -> bool {
        let (Some(first), Some(last)) = (oids.first(), oids.last()) else { return true };
        if first == last {
            return oids.iter().all(|oid| oid == last);
        }
        match self.git.commits_between(&self.repo, first, last).await {
            Ok(Some(commits)) => oids.iter().all(|oid| commits.contains(*oid)),
            _ => false,
        }
    }

    /// A task was found to be there. If it is further, that need not be found out again.
    pub(super) fn note_ahead(&mut self, task: &Task) {
        let there = self.known.as_ref().and_then(|known| known.get(&task.route.to));
        if let Some(there) = there.filter(|there| **there != task.oid)
            && (self.ahead.len() < AHEAD_MAX || self.ahead.contains_key(&task.name))
        {
            self.ahead.insert(task.name.clone(), (task.oid.clone(), there.clone()));
        }
    }

    /// Refs that it has further than we know them: what they are here, and what there.
    pub(super) fn ahead(&self) -> &HashMap<RefName, (Oid, Oid)> {
        &self.ahead
    }

    pub(super) fn park(&mut self, name: &RefName) {
        if self.parked.len() < PARKED_MAX {
            self.parked.insert(name.clone());
        }
    }

    pub(super) fn unpark(&mut self, name: &RefName) {
        if !self.parked.is_empty() {
            self.parked.remove(name);
        }
    }

    pub(super) fn is_parked(&self, name: &RefName) -> bool {
        self.parked.contains(name)
    }

    pub(super) fn parked(&self) -> Vec<String> {
        let mut names: Vec<String> = self.parked.iter().map(ToString::to_string).collect();
        names.sort_unstable();
        names
    }

    pub(super) fn git(&self) -> &Git {
        &self.git
    }

    pub(super) fn repo(&self) -> &RepoDir {
        &self.repo
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn push_timeout(&self) -> Duration {
        self.config.push_timeout
    }
}
