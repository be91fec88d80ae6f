//! The body of a request on its way to git: unpacked, counted, and never held in memory.
//!
//! What git does not take (it has already refused the push) is still read to the end, within the same bounds: a client
//! that is cut off while it sends shows its user a broken connection instead of the reason.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use async_compression::tokio::bufread::GzipDecoder;
use axum::body::Body;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use stargate_base::Tasks;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::runtime::Handle;
use tokio_util::io::{ReaderStream, StreamReader};

use crate::pkt::Opening;
use crate::request::Encoding;

/// Bytes that are unpacked at a time.
const UNPACKED_CHUNK_BYTES: usize = 64 << 10;

/// How long what a client still sends is read although it is refused already: about the time in which it sees that.
const LINGER: Duration = Duration::from_secs(5);

/// Why a body did not arrive whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The client is gone.
    Gone,
    /// Nothing came for too long.
    Slow,
    /// More than is taken.
    TooLarge,
    /// More of what git keeps in memory than is taken: the list of refs of a push.
    TooManyRefs,
    /// Not what its encoding says.
    Garbled,
}

/// Bounds of one body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Bytes after unpacking.
    pub(crate) bytes_max: u64,
    /// Bytes of its first section.
    pub(crate) opening_bytes_max: u64,
    /// Silence.
    pub(crate) idle_max: Duration,
}

/// A body on its way to git.
pub(crate) type Chunks = BoxStream<'static, Result<Bytes, Broken>>;

/// The same as [`chunks`]; and when nobody wants the rest, it is read on for a moment, so that the client hears why.
pub(crate) fn lingering(body: Body, encoding: Encoding, tasks: &Tasks) -> Chunks {
    let chunks = chunks(body, encoding).boxed();
    match encoding {
        Encoding::Plain => Lingering { chunks: Some(chunks), tasks: tasks.clone() }.boxed(),
        // What is packed is short, and unpacking it for nobody would be work.
        Encoding::Gzip => chunks,
    }
}

/// A body that is read on for [`LINGER`] when it is dropped before its end.
struct Lingering {
    chunks: Option<Chunks>,
    tasks: Tasks,
}

impl Stream for Lingering {
    type Item = Result<Bytes, Broken>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(chunks) = &mut self.chunks else { return Poll::Ready(None) };
        let next = chunks.poll_next_unpin(context);
        if matches!(next, Poll::Ready(None | Some(Err(_)))) {
            self.chunks = None;
        }
        next
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        let Some(mut chunks) = self.chunks.take() else { return };
        if Handle::try_current().is_err() {
            return;
        }
        let stopping = self.tasks.stopping();
        self.tasks.spawn(async move {
            let rest = async { while let Some(Ok(_)) = chunks.next().await {} };
            let _ = tokio::time::timeout(LINGER, stopping.run_until_cancelled(rest)).await;
        });
    }
}

/// The chunks of a body, unpacked.
fn chunks(body: Body, encoding: Encoding) -> impl Stream<Item = Result<Bytes, Broken>> + Send + Unpin {
    let plain =
        body.into_data_stream().map_err(|_| std::io::Error::from(std::io::ErrorKind::ConnectionReset));
    match encoding {
        Encoding::Plain => plain.map_err(|_| Broken::Gone).left_stream(),
        Encoding::Gzip => unpacked(GzipDecoder::new(StreamReader::new(plain))).right_stream(),
    }
}

fn unpacked(
    decoder: impl AsyncRead + Send + Unpin,
) -> impl Stream<Item = Result<Bytes, Broken>> + Send + Unpin {
    ReaderStream::with_capacity(decoder, UNPACKED_CHUNK_BYTES).map_err(|error| match error.kind() {
        std::io::ErrorKind::ConnectionReset => Broken::Gone,
        _ => Broken::Garbled,
    })
}

