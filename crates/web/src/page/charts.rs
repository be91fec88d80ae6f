//! Charts as tables: the script draws what the table says, and without it the table is there.

use super::html::{self, count};
use crate::api::types::failures::{Activity, Bucket};

/// A column of a chart.
pub(crate) struct Column {
    pub(crate) series: &'static str,
    pub(crate) name: &'static str,
}

/// A value: as the script reads it, and as people do.
pub(crate) struct Cell {
    pub(crate) raw: String,
    pub(crate) text: String,
}

/// A stretch of time.
pub(crate) struct Row {
    /// Seconds since 1970.
    pub(crate) x: i64,
    pub(crate) from: String,
    pub(crate) cells: Vec<Cell>,
}

/// A chart.
pub(crate) struct Chart {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) empty: &'static str,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Row>,
}

impl Chart {
    /// Whether there is nothing to draw.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.iter().all(|row| row.cells.iter().all(|cell| matches!(cell.raw.as_str(), "" | "0")))
    }
}

fn row(bucket: &Bucket, cells: Vec<Cell>) -> Row {
    Row { x: bucket.from.as_second(), from: html::time_of_day(&bucket.from), cells }
}

/// How many jobs ended, and how.
pub(crate) fn throughput(activity: &Activity) -> Chart {
    let cell = |number: u64| Cell { raw: number.to_string(), text: count(number) };
    let cells = |bucket: &Bucket| vec![cell(bucket.done), cell(bucket.failed), cell(bucket.cancelled)];
    Chart {
        id: "ended",
        title: "Jobs that ended",
        kind: "bars",
        unit: "",
        empty: "No job ended in this time.",
        columns: vec![
            Column { series: "done", name: "done" },
            Column { series: "failed", name: "failed" },
            Column { series: "cancelled", name: "cancelled" },
        ],
        rows: activity.buckets.iter().map(|bucket| row(bucket, cells(bucket))).collect(),
    }
}

/// How long jobs waited before they began.
pub(crate) fn waits(activity: &Activity) -> Chart {
    let cell = |millis: Option<u64>| Cell {
        raw: millis.map(|millis| millis.to_string()).unwrap_or_default(),
        text: millis.map_or_else(|| "–".to_owned(), html::millis),
    };
    let cells = |bucket: &Bucket| vec![cell(bucket.wait_p50_ms), cell(bucket.wait_p95_ms)];
    Chart {
        id: "waits",
        title: "How long jobs waited",
        kind: "lines",
        unit: "ms",
        empty: "No job began in this time.",
        columns: vec![
            Column { series: "p50", name: "half at most" },
            Column { series: "p95", name: "95 % at most" },
        ],
        rows: activity.buckets.iter().map(|bucket| row(bucket, cells(bucket))).collect(),
    }
}
