//! One running git and the two streams through it, from its start to its end.
//!
//! It is a task of its own, because it outlives the request: when the client goes, somebody has to end git, or to wait
//! for the hooks of a push that can no longer be taken back.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::Stream;
use futures::future::{FusedFuture as _, FutureExt as _};
use stargate_base::Tasks;
use stargate_git::process::GRACE;
use stargate_git::{End, Process, Redactor, Session};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::ChildStdout;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::SendTimeoutError;

use crate::claim::Claim;
use crate::gate::{Denied, Hold};
use crate::hook::post_receive::BUDGET;
use crate::intake::{self, Bounds, Broken};
use crate::refusal::Refusal;
use crate::settings::Settings;
use crate::slots::Slot;

/// Chunks of an answer that wait for the client at most.
pub(crate) const CHUNKS_MAX: usize = 4;
/// Bytes of a chunk at most: what a pipe holds.
const CHUNK_BYTES: usize = 64 << 10;
/// With less room than this a new buffer is taken.
const ROOM_BYTES_MIN: usize = 8 << 10;
/// What is kept of git's complaints: their end.
const COMPLAINT_BYTES_MAX: usize = 8 << 10;
/// How long complaints may take to arrive once git has ended.
const COMPLAINT_WAIT: Duration = Duration::from_millis(250);

/// When to come back to a node whose term has ended: a successor takes about so long.
const DEPOSED_RETRY_AFTER: Duration = Duration::from_secs(1);

/// A piece of the answer, or the reason why there is none.
pub(crate) type Piece = Result<Bytes, Refusal>;

/// A running git, and what is held until it has ended.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) session: Session,
    /// The push that it is, if its hooks may run.
    pub(crate) claim: Option<Claim>,
    /// The term of the push, which does not end before git has ended.
    pub(crate) hold: Option<Hold>,
    pub(crate) slot: Slot,
    pub(crate) bounds: Bounds,
    pub(crate) redactor: Redactor,
}

/// Why the exchange stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// Git has said everything.
    Said,
    /// The client takes nothing any more.
    Gone,
    /// The client does not send what it should.
    Broken(Broken),
    /// It took too long.
    Late,
    /// This process is to stop.
    Closing,
    /// The term of the push ends, and its hooks have not begun: they will refuse it.
    Deposed,
    /// The term of the push has ended, and its hooks have not.
    Overdue,
}

impl Exchange {
    /// Runs until git has ended, by itself or by force.
    pub(crate) async fn run(
        self,
        request: impl Stream<Item = Result<Bytes, Broken>> + Unpin,
        answer: Sender<Piece>,
        settings: &Settings,
        tasks: &Tasks,
    ) {
        let Session { mut process, stdin, mut stdout, stderr } = self.session;
        let complaints = tasks.spawn(overhear(stderr));
        let mut pouring = Box::pin(intake::pour(request, stdin, self.bounds).fuse());
        let mut interrupted = Box::pin(interruption(&answer, settings, tasks));
        // One for all that follows: what it says depends on when it was first asked.
        let mut exhausted = Box::pin(exhaustion(self.hold.as_ref()).fuse());
        let mut said = 0;
        let stop = tokio::select! {
            stop = deliver(&mut stdout, &answer, self.bounds.idle_max, &mut said) => stop,
            broken = broken(&mut pouring) => Stop::Broken(broken),
            stop = &mut interrupted => stop,
            stop = term_end(self.hold.as_ref(), self.claim.as_ref(), &mut exhausted) => stop,
        };
        if stop == Stop::Said && !pouring.is_terminated() {
            // Git wants no more, but the client still sends, and reads the answer only when it has sent everything.
            tokio::select! {
                _ = &mut pouring => {}
                _ = &mut interrupted => {}
                _ = term_end(self.hold.as_ref(), None, &mut exhausted) => {}
            }
        }
        // With this git's input ends.
        drop(pouring);
        let end = if stop == Stop::Said {
            within(limit(settings, tasks, &mut exhausted), &mut process).await
        } else if stop == Stop::Overdue {
            within(std::future::ready(()), &mut process).await
        } else if stop == Stop::Deposed || self.claim.as_ref().is_none_or(Claim::revoke) {
            refuse(&answer, stop, &self.bounds, tasks).await;
            end(&mut process, &mut stdout, self.claim.is_some()).await
        } else {
            tracing::info!(?stop, "the push goes on without its client: its hooks have begun");
            finish(&mut process, &mut stdout, limit(settings, tasks, &mut exhausted)).await
        };
        drop(exhausted);
        let complaint = tokio::time::timeout(COMPLAINT_WAIT, complaints).await;
        let complaint = complaint.ok().and_then(Result::ok).unwrap_or_default();
        let complaint = self.redactor.redact_bytes(&complaint);
        report(stop, end, said, complaint.trim());
        if stop == Stop::Said && said == 0 && end != Some(End::Exited(0)) {
            // Nothing has been answered yet, so it can still be told properly.
            let _ = answer.send(Err(Refusal::Internal)).await;
        }
        drop((self.slot, self.claim, self.hold));
    }
}

fn report(stop: Stop, end: Option<End>, said: u64, complaint: &str) {
    match (stop, end) {
        (Stop::Said, Some(End::Exited(0))) => tracing::debug!(said, "git has ended"),
        (Stop::Said, end) => tracing::warn!(said, ?end, complaint, "git failed"),
        (_, end) => tracing::info!(said, ?stop, ?end, complaint, "git was stopped"),
    }
}

