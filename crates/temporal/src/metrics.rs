//! What the SDK measures, recorded with the metrics of the program.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use metrics::Label;
use temporalio_common::telemetry::metrics::{
    CoreMeter, Counter, CounterBase, Gauge, GaugeBase, GaugeF64, GaugeF64Base, Histogram, HistogramBase,
    HistogramDuration, HistogramDurationBase, HistogramF64, HistogramF64Base, MetricAttributable,
    MetricAttributes, MetricParameters, NewAttributes, UpDownCounter, UpDownCounterBase,
};

/// The labels that are kept. Each has few values; what has many (runs, ids) is never one of them.
const LABELS: [&str; 9] = [
    "task_queue",
    "namespace",
    "operation",
    "worker_type",
    "poller_type",
    "activity_type",
    "workflow_type",
    "failure_reason",
    "status_code",
];
/// Characters of a label's value.
const VALUE_MAX: usize = 100;

/// Gives what the SDK measures to the program's recorder.
#[derive(Debug)]
pub(crate) struct Bridge;

/// An instrument of the SDK; its name has the prefix `temporal_` already.
struct Instrument {
    name: String,
}

impl Instrument {
    fn of(params: MetricParameters) -> Arc<Self> {
        Arc::new(Self { name: params.name.into_owned() })
    }

    fn timed(params: MetricParameters) -> Arc<Self> {
        Arc::new(Self { name: format!("{}_seconds", params.name) })
    }
}

fn kept(attributes: &HashMap<String, String>) -> Vec<Label> {
    let sorted: BTreeMap<_, _> =
        attributes.iter().filter(|(key, _)| LABELS.contains(&key.as_str())).collect();
    let label = |(key, value): (&String, &String)| {
        Label::new(key.clone(), value.chars().take(VALUE_MAX).collect::<String>())
    };
    sorted.into_iter().map(label).collect()
}

fn labels(attributes: &MetricAttributes) -> Vec<Label> {
    match attributes {
        MetricAttributes::NoOp(attributes) => kept(attributes),
        _ => Vec::new(),
    }
}

struct Counts(metrics::Counter);
struct Level(metrics::Gauge);
struct Spread(metrics::Histogram);

/// An instrument with its labels is one of the recorder's.
macro_rules! attributable {
    ($($base:ident => $make:expr),+ $(,)?) => {$(
        impl MetricAttributable<Box<dyn $base>> for Instrument {
            fn with_attributes(
                &self,
                attributes: &MetricAttributes,
            ) -> Result<Box<dyn $base>, Box<dyn std::error::Error>> {
                let make: fn(String, Vec<Label>) -> Box<dyn $base> = $make;
                Ok(make(self.name.clone(), labels(attributes)))
            }
        }
    )+};
}

attributable! {
    CounterBase => |name, labels| Box::new(Counts(metrics::counter!(name, labels))),
    GaugeBase => |name, labels| Box::new(Level(metrics::gauge!(name, labels))),
    GaugeF64Base => |name, labels| Box::new(Level(metrics::gauge!(name, labels))),
    UpDownCounterBase => |name, labels| Box::new(Level(metrics::gauge!(name, labels))),
    HistogramBase => |name, labels| Box::new(Spread(metrics::histogram!(name, labels))),
    HistogramF64Base => |name, labels| Box::new(Spread(metrics::histogram!(name, labels))),
    HistogramDurationBase => |name, labels| Box::new(Spread(metrics::histogram!(name, labels))),
}

impl CounterBase for Counts {
    fn adds(&self, value: u64) {
        self.0.increment(value);
    }
}

impl GaugeBase for Level {
    fn records(&self, value: u64) {
        self.0.set(value as f64);
    }
}

impl GaugeF64Base for Level {
    fn records(&self, value: f64) {
        self.0.set(value);
    }
}

impl UpDownCounterBase for Level {
    fn adds(&self, value: i64) {
        self.0.increment(value as f64);
    }
}

impl HistogramBase for Spread {
    fn records(&self, value: u64) {
        self.0.record(value as f64);
    }
}

impl HistogramF64Base for Spread {
    fn records(&self, value: f64) {
        self.0.record(value);
    }
}

impl HistogramDurationBase for Spread {
    fn records(&self, value: Duration) {
        self.0.record(value.as_secs_f64());
    }
}

impl CoreMeter for Bridge {
    fn new_attributes(&self, attributes: NewAttributes) -> MetricAttributes {
        // The only attributes of the SDK that are plain text for whoever implements a meter.
        MetricAttributes::NoOp(Arc::new(attributes.into()))
    }

    fn extend_attributes(&self, existing: MetricAttributes, new: NewAttributes) -> MetricAttributes {
        let mut attributes = match existing {
            MetricAttributes::NoOp(attributes) => (*attributes).clone(),
            _ => HashMap::new(),
        };
        attributes.extend::<HashMap<String, String>>(new.into());
        MetricAttributes::NoOp(Arc::new(attributes))
    }

    fn counter(&self, params: MetricParameters) -> Counter {
        Counter::new(Instrument::of(params))
    }

    fn histogram(&self, params: MetricParameters) -> Histogram {
        Histogram::new(Instrument::of(params))
    }

    fn histogram_f64(&self, params: MetricParameters) -> HistogramF64 {
        HistogramF64::new(Instrument::of(params))
    }

    fn histogram_duration(&self, params: MetricParameters) -> HistogramDuration {
        HistogramDuration::new(Instrument::timed(params))
    }

    fn gauge(&self, params: MetricParameters) -> Gauge {
        Gauge::new(Instrument::of(params))
    }

    fn gauge_f64(&self, params: MetricParameters) -> GaugeF64 {
        GaugeF64::new(Instrument::of(params))
    }

    fn up_down_counter(&self, params: MetricParameters) -> UpDownCounter {
        UpDownCounter::new(Instrument::of(params))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_labels_with_few_values_are_kept() {
        let attributes = HashMap::from([
            ("task_queue".to_owned(), "meta-py".to_owned()),
            ("run_id".to_owned(), "0199".to_owned()),
            ("activity_type".to_owned(), "x".repeat(500)),
        ]);
        let kept = kept(&attributes);
        let keys: Vec<&str> = kept.iter().map(Label::key).collect();
        assert_eq!(keys, ["activity_type", "task_queue"]);
        assert_eq!(kept[0].value().len(), VALUE_MAX);
    }
}
