//! The mirror: the effective settings.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use stargate_base::Secret;
use stargate_gateway::RepoName;
use stargate_git::{Credentials, Protocols, RefPattern};
use stargate_mirror::dead_letter::RETENTION_MIN;
use stargate_mirror::{Config, Routes};
use toml::Spanned;
use url::Url;

use super::catalogue::mirror as catalogue;
use super::file::{self, File, Given, ListGiven};
use super::interval::Interval;
use super::layer::{Layers, Origin, Shown};
use super::{parsed, same, secret};
use crate::failure::{Failure, Result};

/// The longest URL of a remote.
const URL_BYTES_MAX: usize = 2048;

/// The settings of the mirror.
#[derive(Debug, Clone)]
pub(crate) struct Mirror {
    /// What each repository's worker is given.
    pub(crate) config: Config,
    pub(crate) protocols: Protocols,
    pub(crate) rescan_every: Duration,
    pub(crate) retention: Duration,
    /// URLs of remotes by repository; they take the place of those in the repositories' own configuration.
    pub(crate) urls: BTreeMap<RepoName, String>,
    login: Login,
}

/// How to prove who we are, by kind of remote.
#[derive(Debug, Clone)]
struct Login {
    username: String,
    token: Option<Secret>,
    ssh_key: Option<PathBuf>,
    known_hosts: Option<PathBuf>,
}

impl Mirror {
    /// The credentials for a remote: the token over HTTP, the key otherwise.
    pub(crate) fn credentials(&self, url: &str) -> stargate_git::Result<Credentials> {
        let is_http = Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "https" | "http"));
        match (is_http, &self.login.token, &self.login.ssh_key) {
            (true, Some(token), _) => Credentials::token(url, &self.login.username, token.clone()),
            (false, _, Some(key)) => Credentials::ssh_key(key, self.login.known_hosts.as_deref()),
            _ => Ok(Credentials::none()),
        }
    }
}

/// Reads `[mirror]`. `instance` is what this node is called in the lock of a repository.
pub(super) fn mirror(layers: &mut Layers<'_>, file: &File, instance: &str) -> Result<Mirror> {
    let given = &file.mirror;
    let length = |Interval(length): Interval| length;
    let usual = Config::new().map_err(|error| Failure::config(error.to_string()))?;
    let remote = parsed(&given.remote, layers.source, "mirror.remote", catalogue::read_remote)?;
    let remote = layers.pick(&catalogue::REMOTE, None, &remote, same, usual.remote.clone())?;
    let protocols = protocols(layers, &given.protocols)?;
    let protocols = layers.pick(&catalogue::PROTOCOLS, None, &protocols, same, Protocols::default())?;
    let routes = routes(layers, file)?;
    let push_timeout =
        layers.pick(&catalogue::PUSH_TIMEOUT, None, &given.push_timeout, length, usual.push_timeout)?;
    let coalesce = layers.pick(&catalogue::COALESCE, None, &given.coalesce, same, false)?;
    let reconcile_every = layers.pick(
        &catalogue::RECONCILE_EVERY,
        None,
        &given.reconcile_every,
        length,
        usual.reconcile_every,
    )?;
    let rescan_every =
        layers.pick(&catalogue::RESCAN_EVERY, None, &given.rescan_every, length, Duration::from_secs(5))?;
    let login = login(layers, file)?;
    let retention =
        layers.pick(&catalogue::RETENTION, None, &given.dead_letter_retention, length, RETENTION_MIN)?;
    let instance = instance.to_owned();
    let config = Config { remote, routes, push_timeout, coalesce, reconcile_every, instance, ..usual };
    Ok(Mirror { config, protocols, rescan_every, retention, urls: urls(layers, file)?, login })
}

fn protocols(layers: &Layers<'_>, given: &Given<ListGiven>) -> Result<Given<Protocols>> {
    let Some(given) = given else { return Ok(None) };
    let text = match given.get_ref() {
        ListGiven::Text(text) => text.clone(),
        ListGiven::List(list) => list.join(","),
    };
    let read = catalogue::read_protocols(&text);
    let read = read.map_err(|problem| refuse(layers, given.span(), "mirror.protocols", &problem))?;
    Ok(Some(Spanned::new(given.span(), read)))
}

