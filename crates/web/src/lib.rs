//! HTTP: the job API, health and metrics. The only crate that knows axum.
//!
//! ```text
//!  request ─▶ request id, span, envelope ─▶ panic guard ─▶ token ─▶ route ─▶ store
//! ```
//!
//! Every answer carries `x-request-id`; every error is `{"error":{"code","message","request_id"}}`, whoever made
//! it. What changes something is the leader's: `lead.rs` has the only way to write. Bodies, pages, waits and the number of live streams have bounds. Types that go over the wire live here
//! and are converted by hand from the domain's, so that the inside stays free to change.

mod access;
pub mod api;
mod app;
mod error;
mod forward;
pub mod health;
mod input;
mod lead;
pub mod metrics;
mod openmetrics;
pub mod queue_gauges;
mod request;
pub mod sample;
mod server;

pub use api::mirror::Mirrors;
pub use app::App;
pub use forward::{Forward, ForwardError};
pub use health::{Check, Health};
pub use metrics::MetricsHandle;
pub use server::{Scope, router, serve};
