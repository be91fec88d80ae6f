//! A job's timeline: as JSON, or live.
//!
//! The live stream numbers its messages with the event's `seq`, so a client that reconnects with `Last-Event-ID`
//! misses nothing and sees nothing twice. When the job has ended, a last message of type `end` tells its state;
//! that is when the client should close, because browsers reconnect by themselves.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, header};
use axum::response::sse::{Event as Message, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures::stream::{self, Stream};
use serde::Deserialize;
use stargate_queue::store::PAGE_MAX;
use stargate_queue::{JobId, State as JobState};
use tokio::sync::{OwnedSemaphorePermit, watch};
use utoipa::IntoParams;

use crate::api::types;
use crate::app::Shared;
use crate::caller::Caller;
use crate::error::{Problem, Result};
use crate::input::{Params, job_id};

/// A comment in a silent stream, so that proxies do not cut it off.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How often the store is asked for news. Progress does not wake anybody, so this is how live it is.
const POLL: Duration = Duration::from_millis(500);
/// The shortest time between two looks, however often the store wakes us.
const LOOK_MIN: Duration = Duration::from_millis(100);
/// Looks without news after which the job itself is read: it may have been purged.
const QUIET_LOOKS_MAX: u32 = 20;
/// Failed looks in a row after which the stream ends; the client comes back by itself.
const FAILURES_MAX: u32 = 10;
/// Events read at once.
const CHUNK: u32 = 100;

/// Which part of a timeline.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventParams {
    /// Only events after this number.
    #[param(value_type = Option<u32>)]
    after: Option<String>,
    /// How many; 1000 by default and at most.
    #[param(value_type = Option<u32>)]
    limit: Option<String>,
}

#[utoipa::path(get, path = "/jobs/{id}/events", tag = "jobs",
    summary = "The timeline of a job, as JSON or live with Accept: text/event-stream",
    params(("id" = i64, Path, description = "The job"), EventParams,
        ("last-event-id" = Option<u32>, Header, description = "Where a live stream goes on")),
    responses((status = 200, description = "The events; live, each is a message, and the last one, of type end, tells the job's state",
        content((types::EventPage = "application/json"), (String = "text/event-stream")))))]
pub(crate) async fn events(
    State(shared): State<Shared>,
    caller: Caller,
    Path(id): Path<String>,
    Params(params): Params<EventParams>,
    headers: HeaderMap,
) -> Result<Response> {
    let id = job_id(&id)?;
    let number = |field, text: Option<&str>| match text.filter(|text| !text.is_empty()) {
        Some(text) => text
            .parse::<u32>()
            .map(Some)
            .map_err(|_| Problem::invalid(field, format!("{text:?} is not a number"))),
        None => Ok(None),
    };
    let after = number("after", params.after.as_deref())?;
    let limit = number("limit", params.limit.as_deref())?.unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX);
    if shared.store().job(id).await?.is_none() {
        return Err(Problem::not_found("job", id));
    }
    if !wants_stream(&headers) {
        let events = shared.store().events(id, after.unwrap_or_default(), limit).await?;
        let sight = caller.sight(&shared);
        let events = events.into_iter().map(|event| types::Event::of(event, sight)).collect();
        return Ok(axum::Json(types::EventPage { events }).into_response());
    }
    let last = headers.get("last-event-id").and_then(|value| value.to_str().ok()?.trim().parse().ok());
    let permit = Arc::clone(&shared.streams).try_acquire_owned();
    let permit =
        permit.map_err(|_| Problem::busy("too many live streams are open here; poll, or try again later"))?;
    let follower = Follower::new(&shared, caller, id, last.or(after).unwrap_or_default(), permit);
    Ok(live(follower.stream()))
}

/// A live stream as an answer.
pub(super) fn live(
    messages: impl Stream<Item = std::result::Result<Message, Infallible>> + Send + 'static,
) -> Response {
    let mut response = Sse::new(messages).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response();
    // nginx would collect the stream into large pieces.
    response.headers_mut().insert("x-accel-buffering", header::HeaderValue::from_static("no"));
    response
}

