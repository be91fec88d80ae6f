//! TLS, certificates on both ends, and the API key: in front of the real server something takes TLS off, as a load
//! balancer does.

use std::convert::Infallible;
use std::future::Future;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use stargate_base::{ErrorClass, Secret, Tasks};
use stargate_temporal::{Cluster, Error, Settings, Tls};
use stargate_testkit::eventually;
use stargate_testkit::temporal::Namespace;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::world::{PATIENCE, QUEUE, settings};

/// The key of a hosted cluster.
const API_KEY: &str = "canary-7f3a";
/// A name that no machine has.
const NAME: &str = "temporal.internal";
/// Bytes of a connection that are looked at.
const SEEN_MAX: u64 = 64 << 10;

/// Somebody who signs certificates.
struct Authority {
    folder: TempDir,
}

impl Authority {
    fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        openssl(folder.path(), "authority", name, &[]);
        Self { folder }
    }

    /// A certificate and its key, as PEM.
    fn sign(&self, name: &str, subject: &str) -> (Vec<u8>, Vec<u8>) {
        let subject = format!("subjectAltName={subject}");
        let usage = ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", &subject];
        let signer = ["-CA", "authority.pem", "-CAkey", "authority.key"];
        openssl(self.folder.path(), name, name, &[&signer[..], &usage].concat());
        (self.file(&format!("{name}.pem")), self.file(&format!("{name}.key")))
    }

    fn pem(&self) -> Vec<u8> {
        self.file("authority.pem")
    }

    fn file(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.folder.path().join(name)).unwrap()
    }

    /// What a server with a certificate for `subject` is set to, and whose clients it lets in.
    fn server(&self, subject: &str, clients: Option<&Self>) -> Arc<ServerConfig> {
        let (certificate, key) = self.sign("server", subject);
        let certificate = CertificateDer::from_pem_slice(&certificate).unwrap();
        let key = PrivateKeyDer::from_pem_slice(&key).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider.clone());
        let config = config.with_safe_default_protocol_versions().unwrap();
        let config = match clients {
            None => config.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(CertificateDer::from_pem_slice(&authority.pem()).unwrap()).unwrap();
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                config.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let mut config = config.with_single_cert(vec![certificate], key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    }
}

/// Makes `file.pem` and `file.key`.
fn openssl(folder: &Path, file: &str, name: &str, more: &[&str]) {
    #[expect(clippy::disallowed_methods, reason = "a certificate for the test")]
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-days", "2", "-subj", &format!("/CN={name}")])
        .args(["-keyout", &format!("{file}.key"), "-out", &format!("{file}.pem")])
        .args(more)
        .current_dir(folder)
        .output()
        .expect("openssl is missing: apt-get install openssl");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// Speaks TLS and gives each connection away; its address.
async fn listen<S, F>(config: Arc<ServerConfig>, tasks: &Tasks, serve: S) -> String
where
    S: Fn(TlsStream<TcpStream>) -> F + Clone + Send + 'static,
    F: Future<Output = ()> + Send,
{
    let acceptor = TlsAcceptor::from(config);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let each = tasks.clone();
    tasks.spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (acceptor, serve) = (acceptor.clone(), serve.clone());
            each.spawn(async move {
                match acceptor.accept(client).into_fallible().await {
                    Ok(client) => serve(client).await,
                    Err((_, client)) => farewell(client).await,
                }
            });
        }
    });
    address
}

/// Lets the client read why it was refused: a socket closed with unread bytes in it would take that away from it.
async fn farewell(mut client: TcpStream) {
    let _ = client.shutdown().await;
    let mut rest = Vec::new();
    let _ = client.take(SEEN_MAX).read_to_end(&mut rest).await;
}

/// Takes TLS off in front of the real server; its address.
async fn terminator(config: Arc<ServerConfig>, namespace: &Namespace, tasks: &Tasks) -> String {
    let server = namespace.address.clone();
    let pass_on = move |mut client: TlsStream<TcpStream>| {
        let server = server.clone();
        async move {
            let mut server = TcpStream::connect(&server).await.unwrap();
            // Ends with either side; how is none of our concern.
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
        }
    };
    listen(config, tasks, pass_on).await
}

/// A namespace that the server knows by now.
async fn namespace() -> Namespace {
    let namespace = Namespace::create();
    eventually(PATIENCE, "the namespace", || async {
        Cluster::connect(&settings(&namespace, "client")).await.map_err(|error| error.to_string())
    })
    .await;
    namespace
}

