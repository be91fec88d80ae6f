//! A running node, asked over HTTP.

use std::path::Path;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use stargate_base::{Secret, chain};
use url::Url;

use crate::config::Settings;
use crate::failure::{Exit, Failure, Result};

/// Never a flag: arguments are seen by everybody on this machine.
const TOKEN: &str = "STARGATE_TOKEN";
/// For systems that hand secrets out as files.
const TOKEN_FILE: &str = "STARGATE_TOKEN_FILE";
/// Where a node tells who leads.
const LEADER: &str = "x-stargate-leader";
/// A node that takes no connection in this time is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Stepping down waits for the writes that are under way, and those may take as long as a request may.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(70);
/// The largest answer that is read: a hundred jobs with the largest payload and result.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// The longest token file that is read. A token has some sixty characters.
const TOKEN_BYTES_MAX: u64 = 4096;

/// A node and how to reach it.
pub(crate) struct Node {
    url: Url,
    client: reqwest::Client,
    has_token: bool,
}

/// What a node said.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// As JSON; null if it was none.
    pub(crate) body: Value,
    /// As it came, for what must not lose a digit.
    bytes: Vec<u8>,
    retry_after_sec: Option<u64>,
    leader: Option<String>,
}

impl Answer {
    /// A text of the body.
    pub(crate) fn text(&self, pointer: &str) -> Option<&str> {
        self.body.pointer(pointer).and_then(Value::as_str)
    }

