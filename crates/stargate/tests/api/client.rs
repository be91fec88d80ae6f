//! A node, and somebody who calls it.

use reqwest::{Client, Method};
use serde_json::Value;
use stargate_testkit::process::{Program, Running};

/// A node that runs, with what calls it.
pub(crate) struct Node {
    pub(crate) program: Program,
    pub(crate) running: Running,
    client: Client,
}

/// What it said.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) text: String,
}

impl Answer {
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        serde_json::from_str(&self.text).unwrap_or_default()
    }
}

impl Node {
    /// `stargate up` with this configuration; `prepare` puts more into its home.
    pub(crate) async fn up(toml: &str, prepare: impl FnOnce(&Program)) -> Self {
        let program = Program::new(env!("CARGO_BIN_EXE_stargate"));
        std::fs::write(program.home().join("stargate.toml"), toml).unwrap();
        prepare(&program);
        let mut running = program.start(&["up"]);
        running.ready().await;
        Self { program, running, client: Client::new() }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}/api/v1{path}", self.running.address())
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(self.client.get(self.url(path))).await
    }

    pub(crate) async fn call(&self, method: Method, path: &str, body: Value) -> Answer {
        let request = self.client.request(method, self.url(path));
        let request = match body.is_null() {
            true => request,
            false => request.header("content-type", "application/json").body(body.to_string()),
        };
        self.send(request).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.call(Method::POST, path, body).await
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Answer {
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        Answer { status, text: response.text().await.unwrap() }
    }
}