fn with_tls(namespace: &Namespace, address: &str, tls: Tls) -> Settings {
    Settings { address: address.to_owned(), tls: Some(tls), ..settings(namespace, "client") }
}

async fn accepted(settings: &Settings) {
    let cluster = Cluster::connect(settings).await.unwrap();
    let described = cluster.describe(&[QUEUE.to_owned()]).await.unwrap();
    assert_eq!((described.namespace, described.namespace_is_active), (settings.namespace.clone(), true));
}

async fn refused(settings: &Settings) -> Error {
    let Err(error) = Cluster::connect(settings).await else { panic!("let in with {settings:?}") };
    let text = error.to_string();
    assert!(text.contains(&settings.address), "no address: {text}");
    assert!(!text.contains("::"), "a debugger's text: {text}");
    error
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_with_a_private_authority_is_trusted_only_if_that_is_said() {
    let (namespace, tasks) = (namespace().await, Tasks::new());
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let address = terminator(ours.server("IP:127.0.0.1", None), &namespace, &tasks).await;
    let trusting = |ca| with_tls(&namespace, &address, Tls { ca, identity: None, server_name: None });
    accepted(&trusting(Some(ours.pem()))).await;
    // None: whom the system trusts.
    for ca in [None, Some(other.pem())] {
        let error = refused(&trusting(ca)).await;
        assert_eq!((error.code(), error.class()), ("TEMPORAL_UNREACHABLE", ErrorClass::RetryableTransient));
        let text = error.to_string();
        assert!(text.contains("invalid peer certificate: UnknownIssuer"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_goes_by_the_server_name_if_there_is_one() {
    let (namespace, tasks, authority) = (namespace().await, Tasks::new(), Authority::new("ours"));
    let named = terminator(authority.server(&format!("DNS:{NAME}"), None), &namespace, &tasks).await;
    let with_name = |name: Option<&str>| {
        let server_name = name.map(str::to_owned);
        with_tls(&namespace, &named, Tls { ca: Some(authority.pem()), identity: None, server_name })
    };
    accepted(&with_name(Some(NAME))).await;
    for wrong in [None, Some("other.internal")] {
        let text = refused(&with_name(wrong)).await.to_string();
        assert!(text.contains("invalid peer certificate: certificate not valid for name"), "{text}");
        assert!(text.contains(NAME), "the name it has is not said: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_at_one_end_only_is_an_error_that_names_tls() {
    let (namespace, tasks, authority) = (namespace().await, Tasks::new(), Authority::new("ours"));
    let address = terminator(authority.server("IP:127.0.0.1", None), &namespace, &tasks).await;
    let ours = with_tls(&namespace, &namespace.address, Tls { ca: Some(authority.pem()), ..Tls::default() });
    let theirs = Settings { address, ..settings(&namespace, "client") };
    for settings in [ours, theirs] {
        let error = refused(&settings).await;
        assert_eq!(error.code(), "TEMPORAL_UNREACHABLE");
        assert!(error.to_string().contains("that TLS is set as it is on the cluster"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_with_a_client_certificate_lets_in_who_has_one() {
    let (namespace, tasks) = (namespace().await, Tasks::new());
    let (servers, clients, other) =
        (Authority::new("servers"), Authority::new("clients"), Authority::new("other"));
    let address = terminator(servers.server("IP:127.0.0.1", Some(&clients)), &namespace, &tasks).await;
    let with = |identity| {
        with_tls(&namespace, &address, Tls { ca: Some(servers.pem()), identity, server_name: None })
    };
    accepted(&with(Some(clients.sign("worker", "DNS:worker")))).await;
    let strange = Some(other.sign("worker", "DNS:worker"));
    let missing = "a cluster that wants a client certificate closes like this, and none is set";
    let untrusted = "a cluster that does not trust our client certificate closes like this";
    for (identity, hint) in [(None, missing), (strange, untrusted)] {
        let error = refused(&with(identity)).await;
        assert_eq!(error.code(), "TEMPORAL_UNREACHABLE");
        assert!(error.to_string().contains(hint), "{error}");
    }
}

/// A server that notes what it is told of who asks, and lets nobody in; its address.
async fn doorkeeper(config: Arc<ServerConfig>, tasks: &Tasks, told: Arc<Mutex<Vec<String>>>) -> String {
    let answer = move |request: Request<Incoming>| {
        let key = request.headers().get(AUTHORIZATION);
        let key = key.map_or("nothing", |key| key.to_str().unwrap()).to_owned();
        told.lock().unwrap().push(key);
        let answer = Response::builder().header(CONTENT_TYPE, "application/grpc");
        let answer = answer.header("grpc-status", "16").header("grpc-message", "Request unauthorized.");
        std::future::ready(Ok::<_, Infallible>(answer.body(String::new()).unwrap()))
    };
    let serve = move |client: TlsStream<TcpStream>| {
        let service = hyper::service::service_fn(answer.clone());
        async move {
            let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            // Ends when the client has gone.
            let _ = connection.serve_connection(TokioIo::new(client), service).await;
        }
    };
    listen(config, tasks, serve).await
}

fn with_key(address: &str, tls: Option<Tls>) -> Settings {
    Settings {
        address: address.to_owned(),
        namespace: "hosted".to_owned(),
        identity: "client".to_owned(),
        api_key: Some(Secret::new(API_KEY)),
        tls,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_carries_the_api_key_and_a_refusal_does_not_show_it() {
    let (tasks, authority, told) = (Tasks::new(), Authority::new("ours"), Arc::default());
    let address = doorkeeper(authority.server("IP:127.0.0.1", None), &tasks, Arc::clone(&told)).await;
    let settings = with_key(&address, Some(Tls { ca: Some(authority.pem()), ..Tls::default() }));
    let error = refused(&settings).await;
    let told = told.lock().unwrap().clone();
    assert!(!told.is_empty() && told.iter().all(|key| *key == format!("Bearer {API_KEY}")), "{told:?}");
    assert_eq!((error.code(), error.class()), ("TEMPORAL_REFUSED", ErrorClass::Fatal));
    let text = error.to_string();
    assert!(text.contains("Request unauthorized.") && text.contains("see the API key"), "{text}");
    for shown in [text, format!("{error:?}"), format!("{settings:?}")] {
        assert!(!shown.contains(API_KEY), "{shown}");
    }
}

/// A server that does not speak TLS; its address, and what the first connection brought.
async fn plain(tasks: &Tasks) -> (String, tokio::task::JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let seen = tasks.spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut seen = vec![0];
        client.read_exact(&mut seen).await.unwrap();
        // To a client that would speak first and is answered: the beginning of an HTTP/2 server.
        let _ = client.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await;
        let _ = client.shutdown().await;
        let _ = client.take(SEEN_MAX).read_to_end(&mut seen).await;
        seen
    });
    (address, seen)
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_on_with_an_api_key_even_if_nobody_said_so() {
    /// With which byte a client begins a TLS handshake.
    const HANDSHAKE: u8 = 0x16;
    let tasks = Tasks::new();
    let (address, seen) = plain(&tasks).await;
    let error = refused(&with_key(&address, None)).await;
    assert_eq!(error.code(), "TEMPORAL_UNREACHABLE");
    let seen = tokio::time::timeout(PATIENCE, seen).await.unwrap().unwrap();
    assert_eq!(seen.first(), Some(&HANDSHAKE), "{seen:?}");
    let text = String::from_utf8_lossy(&seen);
    assert!(!text.contains(API_KEY) && !text.contains("Bearer"), "{text}");

    let Err(error) = Cluster::connect(&with_key(&format!("http://{address}"), None)).await else {
        panic!("the key goes out in the clear");
    };
    assert_eq!(error.code(), "INVALID", "{error}");
    assert!(!error.to_string().contains(API_KEY), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_key_that_no_header_can_carry_is_refused_before_anybody_is_asked() {
    for key in [format!("{API_KEY}\n"), format!("{API_KEY}é"), String::new()] {
        let settings =
            Settings { api_key: Some(Secret::new(key)), ..with_key("127.0.0.1:1", Some(Tls::default())) };
        let Err(error) = Cluster::connect(&settings).await else { panic!("nobody is there") };
        assert_eq!((error.code(), error.class()), ("INVALID", ErrorClass::ValidationFailure), "{error}");
        assert!(error.to_string().contains("temporal.api_key"), "{error}");
        assert!(!error.to_string().contains(API_KEY), "{error}");
    }
}
