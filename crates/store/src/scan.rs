//! How far a look goes that no index answers: so many rows, so many bytes of them, and not for long.
//!
//! Rows are looked at in chunks, each a question of its own. A chunk holds as many rows as fit into its share of the
//! bytes, judged by the rows before it: payloads have a mebibyte at most, and most have a hundred bytes. Somebody waits
//! for the answer, so a look that takes long ends after the chunk it is at and says where to go on.

use std::time::{Duration, Instant};

use stargate_queue::listing::SCAN_MAX;

/// How long a look may take before it ends.
const PATIENCE: Duration = Duration::from_millis(60);
/// Rows that are looked at however long they take, so that every look gets somewhere.
const ROWS_MIN: u64 = 1000;

/// Bytes of payloads looked at before the look ends.
const BYTES_MAX: u64 = 64 << 20;
/// Bytes that one chunk should not exceed by much.
const CHUNK_BYTES: u64 = 8 << 20;
const CHUNK_FIRST: u64 = 200;
/// Few enough that a look which is out of time ends soon.
const CHUNK_ROWS_MAX: u64 = 2000;

/// How much of a look is left.
#[derive(Debug)]
pub(crate) struct Scan {
    rows: u64,
    bytes: u64,
    chunk: u64,
    began: Instant,
}

impl Scan {
    /// A look that has not begun.
    pub(crate) fn new() -> Self {
        Self { rows: u64::from(SCAN_MAX), bytes: BYTES_MAX, chunk: CHUNK_FIRST, began: Instant::now() }
    }

    /// How many rows to look at next; none when the look is over.
    pub(crate) fn next(&self) -> Option<usize> {
        self.next_at(self.began.elapsed())
    }

    fn next_at(&self, spent: Duration) -> Option<usize> {
        if spent > PATIENCE && u64::from(SCAN_MAX) - self.rows >= ROWS_MIN {
            return None;
        }
        let rows = self.chunk.min(self.rows);
        (rows > 0 && self.bytes > 0).then(|| usize::try_from(rows).unwrap_or(1))
    }

    /// So many rows were looked at, with so many bytes.
    pub(crate) fn took(&mut self, rows: usize, bytes: u64) {
        let rows = rows as u64;
        self.rows = self.rows.saturating_sub(rows);
        self.bytes = self.bytes.saturating_sub(bytes);
        let each = (bytes / rows.max(1)).max(1);
        self.chunk = (CHUNK_BYTES / each).clamp(8, CHUNK_ROWS_MAX.min(self.chunk.saturating_mul(4)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows_of(bytes_each: u64) -> (u64, u64) {
        let (mut scan, mut rows, mut largest) = (Scan::new(), 0, 0);
        while let Some(chunk) = scan.next_at(Duration::ZERO) {
            let bytes = chunk as u64 * bytes_each;
            rows += chunk as u64;
            largest = largest.max(bytes);
            scan.took(chunk, bytes);
        }
        (rows, largest)
    }

    #[test]
    fn small_rows_end_the_look_by_their_number_and_large_ones_by_their_bytes() {
        assert_eq!(rows_of(100).0, u64::from(SCAN_MAX));
        assert_eq!(rows_of(0).0, u64::from(SCAN_MAX));
        let (rows, largest) = rows_of(1 << 20);
        assert!(rows <= 300, "{rows} rows of a mebibyte");
        assert!(largest <= 200 << 20, "{largest} bytes in one chunk");
        assert!(rows_of(10 << 10).1 <= CHUNK_BYTES * 2);
    }

    #[test]
    fn a_look_that_takes_long_ends_but_not_before_it_got_somewhere() {
        let (mut scan, mut rows) = (Scan::new(), 0);
        while let Some(chunk) = scan.next_at(PATIENCE * 2) {
            rows += chunk as u64;
            scan.took(chunk, 0);
        }
        assert!((ROWS_MIN..ROWS_MIN + CHUNK_ROWS_MAX).contains(&rows), "{rows} rows");
    }
}
