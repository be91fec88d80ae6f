//! What the file says about kinds, limits and schedules, checked and turned into what the engine takes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use stargate_base::{Backoff, Secret};
use stargate_queue::job::{PRIORITY_MAX, check_name};
use stargate_queue::kind::Detail;
use stargate_queue::limits::{Limit, Rate};
use stargate_queue::schedule::Schedule;
use stargate_queue::{Error, Json, Profile};
use toml::Spanned;
use url::Url;

use super::file::{self, File, Given, Source, Timeline};
use super::interval::{self, Interval};
use super::layer::{Environment, Origin, Shown};
use crate::failure::{Failure, Result};

/// The kinds that ship with Stargate; the file cannot take their names.
pub(crate) const BUILT_IN: [&str; 5] = [
    stargate_jobs::purge::KIND,
    stargate_jobs::clip::KIND,
    stargate_repo::PUSH_PROCESS,
    stargate_repo::SIZE_RECALC,
    stargate_repo::WEBHOOK_DELIVER,
];

/// Kinds, limits and schedules of the file.
#[derive(Debug)]
pub(crate) struct Plans {
    /// How a kind is treated that says nothing itself.
    pub(crate) profile: Profile,
    pub(crate) kinds: Vec<KindPlan>,
    pub(crate) limits: Vec<Limit>,
    pub(crate) schedules: Vec<Schedule>,
}

/// A kind of the file.
#[derive(Debug)]
pub(crate) struct KindPlan {
    pub(crate) name: String,
    pub(crate) profile: Profile,
    pub(crate) handler: HandlerPlan,
}

/// What does the work of a kind.
#[derive(Debug)]
pub(crate) enum HandlerPlan {
    /// A program.
    Exec { command: Vec<String>, working_dir: Option<PathBuf>, env: BTreeMap<String, Secret> },
    /// A server.
    Http { url: Url, secret: Option<Secret> },
}

impl Plans {
    /// What holds when there is no file.
    pub(crate) fn without_file(attempts: u64) -> Self {
        let profile = Profile { max_attempts: u16::try_from(attempts).unwrap_or(5), ..Profile::default() };
        Self { profile, kinds: Vec::new(), limits: Vec::new(), schedules: Vec::new() }
    }
}

/// Checks and converts all three sections.
pub(crate) fn plans(
    source: &Source,
    file: &File,
    environment: &Environment,
    heartbeat: Duration,
    attempts: u64,
    shown: &mut Vec<Shown>,
) -> Result<Plans> {
    let mut plans = Plans::without_file(attempts);
    let reader = Reader { source, environment, heartbeat };
    for (name, kind) in &file.kinds {
        plans.kinds.push(reader.kind(name, kind, &plans.profile)?);
        let what = kind.exec.as_ref().map(|exec| format!("exec {}", exec.get_ref().join(" ")));
        let what = what
            .or_else(|| kind.http.as_ref().map(|url| format!("http {}", without_credentials(url.get_ref()))));
        reader.show(shown, format!("kinds.{}", name.get_ref()), what.unwrap_or_default(), name);
        if let Some(secret) = &kind.secret {
            reader.show(shown, format!("kinds.{}.secret", name.get_ref()), "***".to_owned(), secret);
        }
    }
    for (pattern, limit) in &file.limits {
        let limit = reader.limit(pattern, limit)?;
        reader.show(shown, format!("limits.{}", pattern.get_ref()), limit_in_words(&limit), pattern);
        plans.limits.push(limit);
    }
    for (name, schedule) in &file.schedules {
        let schedule = reader.schedule(name, schedule)?;
        let words = format!("{} ({}) {}", schedule.cron, schedule.time_zone, schedule.kind);
        reader.show(shown, format!("schedules.{}", name.get_ref()), words, name);
        plans.schedules.push(schedule);
    }
    Ok(plans)
}

