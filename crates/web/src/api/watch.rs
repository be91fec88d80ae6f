//! The live stream of the whole node: see `live.rs`.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::response::sse::Event;
use futures::stream::{self, Stream, StreamExt as _};
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::api::events::live;
use crate::app::Shared;
use crate::error::{Problem, Result};
use crate::live::{Message, News, Position};

#[utoipa::path(get, path = "/events", tag = "live", summary = "What happens on this node, live",
    params(("last-event-id" = Option<u64>, Header, description = "The last message that was seen; browsers send it by themselves")),
    responses((status = 200, content_type = "text/event-stream", body = String, description =
        "Messages of the types stats (once a second at most, as GET stats), jobs ({ids, more}: jobs that changed), mirror, \
         leader, and reset: messages were missed, so read again what you show. Ids are numbers.")))]
pub(crate) async fn events(State(shared): State<Shared>, headers: HeaderMap) -> Result<Response> {
    let last = headers.get("last-event-id").and_then(|value| value.to_str().ok()?.trim().parse().ok());
    let permit = Arc::clone(&shared.live.permits).try_acquire_owned();
    let permit = permit.map_err(|_| Problem::busy("too many live streams are open here; try again later"))?;
    Ok(live(Watcher::new(shared, last, permit).stream()))
}

struct Watcher {
    shared: Shared,
    head: watch::Receiver<u64>,
    position: Position,
    _permit: OwnedSemaphorePermit,
}

impl Watcher {
    fn new(shared: Shared, last: Option<u64>, permit: OwnedSemaphorePermit) -> Self {
        let (head, position) = shared.live.join(last);
        Self { shared, head, position, _permit: permit }
    }

    fn stream(self) -> impl Stream<Item = std::result::Result<Event, Infallible>> + Send {
        stream::unfold(self, |mut watcher| async move {
            let messages = watcher.next().await?;
            Some((messages, watcher))
        })
        .flat_map(|messages| stream::iter(messages.into_iter().map(|message| Ok(event(&message)))))
    }

    /// What is new, as soon as something is; none at shutdown.
    async fn next(&mut self) -> Option<Vec<Message>> {
        loop {
            // Before the look: what comes between it and the wait is then noticed.
            self.head.borrow_and_update();
            match self.shared.live.news(&mut self.position) {
                News::Messages(messages) => return Some(messages),
                News::Missed(message) => return Some(vec![message]),
                News::Nothing => {}
            }
            let closing = self.shared.closing.clone();
            closing.run_until_cancelled(self.head.changed()).await?.ok()?;
        }
    }
}

fn event(message: &Message) -> Event {
    Event::default().id(message.id.to_string()).event(message.event).data(&*message.data)
}
