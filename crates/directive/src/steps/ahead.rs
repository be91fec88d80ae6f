//! Fetches and transforms pages while those before them are written.

use std::sync::Arc;

use stargate_base::Tasks;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::say::{Who, say};
use super::trouble::Trouble;
use super::{Position, Watch, reached};
use crate::cursor::{Cursor, Pointer};
use crate::pace::{BATCH_BYTES_MAX, Pace};
use crate::parts::{Part, Parts, Transformed, checksum};
use crate::run::Step;
use crate::source::{Feed, Page, Records};
use crate::transform::Mapping;

/// The most that one part takes, about. Several of them are in memory at once, and each thread that had one in hand
/// keeps about as much for the next.
const PART_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Up to so many pages in hand each is written by itself. Who asks for more wants speed, and gets larger transactions.
const CHECKPOINTS_EACH_PAGE: usize = 2;
/// Rows that are written together at most, if several pages are, and what they take.
const GROUP_ROWS_MAX: usize = 4000;
const GROUP_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Memory is counted in units of this size.
const ROOM_UNIT: usize = 1024;

/// Something to be written, in the source's order.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) part: Part,
    /// Whether its records were accounted for before.
    pub(super) replayed: bool,
    /// Records since the source said last where to go on, with this piece; of several pages, all of theirs.
    pub(super) accounted: u64,
    /// Whether it begins where the source said last to go on.
    is_from_mark: bool,
    /// The checksum after it.
    pub(super) checksum: String,
    /// Its page, from 1 within this execution.
    pub(super) page: u64,
    /// Set if its page ends with it.
    pub(super) end: Option<PageEnd>,
    /// Pages that end with it.
    pub(super) pages: u32,
    /// Given back when it is written.
    room: OwnedSemaphorePermit,
}

impl Piece {
    /// Whether it is one or several whole pages, after which the source goes on.
    fn is_whole(&self) -> bool {
        let goes_on = |end: &PageEnd| end.next.is_some() && !end.is_last;
        !self.replayed && self.end.as_ref().is_some_and(goes_on) && self.is_from_mark
    }

    /// Whether the next page can be written with this one: together they are small, and no entity is in both.
    fn takes(&self, next: &Self) -> bool {
        let is_page = next.end.as_ref().is_some_and(|end| end.next.is_some() || end.is_last);
        let rows = self.part.len() + next.part.len();
        self.is_whole()
            && is_page
            && next.is_from_mark
            && !next.replayed
            && rows <= GROUP_ROWS_MAX
            && self.part.bytes + next.part.bytes <= GROUP_BYTES_MAX
            && next.part.is_apart_from(&self.part)
    }

    /// Takes the next page in.
    fn take(&mut self, next: Self) {
        self.part.extend(next.part);
        self.accounted += next.accounted;
        self.checksum = next.checksum;
        self.page = next.page;
        self.pages += next.pages;
        self.end = next.end;
        self.room.merge(next.room);
    }
}

/// How a page ended.
#[derive(Debug)]
pub(super) struct PageEnd {
    pub(super) next: Option<Pointer>,
    pub(super) is_last: bool,
    /// How large the next page is to be.
    pub(super) page_size: u32,
}

/// What comes next: something to be written, or why there is nothing more.
pub(super) type Next = Result<Piece, Trouble>;

/// What is read, and how.
pub(super) struct Reading {
    pub(super) feed: Box<dyn Feed>,
    pub(super) mapping: Arc<Mapping>,
    pub(super) pace: Pace,
    /// Pages in hand at once.
    pub(super) concurrency: usize,
    pub(super) watch: Option<Arc<dyn Watch>>,
}