/// An address without the password it may hold (INV-8).
pub(super) fn without_credentials(address: &str) -> String {
    let Ok(mut url) = Url::parse(address) else { return "***".to_owned() };
    if url.password().is_some() && url.set_password(Some("***")).is_err() {
        return "***".to_owned();
    }
    url.set_query(url.query().is_some().then_some("***"));
    url.to_string()
}

/// A limit in one line.
pub(crate) fn limit_in_words(limit: &Limit) -> String {
    let mut words = Vec::new();
    words.extend(limit.concurrency.map(|n| format!("{n} at once")));
    words.extend(limit.rate.map(|rate| rate.to_string()));
    words.push(format!("weight {}", limit.weight));
    words.join(", ")
}

struct Reader<'a> {
    source: &'a Source,
    environment: &'a Environment,
    heartbeat: Duration,
}

impl Reader<'_> {
    fn show<T>(&self, shown: &mut Vec<Shown>, key: String, value: String, at: &Spanned<T>) {
        let origin = Origin::File { path: self.source.path.clone(), line: self.source.line(&at.span()) };
        shown.push(Shown { key, value, origin });
    }

    fn refuse<T>(&self, at: &Spanned<T>, key: &str, problem: &str) -> Failure {
        self.source.refuse(at.span(), key, problem)
    }

    fn refuse_as<T>(&self, at: &Spanned<T>, section: &str, error: &Error) -> Failure {
        self.source.refuse(at.span(), section, &format!("is refused: {error}"))
    }

    /// A number of the file within a range.
    fn number<T: TryFrom<u64>>(
        &self,
        given: &Given<u64>,
        key: &str,
        low: u64,
        high: u64,
    ) -> Result<Option<T>> {
        let Some(given) = given else { return Ok(None) };
        let number = *given.get_ref();
        let fits = (low..=high).contains(&number).then(|| T::try_from(number).ok()).flatten();
        let problem = format!("is {number}; allowed are {low} to {high}");
        fits.map(Some).ok_or_else(|| self.refuse(given, key, &problem))
    }

    /// A length of time of the file within a range.
    fn length(
        &self,
        given: &Given<Interval>,
        key: &str,
        low: Duration,
        high: Duration,
    ) -> Result<Option<Duration>> {
        let Some(given) = given else { return Ok(None) };
        let Interval(length) = *given.get_ref();
        if (low..=high).contains(&length) {
            return Ok(Some(length));
        }
        let show = interval::show;
        let problem = format!("is {}; allowed are {} to {}", show(length), show(low), show(high));
        Err(self.refuse(given, key, &problem))
    }

    fn kind(&self, name: &Spanned<String>, kind: &file::Kind, default: &Profile) -> Result<KindPlan> {
        let section = format!("kinds.{:?}", name.get_ref());
        check_name("kind", name.get_ref()).map_err(|error| self.refuse_as(name, &section, &error))?;
        if BUILT_IN.contains(&name.get_ref().as_str()) {
            return Err(self.refuse(
                name,
                &section,
                "is built in and cannot be described here; choose another name",
            ));
        }
        let profile = self.profile(&section, kind, default)?;
        let handler = self.handler(&section, name, kind)?;
        Ok(KindPlan { name: name.get_ref().clone(), profile, handler })
    }

    fn profile(&self, section: &str, kind: &file::Kind, default: &Profile) -> Result<Profile> {
        let key = |name: &str| format!("{section}.{name}");
        let millisecond = Duration::from_millis(1);
        let day = Duration::from_secs(86_400);
        let week = Duration::from_secs(7 * 86_400);
        let first = self.length(&kind.backoff, &key("backoff"), Duration::ZERO, week)?;
        let cap = self.length(&kind.backoff_max, &key("backoff_max"), Duration::ZERO, week)?;
        let backoff = Backoff {
            first: first.unwrap_or(default.backoff.first),
            cap: cap.unwrap_or_else(|| default.backoff.cap.max(first.unwrap_or_default())),
            ..default.backoff
        };
        if let (true, Some(at)) =
            (backoff.first > backoff.cap, kind.backoff.as_ref().or(kind.backoff_max.as_ref()))
        {
            let (first, cap) = (interval::show(backoff.first), interval::show(backoff.cap));
            return Err(self.refuse(
                at,
                &key("backoff"),
                &format!("is {first}, more than backoff_max {cap}"),
            ));
        }
        let lease = self.length(&kind.lease, &key("lease"), self.heartbeat * 2, day).map_err(|failure| {
            failure.help("a lease spans at least two heartbeats (worker.heartbeat), so that one lost beat costs nothing")
        })?;
        Ok(Profile {
            max_attempts: self
                .number(&kind.max_attempts, &key("max_attempts"), 1, 1000)?
                .unwrap_or(default.max_attempts),
            max_crashes: self
                .number(&kind.max_crashes, &key("max_crashes"), 1, 1000)?
                .unwrap_or(default.max_crashes),
            backoff,
            timeout: self
                .length(&kind.timeout, &key("timeout"), millisecond, week)?
                .unwrap_or(default.timeout),
            lease,
            concurrency: self.number(&kind.concurrency, &key("concurrency"), 1, 4096)?,
            timeline: match kind.timeline.as_ref().map(|given| *given.get_ref()) {
                Some(Timeline::States) => Detail::States,
                Some(Timeline::Full) => Detail::Full,
                None => default.timeline,
            },
        })
    }

    fn handler(&self, section: &str, name: &Spanned<String>, kind: &file::Kind) -> Result<HandlerPlan> {
        let key = |name: &str| format!("{section}.{name}");
        match (&kind.exec, &kind.http) {
            (Some(exec), Some(_)) => {
                Err(self.refuse(exec, section, "has both exec and http; keep one of them"))
            }
            (None, None) => {
                let help = "add exec = [\"./program\"] or http = \"http://127.0.0.1:9000/hook\"";
                Err(self.refuse(name, section, "says neither exec nor http").help(help))
            }
            (Some(exec), None) => {
                if exec.get_ref().first().is_none_or(String::is_empty) {
                    return Err(self.refuse(exec, &key("exec"), "names no program"));
                }
                if let Some(secret) = &kind.secret {
                    return Err(self.refuse(
                        secret,
                        &key("secret"),
                        "signs HTTP bodies; it has no use with exec",
                    ));
                }
                Ok(HandlerPlan::Exec {
                    command: exec.get_ref().clone(),
                    working_dir: kind.working_dir.as_ref().map(|dir| self.beside_file(dir.get_ref())),
                    env: self.environment_of(&key("env"), kind)?,
                })
            }
            (None, Some(http)) => {
                let url =
                    Url::parse(http.get_ref()).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
                let wrong = || self.refuse(http, &key("http"), "is not an http:// or https:// URL");
                if let Some(dir) = &kind.working_dir {
                    return Err(self.refuse(
                        dir,
                        &key("working_dir"),
                        "is for programs; it has no use with http",
                    ));
                }
                if let Some(env) = &kind.env {
                    return Err(self.refuse(env, &key("env"), "is for programs; it has no use with http"));
                }
                let secret =
                    kind.secret.as_ref().map(|given| self.secret(given, &key("secret"), given.get_ref()));
                Ok(HandlerPlan::Http { url: url.ok_or_else(wrong)?, secret: secret.transpose()? })
            }
        }
    }

    /// Relative directories count from the file, wherever the program is started.
    fn beside_file(&self, path: &std::path::Path) -> PathBuf {
        self.source.path.parent().map_or_else(|| path.to_owned(), |parent| parent.join(path))
    }

    fn environment_of(&self, key: &str, kind: &file::Kind) -> Result<BTreeMap<String, Secret>> {
        let Some(given) = &kind.env else { return Ok(BTreeMap::new()) };
        let entries = given.get_ref().iter();
        entries
            .map(|(name, text)| Ok((name.clone(), self.secret(given, &format!("{key}.{name}"), text)?)))
            .collect()
    }

    /// A text that may be `${env:NAME}`.
    fn secret<T>(&self, at: &Spanned<T>, key: &str, text: &str) -> Result<Secret> {
        self.environment.secret(text).map_err(|problem| self.refuse(at, key, &problem))
    }

    fn limit(&self, pattern: &Spanned<String>, given: &file::Limit) -> Result<Limit> {
        let section = format!("limits.{:?}", pattern.get_ref());
        if given.concurrency.is_none() && given.rate.is_none() && given.weight.is_none() {
            let help = "add concurrency = 4, rate = \"10/s\" or weight = 2";
            return Err(self.refuse(pattern, &section, "limits nothing").help(help));
        }
        let rate = given.rate.as_ref().map(|rate| {
            let wrong = |error: Error| self.refuse_as(rate, &format!("{section}.rate"), &error);
            rate.get_ref().parse::<Rate>().map_err(wrong)
        });
        let limit = Limit {
            pattern: pattern.get_ref().clone(),
            concurrency: self.number(&given.concurrency, &format!("{section}.concurrency"), 1, 1_000_000)?,
            rate: rate.transpose()?,
            weight: self.number(&given.weight, &format!("{section}.weight"), 1, 1000)?.unwrap_or(1),
        };
        limit.check().map_err(|error| self.refuse_as(pattern, &section, &error))?;
        Ok(limit)
    }

    fn schedule(&self, name: &Spanned<String>, given: &file::Schedule) -> Result<Schedule> {
        let section = format!("schedules.{:?}", name.get_ref());
        let (Some(cron), Some(kind)) = (&given.cron, &given.kind) else {
            let help = "a schedule has at least cron = \"*/15 * * * *\" and kind = \"…\"";
            return Err(self.refuse(name, &section, "says not what to run when").help(help));
        };
        let text = |given: &Given<String>, default: &str| {
            given.as_ref().map_or_else(|| default.to_owned(), |text| text.get_ref().clone())
        };
        let schedule = Schedule {
            name: name.get_ref().clone(),
            cron: cron.get_ref().clone(),
            time_zone: text(&given.time_zone, "UTC"),
            kind: kind.get_ref().clone(),
            queue: text(&given.queue, "default"),
            payload: self.payload(&section, given)?,
            priority: self.priority(&section, given)?,
            next_at: None,
            last_at: None,
        };
        schedule.check().map_err(|error| {
            // The message begins with the field, so the caret can stand under the right value.
            let message = error.to_string();
            let at = [
                ("time_zone", given.time_zone.as_ref()),
                ("kind", Some(kind)),
                ("queue", given.queue.as_ref()),
            ];
            let at =
                at.into_iter().find(|(field, _)| message.starts_with(field)).and_then(|(_, given)| given);
            self.refuse_as(at.unwrap_or(cron), &section, &error)
        })?;
        Ok(schedule)
    }

    fn payload(&self, section: &str, given: &file::Schedule) -> Result<Json> {
        let Some(payload) = &given.payload else { return Ok(crate::payload::empty()) };
        let wrong =
            |error| self.refuse(payload, &format!("{section}.payload"), &format!("is not JSON: {error}"));
        serde_json::value::to_raw_value(payload.get_ref()).map_err(wrong)
    }

    fn priority(&self, section: &str, given: &file::Schedule) -> Result<i16> {
        let Some(priority) = &given.priority else { return Ok(0) };
        let number = *priority.get_ref();
        let fits = i16::try_from(number).ok().filter(|n| (0..=PRIORITY_MAX).contains(n));
        let problem = format!("is {number}; allowed are 0 to {PRIORITY_MAX}");
        fits.ok_or_else(|| self.refuse(priority, &format!("{section}.priority"), &problem))
    }
}

#[cfg(test)]
#[path = "kinds_tests.rs"]
mod tests;
