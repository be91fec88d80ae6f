//! A directive as it is written, checked, with the place of everything that is wrong.

mod check;
mod json;
mod raw;
mod read;
mod schema;
mod text;
mod together;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::item::Table;
use crate::retry::Policy;
use crate::transform::{Field, Mapping};

pub use check::is_own_table;
pub use read::{files, read};
pub use text::{Secretive, Unset};
pub use together::{Found, together};

/// The largest file that is read.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// The files that a directory may have.
pub const FILES_MAX: usize = 10_000;
/// Pages that may be in hand at once.
pub const CONCURRENCY: RangeInclusive<u32> = 1..=8;
const CONCURRENCY_DEFAULT: u32 = 2;
/// The format as a JSON Schema, for editors and other programs.
pub const SCHEMA: &str = include_str!("../../../docs/directive.schema.json");

/// A checked directive.
#[derive(Debug, Clone)]
pub struct Directive {
    /// Its name, which is that of its file.
    pub name: String,
    /// Where its runs wait.
    pub queue: String,
    /// Whose data it is.
    pub tenant: String,
    /// Of which project.
    pub project: String,
    /// What asked for it.
    pub spec_ref: Option<String>,
    /// Items a page is to have.
    pub page_size: u32,
    /// Pages in hand at once: while one is written, the next are fetched and transformed.
    pub concurrency: u32,
    /// What a finished run leaves.
    pub mode: Mode,
    /// When it runs by itself: a cron expression and a time zone.
    pub schedule: Option<Schedule>,
    /// How often a run says that it lives.
    pub heartbeat: Duration,
    /// How long a run may take, waits included.
    pub deadline: Option<Duration>,
    /// How failures are retried.
    pub retry: Policy,
    /// Where records come from.
    pub source: Source,
    /// How records become items.
    pub item: ItemSpec,
    /// Where items go.
    pub sink: Sink,
    /// The file it was read from.
    pub path: PathBuf,
    /// Where in it things stand that other files may contradict.
    pub places: Places,
}

impl Directive {
    /// How its records become items. The schema is compiled here, once for all records.
    pub fn mapping(&self) -> Result<Mapping, Problem> {
        let schema = self.item.schema.as_ref().map(schema::compile).transpose();
        let schema = schema.map_err(|problem| self.places.schema.problem(&self.path, problem))?;
        let item = &self.item;
        Ok(Mapping::new(item.key.clone(), item.hash.clone(), item.fields.clone(), schema))
    }

    /// The variables of the environment that it names, in the order of their names.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.places.variables.keys().map(String::as_str)
    }

    /// What a run would lack: variables that are not set.
    pub fn unset(&self, environment: impl Fn(&str) -> Option<String>) -> Vec<Problem> {
        let unset = self.places.variables.iter().filter(|(name, _)| environment(name).is_none());
        unset
            .map(|(name, place)| {
                place.problem(&self.path, format!("{}; a run would fail", Unset(name.clone())))
            })
            .collect()
    }
}

/// Where in its file a directive says what.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// Its name.
    pub name: Place,
    /// The sink's table.
    pub table: Place,
    /// The schema.
    pub schema: Place,
    /// The mapped columns.
    pub columns: BTreeMap<String, Place>,
    /// Variables of the environment, where each is named first.
    pub variables: BTreeMap<String, Place>,
}

/// A place in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
}

impl Default for Place {
    fn default() -> Self {
        Self { line: 1, column: 1 }
    }
}

impl Place {
    /// The place of a byte in a text.
    fn of(text: &str, byte: usize) -> Self {
        let before = text.get(..byte).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Self { line, column }
    }

    fn problem(self, path: &Path, text: impl Into<String>) -> Problem {
        Problem { path: path.to_owned(), line: self.line, column: self.column, text: text.into() }
    }
}

/// What a finished run leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// The cursor at the beginning: the next run sees everything again and writes what has changed.
    #[default]
    Full,
    /// The cursor at the end: the next run goes on there.
    Incremental,
}

/// When a directive runs by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// A cron expression.
    pub cron: String,
    /// Where its hours are those of the clock.
    pub time_zone: String,
}

impl Schedule {
    /// Refuses what the queue could not fire.
    fn check(&self) -> stargate_queue::Result<()> {
        let schedule = stargate_queue::schedule::Schedule {
            name: "directive".to_owned(),
            cron: self.cron.clone(),
            time_zone: self.time_zone.clone(),
            kind: "directive:run".to_owned(),
            queue: "default".to_owned(),
            payload: serde_json::value::RawValue::NULL.to_owned(),
            priority: 0,
            next_at: None,
            last_at: None,
        };
        schedule.check()
    }
}

/// Where records come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// A JSON API.
    Http(HttpSource),
    /// A Singer tap.
    Singer(SingerSource),
    /// A file of lines.
    File(FileSource),
    /// A query.
    Sql(SqlSource),
    /// An activity of a Temporal worker.
    Activity(ActivitySource),
}

