//! Single values: what is right, and what to write instead of what is wrong.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use jiff::SignedDuration;

use crate::file::text::Secretive;
use crate::file::{CONCURRENCY, Mode, Rate};
use crate::pace::PAGE_SIZE;

const HEARTBEATS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(600);
/// The longest name of a directive, tenant or project: they stand in keys together.
const NAME_MAX: usize = 48;
/// The longest name of a table or column that every store takes.
const IDENTIFIER_MAX: usize = 63;

pub(super) fn plain_name(text: &str) -> Result<String, String> {
    let is_plain =
        text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_'));
    if text.is_empty() || text.len() > NAME_MAX || !is_plain {
        return Err(format!("must be 1 to {NAME_MAX} lower-case letters, digits, '-' and '_', not {text:?}"));
    }
    Ok(text.to_owned())
}

pub(super) fn own_name(text: &str, path: &Path) -> Result<String, String> {
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    match stem {
        Some(stem) if stem != text => {
            Err(format!("the directive {text:?} must stand in {text}.toml; rename the file or the directive"))
        }
        _ => plain_name(text),
    }
}

pub(super) fn declared(queue: &str, queues: &[String]) -> Result<String, String> {
    if queues.iter().any(|known| known == queue) {
        return Ok(queue.to_owned());
    }
    let known = queues.join(", ");
    Err(format!("queue {queue:?} is not defined; defined are {known} (directives.queues in stargate.toml)"))
}

pub(super) fn page_size(size: u32) -> Result<u32, String> {
    let (least, most) = (PAGE_SIZE.start(), PAGE_SIZE.end());
    if PAGE_SIZE.contains(&size) { Ok(size) } else { Err(format!("must be {least} to {most}, not {size}")) }
}

pub(super) fn concurrency(pages: u32) -> Result<u32, String> {
    let (least, most) = (CONCURRENCY.start(), CONCURRENCY.end());
    if CONCURRENCY.contains(&pages) {
        Ok(pages)
    } else {
        Err(format!("must be {least} to {most}, not {pages}"))
    }
}

pub(super) fn mode(word: &str) -> Result<Mode, String> {
    match word {
        "full" => Ok(Mode::Full),
        "incremental" => Ok(Mode::Incremental),
        other => Err(format!("must be \"full\" or \"incremental\", not {other:?}")),
    }
}

/// `"30s"`, `"10m"`, `"1h30m"`; above zero.
pub(super) fn length(text: &str) -> Result<Duration, String> {
    let length = text.parse::<SignedDuration>().ok().and_then(|length| Duration::try_from(length).ok());
    length.filter(|length| !length.is_zero()).ok_or_else(|| {
        format!("{text:?} is not a length of time; write \"500ms\", \"30s\", \"10m\" or \"1h30m\"")
    })
}

/// A lease is a few heartbeats: longer ones would keep a run that died from being taken up.
pub(super) fn heartbeat(text: &str) -> Result<Duration, String> {
    let length = length(text)?;
    match HEARTBEATS.contains(&length) {
        true => Ok(length),
        false => Err(format!("must be 100ms to 10m, not {text:?}")),
    }
}

/// `"10/s"`, `"600/m"`, `"1000/h"`.
pub(super) fn rate(text: &str) -> Result<Rate, String> {
    let read = || {
        let (count, unit) = text.split_once('/')?;
        let per = match unit.trim() {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            _ => return None,
        };
        let count = count.trim().parse().ok().filter(|count| *count > 0)?;
        Some(Rate { count, per: Duration::from_secs(per) })
    };
    read().ok_or_else(|| format!("{text:?} is not a rate; write \"10/s\", \"600/m\" or \"1000/h\""))
}

pub(super) fn pointer(text: &str) -> Result<String, String> {
    let escapes_are_right =
        text.split('~').skip(1).all(|after| after.starts_with('0') || after.starts_with('1'));
    if (text.is_empty() || text.starts_with('/')) && escapes_are_right {
        return Ok(text.to_owned());
    }
    Err(format!("{text:?} is no JSON pointer; write \"/a/b\" (\"~1\" for '/' in a name, \"~0\" for '~')"))
}

pub(super) fn secretive(text: &str) -> Result<Secretive, String> {
    Secretive::parse(text).map_err(str::to_owned)
}

pub(super) fn word(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("must not be empty".to_owned()) } else { Ok(text.to_owned()) }
}

pub(super) fn identifier(text: &str) -> Result<String, String> {
    let is_plain = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if text.is_empty() || text.len() > IDENTIFIER_MAX || !is_plain || text.as_bytes()[0].is_ascii_digit() {
        return Err(format!(
            "must be 1 to {IDENTIFIER_MAX} lower-case letters, digits and '_', no digit first, not {text:?}"
        ));
    }
    Ok(text.to_owned())
}
