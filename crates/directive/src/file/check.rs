//! From what stands in the file to what it means. All problems are told at once.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::SignedDuration;
use jiff::tz::TimeZone;
use toml::Spanned;

use super::raw::{self, Given};
use super::text::Secretive;
use super::{
    ActivitySource, ConfigValue, Directive, FILE_BYTES_MAX, FileSource, Format, HttpSource, ItemSpec, Mode,
    Pagination, Problem, Rate, Schedule, SingerSource, Sink, Source, SqlSource,
};
use crate::item::{Column, ColumnType, Table};
use crate::pace::{PAGE_SIZE, PAGE_SIZE_DEFAULT};
use crate::retry::Policy;
use crate::transform::{Field, From, Piece};

const HEARTBEAT: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(60);
/// The longest name of a directive, tenant or project: they stand in keys together.
const NAME_MAX: usize = 48;
/// The longest name of a table or column that every store takes.
const IDENTIFIER_MAX: usize = 63;
/// The columns that every table has.
const FIXED: [&str; 9] = [
    "tenant_id",
    "project_id",
    "directive",
    "entity_id",
    "hash",
    "version",
    "body",
    "created_at",
    "updated_at",
];

/// Collects what is wrong, with its place.
pub(super) struct Problems<'t> {
    path: &'t Path,
    text: &'t str,
    found: Vec<Problem>,
}

impl<'t> Problems<'t> {
    pub(super) fn new(path: &'t Path, text: &'t str) -> Self {
        Self { path, text, found: Vec::new() }
    }

    pub(super) fn add(&mut self, at: Range<usize>, text: impl Into<String>) {
        let before = self.text.get(..at.start).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        self.found.push(Problem { path: self.path.to_owned(), line, column, text: text.into() });
    }

    pub(super) fn finish(mut self) -> Vec<Problem> {
        self.found.sort_by_key(|problem| (problem.line, problem.column));
        self.found
    }

    /// What `read` makes of a value, or nothing and the problem.
    fn read<V, T>(&mut self, value: &Spanned<V>, read: impl FnOnce(&V) -> Result<T, String>) -> Option<T> {
        read(value.get_ref()).map_err(|problem| self.add(value.span(), problem)).ok()
    }

    /// The same of a value that may be missing; then it is what it is by default.
    fn read_or<V, T>(
        &mut self,
        value: &Given<V>,
        default: T,
        read: impl FnOnce(&V) -> Result<T, String>,
    ) -> Option<T> {
        match value {
            Some(value) => self.read(value, read),
            None => Some(default),
        }
    }

    /// The same of a value that must be there.
    fn need<V, T>(
        &mut self,
        at: &Range<usize>,
        key: &str,
        value: &Given<V>,
        read: impl FnOnce(&V) -> Result<T, String>,
    ) -> Option<T> {
        match value {
            Some(value) => self.read(value, read),
            None => {
                self.add(at.clone(), format!("needs {key}"));
                None
            }
        }
    }
}

/// What a file means, as far as it can be told.
pub(super) fn directive(
    raw: raw::Directive,
    path: &Path,
    queues: &[String],
    problems: &mut Problems<'_>,
) -> Option<Directive> {
    let name = problems.read(&raw.name, |name| own_name(name, path));
    let queue = problems.read(&raw.queue, |queue| declared(queue, queues));
    let tenant = problems.read(&raw.tenant, |text| plain_name(text));
    let project = problems.read(&raw.project, |text| plain_name(text));
    let page_size = problems.read_or(&raw.page_size, PAGE_SIZE_DEFAULT, |size| page_size(*size));
    let mode = problems.read_or(&raw.mode, Mode::Full, |word| mode(word));
    let schedule = schedule(&raw, problems);
    let heartbeat = problems.read_or(&raw.heartbeat, HEARTBEAT, |text| length(text));
    let deadline = problems.read_or(&raw.deadline, None, |text| length(text).map(Some));
    let retry = retry(&raw.retry, problems);
    let source = source(&raw.source, path, problems);
    let item = item(&raw.item, path, problems);
    let sink = sink(&raw.sink, item.as_ref(), problems);
    Some(Directive {
        name: name?,
        queue: queue?,
        tenant: tenant?,
        project: project?,
        spec_ref: raw.spec_ref,
        page_size: page_size?,
        mode: mode?,
        schedule: schedule?,
        heartbeat: heartbeat?,
        deadline: deadline?,
        retry: retry?,
        source: source?,
        item: item?,
        sink: sink?,
        path: path.to_owned(),
    })
}

