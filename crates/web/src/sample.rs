//! A little API with made-up items, for trying directives: pages by cursor, and items that can be changed.
//!
//! What is changed is kept in memory only. Some items lack their title, so that there is something to quarantine.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::error::{Problem, Result};
use crate::input::{self, JsonBody, Params};
use crate::{request, server};

/// The most items it makes up.
pub const ITEMS_MAX: u64 = 10_000_000;
/// Items of a page that asks for no number, and the most that a page has.
const LIMIT_DEFAULT: u64 = 100;
const LIMIT_MAX: u64 = 500;
/// Items that may be changed, and how large each may become.
const CHANGED_MAX: usize = 10_000;
const ITEM_BYTES_MAX: usize = 16 << 10;

/// The items.
#[derive(Debug)]
pub struct Sample {
    items: u64,
    bad: u64,
    changed: Mutex<BTreeMap<u64, Value>>,
}

/// What a page is asked with.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    /// The number of the last item before the page.
    #[serde(default)]
    after: u64,
    limit: Option<u64>,
}

/// A page.
#[derive(Debug, PartialEq, Serialize)]
struct Page {
    items: Vec<Value>,
    /// What the next page is asked with; null on the last.
    next: Option<u64>,
    total: u64,
}

impl Sample {
    /// So many items, up to [`ITEMS_MAX`], of which so many lack their title.
    pub fn new(items: u64, bad: u64) -> Self {
        let items = items.min(ITEMS_MAX);
        Self { items, bad: bad.min(items), changed: Mutex::default() }
    }

    fn page(&self, asked: &Asked) -> Page {
        let limit = asked.limit.unwrap_or(LIMIT_DEFAULT).clamp(1, LIMIT_MAX);
        let last = asked.after.saturating_add(limit).min(self.items);
        let changed = self.changed();
        let item = |id| changed.get(&id).cloned().unwrap_or_else(|| self.made_up(id));
        Page {
            items: (asked.after.saturating_add(1)..=last).map(item).collect(),
            next: (last < self.items).then_some(last),
            total: self.items,
        }
    }

    fn one(&self, id: u64) -> Option<Value> {
        let is_there = (1..=self.items).contains(&id);
        is_there.then(|| self.changed().get(&id).cloned().unwrap_or_else(|| self.made_up(id)))
    }

    fn made_up(&self, id: u64) -> Value {
        let state = if id.is_multiple_of(3) { "closed" } else { "open" };
        let mut item = json!({ "id": id, "state": state, "price": (id * 37 % 1000) as f64 / 10.0 });
        if !self.is_bad(id) {
            item["title"] = json!(format!("Item {id}"));
        }
        item
    }

    /// Bad ones are spread over all.
    fn is_bad(&self, id: u64) -> bool {
        let Some(every) = self.items.checked_div(self.bad) else { return false };
        id.is_multiple_of(every) && id / every <= self.bad
    }

    /// Puts the fields into the item; what they do not name stays.
    fn change(&self, id: u64, fields: Map<String, Value>) -> Result<Value> {
        let mut item = self.one(id).ok_or_else(|| Problem::not_found("item", id))?;
        if let Value::Object(item) = &mut item {
            item.extend(fields);
            item.insert("id".to_owned(), json!(id));
        }
        if item.to_string().len() > ITEM_BYTES_MAX {
            return Err(input::too_large(ITEM_BYTES_MAX));
        }
        let mut changed = self.changed();
        if changed.len() >= CHANGED_MAX && !changed.contains_key(&id) {
            let message = format!("{CHANGED_MAX} items are changed already; start the sample again");
            return Err(Problem::new(StatusCode::CONFLICT, "CONFLICT", message));
        }
        changed.insert(id, item.clone());
        Ok(item)
    }

