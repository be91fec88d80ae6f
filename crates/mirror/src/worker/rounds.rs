//! One round of work: look, decide, act, record.

use std::time::Duration;

use stargate_base::clock;
use tokio::time::Instant;

use super::books::{Settlement, Surrender, lost};
use super::doubt::Spent;
use super::tries::{self, Tried, Via};
use super::{Round, TIDY_EVERY, WINDOW, WINDOW_COALESCED, Worker};
use crate::breaker::State;
use crate::classify::{Outcome, Verdict};
use crate::dead_letter::{Reason, Return};
use crate::error::Result;
use crate::plan::{self, Next, Pending, Task, What};
use crate::report::WorkerState;
use crate::status::Status;

/// `via` of an entry that went with a newer one of its ref.
const COALESCED: &str = "coalesced";
/// What a push that is under way is given when what came before it cannot be recorded.
const FAILURE_GRACE: Duration = Duration::from_millis(250);

impl Worker {
    /// One round. Tests call it; [`Worker::run`] and [`Worker::drain`] do nothing else.
    pub async fn run_once(&mut self) -> Result<Round> {
        let round = self.round().await;
        self.show(round.as_ref().ok()).await?;
        round
    }

    async fn round(&mut self) -> Result<Round> {
        if !self.means.permit.may_push() {
            return Ok(Round::NotLeader);
        }
        if self.means.stop.is_cancelled() {
            return Ok(Round::Stopped);
        }
        self.tidy().await?;
        let due = self.reconciled.is_none_or(|at| at.elapsed() >= self.remote.config().reconcile_every);
        if due && let Some(wait) = self.reconcile().await? {
            // Lines that need no push are worked on all the same.
            return self.local_work().await.map(|worked| if worked { Round::Worked } else { wait });
        }
        let window = self.window();
        self.on_books(move |books| books.fill(window)).await?;
        match self.decide() {
            Next::Nothing => self.nothing_pending().await,
            Next::Malformed | Next::Refuse | Next::Pass(_) => {
                self.local_work().await?;
                Ok(Round::Worked)
            }
            Next::Push(count) => self.push(count).await,
            Next::Stretch(count) => self.stretch(count).await,
        }
    }

    fn window(&self) -> usize {
        if self.remote.config().coalesce { WINDOW_COALESCED } else { WINDOW }
    }

    fn decide(&mut self) -> Next {
        let coalesces = self.remote.config().coalesce && self.singly == 0;
        let most = if coalesces && *self.breaker.state() == State::Closed { WINDOW_COALESCED } else { 0 };
        let remote = &self.remote;
        self.books
            .as_mut()
            .map_or(Next::Nothing, |books| plan::next(books.pending(), most, |name| remote.is_parked(name)))
    }

    /// Work that needs no remote: lines that are no entries, that must not be pushed, or that are done. False if the
    /// first line is none of these.
    async fn local_work(&mut self) -> Result<bool> {
        let window = self.window();
        self.on_books(move |books| books.fill(window)).await?;
        match self.decide() {
            Next::Malformed => self.malformed().await?,
            Next::Refuse => self.refuse().await?,
            Next::Pass(count) => self.on_books(move |books| books.pass(count)).await?,
            Next::Nothing | Next::Push(_) | Next::Stretch(_) => return Ok(false),
        }
        Ok(true)
    }

    /// Reads a line that is no entry again, a few times, then gives it up.
    async fn malformed(&mut self) -> Result<()> {
        let since = clock::wall();
        let (rereads, backoff) =
            (self.remote.config().malformed_rereads, self.remote.config().malformed_backoff);
        for reread in 1..=rereads {
            crate::metrics::retried("malformed");
            tokio::select! {
                () = tokio::time::sleep(backoff.delay(reread)) => {}
                // It is read again after the restart.
                () = self.means.stop.cancelled() => return Ok(()),
            }
            if self.on_books(super::Books::reread).await? {
                return Ok(());
            }
        }
        let error = match self.first().map(|entry| entry.what) {
            Some(What::Malformed(error)) => error,
            _ => return Ok(()),
        };
        let verdict = Verdict::new(Outcome::Local, error);
        self.surrender(1, verdict, Reason::Malformed, Return::Never, rereads + 1, since).await.map(drop)
    }