fn plain_name(text: &str) -> Result<String, String> {
    let is_plain =
        text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_'));
    if text.is_empty() || text.len() > NAME_MAX || !is_plain {
        return Err(format!("must be 1 to {NAME_MAX} lower-case letters, digits, '-' and '_', not {text:?}"));
    }
    Ok(text.to_owned())
}

fn own_name(text: &str, path: &Path) -> Result<String, String> {
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    match stem {
        Some(stem) if stem != text => {
            Err(format!("the directive {text:?} must stand in {text}.toml; rename the file or the directive"))
        }
        _ => plain_name(text),
    }
}

fn declared(queue: &str, queues: &[String]) -> Result<String, String> {
    if queues.iter().any(|known| known == queue) {
        return Ok(queue.to_owned());
    }
    let known = queues.join(", ");
    Err(format!("queue {queue:?} is not defined; defined are {known} (directives.queues in stargate.toml)"))
}

fn page_size(size: u32) -> Result<u32, String> {
    let (least, most) = (PAGE_SIZE.start(), PAGE_SIZE.end());
    if PAGE_SIZE.contains(&size) { Ok(size) } else { Err(format!("must be {least} to {most}, not {size}")) }
}

fn mode(word: &str) -> Result<Mode, String> {
    match word {
        "full" => Ok(Mode::Full),
        "incremental" => Ok(Mode::Incremental),
        other => Err(format!("must be \"full\" or \"incremental\", not {other:?}")),
    }
}

/// `"30s"`, `"10m"`, `"1h30m"`; above zero.
fn length(text: &str) -> Result<Duration, String> {
    let length = text.parse::<SignedDuration>().ok().and_then(|length| Duration::try_from(length).ok());
    length.filter(|length| !length.is_zero()).ok_or_else(|| {
        format!("{text:?} is not a length of time; write \"500ms\", \"30s\", \"10m\" or \"1h30m\"")
    })
}

/// `"10/s"`, `"600/m"`, `"1000/h"`.
fn rate(text: &str) -> Result<Rate, String> {
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

fn pointer(text: &str) -> Result<String, String> {
    let escapes_are_right =
        text.split('~').skip(1).all(|after| after.starts_with('0') || after.starts_with('1'));
    if (text.is_empty() || text.starts_with('/')) && escapes_are_right {
        return Ok(text.to_owned());
    }
    Err(format!("{text:?} is no JSON pointer; write \"/a/b\" (\"~1\" for '/' in a name, \"~0\" for '~')"))
}

fn secretive(text: &str) -> Result<Secretive, String> {
    Secretive::parse(text).map_err(str::to_owned)
}

fn word(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("must not be empty".to_owned()) } else { Ok(text.to_owned()) }
}

fn identifier(text: &str) -> Result<String, String> {
    let is_plain = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if text.is_empty() || text.len() > IDENTIFIER_MAX || !is_plain || text.as_bytes()[0].is_ascii_digit() {
        return Err(format!(
            "must be 1 to {IDENTIFIER_MAX} lower-case letters, digits and '_', no digit first, not {text:?}"
        ));
    }
    Ok(text.to_owned())
}

