//! A directive's file as it stands: which keys there are, and the place of each value.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use toml::Spanned;

pub(super) type Given<T> = Option<Spanned<T>>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Directive {
    pub(super) name: Spanned<String>,
    pub(super) queue: Spanned<String>,
    pub(super) tenant: Spanned<String>,
    pub(super) project: Spanned<String>,
    pub(super) spec_ref: Option<String>,
    pub(super) page_size: Given<u32>,
    pub(super) concurrency: Given<u32>,
    pub(super) mode: Given<String>,
    pub(super) schedule: Given<String>,
    pub(super) time_zone: Given<String>,
    pub(super) heartbeat: Given<String>,
    pub(super) deadline: Given<String>,
    #[serde(default)]
    pub(super) retry: Retry,
    pub(super) source: Spanned<Source>,
    pub(super) item: Item,
    pub(super) sink: Sink,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Retry {
    pub(super) transient_first: Given<String>,
    pub(super) transient_max: Given<String>,
    pub(super) transient_tries: Given<u32>,
    pub(super) conflict_first: Given<String>,
    pub(super) conflict_max: Given<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Source {
    #[serde(rename = "type")]
    pub(super) kind: Spanned<String>,
    // http
    pub(super) url: Given<String>,
    pub(super) records: Given<String>,
    pub(super) total: Given<String>,
    pub(super) page_size_param: Given<String>,
    pub(super) pagination: Given<Pagination>,
    pub(super) rate_limit: Given<String>,
    #[serde(default)]
    pub(super) headers: BTreeMap<Spanned<String>, Spanned<String>>,
    pub(super) timeout: Given<String>,
    // singer
    pub(super) command: Given<Vec<String>>,
    pub(super) config: Given<BTreeMap<String, toml::Value>>,
    pub(super) catalog: Given<String>,
    pub(super) stream: Given<String>,
    #[serde(default)]
    pub(super) env: BTreeMap<Spanned<String>, Spanned<String>>,
    // file
    pub(super) path: Given<String>,
    pub(super) format: Given<String>,
    // sql
    pub(super) query: Given<String>,
    pub(super) watermark: Given<String>,
    // activity
    pub(super) activity: Given<String>,
    pub(super) task_queue: Given<String>,
    pub(super) args: Given<toml::Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pagination {
    #[serde(rename = "type")]
    pub(super) kind: Spanned<String>,
    pub(super) param: Given<String>,
    pub(super) next: Given<String>,
    pub(super) start: Given<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Item {
    pub(super) key: Spanned<Vec<Spanned<String>>>,
    #[serde(default)]
    pub(super) hash: Vec<Spanned<String>>,
    pub(super) schema: Given<String>,
    #[serde(default)]
    pub(super) map: BTreeMap<Spanned<String>, Spanned<Field>>,
}

/// `title = "/title"`, or a table.
#[derive(Debug)]
pub(super) enum Field {
    Place(String),
    Table(FieldTable),
}

/// By hand, because serde's untagged enums do not tell what is wrong with the one that was meant.
impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match toml::Value::deserialize(deserializer)? {
            toml::Value::String(place) => Ok(Self::Place(place)),
            table @ toml::Value::Table(_) => {
                table.try_into().map(Self::Table).map_err(|error| D::Error::custom(error.message()))
            }
            _ => Err(D::Error::custom(
                "must be a JSON pointer (\"/title\") or a table ({ from = \"/title\" })",
            )),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FieldTable {
    pub(super) from: Option<String>,
    pub(super) template: Option<String>,
    pub(super) constant: Option<toml::Value>,
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) default: Option<toml::Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sink {
    pub(super) table: Spanned<String>,
    pub(super) outbox: Given<String>,
    pub(super) url: Given<String>,
}
