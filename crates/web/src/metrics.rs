//! Prometheus: the recorder, its buckets and descriptions, and the prefix before `worker_` and `mirror_`.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use stargate_queue::exemplar;
use stargate_queue::metrics::{CATALOGUE, MetricKind};
use tokio_util::sync::CancellationToken;

use crate::openmetrics;

/// Enqueues that were turned away, by `reason`.
pub(crate) const REFUSED: &str = "api_enqueue_refused_total";
/// Writes that were passed on to the leader, by `outcome`.
pub(crate) const FORWARDED: &str = "api_forwarded_total";
/// Requests that were answered, by `method`, `route` and `status`.
pub(crate) const REQUESTS: &str = "api_requests_total";
/// How long answers took to begin, by `route`.
pub(crate) const REQUEST_TIME: &str = "api_request_duration_seconds";
/// 1 while the store answers.
pub(crate) const STORE_UP: &str = "store_up";
/// How long the store takes to answer.
pub(crate) const STORE_TIME: &str = "store_round_trip_seconds";
/// Which program this is: 1, with `version` and `node`.
pub(crate) const INFO: &str = "stargate_info";
/// What the API itself counts.
const OWN: &[(&str, MetricKind, &str)] = &[
    (
        REFUSED,
        MetricKind::Counter,
        "Enqueues over HTTP answered with 429, by reason (depth: over api.max_depth)",
    ),
    (
        FORWARDED,
        MetricKind::Counter,
        "Writes passed on to the leader, by outcome (answered, unreachable, unknown, refused)",
    ),
    (REQUESTS, MetricKind::Counter, "Requests answered, by method, route and status"),
    (REQUEST_TIME, MetricKind::Histogram, "Time until an answer began, by route"),
    (STORE_UP, MetricKind::Gauge, "1 while the store answers this process, else 0; asked every 15 s"),
    (STORE_TIME, MetricKind::Gauge, "Time that the store took to answer, when it was last asked"),
    (INFO, MetricKind::Gauge, "Always 1, with the version that runs and the name of the node"),
];
/// What the system knows about this process.
const PROCESS: &[(&str, MetricKind, &str)] = &[
    ("process_cpu_seconds_total", MetricKind::Counter, "User and system CPU time spent, in seconds"),
    ("process_open_fds", MetricKind::Gauge, "Open file descriptors"),
    ("process_max_fds", MetricKind::Gauge, "File descriptors that may be open"),
    ("process_virtual_memory_bytes", MetricKind::Gauge, "Virtual memory"),
    ("process_virtual_memory_max_bytes", MetricKind::Gauge, "Virtual memory that there may be"),
    ("process_resident_memory_bytes", MetricKind::Gauge, "Resident memory"),
    ("process_start_time_seconds", MetricKind::Gauge, "When the process started, in seconds since 1970"),
    ("process_threads", MetricKind::Gauge, "Threads"),
];

/// How often histograms are folded; between folds every sample is kept apart.
const UPKEEP: Duration = Duration::from_secs(5);
/// Families that the namespace is put before.
const PREFIXED: [&str; 2] = ["worker_", "mirror_"];

/// The steps of every histogram of seconds: 0.005 × 2.5ⁿ as the queue's dashboards expect, and finer below,
/// where a queue that works well lives.
const SECONDS: [f64; 15] = [
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.0125,
    0.03125,
    0.078_125,
    0.195_312_5,
    0.488_281_25,
    1.220_703_125,
    3.051_757_812_5,
    7.629_394_531_25,
    19.073_486_328_125,
    47.683_715_820_312_5,
    119.209_289_550_781_25,
];

/// Why metrics could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// A prefix that Prometheus does not allow.
    #[error("metrics.namespace {0:?} is not allowed; use letters, digits and _, not beginning with a digit")]
    Namespace(String),
    /// The exporter refused its settings.
    #[error("the metrics exporter could not be set up")]
    Build(#[source] metrics_exporter_prometheus::BuildError),
    /// Only one recorder can be installed in a process.
    #[error("metrics are installed already")]
    Installed,
}

