//! Where records come from: each type of source has its keys.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use toml::Spanned;

use super::value::{identifier, length, pointer, rate, secretive, word};
use super::{Problems, beside};
use crate::file::json::json;
use crate::file::raw::{self, Given};
use crate::file::text::Secretive;
use crate::file::{
    ActivitySource, ConfigValue, FileSource, Format, HttpSource, Pagination, SingerSource, Source, SqlSource,
};

const TIMEOUT: Duration = Duration::from_secs(60);

pub(super) fn source(raw: &Spanned<raw::Source>, path: &Path, problems: &mut Problems<'_>) -> Option<Source> {
    let at = raw.span();
    let raw = raw.get_ref();
    let kind = raw.kind.get_ref().as_str();
    foreign_keys(kind, raw, problems);
    match kind {
        "http" => http(raw, &at, problems).map(Source::Http),
        "singer" => singer(raw, &at, path, problems).map(Source::Singer),
        "file" => file(raw, &at, path, problems).map(Source::File),
        "sql" => {
            let url = problems.read_or(&raw.url, None, |url| secretive(url).map(Some));
            let query = problems.need(&at, "query", &raw.query, |query| word(query));
            let watermark = problems.need(&at, "watermark", &raw.watermark, |column| identifier(column));
            Some(Source::Sql(SqlSource { url: url?, query: query?, watermark: watermark? }))
        }
        "activity" => {
            let activity = problems.need(&at, "activity", &raw.activity, |name| word(name));
            let task_queue = problems.need(&at, "task_queue", &raw.task_queue, |queue| word(queue));
            let args = problems.read_or(&raw.args, serde_json::Value::Null, json);
            Some(Source::Activity(ActivitySource {
                activity: activity?,
                task_queue: task_queue?,
                args: args?,
            }))
        }
        other => {
            problems.add(
                raw.kind.span(),
                format!("source type {other:?} is not known; known are http, singer, file, sql and activity"),
            );
            None
        }
    }
}

