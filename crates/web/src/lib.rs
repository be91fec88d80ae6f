//! HTTP: the job API, the page, health and metrics. The only crate that knows axum.
//!
//! ```text
//!  request ─▶ request id, span, envelope ─▶ panic guard ─▶ token, role, rate ─▶ route ─▶ audit ─▶ store
//! ```
//!
//! Every answer carries `x-request-id`; every error is `{"error":{"code","message","request_id"}}`, whoever made
//! it. What changes something is the leader's: `lead.rs` has the only way to write, and `caller.rs` writes down who did.
//! Bodies, pages, waits and the number of live streams have bounds. Types that go over the wire live here and are converted
//! by hand from the domain's, so that the inside stays free to change. What only the program knows (directives, mirrors)
//! it tells through the traits [`Directing`] and [`Mirrors`].

mod access;
pub mod api;
mod app;
mod caller;
mod error;
mod forward;
pub mod health;
mod host;
mod input;
mod lead;
mod live;
pub mod metrics;
mod openmetrics;
mod page;
pub mod queue_gauges;
mod rate;
pub mod redact;
mod request;
pub mod sample;
mod server;

pub use api::directives::Directing;
pub use api::mirror::{MirrorPlace, Mirrors};
pub use app::{App, Options};
pub use error::{Answer, Refusal, Why};
pub use forward::{Forward, ForwardError};
pub use health::{Check, Health};
pub use metrics::MetricsHandle;
pub use rate::RateLimit;
pub use server::{Scope, router, serve};

/// The OpenAPI document of the API, as it is served at the root of a site.
pub fn openapi() -> String {
    api::openapi::document("")
}