/// Renders what was recorded.
#[derive(Clone)]
pub struct MetricsHandle {
    exporter: PrometheusHandle,
    prefix: Arc<str>,
    more: Catalogues,
}

impl std::fmt::Debug for MetricsHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MetricsHandle").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// Descriptions of metrics: name, kind and one line.
pub type Catalogues = &'static [&'static [(&'static str, MetricKind, &'static str)]];

/// Makes this process record metrics. To be called once, before anything is recorded. `more` describes those of parts
/// that this crate does not know.
pub fn install(namespace: Option<&str>, more: Catalogues) -> Result<MetricsHandle, MetricsError> {
    let (recorder, handle) = build(namespace, more)?;
    metrics::set_global_recorder(recorder).map_err(|_| MetricsError::Installed)?;
    Ok(handle)
}

/// A recorder that is not installed yet, and its handle: for tests and for processes with a recorder of their own.
pub fn build(
    namespace: Option<&str>,
    more: Catalogues,
) -> Result<(impl Recorder + Send + Sync + 'static, MetricsHandle), MetricsError> {
    let prefix = match namespace.filter(|name| !name.is_empty()) {
        Some(name) if !is_name(name) => return Err(MetricsError::Namespace(name.to_owned())),
        Some(name) => format!("{name}_"),
        None => String::new(),
    };
    let inner = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)
        .map_err(MetricsError::Build)?
        .build_recorder();
    let handle = MetricsHandle { exporter: inner.handle(), prefix: prefix.as_str().into(), more };
    let recorder = Namespaced { inner, prefix };
    for (name, kind, about) in catalogue(more) {
        let (name, about) = (KeyName::from_const_str(name), SharedString::const_str(about));
        match kind {
            MetricKind::Counter => recorder.describe_counter(name, None, about),
            MetricKind::Gauge => recorder.describe_gauge(name, None, about),
            MetricKind::Histogram => recorder.describe_histogram(name, None, about),
        }
    }
    Ok((recorder, handle))
}

impl MetricsHandle {
    /// The text that Prometheus reads. Metrics without a sample yet appear with their description, so that
    /// dashboards can be built before the first job.
    pub fn render(&self) -> String {
        metrics_process::Collector::default().collect();
        let mut text = self.exporter.render();
        for (name, kind, about) in catalogue(self.more) {
            let name = renamed(&self.prefix, name).unwrap_or_else(|| name.to_owned());
            let kind = match kind {
                MetricKind::Counter => "counter",
                MetricKind::Gauge => "gauge",
                MetricKind::Histogram => "histogram",
            };
            let head = format!("# TYPE {name} {kind}\n");
            if !text.contains(&head) {
                // Writing to a string cannot fail.
                let _ = write!(text, "# HELP {name} {about}\n{head}\n");
            }
        }
        text
    }

    /// The same as OpenMetrics, with the traces of the slowest executions since this was last asked for.
    pub fn render_with_exemplars(&self) -> String {
        openmetrics::from_text(&self.render(), &self.prefix, exemplar::take())
    }

    /// Folds histograms until told to stop.
    pub async fn run(self, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(UPKEEP)).await.is_some() {
            self.exporter.run_upkeep();
        }
    }
}

/// Everything that a process may record: names, kinds, and one line about each.
pub fn catalogue(more: Catalogues) -> impl Iterator<Item = (&'static str, MetricKind, &'static str)> {
    let gauges =
        stargate_leader::metrics::GAUGES.iter().map(|(name, about)| (*name, MetricKind::Gauge, *about));
    let counters =
        stargate_leader::metrics::COUNTERS.iter().map(|(name, about)| (*name, MetricKind::Counter, *about));
    let mirror_gauges =
        stargate_mirror::metrics::GAUGES.iter().map(|(name, about)| (*name, MetricKind::Gauge, *about));
    let mirror_counters =
        stargate_mirror::metrics::COUNTERS.iter().map(|(name, about)| (*name, MetricKind::Counter, *about));
    CATALOGUE
        .iter()
        .chain(OWN)
        .chain(PROCESS)
        .copied()
        .chain(gauges)
        .chain(counters)
        .chain(mirror_gauges)
        .chain(mirror_counters)
        .chain(more.iter().flat_map(|part| part.iter().copied()))
}

