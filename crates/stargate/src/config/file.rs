//! `stargate.toml` as it is written: which keys there are, and where in the file each value stands.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;

use super::interval::Interval;
use super::size::Size;
use crate::failure::{Failure, Result};

/// A value and its place, if it was given.
pub(crate) type Given<T> = Option<Spanned<T>>;

/// Keys whose values no message repeats.
const SECRET_KEYS: [&str; 12] = [
    "secret",
    "env",
    "dsn",
    "listen_dsn",
    "access_key_id",
    "secret_access_key",
    "session_token",
    "redis_url",
    "api_key",
    "headers",
    "token",
    SECRETS,
];
/// A table whose keys are chosen by whoever writes it, and whose values are all secret.
const SECRETS: &str = "secrets";

/// The whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct File {
    /// Where Stargate keeps its files.
    pub(crate) home: Given<PathBuf>,
    /// Where jobs are kept: `sqlite:PATH` or `postgres://…`.
    pub(crate) store: Given<String>,
    /// A direct connection for LISTEN when `store` goes through a pooler.
    pub(crate) listen_dsn: Given<String>,
    pub(crate) worker: Worker,
    pub(crate) api: Api,
    pub(crate) web: Web,
    pub(crate) metrics: Metrics,
    pub(crate) log: Log,
    pub(crate) artifacts: Artifacts,
    pub(crate) clip: Clip,
    pub(crate) scratch: Scratch,
    pub(crate) sources: Sources,
    pub(crate) leader: Leader,
    pub(crate) git: Git,
    pub(crate) mirror: Mirror,
    pub(crate) webhooks: Webhooks,
    pub(crate) directives: Directives,
    pub(crate) temporal: Temporal,
    pub(crate) otel: Otel,
    pub(crate) outbox: BTreeMap<Spanned<String>, Outbox>,
    pub(crate) kinds: BTreeMap<Spanned<String>, Kind>,
    pub(crate) limits: BTreeMap<Spanned<String>, Limit>,
    pub(crate) schedules: BTreeMap<Spanned<String>, Schedule>,
}

/// `[worker]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Worker {
    pub(crate) concurrency: Given<u64>,
    pub(crate) queues: Given<Vec<String>>,
    pub(crate) heartbeat: Given<Interval>,
    pub(crate) lease: Given<Interval>,
    pub(crate) poll: Given<Interval>,
    pub(crate) shutdown_timeout: Given<Interval>,
    pub(crate) buffer_max: Given<u64>,
    pub(crate) high_watermark: Given<u64>,
    pub(crate) load_threshold: Given<f64>,
    pub(crate) pause_interval: Given<Interval>,
    pub(crate) max_attempts: Given<u64>,
    pub(crate) keep_scratch: Given<bool>,
    pub(crate) listen: Given<SocketAddr>,
}

/// `[api]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Api {
    pub(crate) listen: Given<SocketAddr>,
    pub(crate) max_depth: Given<u64>,
    pub(crate) read_only: Given<bool>,
    pub(crate) rate_limit: Given<String>,
}

/// `[web]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Web {
    pub(crate) base_path: Given<String>,
    pub(crate) redact: Given<Vec<String>>,
}

/// `[metrics]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Metrics {
    pub(crate) namespace: Given<String>,
}

/// `[log]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Log {
    pub(crate) format: Given<String>,
    pub(crate) filter: Given<String>,
}

/// `[otel]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Otel {
    pub(crate) endpoint: Given<String>,
    pub(crate) headers: Given<String>,
    pub(crate) service_name: Given<String>,
    pub(crate) sample_ratio: Given<f64>,
}

/// `[artifacts]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Artifacts {
    pub(crate) url: Given<String>,
    pub(crate) endpoint: Given<String>,
    pub(crate) region: Given<String>,
    pub(crate) access_key_id: Given<String>,
    pub(crate) secret_access_key: Given<String>,
    pub(crate) session_token: Given<String>,
    pub(crate) machine_role: Given<bool>,
}

/// `[clip]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Clip {
    pub(crate) ffmpeg: Given<PathBuf>,
    pub(crate) ffprobe: Given<PathBuf>,
    pub(crate) max_input: Given<Size>,
    pub(crate) max_length: Given<Interval>,
    pub(crate) source_dirs: Given<Vec<PathBuf>>,
    pub(crate) allow_private: Given<bool>,
    pub(crate) timeout: Given<Interval>,
    pub(crate) max_attempts: Given<u64>,
    pub(crate) backoff: Given<Interval>,
    pub(crate) backoff_max: Given<Interval>,
    pub(crate) concurrency: Given<u64>,
}

