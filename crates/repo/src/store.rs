//! What a store promises about repositories and pushes.
//!
//! # Rules
//!
//! Pushes
//!  1. `record` writes the repository's row, one event and one `push:process` job for each ref, and one notification, in one
//!     transaction: all or nothing, and when it has answered it survives any crash (INV-1).
//!  2. An event is recorded once for each receive, ref and pair of ends. Recorded again it is answered with the same
//!     number, and no second job is made. The answers are in the order of the refs.
//!  3. A push that names an epoch is recorded only if that was the newest when it committed, and its term went on; otherwise nothing is changed
//!     and the answer is `Deposed` (INV-3, rule 24 of the queue).
//!  4. The kinds of the jobs need not be known before: a hook may be the first to speak to a fresh store.
//!  5. The head of a ref is the event that tells where it is: the one recorded last, unless that tells of the past
//!     (`Head::gives_way`). A report that the head stands for (`Head::stands_for`) is answered with the head's number.
//!     Heads follow the events in the same transaction, and are listed by the names of their refs, page by page.
//!     What was recorded of a hole (`reconcile::is_fill`) is never a head, and moves no branch; a report of the same step
//!     that does not begin at the head is answered with its number.
//!     With a new head that begins elsewhere than the one before it ended, that end is noted (`Head::torn`). `links` are
//!     the events of such refs from the first noted one on, in their order; `links_whole` forgets notes.
//!
//! Processing
//!  6. `process` does all of its writes in one transaction and once: an event that is processed is answered with
//!     `first: false` and nothing changes.
//!  7. An event on the default branch moves its commit as `branch::decide` says; one that ends in zeros clears it.
//!  8. There is one waiting `repo:size_recalc` for a repository at most. A running one does not count: it may have measured
//!     before the push.
//!  9. Each hook that wants to hear of the event gets one outbox row and one `webhook:deliver` job.
//! 10. An event that is not there is `NotFound`. Processed events are removed, a few with every processing, when they are
//!     older than [`EVENTS_KEPT`]; unprocessed ones never, and neither is the head of a ref that is there.
//!
//! Repositories and hooks
//! 11. A repository put again takes on the new default branch; if that is another, its commit is unknown until the next
//!     push to it. Removing one removes its events, its hooks and what its hooks were to hear.
//! 12. `size_set` overwrites; for a repository that is not there it answers false and makes none.
//! 13. A hook is named by its repository and its address: put again, it keeps its number and takes on the rest. More than
//!     [`HOOKS_MAX`](crate::webhook::HOOKS_MAX) of one repository, or of all, are refused. A removed hook hears nothing
//!     any more.
//! 14. `delivered` is true once for each delivery.
//! 15. No page is larger than [`PAGE_MAX`].

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use stargate_queue::Result;
pub use stargate_queue::store::PAGE_MAX;

use crate::head::Head;
use crate::hole::Link;
use crate::measure::RepoSize;
use crate::push::{NewPush, PushEvent, PushEventId};
use crate::repository::{Repo, RepoSpec};
use crate::webhook::{Delivery, DeliveryId, NewWebhook, Webhook, WebhookId};

/// How long processed events are kept.
pub const EVENTS_KEPT: Duration = Duration::from_secs(30 * 86_400);
/// Old events that one processing removes at most.
pub const EVENTS_PURGED_MAX: u32 = 10;

/// Shared by everything in the process.
pub type SharedPushes = Arc<dyn Pushes>;

/// Where repositories and pushes are kept. The module text has the rules.
#[async_trait]
pub trait Pushes: Send + Sync + Debug + 'static {
    /// Records a push that git has accepted; the events are in the order of its refs.
    async fn record(&self, push: NewPush) -> Result<Vec<PushEventId>>;

    /// Writes what follows from an event.
    async fn process(&self, event: PushEventId) -> Result<Processed>;

    /// A page of events, newest first.
    async fn events(&self, filter: EventFilter) -> Result<Vec<PushEvent>>;

    /// One event.
    async fn event(&self, id: PushEventId) -> Result<Option<PushEvent>>;

    /// A page of the heads of a repository by ref, from after the one named; empty if the repository is not known.
    async fn heads(&self, repo: &str, after: Option<&str>, limit: u32) -> Result<Vec<Head>>;

    /// A page of the events of refs whose way may have a hole, by number, from after the one named.
    async fn links(&self, repo: &str, after: Option<PushEventId>, limit: u32) -> Result<Vec<Link>>;

    /// The way to these events is whole: they need not be looked at again.
    async fn links_whole(&self, events: &[PushEventId]) -> Result<()>;

    /// Enters a repository, or changes what is known of it.
    async fn repo_put(&self, repo: RepoSpec) -> Result<()>;

    /// Removes what is known of a repository; false if nothing was.
    async fn repo_remove(&self, name: &str) -> Result<bool>;

    /// One repository.
    async fn repo(&self, name: &str) -> Result<Option<Repo>>;

    /// A page of repositories by name, from after the one named.
    async fn repos(&self, after: Option<&str>, limit: u32) -> Result<Vec<Repo>>;

    /// Notes how large a repository is; false if it is not known.
    async fn size_set(&self, repo: &str, size: RepoSize) -> Result<bool>;

    /// Keeps a hook.
    async fn webhook_put(&self, hook: NewWebhook) -> Result<WebhookId>;

    /// Removes a hook; false if there was none.
    async fn webhook_remove(&self, id: WebhookId) -> Result<bool>;

    /// A page of hooks by number, from after the one named.
    async fn webhooks(&self, after: Option<WebhookId>, limit: u32) -> Result<Vec<Webhook>>;

    /// One delivery, as long as its event and its hook are there.
    async fn delivery(&self, id: DeliveryId) -> Result<Option<Delivery>>;

    /// The deliveries of an event, by number.
    async fn deliveries(&self, event: PushEventId) -> Result<Vec<Delivery>>;

    /// Notes that a delivery has arrived; false if that is known or it is not there.
    async fn delivered(&self, id: DeliveryId) -> Result<bool>;
}

/// What processing an event did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Processed {
    /// False when it had been processed before; then nothing was done.
    pub first: bool,
    /// Whether the commit of the default branch is another now.
    pub default_moved: bool,
    /// Hooks that will hear of it.
    pub deliveries: u32,
}

impl Processed {
    /// It had been processed before.
    pub const BEFORE: Self = Self { first: false, default_moved: false, deliveries: 0 };
}

/// Which events to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventFilter {
    /// Only of this repository.
    pub repo: Option<String>,
    /// Only those whose follow-ups are missing.
    pub unprocessed: bool,
    /// Only with a smaller number: the keyset for the next page.
    pub before: Option<PushEventId>,
    /// Page size, 1 to [`PAGE_MAX`].
    pub limit: u32,
}

impl Default for EventFilter {
    fn default() -> Self {
        Self { repo: None, unprocessed: false, before: None, limit: 50 }
    }
}