fn schedule(raw: &raw::Directive, problems: &mut Problems<'_>) -> Option<Option<Schedule>> {
    let zone = problems.read_or(&raw.time_zone, "UTC".to_owned(), |zone| match TimeZone::get(zone) {
        Ok(_) => Ok(zone.clone()),
        Err(_) => Err(format!("there is no time zone {zone:?}; write a name as in \"Europe/Berlin\"")),
    })?;
    if let (None, Some(zone)) = (&raw.schedule, &raw.time_zone) {
        problems.add(zone.span(), "has no schedule to belong to");
        return None;
    }
    problems.read_or(&raw.schedule, None, |cron| {
        let schedule = Schedule { cron: cron.clone(), time_zone: zone };
        schedule.check().map(|()| Some(schedule)).map_err(|error| error.to_string())
    })
}

fn retry(raw: &raw::Retry, problems: &mut Problems<'_>) -> Option<Policy> {
    let mut policy = Policy::STANDARD;
    let mut set = |given: &Given<String>, length_of: &mut Duration| {
        if let Some(value) = problems.read_or(given, *length_of, |text| length(text)) {
            *length_of = value;
        }
    };
    set(&raw.transient_first, &mut policy.transient.first);
    set(&raw.transient_max, &mut policy.transient.cap);
    set(&raw.conflict_first, &mut policy.conflict.first);
    set(&raw.conflict_max, &mut policy.conflict.cap);
    policy.transient_max = raw.transient_tries.as_ref().map(|tries| *tries.get_ref());
    Some(policy)
}

