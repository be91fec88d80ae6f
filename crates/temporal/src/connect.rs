//! A connection to a cluster: its own, or a hosted one with an API key or a certificate.

use std::error::Error as _;
use std::time::Duration;

use stargate_base::{Secret, chain};
use temporalio_client::errors::ClientConnectError;
use temporalio_client::tonic::{IntoRequest as _, Status};
use temporalio_client::{Client, ClientOptions, ClientTlsOptions, Connection, ConnectionOptions, TlsOptions};
use temporalio_common::protos::temporal::api::workflowservice::v1::DescribeNamespaceRequest;
use url::Url;

use crate::error::{Error, Place, Result};

/// How long connecting may take, the first question included.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Where a cluster is and who we are to it.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `host:port`, or a URL.
    pub address: String,
    /// The namespace.
    pub namespace: String,
    /// What the cluster shows as the worker or client.
    pub identity: String,
    /// For a hosted cluster. With it TLS is on.
    pub api_key: Option<Secret>,
    /// If TLS is to be used.
    pub tls: Option<Tls>,
}

/// TLS to a cluster.
#[derive(Clone, Default)]
pub struct Tls {
    /// Who signs the cluster's certificate, as PEM; whom the system trusts if none is given.
    pub ca: Option<Vec<u8>>,
    /// Our certificate and its key, as PEM.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The name in the cluster's certificate, if that is not the host's.
    pub server_name: Option<String>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls")
            .field("ca", &self.ca.is_some())
            .field("identity", &self.identity.is_some())
            .field("server_name", &self.server_name)
            .finish()
    }
}

/// Connects and asks for the namespace, so that what is wrong is known at once.
pub(crate) async fn connect(settings: &Settings) -> Result<(Client, Place)> {
    let url = url(settings)?;
    check_key(settings.api_key.as_ref())?;
    let place = Place { address: url.to_string(), namespace: settings.namespace.clone() };
    let said = |request, status: &Status| {
        unanswered(settings, &place, status).unwrap_or_else(|| place.error(request, status))
    };
    let connected = tokio::time::timeout(CONNECT_MAX, async {
        let connection = Connection::connect(options(settings, url)).await;
        let connection = connection.map_err(|error| match &error {
            ClientConnectError::SystemInfoCallError(status) => said("connecting", status),
            // Its own text is that of a debugger.
            ClientConnectError::TonicTransportError(error) => broken(&place, chain(error)),
            error => broken(&place, chain(error)),
        })?;
        let ask = DescribeNamespaceRequest { namespace: settings.namespace.clone(), ..Default::default() };
        let asked = connection.workflow_service().describe_namespace(ask.into_request()).await;
        asked.map_err(|status| said("describing the namespace", &status))?;
        Ok(connection)
    });
    let connection = connected.await.map_err(|_| place.late("connecting", CONNECT_MAX))??;
    let client = Client::new(connection, ClientOptions::new(settings.namespace.clone()).build());
    let client = client.map_err(|error| Error::Setting { field: "temporal", problem: chain(&error) })?;
    Ok((client, place))
}

/// What a status means that no cluster sent: the connection broke. `None` if it is an answer.
fn unanswered(settings: &Settings, place: &Place, status: &Status) -> Option<Error> {
    // Only a status that was made here has a cause.
    let cause = chain(status.source()?);
    // With TLS 1.3 a client's certificate is looked at after the handshake, and the reason does not always reach us.
    let hint = match settings.tls.as_ref().map(|tls| tls.identity.is_some()) {
        None => "",
        Some(false) => "; a cluster that wants a client certificate closes like this, and none is set",
        Some(true) => "; a cluster that does not trust our client certificate closes like this",
    };
    Some(broken(place, format!("{cause}{hint}")))
}

fn broken(place: &Place, problem: String) -> Error {
    let Place { address, namespace } = place.clone();
    Error::Unreachable { address, namespace, problem }
}

/// The client leaves out a key that no header can carry, and the cluster would say that there is none.
fn check_key(key: Option<&Secret>) -> Result<()> {
    let can_be_sent = |key: &Secret| {
        let text = key.reveal();
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
    };
    match key {
        Some(key) if !can_be_sent(key) => Err(Error::Setting {
            field: "temporal.api_key",
            problem: "is empty or has a space, a line break or a letter outside ASCII in it".to_owned(),
        }),
        _ => Ok(()),
    }
}

