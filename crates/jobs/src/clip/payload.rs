//! What to cut: `{"source": …, "start": …, "end": …}`.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use stargate_artifact::s3::Sources;
use stargate_base::ErrorClass;
use stargate_queue::handler::Failure;
use url::Url;

use super::CLIP_TOO_LONG;

/// No recording is longer; keeps times far from where numbers lose their precision.
const SECONDS_MAX: f64 = 10_000_000.0;
/// The longest source that is not refused unread; longer than any path or address in use.
const SOURCE_BYTES_MAX: usize = 4096;

/// What to cut.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Request {
    pub(super) source: Source,
    pub(super) start: Duration,
    /// After `start`.
    pub(super) end: Duration,
}

/// Where the recording is.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Source {
    /// A file that the worker can open.
    Local(String),
    /// `http` or `https`.
    Web(Url),
    /// `s3://bucket/key`.
    S3(String),
}

impl std::fmt::Display for Source {
    /// As shown to people: without password and query, which are often secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            // Quoted: names may hold line ends.
            Self::Local(text) | Self::S3(text) => write!(f, "{text:?}"),
            Self::Web(url) => f.write_str(&crate::fetch::shown(url)),
        }
    }
}

impl Request {
    /// The same for every attempt, however the payload is written: tells the clips of two requests apart.
    pub(super) fn digest(&self) -> String {
        let source = match &self.source {
            Source::Local(text) | Source::S3(text) => text.as_str(),
            Source::Web(url) => url.as_str(),
        };
        let text = format!("{} {} {source}", self.start.as_nanos(), self.end.as_nanos());
        Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Length asked for.
    pub(super) fn length(&self) -> Duration {
        self.end - self.start
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    source: Value,
    start: Value,
    end: Value,
}

/// Reads a payload and refuses what cannot be cut, whatever the source is.
pub(super) fn parse(payload: &str, clip_max: Duration) -> Result<Request, Failure> {
    let fields: Fields = serde_json::from_str(payload).map_err(|error| malformed(&error.to_string()))?;
    let source = source(&fields.source)?;
    let (start, end) = (time("start", &fields.start)?, time("end", &fields.end)?);
    if end <= start {
        let message =
            format!("end is {} and start is {}; end must be after start", seconds(end), seconds(start));
        return Err(Failure::invalid(message));
    }
    let request = Request { source, start, end };
    if request.length() > clip_max {
        let message = format!(
            "the clip would be {} long; allowed are {} (clip.max_length)",
            seconds(request.length()),
            seconds(clip_max)
        );
        return Err(Failure::new(CLIP_TOO_LONG, ErrorClass::ValidationFailure, message));
    }
    Ok(request)
}

/// A duration as people read it: `12.5 s`.
pub(super) fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

fn malformed(problem: &str) -> Failure {
    Failure::new("PAYLOAD_INVALID", ErrorClass::ValidationFailure, problem)
}

fn source(value: &Value) -> Result<Source, Failure> {
    const ALLOWED: &str = "write a path, an http:// or https:// address, or s3://bucket/key";
    let Value::String(text) = value else {
        return Err(malformed(&format!("source is not a text; {ALLOWED}")));
    };
    if text.is_empty() || text.contains('\0') || text.len() > SOURCE_BYTES_MAX {
        let problem =
            format!("source is empty, longer than {SOURCE_BYTES_MAX} bytes or holds NUL; {ALLOWED}");
        return Err(malformed(&problem));
    }
    let Some(scheme) = scheme(text) else { return Ok(Source::Local(text.clone())) };
    match scheme.to_ascii_lowercase().as_str() {
        "http" | "https" => match Url::parse(text) {
            Ok(url) if url.has_host() => Ok(Source::Web(url)),
            // The address itself may hold a password and is not repeated.
            _ => Err(malformed(&format!("source is not a valid address; {ALLOWED}"))),
        },
        "s3" if Sources::is_address(text) => Ok(Source::S3(text.clone())),
        "s3" => Err(malformed(&format!("source names no object in a bucket; {ALLOWED}"))),
        other => Err(malformed(&format!("source begins with {other}://; {ALLOWED}"))),
    }
}

/// The scheme of an address. `concat:a` or `C:\a` is none: those are file names, if strange ones.
fn scheme(text: &str) -> Option<&str> {
    let (scheme, _) = text.split_once("://")?;
    let fits = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
    (scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(fits)).then_some(scheme)
}

/// Seconds, or text: `90`, `1:30`, `00:01:30.250`.
fn time(field: &str, value: &Value) -> Result<Duration, Failure> {
    let seconds = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => clock_text(text),
        _ => None,
    };
    match seconds {
        Some(seconds) if (0.0..=SECONDS_MAX).contains(&seconds) => {
            // Whole microseconds, which is what ffmpeg counts in.
            Ok(Duration::from_secs_f64((seconds * 1e6).round() / 1e6))
        }
        _ => {
            let message = format!(
                "{field} is {value}; write seconds such as 12.5, or \"HH:MM:SS.mmm\", from 0 to {SECONDS_MAX} s"
            );
            Err(malformed(&message))
        }
    }
}

fn clock_text(text: &str) -> Option<f64> {
    let whole =
        |part: &str| part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse::<f64>().ok()).flatten();
    let fraction = |part: &str| {
        // Neither `inf` nor `1e3`, which numbers in text may be as well.
        part.bytes().all(|b| b.is_ascii_digit() || b == b'.').then(|| part.parse::<f64>().ok()).flatten()
    };
    let below_60 = |part: f64| Some(part).filter(|part| *part < 60.0);
    match *text.split(':').collect::<Vec<_>>() {
        [s] => fraction(s),
        [m, s] => Some(whole(m)? * 60.0 + below_60(fraction(s)?)?),
        [h, m, s] => Some(whole(h)? * 3600.0 + below_60(whole(m)?)? * 60.0 + below_60(fraction(s)?)?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(payload: &str) -> Result<Request, (String, String)> {
        let parsed = parse(payload, Duration::from_secs(120));
        parsed.map_err(|failure| (failure.error.code, failure.error.message))
    }

    fn times(start: &str, end: &str) -> Result<(f64, f64), (String, String)> {
        parsed(&format!(r#"{{"source":"a.mp4","start":{start},"end":{end}}}"#))
            .map(|request| (request.start.as_secs_f64(), request.end.as_secs_f64()))
    }

    fn source(text: &str) -> Result<Source, (String, String)> {
        let payload = serde_json::json!({ "source": text, "start": 0, "end": 1 });
        parsed(&payload.to_string()).map(|request| request.source)
    }

    #[test]
    fn times_are_seconds_or_clock_texts() {
        for (start, end, expected) in [
            ("0", "1.5", (0.0, 1.5)),
            (r#""1.25""#, r#""90""#, (1.25, 90.0)),
            (r#""1:30""#, r#""01:31.5""#, (90.0, 91.5)),
            (r#""01:00:00.250""#, r#""1:00:01""#, (3600.25, 3601.0)),
            (r#""99:59""#, "6000", (5999.0, 6000.0)),
        ] {
            assert_eq!(times(start, end), Ok(expected), "{start} {end}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused_by_name() {
        for wrong in [
            "-1",
            "null",
            "true",
            "[]",
            "1e30",
            r#""""#,
            r#""x""#,
            r#""1e3""#,
            r#""inf""#,
            r#""NaN""#,
            r#""-1""#,
            r#""1:60""#,
            r#""1:60:00""#,
            r#""1:2:3:4""#,
            r#""1.5:00""#,
            r#"":30""#,
            r#""1:""#,
            r#""1..2""#,
        ] {
            let (code, message) = times("0", wrong).unwrap_err();
            assert_eq!(code, "PAYLOAD_INVALID", "{wrong}");
            assert!(message.starts_with("end is ") && message.contains("HH:MM:SS.mmm"), "{message}");
        }
    }

    #[test]
    fn an_end_that_is_not_after_the_start_is_refused() {
        for (start, end) in [("1", "1"), ("2", "1")] {
            let (code, message) = times(start, end).unwrap_err();
            assert_eq!(code, "VALIDATION_FAILED");
            assert!(message.contains("end must be after start"), "{message}");
        }
        let (code, message) = times("0", "120.001").unwrap_err();
        assert_eq!(code, CLIP_TOO_LONG);
        assert!(message.contains("120.001 s") && message.contains("120 s"), "{message}");
        assert!(times("7000", "7120").is_ok());
    }

    #[test]
    fn unknown_and_missing_fields_are_named() {
        let (code, message) = parsed(r#"{"source":"a","start":0,"stop":1}"#).unwrap_err();
        assert_eq!(code, "PAYLOAD_INVALID");
        assert!(message.contains("stop") && message.contains("end"), "{message}");
        let (_, message) = parsed(r#"{"source":"a","start":0}"#).unwrap_err();
        assert!(message.contains("end"), "{message}");
        assert_eq!(parsed("[]").unwrap_err().0, "PAYLOAD_INVALID");
    }

    #[test]
    fn sources_are_paths_addresses_or_objects() {
        for path in ["a.mp4", "/x/a b.mp4", "-i", "concat:a|b", "C:\\a", "a%d.png", "://x", "x y://z"] {
            assert_eq!(source(path), Ok(Source::Local(path.to_owned())));
        }
        assert!(matches!(source("HTTPS://example.com/a?b"), Ok(Source::Web(_))));
        let object = "s3://bucket/a/b c?d#e";
        assert_eq!(source(object), Ok(Source::S3(object.to_owned())));
        for wrong in ["", "file:///etc/passwd", "ftp://host/a", "http://", "s3://bucket", "s3:///key", "a\0b"]
        {
            let (code, message) = source(wrong).unwrap_err();
            assert_eq!(code, "PAYLOAD_INVALID", "{wrong}");
            assert!(message.starts_with("source ") && message.contains("s3://bucket/key"), "{message}");
        }
    }

    #[test]
    fn secrets_in_addresses_are_not_shown() {
        let url = source("https://user:pass@example.com:8443/v/a.mp4?token=secret#part").unwrap();
        assert_eq!(url.to_string(), "https://example.com:8443/v/a.mp4");
    }
}