fn source(raw: &Spanned<raw::Source>, path: &Path, problems: &mut Problems<'_>) -> Option<Source> {
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

/// A key, the types of source it belongs to, and where it stands.
type ForeignKey = (&'static str, &'static [&'static str], Option<Range<usize>>);

/// Keys that belong to another type of source.
fn foreign_keys(kind: &str, raw: &raw::Source, problems: &mut Problems<'_>) {
    fn place<T>(value: &Given<T>) -> Option<Range<usize>> {
        value.as_ref().map(Spanned::span)
    }
    let first = |map: &BTreeMap<Spanned<String>, Spanned<String>>| map.keys().next().map(Spanned::span);
    let keys: [ForeignKey; 19] = [
        ("url", &["http", "sql"], place(&raw.url)),
        ("records", &["http"], place(&raw.records)),
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
    for (key, kinds, at) in keys {
        if let Some(at) = at.filter(|_| !kinds.contains(&kind)) {
            problems.add(at, format!("{key} belongs to a source of type {}, not {kind}", kinds.join(" or ")));
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
    let param = |problems: &mut Problems<'_>| problems.need(&at, "param", &raw.param, |name| word(name));
    match raw.kind.get_ref().as_str() {
        "none" => Some(Pagination::None),
        "link" => Some(Pagination::Link),
        "page" => Some(Pagination::Page { param: param(problems)?, start: raw.start.unwrap_or(1) }),
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
                other => ConfigValue::Other(json(other)?),
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

/// A path in a directive is meant from where the directive lies.
fn beside(path: &Path, name: &str) -> PathBuf {
    path.parent().unwrap_or(Path::new("")).join(name)
}

fn json(value: &toml::Value) -> Result<serde_json::Value, String> {
    serde_json::to_value(value).map_err(|error| error.to_string())
}

fn item(raw: &raw::Item, path: &Path, problems: &mut Problems<'_>) -> Option<ItemSpec> {
    if raw.key.get_ref().is_empty() {
        problems.add(raw.key.span(), "must name at least one place: key = [\"/id\"]");
        return None;
    }
    let pointers = |given: &[Spanned<String>], problems: &mut Problems<'_>| {
        let all: Vec<Option<String>> =
            given.iter().map(|text| problems.read(text, |text| pointer(text))).collect();
        all.into_iter().collect::<Option<Vec<String>>>()
    };
    let key = pointers(raw.key.get_ref(), problems);
    let hash = pointers(&raw.hash, problems);
    let schema = problems.read_or(&raw.schema, None, |name| read_schema(&beside(path, name)).map(Some));
    let mut fields = Vec::with_capacity(raw.map.len());
    for (name, given) in &raw.map {
        let column = problems.read(name, |name| match identifier(name) {
            Ok(name) if FIXED.contains(&name.as_str()) => {
                Err(format!("{name:?} is a column that every table has; choose another name"))
            }
            name => name,
        });
        let field = problems.read(given, field);
        if let (Some(name), Some((kind, from, default))) = (column, field) {
            fields.push(Field { column: Column { name, kind }, from, default });
        }
    }
    Some(ItemSpec { key: key?, hash: hash?, schema: schema?, fields })
}

fn read_schema(path: &Path) -> Result<serde_json::Value, String> {
    let failed = |problem: String| format!("cannot read the schema {}: {problem}", path.display());
    let about = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?;
    if about.len() > FILE_BYTES_MAX {
        return Err(failed(format!("it has more than {FILE_BYTES_MAX} bytes")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| failed(error.to_string()))
}

type FieldParts = (ColumnType, From, Option<serde_json::Value>);

fn field(given: &raw::Field) -> Result<FieldParts, String> {
    let table = match given {
        raw::Field::Place(place) => return Ok((ColumnType::Text, From::Pointer(pointer(place)?), None)),
        raw::Field::Table(table) => table,
    };
    let kind = match table.kind.as_deref() {
        None | Some("text") => ColumnType::Text,
        Some("integer") => ColumnType::Integer,
        Some("float") => ColumnType::Float,
        Some("boolean") => ColumnType::Boolean,
        Some("timestamp") => ColumnType::Timestamp,
        Some("json") => ColumnType::Json,
        Some(other) => {
            return Err(format!(
                "type {other:?} is not known; known are text, integer, float, boolean, timestamp and json"
            ));
        }
    };
    let from = match (&table.from, &table.template, &table.constant) {
        (Some(place), None, None) => From::Pointer(pointer(place)?),
        (None, Some(text), None) => From::Template(template(text)?),
        (None, None, Some(value)) => From::Constant(json(value)?),
        _ => return Err("needs exactly one of from, template and constant".to_owned()),
    };
    Ok((kind, from, table.default.as_ref().map(json).transpose()?))
}

/// `"{/owner}/{/name}"`; `{{` and `}}` stand for themselves.
fn template(text: &str) -> Result<Vec<Piece>, String> {
    let unclosed =
        || format!("{text:?} has a brace without its other half; write \"{{{{\" for a brace itself");
    let (mut pieces, mut plain, mut rest) = (Vec::new(), String::new(), text);
    while let Some(at) = rest.find(['{', '}']) {
        let (before, after) = rest.split_at(at);
        plain.push_str(before);
        if after.starts_with("{{") || after.starts_with("}}") {
            plain.push_str(&after[..1]);
            rest = &after[2..];
            continue;
        }
        let place = after.strip_prefix('{').and_then(|after| after.split_once('}'));
        let (place, after) = place.filter(|(place, _)| !place.contains('{')).ok_or_else(unclosed)?;
        if !plain.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut plain)));
        }
        pieces.push(Piece::Pointer(pointer(place)?));
        rest = after;
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        pieces.push(Piece::Text(plain));
    }
    Ok(pieces)
}

fn sink(raw: &raw::Sink, item: Option<&ItemSpec>, problems: &mut Problems<'_>) -> Option<Sink> {
    let name = problems.read(&raw.table, |name| identifier(name));
    let outbox = problems.read_or(&raw.outbox, None, |topic| word(topic).map(Some));
    let url = problems.read_or(&raw.url, None, |url| secretive(url).map(Some));
    let columns = item.map(|item| item.fields.iter().map(|field| field.column.clone()).collect());
    Some(Sink { table: Table { name: name?, columns: columns? }, outbox: outbox?, url: url? })
}
