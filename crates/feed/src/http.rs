//! JSON APIs, page by page.
//!
//! A page is taken whole before any of its records is used: an answer that is cut, no JSON, or of another shape gives no
//! record at all. What does not fit into memory lies in a file meanwhile. After an error the same page is asked for
//! again. The rate limit holds for one opened feed.

mod address;
mod caller;
mod hidden;
mod link;
mod place;

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, LINK};
use reqwest::{Response, Url};
use stargate_directive::Pointer;
use stargate_directive::file::{HttpSource, Pagination};
use stargate_directive::source::{Feed, Page, Records, SourceError};
use tokio::time::timeout;

use self::address::with_params;
use self::caller::Caller;
use self::link::next_link;
use self::place::{Answer, Ask, Odd, Onward, Place};
use crate::Surroundings;
use crate::body::{BodyError, Intake};
use crate::json::{Found, NEXT_BYTES_MAX, Seen, Wanted};
use crate::problem::{fatal, interrupted, pointer, restart, shape, transient};

/// The longest time for one answer, however steadily it trickles.
const ANSWER_MAX: Duration = Duration::from_secs(3600);
/// What is collected before it is written to the body.
const PIECE_BYTES: usize = 1024 * 1024;
/// Places that are remembered to notice a circle.
const PLACES_MAX: usize = 1024 * 1024;

pub(crate) async fn open(
    source: &HttpSource,
    from: &Pointer,
    around: &Surroundings,
) -> Result<Box<dyn Feed>, SourceError> {
    let caller = Caller::new(source, around)?;
    let place = Place::read(from, &source.pagination).ok_or_else(|| foreign(&caller.label))?;
    let next = match &source.pagination {
        Pagination::Cursor { next, .. } => Some(next.as_str()),
        _ => None,
    };
    let wanted = Wanted::new(&source.records, next, source.total.as_deref());
    let (source, scratch) = (source.clone(), around.scratch.clone());
    let circle = Circle { hasher: RandomState::new(), places: HashSet::new() };
    Ok(Box::new(HttpFeed { source, caller, place, wanted, scratch, circle }))
}

/// A pointer that says nothing here.
fn foreign(label: &str) -> SourceError {
    pointer(&format!("a source of type http with this address and pagination ({label})"))
}

#[derive(Debug)]
struct HttpFeed {
    source: HttpSource,
    caller: Caller,
    place: Place,
    wanted: Wanted,
    scratch: PathBuf,
    circle: Circle,
}

#[async_trait]
impl Feed for HttpFeed {
    async fn page(&mut self, size: u32) -> Result<Page, SourceError> {
        let url = self.address(size)?;
        let response = self.caller.get(url).await?;
        let link = self.link(&response)?;
        let (found, records) = self.read(response).await?;
        let onward = self.onward(&found, link)?;
        self.place = onward.place;
        Ok(Page { records, next: Some(self.place.write()), is_last: onward.is_last })
    }

    async fn close(self: Box<Self>) {}
}

impl HttpFeed {
    /// The address of the page we are at.
    fn address(&mut self, size: u32) -> Result<Url, SourceError> {
        let (size, ask) = self.place.ask(size, &self.source.pagination);
        let size = size.to_string();
        let mut params = Vec::new();
        if let Some(name) = &self.source.page_size_param {
            params.push((name.as_str(), size.as_str()));
        }
        let home = &self.caller.home;
        match ask {
            // A link says all there is to say.
            Ask::Link(link) => home.restored(link).ok_or_else(|| foreign(&self.caller.label)),
            Ask::Plain => Ok(with_params(&home.url, &params)),
            Ask::Param(name, value) => {
                params.push((name, value.as_str()));
                Ok(with_params(&home.url, &params))
            }
        }
    }

    /// Where the header `Link` leads, in the form that is kept.
    fn link(&self, response: &Response) -> Result<Option<String>, SourceError> {
        if self.source.pagination != Pagination::Link {
            return Ok(None);
        }
        let label = &self.caller.label;
        let (mut next, mut is_unreadable) = (None, false);
        for value in response.headers().get_all(LINK) {
            match value.to_str().map(next_link) {
                Ok(Ok(found)) => next = next.or(found),
                Ok(Err(_)) | Err(_) => is_unreadable = true,
            }
        }
        let Some(next) = next else {
            // What cannot be read must not look like the end.
            let unread =
                || shape(format!("{label}: the header Link cannot be read, so nobody knows what is next"));
            return if is_unreadable { Err(unread()) } else { Ok(None) };
        };
        let to = self.caller.home.kept(&self.caller.at_home(response.url(), next, "link")?);
        if to.len() > NEXT_BYTES_MAX {
            let length = to.len();
            return Err(shape(format!(
                "{label}: the next link has {length} bytes; at most {NEXT_BYTES_MAX} can be kept"
            )));
        }
        Ok(Some(to))
    }

    /// Takes the body whole and finds what is in it.
    async fn read(&self, response: Response) -> Result<(Found, Records), SourceError> {
        let content_type = header(&response, CONTENT_TYPE.as_str());
        match timeout(ANSWER_MAX, self.receive(response)).await {
            Err(_) => {
                let message = format!("{}: an answer took more than {ANSWER_MAX:?}", self.caller.label);
                Err(transient("SOURCE_TIMEOUT", message))
            }
            Ok(Err(Problem::Source(error))) => Err(error),
            Ok(Err(Problem::Body(error))) => Err(self.unusable(error, &content_type)),
            Ok(Ok(read)) => Ok(read),
        }
    }

