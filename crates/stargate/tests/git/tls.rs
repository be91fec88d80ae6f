//! HTTPS: a proxy in front speaks TLS, the node does not. Tokens and large packs pass both ways.

use std::io::Read as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use stargate_base::Tasks;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::client::Client;
use crate::{leader, program};

/// A key and a certificate for this machine.
fn certificate(dir: &Path) {
    #[expect(clippy::disallowed_methods, reason = "a certificate for the test")]
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-keyout", "key.pem", "-out", "cert.pem", "-days", "2", "-subj", "/CN=proxy"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1"])
        .current_dir(dir)
        .output()
        .expect("openssl is missing: apt-get install openssl");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// Takes TLS off in front of a node; its address.
async fn proxy(dir: &Path, node: &str, tasks: &Tasks) -> String {
    let certificate = CertificateDer::from_pem_file(dir.join("cert.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(dir.join("key.pem")).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (node, each) = (node.to_owned(), tasks.clone());
    tasks.spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (acceptor, node) = (acceptor.clone(), node.clone());
            each.spawn(async move {
                let Ok(mut client) = acceptor.accept(client).await else { return };
                let mut server = TcpStream::connect(&node).await.unwrap();
                // Ends with either side; a client that goes without a farewell is none of our concern.
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_push_and_clone_over_https_through_a_proxy() {
    let program = program("");
    let node = leader(&program, "a").await;
    program.answer(&["repo", "create", "r"]);
    let write = program.answer(&["token", "add", "ci", "--role", "write"]);
    certificate(program.home());
    let tasks = Tasks::new();
    let address = proxy(program.home(), node.address(), &tasks).await;
    let url = format!("https://{address}/git/r.git");
    let trust = program.home().join("cert.pem").display().to_string();
    let client = |token: &str| {
        let client = Client::with_token(token);
        client.start_at(&url);
        client.must(&["config", "http.sslCAInfo", &trust]);
        client
    };
    let pusher = client(&write);
    // Too large for one piece: git sends it in chunks, after it has tried whether it may.
    let mut random = vec![0; 24 << 20];
    std::fs::File::open("/dev/urandom").unwrap().read_exact(&mut random).unwrap();
    std::fs::write(pusher.dir().join("random"), &random).unwrap();
    pusher.must(&["add", "random"]);
    let commit = pusher.commit("large");
    pusher.must(&["push", "-q", "origin", "HEAD:main"]);

    let reader = client(&write);
    reader.must(&["fetch", "-q", "origin", "main"]);
    reader.must(&["reset", "-q", "--hard", "FETCH_HEAD"]);
    assert_eq!(reader.head(), commit);
    assert!(std::fs::read(reader.dir().join("random")).unwrap() == random, "another file came back");

    stargate_testkit::eventually(crate::PATIENCE, "the door to close", || async {
        let stranger = client("sg_nonsense");
        let output = stranger.git(&["ls-remote", "origin"]);
        if output.status.success() { Err("still open".to_owned()) } else { Ok(()) }
    })
    .await;
    let untrusting = Client::with_token(&write);
    untrusting.start_at(&url);
    assert!(untrusting.refused(&["ls-remote", "origin"]).contains("certificate"));
}
