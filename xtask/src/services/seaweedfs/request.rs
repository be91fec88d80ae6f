//! One signed request to an S3 server: enough to see that it takes an object with our key.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

use crate::process;

const REGION: &str = "us-east-1";
const SIGNED: &str = "host;x-amz-content-sha256;x-amz-date";
const PATIENCE: Duration = Duration::from_secs(10);

/// Where the server is, and who we are to it.
pub(super) struct Server {
    pub(super) port: u16,
    pub(super) key: &'static str,
    pub(super) secret: &'static str,
}

impl Server {
    /// Puts a body at a path of plain characters; the status of the answer.
    pub(super) fn put(&self, path: &str, body: &[u8]) -> Result<u16> {
        let now = process::output(process::command("date").args(["-u", "+%Y%m%dT%H%M%SZ"]))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE).context("cannot connect")?;
        stream.set_read_timeout(Some(PATIENCE)).context("cannot set a time limit")?;
        stream.set_write_timeout(Some(PATIENCE)).context("cannot set a time limit")?;
        let head = self.head(path, body, now.trim());
        stream.write_all(&[head.as_bytes(), body].concat()).context("cannot ask")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).context("no answer")?;
        let answer = String::from_utf8_lossy(&answer);
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        status.context("the answer is not HTTP")
    }

    fn head(&self, path: &str, body: &[u8], now: &str) -> String {
        let host = format!("127.0.0.1:{}", self.port);
        let digest = hex(&Sha256::digest(body));
        let scope = format!("{}/{REGION}/s3/aws4_request", &now[..8.min(now.len())]);
        let headers = format!("host:{host}\nx-amz-content-sha256:{digest}\nx-amz-date:{now}\n");
        let request = format!("PUT\n{path}\n\n{headers}\n{SIGNED}\n{digest}");
        let signature = self.signature(&scope, now, &request);
        format!(
            "PUT {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {}\r\n\
             X-Amz-Date: {now}\r\nX-Amz-Content-Sha256: {digest}\r\n\
             Authorization: AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={SIGNED}, Signature={signature}\r\n\r\n",
            body.len(),
            self.key,
        )
    }

    fn signature(&self, scope: &str, now: &str, request: &str) -> String {
        let key = format!("AWS4{}", self.secret).into_bytes();
        let key = scope.split('/').fold(key, |key, part| mac(&key, part));
        let text = format!("AWS4-HMAC-SHA256\n{now}\n{scope}\n{}", hex(&Sha256::digest(request)));
        hex(&mac(&key, &text))
    }
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