fn routes(layers: &mut Layers<'_>, file: &File) -> Result<Routes> {
    let given = &file.mirror;
    let texts = |texts: [&str; 2]| texts.map(str::to_owned).to_vec();
    let refs = texts(["refs/kv/*", "refs/kv-index/*"]);
    let refs = layers.pick(&catalogue::REFS, None, &given.refs, same, refs)?;
    let ledgers =
        layers.pick(&catalogue::LEDGERS, None, &given.ledgers, same, vec!["refs/kv/*".to_owned()])?;
    let mapped = given.map.as_ref().map(Spanned::get_ref).cloned().unwrap_or_default();
    // Each was checked where it was read; the names of a map are checked here.
    let pattern = |text: &String| RefPattern::parse(text).map_err(|error| error.to_string());
    let all = |texts: &[String]| texts.iter().map(pattern).collect::<Result<Vec<_>, String>>();
    let mappings = mapped.iter().map(|(here, there)| Ok((pattern(here)?, pattern(there)?)));
    let routes = mappings.collect::<Result<Vec<_>, String>>().and_then(|mappings| {
        Routes::new(all(&refs)?, all(&ledgers)?, mappings).map_err(|error| error.to_string())
    });
    let at = given.map.as_ref().map(Spanned::span).or(given.refs.as_ref().map(Spanned::span));
    let routes = routes.map_err(|problem| match at {
        Some(at) => refuse(layers, at, "[mirror]", &problem),
        None => Failure::config(problem),
    })?;
    if let (Some(map), Some(source)) = (&given.map, layers.source) {
        let value = mapped.iter().map(|(here, there)| format!("{here} as {there}"));
        let value = value.collect::<Vec<_>>().join(", ");
        let origin = Origin::File { path: source.path.clone(), line: source.line(&map.span()) };
        layers.shown.push(Shown { key: "mirror.map".to_owned(), value, origin });
    }
    Ok(routes)
}

fn login(layers: &mut Layers<'_>, file: &File) -> Result<Login> {
    let given = &file.mirror;
    let user = "x-access-token".to_owned();
    let username = layers.pick(&catalogue::USERNAME, None, &given.username, same, user)?;
    let token = secret(layers, &given.token, "mirror.token")?;
    let token = layers.find(&catalogue::TOKEN, None, &token, same)?;
    let ssh_key = layers.find(&catalogue::SSH_KEY, None, &given.ssh_key, same)?;
    let known_hosts = layers.find(&catalogue::KNOWN_HOSTS, None, &given.known_hosts, same)?;
    // Refused at start rather than with the first push. Where it goes does not matter for that.
    let checked = match &token {
        Some(token) => Credentials::token("https://localhost", &username, token.clone()).map(drop),
        None => Ok(()),
    };
    let checked = checked.and_then(|()| match (&ssh_key, &known_hosts) {
        (Some(key), hosts) => Credentials::ssh_key(key, hosts.as_deref()).map(drop),
        (None, _) => Ok(()),
    });
    checked.map_err(|error| Failure::config(error.to_string()))?;
    if let (None, Some(_)) = (&ssh_key, &known_hosts) {
        return Err(Failure::config("mirror.known_hosts has no use without mirror.ssh_key"));
    }
    Ok(Login { username, token, ssh_key, known_hosts })
}

fn urls(layers: &mut Layers<'_>, file: &File) -> Result<BTreeMap<RepoName, String>> {
    let mut urls = BTreeMap::new();
    for (name, file::MirrorRemote { url }) in &file.mirror.remotes {
        let key = format!("mirror.remotes.{:?}", name.get_ref());
        let repo = RepoName::parse(name.get_ref());
        let repo = repo.map_err(|error| refuse(layers, name.span(), &key, &error.to_string()))?;
        let Some(url) = url else {
            return Err(refuse(layers, name.span(), &key, "has no url"));
        };
        let key = format!("{key}.url");
        if let Some(problem) = url_problem(url.get_ref()) {
            return Err(refuse(layers, url.span(), &key, problem));
        }
        if let Some(source) = layers.source {
            let origin = Origin::File { path: source.path.clone(), line: source.line(&url.span()) };
            layers.shown.push(Shown { key, value: url.get_ref().clone(), origin });
        }
        urls.insert(repo, url.get_ref().clone());
    }
    Ok(urls)
}

/// What is wrong with the URL of a remote. It is not repeated: it may hold a password (INV-8).
fn url_problem(url: &str) -> Option<&'static str> {
    if url.is_empty() || url.len() > URL_BYTES_MAX || url.chars().any(char::is_control) {
        Some("is empty, longer than 2048 bytes, or has control characters")
    } else if url.starts_with('-') {
        Some("begins with a dash")
    } else if url.split("://").next().is_some_and(|scheme| scheme.contains("::")) {
        Some("asks for a program to be run")
    } else if stargate_git::has_secret(url) {
        Some("has a user or password in it; write mirror.username and mirror.token = \"${env:NAME}\" instead")
    } else {
        None
    }
}

fn refuse(layers: &Layers<'_>, at: std::ops::Range<usize>, key: &str, problem: &str) -> Failure {
    match layers.source {
        Some(source) => source.refuse(at, key, problem),
        None => Failure::config(format!("{key} {problem}")),
    }
}

#[cfg(test)]
#[path = "mirror_tests.rs"]
mod tests;
