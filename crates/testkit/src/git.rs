//! What tests with a real git share: which gits there are, scripts in their way, and servers that are of no use to them.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Every git that is there: the one on `PATH`, and those that `STARGATE_TEST_GITS` names, separated by colons.
pub fn programs() -> Vec<String> {
    let more = std::env::var("STARGATE_TEST_GITS").unwrap_or_default();
    let programs = std::iter::once("git").chain(more.split(':'));
    programs.filter(|program| !program.is_empty()).map(str::to_owned).collect()
}

/// Makes a shell script that can be run, and answers where it is.
pub fn executable(path: &Path, script: &str) -> PathBuf {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.to_owned()
}

/// Processes of this machine that have `text` in a file of theirs in `/proc`, as far as we may look: `cmdline`, `stat`.
pub fn processes_with(text: &str, file: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let bytes = std::fs::read(entry.path().join(file)).unwrap_or_default();
        let shown = String::from_utf8_lossy(&bytes).replace('\0', " ");
        if shown.contains(text) {
            found.push(format!("{}: {shown}", entry.file_name().display()));
        }
    }
    found
}

/// A server that answers each request in the same way, or not at all, and remembers what it was sent.
#[derive(Debug)]
pub struct Server {
    /// The URL of a repository there.
    pub url: String,
    heard: Arc<Mutex<String>>,
}

impl Server {
    /// Answers each request with this status line and these headers; with silence if there are none.
    pub fn start(answer: Option<&str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/x.git", listener.local_addr().unwrap());
        let heard = Arc::<Mutex<String>>::default();
        let (log, answer) = (Arc::clone(&heard), answer.map(str::to_owned));
        std::thread::spawn(move || {
            let mut silent = Vec::new();
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                log.lock().unwrap().push_str(&head_of(&mut stream));
                match &answer {
                    Some(answer) => send(&mut stream, answer),
                    None => silent.push(stream),
                }
            }
        });
        Self { url, heard }
    }

    /// What it was sent so far.
    pub fn heard(&self) -> String {
        self.heard.lock().unwrap().clone()
    }
}

/// Answers a request with a status line, headers, and nothing else.
pub fn send(stream: &mut TcpStream, answer: &str) {
    let text = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    // Whoever asked may have gone.
    let _ = stream.write_all(text.as_bytes());
}

/// The request line and the headers of a request.
pub fn head_of(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let mut buffer = [0; 1024];
    while !text.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(read) => text.extend_from_slice(&buffer[..read]),
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// A place to which the system lets nobody connect, and says nothing about it: its queue is full.
#[derive(Debug)]
pub struct Unreached {
    /// The URL of a repository there.
    pub url: String,
    _listener: TcpListener,
    _queue: Vec<TcpStream>,
}

impl Unreached {
    /// Fills a queue.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut queue = Vec::new();
        // Twice in a row, because a loaded machine may be slow once.
        let mut silent = 0;
        while silent < 2 {
            match TcpStream::connect_timeout(&address, Duration::from_millis(500)) {
                Ok(stream) => queue.push(stream),
                Err(_) => silent += 1,
            }
        }
        Self { url: format!("http://{address}/x.git"), _listener: listener, _queue: queue }
    }
}
