//! Lengths of time as people write them: `"2m"`, `"500ms"`, `"1h30m"`, `"7d"`, or plain seconds.

use std::time::Duration;

use jiff::SignedDuration;
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};

/// 24 hours, whatever a calendar says about that day.
const DAY: Duration = Duration::from_secs(86_400);

/// A length of time in the configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interval(pub(crate) Duration);

/// Reads `2m`, `1h30m`, `500ms`, `7d` or plain seconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || {
        format!(
            "{text:?} is not a length of time; write \"500ms\", \"30s\", \"2m\", \"1h30m\", \"7d\" or plain seconds"
        )
    };
    let text = text.trim();
    let days = text.strip_suffix('d').and_then(|days| days.trim_end().parse::<u32>().ok());
    let seconds = text.parse::<f64>().ok();
    let length = match (days, seconds) {
        // The parser below leaves days to calendars, where not all of them are equally long.
        (Some(days), _) => DAY.checked_mul(days),
        (None, Some(seconds)) => Duration::try_from_secs_f64(seconds).ok(),
        (None, None) => {
            text.parse::<SignedDuration>().ok().and_then(|signed| Duration::try_from(signed).ok())
        }
    };
    length.ok_or_else(wrong)
}

/// Writes a length of time so that [`parse`] reads it again.
pub(crate) fn show(length: Duration) -> String {
    let seconds = length.as_secs();
    if length.subsec_nanos() == 0 && seconds > DAY.as_secs() && seconds.is_multiple_of(DAY.as_secs()) {
        return format!("{}d", seconds / DAY.as_secs());
    }
    match SignedDuration::try_from(length) {
        Ok(signed) => format!("{signed:#}").replace(' ', ""),
        Err(_) => format!("{}s", length.as_secs()),
    }
}

impl<'de> Deserialize<'de> for Interval {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IntervalVisitor)
    }
}

struct IntervalVisitor;

impl Visitor<'_> for IntervalVisitor {
    type Value = Interval;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a length of time such as \"2m\", \"500ms\", \"1h30m\", \"7d\", or plain seconds")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Interval, E> {
        parse(text).map(Interval).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, seconds: i64) -> Result<Interval, E> {
        let wrong = |_| E::invalid_value(Unexpected::Signed(seconds), &self);
        u64::try_from(seconds).map_err(wrong).map(|seconds| Interval(Duration::from_secs(seconds)))
    }

    fn visit_f64<E: Error>(self, seconds: f64) -> Result<Interval, E> {
        let wrong = |_| E::invalid_value(Unexpected::Float(seconds), &self);
        Duration::try_from_secs_f64(seconds).map_err(wrong).map(Interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_and_plain_seconds_are_read_and_nonsense_is_refused_with_examples() {
        assert_eq!(parse("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse("42m30s"), Ok(Duration::from_secs(2550)));
        assert_eq!(parse("7d"), Ok(Duration::from_secs(7 * 86_400)));
        assert_eq!(parse("15"), Ok(Duration::from_secs(15)));
        assert_eq!(parse("0.5"), Ok(Duration::from_millis(500)));
        for bad in ["", "soon", "-5", "-5s", "2 fortnights", "NaN", "inf", "1e300"] {
            assert!(parse(bad).unwrap_err().contains("1h30m"), "{bad:?}");
        }
    }

    #[test]
    fn what_is_shown_can_be_read_again() {
        let seconds = [90, 5400, 86_400, 7 * 86_400].map(Duration::from_secs);
        for length in seconds.into_iter().chain([Duration::from_millis(500)]) {
            assert_eq!(parse(&show(length)), Ok(length), "{}", show(length));
        }
    }
}