/// A key, the types it belongs to, and where it stands.
type ForeignKey = (&'static str, &'static [&'static str], Option<Range<usize>>);

/// Keys that belong to another type of source.
fn foreign_keys(kind: &str, raw: &raw::Source, problems: &mut Problems<'_>) {
    fn place<T>(value: &Given<T>) -> Option<Range<usize>> {
        value.as_ref().map(Spanned::span)
    }
    let first = |map: &BTreeMap<Spanned<String>, Spanned<String>>| map.keys().next().map(Spanned::span);
    let keys: [ForeignKey; 20] = [
        ("url", &["http", "sql"], place(&raw.url)),
        ("records", &["http"], place(&raw.records)),
        ("total", &["http"], place(&raw.total)),
        ("page_size_param", &["http"], place(&raw.page_size_param)),
        ("pagination", &["http"], place(&raw.pagination)),
        ("rate_limit", &["http"], place(&raw.rate_limit)),
        ("headers", &["http"], first(&raw.headers)),
        ("timeout", &["http"], place(&raw.timeout)),
        ("command", &["singer"], place(&raw.command)),
        ("config", &["singer"], place(&raw.config)),
        ("catalog", &["singer"], place(&raw.catalog)),
        ("stream", &["singer"], place(&raw.stream)),
        ("env", &["singer"], first(&raw.env)),
        ("path", &["file"], place(&raw.path)),
        ("format", &["file"], place(&raw.format)),
        ("query", &["sql"], place(&raw.query)),
        ("watermark", &["sql"], place(&raw.watermark)),
        ("activity", &["activity"], place(&raw.activity)),
        ("task_queue", &["activity"], place(&raw.task_queue)),
        ("args", &["activity"], place(&raw.args)),
    ];
    refuse_foreign("source", kind, keys, problems);
}

fn refuse_foreign<const N: usize>(
    what: &str,
    kind: &str,
    keys: [ForeignKey; N],
    problems: &mut Problems<'_>,
) {
    for (key, kinds, at) in keys {
        if let Some(at) = at.filter(|_| !kinds.contains(&kind)) {
            problems.add(at, format!("{key} belongs to a {what} of type {}, not {kind}", kinds.join(" or ")));
        }
    }
}

fn http(raw: &raw::Source, at: &Range<usize>, problems: &mut Problems<'_>) -> Option<HttpSource> {
    let url = problems.need(at, "url", &raw.url, |url| {
        if url.starts_with("http://") || url.starts_with("https://") || url.starts_with("${env:") {
            secretive(url)
        } else {
            Err(format!(
                "must begin with http:// or https://, not {:?}",
                url.chars().take(12).collect::<String>()
            ))
        }
    });
    let records = problems.read_or(&raw.records, String::new(), |text| pointer(text));
    let total = problems.read_or(&raw.total, None, |text| pointer(text).map(Some));
    let page_size_param = problems.read_or(&raw.page_size_param, None, |name| word(name).map(Some));
    let pagination = match &raw.pagination {
        Some(given) => pagination(given, problems),
        None => Some(Pagination::None),
    };
    let rate_limit = problems.read_or(&raw.rate_limit, None, |text| rate(text).map(Some));
    let headers = texts(&raw.headers, problems);
    let timeout = problems.read_or(&raw.timeout, TIMEOUT, |text| length(text));
    Some(HttpSource {
        url: url?,
        records: records?,
        total: total?,
        page_size_param: page_size_param?,
        pagination: pagination?,
        rate_limit: rate_limit?,
        headers: headers?,
        timeout: timeout?,
    })
}

fn texts(
    given: &BTreeMap<Spanned<String>, Spanned<String>>,
    problems: &mut Problems<'_>,
) -> Option<BTreeMap<String, Secretive>> {
    let read = |(name, value): (&Spanned<String>, &Spanned<String>)| {
        let value = problems.read(value, |text| secretive(text))?;
        Some((name.get_ref().clone(), value))
    };
    // All of them, so that all problems are told.
    let all: Vec<Option<_>> = given.iter().map(read).collect();
    all.into_iter().collect()
}

fn pagination(given: &Spanned<raw::Pagination>, problems: &mut Problems<'_>) -> Option<Pagination> {
    let (at, raw) = (given.span(), given.get_ref());
    let keys: [ForeignKey; 3] = [
        ("param", &["page", "offset", "cursor"], raw.param.as_ref().map(Spanned::span)),
        ("start", &["page"], raw.start.as_ref().map(Spanned::span)),
        ("next", &["cursor"], raw.next.as_ref().map(Spanned::span)),
    ];
    refuse_foreign("pagination", raw.kind.get_ref(), keys, problems);
    let param = |problems: &mut Problems<'_>| problems.need(&at, "param", &raw.param, |name| word(name));
    match raw.kind.get_ref().as_str() {
        "none" => Some(Pagination::None),
        "link" => Some(Pagination::Link),
        "page" => Some(Pagination::Page {
            param: param(problems)?,
            start: raw.start.as_ref().map_or(1, |start| *start.get_ref()),
        }),
        "offset" => Some(Pagination::Offset { param: param(problems)? }),
        "cursor" => {
            let next = problems.need(&at, "next", &raw.next, |text| pointer(text));
            Some(Pagination::Cursor { param: param(problems)?, next: next? })
        }
        other => {
            let text =
                format!("pagination {other:?} is not known; known are none, page, offset, cursor and link");
            problems.add(raw.kind.span(), text);
            None
        }
    }
}

fn singer(
    raw: &raw::Source,
    at: &Range<usize>,
    path: &Path,
    problems: &mut Problems<'_>,
) -> Option<SingerSource> {
    let command = problems.need(at, "command", &raw.command, |command| match command.first() {
        Some(program) if !program.is_empty() => Ok(command.clone()),
        _ => Err("must name a program: command = [\"tap-name\"]".to_owned()),
    });
    let config = problems.read_or(&raw.config, BTreeMap::new(), |table| {
        let read = |(key, value): (&String, &toml::Value)| {
            let value = match value {
                toml::Value::String(text) => ConfigValue::Text(secretive(text)?),
                other => {
                    check_texts(other)?;
                    ConfigValue::Other(json(other)?)
                }
            };
            Ok((key.clone(), value))
        };
        table.iter().map(read).collect()
    });
    let catalog = problems.read_or(&raw.catalog, None, |name| Ok(Some(beside(path, name))));
    let stream = problems.read_or(&raw.stream, None, |name| word(name).map(Some));
    let env = texts(&raw.env, problems);
    Some(SingerSource { command: command?, config: config?, catalog: catalog?, stream: stream?, env: env? })
}

/// Texts within lists and tables name variables too; they are filled in when the tap starts.
fn check_texts(value: &toml::Value) -> Result<(), String> {
    match value {
        toml::Value::String(text) => secretive(text).map(drop),
        toml::Value::Array(values) => values.iter().try_for_each(check_texts),
        toml::Value::Table(fields) => fields.values().try_for_each(check_texts),
        _ => Ok(()),
    }
}

fn file(
    raw: &raw::Source,
    at: &Range<usize>,
    path: &Path,
    problems: &mut Problems<'_>,
) -> Option<FileSource> {
    let place = problems.need(at, "path", &raw.path, |name| word(name).map(|name| beside(path, &name)));
    let of_name = match place.as_ref().and_then(|place| place.extension()?.to_str()) {
        Some("csv") => Format::Csv,
        _ => Format::Jsonl,
    };
    let format = problems.read_or(&raw.format, of_name, |word| match word.as_str() {
        "jsonl" => Ok(Format::Jsonl),
        "csv" => Ok(Format::Csv),
        other => Err(format!("must be \"jsonl\" or \"csv\", not {other:?}")),
    });
    Some(FileSource { path: place?, format: format? })
}