/// A source that is read ahead.
#[derive(Debug)]
pub(super) struct Ahead {
    pieces: mpsc::Receiver<Next>,
    /// Was taken and could not be written with what was before it.
    left: Option<Next>,
    /// Whether pages that are ready together are written together.
    groups: bool,
    room: Arc<Semaphore>,
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl Ahead {
    /// Begins to read.
    pub(super) fn start(tasks: &Tasks, reading: Reading, who: Who, position: &Position) -> Self {
        let Reading { feed, mapping, pace, concurrency, watch } = reading;
        let (sender, pieces) = mpsc::channel(concurrency.saturating_sub(1).max(1));
        let stop = CancellationToken::new();
        let room = Arc::new(Semaphore::new(BATCH_BYTES_MAX / ROOM_UNIT));
        let reader = Reader {
            mapping,
            pace,
            sender,
            room: room.clone(),
            who,
            watch,
            cursor: position.cursor.clone(),
            state: State {
                accounted: 0,
                replay_until: position.replayed(),
                checksum: position.checksum.clone(),
                page: 0,
            },
        };
        let task = tasks.spawn(reader.run(feed, stop.clone()));
        Self { pieces, left: None, groups: concurrency > CHECKPOINTS_EACH_PAGE, room, stop, task: Some(task) }
    }

    /// The next piece; `None` after the last page or an error.
    pub(super) async fn next(&mut self) -> Option<Next> {
        let next = match self.left.take() {
            Some(left) => left,
            None => self.pieces.recv().await?,
        };
        Some(next.map(|piece| self.group(piece)))
    }

    /// A page with those after it that are ready.
    fn group(&mut self, mut piece: Piece) -> Piece {
        while self.groups && piece.is_whole() {
            match self.pieces.try_recv() {
                Ok(Ok(next)) if piece.takes(&next) => piece.take(next),
                Ok(other) => {
                    self.left = Some(other);
                    break;
                }
                Err(_) => break,
            }
        }
        piece
    }

    /// Stops reading; when this returns the source is closed.
    pub(super) async fn close(mut self) {
        self.stop();
        if let Some(task) = self.task.take() {
            let _ = task.await;
        }
    }

    fn stop(&mut self) {
        self.stop.cancel();
        self.pieces.close();
        // Pieces that nobody takes hold room that somebody may wait for.
        self.room.close();
    }
}

/// An execution that is dropped where it stands does not leave its source open.
impl Drop for Ahead {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Reader {
    mapping: Arc<Mapping>,
    pace: Pace,
    sender: mpsc::Sender<Next>,
    room: Arc<Semaphore>,
    who: Who,
    watch: Option<Arc<dyn Watch>>,
    /// Where the run took up; for the log.
    cursor: Option<Cursor>,
    state: State,
}

/// What is carried from page to page.
#[derive(Debug, Clone)]
struct State {
    accounted: u64,
    replay_until: u64,
    checksum: String,
    page: u64,
}

impl Reader {
    async fn run(mut self, mut feed: Box<dyn Feed>, stop: CancellationToken) {
        loop {
            self.state.page += 1;
            let (page, page_size) = (self.state.page, self.pace.size());
            say!(
                INFO,
                self.who,
                self.cursor.as_ref(),
                step = Step::FetchSourceData.as_str(),
                page,
                page_size,
                "fetching"
            );
            let fetched = tokio::select! {
                () = stop.cancelled() => break,
                fetched = feed.page(page_size) => fetched,
            };
            reached(self.watch.as_deref(), Step::FetchSourceData);
            let transformed = match fetched {
                Ok(page) => self.transform(page).await,
                Err(error) => Err(Some(error.into())),
            };
            match transformed {
                Ok(Goes::On) => {}
                Ok(Goes::NoFurther) | Err(None) => break,
                Err(Some(trouble)) => {
                    let _ = self.sender.send(Err(trouble)).await;
                    break;
                }
            }
        }
        feed.close().await;
    }