    async fn refuse(&mut self) -> Result<()> {
        let error = match self.first().map(|entry| entry.what) {
            Some(What::Refuse(error)) => error,
            _ => return Ok(()),
        };
        let verdict = Verdict::new(Outcome::Local, error);
        self.surrender(1, verdict, Reason::Local, Return::Never, 0, clock::wall()).await.map(drop)
    }

    fn first(&mut self) -> Option<Pending> {
        self.books.as_mut().and_then(|books| books.pending().first().cloned())
    }

    fn tasks(&mut self, from: usize, count: usize) -> Vec<Task> {
        let pending = self.books.as_mut().map_or(&[][..], |books| books.pending());
        let tasks = pending.iter().skip(from).take(count).filter_map(|entry| match &entry.what {
            What::Push(task) => Some(task.clone()),
            _ => None,
        });
        tasks.collect()
    }

    /// Pushes the first entries together, and goes on with those that follow for as long as all goes well.
    async fn push(&mut self, count: usize) -> Result<Round> {
        let mut probing = match self.leave().await? {
            Ok(probing) => probing,
            Err(round) => return Ok(round),
        };
        let mut tasks = self.tasks(0, count);
        let tries = if probing { 1 } else { self.tries_for(&tasks) };
        let mut tried = self.try_push(&tasks, tries).await;
        loop {
            match tried {
                Tried::There { vias, attempts } => {
                    self.answered().await?;
                    probing = false;
                    let settlements = self.settlements(&tasks, &vias, attempts);
                    let Some(ahead) = self.ahead(tasks.len()) else {
                        self.on_books(move |books| books.settle(&settlements)).await?;
                        return Ok(Round::Worked);
                    };
                    tried = self.settle_and_push(settlements, &ahead).await?;
                    tasks = ahead;
                }
                Tried::Spent { verdict, attempts, since } => {
                    return self.spent(Spent { tasks, probing, verdict, attempts, since }).await;
                }
                Tried::NotLeader => return Ok(Round::NotLeader),
                Tried::Stopped => return Ok(Round::Stopped),
            }
        }
    }

    /// A parked ref gets one try: it must not hold up the others.
    fn tries_for(&self, tasks: &[Task]) -> u32 {
        let parked = tasks.iter().any(|task| self.remote.is_parked(&task.name));
        if parked { 1 } else { self.remote.config().push_tries }
    }

    pub(super) async fn try_push(&mut self, tasks: &[Task], tries: u32) -> Tried {
        let tasks: Vec<&Task> = tasks.iter().collect();
        tries::push(&mut self.remote, &tasks, tries, &self.means).await
    }

    /// What can be pushed while the first `count` entries are being recorded.
    ///
    /// If the process dies then, the remote is further than the records; the entries are found to be there when they
    /// are read again.
    fn ahead(&mut self, count: usize) -> Option<Vec<Task>> {
        let ready = *self.breaker.state() == State::Closed && !self.means.stop.is_cancelled();
        let coalesces = self.remote.config().coalesce && self.singly <= count;
        if !ready || coalesces || self.remote.known().is_none() {
            return None;
        }
        let pending = self.books.as_mut()?.pending().get(count..)?;
        match plan::next(pending, 0, |_| false) {
            Next::Push(following) => Some(self.tasks(count, following)),
            _ => None,
        }
    }