    async fn receive(&self, mut response: Response) -> Result<(Found, Records), Problem> {
        let encoding = header(&response, CONTENT_ENCODING.as_str());
        let is_gzip = ["gzip", "x-gzip"].iter().any(|name| encoding.eq_ignore_ascii_case(name));
        let mut intake = Intake::new(self.scratch.clone(), is_gzip);
        let mut piece = Vec::new();
        loop {
            let chunk = timeout(self.caller.patience, response.chunk()).await;
            let chunk =
                chunk.map_err(|_| self.caller.silent())?.map_err(|error| self.caller.unreachable(error))?;
            let Some(chunk) = chunk else { break };
            piece.extend_from_slice(&chunk);
            if piece.len() >= PIECE_BYTES {
                let full = std::mem::take(&mut piece);
                intake = blocking(move || {
                    intake.take(&full)?;
                    Ok(intake)
                })
                .await?;
            }
        }
        let wanted = self.wanted.clone();
        blocking(move || {
            intake.take(&piece)?;
            drop(piece);
            intake.finish()?.read(&wanted)
        })
        .await
    }

    fn unusable(&self, error: BodyError, content_type: &str) -> SourceError {
        let label = &self.caller.label;
        match error {
            BodyError::Scratch(error) => error,
            BodyError::TooLarge => fatal(
                "SOURCE_TOO_LARGE",
                format!(
                    "{label}: an answer is larger than 4 GiB; ask for smaller pages (page_size_param, page_size)"
                ),
            ),
            BodyError::Garbled { problem, beginning } => transient(
                "SOURCE_GARBLED",
                format!(
                    "{label}: {problem}; content type {:?}, begins with {:?}",
                    self.caller.excerpt(content_type.as_bytes()),
                    self.caller.excerpt(&beginning)
                ),
            ),
        }
    }

    /// What comes after what was found.
    fn onward(&mut self, found: &Found, link: Option<String>) -> Result<Onward, SourceError> {
        let label = &self.caller.label;
        let at_records = found.at_records();
        if *at_records != Seen::Array {
            let place = &self.source.records;
            return Err(shape(format!(
                "{label}: an array of records should be at {place:?}, there is {at_records}"
            )));
        }
        let answer = Answer {
            count: found.count,
            next: link.map_or_else(|| self.next_cursor(found), |link| Ok(Some(link)))?,
            total: self.total(found)?,
        };
        let start = match self.source.pagination {
            Pagination::Page { start, .. } => start,
            _ => 0,
        };
        let onward = self.place.onward(&answer, start).map_err(|odd| told(&odd, label))?;
        if !onward.is_last && self.circle.closes(&onward.place) {
            let bytes = answer.next.map_or(0, |next| next.len());
            return Err(told(&Odd::Loop { bytes }, label));
        }
        Ok(onward)
    }

    fn next_cursor(&self, found: &Found) -> Result<Option<String>, SourceError> {
        let Pagination::Cursor { next: place, .. } = &self.source.pagination else { return Ok(None) };
        match found.at_next() {
            Seen::Missing | Seen::Null => Ok(None),
            Seen::Text(text) | Seen::Whole(text) => Ok(Some(text.clone())),
            other => {
                let label = &self.caller.label;
                Err(shape(format!("{label}: the next cursor should be at {place:?}, there is {other}")))
            }
        }
    }

    fn total(&self, found: &Found) -> Result<Option<u64>, SourceError> {
        let Some(place) = &self.source.total else { return Ok(None) };
        let number = match found.at_total() {
            Seen::Whole(text) | Seen::Text(text) => text.parse().ok(),
            _ => None,
        };
        number.map(Some).ok_or_else(|| {
            let (label, there) = (&self.caller.label, found.at_total());
            shape(format!("{label}: how many records there are should be at {place:?}, there is {there}"))
        })
    }
}

/// Places where this feed has been.
#[derive(Debug)]
struct Circle {
    hasher: RandomState,
    places: HashSet<u64>,
}

impl Circle {
    /// Whether the way to a place was gone before. Places by number rise and cannot repeat.
    fn closes(&mut self, place: &Place) -> bool {
        let Place::Token(token) = place else { return false };
        let hash = self.hasher.hash_one(token.next.as_deref());
        if self.places.len() >= PLACES_MAX { self.places.contains(&hash) } else { !self.places.insert(hash) }
    }
}

fn told(odd: &Odd, label: &str) -> SourceError {
    match odd {
        Odd::Loop { bytes } => fatal(
            "SOURCE_LOOP",
            format!(
                "{label}: a next page ({bytes} bytes of cursor or link) leads to a page that was read before"
            ),
        ),
        Odd::Shifted(what) => restart(
            "SOURCE_SHIFTED",
            format!(
                "{label}: records moved while they were read: {what}; the source is read from its beginning"
            ),
        ),
        Odd::Incomplete { seen, total } => restart(
            "SOURCE_INCOMPLETE",
            format!("{label}: ended after {seen} of {total} records; the source is read from its beginning"),
        ),
    }
}

fn header(response: &Response, name: &str) -> String {
    response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().trim().to_owned()
}

/// Why a body did not come.
#[derive(Debug)]
enum Problem {
    Source(SourceError),
    Body(BodyError),
}

impl From<SourceError> for Problem {
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}

impl From<BodyError> for Problem {
    fn from(error: BodyError) -> Self {
        Self::Body(error)
    }
}

/// Does what may block on another thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BodyError> + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.map_err(|error| interrupted(&error))??)
}
