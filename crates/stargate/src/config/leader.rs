//! Leadership: the effective settings, and which combinations would elect two leaders or none.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use stargate_base::Secret;
use stargate_leader::redis::{self, Replicas};
use stargate_leader::{Config, Error, Holder, RedisLease};

use super::catalogue::leader as catalogue;
use super::file::{File, Given, ReplicasGiven};
use super::interval::Interval;
use super::layer::{Layers, Origin};
use super::{parsed, same, secret};
use crate::failure::{Failure, Result};

/// The words of `leader.backend`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BackendName {
    File,
    Redis,
    None,
}

impl BackendName {
    /// As it is written.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Redis => "redis",
            Self::None => "none",
        }
    }

    pub(super) fn read(text: &str) -> Result<Self, String> {
        let all = [Self::File, Self::Redis, Self::None];
        let known = all.into_iter().find(|backend| backend.as_str() == text.trim());
        // The text is not repeated: it could be a URL with a password, put into the wrong place.
        known.ok_or_else(|| "is none of \"file\", \"redis\", \"none\"".to_owned())
    }
}

/// Where the lock is.
#[derive(Debug, Clone)]
pub(crate) enum Backend {
    /// In a file, for nodes on one machine.
    File,
    /// In Redis.
    Redis(Redis),
    /// Nowhere: this is the only node.
    None,
}

/// A lock in Redis.
#[derive(Debug, Clone)]
pub(crate) struct Redis {
    pub(crate) url: Secret,
    pub(crate) key: String,
    pub(crate) replicas: Replicas,
    pub(crate) authority: Option<PathBuf>,
}

impl Backend {
    /// The word of the configuration.
    pub(crate) const fn name(&self) -> BackendName {
        match self {
            Self::File => BackendName::File,
            Self::Redis(_) => BackendName::Redis,
            Self::None => BackendName::None,
        }
    }
}

/// The settings of leadership.
#[derive(Debug, Clone)]
pub(crate) struct Leader {
    pub(crate) backend: Backend,
    /// Whether this node may lead; what it runs decides when absent.
    pub(crate) campaign: Option<bool>,
    pub(crate) instance: String,
    /// Where others reach this node; the address it listens on when absent.
    pub(crate) address: Option<String>,
    pub(crate) forward_writes: bool,
    times: stargate_leader::Settings,
}

impl Leader {
    /// The checked settings of a node that is reached at `address`.
    pub(crate) fn config(&self, address: Option<String>) -> Result<Config> {
        let holder = Holder { instance: self.instance.clone(), address };
        let settings = stargate_leader::Settings { holder, ..self.times.clone() };
        Config::new(settings).map_err(|error| Failure::config(error.to_string()))
    }
}

/// Refuses a node that takes write requests and no part in leadership: nothing would guard what it writes (INV-3).
pub(crate) fn check_campaign(settings: &super::Settings) -> Result<()> {
    if settings.leader.campaign != Some(false) {
        return Ok(());
    }
    let shown = settings.shown.iter().find(|shown| shown.key == catalogue::CAMPAIGN.key);
    let origin = shown.map_or_else(String::new, |shown| format!(" ({})", shown.origin));
    let problem =
        format!("leader.campaign is false{origin}, but a node that takes write requests has to take part");
    Err(Failure::config(problem).help("remove it, or run 'stargate worker' here: that one has no API"))
}

/// Reads `[leader]`.
pub(super) fn leader(layers: &mut Layers<'_>, file: &File) -> Result<Leader> {
    let given = &file.leader;
    let backend = parsed(&given.backend, layers.source, "leader.backend", BackendName::read)?;
    let backend = layers.pick(&catalogue::BACKEND, None, &backend, same, BackendName::File)?;
    let campaign = layers.find(&catalogue::CAMPAIGN, None, &given.campaign, same)?;
    let instance = layers.pick(&catalogue::INSTANCE, None, &given.instance, same, default_instance())?;
    let address = layers.find(&catalogue::ADDRESS, None, &given.address, same)?;
    let address = address.map(|address| address.trim_end_matches('/').to_owned());
    let forward_writes = layers.pick(&catalogue::FORWARD_WRITES, None, &given.forward_writes, same, false)?;
    let backend = read_backend(layers, file, backend)?;
    let holder = Holder { instance: instance.clone(), address: address.clone() };
    let times = times(layers, file, holder)?;
    // The whole is checked here, where the file is at hand to point into.
    Config::new(times.clone()).map_err(|error| refusal(layers, file, &error))?;
    Ok(Leader { backend, campaign, instance, address, forward_writes, times })
}

