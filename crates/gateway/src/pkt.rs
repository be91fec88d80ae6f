//! pkt-lines, as far as we write them ourselves: git's framing of text, four hex digits of length first.

/// Bytes of text in one line at most; the protocol's own limit.
const TEXT_BYTES_MAX: usize = 65_516;
/// The end of a section.
pub(crate) const FLUSH: &str = "0000";

/// One line. What does not fit into one is cut off.
pub(crate) fn line(text: &str) -> String {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{:04x}{}", end + 4, &text[..end])
}

/// Bytes of the list of refs that a push may begin with. git keeps all of it in memory, before any hook is asked how many
/// refs are allowed; ten thousand refs with the longest names need less.
pub(crate) const REFS_BYTES_MAX: u64 = 16 << 20;

/// Watches the lines up to the first flush go by: they are to be no more than so many bytes.
#[derive(Debug)]
pub(crate) struct Opening {
    left: u64,
    /// Digits of a length that have arrived, and what they mean so far.
    digits: u32,
    length: usize,
    /// Bytes of the line that are still to come.
    text: usize,
    is_over: bool,
}

impl Opening {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self { left: bytes_max, digits: 0, length: 0, text: 0, is_over: bytes_max == u64::MAX }
    }

    /// Whether these bytes may go by.
    pub(crate) fn admits(&mut self, mut bytes: &[u8]) -> bool {
        while !self.is_over && !bytes.is_empty() {
            let count = if self.text > 0 { self.text.min(bytes.len()) } else { 1 };
            let (now, later) = bytes.split_at(count);
            let Some(left) = self.left.checked_sub(count as u64) else { return false };
            self.left = left;
            bytes = later;
            if self.text > 0 {
                self.text -= count;
            } else {
                self.digit(now[0]);
            }
        }
        true
    }

    fn digit(&mut self, byte: u8) {
        // With what is no length git ends by itself.
        let Some(digit) = char::from(byte).to_digit(16) else { return self.is_over = true };
        self.length = self.length * 16 + digit as usize;
        self.digits += 1;
        if self.digits == 4 {
            // Lengths below four are marks; the first of them ends the section.
            self.is_over = self.length < 4;
            self.text = self.length.saturating_sub(4);
            (self.digits, self.length) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_up_to_the_first_flush_however_they_are_cut() {
        let text = format!("{}{}{}{FLUSH}", line("one"), line(""), line("three"));
        let whole = text.len() as u64;
        for size in 1..=text.len() {
            let passes = |bytes_max| {
                let mut opening = Opening::new(bytes_max);
                let lines = text.as_bytes().chunks(size).all(|chunk| opening.admits(chunk));
                lines && opening.admits(&[b'x'; 1000])
            };
            assert!(passes(whole) && !passes(whole - 1), "in pieces of {size}");
        }
        assert!(Opening::new(2).admits(b"no length"), "git refuses it");
        assert!(Opening::new(u64::MAX).admits(&[b'f'; 1000]));
    }

    #[test]
    fn the_length_counts_itself() {
        assert_eq!(line("# service=git-upload-pack\n"), "001e# service=git-upload-pack\n");
        assert_eq!(line(""), "0004");
    }

    #[test]
    fn a_line_never_exceeds_what_the_protocol_allows() {
        let long = line(&"ä".repeat(60_000));
        assert_eq!(long.len(), TEXT_BYTES_MAX + 4);
        assert!(long.starts_with("fff0"));
    }
}
