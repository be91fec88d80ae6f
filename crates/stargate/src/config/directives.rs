//! Directives: where they lie, which queues they may name, how many of a tenant run at once; and where announcements
//! of the outbox are delivered.

use std::fmt;
use std::path::{Path, PathBuf};

use stargate_base::Secret;
use stargate_queue::job::check_name;
use stargate_queue::limits::Limit;
use toml::Spanned;
use url::Url;

use super::catalogue::directives as catalogue;
use super::file::{self, File, Source};
use super::layer::{Layers, Origin, Shown};
use super::store_url::StoreUrl;
use super::{Flags, parsed, same};
use crate::failure::{Failure, Result};

/// The queues that a directive may name unless others are declared.
const QUEUES: [&str; 2] = ["meta-py", "meta-ts"];
/// Before a tenant's name: the limit key of its runs.
const LIMIT_PREFIX: &str = "directives:";
/// The longest name of a channel; Postgres cuts longer ones.
const CHANNEL_MAX: usize = 63;

/// What executes directives. The values carry no text of their own, which keeps the help short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Engine {
    Embedded,
    Temporal,
}

impl Engine {
    /// As it is written.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Temporal => "temporal",
        }
    }

    pub(super) fn read(text: &str) -> Result<Self, String> {
        let known =
            [Self::Embedded, Self::Temporal].into_iter().find(|engine| engine.as_str() == text.trim());
        known.ok_or_else(|| format!("{text:?} is none of embedded, temporal"))
    }
}

/// The settings of directives.
#[derive(Debug)]
pub(crate) struct Directives {
    /// Where the files lie.
    pub(crate) dir: PathBuf,
    /// Queues that a directive may name.
    pub(crate) queues: Vec<String>,
    /// Runs of one tenant at once.
    pub(crate) tenant_concurrency: Option<u32>,
    /// What executes them.
    pub(crate) engine: Engine,
    /// What fires their schedules: what the whole installation says, whatever a flag says for one process.
    pub(crate) scheduler: Engine,
    /// Where announcements go, by topic.
    pub(crate) outbox: Vec<OutboxPlan>,
}

impl Directives {
    /// The limit that holds for every tenant without one of its own.
    pub(super) fn limit(&self) -> Option<Limit> {
        let concurrency = Some(self.tenant_concurrency?);
        Some(Limit { pattern: limit_key("*"), concurrency, rate: None, weight: 1 })
    }
}

/// The limit key of the runs of a tenant.
pub(crate) fn limit_key(tenant: &str) -> String {
    format!("{LIMIT_PREFIX}{tenant}")
}

/// Where the announcements of a topic go.
#[derive(Debug, Clone)]
pub(crate) struct OutboxPlan {
    /// The topic, as directives name it under `sink.outbox`.
    pub(crate) topic: String,
    /// Where to.
    pub(crate) to: Destination,
}

/// Where announcements are delivered.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Destination {
    /// POSTed to a server, signed if there is a secret.
    Http {
        /// Its address.
        url: String,
        /// What signs.
        secret: Option<Secret>,
        /// Whether it may have a private address.
        allow_private: bool,
    },
    /// Told to whoever listens to a channel of the store's Postgres.
    Notify {
        /// The channel.
        channel: String,
    },
    /// Appended to a file, a line each.
    File {
        /// The file.
        path: PathBuf,
    },
}

/// For people and for logs: without a password, and without a query, which may hold one (INV-8).
impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http { url, .. } => write!(f, "POST {}", super::kinds::without_credentials(url)),
            Self::Notify { channel } => write!(f, "NOTIFY {channel}"),
            Self::File { path } => write!(f, "file {}", path.display()),
        }
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Reads `[directives]` and `[outbox]`.
pub(super) fn directives(
    layers: &mut Layers<'_>,
    flags: &Flags,
    file: &File,
    store: &StoreUrl,
) -> Result<Directives> {
    let given = &file.directives;
    let engine = parsed(&given.engine, layers.source, "directives.engine", Engine::read)?;
    let common = layers.environment.clone();
    let scheduler = Layers { environment: &common, source: layers.source, shown: Vec::new() }.pick(
        &catalogue::ENGINE,
        None,
        &engine,
        same,
        Engine::Embedded,
    )?;
    let engine = layers.pick(&catalogue::ENGINE, flags.engine, &engine, same, Engine::Embedded)?;
    let queues = QUEUES.map(str::to_owned).to_vec();
    let dir = layers.pick(&catalogue::DIR, None, &given.dir, same, PathBuf::from("directives"))?;
    let dir = beside(layers.source, &dir);
    let queues = layers.pick(&catalogue::QUEUES, None, &given.queues, same, queues)?;
    let at_once = &given.tenant_concurrency;
    let tenant_concurrency = layers.find(&catalogue::TENANT_CONCURRENCY, None, at_once, same)?;
    let tenant_concurrency = tenant_concurrency.and_then(|n| u32::try_from(n).ok());
    check_limits(layers, file)?;
    let outbox = outbox(layers, file, store)?;
    Ok(Directives { dir, queues, tenant_concurrency, engine, scheduler, outbox })
}