fn read_backend(layers: &mut Layers<'_>, file: &File, name: BackendName) -> Result<Backend> {
    let given = &file.leader;
    let url = secret(layers, &given.redis_url, "leader.redis_url")?;
    let url = layers.find(&catalogue::REDIS_URL, None, &url, same)?;
    let key = layers.pick(&catalogue::KEY, None, &given.key, same, "stargate:leader".to_owned())?;
    let authority = layers.find(&catalogue::AUTHORITY, None, &given.authority, same)?;
    let replicas = replicas(layers, &given.replicas)?;
    let replicas = layers.pick(&catalogue::REPLICAS, None, &replicas, same, Replicas::Connected)?;
    match name {
        BackendName::File | BackendName::None => {
            idle(layers, file, name)?;
            Ok(if name == BackendName::File { Backend::File } else { Backend::None })
        }
        BackendName::Redis => {
            let Some(url) = url else {
                let problem = "is \"redis\", but there is no leader.redis_url";
                return Err(refuse(layers, span(&given.backend), "leader.backend", problem)
                    .help("set REDIS_URL, or leader.redis_url = \"${env:NAME}\""));
            };
            if let (Some(authority), false) = (&given.authority, url.reveal().starts_with("rediss://")) {
                let problem = "is for TLS, but leader.redis_url is not rediss://";
                return Err(refuse(layers, Some(authority.span()), "leader.authority", problem));
            }
            // Nothing is asked yet, but the URL is read.
            RedisLease::new(redis::Settings::of(url.clone()))
                .map_err(|error| refusal(layers, file, &error))?;
            Ok(Backend::Redis(Redis { url, key, replicas, authority }))
        }
    }
}

/// What is written for Redis and would not be used is more likely a forgotten `backend` than meant so.
fn idle(layers: &Layers<'_>, file: &File, name: BackendName) -> Result<()> {
    let given = &file.leader;
    let written = [
        ("leader.redis_url", span(&given.redis_url)),
        ("leader.key", span(&given.key)),
        ("leader.authority", span(&given.authority)),
        ("leader.replicas", span(&given.replicas)),
    ];
    match written.into_iter().find_map(|(key, span)| span.map(|span| (key, span))) {
        None => Ok(()),
        Some((key, span)) => {
            let problem = format!("has no use: leader.backend is {:?}", name.as_str());
            let help = "set leader.backend = \"redis\", or remove it";
            Err(refuse(layers, Some(span), key, &problem).help(help))
        }
    }
}

fn replicas(layers: &Layers<'_>, given: &Given<ReplicasGiven>) -> Result<Given<Replicas>> {
    let Some(given) = given else { return Ok(None) };
    let text = match given.get_ref() {
        ReplicasGiven::Number(number) => number.to_string(),
        ReplicasGiven::Word(word) => word.clone(),
    };
    let value = catalogue::read_replicas(&text);
    let value = value.map_err(|problem| refuse(layers, Some(given.span()), "leader.replicas", &problem))?;
    Ok(Some(toml::Spanned::new(given.span(), value)))
}

