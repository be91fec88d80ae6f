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

#[cfg(test)]
mod tests {
    use super::*;

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
