//! A running node, asked over HTTP.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use serde_json::Value;
use url::Url;

use crate::config::Settings;
use crate::failure::{Exit, Failure, Result, chain};

/// Never a flag: arguments are seen by everybody on this machine.
const TOKEN: &str = "STARGATE_TOKEN";
/// A node that takes no connection in this time is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Stepping down waits for the writes that are under way, and those may take as long as a request may.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(70);

/// A node and how to reach it.
pub(crate) struct Node {
    url: Url,
    client: reqwest::Client,
}

/// What a node said.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl Answer {
    /// A text of the body.
    pub(crate) fn text(&self, pointer: &str) -> Option<&str> {
        self.body.pointer(pointer).and_then(Value::as_str)
    }
}

impl Node {
    /// The node at a URL, or the one that this configuration describes.
    pub(crate) fn new(url: Option<&Url>, settings: &Settings) -> Result<Self> {
        let url = match url {
            Some(url) => url.clone(),
            None => Url::parse(&format!("http://{}", settings.api_listen))
                .map_err(|error| Failure::config(format!("api.listen: {error}")))?,
        };
        Self::at_url(url)
    }

    /// The node at a URL. What is asked of it carries the token in `STARGATE_TOKEN`, if there is one.
    pub(crate) fn at_url(url: Url) -> Result<Self> {
        let mut headers = HeaderMap::new();
        if let Some(token) = std::env::var(TOKEN).ok().filter(|token| !token.is_empty()) {
            let value = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
            let mut value = value.map_err(|_| Failure::config(format!("{TOKEN} is not a token")))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let mut client = reqwest::Client::builder();
        if url.scheme() == "http" {
            // Hooks ask at every push, and reading the system's certificates takes longer than the question.
            client = client.tls_certs_only([]);
        }
        let client = client
            .default_headers(headers)
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(ANSWER_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(|error| Failure::input(chain(&error)))?;
        Ok(Self { url, client })
    }

    /// Asks; an answer that is no JSON has an empty body here.
    pub(crate) async fn get(&self, path: &str) -> Result<Answer> {
        self.send(self.client.get(self.at(path)?)).await
    }

    /// Has something done.
    pub(crate) async fn post(&self, path: &str) -> Result<Answer> {
        self.send(self.client.post(self.at(path)?)).await
    }

    fn at(&self, path: &str) -> Result<Url> {
        self.url.join(path).map_err(|error| Failure::input(format!("--url {self}: {error}")))
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<Answer> {
        let unreachable = |error: reqwest::Error| {
            let problem = cause(&error);
            Failure::new(Exit::Input, "IO", format!("no answer from {self}: {problem}"))
                .help("is the node running? name another one with --url http://HOST:PORT")
        };
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status().as_u16();
        let body = response.bytes().await.map_err(unreachable)?;
        let answer = Answer { status, body: serde_json::from_slice(&body).unwrap_or(Value::Null) };
        match status {
            401 | 403 => Err(self.not_let_in(&answer)),
            _ => Ok(answer),
        }
    }

    fn not_let_in(&self, answer: &Answer) -> Failure {
        let code = answer.text("/error/code").unwrap_or("UNAUTHENTICATED");
        let said = answer.text("/error/message").unwrap_or("a token is needed");
        Failure::new(Exit::Input, code, format!("{self} answers {}: {said}", answer.status))
            .help(format!("put a token with the right role into {TOKEN}; 'stargate token add' makes one"))
    }
}

impl std::fmt::Display for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.url.as_str().trim_end_matches('/'))
    }
}

/// The last cause: those before it repeat what was tried.
fn cause(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), cause)
}

/// Reads the URL of a node. One with a password is refused: it would be seen in the list of processes.
pub(crate) fn parse_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let url = url.filter(Url::has_host).ok_or("not http://HOST:PORT or https://HOST:PORT")?;
    match url.username().is_empty() && url.password().is_none() {
        true => Ok(url),
        false => Err("a user or password in a URL is seen by everybody on this machine".to_owned()),
    }
}
