//! The last bytes of a stream of any length, as text that every store can keep.

/// Keeps the last `bytes_max` bytes of what is pushed.
#[derive(Debug)]
pub(crate) struct Tail {
    bytes: Vec<u8>,
    bytes_max: usize,
    cut: bool,
}

impl Tail {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes: Vec::new(), bytes_max, cut: false }
    }

    pub(crate) fn push(&mut self, more: &[u8]) {
        let more = &more[more.len().saturating_sub(self.bytes_max)..];
        self.bytes.extend_from_slice(more);
        // Room for twice as much, so that each byte is moved at most once.
        if self.bytes.len() > 2 * self.bytes_max {
            self.bytes.drain(..self.bytes.len() - self.bytes_max);
            self.cut = true;
        }
    }

    /// The text. Bytes that are not UTF-8 and NUL, which Postgres cannot keep, become U+FFFD; the result still
    /// fits the bound although that character takes three bytes.
    pub(crate) fn text(&self) -> Option<String> {
        let mut start = self.bytes.len().saturating_sub(self.bytes_max);
        if start > 0 || self.cut {
            // Not in the middle of a character.
            while self.bytes.get(start).is_some_and(|b| b & 0xC0 == 0x80) {
                start += 1;
            }
        }
        let mut text = String::from_utf8_lossy(&self.bytes[start..]).replace('\0', "\u{FFFD}");
        if text.len() > self.bytes_max {
            let cut = text.ceil_char_boundary(text.len() - self.bytes_max);
            text.drain(..cut);
        }
        Some(text).filter(|text| !text.trim().is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_is_kept_and_memory_stays_bounded() {
        let mut tail = Tail::new(10);
        for n in 0..10_000 {
            tail.push(format!("line {n}\n").as_bytes());
            assert!(tail.bytes.len() <= 20);
        }
        assert_eq!(tail.text().unwrap(), "line 9999\n");
        tail.push(&[b'x'; 1000]);
        assert_eq!(tail.text().unwrap(), "xxxxxxxxxx");
    }

    #[test]
    fn a_cut_character_is_dropped_and_what_no_store_keeps_is_replaced() {
        let mut tail = Tail::new(5);
        tail.push("ääää".as_bytes());
        assert_eq!(tail.text().unwrap(), "ää");
        let mut tail = Tail::new(64);
        tail.push(b"a\0b\xFF");
        assert_eq!(tail.text().unwrap(), "a\u{FFFD}b\u{FFFD}");
    }

    #[test]
    fn replacing_does_not_break_the_bound() {
        let mut tail = Tail::new(64);
        tail.push(&[0xFF; 64]);
        assert!(tail.text().unwrap().len() <= 64);
    }

    #[test]
    fn silence_is_no_text() {
        assert_eq!(Tail::new(8).text(), None);
    }
}
