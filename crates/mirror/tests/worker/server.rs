//! A tiny HTTP server that answers everything the same way, or not at all.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

pub(crate) struct Server {
    pub(crate) url: String,
    heard: Arc<Mutex<String>>,
}

impl Server {
    /// Answers each request with this status line and these headers; with silence if there are none.
    pub(crate) fn start(answer: Option<&str>) -> Self {
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
                    Some(answer) => {
                        let _ = write!(
                            stream,
                            "HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                        );
                    }
                    None => silent.push(stream),
                }
            }
        });
        Self { url, heard }
    }

    pub(crate) fn heard(&self) -> String {
        self.heard.lock().unwrap().clone()
    }
}

fn head_of(stream: &mut TcpStream) -> String {
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

/// Processes of this machine that have `text` in their command line.
pub(crate) fn processes_with(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let bytes = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let shown = String::from_utf8_lossy(&bytes).replace('\0', " ");
        if shown.contains(text) {
            found.push(format!("{}: {shown}", entry.file_name().display()));
        }
    }
    found
}