/// Puts the namespace before the names that get one.
struct Namespaced {
    inner: PrometheusRecorder,
    prefix: String,
}

impl Namespaced {
    fn name(&self, name: KeyName) -> KeyName {
        renamed(&self.prefix, name.as_str()).map_or(name, KeyName::from)
    }

    fn with_key<T>(&self, key: &Key, use_it: impl FnOnce(&Key) -> T) -> T {
        match renamed(&self.prefix, key.name()) {
            Some(name) => use_it(&Key::from_parts(name, key.labels().cloned().collect::<Vec<_>>())),
            None => use_it(key),
        }
    }
}

impl Recorder for Namespaced {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.inner.describe_counter(self.name(key), unit, description);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.inner.describe_gauge(self.name(key), unit, description);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.inner.describe_histogram(self.name(key), unit, description);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        self.with_key(key, |key| self.inner.register_counter(key, metadata))
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        self.with_key(key, |key| self.inner.register_gauge(key, metadata))
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        self.with_key(key, |key| self.inner.register_histogram(key, metadata))
    }
}

fn renamed(prefix: &str, name: &str) -> Option<String> {
    let applies = !prefix.is_empty() && PREFIXED.iter().any(|family| name.starts_with(family));
    applies.then(|| format!("{prefix}{name}"))
}

fn is_name(text: &str) -> bool {
    let first = text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    first && text.len() <= 64 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_is_put_before_worker_and_mirror_and_nothing_else() {
        let (recorder, handle) = build(Some("shithub"), &[]).unwrap();
        metrics::with_local_recorder(&recorder, || {
            metrics::counter!("worker_pauses_total").increment(2);
            metrics::counter!("mirror_retries_total", "reason" => "timeout").increment(1);
            metrics::gauge!("leader_role").set(1.0);
        });
        let text = handle.render();
        assert!(text.contains("\nshithub_worker_pauses_total 2\n"), "{text}");
        assert!(text.contains("shithub_mirror_retries_total{reason=\"timeout\"} 1"), "{text}");
        assert!(text.contains("\nleader_role 1\n"), "{text}");
        assert!(!text.contains("\nworker_"), "{text}");
    }

    #[test]
    fn every_metric_of_the_queue_is_described_once_before_and_after_it_is_recorded() {
        let (recorder, handle) = build(None, &[]).unwrap();
        for recorded in [false, true] {
            if recorded {
                metrics::with_local_recorder(&recorder, || {
                    metrics::counter!("worker_heartbeats_total").increment(1);
                    metrics::histogram!("worker_job_duration_seconds", "kind" => "a").record(0.0007);
                });
            }
            let text = handle.render();
            for (name, ..) in catalogue(&[]) {
                assert_eq!(text.matches(&format!("# HELP {name} ")).count(), 1, "{name} in {text}");
                assert_eq!(text.matches(&format!("# TYPE {name} ")).count(), 1, "{name} in {text}");
            }
        }
        let text = handle.render();
        assert!(text.contains("worker_job_duration_seconds_bucket{kind=\"a\",le=\"0.001\"} 1"), "{text}");
        assert!(text.contains("worker_job_duration_seconds_bucket{kind=\"a\",le=\"0.0005\"} 0"), "{text}");
    }

    #[test]
    fn a_namespace_that_prometheus_refuses_is_refused() {
        for bad in ["1a", "a-b", "ä", "a b", &"x".repeat(65)] {
            assert!(build(Some(bad), &[]).is_err(), "{bad:?}");
        }
        assert!(build(Some(""), &[]).is_ok(), "an empty setting means none");
    }

    #[test]
    fn the_buckets_rise_by_two_and_a_half_from_five_milliseconds() {
        for (n, bucket) in SECONDS[3..].iter().enumerate() {
            let expected = 0.005 * 2.5_f64.powi(i32::try_from(n).unwrap());
            assert!((bucket - expected).abs() < 1e-9, "{bucket} is not {expected}");
        }
    }
}
