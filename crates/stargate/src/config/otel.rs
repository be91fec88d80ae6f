//! Traces: which collector they go to, and how many.

use std::collections::HashMap;

use stargate_base::Secret;

use super::catalogue::otel as catalogue;
use super::file::File;
use super::layer::Layers;
use super::{same, secret};
use crate::failure::Result;

/// Where OTLP over HTTP has its traces.
const PATH: &str = "/v1/traces";

/// The settings of traces.
#[derive(Debug)]
#[cfg_attr(
    not(any(feature = "otel", test)),
    expect(dead_code, reason = "checked, but nothing here can use them")
)]
pub(crate) struct Otel {
    /// The whole address that spans are sent to; none: they are not collected.
    pub(crate) endpoint: Option<String>,
    headers: Option<Secret>,
    pub(crate) service_name: String,
    pub(crate) sample_ratio: f64,
}

impl Otel {
    /// What the collector wants to see, usually who we are.
    #[cfg_attr(not(any(feature = "otel", test)), expect(dead_code, reason = "nothing here can send them"))]
    pub(crate) fn headers(&self) -> HashMap<String, String> {
        let text = self.headers.as_ref().map(Secret::reveal).unwrap_or_default();
        let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
        pairs.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect()
    }
}

/// Reads `[otel]`.
pub(super) fn otel(layers: &mut Layers<'_>, file: &File) -> Result<Otel> {
    let given = &file.otel;
    let endpoint = layers.find(&catalogue::ENDPOINT, None, &given.endpoint, same)?;
    let headers = secret(layers, &given.headers, "otel.headers")?;
    let headers = layers.find(&catalogue::HEADERS, None, &headers, same)?;
    let name =
        layers.pick(&catalogue::SERVICE_NAME, None, &given.service_name, same, "stargate".to_owned())?;
    let sample_ratio = layers.pick(&catalogue::SAMPLE_RATIO, None, &given.sample_ratio, same, 1.0)?;
    Ok(Otel { endpoint: endpoint.map(|base| whole(&base)), headers, service_name: name, sample_ratio })
}

/// The address of the traces: what is configured is usually that of the collector.
fn whole(base: &str) -> String {
    let base = base.trim_end_matches('/');
    if base.ends_with(PATH) { base.to_owned() } else { format!("{base}{PATH}") }
}

#[cfg(test)]
mod tests {
    use super::super::layer::Environment;
    use super::super::{Flags, load};
    use super::*;

    fn read(text: &str, environment: &Environment) -> Result<Otel> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stargate.toml");
        std::fs::write(&path, text).unwrap();
        load(Flags { config: Some(path), ..Flags::default() }, environment).map(|settings| settings.otel)
    }

    #[test]
    fn without_a_collector_nothing_is_collected() {
        let usual = read("", &Environment::default()).unwrap();
        assert_eq!((usual.endpoint.as_deref(), usual.service_name.as_str()), (None, "stargate"));
        assert!(usual.headers().is_empty());
    }

    #[test]
    fn the_variables_of_opentelemetry_are_heard_and_the_headers_shown_nowhere() {
        let environment = Environment::from([
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer canary, x-team = a"),
            ("OTEL_SERVICE_NAME", "jobs"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        ]);
        let said = read("", &environment).unwrap();
        assert_eq!(said.endpoint.as_deref(), Some("http://collector:4318/v1/traces"));
        assert_eq!((said.service_name.as_str(), said.sample_ratio), ("jobs", 0.25));
        assert_eq!(said.headers()["authorization"], "Bearer canary");
        assert_eq!(said.headers()["x-team"], "a");
        assert!(!format!("{said:?}").contains("canary"), "{said:?}");
    }

    #[test]
    fn a_whole_address_is_taken_as_it_is() {
        let said = read("[otel]\nendpoint = \"https://c.example/otlp/v1/traces\"", &Environment::default());
        assert_eq!(said.unwrap().endpoint.as_deref(), Some("https://c.example/otlp/v1/traces"));
    }

    #[test]
    fn what_cannot_work_is_refused_without_the_secret() {
        for (text, expected) in [
            ("[otel]\nendpoint = \"collector:4318\"", "http"),
            ("[otel]\nendpoint = \"http://me:canary@c:4318\"", "headers"),
            ("[otel]\nsample_ratio = 1.5", "0 to 1"),
            ("[otel]\nservice_name = \"\"", "empty"),
            ("[otel]\nheaders = \"canary\"", "NAME=VALUE"),
        ] {
            let failure = read(text, &Environment::default()).unwrap_err();
            assert!(failure.message.contains(expected), "{text}: {failure}");
            assert!(!failure.render().contains("canary"), "{}", failure.render());
        }
    }
}
