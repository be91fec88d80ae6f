//! Splits a tap's output into lines without holding more than one of bounded length.
//!
//! It is read only while a page is asked for: a tap that is faster than what is done with its records waits in its write.

use std::io;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// A line buffer that grew beyond this is given back.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Lines of bounded length.
#[derive(Debug)]
pub(super) struct Lines<R> {
    reader: BufReader<R>,
    bytes_max: usize,
    line: Vec<u8>,
    is_over: bool,
    /// The line was given out; the next call begins another.
    is_done: bool,
}

/// A line.
#[derive(Debug)]
pub(super) enum Line<'l> {
    /// All of it, without its end.
    Whole(&'l [u8]),
    /// The beginning of one that is too long.
    Over(&'l [u8]),
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(reader: R, bytes_max: usize) -> Self {
        let reader = BufReader::with_capacity(64 << 10, reader);
        Self { reader, bytes_max, line: Vec::new(), is_over: false, is_done: false }
    }

    /// The next line; `None` at the end. Safe to cancel: what was read of a line stays.
    pub(super) async fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        if std::mem::take(&mut self.is_done) {
            self.is_over = false;
            self.line.clear();
            self.line.shrink_to(KEPT_BYTES_MAX);
        }
        loop {
            let bytes = self.reader.fill_buf().await?;
            if bytes.is_empty() {
                // What stands before the end is a line too.
                self.is_done = !self.line.is_empty() || self.is_over;
                return Ok(self.is_done.then(|| self.line()));
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let part = &bytes[..end.unwrap_or(bytes.len())];
            let room = self.bytes_max - self.line.len();
            self.is_over |= part.len() > room;
            if !self.is_over {
                self.line.extend_from_slice(part);
            }
            let read = end.map_or(bytes.len(), |end| end + 1);
            self.reader.consume(read);
            if end.is_some() {
                self.is_done = true;
                return Ok(Some(self.line()));
            }
        }
    }

    fn line(&self) -> Line<'_> {
        if self.is_over { Line::Over(&self.line) } else { Line::Whole(&self.line) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn split(bytes: &[u8], bytes_max: usize) -> Vec<String> {
        let mut lines = Lines::new(bytes, bytes_max);
        let mut all = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            all.push(match line {
                Line::Whole(line) => String::from_utf8(line.to_vec()).unwrap(),
                Line::Over(line) => format!("over {}", line.len()),
            });
        }
        assert!(lines.next().await.unwrap().is_none(), "the end stays the end");
        all
    }

    #[tokio::test]
    async fn lines_come_whole_and_the_last_needs_no_end() {
        assert_eq!(split(b"a\n\nbc\nd", 8).await, ["a", "", "bc", "d"]);
        assert_eq!(split(b"", 8).await, [""; 0]);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_skipped_and_the_next_is_read() {
        let text = format!("{}\nnext\n{}", "x".repeat(200_000), "y".repeat(9));
        assert_eq!(split(text.as_bytes(), 8).await, ["over 0", "next", "over 0"]);
        assert_eq!(split(b"12345678\n", 8).await, ["12345678"]);
        let text = format!("{}\n", "x".repeat(200_000));
        assert_eq!(split(text.as_bytes(), 100_000).await, ["over 65536"]);
    }
}