    /// Records what is done and pushes what comes next, at the same time.
    async fn settle_and_push(&mut self, settlements: Vec<Settlement>, ahead: &[Task]) -> Result<Tried> {
        let mut books = self.books.take().ok_or_else(lost)?;
        let recorded = tokio::task::spawn_blocking(move || books.settle(&settlements).map(|()| books));
        let recorded = async { recorded.await.map_err(|_| lost())? };
        let tries = self.tries_for(ahead);
        let (recorded, tried) = side_by_side(recorded, self.try_push(ahead, tries)).await;
        // Without them the books are opened anew.
        self.books = Some(recorded?);
        tried.ok_or_else(lost)
    }

    /// Pushes the newest of each ref of the first entries, if each of those descends from the others of its ref.
    async fn stretch(&mut self, count: usize) -> Result<Round> {
        let probing = match self.leave().await? {
            Ok(probing) => probing,
            Err(round) => return Ok(round),
        };
        let mut tasks = if probing { Vec::new() } else { self.tasks(0, count) };
        while tasks.len() > 1 && !self.are_chains(&tasks).await {
            tasks.truncate(plan::whole(&tasks, tasks.len() / 2));
        }
        if tasks.len() <= 1 {
            self.singly = 1;
            return Ok(Round::Worked);
        }
        let all: Vec<&Task> = tasks.iter().collect();
        let newest = plan::newest(&all);
        match tries::push(&mut self.remote, &newest, 1, &self.means).await {
            Tried::There { vias, attempts } => {
                self.answered().await?;
                self.settle_stretch(&tasks, &newest, &vias, attempts).await?;
                Ok(Round::Worked)
            }
            Tried::Spent { .. } => {
                // Whose fault it is, they show one by one.
                self.singly = tasks.len();
                Ok(Round::Worked)
            }
            Tried::NotLeader => Ok(Round::NotLeader),
            Tried::Stopped => Ok(Round::Stopped),
        }
    }

    async fn are_chains(&self, tasks: &[Task]) -> bool {
        let mut refs: Vec<(&stargate_git::RefName, Vec<&stargate_git::Oid>)> = Vec::new();
        for task in tasks {
            match refs.iter_mut().find(|(name, _)| *name == &task.route.to) {
                Some((_, oids)) => oids.push(&task.oid),
                None => refs.push((&task.route.to, vec![&task.oid])),
            }
        }
        for (_, oids) in refs.iter().filter(|(_, oids)| oids.len() > 1) {
            if !self.remote.is_chain(oids).await {
                return false;
            }
        }
        true
    }

    async fn settle_stretch(
        &mut self,
        tasks: &[Task],
        newest: &[&Task],
        vias: &[Via],
        attempts: u32,
    ) -> Result<()> {
        let settlements: Vec<Settlement> = tasks
            .iter()
            .map(|task| {
                let itself = newest.iter().position(|other| std::ptr::eq(*other, task));
                match itself.and_then(|index| vias.get(index)) {
                    Some(via) => settlement(task, *via, attempts),
                    None if task.requeued => {
                        Settlement { status: Status::Superseded, via: COALESCED, attempts }
                    }
                    None => Settlement { status: Status::Completed, via: COALESCED, attempts },
                }
            })
            .collect();
        self.on_books(move |books| books.settle(&settlements)).await
    }

    fn settlements(&mut self, tasks: &[Task], vias: &[Via], attempts: u32) -> Vec<Settlement> {
        for task in tasks {
            self.remote.unpark(&task.name);
        }
        self.taken |= vias.contains(&Via::Push);
        for (task, _) in tasks.iter().zip(vias).filter(|(_, via)| **via == Via::AlreadyMirrored) {
            self.remote.note_ahead(task);
        }
        self.singly = self.singly.saturating_sub(tasks.len());
        tasks.iter().zip(vias).map(|(task, via)| settlement(task, *via, attempts)).collect()
    }

