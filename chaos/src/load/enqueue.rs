//! Producers: over HTTP, by the command line, by SQL.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use rand::RngExt as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_postgres::NoTls;

use super::Shift;
use crate::ledger::{Answer, Line, now_micros};

/// Longer than any fault lasts, so that most answers come.
const PATIENCE: Duration = Duration::from_secs(8);
const TRIES: u32 = 6;

/// A job to be asked for.
struct Wish {
    mark: String,
    kind: &'static str,
    payload: Value,
    delay_ms: u64,
}

impl Shift {
    fn wish(&self, prefix: &str, number: u64, rng: &mut StdRng) -> Wish {
        let mark = format!("{prefix}{number}");
        let kind = match rng.random_range(0..100_u32) {
            0..70 => "step",
            70..82 => "long",
            82..90 => "fails",
            90..96 => "refused",
            _ => "clip",
        };
        let payload = if kind == "clip" {
            // Its payload has no room for a mark; the instant at which the clip ends is one.
            json!({ "source": self.site.outside("talk.mp4"), "start": 0.5, "end": format!("1.5{}", mark_digits(&mark)) })
        } else {
            json!({ "mark": mark })
        };
        let delay_ms = if rng.random_bool(0.1) { rng.random_range(100..3000) } else { 0 };
        Wish { mark, kind, payload, delay_ms }
    }

    fn asked(&self, wish: &Wish) -> Result<()> {
        self.site.ledger.write(&Line::Asked { mark: wish.mark.clone(), kind: wish.kind.to_owned() })
    }

    fn acknowledged(&self, wish: &Wish, id: i64, via: &str, answer: Option<Answer>) -> Result<()> {
        let (mark, via) = (wish.mark.clone(), via.to_owned());
        self.site.ledger.write(&Line::Job { mark, id, via, answer })
    }

    fn refused(&self) {
        self.counts.refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// Digits behind the decimal point that no other mark has: who asks, then the number.
pub(crate) fn mark_digits(mark: &str) -> String {
    let bytes = mark.as_bytes();
    let who = bytes.first().map_or(0, |first| first - b'a');
    format!("{who:02}{:0>6}", mark.get(1..).unwrap_or_default())
}

/// With a key, so that a request of which nobody knows is repeated and must make one job.
pub(super) async fn over_http(shift: Shift, prefix: &'static str, mut rng: StdRng) -> Result<()> {
    let client = reqwest::Client::builder().timeout(PATIENCE).build()?;
    for number in 0.. {
        if !shift.goes_on() {
            break;
        }
        let wish = shift.wish(prefix, number, &mut rng);
        shift.asked(&wish)?;
        let mut again = false;
        for attempt in 0..TRIES {
            let nodes = shift.site.crew().nodes();
            let at = (number as usize + attempt as usize) % nodes.len().max(1);
            let Some(node) = nodes.get(at) else { continue };
            let body =
                json!({ "kind": wish.kind, "payload": wish.payload, "delay": wish.delay_ms as f64 / 1000.0 });
            let request = client
                .post(format!("http://{}/api/v1/jobs", node.address))
                .header("Idempotency-Key", &wish.mark)
                .bearer_auth(&shift.site.secrets.token)
                .json(&body);
            let sent = now_micros()?;
            match reply(request).await {
                Reply::Accepted(id) => {
                    let answer = Answer { node: node.instance.clone(), sent, answered: now_micros()?, again };
                    shift.acknowledged(&wish, id, "http", Some(answer))?;
                    break;
                }
                Reply::Refused => {}
                Reply::Nothing => again = true,
            }
            shift.refused();
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
        tokio::time::sleep(Duration::from_millis(rng.random_range(10..120))).await;
    }
    Ok(())
}

/// What came of a request.
enum Reply {
    Accepted(i64),
    /// A node has said that it does not take it.
    Refused,
    /// Nobody knows.
    Nothing,
}

async fn reply(request: reqwest::RequestBuilder) -> Reply {
    let Ok(answer) = request.send().await else { return Reply::Nothing };
    let status = answer.status();
    let Ok(body) = answer.json::<Value>().await else { return Reply::Nothing };
    let not_leader = body["error"]["code"] == "NOT_LEADER";
    match body["id"].as_i64().filter(|_| status.is_success()) {
        Some(id) => Reply::Accepted(id),
        // Any other trouble may have come after it was written.
        None if status.is_client_error() || not_leader => Reply::Refused,
        None => Reply::Nothing,
    }
}

/// Once and without a key: a command that fails is not repeated, so there may be one job or none.
pub(super) async fn by_command(shift: Shift, mut rng: StdRng) -> Result<()> {
    for number in 0.. {
        if !shift.goes_on() {
            break;
        }
        let wish = shift.wish("c", number, &mut rng);
        shift.asked(&wish)?;
        let (site, payload, delay) =
            (shift.site.clone(), wish.payload.to_string(), format!("{}ms", wish.delay_ms));
        let kind = wish.kind;
        let run = move || site.program.run(&["job", "enqueue", kind, &payload, "--delay", &delay]);
        let output = tokio::task::spawn_blocking(run).await?;
        shift.site.overhear(&output)?;
        let id = String::from_utf8_lossy(&output.stdout).trim().parse().ok();
        match id.filter(|_| output.status.success()) {
            Some(id) => shift.acknowledged(&wish, id, "cli", None)?,
            None => shift.refused(),
        }
        tokio::time::sleep(Duration::from_millis(rng.random_range(50..300))).await;
    }
    Ok(())
}

/// As an application would, in a transaction of its own, over the same network as we, and each once.
pub(super) async fn by_sql(shift: Shift, mut rng: StdRng) -> Result<()> {
    let Some(servers) = &shift.site.servers else { return Ok(()) };
    let url = servers.postgres_url(&shift.site.secrets);
    let mut session = None;
    let mut number = 0;
    while shift.goes_on() {
        tokio::time::sleep(Duration::from_millis(rng.random_range(10..120))).await;
        if session.is_none() {
            let connecting = tokio::time::timeout(PATIENCE, tokio_postgres::connect(&url, NoTls)).await;
            let Ok(Ok((client, connection))) = connecting else { continue };
            let mut tasks = JoinSet::new();
            tasks.spawn(connection);
            session = Some((client, tasks));
        }
        let Some((client, _)) = &session else { continue };
        let wish = shift.wish("s", number, &mut rng);
        number += 1;
        shift.asked(&wish)?;
        let call =
            "select stargate.enqueue($1::text, $2::text::jsonb, delay => $3::bigint * interval '1 ms')";
        let (kind, payload, delay) = (wish.kind, wish.payload.to_string(), i64::try_from(wish.delay_ms)?);
        match tokio::time::timeout(PATIENCE, client.query_one(call, &[&kind, &payload, &delay])).await {
            Ok(Ok(row)) => shift.acknowledged(&wish, row.get(0), "sql", None)?,
            _ => {
                shift.refused();
                session = None;
            }
        }
    }
    Ok(())
}