/// Ends only if the request is not whole.
async fn broken(pouring: impl Future<Output = Result<(), Broken>>) -> Broken {
    match pouring.await {
        Ok(()) => std::future::pending().await,
        Err(broken) => broken,
    }
}

/// Ends when the term of a push does: at once if the push can be taken back, else when it has had its time.
async fn term_end(hold: Option<&Hold>, claim: Option<&Claim>, exhausted: impl Future<Output = ()>) -> Stop {
    let Some(hold) = hold else { return std::future::pending().await };
    hold.stopping().await;
    if claim.is_none_or(Claim::revoke) {
        return Stop::Deposed;
    }
    exhausted.await;
    Stop::Overdue
}

/// Ends when the term of a push has waited for it long enough.
async fn exhaustion(hold: Option<&Hold>) {
    match hold {
        Some(hold) => hold.exhausted(BUDGET).await,
        None => std::future::pending().await,
    }
}

/// Ends when a push that may not be killed has had its time, of which there is less once this process is to stop or the
/// term of the push ends.
async fn limit(settings: &Settings, tasks: &Tasks, exhausted: impl Future<Output = ()>) {
    let closing = async {
        tasks.stopping().cancelled().await;
        tokio::time::sleep(BUDGET.max(settings.drain_max)).await;
    };
    tokio::select! {
        () = tokio::time::sleep(settings.finish_max) => {}
        () = closing => {}
        () = exhausted => {}
    }
}

/// Ends when the exchange must stop, whatever git and the client are doing.
async fn interruption(answer: &Sender<Piece>, settings: &Settings, tasks: &Tasks) -> Stop {
    let closing = async {
        tasks.stopping().cancelled().await;
        tokio::time::sleep(settings.drain_max).await;
    };
    tokio::select! {
        () = answer.closed() => Stop::Gone,
        () = tokio::time::sleep(settings.time_max) => Stop::Late,
        () = closing => Stop::Closing,
    }
}

/// Hands what git says to the client, no faster than the client takes it.
async fn deliver(
    stdout: &mut ChildStdout,
    answer: &Sender<Piece>,
    idle_max: Duration,
    said: &mut u64,
) -> Stop {
    let mut buffer = BytesMut::with_capacity(CHUNK_BYTES);
    loop {
        if buffer.capacity() < ROOM_BYTES_MIN {
            buffer.reserve(CHUNK_BYTES);
        }
        match stdout.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => return Stop::Said,
            Ok(bytes) => *said += bytes as u64,
        }
        match answer.send_timeout(Ok(buffer.split().freeze()), idle_max).await {
            Ok(()) => {}
            // One that takes nothing for so long is as good as gone.
            Err(SendTimeoutError::Closed(_) | SendTimeoutError::Timeout(_)) => return Stop::Gone,
        }
    }
}

/// Tells a client that is still there why it is not served.
async fn refuse(answer: &Sender<Piece>, stop: Stop, bounds: &Bounds, tasks: &Tasks) {
    let refusal = match stop {
        Stop::Broken(Broken::TooLarge) => Refusal::TooLarge { bytes_max: bounds.bytes_max },
        Stop::Broken(Broken::TooManyRefs) => Refusal::TooManyRefs { bytes_max: bounds.opening_bytes_max },
        Stop::Broken(Broken::Slow) => Refusal::TooSlow,
        Stop::Broken(Broken::Garbled) => Refusal::Malformed("the body is not what its encoding says"),
        Stop::Late => Refusal::TooLate,
        Stop::Deposed if !tasks.stopping().is_cancelled() => {
            Refusal::Denied(Denied::NotLeader { leader: None, retry_after: DEPOSED_RETRY_AFTER })
        }
        Stop::Closing | Stop::Deposed => Refusal::Closing,
        Stop::Said | Stop::Gone | Stop::Overdue | Stop::Broken(Broken::Gone) => return,
    };
    // A client that takes nothing is not waited for.
    let _ = answer.send_timeout(Err(refusal), GRACE).await;
}

/// Ends git. A push first has the end of its input to read: then it tidies up what it has received, which a signal
/// makes it leave behind.
async fn end(process: &mut Process, stdout: &mut ChildStdout, is_push: bool) -> Option<End> {
    if is_push {
        return finish(process, stdout, tokio::time::sleep(GRACE)).await;
    }
    process.terminate(GRACE).await.ok().map(End::from)
}

/// Waits for the end of a push that may not be killed, and lets nobody wait for its words.
async fn finish(
    process: &mut Process,
    stdout: &mut ChildStdout,
    limit: impl Future<Output = ()>,
) -> Option<End> {
    let mut nowhere = tokio::io::sink();
    let drained = async {
        let _ = tokio::io::copy(stdout, &mut nowhere).await;
        std::future::pending().await
    };
    tokio::select! {
        end = within(limit, process) => end,
        never = drained => never,
    }
}

/// Waits for the end of git, and ends it when it takes too long.
async fn within(limit: impl Future<Output = ()>, process: &mut Process) -> Option<End> {
    tokio::select! {
        biased;
        status = process.wait() => return status.ok().map(End::from),
        () = limit => {}
    }
    let _ = process.terminate(GRACE).await;
    Some(End::TimedOut)
}

/// The end of what git complains about. Read to the last, or a full pipe would stop git.
async fn overhear(mut stderr: impl AsyncRead + Unpin) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(bytes @ 1..) = stderr.read(&mut buffer).await {
        kept.extend_from_slice(&buffer[..bytes]);
        let excess = kept.len().saturating_sub(COMPLAINT_BYTES_MAX);
        kept.drain(..excess);
    }
    kept
}
