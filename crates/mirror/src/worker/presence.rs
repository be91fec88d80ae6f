//! What a worker does about a remote that may be away: whether to push, to probe or to wait; and what it compares with a
//! remote that answers.

use std::sync::Arc;

use stargate_base::clock;
use tokio::time::Instant;

use super::doubt::returning;
use super::{Round, Step, Worker};
use crate::breaker::{Leave, State};
use crate::classify::Verdict;
use crate::error::Result;
use crate::reconcile::{self, Accounted};

impl Worker {
    /// Whether a push may be tried, and whether it is a probe. Asks the remote first if nothing is known of it.
    pub(super) async fn leave(&mut self) -> Result<Result<bool, Round>> {
        let probing = match self.breaker.ask(self.now()) {
            Leave::Wait(wait) => return Ok(Err(Round::Waiting(wait))),
            Leave::Probe => true,
            Leave::Push => false,
        };
        if self.remote.known().is_none()
            && let Err(verdict) = self.remote.ask().await
            && probing
        {
            self.away(&verdict, Vec::new());
            return Ok(Err(self.waiting()));
        }
        // Otherwise the tries of the entry tell; the first that is given up opens the breaker.
        Ok(Ok(probing))
    }

    /// Nothing waits. If the remote is thought to be away, ask it when it is time to: letters may go back.
    pub(super) async fn nothing_pending(&mut self) -> Result<Round> {
        match self.breaker.ask(self.now()) {
            Leave::Push => return Ok(Round::Idle),
            Leave::Wait(wait) => return Ok(Round::Waiting(wait)),
            Leave::Probe => {}
        }
        if let Err(verdict) = self.remote.ask().await {
            self.away(&verdict, Vec::new());
            return Ok(self.waiting());
        }
        // It answers; whether it takes pushes shows when the letters are pushed, which is a probe still.
        let letters = self.breaker.take_letters();
        if letters.is_empty() {
            self.answered().await?;
        } else {
            self.on_books(move |books| books.requeue(&letters)).await?;
        }
        Ok(Round::Worked)
    }

    pub(super) fn waiting(&mut self) -> Round {
        match self.breaker.ask(self.now()) {
            Leave::Wait(wait) => Round::Waiting(wait),
            Leave::Push | Leave::Probe => Round::Worked,
        }
    }

    pub(super) fn away(&mut self, verdict: &Verdict, letters: Vec<String>) {
        let was_closed = *self.breaker.state() == State::Closed;
        self.breaker.failed(self.now(), letters);
        self.remote.forget();
        if was_closed {
            tracing::error!(
                outcome = verdict.outcome.as_str(),
                error = verdict.error,
                "the remote is away; entries wait until it answers again"
            );
        }
        self.state.send_modify(|state| state.error = Some(verdict.error.clone()));
    }

    /// The remote took or refused a push, so it is not away.
    pub(super) async fn answered(&mut self) -> Result<()> {
        if *self.breaker.state() == State::Closed {
            return Ok(());
        }
        tracing::info!("the remote answers again");
        self.state.send_modify(|state| state.error = None);
        let letters = self.breaker.answered();
        self.on_books(move |books| books.requeue(&letters)).await
    }

    /// Journals what has no entry. Answers how long to wait if the remote is away.
    pub(super) async fn reconcile(&mut self) -> Result<Option<Round>> {
        let probing = match self.breaker.ask(self.now()) {
            Leave::Wait(wait) => return Ok(Some(Round::Waiting(wait))),
            Leave::Probe => true,
            Leave::Push => false,
        };
        if let Err(verdict) = self.remote.ask().await {
            // Without a letter: nothing was given up. Before the first round entries are tried as always.
            if probing || self.reconciled.is_some() {
                self.away(&verdict, Vec::new());
                return Ok(Some(self.waiting()));
            }
            tracing::warn!(error = verdict.error, "cannot compare refs with the remote");
            self.state.send_modify(|state| state.error = Some(verdict.error.clone()));
            self.reconciled = Some(Instant::now());
            return Ok(None);
        }
        self.reconciled = Some(Instant::now());
        let open = self.on_books(|books| books.open_letters()).await?;
        if *self.breaker.state() == State::Closed {
            self.state.send_modify(|state| state.error = None);
            let letters = returning(&open, clock::wall(), self.remote.config().reconcile_every);
            self.on_books(move |books| books.requeue(&letters)).await?;
        }
        self.journal_gaps(Accounted::of(&open)).await?;
        Ok(None)
    }

    async fn journal_gaps(&mut self, mut accounted: Accounted) -> Result<()> {
        accounted.waiting = self.on_books(|books| books.newest_waiting()).await?;
        accounted.ahead = self.remote.ahead().clone();
        let Some(known) = self.remote.known() else { return Ok(()) };
        let (git, repo, routes) = (self.remote.git(), self.remote.repo(), &self.remote.config().routes);
        let gaps = reconcile::gaps(git, repo, routes, known, &accounted).await?;
        if gaps.is_empty() {
            return Ok(());
        }
        let steps = Arc::clone(&self.means.steps);
        self.on_books(move |books| {
            // Pushes went on while refs were compared.
            accounted.waiting = books.newest_waiting()?;
            reconcile::journal(&books.journal, gaps, &accounted)?;
            steps.reached(Step::Reconciled);
            Ok(())
        })
        .await
    }
}
