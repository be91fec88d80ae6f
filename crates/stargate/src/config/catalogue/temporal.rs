//! The settings of the Temporal cluster.

use std::path::PathBuf;

use stargate_base::Secret;

use super::{any, number, read_switch, read_text, within};
use crate::config::layer::{Described, Setting};

/// All of them, as they appear in the documentation.
pub(super) fn described() -> Vec<Described> {
    vec![
        ADDRESS.described(),
        NAMESPACE.described(),
        API_KEY.described(),
        TLS.described(),
        AUTHORITY.described(),
        CERTIFICATE.described(),
        KEY.described(),
        SERVER_NAME.described(),
        PAGES_PER_ACTIVITY.described(),
        METRICS.described(),
    ]
}

pub(in crate::config) const ADDRESS: Setting<String> = Setting {
    key: "temporal.address",
    about: "The frontend of the Temporal cluster, `HOST:PORT`.",
    default: "127.0.0.1:7233",
    flag: "",
    env: &["TEMPORAL_ADDRESS"],
    read: read_text,
    check: |address| check_address(address),
    show: Clone::clone,
};
pub(in crate::config) const NAMESPACE: Setting<String> = Setting {
    key: "temporal.namespace",
    about: "The namespace on it. Workflows are named after their directives, so each installation needs one of its own.",
    default: "default",
    flag: "",
    env: &["TEMPORAL_NAMESPACE"],
    read: read_text,
    check: |name| if name.is_empty() { Err("is empty".to_owned()) } else { Ok(()) },
    show: Clone::clone,
};
pub(in crate::config) const API_KEY: Setting<Secret> = Setting {
    key: "temporal.api_key",
    about: "The API key of a hosted cluster; goes with TLS. A secret.",
    default: "none",
    flag: "",
    env: &["TEMPORAL_API_KEY"],
    read: |text| Ok(Secret::new(text)),
    check: any,
    show: ToString::to_string,
};
pub(in crate::config) const TLS: Setting<bool> = switch(
    "temporal.tls",
    "Whether to talk TLS to the cluster.",
    "true if another TLS setting or an API key is given",
    &["TEMPORAL_TLS"],
);
pub(in crate::config) const AUTHORITY: Setting<PathBuf> = path(
    "temporal.authority",
    "A PEM file with the authority that signed the cluster's certificate.",
    "those of the system",
    &["TEMPORAL_TLS_SERVER_CA_CERT_PATH"],
);
pub(in crate::config) const CERTIFICATE: Setting<PathBuf> = path(
    "temporal.certificate",
    "A PEM file with our certificate, for clusters that want one (mTLS).",
    "none",
    &["TEMPORAL_TLS_CLIENT_CERT_PATH"],
);
pub(in crate::config) const KEY: Setting<PathBuf> = path(
    "temporal.key",
    "A PEM file with the key of our certificate.",
    "none",
    &["TEMPORAL_TLS_CLIENT_KEY_PATH"],
);
pub(in crate::config) const SERVER_NAME: Setting<String> = Setting {
    key: "temporal.server_name",
    about: "The name in the cluster's certificate, if it is not that of `temporal.address`.",
    default: "the host of `temporal.address`",
    flag: "",
    env: &["TEMPORAL_TLS_SERVER_NAME"],
    read: read_text,
    check: any,
    show: Clone::clone,
};
pub(in crate::config) const PAGES_PER_ACTIVITY: Setting<u64> = number(
    "temporal.pages_per_activity",
    "Pages that one activity reads and writes, 1 to 100000. Each page is a checkpoint anyway; fewer give the workflow's history more detail, and cost the cluster more.",
    "100",
    "",
    &[],
    |n| within(*n, 1, 100_000, u64::to_string),
);
pub(in crate::config) const METRICS: Setting<bool> = switch(
    "temporal.metrics",
    "Whether `/metrics` also has what the Temporal SDK measures, under `temporal_`.",
    "true",
    &[],
);

const fn path(
    key: &'static str,
    about: &'static str,
    default: &'static str,
    env: &'static [&'static str],
) -> Setting<PathBuf> {
    Setting {
        key,
        about,
        default,
        flag: "",
        env,
        read: |text| Ok(PathBuf::from(text)),
        check: any,
        show: |path| path.display().to_string(),
    }
}

const fn switch(
    key: &'static str,
    about: &'static str,
    default: &'static str,
    env: &'static [&'static str],
) -> Setting<bool> {
    Setting { key, about, default, flag: "", env, read: read_switch, check: any, show: bool::to_string }
}

/// A host and a port, and nothing that could be a password.
fn check_address(address: &str) -> Result<(), String> {
    let url = url::Url::parse(&format!("http://{address}")).ok();
    let fits = url.is_some_and(|url| {
        let is_plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
        let has_port = address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        url.has_host() && url.path() == "/" && is_plain && has_port
    });
    if fits { Ok(()) } else { Err("is not HOST:PORT, for instance 127.0.0.1:7233".to_owned()) }
}