/// `[scratch]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Scratch {
    pub(crate) dir: Given<PathBuf>,
    pub(crate) max_age: Given<Interval>,
    pub(crate) max_size: Given<Size>,
    pub(crate) gc_interval: Given<Interval>,
}

/// `[sources]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Sources {
    pub(crate) pgboss: Pgboss,
}

/// `[sources.pgboss]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Pgboss {
    pub(crate) dsn: Given<String>,
    pub(crate) schema: Given<String>,
    pub(crate) queues: Given<Vec<String>>,
    pub(crate) kinds: Given<BTreeMap<String, String>>,
    pub(crate) poll: Given<Interval>,
}

/// `[leader]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Leader {
    pub(crate) backend: Given<String>,
    pub(crate) campaign: Given<bool>,
    pub(crate) instance: Given<String>,
    pub(crate) address: Given<String>,
    pub(crate) forward_writes: Given<bool>,
    pub(crate) redis_url: Given<String>,
    pub(crate) key: Given<String>,
    pub(crate) authority: Given<PathBuf>,
    pub(crate) replicas: Given<ReplicasGiven>,
    pub(crate) ttl: Given<Interval>,
    pub(crate) renew_every: Given<Interval>,
    pub(crate) renew_retries: Given<Vec<Interval>>,
    pub(crate) renew_until_deadline: Given<bool>,
    pub(crate) retry_every: Given<Interval>,
    pub(crate) retry_max: Given<Interval>,
    pub(crate) margin: Given<Interval>,
    pub(crate) call_timeout: Given<Interval>,
    pub(crate) startup_guard: Given<bool>,
}

/// `[git]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Git {
    pub(crate) root: Given<PathBuf>,
    pub(crate) program: Given<PathBuf>,
    pub(crate) fast_forward_only: Given<Vec<String>>,
    pub(crate) max_refs: Given<u64>,
    pub(crate) max_push: Given<Size>,
    pub(crate) max_fetch_request: Given<Size>,
    pub(crate) take_watermarks: Given<Vec<String>>,
    pub(crate) max_fetches: Given<u64>,
    pub(crate) max_pushes: Given<u64>,
    pub(crate) timeout: Given<Interval>,
}

/// `"connected"` or a number.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum ReplicasGiven {
    Number(u64),
    Word(String),
}

/// `[mirror]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Mirror {
    pub(crate) remote: Given<String>,
    pub(crate) protocols: Given<ListGiven>,
    pub(crate) refs: Given<Vec<String>>,
    pub(crate) ledgers: Given<Vec<String>>,
    pub(crate) map: Given<BTreeMap<String, String>>,
    pub(crate) push_timeout: Given<Interval>,
    pub(crate) coalesce: Given<bool>,
    pub(crate) reconcile_every: Given<Interval>,
    pub(crate) rescan_every: Given<Interval>,
    pub(crate) username: Given<String>,
    pub(crate) token: Given<String>,
    pub(crate) ssh_key: Given<PathBuf>,
    pub(crate) known_hosts: Given<PathBuf>,
    pub(crate) dead_letter_retention: Given<Interval>,
    pub(crate) remotes: BTreeMap<Spanned<String>, MirrorRemote>,
}

/// `[mirror.remotes."REPOSITORY"]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MirrorRemote {
    pub(crate) url: Given<String>,
}

/// `[webhooks]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Webhooks {
    pub(crate) allow_private: Given<bool>,
    pub(crate) timeout: Given<Interval>,
    pub(crate) concurrency: Given<u64>,
    pub(crate) secrets: BTreeMap<Spanned<String>, Spanned<String>>,
}

/// `[directives]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Directives {
    pub(crate) dir: Given<PathBuf>,
    pub(crate) queues: Given<Vec<String>>,
    pub(crate) tenant_concurrency: Given<u64>,
    pub(crate) engine: Given<String>,
}

/// `[temporal]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Temporal {
    pub(crate) address: Given<String>,
    pub(crate) namespace: Given<String>,
    pub(crate) api_key: Given<String>,
    pub(crate) tls: Given<bool>,
    pub(crate) authority: Given<PathBuf>,
    pub(crate) certificate: Given<PathBuf>,
    pub(crate) key: Given<PathBuf>,
    pub(crate) server_name: Given<String>,
    pub(crate) pages_per_activity: Given<u64>,
    pub(crate) metrics: Given<bool>,
}