fn times(layers: &mut Layers<'_>, file: &File, holder: Holder) -> Result<stargate_leader::Settings> {
    let given = &file.leader;
    let length = |Interval(length): Interval| length;
    let lengths = |all: Vec<Interval>| all.into_iter().map(|Interval(length)| length).collect::<Vec<_>>();
    let usual = stargate_leader::Settings::of(holder);
    let ttl = layers.pick(&catalogue::TTL, None, &given.ttl, length, usual.ttl)?;
    let renew_default = usual.renew_every.min(ttl / 3);
    let renew_every =
        layers.pick(&catalogue::RENEW_EVERY, None, &given.renew_every, length, renew_default)?;
    let renew_retries = layers.find(&catalogue::RENEW_RETRIES, None, &given.renew_retries, lengths)?;
    let renew_until_deadline =
        layers.pick(&catalogue::RENEW_UNTIL_DEADLINE, None, &given.renew_until_deadline, same, false)?;
    let retry_every =
        layers.pick(&catalogue::RETRY_EVERY, None, &given.retry_every, length, usual.retry_every)?;
    let retry_default = usual.retry_max.max(retry_every);
    let retry_max = layers.pick(&catalogue::RETRY_MAX, None, &given.retry_max, length, retry_default)?;
    check_retry_max(layers, file, retry_every, retry_max)?;
    Ok(stargate_leader::Settings {
        ttl,
        renew_every,
        renew_retries,
        renew_until_deadline,
        retry_every,
        retry_max,
        margin: layers.find(&catalogue::MARGIN, None, &given.margin, length)?,
        call_timeout: layers.find(&catalogue::CALL_TIMEOUT, None, &given.call_timeout, length)?,
        startup_guard: layers.pick(&catalogue::STARTUP_GUARD, None, &given.startup_guard, same, true)?,
        ..usual
    })
}

fn check_retry_max(layers: &Layers<'_>, file: &File, every: Duration, max: Duration) -> Result<()> {
    if max >= every {
        return Ok(());
    }
    let show = super::interval::show;
    let problem = format!("is {}; allowed are leader.retry_every, {}, to 1h", show(max), show(every));
    Err(refuse(layers, span(&file.leader.retry_max), "leader.retry_max", &problem))
}

/// Host and process: two nodes on one machine have different names.
fn default_instance() -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let host: String = host.chars().take(200).map(|c| if fits(c) { c } else { '-' }).collect();
    format!("{host}-{}", std::process::id())
}

fn span<T>(given: &Given<T>) -> Option<Range<usize>> {
    given.as_ref().map(toml::Spanned::span)
}

fn refuse(layers: &Layers<'_>, at: Option<Range<usize>>, key: &str, problem: &str) -> Failure {
    match (at, layers.source) {
        (Some(at), Some(source)) => source.refuse(at, key, problem),
        _ => Failure::config(format!("{key} {problem}")),
    }
}

/// An error of the library, which names one or more settings: points at the first of them that was given.
fn refusal(layers: &Layers<'_>, file: &File, error: &Error) -> Failure {
    let Error::Invalid { setting, problem } = error else { return Failure::config(error.to_string()) };
    let named: Vec<&str> = setting.split(", ").collect();
    let of_environment = named.iter().find_map(|key| match layers.origin(key) {
        Some(Origin::Environment { name }) => Some(*name),
        _ => None,
    });
    // The first is the one that the others are measured by; whoever wrote another one meant that.
    let at = named.iter().rev().find_map(|key| place(file, key));
    match (of_environment, at) {
        (Some(name), _) => Failure::config(format!("environment variable {name}: {error}")),
        (None, Some(at)) => refuse(layers, Some(at), &format!("{setting}:"), problem),
        (None, None) => Failure::config(error.to_string()),
    }
}

fn place(file: &File, key: &str) -> Option<Range<usize>> {
    let given = &file.leader;
    match key {
        "leader.instance" => span(&given.instance),
        "leader.address" => span(&given.address),
        "leader.redis_url" => span(&given.redis_url),
        "leader.key" => span(&given.key),
        "leader.ttl" => span(&given.ttl),
        "leader.renew_every" => span(&given.renew_every),
        "leader.renew_retries" => span(&given.renew_retries),
        "leader.retry_every" => span(&given.retry_every),
        "leader.margin" => span(&given.margin),
        "leader.call_timeout" => span(&given.call_timeout),
        _ => None,
    }
}

#[cfg(test)]
#[path = "leader_tests.rs"]
mod tests;