    /// The answer as text.
    pub(crate) fn plain(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

impl Node {
    /// The node that this configuration describes, with the token of the environment.
    pub(crate) fn of(settings: &Settings) -> Result<Self> {
        Self::at_url(local(settings)?)
    }

    /// The node at a URL, with the token of the environment.
    pub(crate) fn at_url(url: Url) -> Result<Self> {
        Self::with_token(url, token(None)?.as_ref())
    }

    /// The node at a URL. What is asked of it carries the token.
    pub(crate) fn with_token(url: Url, token: Option<&Secret>) -> Result<Self> {
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            let value = HeaderValue::from_str(&format!("Bearer {}", token.reveal()));
            let mut value = value.map_err(|_| Failure::config("what was given as token is none"))?;
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
            // A redirect could carry the token to a server that nobody named.
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(|error| Failure::input(chain(&error)))?;
        Ok(Self { url, client, has_token: token.is_some() })
    }

    /// Asks; whatever the node answers is an answer, except that it does not know us.
    pub(crate) async fn get(&self, path: &str) -> Result<Answer> {
        let answer = self.send(self.client.get(self.at(path)), false).await?;
        self.let_in(answer)
    }

    /// Has something done; whatever the node answers is an answer, except that it does not know us.
    pub(crate) async fn post(&self, path: &str) -> Result<Answer> {
        let answer = self.send(self.client.post(self.at(path)), true).await?;
        self.let_in(answer)
    }

    /// Reads from the API. `path` is that below `/api/v1`, in its parts.
    pub(crate) async fn read<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, String)],
    ) -> Result<T> {
        let answer = self.send(self.client.get(self.api(path, query)), false).await?;
        self.parsed(answer)
    }

    /// Has the API change something.
    pub(crate) async fn change<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        body: Option<&(impl Serialize + ?Sized)>,
    ) -> Result<T> {
        let mut request = self.client.request(method, self.api(path, &[]));
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = self.send(request, true).await?;
        self.parsed(answer)
    }

    /// As `change`, with a key under which it is done once however often it is sent. An answer that was lost is therefore
    /// asked for again.
    pub(crate) async fn change_once<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &impl Serialize,
        key: &str,
    ) -> Result<T> {
        let send = || {
            let request = self.client.post(self.api(path, &[])).header("idempotency-key", key);
            self.send(request.json(body), true)
        };
        let answer = match send().await {
            Err(failure) if failure.code == "OUTCOME_UNKNOWN" => send().await?,
            first => first?,
        };
        self.parsed(answer)
    }

    /// Hands something over that whoever hands it over can do as well: why it was not done, or whether, is of no use to it.
    pub(crate) async fn hand_over(&self, path: &str, report: &impl Serialize) -> Result<()> {
        let answer = self.send(self.client.post(self.at(path)).json(report), true).await?;
        // Nothing else will do: by now another program may listen there.
        if answer.status == 204 { Ok(()) } else { Err(self.refused(&answer)) }
    }

    /// The URL of something below the node's own.
    fn at(&self, path: &str) -> Url {
        let mut url = self.url.clone();
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        url.set_path(&format!("{}{path}", self.url.path().trim_end_matches('/')));
        url.set_query(query);
        url
    }

    fn api(&self, path: &[&str], query: &[(&str, String)]) -> Url {
        let mut url = self.at("/api/v1");
        // Names of queues may have slashes, which are no separators.
        if let Ok(mut parts) = url.path_segments_mut() {
            parts.extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    async fn send(&self, request: RequestBuilder, changes: bool) -> Result<Answer> {
        let lost = |error: reqwest::Error| {
            let (known, problem) = (error.is_connect() || error.is_builder(), cause(&error));
            match changes && !known {
                true => self.unknown(&problem),
                false => self.silent(&problem),
            }
        };
        let response = request.send().await.map_err(lost)?;
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let (leader, status) = (header(LEADER).map(str::to_owned), response.status().as_u16());
        let retry_after_sec = header(RETRY_AFTER.as_str()).and_then(|text| text.parse().ok());
        let bytes = self.body(response, lost).await?;
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Ok(Answer { status, body, bytes, retry_after_sec, leader })
    }

    async fn body(
        &self,
        mut response: Response,
        lost: impl Fn(reqwest::Error) -> Failure,
    ) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(&lost)? {
            if bytes.len() + chunk.len() > ANSWER_BYTES_MAX {
                let message = format!("{self} answers with more than {} MiB", ANSWER_BYTES_MAX >> 20);
                return Err(Failure::input(message).help("ask for less at once, e.g. with --limit"));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    fn silent(&self, problem: &str) -> Failure {
        Failure::new(Exit::Input, "IO", format!("no answer from {self}: {problem}"))
            .help("is the node running? name another one with --url http://HOST:PORT")
    }

    fn unknown(&self, problem: &str) -> Failure {
        let message = format!("{self} was asked and did not answer, so it may be done or not: {problem}");
        Failure::new(Exit::Input, "OUTCOME_UNKNOWN", message).help("look before you repeat it")
    }

    fn let_in(&self, answer: Answer) -> Result<Answer> {
        match answer.status {
            401 | 403 => Err(self.not_let_in(&answer)),
            _ => Ok(answer),
        }
    }

    fn parsed<T: DeserializeOwned>(&self, answer: Answer) -> Result<T> {
        if !answer.is_success() {
            return Err(self.refused(&answer));
        }
        serde_json::from_slice(&answer.bytes).map_err(|error| {
            Failure::input(format!("{self} answers what this program does not understand: {error}"))
                .help("is it a stargate of the same version?")
        })
    }

    fn not_let_in(&self, answer: &Answer) -> Failure {
        let code = answer.text("/error/code").unwrap_or("UNAUTHENTICATED");
        let said = answer.text("/error/message").unwrap_or("a token is needed");
        let failure = Failure::new(Exit::Input, code, format!("{self} answers {}: {said}", answer.status));
        match (answer.status, self.has_token) {
            (403, _) if code != "FORBIDDEN" => failure,
            (403, true) => failure.help("use a token with a higher role; 'stargate token add' makes one"),
            (_, true) => failure
                .help("is it the right token, and the right node? 'stargate token list' there shows them"),
            (_, false) => failure.help(format!(
                "put a token with the right role into {TOKEN}, or name a file with --token-file; \
                 'stargate token add' makes one"
            )),
        }
    }

    /// What the node refused, as the same command would fail beside the store.
    pub(crate) fn refused(&self, answer: &Answer) -> Failure {
        let (status, code) = (answer.status, answer.text("/error/code").unwrap_or("IO"));
        let Some(said) = answer.text("/error/message") else {
            return Failure::new(Exit::Input, "IO", format!("{self} answers {status} and does not say why"))
                .help("is it a stargate, or something in front of one?");
        };
        let exit = match (code, status) {
            (_, 401 | 403) => return self.not_let_in(answer),
            // What axum itself says of a path that it does not know.
            ("NOT_FOUND", _) if said == "Not Found" => {
                return Failure::input(format!("{self} cannot do this: it does not know the route"))
                    .help("is it a stargate of the same version, with an API ('up' or 'serve')?");
            }
            (_, 404) => Exit::NotFound,
            ("NOT_LEADER", _) => Exit::NotLeader,
            (_, 409) => Exit::Conflict,
            (_, 429) => Exit::Failed,
            _ => Exit::Input,
        };
        let failure = Failure::new(exit, code, said);
        match help(code, answer) {
            Some(help) => failure.help(help),
            None => failure,
        }
    }
}

/// What to do next about a refusal.
fn help(code: &str, answer: &Answer) -> Option<String> {
    let request = answer.text("/error/request_id");
    match (code, answer.status) {
        ("NOT_LEADER", _) => Some(match &answer.leader {
            Some(leader) => format!("ask the leader: --url {leader}"),
            None => "'stargate leader status' tells which node leads".to_owned(),
        }),
        ("UNKNOWN_KIND", _) => Some("start the worker that serves it first".to_owned()),
        (_, 429 | 503) => answer.retry_after_sec.map(|seconds| format!("try again in {seconds} s")),
        (_, 500..) => request.map(|id| format!("the node's log tells why, at request_id {id}")),
        _ => None,
    }
}

/// The node that this configuration describes.
fn local(settings: &Settings) -> Result<Url> {
    Url::parse(&format!("http://{}", settings.api_listen))
        .map_err(|error| Failure::config(format!("api.listen: {error}")))
}

/// The token to present: of the file that was named, else of the environment, else of a file that the environment names.
pub(crate) fn token(file: Option<&Path>) -> Result<Option<Secret>> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(path) = file {
        return read_token(path).map(Some);
    }
    if let Some(text) = variable(TOKEN) {
        let text = text.into_string().map_err(|_| Failure::config(format!("{TOKEN} is not a token")))?;
        return Ok(Some(Secret::new(text.trim())));
    }
    variable(TOKEN_FILE).map(|path| read_token(Path::new(&path))).transpose()
}

fn read_token(path: &Path) -> Result<Secret> {
    use std::io::Read as _;
    let cannot =
        |error: std::io::Error| Failure::io(format!("cannot read the token in {}", path.display()), &error);
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(cannot)?;
    file.take(TOKEN_BYTES_MAX).read_to_string(&mut text).map_err(cannot)?;
    let text = text.trim();
    match text.is_empty() || text.contains(char::is_whitespace) {
        true => Err(Failure::input(format!("{} does not hold a token", path.display()))
            .help("'stargate token add NAME --role read > FILE' writes one")),
        false => Ok(Secret::new(text)),
    }
}

impl std::fmt::Display for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.url.as_str().trim_end_matches('/'))
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("url", &self.url.as_str()).finish_non_exhaustive()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn node(url: &str) -> Node {
        // As `main` does; a second choice is refused, harmlessly.
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        Node::with_token(parse_url(url).unwrap(), None).unwrap()
    }

    fn answer(status: u16, code: &str, message: &str) -> Answer {
        let body = serde_json::json!({ "error": { "code": code, "message": message, "request_id": "r1" } });
        let bytes = body.to_string().into_bytes();
        Answer { status, body, bytes, retry_after_sec: Some(3), leader: Some("http://b:1".to_owned()) }
    }

    #[test]
    fn a_node_below_a_path_is_asked_below_that_path_and_slashes_in_names_stay_in_the_name() {
        let node = node("https://ops.example/stargate/");
        assert_eq!(node.at("/healthz").as_str(), "https://ops.example/stargate/healthz");
        let url = node.api(&["queues", "a/b:c d", "pause"], &[("q", "x&y".to_owned())]);
        assert_eq!(url.as_str(), "https://ops.example/stargate/api/v1/queues/a%2Fb:c%20d/pause?q=x%26y");
    }

    #[test]
    fn refusals_have_the_exit_codes_of_local_commands() {
        let node = node("http://127.0.0.1:1");
        for (status, code, exit) in [
            (404, "NOT_FOUND", Exit::NotFound),
            (409, "WRONG_STATE", Exit::Conflict),
            (409, "IDEMPOTENCY_MISMATCH", Exit::Conflict),
            (422, "INVALID", Exit::Input),
            (429, "QUEUE_FULL", Exit::Failed),
            (503, "NOT_LEADER", Exit::NotLeader),
            (503, "STORE_UNAVAILABLE", Exit::Input),
            (403, "FORBIDDEN", Exit::Input),
        ] {
            let failure = node.refused(&answer(status, code, "no job 7"));
            assert_eq!((failure.exit, failure.code.as_str()), (exit, code));
        }
        let help = |status, code| node.refused(&answer(status, code, "x")).help.unwrap();
        assert_eq!(help(503, "NOT_LEADER"), "ask the leader: --url http://b:1");
        assert_eq!(help(429, "QUEUE_FULL"), "try again in 3 s");
        assert!(help(500, "INTERNAL").contains("r1"));
    }

    #[test]
    fn a_url_with_a_password_is_refused() {
        assert!(parse_url("http://me:secret@h:1").is_err());
        assert!(parse_url("ftp://h").is_err());
        assert!(parse_url("h:8080").is_err());
    }
}
