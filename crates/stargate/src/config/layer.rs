//! One value out of four layers: flag, environment, file, default, in this order. Each choice is remembered with
//! where it came from, for `config show`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;
use stargate_base::Secret;
use toml::Spanned;

use super::file::Source;
use crate::failure::{Failure, Result};

/// The environment as it was at start.
#[derive(Debug, Default, Clone)]
pub(crate) struct Environment(BTreeMap<String, String>);

impl Environment {
    /// The process's environment.
    pub(crate) fn of_process() -> Self {
        let utf8 = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self(std::env::vars_os().filter_map(utf8).collect())
    }

    /// A variable that is set to something.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// A text that may be `${env:NAME}`, with what it stands for.
    pub(crate) fn secret(&self, text: &str) -> Result<Secret, String> {
        let Some(name) = text.strip_prefix("${env:").and_then(|rest| rest.strip_suffix('}')) else {
            return Ok(Secret::new(text));
        };
        let missing = || format!("needs the environment variable {name}, which is not set");
        self.get(name).map(Secret::new).ok_or_else(missing)
    }
}

#[cfg(test)]
impl<const N: usize> From<[(&str, &str); N]> for Environment {
    fn from(pairs: [(&str, &str); N]) -> Self {
        Self(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "layer")]
pub(crate) enum Origin {
    /// Built in.
    Default,
    /// The configuration file.
    File { path: PathBuf, line: usize },
    /// An environment variable.
    Environment { name: &'static str },
    /// The command line.
    Flag { name: &'static str },
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment { name } => write!(f, "environment {name}"),
            Self::Flag { name } => write!(f, "flag {name}"),
        }
    }
}

/// One effective value.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Shown {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) origin: Origin,
}

/// What is known about one setting: its names, how it is read, what is allowed, how it is shown.
pub(crate) struct Setting<T> {
    pub(crate) key: &'static str,
    pub(crate) about: &'static str,
    pub(crate) default: &'static str,
    pub(crate) flag: &'static str,
    pub(crate) env: &'static [&'static str],
    pub(crate) read: fn(&str) -> Result<T, String>,
    pub(crate) check: fn(&T) -> Result<(), String>,
    pub(crate) show: fn(&T) -> String,
}

/// What the documentation says about a setting.
pub(crate) struct Described {
    pub(crate) key: &'static str,
    pub(crate) about: &'static str,
    pub(crate) default: &'static str,
    pub(crate) flag: &'static str,
    pub(crate) env: &'static [&'static str],
}

impl<T> Setting<T> {
    /// What the documentation says about it.
    pub(crate) fn described(&self) -> Described {
        Described { key: self.key, about: self.about, default: self.default, flag: self.flag, env: self.env }
    }
}

/// Chooses values and remembers the choices.
pub(crate) struct Layers<'a> {
    pub(crate) environment: &'a Environment,
    pub(crate) source: Option<&'a Source>,
    pub(crate) shown: Vec<Shown>,
}

impl Layers<'_> {
    /// Where a value came from that has been chosen already.
    pub(crate) fn origin(&self, key: &str) -> Option<&Origin> {
        self.shown.iter().find(|shown| shown.key == key).map(|shown| &shown.origin)
    }

    /// The value of a setting that may be absent.
    pub(crate) fn find<T, F: Clone>(
        &mut self,
        setting: &Setting<T>,
        flag: Option<T>,
        file: &Option<Spanned<F>>,
        from_file: fn(F) -> T,
    ) -> Result<Option<T>> {
        let found = self.first(setting, flag, file, from_file)?;
        let (value, origin) = match found {
            Some((value, origin)) => (Some(value), origin),
            None => (None, Origin::Default),
        };
        let shown = value.as_ref().map_or_else(|| setting.default.replace('`', ""), setting.show);
        self.shown.push(Shown { key: setting.key.to_owned(), value: shown, origin });
        Ok(value)
    }

    /// The value of a setting with a default.
    pub(crate) fn pick<T, F: Clone>(
        &mut self,
        setting: &Setting<T>,
        flag: Option<T>,
        file: &Option<Spanned<F>>,
        from_file: fn(F) -> T,
        default: T,
    ) -> Result<T> {
        let (value, origin) =
            self.first(setting, flag, file, from_file)?.unwrap_or((default, Origin::Default));
        self.shown.push(Shown { key: setting.key.to_owned(), value: (setting.show)(&value), origin });
        Ok(value)
    }

    fn first<T, F: Clone>(
        &self,
        setting: &Setting<T>,
        flag: Option<T>,
        file: &Option<Spanned<F>>,
        from_file: fn(F) -> T,
    ) -> Result<Option<(T, Origin)>> {
        if let Some(value) = flag {
            (setting.check)(&value)
                .map_err(|problem| Failure::config(format!("{} {problem}", setting.flag)))?;
            return Ok(Some((value, Origin::Flag { name: setting.flag })));
        }
        for name in setting.env {
            let Some(text) = self.environment.get(name) else { continue };
            let refuse = |problem: String| {
                Failure::config(format!("environment variable {name}: {problem}"))
                    .help(format!("correct or unset {name}; it overrides {} of stargate.toml", setting.key))
            };
            let value = (setting.read)(text).map_err(refuse)?;
            (setting.check)(&value).map_err(refuse)?;
            return Ok(Some((value, Origin::Environment { name })));
        }
        let (Some(given), Some(source)) = (file, self.source) else { return Ok(None) };
        let value = from_file(given.get_ref().clone());
        (setting.check)(&value).map_err(|problem| source.refuse(given.span(), setting.key, &problem))?;
        let origin = Origin::File { path: source.path.clone(), line: source.line(&given.span()) };
        Ok(Some((value, origin)))
    }
}