    /// Cuts a page into pieces and sends them. The error is `None` if nobody wants them any more.
    async fn transform(&mut self, page: Page) -> Result<Goes, Option<Trouble>> {
        let (is_last, page_size) = (page.is_last, self.pace.clone());
        let work = Work {
            mapping: self.mapping.clone(),
            sender: self.sender.clone(),
            room: self.room.clone(),
            pace: page_size,
            state: self.state.clone(),
            records: 0,
            rejected: 0,
            bytes: 0,
        };
        // Reading may block and hashing takes a while: neither belongs on the threads that answer heartbeats.
        let handle = Handle::current();
        let work = tokio::task::spawn_blocking(move || work.run(&handle, page)).await;
        let work = work.unwrap_or_else(|panic| {
            let text = format!("transforming a page panicked: {panic}");
            Err(Some(Trouble::new(stargate_base::ErrorClass::Fatal, stargate_queue::retry::PANIC, text)))
        })?;
        say!(
            INFO,
            self.who,
            self.cursor.as_ref(),
            step = Step::Transform.as_str(),
            page = self.state.page,
            records = work.records,
            rejected = work.rejected,
            "transformed"
        );
        reached(self.watch.as_deref(), Step::Transform);
        (self.pace, self.state) = (work.pace, work.state);
        Ok(if is_last { Goes::NoFurther } else { Goes::On })
    }
}

enum Goes {
    On,
    NoFurther,
}

/// The work on one page.
struct Work {
    mapping: Arc<Mapping>,
    sender: mpsc::Sender<Next>,
    room: Arc<Semaphore>,
    pace: Pace,
    state: State,
    records: usize,
    rejected: usize,
    bytes: usize,
}

impl Work {
    fn run(mut self, handle: &Handle, page: Page) -> Result<Self, Option<Trouble>> {
        let last = self.cut(handle, page.records)?;
        self.pace.took(self.records, self.bytes);
        let (next, is_last, page_size) = (page.next, page.is_last, self.pace.size());
        let is_marked = next.is_some() || is_last;
        self.send(handle, last, Some(PageEnd { next, is_last, page_size }))?;
        if is_marked {
            self.state.replay_until = self.state.replay_until.saturating_sub(self.state.accounted);
            self.state.accounted = 0;
        }
        Ok(self)
    }

    /// Sends all pieces but the last, which it answers.
    fn cut(&mut self, handle: &Handle, records: Records) -> Result<Part, Option<Trouble>> {
        let mut parts = Parts::new(PART_BYTES_MAX);
        for record in records {
            let record = self.mapping.apply(record.map_err(|error| Some(error.into()))?);
            self.bytes += record.bytes();
            self.records += 1;
            self.rejected += usize::from(matches!(record, Transformed::Reject(_)));
            let checksum = checksum(&self.state.checksum, &record);
            if let Some(part) = parts.push(record) {
                self.send(handle, part, None)?;
            }
            self.state.checksum = checksum;
            self.state.accounted += 1;
            // What was accounted for before and what was not are never in one piece.
            if self.state.accounted == self.state.replay_until {
                let part = std::mem::replace(&mut parts, Parts::new(PART_BYTES_MAX)).finish();
                self.send(handle, part, None)?;
            }
        }
        Ok(parts.finish())
    }

    fn send(&self, handle: &Handle, part: Part, end: Option<PageEnd>) -> Result<(), Option<Trouble>> {
        // A giant takes all the room there is.
        let units = (part.bytes / ROOM_UNIT).clamp(1, BATCH_BYTES_MAX / ROOM_UNIT);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let room = handle.block_on(self.room.clone().acquire_many_owned(units)).map_err(|_| None)?;
        let records = part.len() as u64;
        let replayed = !part.is_empty() && self.state.accounted <= self.state.replay_until;
        let piece = Piece {
            part,
            replayed,
            accounted: self.state.accounted,
            checksum: self.state.checksum.clone(),
            page: self.state.page,
            pages: u32::from(end.is_some()),
            is_from_mark: self.state.accounted == records,
            end,
            room,
        };
        self.sender.blocking_send(Ok(piece)).map_err(|_| None)
    }
}