fn wants_stream(headers: &HeaderMap) -> bool {
    let accepts = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepts.flat_map(|value| value.split(',')).any(|kind| kind.trim().starts_with("text/event-stream"))
}

/// Follows one job's timeline.
struct Follower {
    shared: Shared,
    caller: Caller,
    job: JobId,
    after: u32,
    wakes: watch::Receiver<u64>,
    quiet_looks: u32,
    failures: u32,
    at_once: bool,
    _permit: OwnedSemaphorePermit,
}

/// What a look brought.
enum Look {
    News(Vec<Message>),
    Nothing,
    End(Vec<Message>),
}

impl Follower {
    fn new(shared: &Shared, caller: Caller, job: JobId, after: u32, permit: OwnedSemaphorePermit) -> Self {
        Self {
            shared: shared.clone(),
            caller,
            job,
            after,
            wakes: shared.store().wakes(),
            quiet_looks: 0,
            failures: 0,
            at_once: true,
            _permit: permit,
        }
    }

    fn stream(self) -> impl Stream<Item = std::result::Result<Message, Infallible>> + Send {
        use futures::StreamExt as _;
        stream::unfold(Some(self), |follower| async move {
            let mut follower = follower?;
            loop {
                if !follower.at_once && !follower.pause().await {
                    return None;
                }
                match follower.look().await {
                    Look::News(messages) => {
                        // More may be there already.
                        follower.at_once = true;
                        return Some((messages, Some(follower)));
                    }
                    Look::Nothing => follower.at_once = false,
                    Look::End(messages) => return Some((messages, None)),
                }
            }
        })
        .flat_map(|messages| stream::iter(messages.into_iter().map(Ok)))
    }

    /// Waits for the next look; false at shutdown.
    async fn pause(&mut self) -> bool {
        let wait = async {
            tokio::time::sleep(LOOK_MIN).await;
            // A sender that is gone leaves the poll.
            let woken = async {
                if self.wakes.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            let _ = tokio::time::timeout(POLL - LOOK_MIN, woken).await;
        };
        let closing = self.shared.closing.clone();
        closing.run_until_cancelled(wait).await.is_some()
    }

    async fn look(&mut self) -> Look {
        match self.try_look().await {
            Ok(look) => {
                self.failures = 0;
                look
            }
            Err(error) => {
                self.failures += 1;
                if self.failures < FAILURES_MAX {
                    return Look::Nothing;
                }
                tracing::warn!(job = %self.job, %error, "a live stream ended because the store fails");
                Look::End(Vec::new())
            }
        }
    }

    async fn try_look(&mut self) -> stargate_queue::Result<Look> {
        // The job before its events: what it says of its end then holds for the events that follow.
        let state = if self.quiet_looks == 0 || self.quiet_looks >= QUIET_LOOKS_MAX {
            self.quiet_looks = 0;
            match self.shared.store().job(self.job).await? {
                Some(job) => Some(job.state),
                None => return Ok(Look::End(vec![end("purged")])),
            }
        } else {
            None
        };
        let events = self.shared.store().events(self.job, self.after, CHUNK).await?;
        let whole = events.len() < CHUNK as usize;
        let mut messages = Vec::with_capacity(events.len() + 1);
        for event in events {
            self.after = event.seq;
            messages.push(message(&types::Event::of(event, self.caller.sight(&self.shared))));
        }
        if let Some(state) = state.filter(|state| state.is_finished() && whole) {
            messages.push(end(JobState::as_str(state)));
            return Ok(Look::End(messages));
        }
        if messages.is_empty() {
            self.quiet_looks += 1;
            return Ok(Look::Nothing);
        }
        // New events may include the last one, so the next look reads the job as well.
        self.quiet_looks = 0;
        Ok(Look::News(messages))
    }
}

fn message(event: &types::Event) -> Message {
    let id = event.seq.to_string();
    // Line breaks occur in JSON between values only, where a space means the same.
    let text = serde_json::to_string(event).unwrap_or_default().replace(['\r', '\n'], " ");
    Message::default().id(id).data(text)
}

fn end(state: &str) -> Message {
    Message::default().event("end").data(serde_json::json!({ "state": state }).to_string())
}
