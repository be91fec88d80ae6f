//! The settings of traces.

use stargate_base::Secret;

use super::{read_number, read_text, within};
use crate::config::layer::{Described, Setting};

/// All of them, as they appear in the documentation.
pub(super) fn described() -> Vec<Described> {
    vec![ENDPOINT.described(), HEADERS.described(), SERVICE_NAME.described(), SAMPLE_RATIO.described()]
}

pub(in crate::config) const ENDPOINT: Setting<String> = Setting {
    key: "otel.endpoint",
    about: "The collector that traces are sent to, by OTLP over HTTP with protobuf: `http://HOST:4318`. `/v1/traces` is added.",
    default: "none: no traces",
    flag: "",
    env: &["OTEL_EXPORTER_OTLP_ENDPOINT"],
    read: read_text,
    check: |endpoint| check_endpoint(endpoint),
    show: Clone::clone,
};
pub(in crate::config) const HEADERS: Setting<Secret> = Setting {
    key: "otel.headers",
    about: "Headers for the collector, `NAME=VALUE,NAME=VALUE`. A secret.",
    default: "none",
    flag: "",
    env: &["OTEL_EXPORTER_OTLP_HEADERS"],
    read: |text| Ok(Secret::new(text)),
    check: check_headers,
    show: ToString::to_string,
};
pub(in crate::config) const SERVICE_NAME: Setting<String> = Setting {
    key: "otel.service_name",
    about: "What this installation is called in traces.",
    default: "stargate",
    flag: "",
    env: &["OTEL_SERVICE_NAME"],
    read: read_text,
    check: |name| if name.is_empty() { Err("is empty".to_owned()) } else { Ok(()) },
    show: Clone::clone,
};
pub(in crate::config) const SAMPLE_RATIO: Setting<f64> = Setting {
    key: "otel.sample_ratio",
    about: "Which part of the traces that begin here is collected, 0 to 1. Whoever began a trace elsewhere has decided about it.",
    default: "1",
    flag: "",
    env: &["OTEL_TRACES_SAMPLER_ARG"],
    read: read_number,
    check: |ratio| within(*ratio, 0.0, 1.0, f64::to_string),
    show: ToString::to_string,
};

/// An address of a server, and nothing that could be a password.
fn check_endpoint(endpoint: &str) -> Result<(), String> {
    let url = url::Url::parse(endpoint).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    match url {
        Some(url) if !url.username().is_empty() || url.password().is_some() => {
            Err("names a user; what the collector wants to see belongs into otel.headers".to_owned())
        }
        Some(url) if url.has_host() && url.query().is_none() => Ok(()),
        _ => Err("is no address of a server, for instance http://127.0.0.1:4318".to_owned()),
    }
}

fn check_headers(headers: &Secret) -> Result<(), String> {
    let name = |text: &str| {
        let text = text.trim();
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    let fits = |pair: &str| {
        pair.split_once('=')
            .is_some_and(|(left, right)| name(left) && right.bytes().all(|b| (b' '..=b'~').contains(&b)))
    };
    match headers.reveal().split(',').all(fits) {
        true => Ok(()),
        false => Err("is not of the form NAME=VALUE,NAME=VALUE".to_owned()),
    }
}
