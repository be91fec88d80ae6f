//! The Temporal cluster: where it is and how to be let in.

use std::path::PathBuf;

use stargate_base::Secret;

use super::catalogue::temporal as catalogue;
use super::file::{File, Given};
use super::layer::Layers;
use super::{same, secret};
use crate::failure::{Failure, Result};

/// The settings of the cluster.
#[derive(Debug)]
#[cfg_attr(
    not(any(feature = "temporal", test)),
    expect(dead_code, reason = "checked, but nothing here can use them")
)]
pub(crate) struct Temporal {
    pub(crate) address: String,
    pub(crate) namespace: String,
    pub(crate) api_key: Option<Secret>,
    pub(crate) tls: Option<Tls>,
    /// Pages that one activity reads and writes.
    pub(crate) pages_per_activity: u64,
    /// Whether what the SDK measures is shown.
    pub(crate) metrics: bool,
}

/// How TLS is talked; files are read when they are needed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tls {
    pub(crate) authority: Option<PathBuf>,
    /// Our certificate and its key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
    pub(crate) server_name: Option<String>,
}

/// Reads `[temporal]`.
pub(super) fn temporal(layers: &mut Layers<'_>, file: &File) -> Result<Temporal> {
    let given = &file.temporal;
    let address =
        layers.pick(&catalogue::ADDRESS, None, &given.address, same, "127.0.0.1:7233".to_owned())?;
    let namespace = layers.pick(&catalogue::NAMESPACE, None, &given.namespace, same, "default".to_owned())?;
    let api_key = secret(layers, &given.api_key, "temporal.api_key")?;
    let api_key = layers.find(&catalogue::API_KEY, None, &api_key, same)?;
    let tls = tls(layers, file, api_key.is_some())?;
    let pages = &given.pages_per_activity;
    Ok(Temporal {
        address,
        namespace,
        api_key,
        tls,
        pages_per_activity: layers.pick(&catalogue::PAGES_PER_ACTIVITY, None, pages, same, 100)?,
        metrics: layers.pick(&catalogue::METRICS, None, &given.metrics, same, true)?,
    })
}

fn tls(layers: &mut Layers<'_>, file: &File, has_api_key: bool) -> Result<Option<Tls>> {
    let given = &file.temporal;
    let wanted = layers.find(&catalogue::TLS, None, &given.tls, same)?;
    let authority = layers.find(&catalogue::AUTHORITY, None, &given.authority, same)?;
    let certificate = layers.find(&catalogue::CERTIFICATE, None, &given.certificate, same)?;
    let key = layers.find(&catalogue::KEY, None, &given.key, same)?;
    let server_name = layers.find(&catalogue::SERVER_NAME, None, &given.server_name, same)?;
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (Some(_), None) => {
            return Err(half(layers, &given.certificate, "temporal.certificate", "temporal.key"));
        }
        (None, Some(_)) => return Err(half(layers, &given.key, "temporal.key", "temporal.certificate")),
    };
    let tls = Tls { authority, identity, server_name };
    match wanted {
        Some(false) if has_api_key || tls != Tls::default() => {
            let problem = "temporal.tls is false, but there is an API key or another setting for TLS";
            Err(Failure::config(problem).help("remove one of them: without TLS anybody could read the key"))
        }
        Some(false) => Ok(None),
        Some(true) => Ok(Some(tls)),
        None => Ok(Some(tls).filter(|tls| has_api_key || *tls != Tls::default())),
    }
}

/// A certificate and its key are of use only together.
fn half<T>(layers: &Layers<'_>, given: &Given<T>, key: &str, other: &str) -> Failure {
    let problem = format!("is of no use without {other}");
    match (given, layers.source) {
        (Some(given), Some(source)) => source.refuse(given.span(), key, &problem),
        _ => Failure::config(format!("{key} {problem}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::layer::Environment;
    use super::super::{Flags, load};
    use super::*;

    fn read(text: &str, environment: &Environment) -> Result<Temporal> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stargate.toml");
        std::fs::write(&path, text).unwrap();
        load(Flags { config: Some(path), ..Flags::default() }, environment).map(|settings| settings.temporal)
    }

    fn refused(text: &str) -> String {
        read(text, &Environment::default()).unwrap_err().message
    }

    #[test]
    fn a_server_on_this_machine_needs_no_settings() {
        let usual = read("", &Environment::default()).unwrap();
        assert_eq!((usual.address.as_str(), usual.namespace.as_str()), ("127.0.0.1:7233", "default"));
        assert_eq!((usual.tls, usual.api_key, usual.pages_per_activity), (None, None, 100));
    }

    #[test]
    fn the_variables_of_temporals_own_tools_are_heard() {
        let environment = Environment::from([
            ("TEMPORAL_ADDRESS", "prod.example:7233"),
            ("TEMPORAL_NAMESPACE", "prod.harvesters"),
            ("TEMPORAL_API_KEY", "canary"),
        ]);
        let said = read("", &environment).unwrap();
        assert_eq!(
            (said.address.as_str(), said.namespace.as_str()),
            ("prod.example:7233", "prod.harvesters")
        );
        assert_eq!(said.tls, Some(Tls::default()), "an API key is not sent in the clear");
        assert!(!format!("{said:?}").contains("canary"));
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        for (text, expected) in [
            ("[temporal]\naddress = \"http://h:1\"", "HOST:PORT"),
            ("[temporal]\naddress = \"user:pw@h:1\"", "HOST:PORT"),
            ("[temporal]\naddress = \"h\"", "HOST:PORT"),
            ("[temporal]\ncertificate = \"c.pem\"", "temporal.key"),
            ("[temporal]\nkey = \"k.pem\"", "temporal.certificate"),
            ("[temporal]\ntls = false\napi_key = \"canary\"", "temporal.tls"),
            ("[temporal]\npages_per_activity = 0", "1 to 100000"),
        ] {
            let message = refused(text);
            assert!(message.contains(expected) && !message.contains("canary"), "{text}: {message}");
        }
    }
}
