//! Webhooks: the effective settings, and the secrets that deliveries are signed with.

use std::collections::BTreeMap;
use std::sync::Arc;

use stargate_base::Secret;
use stargate_jobs::courier::{self, Secrets};
use stargate_repo::webhook::check_secret_name;

use super::catalogue::webhooks as catalogue;
use super::file::{self, File};
use super::interval::Interval;
use super::layer::{Layers, Origin, Shown};
use super::same;
use crate::failure::{Failure, Result};

/// How pushes are told to other servers.
#[derive(Debug)]
pub(crate) struct Webhooks {
    /// The bounds of a delivery.
    pub(crate) delivery: courier::Settings,
    /// By the names that webhooks know them by.
    secrets: Arc<BTreeMap<String, Secret>>,
}

impl Webhooks {
    /// Finds the secret of a name.
    pub(crate) fn secrets(&self) -> Secrets {
        let secrets = Arc::clone(&self.secrets);
        Arc::new(move |name| secrets.get(name).cloned())
    }

    /// Refuses the name of a secret that is not there, while somebody looks.
    pub(crate) fn check_secret(&self, name: &str) -> Result<()> {
        check_secret_name("--secret", name)?;
        if self.secrets.contains_key(name) {
            return Ok(());
        }
        let known: Vec<&str> = self.secrets.keys().map(String::as_str).collect();
        let nearest = file::nearest(name, &known);
        let nearest = nearest.map_or_else(String::new, |near| format!("did you mean {near:?}? "));
        let known = match known.as_slice() {
            [] => "there are none yet".to_owned(),
            known => format!("there are {}", known.join(", ")),
        };
        Err(Failure::config(format!("there is no secret {name:?} under [webhooks.secrets]")).help(format!(
            "{nearest}{known}; add {name} = \"${{env:VARIABLE}}\" under [webhooks.secrets] of stargate.toml, \
             for the workers too"
        )))
    }
}

/// Reads `[webhooks]`. `slots` are the jobs that this process runs at once.
pub(super) fn webhooks(layers: &mut Layers<'_>, file: &File, slots: usize) -> Result<Webhooks> {
    let given = &file.webhooks;
    let length = |Interval(length): Interval| length;
    let half = u64::try_from(slots / 2).unwrap_or(u64::MAX).clamp(1, 4096);
    let allow_private = layers.pick(&catalogue::ALLOW_PRIVATE, None, &given.allow_private, same, false)?;
    let timeout = layers.pick(&catalogue::TIMEOUT, None, &given.timeout, length, courier::TIMEOUT)?;
    let at_once = layers.pick(&catalogue::CONCURRENCY, None, &given.concurrency, same, half)?;
    let at_once = usize::try_from(at_once).ok();
    let secrets = Arc::new(secrets(layers, file)?);
    Ok(Webhooks { delivery: courier::Settings { allow_private, timeout, at_once }, secrets })
}

fn secrets(layers: &mut Layers<'_>, file: &File) -> Result<BTreeMap<String, Secret>> {
    let mut secrets = BTreeMap::new();
    let Some(source) = layers.source else { return Ok(secrets) };
    for (name, text) in &file.webhooks.secrets {
        let key = format!("webhooks.secrets.{}", name.get_ref());
        check_secret_name("webhooks.secrets", name.get_ref())
            .map_err(|error| source.refuse(name.span(), &key, &format!("cannot be used: {error}")))?;
        let secret = layers.environment.secret(text.get_ref()).map_err(|problem| {
            source.refuse(text.span(), &key, &problem).help(
                "set the variable wherever stargate runs, workers and commands alike, or remove the secret",
            )
        })?;
        if secret.reveal().is_empty() {
            let problem = "is empty; anybody could sign with it";
            return Err(source.refuse(text.span(), &key, problem).help("write \"${env:VARIABLE}\""));
        }
        let origin = Origin::File { path: source.path.clone(), line: source.line(&text.span()) };
        layers.shown.push(Shown { key, value: secret.to_string(), origin });
        secrets.insert(name.get_ref().clone(), secret);
    }
    Ok(secrets)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::layer::Environment;
    use super::super::{Flags, Settings, load};
    use crate::failure::Result;

    fn settings(text: &str, environment: &Environment) -> Result<Settings> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stargate.toml");
        std::fs::write(&path, text).unwrap();
        load(Flags { config: Some(path), ..Flags::default() }, environment)
    }

    #[test]
    fn private_networks_are_closed_and_half_of_the_room_is_left_to_other_jobs() {
        let none = Environment::default();
        let usual = settings("[worker]\nconcurrency = 9\n", &none).unwrap().webhooks.delivery;
        assert_eq!((usual.allow_private, usual.at_once), (false, Some(4)));
        assert_eq!(usual.timeout, Duration::from_secs(30));
        assert_eq!(settings("worker.concurrency = 1\n", &none).unwrap().webhooks.delivery.at_once, Some(1));
        let text = "[webhooks]\nallow_private = true\ntimeout = \"5s\"\nconcurrency = 7\n";
        let said = settings(text, &none).unwrap().webhooks.delivery;
        assert_eq!((said.allow_private, said.timeout, said.at_once), (true, Duration::from_secs(5), Some(7)));
    }

    #[test]
    fn a_secret_is_found_by_its_name_and_shown_nowhere() {
        let text = "[webhooks.secrets]\nci = \"${env:CI_HOOK}\"\n\"team.a-1\" = \"canary-2\"\n";
        let settings = settings(text, &Environment::from([("CI_HOOK", "canary-1")])).unwrap();
        let secret = |name: &str| settings.webhooks.secrets()(name).map(|secret| secret.reveal().to_owned());
        assert_eq!(secret("ci").as_deref(), Some("canary-1"));
        assert_eq!(secret("team.a-1").as_deref(), Some("canary-2"));
        assert_eq!(secret("other"), None);
        assert!(!format!("{settings:?}").contains("canary"), "{settings:?}");
        assert!(settings.shown.iter().any(|one| one.key == "webhooks.secrets.ci" && one.value == "***"));
    }

    #[test]
    fn a_name_that_is_not_there_is_refused_with_those_that_are() {
        let some = settings("[webhooks.secrets]\nci = \"x\"\n", &Environment::default()).unwrap();
        some.webhooks.check_secret("ci").unwrap();
        let failure = some.webhooks.check_secret("cj").unwrap_err();
        assert!(failure.message.contains("\"cj\" under [webhooks.secrets]"), "{failure}");
        let help = failure.help.unwrap();
        assert!(help.contains("did you mean \"ci\"?") && help.contains("cj = \"${env:"), "{help}");
        let odd = some.webhooks.check_secret("hunter 2").unwrap_err();
        assert!(!odd.message.contains("hunter"), "{odd}");
    }

    #[test]
    fn what_cannot_work_is_refused_at_its_line_without_the_secret() {
        for bad in [
            "[webhooks]\ntimeout = \"51s\"\n",
            "[webhooks]\nconcurrency = 0\n",
            "[webhooks.secrets]\nci = \"${env:NOT_SET}\"\n",
            "[webhooks.secrets]\nci = \"\"\n",
            "[webhooks.secrets]\n\"a b\" = \"canary\"\n",
        ] {
            let failure = settings(bad, &Environment::default()).unwrap_err();
            assert_eq!(failure.position().map(|(_, line, _)| line), Some(2), "{bad}: {failure}");
            assert!(failure.message.starts_with("webhooks."), "{failure}");
            assert!(!failure.render().contains("canary"), "{}", failure.render());
        }
    }
}