impl Source {
    /// The word in the file.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Http(_) => "http",
            Self::Singer(_) => "singer",
            Self::File(_) => "file",
            Self::Sql(_) => "sql",
            Self::Activity(_) => "activity",
        }
    }
}

/// A JSON API.
#[derive(Debug, Clone)]
pub struct HttpSource {
    /// Its address, without what paging adds.
    pub url: Secretive,
    /// JSON pointer to the array of records.
    pub records: String,
    /// JSON pointer to how many records the source says there are. A pass that ends with fewer begins again.
    pub total: Option<String>,
    /// The parameter that asks for so many records.
    pub page_size_param: Option<String>,
    /// How to ask for the next page.
    pub pagination: Pagination,
    /// Requests at most.
    pub rate_limit: Option<Rate>,
    /// Sent with each request.
    pub headers: BTreeMap<String, Secretive>,
    /// How long an answer may take.
    pub timeout: Duration,
}

/// How a JSON API is asked for the next page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pagination {
    /// There is one page.
    None,
    /// By its number.
    Page {
        /// The parameter.
        param: String,
        /// The number of the first.
        start: u64,
    },
    /// By the number of records before it.
    Offset {
        /// The parameter.
        param: String,
    },
    /// By what the page before says.
    Cursor {
        /// The parameter.
        param: String,
        /// JSON pointer to what it is to be; missing or null on the last page.
        next: String,
    },
    /// By the header `Link` with `rel="next"`.
    Link,
}

/// So many in a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// How many.
    pub count: u32,
    /// In which time.
    pub per: Duration,
}

/// A Singer tap.
#[derive(Debug, Clone)]
pub struct SingerSource {
    /// The program and its arguments; what the runner adds comes after them.
    pub command: Vec<String>,
    /// Its configuration, given to it as a file.
    pub config: BTreeMap<String, ConfigValue>,
    /// Its catalog.
    pub catalog: Option<PathBuf>,
    /// The stream whose records count.
    pub stream: Option<String>,
    /// Its environment; nothing else is inherited but the usual.
    pub env: BTreeMap<String, Secretive>,
}

/// A value of a tap's configuration.
#[derive(Debug, Clone)]
pub enum ConfigValue {
    /// Text that may name variables of the environment.
    Text(Secretive),
    /// Anything else.
    Other(serde_json::Value),
}

/// A file of lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSource {
    /// Where it is, from the directive's own place.
    pub path: PathBuf,
    /// What its lines are.
    pub format: Format,
}

/// What the lines of a file are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A JSON value each.
    Jsonl,
    /// Comma-separated values below a header. Each is text, an empty one is the empty text; the mapping makes types.
    Csv,
}

/// A query.
#[derive(Debug, Clone)]
pub struct SqlSource {
    /// The database; the store's own if none is named.
    pub url: Option<Secretive>,
    /// Gives rows with the watermark column.
    pub query: String,
    /// The column that rises: rows are read in its order, and a run goes on after the highest seen.
    pub watermark: String,
}

/// An activity of a Temporal worker.
#[derive(Debug, Clone)]
pub struct ActivitySource {
    /// Its name.
    pub activity: String,
    /// The task queue where it is served.
    pub task_queue: String,
    /// Given to it as it stands.
    pub args: serde_json::Value,
}

/// How records become items, as far as a file tells.
#[derive(Debug, Clone)]
pub struct ItemSpec {
    /// JSON pointers to what names an entity.
    pub key: Vec<String>,
    /// JSON pointers to what counts as its content; all if empty.
    pub hash: Vec<String>,
    /// What a record must look like.
    pub schema: Option<serde_json::Value>,
    /// The mapped columns.
    pub fields: Vec<Field>,
}

/// Where items go.
#[derive(Debug, Clone)]
pub struct Sink {
    /// The table.
    pub table: Table,
    /// The topic under which changes are announced.
    pub outbox: Option<String>,
    /// The database; the store's own if none is named.
    pub url: Option<Secretive>,
}

/// Something wrong in a directive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub path: PathBuf,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// What is wrong and what would be right.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.path.display(), self.line, self.column, self.text)
    }
}

/// Reads a directive. `queues` are those that are declared.
pub fn parse(path: &Path, text: &str, queues: &[String]) -> Result<Directive, Vec<Problem>> {
    let mut problems = check::Problems::new(path, text);
    let raw: Option<raw::Directive> = match toml::from_str(text) {
        Ok(raw) => Some(raw),
        Err(error) => {
            problems.add(error.span().unwrap_or_default(), error.message().trim().replace('\n', "; "));
            None
        }
    };
    let checked = raw.map(|raw| check::directive(raw, path, queues, &mut problems));
    match (checked.flatten(), problems.finish()) {
        (Some(directive), problems) if problems.is_empty() => Ok(directive),
        (_, problems) => Err(problems),
    }
}

#[cfg(test)]
mod published_tests;
#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
