//! In place of a collector: takes what is sent by OTLP over HTTP, and decodes it.

use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message as _;
use stargate_testkit::eventually;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::PATIENCE;

/// A span as tests look at it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) name: String,
    pub(crate) kind: i32,
    pub(crate) trace: String,
    pub(crate) span: String,
    pub(crate) parent: String,
    /// 2 is an error.
    pub(crate) status: i32,
    pub(crate) attributes: Vec<(String, String)>,
    /// Of the process that sent it.
    pub(crate) resource: Vec<(String, String)>,
}

impl Seen {
    pub(crate) fn attribute(&self, name: &str) -> &str {
        let found = self.attributes.iter().find(|(there, _)| there == name);
        &found.unwrap_or_else(|| panic!("no {name} in {self:?}")).1
    }
}

#[derive(Debug, Default)]
struct Heard {
    spans: Vec<Seen>,
    /// Everything, as it came.
    bytes: Vec<u8>,
    heads: Vec<String>,
}

/// A collector that takes everything.
#[derive(Debug)]
pub(crate) struct Collector {
    pub(crate) endpoint: String,
    heard: Arc<Mutex<Heard>>,
}

impl Collector {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let heard = Arc::new(Mutex::new(Heard::default()));
        let shared = Arc::clone(&heard);
        #[expect(clippy::disallowed_methods, reason = "ends with the runtime of the test")]
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Self { endpoint, heard }
    }

    /// Waits for the spans of a name.
    pub(crate) async fn spans(&self, name: &str, count: usize) -> Vec<Seen> {
        eventually(PATIENCE, &format!("{count} spans {name:?}"), || async {
            let all = self.all();
            let found: Vec<Seen> = all.iter().filter(|span| span.name == name).cloned().collect();
            if found.len() >= count { Ok(found) } else { Err(format!("there are {all:?}")) }
        })
        .await
    }

    pub(crate) fn all(&self) -> Vec<Seen> {
        self.heard.lock().unwrap().spans.clone()
    }

    /// Whether a text was in anything that came, as the body of a request.
    pub(crate) fn was_told(&self, text: &str) -> bool {
        let heard = self.heard.lock().unwrap();
        heard.bytes.windows(text.len()).any(|part| part == text.as_bytes())
    }

    /// The heads of the requests.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heard.lock().unwrap().heads.clone()
    }
}

async fn serve(stream: TcpStream, heard: Arc<Mutex<Heard>>) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).await.is_ok_and(|count| count == 0) {
                return;
            }
        }
        let length = head.to_lowercase().split("content-length: ").nth(1).map(|rest| {
            rest.split("\r\n").next().unwrap_or_default().trim().parse::<usize>().unwrap_or_default()
        });
        let mut body = vec![0; length.unwrap_or_default()];
        stream.read_exact(&mut body).await.unwrap();
        let request = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
        {
            let mut heard = heard.lock().unwrap();
            heard.spans.extend(seen(request));
            heard.bytes.extend(body);
            heard.heads.push(head);
        }
        let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
        stream.get_mut().write_all(answer.as_bytes()).await.unwrap();
    }
}

fn seen(request: ExportTraceServiceRequest) -> Vec<Seen> {
    let mut spans = Vec::new();
    for of_process in request.resource_spans {
        let resource = pairs(of_process.resource.map(|resource| resource.attributes).unwrap_or_default());
        for span in of_process.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            spans.push(Seen {
                name: span.name,
                kind: span.kind,
                trace: hex(&span.trace_id),
                span: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                status: span.status.map(|status| status.code).unwrap_or_default(),
                attributes: pairs(span.attributes),
                resource: resource.clone(),
            });
        }
    }
    spans
}

fn pairs(attributes: Vec<opentelemetry_proto::tonic::common::v1::KeyValue>) -> Vec<(String, String)> {
    let text = |value: Option<Value>| match value {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    attributes.into_iter().map(|pair| (pair.key, text(pair.value.and_then(|value| value.value)))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