fn options(settings: &Settings, url: Url) -> ConnectionOptions {
    // A key is never sent in the clear.
    let tls = settings.tls.clone().or_else(|| settings.api_key.is_some().then(Tls::default));
    let tls = tls.map(|tls| {
        let client = tls.identity.map(|(certificate, key)| {
            ClientTlsOptions::builder().client_cert(certificate).client_private_key(key).build()
        });
        TlsOptions::builder()
            .maybe_server_root_ca_cert(tls.ca)
            .maybe_domain(tls.server_name)
            .maybe_client_tls_options(client)
            .build()
    });
    ConnectionOptions::new(url)
        .identity(settings.identity.clone())
        .connect_timeout(CONNECT_MAX)
        .maybe_tls_options(tls)
        .maybe_api_key(settings.api_key.as_ref().map(|key| key.reveal().to_owned()))
        .build()
}

/// The address as the client wants it.
fn url(settings: &Settings) -> Result<Url> {
    let is_tls = settings.tls.is_some() || settings.api_key.is_some();
    let scheme = if is_tls { "https" } else { "http" };
    let text = match settings.address.contains("://") {
        true => settings.address.clone(),
        false => format!("{scheme}://{}", settings.address),
    };
    let wrong = |problem: String| Error::Setting { field: "temporal.address", problem };
    let url = Url::parse(&text).map_err(|error| {
        wrong(format!("is neither host:port nor a URL ({error}): {:?}", settings.address))
    })?;
    match url.scheme() {
        _ if url.host_str().is_none_or(str::is_empty) => Err(wrong("names no host".to_owned())),
        "https" if is_tls => Ok(url),
        "http" if !is_tls => Ok(url),
        "https" => Err(wrong("asks for TLS (https) and TLS is not set".to_owned())),
        "http" => Err(wrong("is without TLS (http), and an API key or TLS is set".to_owned())),
        other => Err(wrong(format!("has the scheme {other}; http and https are known"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(address: &str, tls: Option<Tls>, api_key: Option<&str>) -> Settings {
        Settings {
            address: address.to_owned(),
            namespace: "default".to_owned(),
            identity: "test".to_owned(),
            api_key: api_key.map(Secret::new),
            tls,
        }
    }

    #[test]
    fn an_address_is_host_and_port_or_a_url_that_agrees_with_tls() {
        let plain = |address| url(&settings(address, None, None)).map(|url| url.to_string());
        assert_eq!(plain("127.0.0.1:7233").unwrap(), "http://127.0.0.1:7233/");
        assert_eq!(plain("http://temporal:7233").unwrap(), "http://temporal:7233/");
        let with_tls =
            |address| url(&settings(address, Some(Tls::default()), None)).map(|url| url.to_string());
        assert_eq!(with_tls("temporal:7233").unwrap(), "https://temporal:7233/");
        let with_key = url(&settings("a.tmprl.cloud:7233", None, Some("k"))).map(|url| url.to_string());
        assert_eq!(with_key.unwrap(), "https://a.tmprl.cloud:7233/");
        for (wrong, word) in [("https://temporal:7233", "TLS"), ("ftp://x", "ftp"), ("", "host")] {
            let error = plain(wrong).unwrap_err();
            assert!(error.to_string().contains(word), "{wrong}: {error}");
            assert_eq!(error.code(), "INVALID");
        }
        assert!(with_tls("http://temporal:7233").is_err());
    }

    #[test]
    fn neither_the_key_nor_a_certificate_is_printed() {
        let tls = Tls { identity: Some((b"CERT".to_vec(), b"KEY".to_vec())), ..Tls::default() };
        let text = format!("{:?}", settings("x:1", Some(tls), Some("s3cret")));
        assert!(!text.contains("s3cret") && !text.contains("75"), "{text}");
    }

    #[tokio::test]
    async fn nobody_at_the_address_is_said_with_the_address() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let Err(error) = connect(&settings(&address, None, None)).await else { panic!("nobody is there") };
        assert_eq!(error.code(), "TEMPORAL_UNREACHABLE");
        assert!(error.to_string().contains(&address), "{error}");
    }
}
