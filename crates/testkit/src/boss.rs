//! A real application that uses pg-boss, in Node.js, driven by the test. Its maintenance runs every second.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;

use crate::pgboss;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// An application with pg-boss. Ends with the value.
#[derive(Debug)]
pub struct Boss {
    pipes: Mutex<Pipes>,
    _child: Child,
}

#[derive(Debug)]
struct Pipes {
    requests: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    last: u64,
}

impl Boss {
    /// Starts it on a database; pg-boss makes its tables there.
    pub async fn start(url: &str) -> Self {
        Self::start_in(url, "pgboss").await
    }

    /// As [`Boss::start`], in a schema of another name.
    #[expect(clippy::disallowed_methods, reason = "a program that only tests start")]
    pub async fn start_in(url: &str, schema: &str) -> Self {
        let mut child = Command::new(pgboss::node())
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/boss.mjs"))
            .arg(pgboss::folder())
            .args([url, schema])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("node starts");
        let requests = child.stdin.take().expect("a pipe was asked for");
        let answers = BufReader::new(child.stdout.take().expect("a pipe was asked for")).lines();
        let boss = Self { pipes: Mutex::new(Pipes { requests, answers, last: 0 }), _child: child };
        boss.pipes.lock().await.answer(0).await.expect("pg-boss starts");
        boss
    }

    /// Calls a method of pg-boss; `args` is an array.
    pub async fn call(&self, call: &str, args: Value) -> Value {
        let mut pipes = self.pipes.lock().await;
        pipes.last += 1;
        let id = pipes.last;
        let line = format!("{}\n", json!({ "id": id, "call": call, "args": args }));
        pipes.requests.write_all(line.as_bytes()).await.expect("the application reads");
        match pipes.answer(id).await {
            Ok(answer) => answer,
            Err(error) => panic!("{call} of pg-boss failed: {error}"),
        }
    }

    /// Makes a queue.
    pub async fn create_queue(&self, queue: &str, options: Value) {
        self.call("createQueue", json!([queue, options])).await;
    }

    /// Sends a job; `None` when pg-boss refuses it as a duplicate.
    pub async fn send(&self, queue: &str, data: Value, options: Value) -> Option<String> {
        self.call("send", json!([queue, data, options])).await.as_str().map(str::to_owned)
    }

    /// A job as its application sees it.
    pub async fn job(&self, queue: &str, id: &str) -> Value {
        let found = self.call("findJobs", json!([queue, { "id": id }])).await;
        found.get(0).cloned().unwrap_or(Value::Null)
    }

    /// All jobs of a queue.
    pub async fn jobs(&self, queue: &str) -> Vec<Value> {
        self.call("findJobs", json!([queue])).await.as_array().cloned().unwrap_or_default()
    }
}

impl Pipes {
    async fn answer(&mut self, id: u64) -> Result<Value, String> {
        let line = tokio::time::timeout(PATIENCE, self.answers.next_line()).await;
        let line = line.expect("the application answers in time").expect("the pipe works");
        let line = line.expect("the application runs; its standard error says why not");
        let mut answer: Value = serde_json::from_str(&line).expect("the application speaks JSON");
        assert_eq!(answer["id"], id, "answers come in the order of the requests: {line}");
        match answer.get("error") {
            Some(error) => Err(error.as_str().unwrap_or_default().to_owned()),
            None => Ok(answer["ok"].take()),
        }
    }
}
