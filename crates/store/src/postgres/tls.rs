//! Encryption as `sslmode` asks for it, with libpq's meaning of the words.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use stargate_queue::{Error, Result};
use tokio_postgres::config::{Config, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::fatal;

/// Reads a connection URL. `None` means without encryption.
pub(super) fn read_url(url: &str) -> Result<(Config, Option<MakeRustlsConnect>)> {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let (mut mode, mut root_file, mut rest) = (None, None, Vec::new());
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("sslmode", value)) => mode = Some(value),
            Some(("sslrootcert", value)) => root_file = Some(value),
            _ => rest.push(pair),
        }
    }
    let plain = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
    // The parser's message does not repeat the URL, which may hold a password.
    let mut config: Config = plain.parse().map_err(|error: tokio_postgres::Error| {
        Error::invalid(
            "store",
            format!("is not a connection URL: {error}; e.g. postgres://user@host:5432/database"),
        )
    })?;
    let tls = match mode {
        None | Some("disable" | "allow" | "prefer") => None,
        Some("require") => Some(encrypting()?),
        Some("verify-ca" | "verify-full") => Some(verifying(root_file)?),
        Some(other) => {
            let problem =
                format!("{other:?} is none of disable, allow, prefer, require, verify-ca, verify-full");
            return Err(Error::invalid("sslmode", problem));
        }
    };
    config.ssl_mode(if tls.is_some() { SslMode::Require } else { SslMode::Disable });
    Ok((config, tls))
}

/// `require`: encrypted, but whoever answers is believed to be the server.
fn encrypting() -> Result<MakeRustlsConnect> {
    let verifier = Arc::new(Unverified(Arc::new(aws_lc_rs::default_provider())));
    let config = builder()?.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

/// `verify-full`: the certificate must be valid and name the host. `verify-ca` is treated alike: it is the stricter.
fn verifying(root_file: Option<&str>) -> Result<MakeRustlsConnect> {
    let mut roots = RootCertStore::empty();
    match root_file {
        Some(path) => {
            let hint = "sslrootcert must name a readable PEM file";
            let broken = |error| fatal("read the root certificates", hint, error);
            for certificate in CertificateDer::pem_file_iter(path).map_err(|e| broken(e.to_string()))? {
                let certificate = certificate.map_err(|e| broken(e.to_string()))?;
                roots.add(certificate).map_err(|e| broken(e.to_string()))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    Ok(MakeRustlsConnect::new(builder()?.with_root_certificates(roots).with_no_client_auth()))
}

fn builder() -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>> {
    ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| fatal("set up TLS", "this build has no usable TLS versions", error))
}

#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
