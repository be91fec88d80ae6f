//! Takes Rust source apart into code, comments and texts, so that a check for a word in one does not find it in
//! another. Knows just enough of the language for that.

/// What a piece of source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Code,
    /// A comment, documentation too.
    Comment,
    /// The inside of a string literal, escapes as written.
    Text,
}

/// A piece of source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece<'a> {
    pub(super) kind: Kind,
    pub(super) text: &'a str,
    /// The line on which it begins, from 1.
    pub(super) line: usize,
}

/// The source without its `mod tests`, which stands at the end by convention.
pub(super) fn without_tests(source: &str) -> &str {
    let mut offset = 0;
    let mut attribute = None;
    for line in source.split_inclusive('\n') {
        let trimmed = line.trim();
        if trimmed == "#[cfg(test)]" {
            attribute = Some(offset);
        } else if trimmed.starts_with("mod tests") || trimmed.starts_with("mod test_") {
            if let Some(start) = attribute {
                return &source[..start];
            }
        } else if !trimmed.starts_with("#[") {
            attribute = None;
        }
        offset += line.len();
    }
    source
}

/// Whether a file holds nothing but tests or what only tests use.
pub(super) fn is_test_file(path: &str) -> bool {
    path.contains("/tests/")
        || path.ends_with("/tests.rs")
        || path.ends_with("_tests.rs")
        || path.starts_with("crates/testkit/")
}

/// Takes source apart.
pub(super) fn pieces(source: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut line = 1;
    let mut push = |kind, text: &str, from: usize, to: usize| {
        if from < to {
            pieces.push((kind, from, to, line));
        }
        line += text.matches('\n').count();
    };
    let (mut at, mut code_from) = (0, 0);
    while at < source.len() {
        let Some(found) = literal(source, at) else {
            at += source[at..].chars().next().map_or(1, char::len_utf8);
            continue;
        };
        push(Kind::Code, &source[code_from..at], code_from, at);
        let Found { kind, inside, end } = found;
        if let Some(kind) = kind {
            // Lines before the inside belong to nobody: quotes and hashes hold none.
            push(kind, &source[inside.0..inside.1], inside.0, inside.1);
        }
        at = end;
        code_from = end;
    }
    push(Kind::Code, &source[code_from..], code_from, source.len());
    pieces.into_iter().map(|(kind, from, to, line)| Piece { kind, text: &source[from..to], line }).collect()
}

struct Found {
    /// `None` for a character literal, which interests nobody.
    kind: Option<Kind>,
    inside: (usize, usize),
    end: usize,
}

/// A comment or literal that begins exactly here.
fn literal(source: &str, at: usize) -> Option<Found> {
    let rest = &source[at..];
    if rest.starts_with("//") {
        let end = at + rest.find('\n').unwrap_or(rest.len());
        return Some(Found { kind: Some(Kind::Comment), inside: (at, end), end });
    }
    if rest.starts_with("/*") {
        let end = at + block_comment_len(rest);
        return Some(Found { kind: Some(Kind::Comment), inside: (at, end), end });
    }
    if let Some(inside) = rest.strip_prefix('"') {
        let length = closing_quote(inside, '"');
        let end = (at + length + 2).min(source.len());
        return Some(Found { kind: Some(Kind::Text), inside: (at + 1, at + 1 + length), end });
    }
    if rest.starts_with('\'') {
        return character_len(rest).map(|length| Found { kind: None, inside: (at, at), end: at + length });
    }
    if rest.starts_with('r') && !source[..at].ends_with(is_word_but_prefix) {
        return raw_text(rest).map(|(from, to, end)| Found {
            kind: Some(Kind::Text),
            inside: (at + from, at + to),
            end: at + end,
        });
    }
    None
}

/// `b` and `c` may stand before the `r` of a raw string.
fn is_word_but_prefix(c: char) -> bool {
    (c.is_alphanumeric() || c == '_') && c != 'b' && c != 'c'
}

fn block_comment_len(rest: &str) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// How many bytes lie before the closing quote.
fn closing_quote(inside: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in inside.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at,
            _ => {}
        }
    }
    inside.len()
}

/// The length of a character literal; none if the quote begins a lifetime.
fn character_len(rest: &str) -> Option<usize> {
    let inside = &rest[1..];
    let first = inside.chars().next()?;
    if first == '\\' {
        return Some(closing_quote(inside, '\'') + 2);
    }
    inside[first.len_utf8()..].starts_with('\'').then(|| first.len_utf8() + 2)
}

/// Begin and end of the inside, and the end, of a raw string.
fn raw_text(rest: &str) -> Option<(usize, usize, usize)> {
    let hashes = rest[1..].bytes().take_while(|b| *b == b'#').count();
    let from = hashes + 2;
    if rest.as_bytes().get(hashes + 1) != Some(&b'"') {
        return None;
    }
    let close = format!("\"{}", "#".repeat(hashes));
    let to = from + rest[from..].find(&close)?;
    Some((from, to, to + close.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str, kind: Kind) -> Vec<(&str, usize)> {
        pieces(source).iter().filter(|p| p.kind == kind).map(|p| (p.text, p.line)).collect()
    }

    #[test]
    fn comments_and_texts_are_told_from_code() {
        let source = "a // \"no text\"\nb(\"// no comment\", 'x', '\"') /* one\n/* two */ */ c";
        assert_eq!(texts(source, Kind::Comment), [("// \"no text\"", 1), ("/* one\n/* two */ */", 2)]);
        assert_eq!(texts(source, Kind::Text), [("// no comment", 2)]);
        assert_eq!(texts(source, Kind::Code).last(), Some(&(" c", 3)));
    }

    #[test]
    fn escapes_raw_strings_and_lifetimes_do_not_confuse() {
        let source =
            "fn f<'a>(x: &'a str) { g(\"say \\\"x\\\"\", r#\"raw \"y\"\"#, br\"z\", '\\'', r#type, for_r) }";
        let found: Vec<&str> = texts(source, Kind::Text).into_iter().map(|(text, _)| text).collect();
        assert_eq!(found, ["say \\\"x\\\"", "raw \"y\"", "z"]);
    }

    #[test]
    fn lines_are_counted_through_texts() {
        let source = "a(\"one\ntwo\");\nb(\"three\")";
        assert_eq!(texts(source, Kind::Text), [("one\ntwo", 1), ("three", 3)]);
    }

    #[test]
    fn tests_at_the_end_are_cut_off() {
        let source = "fn a() {}\n#[cfg(test)]\nfn helper() {}\n#[cfg(test)]\n#[expect(x)]\nmod tests {\n}\n";
        assert_eq!(without_tests(source), "fn a() {}\n#[cfg(test)]\nfn helper() {}\n");
        assert_eq!(without_tests("fn a() {}\n"), "fn a() {}\n");
    }
}
