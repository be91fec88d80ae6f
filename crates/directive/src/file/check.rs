//! From what stands in the file to what it means. All problems are told at once.

mod item;
mod reserved;
mod source;
mod value;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::tz::TimeZone;
use toml::Spanned;

use super::raw::{self, Given};
use super::text::Secretive;
use super::{CONCURRENCY_DEFAULT, Directive, ItemSpec, Mode, Place, Places, Problem, Schedule, Sink};
use crate::item::Table;
use crate::pace::PAGE_SIZE_DEFAULT;
use crate::retry::Policy;
use item::item;
pub use reserved::is_own_table;
use reserved::table;
use source::source;
use value::{
    concurrency, declared, heartbeat, length, mode, own_name, page_size, plain_name, secretive, word,
};

const HEARTBEAT: Duration = Duration::from_secs(30);

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
        self.found.push(Place::of(self.text, at.start).problem(self.path, text));
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
    let concurrency = problems.read_or(&raw.concurrency, CONCURRENCY_DEFAULT, |pages| concurrency(*pages));
    let mode = problems.read_or(&raw.mode, Mode::Full, |word| mode(word));
    let schedule = schedule(&raw, problems);
    let heartbeat = problems.read_or(&raw.heartbeat, HEARTBEAT, |text| heartbeat(text));
    let deadline = problems.read_or(&raw.deadline, None, |text| length(text).map(Some));
    let retry = retry(&raw.retry, problems);
    let source = source(&raw.source, path, problems);
    let item = item(&raw.item, path, problems);
    let sink = sink(&raw.sink, item.as_ref(), problems);
    let places = places(&raw, problems.text);
    Some(Directive {
        name: name?,
        queue: queue?,
        tenant: tenant?,
        project: project?,
        spec_ref: raw.spec_ref,
        page_size: page_size?,
        concurrency: concurrency?,
        mode: mode?,
        schedule: schedule?,
        heartbeat: heartbeat?,
        deadline: deadline?,
        retry: retry?,
        source: source?,
        item: item?,
        sink: sink?,
        path: path.to_owned(),
        places,
    })
}

fn places(raw: &raw::Directive, text: &str) -> Places {
    let of = |at: Range<usize>| Place::of(text, at.start);
    let columns = raw.item.map.keys().map(|name| (name.get_ref().clone(), of(name.span())));
    Places {
        name: of(raw.name.span()),
        table: of(raw.sink.table.span()),
        schema: raw.item.schema.as_ref().map(|schema| of(schema.span())).unwrap_or_default(),
        columns: columns.collect(),
        variables: variables(text),
    }
}

/// The variables that a text names, but for lines that are comments.
fn variables(text: &str) -> BTreeMap<String, Place> {
    let is_comment =
        |at: usize| text[..at].lines().last().is_some_and(|line| line.trim_start().starts_with('#'));
    let mut found = BTreeMap::new();
    for (at, reference) in text.match_indices("${env:").filter(|(at, _)| !is_comment(*at)) {
        let name = text[at + reference.len()..].split('}').next().unwrap_or_default();
        if Secretive::parse(&format!("{reference}{name}}}")).is_ok() {
            found.entry(name.to_owned()).or_insert_with(|| Place::of(text, at));
        }
    }
    found
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

/// A path in a directive is meant from where the directive lies.
fn beside(path: &Path, name: &str) -> PathBuf {
    path.parent().unwrap_or(Path::new("")).join(name)
}

fn sink(raw: &raw::Sink, item: Option<&ItemSpec>, problems: &mut Problems<'_>) -> Option<Sink> {
    let name = problems.read(&raw.table, |name| table(name, raw.url.is_some()));
    let outbox = problems.read_or(&raw.outbox, None, |topic| word(topic).map(Some));
    let url = problems.read_or(&raw.url, None, |url| secretive(url).map(Some));
    if let (Some(outbox), Some(_)) = (&raw.outbox, &raw.url) {
        problems.add(
            outbox.span(),
            "announcements are written with the rows, into the store's own database: leave out sink.url, or sink.outbox",
        );
    }
    let columns = item.map(|item| item.fields.iter().map(|field| field.column.clone()).collect());
    Some(Sink { table: Table { name: name?, columns: columns? }, outbox: outbox?, url: url? })
}