/// Pours a body into git's input and closes that at the end.
pub(crate) async fn pour(
    mut chunks: impl Stream<Item = Result<Bytes, Broken>> + Unpin,
    input: impl AsyncWrite + Unpin,
    bounds: Bounds,
) -> Result<(), Broken> {
    let mut input = Some(input);
    let mut left = bounds.bytes_max;
    let mut opening = Opening::new(bounds.opening_bytes_max);
    loop {
        let next = tokio::time::timeout(bounds.idle_max, chunks.next()).await.map_err(|_| Broken::Slow)?;
        let Some(chunk) = next.transpose()? else { break };
        left = left.checked_sub(chunk.len() as u64).ok_or(Broken::TooLarge)?;
        if !opening.admits(&chunk) {
            return Err(Broken::TooManyRefs);
        }
        if let Some(open) = &mut input
            && open.write_all(&chunk).await.is_err()
        {
            input = None;
        }
    }
    if let Some(mut open) = input {
        // Git may have ended meanwhile, satisfied or not; how it ended tells.
        let _ = open.shutdown().await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_compression::tokio::write::GzipEncoder;

    use super::*;

    const BOUNDS: Bounds =
        Bounds { bytes_max: 1 << 20, opening_bytes_max: u64::MAX, idle_max: Duration::from_secs(10) };

    async fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzipEncoder::new(Vec::new());
        encoder.write_all(bytes).await.unwrap();
        encoder.shutdown().await.unwrap();
        encoder.into_inner()
    }

    async fn poured(body: Body, encoding: Encoding) -> (Result<(), Broken>, Vec<u8>) {
        let mut taken = Vec::new();
        let result = pour(chunks(body, encoding), &mut taken, BOUNDS).await;
        (result, taken)
    }

    #[tokio::test]
    async fn bodies_arrive_as_they_were_meant() {
        let bytes: Vec<u8> = (0..200_000_u32).map(|n| (n % 251) as u8).collect();
        let (result, taken) = poured(Body::from(bytes.clone()), Encoding::Plain).await;
        assert!(result.is_ok() && taken == bytes);
        let (result, taken) = poured(Body::from(gzip(&bytes).await), Encoding::Gzip).await;
        assert!(result.is_ok() && taken == bytes);
    }

    #[tokio::test]
    async fn a_bomb_is_stopped_at_the_bound_however_small_it_is_packed() {
        let packed = gzip(&vec![0; 64 << 20]).await;
        assert!(packed.len() < 100_000);
        let (result, taken) = poured(Body::from(packed), Encoding::Gzip).await;
        assert_eq!(result, Err(Broken::TooLarge));
        assert!(taken.len() as u64 <= BOUNDS.bytes_max);
    }

    #[tokio::test]
    async fn a_cut_or_garbled_body_is_not_taken_for_a_whole_one() {
        let mut packed = gzip(&vec![7; 100_000]).await;
        packed.truncate(packed.len() - 9);
        assert_eq!(poured(Body::from(packed), Encoding::Gzip).await.0, Err(Broken::Garbled));
        assert_eq!(poured(Body::from("no gzip"), Encoding::Gzip).await.0, Err(Broken::Garbled));
        let reset = futures::stream::iter([Ok(Bytes::from("x")), Err(std::io::Error::other("reset"))]);
        assert_eq!(poured(Body::from_stream(reset), Encoding::Plain).await.0, Err(Broken::Gone));
    }

    #[tokio::test]
    async fn a_list_of_refs_that_does_not_end_is_not_taken() {
        let line = crate::pkt::line(&format!("{0} {0} refs/heads/x", "0".repeat(40)));
        let bounds = Bounds { opening_bytes_max: 10_000, ..BOUNDS };
        let mut taken = Vec::new();
        let body = Body::from(line.repeat(1000));
        let result = pour(chunks(body, Encoding::Plain), &mut taken, bounds).await;
        assert_eq!((result, taken.len()), (Err(Broken::TooManyRefs), 0));
        let body = Body::from(format!("{}{}{}", line.repeat(100), crate::pkt::FLUSH, "x".repeat(50_000)));
        assert_eq!(pour(chunks(body, Encoding::Plain), &mut taken, bounds).await, Ok(()), "a pack follows");
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_wants_is_read_for_a_moment_and_not_for_ever() {
        let read = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&read);
        let body = futures::stream::unfold((), move |()| {
            let count = Arc::clone(&count);
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                count.fetch_add(1, Ordering::Relaxed);
                Some((Ok::<_, std::io::Error>(Bytes::from("x")), ()))
            }
        });
        let tasks = Tasks::new();
        let mut chunks = lingering(Body::from_stream(body), Encoding::Plain, &tasks);
        assert_eq!(chunks.next().await, Some(Ok(Bytes::from("x"))));
        drop(chunks);
        tokio::time::sleep(LINGER * 10).await;
        assert!((3..10).contains(&read.load(Ordering::Relaxed)), "{read:?}");
        tokio::time::timeout(Duration::from_secs(1), tasks.join()).await.expect("somebody still reads");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_falls_silent_is_not_waited_for() {
        let silent = futures::stream::iter([Ok::<_, std::io::Error>(Bytes::from("x"))])
            .chain(futures::stream::pending());
        assert_eq!(poured(Body::from_stream(silent), Encoding::Plain).await.0, Err(Broken::Slow));
    }

    #[tokio::test]
    async fn what_git_does_not_take_is_read_to_the_end() {
        let (input, far_end) = tokio::io::duplex(16);
        drop(far_end);
        let body = Body::from(vec![1; 500_000]);
        assert_eq!(pour(chunks(body, Encoding::Plain), input, BOUNDS).await, Ok(()));
    }
}