/// `[outbox."TOPIC"]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Outbox {
    pub(crate) url: Given<String>,
    pub(crate) secret: Given<String>,
    pub(crate) allow_private: Given<bool>,
    pub(crate) notify: Given<String>,
    pub(crate) file: Given<PathBuf>,
}

/// A list, or one text with commas.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum ListGiven {
    List(Vec<String>),
    Text(String),
}

/// `[kinds."NAME"]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Kind {
    pub(crate) exec: Given<Vec<String>>,
    pub(crate) http: Given<String>,
    pub(crate) secret: Given<String>,
    pub(crate) timeout: Given<Interval>,
    pub(crate) max_attempts: Given<u64>,
    pub(crate) max_crashes: Given<u64>,
    pub(crate) backoff: Given<Interval>,
    pub(crate) backoff_max: Given<Interval>,
    pub(crate) lease: Given<Interval>,
    pub(crate) concurrency: Given<u64>,
    pub(crate) timeline: Given<Timeline>,
    pub(crate) working_dir: Given<PathBuf>,
    pub(crate) env: Given<BTreeMap<String, String>>,
}

/// How much of a handler's reports is kept.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Timeline {
    Full,
    States,
}

/// `[limits."PATTERN"]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Limit {
    pub(crate) concurrency: Given<u64>,
    pub(crate) rate: Given<String>,
    pub(crate) weight: Given<u64>,
}

/// `[schedules."NAME"]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Schedule {
    pub(crate) cron: Given<String>,
    pub(crate) time_zone: Given<String>,
    pub(crate) kind: Given<String>,
    pub(crate) queue: Given<String>,
    pub(crate) payload: Given<toml::Value>,
    pub(crate) priority: Given<i64>,
}

/// The text a value came from, for pointing at it.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl Source {
    /// Refuses the value at `span`, naming the key, with a caret under it.
    pub(crate) fn refuse(&self, span: Range<usize>, key: &str, problem: &str) -> Failure {
        Failure::config(format!("{key} {problem}")).at(&self.path, &masked(&self.text), span, "this value")
    }

    /// The line of a span, from 1.
    pub(crate) fn line(&self, span: &Range<usize>) -> usize {
        crate::failure::line_column(&self.text, span.start).0
    }
}

/// The text with asterisks for secrets: a message shows the lines around a mistake (INV-8). Every byte stays where it
/// was, so that places still fit.
fn masked(text: &str) -> String {
    let mut in_secrets = false;
    let mask = |line: &str| {
        if let Some(section) = line.trim_start().strip_prefix('[') {
            let section = section.split(']').next().unwrap_or_default();
            in_secrets = parts_of(section).any(|part| part == SECRETS);
        }
        let Some((key, value)) = line.split_once('=') else { return line.to_owned() };
        let has_credentials = value.contains("://") && value.contains('@');
        let is_secret = SECRET_KEYS.contains(&key.trim()) || parts_of(key).any(|part| part == SECRETS);
        match in_secrets || is_secret || has_credentials {
            true => format!("{key}={}", "*".repeat(value.len())),
            false => line.to_owned(),
        }
    };
    text.split('\n').map(mask).collect::<Vec<_>>().join("\n")
}

/// The parts of a key with dots.
fn parts_of(key: &str) -> impl Iterator<Item = &str> {
    key.split('.').map(|part| part.trim_matches([' ', '\t', '"', '\'']))
}

/// Finds the file: the one named, else the working directory's, else `/etc/stargate/stargate.toml`.
pub(crate) fn find(named: Option<&Path>) -> Option<PathBuf> {
    if let Some(path) = named {
        return Some(path.to_owned());
    }
    ["stargate.toml", "/etc/stargate/stargate.toml"]
        .into_iter()
        .map(PathBuf::from)
        .find(|path| path.is_file())
}

/// Reads and parses a file.
pub(crate) fn read(path: &Path) -> Result<(Source, File)> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::io(format!("cannot read {}", path.display()), &error)
            .help("check the path given with --config")
    })?;
    let source = Source { path: path.to_owned(), text };
    let file = parse(&source)?;
    Ok((source, file))
}

