//! Real servers on local addresses.

use std::net::Ipv4Addr;

use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// Stands for a host of the internet.
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const BYTES_MAX: u64 = 1 << 20;

fn fetcher(reach: Reach) -> Fetcher {
    Fetcher::new(reach, Duration::from_millis(500)).unwrap()
}

fn outside() -> Fetcher {
    fetcher(Reach::Pretend(OUTSIDE.into()))
}

struct Server {
    listener: TcpListener,
}

impl Server {
    async fn start(address: Ipv4Addr) -> Self {
        Self { listener: TcpListener::bind((address, 0)).await.unwrap() }
    }

    fn url(&self, path: &str) -> Url {
        Url::parse(&format!("http://{}{path}", self.listener.local_addr().unwrap())).unwrap()
    }

    /// The next connection, and what it asked for.
    async fn accept(&self) -> (TcpStream, String) {
        let (mut stream, _) = self.listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(stream.read_u8().await.unwrap());
        }
        (stream, String::from_utf8(request).unwrap())
    }

    /// Answers each connection with the text for its path, then closes it.
    async fn serve(&self, answer: impl Fn(&str) -> String) -> std::convert::Infallible {
        loop {
            let (mut stream, request) = self.accept().await;
            let path = request.split(' ').nth(1).unwrap();
            // The client may have left.
            let _ = stream.write_all(answer(path).as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    }

    async fn fetch(
        &self,
        fetcher: &Fetcher,
        path: &str,
        answer: impl Fn(&str) -> String,
    ) -> (Result<u64, FetchError>, Option<Vec<u8>>) {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("file");
        let url = self.url(path);
        let fetched = tokio::select! {
            fetched = fetcher.fetch(&url, &to, BYTES_MAX) => fetched,
            never = self.serve(answer) => match never {},
        };
        (fetched, std::fs::read(to).ok())
    }
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn redirect(to: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nconnection: close\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n")
}

#[tokio::test]
async fn a_file_is_downloaded_through_redirects() {
    let server = Server::start(OUTSIDE).await;
    let (fetched, file) = server
        .fetch(&outside(), "/a?token=1", |path| match path {
            "/a?token=1" => redirect("b"),
            "/b" => redirect("/c/d"),
            "/c/d" => ok("hello"),
            other => panic!("{other}"),
        })
        .await;
    assert_eq!(fetched.unwrap(), 5);
    assert_eq!(file.unwrap(), b"hello");
}

#[tokio::test]
async fn a_redirect_to_a_private_address_is_blocked_before_it_is_contacted() {
    let inside = Server::start(Ipv4Addr::LOCALHOST).await;
    let server = Server::start(OUTSIDE).await;
    let port = inside.listener.local_addr().unwrap().port();
    for target in [
        format!("http://127.0.0.1:{port}/"),
        format!("http://localhost:{port}/"),
        format!("//2130706433:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
    ] {
        let (fetched, file) = server.fetch(&outside(), "/", |_| redirect(&target)).await;
        assert!(matches!(fetched, Err(FetchError::Blocked)), "{target}: {fetched:?}");
        assert_eq!(file, None);
    }
    let contacted = tokio::time::timeout(Duration::ZERO, inside.listener.accept()).await;
    assert!(contacted.is_err(), "the private server was contacted");
}

#[tokio::test]
async fn private_addresses_are_blocked_in_every_spelling() {
    let dir = tempfile::tempdir().unwrap();
    let fetcher = fetcher(Reach::Public);
    for host in [
        "127.0.0.1",
        "127.1",
        "0177.0.0.1",
        "0x7f.0.0.1",
        "0x7f000001",
        "2130706433",
        "127.0.0.1.",
        "１２７.0.0.1",
        "0",
        "10.0.0.1",
        "169.254.169.254",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:ffff:7f00:1]",
        "[64:ff9b::127.0.0.1]",
        "[2002:7f00:1::]",
        "[fe80::1]",
        "[fd00::1]",
        "localhost",
        "LOCALHOST",
        "user@localhost",
        "1.1.1.1@127.0.0.1",
    ] {
        let url = Url::parse(&format!("http://{host}:9/file")).unwrap();
        let fetched = fetcher.fetch(&url, &dir.path().join("file"), BYTES_MAX).await;
        assert!(matches!(fetched, Err(FetchError::Blocked)), "{host}: {fetched:?}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn private_addresses_can_be_allowed() {
    let server = Server::start(Ipv4Addr::LOCALHOST).await;
    let (fetched, _) = server.fetch(&fetcher(Reach::Any), "/", |_| ok("hello")).await;
    assert_eq!(fetched.unwrap(), 5);
}

#[tokio::test]
async fn redirects_end_and_lead_to_http_only() {
    let server = Server::start(OUTSIDE).await;
    let (fetched, _) = server.fetch(&outside(), "/", |_| redirect("/")).await;
    assert!(matches!(fetched, Err(FetchError::Redirects)), "{fetched:?}");
    for target in ["file:///etc/passwd", "ftp://example.com/", "gopher://127.0.0.1/"] {
        let (fetched, _) = server.fetch(&outside(), "/", |_| redirect(target)).await;
        assert!(matches!(fetched, Err(FetchError::Scheme { .. })), "{target}: {fetched:?}");
    }
    let nowhere = "HTTP/1.1 302 Found\r\ncontent-length: 0\r\n\r\n";
    let (fetched, _) = server.fetch(&outside(), "/", |_| nowhere.to_owned()).await;
    assert!(matches!(fetched, Err(FetchError::Redirects)), "{fetched:?}");
}

#[tokio::test]
async fn answers_are_told_apart() {
    let server = Server::start(OUTSIDE).await;
    for (status, expected) in [
        ("404 Not Found", "Absent"),
        ("410 Gone", "Absent"),
        ("401 Unauthorized", "Refused"),
        ("403 Forbidden", "Refused"),
        ("304 Not Modified", "Refused"),
        ("408 Request Timeout", "Busy"),
        ("429 Too Many", "Busy"),
        ("500 Broken", "Busy"),
        ("503 Busy", "Busy"),
    ] {
        let answer = format!("HTTP/1.1 {status}\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n");
        let (fetched, file) = server.fetch(&outside(), "/", |_| answer.clone()).await;
        let error = fetched.unwrap_err();
        assert!(format!("{error:?}").starts_with(expected), "{status}: {error:?}");
        if let FetchError::Busy { retry_after, .. } = error {
            assert_eq!(retry_after, Some(Duration::from_secs(7)));
        }
        assert_eq!(file, None);
    }
}

#[tokio::test]
async fn what_is_too_large_is_refused_and_not_kept() {
    let server = Server::start(OUTSIDE).await;
    let announced = "HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\nx".to_owned();
    let (fetched, file) = server.fetch(&outside(), "/", |_| announced.clone()).await;
    assert!(matches!(fetched, Err(FetchError::TooLarge { .. })), "{fetched:?}");
    assert_eq!(file, None);
    let unannounced = format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{}", "x".repeat(2 << 20));
    let (fetched, file) = server.fetch(&outside(), "/", |_| unannounced.clone()).await;
    assert!(matches!(fetched, Err(FetchError::TooLarge { .. })), "{fetched:?}");
    assert_eq!(file, None);
}

#[tokio::test]
async fn a_download_that_breaks_off_or_falls_silent_leaves_nothing() {
    let server = Server::start(OUTSIDE).await;
    let broken = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nonly this".to_owned();
    let (fetched, file) = server.fetch(&outside(), "/", |_| broken.clone()).await;
    assert!(matches!(fetched, Err(FetchError::Network { .. })), "{fetched:?}");
    assert_eq!(file, None);

    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("file");
    let silent = async {
        let (mut stream, _) = server.accept().await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhello").await.unwrap();
        std::future::pending::<()>().await;
    };
    let (fetcher, url) = (outside(), server.url("/secret?token=hidden"));
    let fetched = tokio::select! {
        fetched = fetcher.fetch(&url, &to, BYTES_MAX) => fetched,
        () = silent => unreachable!(),
    };
    let error = fetched.unwrap_err().to_string();
    assert!(error.contains("in time") && !error.contains("hidden"), "{error}");
    assert!(!to.exists());
}

#[tokio::test]
async fn a_dropped_download_leaves_nothing() {
    let server = Server::start(OUTSIDE).await;
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("file");
    let half = async {
        let (mut stream, _) = server.accept().await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhello").await.unwrap();
        while !to.exists() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        stream
    };
    let (fetcher, url) = (outside(), server.url("/"));
    tokio::select! {
        fetched = fetcher.fetch(&url, &to, BYTES_MAX) => panic!("{fetched:?}"),
        _ = half => {}
    }
    assert!(!to.exists());
}

#[tokio::test]
async fn a_server_that_is_not_there_is_network_trouble() {
    let server = Server::start(OUTSIDE).await;
    let url = server.url("/a?token=hidden");
    drop(server);
    let dir = tempfile::tempdir().unwrap();
    let error = outside().fetch(&url, &dir.path().join("file"), BYTES_MAX).await.unwrap_err();
    assert!(matches!(error, FetchError::Network { .. }), "{error:?}");
    assert!(!error.to_string().contains("hidden"), "{error}");
}
