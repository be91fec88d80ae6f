//! JSON for people: indented, coloured, and with every number as it was written.
//!
//! The text is cut into tokens and never parsed into values: a number with thirty digits keeps them all, and keys keep
//! their order. What is not JSON is shown as it is.

use super::html::{Html, escape};

/// More is not put into a page; the API has all of it.
const SHOWN_BYTES_MAX: usize = 128 << 10;
/// Beyond this depth nothing is indented further.
const INDENT_MAX: usize = 60;
/// What the API writes in place of what may not be seen.
const REDACTED: &str = "\"[redacted]\"";

/// Indents and colours JSON.
pub(crate) fn pretty(text: &str) -> Html {
    let shown = cut(text);
    let mut html = String::with_capacity(shown.len() * 2);
    let mut writer = Writer { html: &mut html, depth: 0 };
    let mut rest = shown;
    while !rest.is_empty() {
        let (token, after) = next(rest);
        writer.token(token, after);
        rest = after;
    }
    if shown.len() < text.len() {
        html.push_str("\n… and more: the API has all of it");
    }
    Html::escaped(html)
}

/// The same as plain text, for editing.
pub(crate) fn indented(text: &str) -> String {
    let (mut plain, mut depth, mut rest) = (String::with_capacity(text.len() * 2), 0, text);
    while !rest.is_empty() {
        let (token, after) = next(rest);
        let closed = after.trim_start().starts_with(['}', ']']);
        match token.text {
            "{" | "[" if closed => plain.push_str(token.text),
            "{" | "[" => {
                depth += 1;
                plain.push_str(token.text);
                line(&mut plain, depth);
            }
            "}" | "]" => {
                if !plain.ends_with(['{', '[']) {
                    depth = depth.saturating_sub(1);
                    line(&mut plain, depth);
                }
                plain.push_str(token.text);
            }
            "," => {
                plain.push(',');
                line(&mut plain, depth);
            }
            ":" => plain.push_str(": "),
            text if token.kind != Kind::Space => plain.push_str(text),
            _ => {}
        }
        rest = after;
    }
    plain
}

fn line(to: &mut String, depth: usize) {
    to.push('\n');
    to.push_str(&"  ".repeat(depth.min(INDENT_MAX)));
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(SHOWN_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    Word,
    Mark,
    Space,
    Other,
}

#[derive(Debug, Clone, Copy)]
struct Token<'a> {
    kind: Kind,
    text: &'a str,
}

/// The next token, and what follows it. Never empty, so that the end is reached whatever the text is.
fn next(text: &str) -> (Token<'_>, &str) {
    let first = text.chars().next().unwrap_or(' ');
    let run = |belongs: fn(char) -> bool| text.find(|c| !belongs(c)).unwrap_or(text.len());
    let (kind, length) = match first {
        '"' => (Kind::Text, string_length(text)),
        '{' | '}' | '[' | ']' | ',' | ':' => (Kind::Mark, 1),
        '-' | '0'..='9' => (Kind::Number, run(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))),
        c if c.is_ascii_alphabetic() => (Kind::Word, run(|c| c.is_ascii_alphanumeric())),
        c if c.is_whitespace() => (Kind::Space, run(char::is_whitespace)),
        other => (Kind::Other, other.len_utf8()),
    };
    let (token, rest) = text.split_at(length);
    (Token { kind, text: token }, rest)
}

fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

struct Writer<'a> {
    html: &'a mut String,
    depth: usize,
}

impl Writer<'_> {
    fn token(&mut self, token: Token<'_>, after: &str) {
        let following = after.trim_start();
        match (token.kind, token.text) {
            (Kind::Space, _) => {}
            (Kind::Mark, "{" | "[") => {
                self.html.push_str(token.text);
                if !following.starts_with(['}', ']']) {
                    self.depth += 1;
                    line(self.html, self.depth);
                }
            }
            (Kind::Mark, "}" | "]") => {
                if !self.html.ends_with(['{', '[']) {
                    self.depth = self.depth.saturating_sub(1);
                    line(self.html, self.depth);
                }
                self.html.push_str(token.text);
            }
            (Kind::Mark, ",") => {
                self.html.push(',');
                line(self.html, self.depth);
            }
            (Kind::Mark, _) => self.html.push_str(": "),
            (Kind::Text, _) if following.starts_with(':') => self.coloured("k", token.text),
            (Kind::Text, REDACTED) => self.coloured("r", "redacted"),
            (Kind::Text, text) => self.coloured("s", text),
            (Kind::Number, text) => self.coloured("n", text),
            (Kind::Word, text) => self.coloured("w", text),
            (Kind::Other, text) => escape(self.html, text),
        }
    }

    fn coloured(&mut self, class: &str, text: &str) {
        self.html.push_str("<span class=\"");
        self.html.push_str(class);
        self.html.push_str("\">");
        escape(self.html, text);
        self.html.push_str("</span>");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a browser would show.
    fn shown(text: &str) -> String {
        let (html, mut plain, mut inside) = (pretty(text).to_string(), String::new(), false);
        for c in html.chars() {
            match c {
                '<' => inside = true,
                '>' => inside = false,
                c if !inside => plain.push(c),
                _ => {}
            }
        }
        plain
    }

    #[test]
    fn it_is_indented_and_every_digit_is_kept() {
        let text = r#"{"big":12345678901234567890123,"e":1.50e+10,"list":[1,{}],"none":[],"ok":true}"#;
        let expected = "{\n  \"big\": 12345678901234567890123,\n  \"e\": 1.50e+10,\n  \"list\": [\n    1,\n    {}\n  ],\n  \
                        \"none\": [],\n  \"ok\": true\n}";
        assert_eq!(shown(text).replace("&quot;", "\""), expected);
        assert_eq!(indented(text), expected);
        assert_eq!(indented(expected), expected, "what is indented stays as it is");
    }

    #[test]
    fn nothing_in_it_becomes_markup() {
        let html = pretty(r#"{"<script>":"</pre><img src=x onerror='a()'>\"&"}"#).to_string();
        assert!(!html.contains("<script") && !html.contains("<img") && !html.contains("</pre"), "{html}");
    }

    #[test]
    fn what_is_no_json_is_shown_all_the_same_and_ends() {
        for text in ["", "\"", "\"\\", "}}}]", "☃{", "{\"a\"", "\u{0}", "-"] {
            let _ = pretty(text);
            let _ = indented(text);
        }
        assert_eq!(shown("☃"), "☃");
        assert!(shown(&"[".repeat(100_000)).len() < 100_000 * 130);
    }

    #[test]
    fn what_may_not_be_seen_is_marked() {
        assert!(
            pretty(r#"{"token":"[redacted]"}"#).to_string().contains("<span class=\"r\">redacted</span>")
        );
    }
}
