//! What a tap is started with: its settings with the secrets in them, its arguments, its environment.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use stargate_base::Secret;
use stargate_directive::Pointer;
use stargate_directive::file::{ConfigValue, Secretive, SingerSource};
use stargate_directive::source::SourceError;

use super::redact::Secrets;
use super::scratch::Scratch;
use crate::{Surroundings, problem};

/// What a tap keeps of the environment of this process.
const INHERITED: [&str; 6] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// What a tap is started with.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) env: Vec<(String, Secret)>,
    /// Where it runs: relative paths in its settings are meant from where the directive lies.
    pub(super) folder: PathBuf,
    pub(super) secrets: Secrets,
    /// Holds the files that the arguments name.
    pub(super) scratch: Scratch,
}

impl Settings {
    pub(super) fn new(
        source: &SingerSource,
        folder: &Path,
        from: &Pointer,
        around: &Surroundings,
    ) -> Result<Self, SourceError> {
        let mut secrets = Secrets::default();
        let config = config(source, around, &mut secrets)?;
        let env = environment(source, around, &mut secrets)?;
        let folder = absolute(folder)?;
        let catalog = source.catalog.as_deref().map(catalog).transpose()?;
        let (scratch, config, state) = write(around, &config, from).map_err(|error| {
            let message =
                format!("cannot write the tap's settings below {}: {error}", around.scratch.display());
            problem::transient("SCRATCH_UNAVAILABLE", message)
        })?;
        let (program, args) = source.command.split_first().ok_or_else(|| setting("the command is empty"))?;
        let mut args: Vec<OsString> = args.iter().map(OsString::from).collect();
        let files = [("--config", Some(config)), ("--catalog", catalog), ("--state", state)];
        for (option, file) in files.into_iter().filter_map(|(option, file)| Some((option, file?))) {
            args.extend([option.into(), file.into_os_string()]);
        }
        Ok(Self { program: resolve(program, &folder), args, env, folder, secrets, scratch })
    }
}

fn setting(message: impl Into<String>) -> SourceError {
    problem::fatal("SOURCE_SETTING", message)
}

type Written = (Scratch, PathBuf, Option<PathBuf>);

fn write(around: &Surroundings, config: &Value, from: &Pointer) -> std::io::Result<Written> {
    let scratch = Scratch::new(&around.scratch)?;
    let config = scratch.write("config.json", &config.to_string())?;
    // Null is the beginning, where a tap begins by itself.
    let state = (!from.is_null()).then(|| scratch.write("state.json", &from.to_string())).transpose()?;
    Ok((scratch, config, state))
}

fn config(source: &SingerSource, around: &Surroundings, secrets: &mut Secrets) -> Result<Value, SourceError> {
    let mut config = Map::new();
    for (name, value) in &source.config {
        let value = match value {
            ConfigValue::Text(text) => reveal(text, around, secrets)?.into(),
            ConfigValue::Other(value) => reveal_inner(value, around, secrets)?,
        };
        config.insert(name.clone(), value);
    }
    let config = Value::Object(config);
    secrets.add_named("", &config);
    Ok(config)
}

/// Texts within lists and tables name variables like those outside: `headers = { authorization = "${env:TOKEN}" }`.
fn reveal_inner(value: &Value, around: &Surroundings, secrets: &mut Secrets) -> Result<Value, SourceError> {
    Ok(match value {
        Value::String(text) => {
            let text = Secretive::parse(text).map_err(|problem| setting(format!("{text:?} {problem}")))?;
            reveal(&text, around, secrets)?.into()
        }
        Value::Array(values) => values
            .iter()
            .map(|value| reveal_inner(value, around, secrets))
            .collect::<Result<Vec<_>, _>>()?
            .into(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| Ok((name.clone(), reveal_inner(value, around, secrets)?)))
            .collect::<Result<Map<_, _>, SourceError>>()?
            .into(),
        other => other.clone(),
    })
}

fn environment(
    source: &SingerSource,
    around: &Surroundings,
    secrets: &mut Secrets,
) -> Result<Vec<(String, Secret)>, SourceError> {
    let usual = INHERITED
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), Secret::new((around.environment)(name)?))));
    let mut env: Vec<_> = usual.collect();
    for (name, text) in &source.env {
        let value = reveal(text, around, secrets)?;
        secrets.add_named(name, &Value::from(value.as_str()));
        env.push((name.clone(), Secret::new(value)));
    }
    Ok(env)
}

/// What comes from a variable is secret, by itself and with the text around it.
fn reveal(text: &Secretive, around: &Surroundings, secrets: &mut Secrets) -> Result<String, SourceError> {
    let revealed = crate::reveal(text, around)?.reveal().to_owned();
    let mut names = text.variables().peekable();
    if names.peek().is_some() {
        secrets.add(&revealed);
    }
    names.filter_map(|name| (around.environment)(name)).for_each(|value| secrets.add(&value));
    Ok(revealed)
}

fn absolute(folder: &Path) -> Result<PathBuf, SourceError> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    match absolute.is_dir() {
        true => Ok(absolute),
        false => Err(setting(format!("the directive's folder {} is gone", absolute.display()))),
    }
}

fn catalog(path: &Path) -> Result<PathBuf, SourceError> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match absolute.is_file() {
        true => Ok(absolute),
        false => Err(setting(format!(
            "the catalog {} is not there; write it with the tap's --discover",
            absolute.display()
        ))),
    }
}

/// A relative path means a file below the directive's folder; a bare name is looked up in the `PATH`.
fn resolve(program: &str, folder: &Path) -> OsString {
    if program.contains('/') { folder.join(program).into_os_string() } else { program.into() }
}