fn parse(source: &Source) -> Result<File> {
    toml::from_str(&source.text).map_err(|error| {
        let span = error.span().unwrap_or(0..0);
        let message = error.message().trim().replace('\n', "; ");
        let Some((key, known)) = unknown_key(&message) else {
            let key = key_at(&source.text, span.start);
            let message = if key.is_empty() { message } else { format!("{key}: {message}") };
            return Failure::config(message).at(&source.path, &masked(&source.text), span, "here");
        };
        let known: Vec<&str> = known.collect();
        let help = match nearest(key, &known) {
            Some(name) => format!("did you mean {name:?}? known keys here: {}", known.join(", ")),
            None => format!("known keys here: {}", known.join(", ")),
        };
        let message = format!("unknown key {key:?}");
        Failure::config(message).at(&source.path, &masked(&source.text), span, "not a setting").help(help)
    })
}

/// The key and the known names, from serde's sentence about an unknown field.
fn unknown_key(message: &str) -> Option<(&str, impl Iterator<Item = &str>)> {
    let (key, rest) = message.strip_prefix("unknown field `")?.split_once('`')?;
    Some((key, rest.split('`').skip(1).step_by(2)))
}

/// The key to the left of a value, for messages that do not name it.
fn key_at(text: &str, offset: usize) -> &str {
    let start = text.get(..offset).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1);
    let line = text.get(start..).unwrap_or("").lines().next().unwrap_or("");
    line.split_once('=').map_or("", |(key, _)| key.trim())
}

/// The known name with the fewest differences, if they are few.
pub(crate) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let (distance, best) = known.iter().map(|candidate| (differences(name, candidate), *candidate)).min()?;
    (distance <= 1 + name.len() / 3).then_some(best)
}

/// Insertions, deletions and replacements that turn one word into the other.
fn differences(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, against) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *against);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> Failure {
        parse(&Source { path: "stargate.toml".into(), text: text.to_owned() }).unwrap_err()
    }

    #[test]
    fn an_unknown_key_is_refused_with_place_and_nearest_name() {
        let failure = refused("[worker]\nheartbeat = \"10s\"\nconcurency = 4\n");
        assert_eq!(failure.position().map(|(_, line, column)| (line, column)), Some((3, 1)));
        assert!(failure.message.contains("concurency"), "{}", failure.message);
        assert!(failure.help.unwrap().contains("did you mean \"concurrency\"?"));
    }

    #[test]
    fn a_wrong_type_is_refused_with_its_key() {
        let failure = refused("[worker]\nconcurrency = \"four\"\n");
        assert_eq!(failure.position().map(|(_, line, _)| line), Some(2));
        assert!(failure.message.starts_with("concurrency:"), "{}", failure.message);
    }

    #[test]
    fn a_wrong_unit_is_refused_with_examples() {
        let failure = refused("[kinds.\"a\"]\ntimeout = \"soon\"\n");
        assert!(failure.message.contains("1h30m"), "{}", failure.message);
    }

    #[test]
    fn a_refusal_does_not_show_the_secrets_around_it() {
        let text =
            "[artifacts]\nsecret_access_key = \"hunter2\"\nregion = 7\nendpoint = \"http://u:hunter2@h\"\n";
        let shown = refused(text).render();
        assert!(shown.contains("region") && !shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn a_refusal_does_not_show_the_secrets_of_a_table_however_it_is_written() {
        for text in [
            "[webhooks.secrets]\nci = \"hunter2\"\n[log]\nformat = 7\n",
            "[ webhooks . \"secrets\" ]\nci = \"hunter2\"\nmore = 7\n",
            "[webhooks]\nsecrets = { ci = \"hunter2\" }\ntimeout = []\n",
            "[webhooks]\nsecrets.ci = \"hunter2\"\ntimeout = []\n",
            "webhooks.secrets.ci = \"hunter2\"\nhome = 7\n",
        ] {
            let shown = refused(text).render();
            assert!(!shown.contains("hunter2"), "{shown}");
        }
        // What comes after the table is shown.
        let shown = refused("[webhooks.secrets]\nci = \"hunter2\"\n[log]\nformat = 7\n").render();
        assert!(shown.contains("format = 7"), "{shown}");
    }

    #[test]
    fn broken_toml_is_refused_with_its_place() {
        assert_eq!(refused("[worker\n").position().map(|(_, line, _)| line), Some(1));
    }

    #[test]
    fn the_nearest_name_is_near() {
        assert_eq!(nearest("qeues", &["queues", "poll"]), Some("queues"));
        assert_eq!(nearest("zebra", &["queues", "poll"]), None);
    }
}
