//! What the server has: ids in an order, and a body for each.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Names an item.
pub type Id = u64;

type Generator = Arc<dyn Fn(Id, u64) -> String + Send + Sync>;

/// The items of a source, in the order it gives them.
#[derive(Clone)]
pub struct Data {
    /// Their ids in order. Tests may change it as they like: repeat, remove, reorder.
    pub ids: Vec<Id>,
    /// Items of a page if the request asks for no number.
    pub page_default: usize,
    /// Items of a page at most, whatever is asked for.
    pub page_max: usize,
    /// What the source says is there; how many there are if it is not set.
    pub total: Option<u64>,
    versions: HashMap<Id, u64>,
    generator: Generator,
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Data").field("ids", &self.ids.len()).finish_non_exhaustive()
    }
}

impl Default for Data {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Data {
    /// So many items: `{"id":17,"title":"item 17","state":"open","version":0}`, ids from 0.
    pub fn new(count: u64) -> Self {
        Self::generated(count, |id, version| {
            format!(r#"{{"id":{id},"title":"item {id}","state":"open","version":{version}}}"#)
        })
    }

    /// So many items whose text a function makes of id and version.
    pub fn generated(count: u64, generator: impl Fn(Id, u64) -> String + Send + Sync + 'static) -> Self {
        Self {
            ids: (0..count).collect(),
            page_default: 100,
            page_max: 500,
            total: None,
            versions: HashMap::new(),
            generator: Arc::new(generator),
        }
    }

    /// So many items of about so many bytes each.
    pub fn large(count: u64, bytes: usize) -> Self {
        let filling: Arc<str> = "x".repeat(bytes).into();
        let mut data = Self::generated(count, move |id, version| {
            format!(r#"{{"id":{id},"version":{version},"filling":"{filling}"}}"#)
        });
        data.page_max = usize::MAX;
        data
    }

    /// Changes an item: its version is one more.
    pub fn touch(&mut self, id: Id) {
        *self.versions.entry(id).or_default() += 1;
    }

    /// Takes an item away.
    pub fn remove(&mut self, id: Id) {
        self.ids.retain(|other| *other != id);
    }

    /// Adds an item at the end, with an id above all others.
    pub fn push(&mut self) -> Id {
        let id = self.ids.iter().max().map_or(0, |id| id + 1);
        self.ids.push(id);
        id
    }

    /// An item as it is given out.
    pub fn item(&self, id: Id) -> String {
        (self.generator)(id, self.versions.get(&id).copied().unwrap_or(0))
    }

    /// All of them, in order.
    pub fn items(&self) -> impl Iterator<Item = String> {
        self.ids.iter().map(|id| self.item(*id))
    }

    /// Where the items after an id begin; after one that is gone, those with a higher id.
    pub(super) fn position_after(&self, id: Id) -> usize {
        match self.ids.iter().position(|other| *other == id) {
            Some(position) => position + 1,
            None => self.ids.iter().position(|other| *other > id).unwrap_or(self.ids.len()),
        }
    }
}
