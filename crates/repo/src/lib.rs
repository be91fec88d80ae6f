//! What the store keeps about repositories: pushes, the commit of the default branch, sizes, webhooks.
//!
//! ```text
//!   post-receive ──record──▶ repo, push_event per ref, job push:process per ref      (one transaction)
//!                                                          │
//!   push:process ──process─▶ default branch, job repo:size_recalc, webhook_outbox,   (one transaction)
//!                            job webhook:deliver per row, processed_at
//!                                   │                 │
//!   repo:size_recalc ── measure ── size_set           └── webhook:deliver ── Courier ── delivered
//! ```
//!
//! Each arrow is one transaction, so that a crash leaves all of it or nothing, and each can be repeated: a push is
//! recorded once for each ref and receive, an event is processed once, a hook gets one outbox row for each event. What is
//! not repeated exactly once is the call to the hook's server: it may come twice, with the same delivery number.
//!
//! The refs themselves, and the truth about them, are git's. git ignores a failing post-receive: what could not be
//! recorded then, the leader finds and records later (`reconcile`).

pub mod branch;
pub mod handlers;
pub mod head;
pub mod hole;
pub mod measure;
pub mod push;
pub mod reconcile;
pub mod repository;
pub mod store;
pub mod webhook;

pub use handlers::{PUSH_PROCESS, SIZE_RECALC, WEBHOOK_DELIVER, register};
pub use head::Head;
pub use hole::Link;
pub use measure::{Folders, Measure, RepoSize};
pub use push::{NewPush, PushEvent, PushEventId, RefUpdate};
pub use repository::{Repo, RepoId, RepoSpec};
pub use store::{EventFilter, Processed, Pushes, SharedPushes};
pub use webhook::{Courier, Delivery, DeliveryId, NewWebhook, Occasion, Webhook, WebhookId};
