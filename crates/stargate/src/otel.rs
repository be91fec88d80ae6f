//! Traces by OTLP: spans are gathered in the background and sent to a collector over HTTP.
//!
//! A collector that is away costs its spans and nothing else: what waits is bounded, what does not fit is dropped, and
//! no job or request waits for it. What is sent has names, ids, codes and times; never a payload.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry::trace::{
    Span as _, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags, TraceId,
    TraceState, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};
use stargate_base::chain;
use stargate_base::trace::{self, Kind, Span, Start, Value};
use tokio::runtime::Handle;

use crate::config::Settings;
use crate::config::otel::Otel;
use crate::failure::{Failure, Result};

/// How long one request to the collector may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long the end of a program waits for its last spans.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);
/// Spans that could not be delivered, by `reason`.
const FAILED: &str = "otel_exports_failed_total";

/// Gathers what was sent to it until [`flush`].
static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();

/// What this file records.
pub(crate) const CATALOGUE: &[(&str, stargate_queue::metrics::MetricKind, &str)] = &[(
    FAILED,
    stargate_queue::metrics::MetricKind::Counter,
    "Batches of spans that the collector did not take, by reason (unreachable, refused)",
)];

/// Has spans collected, if the settings name a collector.
pub(crate) fn install(settings: &Settings) -> Result<()> {
    let otel = &settings.otel;
    let Some(endpoint) = &otel.endpoint else { return Ok(()) };
    let client = Client::new()?;
    let exporter = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(endpoint.as_str())
        .with_headers(otel.headers())
        .with_timeout(TIMEOUT)
        .with_http_client(client)
        .build()
        .map_err(|error| Failure::config(format!("cannot send traces to {endpoint}: {}", chain(&error))))?;
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_sampler(sampler(otel))
        .with_resource(resource(settings))
        .build();
    let tracer = provider.tracer("stargate");
    if trace::install(Box::new(Tracer(tracer))) {
        drop(PROVIDER.set(provider));
        tracing::info!(endpoint, sample_ratio = otel.sample_ratio, "traces are sent");
    }
    Ok(())
}

/// Sends what is left. Called at the very end, outside of the runtime but while it lives.
pub(crate) fn flush() {
    if let Some(provider) = PROVIDER.get()
        && let Err(error) = provider.shutdown_with_timeout(FLUSH_TIMEOUT)
    {
        tracing::warn!(error = chain(&error), "the last spans were not delivered");
    }
}

/// What the collector says to nothing at all; for the doctor.
pub(crate) async fn probe(otel: &Otel) -> std::result::Result<(), String> {
    let Some(endpoint) = &otel.endpoint else { return Ok(()) };
    let client = Client::new().map_err(|failure| failure.message)?;
    let mut request = client.client.post(endpoint).header("content-type", "application/x-protobuf");
    for (name, value) in otel.headers() {
        request = request.header(name, value);
    }
    match request.send().await {
        Ok(answer) if answer.status().is_success() => Ok(()),
        Ok(answer) => Err(format!("answers {}", answer.status())),
        Err(error) => Err(chain(&error.without_url())),
    }
}

/// Whoever began a trace decides whether it is collected.
fn sampler(otel: &Otel) -> Sampler {
    Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(otel.sample_ratio)))
}

fn resource(settings: &Settings) -> Resource {
    let attributes = [
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("service.instance.id", settings.leader.instance.clone()),
    ];
    // Adds what OTEL_RESOURCE_ATTRIBUTES says.
    Resource::builder()
        .with_attributes(attributes)
        .with_service_name(settings.otel.service_name.clone())
        .build()
}

struct Tracer(SdkTracer);

impl trace::Tracer for Tracer {
    fn start(&self, Start { name, kind, parent, attributes }: Start) -> Box<dyn Span> {
        let builder = SpanBuilder::from_name(name).with_kind(span_kind(kind)).with_attributes(
            attributes.into_iter().map(|(name, value)| KeyValue::new(name, attribute(value))),
        );
        let root = Context::new();
        let context = parent.map_or(root.clone(), |parent| root.with_remote_span_context(remote(parent)));
        Box::new(Open(self.0.build_with_context(builder, &context)))
    }
}

struct Open(opentelemetry_sdk::trace::Span);

impl Span for Open {
    fn context(&self) -> trace::Context {
        let context = self.0.span_context();
        trace::Context {
            trace: u128::from_be_bytes(context.trace_id().to_bytes()),
            span: u64::from_be_bytes(context.span_id().to_bytes()),
            flags: context.trace_flags().to_u8(),
        }
    }

    fn attribute(&mut self, name: &'static str, value: Value) {
        self.0.set_attribute(KeyValue::new(name, attribute(value)));
    }

    fn failed(&mut self, code: &str) {
        self.0.set_attribute(KeyValue::new("error.type", code.to_owned()));
        self.0.set_status(Status::error(code.to_owned()));
    }
}

fn remote(parent: trace::Context) -> SpanContext {
    SpanContext::new(
        TraceId::from(parent.trace),
        SpanId::from(parent.span),
        TraceFlags::new(parent.flags),
        true,
        TraceState::default(),
    )
}

fn span_kind(kind: Kind) -> SpanKind {
    match kind {
        Kind::Server => SpanKind::Server,
        Kind::Producer => SpanKind::Producer,
        Kind::Consumer => SpanKind::Consumer,
    }
}

fn attribute(value: Value) -> opentelemetry::Value {
    match value {
        Value::Text(text) => text.into(),
        Value::Number(number) => number.into(),
    }
}

/// Sends from the program's own runtime: the thread that gathers spans has none.
#[derive(Debug)]
struct Client {
    client: reqwest::Client,
    runtime: Handle,
    /// Whether the last batch was not taken: that is said once, and once when it is over.
    failing: AtomicBool,
}

impl Client {
    fn new() -> Result<Self> {
        let client = reqwest::Client::builder()
            .timeout(TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| Failure::config(format!("cannot send traces: {}", chain(&error))))?;
        Ok(Self { client, runtime: Handle::current(), failing: AtomicBool::new(false) })
    }

    fn settle(&self, problem: Option<(&'static str, String)>) {
        let failing = problem.is_some();
        let failed_before = self.failing.swap(failing, Ordering::Relaxed);
        match problem {
            Some((reason, problem)) => {
                metrics::counter!(FAILED, "reason" => reason).increment(1);
                if !failed_before {
                    tracing::warn!(
                        problem,
                        "the collector does not take our spans; they are lost until it does"
                    );
                }
            }
            None if failed_before => tracing::info!("the collector takes our spans again"),
            None => {}
        }
    }
}

#[async_trait::async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> std::result::Result<Response<Bytes>, HttpError> {
        let request = reqwest::Request::try_from(request)?;
        let client = self.client.clone();
        let sent = self.runtime.spawn(async move {
            let answer = client.execute(request).await?;
            let (status, headers) = (answer.status(), answer.headers().clone());
            Ok::<_, reqwest::Error>((status, headers, answer.bytes().await?))
        });
        match sent.await? {
            Ok((status, headers, body)) => {
                self.settle((!status.is_success()).then(|| ("refused", format!("it answers {status}"))));
                let mut response = Response::new(body);
                *response.status_mut() = status;
                *response.headers_mut() = headers;
                Ok(response)
            }
            Err(error) => {
                let error = error.without_url();
                self.settle(Some(("unreachable", chain(&error))));
                Err(Box::new(error))
            }
        }
    }
}
