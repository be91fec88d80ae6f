//! Text that is HTML already, and the few things that are easier written in Rust than in a template.
//!
//! Templates escape everything but [`Html`], which only this file and `json.rs` make. Nothing that came from outside
//! enters one without [`escape`].

use std::borrow::Borrow;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use stargate_base::clock;

/// HTML that was put together here and is not escaped again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Html(String);

impl fmt::Display for Html {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl askama::filters::HtmlSafe for Html {}

impl Html {
    /// Takes over what its caller escaped.
    pub(super) fn escaped(html: String) -> Self {
        Self(html)
    }
}

/// Appends text so that it is shown as it is, in an element or an attribute.
pub(crate) fn escape(to: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '<' => to.push_str("&lt;"),
            '>' => to.push_str("&gt;"),
            '&' => to.push_str("&amp;"),
            '"' => to.push_str("&quot;"),
            '\'' => to.push_str("&#39;"),
            _ => to.push(c),
        }
    }
}

/// How long ago, or in how long; the script keeps it up to date, the tooltip has the instant.
pub(crate) fn ago(at: &Timestamp) -> Html {
    let passed = clock::wall().duration_since(*at);
    let text = match passed {
        _ if passed.abs() < SignedDuration::from_secs(1) => "now".to_owned(),
        _ if passed.is_negative() => format!("in {}", span(-passed.as_secs_f64())),
        _ => format!("{} ago", span(passed.as_secs_f64())),
    };
    // An instant has nothing in it that would need escaping.
    Html(format!(r#"<time datetime="{at:.3}" title="{}" data-rel>{text}</time>"#, instant(at)))
}

/// The same for something that may not have happened.
pub(crate) fn ago_or(at: Option<&Timestamp>, absent: &'static str) -> Html {
    at.map_or_else(|| Html(absent.to_owned()), ago)
}

/// An instant for people who compare it with a log.
pub(crate) fn instant(at: &Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// The time of day, where the day is clear.
pub(crate) fn time_of_day(at: &Timestamp) -> String {
    at.strftime("%H:%M:%S").to_string()
}

/// A length of time in its largest units.
pub(crate) fn span(seconds: impl Borrow<f64>) -> String {
    const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)];
    let seconds = seconds.borrow().max(0.0);
    if seconds < 1.0 {
        return format!("{:.0} ms", seconds * 1000.0);
    }
    if seconds < 10.0 {
        return format!("{} s", (seconds * 10.0).round() / 10.0);
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative, and only shown"
    )]
    let whole = seconds.round() as u64;
    let at = UNITS.iter().position(|(_, length)| whole >= *length).unwrap_or(UNITS.len() - 1);
    let (name, length) = UNITS[at];
    let (count, rest) = (whole / length, whole % length);
    match UNITS.get(at + 1) {
        Some((next, next_length)) if count < 10 && length > 60 && rest / next_length > 0 => {
            format!("{count} {name} {} {next}", rest / next_length)
        }
        _ => format!("{count} {name}"),
    }
}

/// A length of time in milliseconds.
pub(crate) fn millis(millis: impl Number) -> String {
    #[expect(clippy::cast_precision_loss, reason = "only shown")]
    let seconds = millis.number() as f64 / 1000.0;
    span(seconds)
}

/// From one instant to another.
pub(crate) fn between(from: &Timestamp, to: &Timestamp) -> String {
    span(to.duration_since(*from).as_secs_f64())
}

/// A number that is counted; templates pass references of any depth.
pub(crate) trait Number {
    fn number(&self) -> u64;
}

macro_rules! numbers {
    ($($kind:ty),*) => {
        $(impl Number for $kind {
            fn number(&self) -> u64 {
                u64::try_from(*self).unwrap_or_default()
            }
        })*
    };
}
numbers!(u16, u32, u64, usize, i32, i64);

impl<N: Number + ?Sized> Number for &N {
    fn number(&self) -> u64 {
        (**self).number()
    }
}

/// A number with its thousands apart.
pub(crate) fn count(number: impl Number) -> String {
    let digits = number.number().to_string();
    let mut text = String::with_capacity(digits.len() * 2);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            // Narrow, and does not break the line.
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// `1 job`, `2 jobs`.
pub(crate) fn counted(number: impl Number, one: &str, many: &str) -> String {
    let number = number.number();
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// A part of an address, whatever is in it.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte))
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// A query of these pairs, with its question mark; what is empty is left out.
pub(crate) fn query<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let pairs = pairs.into_iter().filter(|(_, value)| !value.is_empty());
    let pairs: Vec<String> = pairs.map(|(name, value)| format!("{name}={}", encode(value))).collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

/// A word for a shell, quoted if it has to be.
pub(crate) fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/@,+=%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_short_and_round() {
        for (seconds, text) in [
            (0.012, "12 ms"),
            (1.26, "1.3 s"),
            (42.4, "42 s"),
            (60.0, "1 min"),
            (3599.0, "59 min"),
            (3600.0, "1 h"),
            (5400.0, "1 h 30 min"),
            (86_400.0 * 40.0, "40 d"),
            (-5.0, "0 ms"),
        ] {
            assert_eq!(span(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(
            [0_u64, 999, 1000, 1_234_567].map(count),
            ["0", "999", "1\u{202f}000", "1\u{202f}234\u{202f}567"]
        );
        assert_eq!(counted(1_u64, "job", "jobs"), "1 job");
    }

    #[test]
    fn words_survive_a_shell_and_addresses_a_browser() {
        assert_eq!(word("push:process"), "push:process");
        assert_eq!(word("it's $(x)"), r"'it'\''s $(x)'");
        assert_eq!(word(""), "''");
        assert_eq!(encode("a/b?c=ü&"), "a%2Fb%3Fc%3D%C3%BC%26");
        assert_eq!(query([("a", ""), ("b", "x y")]), "?b=x%20y");
    }

    #[test]
    fn what_comes_from_outside_is_escaped() {
        let mut html = String::new();
        escape(&mut html, r#"<b a='x' c="&">"#);
        assert_eq!(html, "&lt;b a=&#39;x&#39; c=&quot;&amp;&quot;&gt;");
    }
}