    fn changed(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Value>> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves the items until told to stop.
pub async fn serve(listener: TcpListener, sample: Sample, stop: CancellationToken) {
    let routes = Router::new()
        .route("/items", get(page))
        .route("/items/{id}", get(one).patch(change))
        .fallback(async || Problem::not_found("route", "here; there are /items and /items/ID"))
        .layer(axum::middleware::from_fn(request::envelope))
        .with_state(Arc::new(sample));
    server::serve_routes(listener, routes, stop, server::HEAD_TIMEOUT).await;
}

async fn page(State(sample): State<Arc<Sample>>, Params(asked): Params<Asked>) -> Json<Page> {
    Json(sample.page(&asked))
}

async fn one(State(sample): State<Arc<Sample>>, Path(id): Path<String>) -> Result<Json<Value>> {
    let item = id.parse().ok().and_then(|id| sample.one(id));
    item.map(Json).ok_or_else(|| Problem::not_found("item", id))
}

async fn change(
    State(sample): State<Arc<Sample>>,
    Path(id): Path<String>,
    fields: JsonBody<Map<String, Value>, ITEM_BYTES_MAX>,
) -> Result<Json<Value>> {
    let number = id.parse().map_err(|_| Problem::not_found("item", id))?;
    sample.change(number, fields.value).map(Json)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(sample: &Sample, limit: u64) -> Vec<Value> {
        let (mut items, mut after) = (Vec::new(), Some(0));
        while let Some(from) = after {
            let page = sample.page(&Asked { after: from, limit: Some(limit) });
            assert!(page.items.len() as u64 <= limit && page.total == sample.items, "{page:?}");
            items.extend(page.items);
            after = page.next;
        }
        items
    }

    #[test]
    fn the_pages_hold_every_item_once_whatever_their_size() {
        let sample = Sample::new(103, 0);
        let ids =
            |limit| all(&sample, limit).iter().map(|item| item["id"].as_u64().unwrap()).collect::<Vec<_>>();
        let expected: Vec<u64> = (1..=103).collect();
        for limit in [1, 50, 103, 500] {
            assert_eq!(ids(limit), expected, "pages of {limit}");
        }
        assert!(all(&Sample::new(0, 5), 10).is_empty());
        let far = sample.page(&Asked { after: u64::MAX, limit: Some(u64::MAX) });
        assert_eq!(far, Page { items: Vec::new(), next: None, total: 103 });
    }

    #[test]
    fn as_many_items_lack_their_title_as_asked_for() {
        for (items, bad) in [(1000, 0), (1000, 1), (1000, 7), (3, 3), (3, 9)] {
            let items = all(&Sample::new(items, bad), 500);
            let without = items.iter().filter(|item| item.get("title").is_none()).count() as u64;
            assert_eq!(without, bad.min(items.len() as u64));
        }
    }

    #[test]
    fn a_change_is_seen_on_its_page_and_keeps_the_rest_of_the_item() {
        let sample = Sample::new(10, 1);
        let fields = |value: Value| value.as_object().unwrap().clone();
        sample.change(10, fields(json!({ "title": "mended", "id": 3 }))).unwrap();
        let item = sample.page(&Asked { after: 9, limit: None }).items.remove(0);
        assert_eq!(item, json!({ "id": 10, "state": "open", "price": 37.0, "title": "mended" }));
        assert_eq!(sample.change(11, Map::new()).unwrap_err().code, "NOT_FOUND");
        let large = fields(json!({ "title": "x".repeat(ITEM_BYTES_MAX) }));
        assert_eq!(sample.change(1, large).unwrap_err().code, "BODY_TOO_LARGE");
    }

    #[tokio::test]
    async fn it_is_served_and_changed_over_http() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/items", listener.local_addr().unwrap());
        let stop = CancellationToken::new();
        let tasks = stargate_base::Tasks::new();
        let served = tasks.spawn(serve(listener, Sample::new(250, 1), stop.clone()));
        let client = reqwest::Client::new();
        let page = client.get(format!("{url}?after=200&limit=100")).send().await.unwrap();
        let page: Value = serde_json::from_slice(&page.bytes().await.unwrap()).unwrap();
        assert_eq!((page["items"].as_array().unwrap().len(), &page["next"]), (50, &Value::Null));
        let request = client.patch(format!("{url}/7")).header("content-type", "application/json");
        assert_eq!(request.body(r#"{"state":"lost"}"#).send().await.unwrap().status(), 200);
        let item = client.get(format!("{url}/7")).send().await.unwrap().text().await.unwrap();
        assert!(item.contains("lost"), "{item}");
        let missing = client.get(format!("{url}/251")).send().await.unwrap();
        assert_eq!(missing.status(), 404);
        assert!(missing.text().await.unwrap().contains("NOT_FOUND"));
        drop(client);
        stop.cancel();
        served.await.unwrap();
    }
}
