//! One request on a connection of its own, from the connect to the last byte.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// What is asked for.
pub(super) struct Target {
    path: String,
    /// JSON to send; without it, it is a GET.
    body: Option<&'static str>,
}

impl Target {
    pub(super) fn get(path: &str) -> Self {
        Self { path: path.to_owned(), body: None }
    }

    pub(super) fn post(path: &str, body: &'static str) -> Self {
        Self { path: path.to_owned(), body: Some(body) }
    }

    /// As it stands in the table.
    pub(super) fn name(&self) -> String {
        match self.body {
            None => self.path.clone(),
            Some(body) => format!("POST {} {}", self.path, body.get(..22).unwrap_or(body)),
        }
    }

    fn request(&self) -> String {
        let body = self.body.unwrap_or_default();
        let method = if self.body.is_some() { "POST" } else { "GET" };
        format!(
            "{method} {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.path,
            body.len()
        )
    }
}

/// How long it took.
pub(super) struct Asked {
    pub(super) ms: f64,
}

/// Asks; anything but 200 ends the benchmark.
pub(super) async fn ask(address: &str, target: &Target) -> Result<Asked> {
    let began = Instant::now();
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(target.request().as_bytes()).await?;
    let mut said = Vec::new();
    stream.read_to_end(&mut said).await?;
    let ms = began.elapsed().as_secs_f64() * 1e3;
    let head = said.split(|byte| *byte == b'\r').next().context("an empty answer")?;
    let head = String::from_utf8_lossy(head);
    ensure!(head.starts_with("HTTP/1.1 200"), "{}: {}", target.name(), String::from_utf8_lossy(&said));
    Ok(Asked { ms })
}