/// Two places that say how many of every tenant run at once would overwrite each other.
fn check_limits(layers: &Layers<'_>, file: &File) -> Result<()> {
    let (Some(source), Some(given)) = (layers.source, &file.directives.tenant_concurrency) else {
        return Ok(());
    };
    let pattern = limit_key("*");
    if file.limits.keys().all(|other| other.get_ref() != &pattern) {
        return Ok(());
    }
    let problem = format!("and [limits.{pattern:?}] say the same thing twice");
    let help = format!(
        "leave one of them out; a tenant of its own has [limits.{:?}] in either case",
        limit_key("TENANT")
    );
    Err(source.refuse(given.span(), "directives.tenant_concurrency", &problem).help(help))
}

/// Relative paths count from the file, wherever the program is started; without a file, from the working directory.
fn beside(source: Option<&Source>, path: &Path) -> PathBuf {
    source.and_then(|source| source.path.parent()).map_or_else(|| path.to_owned(), |parent| parent.join(path))
}

fn outbox(layers: &mut Layers<'_>, file: &File, store: &StoreUrl) -> Result<Vec<OutboxPlan>> {
    let Some(source) = layers.source else { return Ok(Vec::new()) };
    let mut plans = Vec::with_capacity(file.outbox.len());
    for (topic, given) in &file.outbox {
        let section = format!("outbox.{:?}", topic.get_ref());
        check_name("topic", topic.get_ref())
            .map_err(|error| source.refuse(topic.span(), &section, &format!("cannot be used: {error}")))?;
        let to = destination(layers, source, &section, topic, given, store)?;
        let line = source.line(&topic.span());
        let origin = Origin::File { path: source.path.clone(), line };
        layers.shown.push(Shown { key: section, value: to.to_string(), origin });
        plans.push(OutboxPlan { topic: topic.get_ref().clone(), to });
    }
    Ok(plans)
}

fn destination(
    layers: &Layers<'_>,
    source: &Source,
    section: &str,
    topic: &Spanned<String>,
    given: &file::Outbox,
    store: &StoreUrl,
) -> Result<Destination> {
    let key = |name: &str| format!("{section}.{name}");
    if given.url.is_none() {
        let (secret, permit) =
            (given.secret.as_ref().map(Spanned::span), given.allow_private.as_ref().map(Spanned::span));
        for (name, at) in [("secret", secret), ("allow_private", permit)] {
            if let Some(at) = at {
                return Err(source.refuse(at, &key(name), "has no url to belong to"));
            }
        }
    }
    match (&given.url, &given.notify, &given.file) {
        (Some(url), None, None) => {
            let address = http_url(layers, source, &key("url"), url)?;
            let secret = super::secret(layers, &given.secret, &key("secret"))?.map(Spanned::into_inner);
            if secret.as_ref().is_some_and(|secret| secret.reveal().is_empty()) {
                return Err(source.refuse(
                    url.span(),
                    &key("secret"),
                    "is empty; anybody could sign with it",
                ));
            }
            let allow_private = given.allow_private.as_ref().is_some_and(|given| *given.get_ref());
            Ok(Destination::Http { url: address, secret, allow_private })
        }
        (None, Some(channel), None) => notify(source, &key("notify"), channel, store),
        (None, None, Some(path)) => Ok(Destination::File { path: beside(Some(source), path.get_ref()) }),
        _ => {
            let help = "write one of url = \"https://…\", notify = \"channel\" and file = \"changes.jsonl\"";
            Err(source.refuse(topic.span(), section, "must have exactly one destination").help(help))
        }
    }
}

fn http_url(layers: &Layers<'_>, source: &Source, key: &str, given: &Spanned<String>) -> Result<String> {
    let refuse = |problem: &str| source.refuse(given.span(), key, problem);
    let address = layers.environment.secret(given.get_ref()).map_err(|problem| refuse(&problem))?;
    let url = Url::parse(address.reveal()).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let url = url.ok_or_else(|| refuse("is not an http:// or https:// URL"))?;
    if !url.username().is_empty() || url.password().is_some() {
        let help = "sign deliveries instead: secret = \"${env:VARIABLE}\"";
        return Err(refuse("has a user or a password in it").help(help));
    }
    Ok(url.into())
}

fn notify(source: &Source, key: &str, channel: &Spanned<String>, store: &StoreUrl) -> Result<Destination> {
    let name = channel.get_ref();
    let refuse = |problem: &str| -> Failure { source.refuse(channel.span(), key, problem) };
    let fits = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if name.is_empty() || name.len() > CHANNEL_MAX || !fits {
        return Err(refuse(&format!("must be 1 to {CHANNEL_MAX} of a-z, 0-9 and _")));
    }
    match store {
        StoreUrl::Postgres(_) => Ok(Destination::Notify { channel: name.clone() }),
        StoreUrl::Sqlite(_) => Err(refuse("needs a store in Postgres; SQLite has no channels")
            .help("deliver to a url or a file, or set store to postgres://…")),
    }
}

#[cfg(test)]
#[path = "directives_tests.rs"]
mod tests;