    pub(super) async fn surrender(
        &mut self,
        count: usize,
        verdict: Verdict,
        reason: Reason,
        returns: Return,
        attempts: u32,
        first_attempt_at: jiff::Timestamp,
    ) -> Result<Vec<String>> {
        self.singly = self.singly.saturating_sub(count);
        let surrender = Surrender { verdict, reason, returns, attempts, first_attempt_at };
        self.on_books(move |books| books.give_up(count, &surrender)).await
    }

    async fn tidy(&mut self) -> Result<()> {
        if self.tidied.elapsed() < TIDY_EVERY {
            return Ok(());
        }
        self.tidied = Instant::now();
        let retention = self.remote.config().journal_retention;
        self.on_books(move |books| books.tidy(retention)).await
    }

    /// Tells metrics, handles and other processes how it stands.
    async fn show(&mut self, round: Option<&Round>) -> Result<()> {
        let away = *self.breaker.state() != State::Closed;
        self.metrics.away(away);
        // What waits is counted when something may have changed and there is time.
        if round != Some(&Round::Worked) || self.shown.is_none_or(|at| at.elapsed() > super::SHOW_EVERY) {
            self.shown = Some(Instant::now());
            let window = self.window();
            if let Ok(backlog) = self.on_books(move |books| books.backlog(window)).await {
                self.metrics.waiting(backlog.entries, backlog.lag.as_secs_f64());
                self.state.send_modify(|state| {
                    state.backlog = backlog.entries;
                    state.lag_ms = u64::try_from(backlog.lag.as_millis()).unwrap_or(u64::MAX);
                });
            }
        }
        let breaker = self.breaker.state().as_str();
        let (failures, parked) = (self.breaker.failures(), self.remote.parked());
        let changed = self.state.send_if_modified(|state| {
            let new = WorkerState {
                running: true,
                breaker: breaker.to_owned(),
                failed_probes: failures,
                parked,
                ..state.clone()
            };
            let changed = new.differs_for_others(state);
            *state = new;
            changed
        });
        if changed && self.lock.is_ours() {
            let state = self.state.borrow().clone();
            let repo = self.remote.repo().path().to_owned();
            let stored = tokio::task::spawn_blocking(move || state.store(&repo)).await;
            match stored {
                Ok(Err(error)) if error.is_fail_stop() => return Err(error),
                Ok(Err(error)) => tracing::warn!(%error, "cannot tell others how the mirror stands"),
                _ => {}
            }
        }
        Ok(())
    }

    /// Nobody works here any more. An error ends the process if it is a sync that failed.
    pub(super) fn note_end(&self) -> Result<()> {
        if !self.lock.is_ours() || !self.state.borrow().running {
            return Ok(());
        }
        self.state.send_modify(|state| state.running = false);
        let state = self.state.borrow().clone();
        match state.store(self.remote.repo().path()) {
            Err(error) if error.is_fail_stop() => Err(error),
            Err(error) => {
                tracing::debug!(%error, "cannot tell others that the mirror ended");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}

fn settlement(task: &Task, via: Via, attempts: u32) -> Settlement {
    let status = match via {
        Via::AlreadyMirrored if task.requeued => Status::Superseded,
        Via::AlreadyMirrored | Via::Push => Status::Completed,
    };
    Settlement { status, via: via.as_str(), attempts }
}

/// Waits for a recording and for a push. A disk that fails is not to be waited with, and a push may hang: it is then
/// left, and the remote is asked later what became of it.
async fn side_by_side<T>(
    recorded: impl Future<Output = Result<T>>,
    push: impl Future<Output = Tried>,
) -> (Result<T>, Option<Tried>) {
    tokio::pin!(recorded, push);
    let recorded = tokio::select! {
        recorded = &mut recorded => recorded,
        tried = &mut push => return (recorded.await, Some(tried)),
    };
    let tried = match &recorded {
        Ok(_) => Some(push.await),
        Err(_) => tokio::time::timeout(FAILURE_GRACE, push).await.ok(),
    };
    (recorded, tried)
}
