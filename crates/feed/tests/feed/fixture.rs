//! Opens sources as an engine does, from the text of a directive.

use std::path::Path;

use async_trait::async_trait;
use serde_json::Value;
use stargate_base::Secret;
use stargate_directive::Pointer;
use stargate_directive::file::{Directive, parse};
use stargate_directive::source::{Databases, Feed, ForeignSink, SourceError};
use stargate_feed::Surroundings;
use stargate_testkit::source_server::SourceServer;

/// The value of the variable `TOKEN`.
pub(crate) const TOKEN: &str = "tok-5e1f-do-not-show";
/// The value of the variable `KEY`: servers write it in more than one way.
pub(crate) const KEY: &str = "key/5e1f=do~not=show==";

#[derive(Debug)]
struct NoDatabases;

#[async_trait]
impl Databases for NoDatabases {
    async fn feed(
        &self,
        _: Option<&Secret>,
        _: &str,
        _: &str,
        _: &Pointer,
    ) -> Result<Box<dyn Feed>, SourceError> {
        unreachable!("no test here has a query")
    }

    async fn sink(&self, _: &Secret) -> Result<Box<dyn ForeignSink>, SourceError> {
        unreachable!("no test here has a sink")
    }
}

pub(crate) fn surroundings(scratch: &Path) -> Surroundings {
    Surroundings {
        environment: Box::new(|name| match name {
            "TOKEN" => Some(TOKEN.to_owned()),
            "KEY" => Some(KEY.to_owned()),
            _ => None,
        }),
        scratch: scratch.to_owned(),
        databases: Box::new(NoDatabases),
    }
}

/// A directive that lies in `folder`, with this source.
pub(crate) fn directive(folder: &Path, source: &str) -> Directive {
    directive_in(folder, "full", source)
}

/// The same in a mode.
pub(crate) fn directive_in(folder: &Path, mode: &str, source: &str) -> Directive {
    let text = format!(
        "name = \"d\"\nmode = \"{mode}\"\nqueue = \"q\"\ntenant = \"t\"\nproject = \"p\"\n[source]\n{source}\n[item]\nkey = [\"/id\"]\n\
         [sink]\ntable = \"items\"\n"
    );
    parse(&folder.join("d.toml"), &text, &["q".to_owned()]).unwrap_or_else(|problems| panic!("{problems:?}"))
}

/// The source of a server, with further keys.
pub(crate) fn api(server: &SourceServer, keys: &str) -> String {
    format!(
        "type = \"http\"\nurl = \"{}\"\nrecords = \"/items\"\npage_size_param = \"limit\"\n{keys}",
        server.url()
    )
}

pub(crate) const CURSOR: &str = "pagination = { type = \"cursor\", param = \"after\", next = \"/next\" }";
pub(crate) const OFFSET: &str = "pagination = { type = \"offset\", param = \"offset\" }";
pub(crate) const PAGE: &str = "pagination = { type = \"page\", param = \"page\" }";
pub(crate) const LINK: &str = "pagination = { type = \"link\" }";
pub(crate) const TOTAL: &str = "total = \"/total\"";

pub(crate) async fn try_open(source: &str, from: &Pointer) -> Result<Box<dyn Feed>, SourceError> {
    let folder = std::env::temp_dir();
    stargate_feed::open(&directive(&folder, source), from, &surroundings(&folder)).await
}

pub(crate) async fn open(source: &str, from: &Pointer) -> Box<dyn Feed> {
    try_open(source, from).await.unwrap()
}

/// A page that is all in memory.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Taken {
    /// Records; those that are none as `<problem>`.
    pub(crate) records: Vec<Value>,
    pub(crate) next: Pointer,
    pub(crate) is_last: bool,
}

pub(crate) async fn take(feed: &mut Box<dyn Feed>, size: u32) -> Result<Taken, SourceError> {
    let page = feed.page(size).await?;
    let mut records = Vec::new();
    for record in page.records {
        records.push(match record? {
            Ok(json) => serde_json::from_str(json.get()).unwrap(),
            Err(garbled) => Value::String(format!("<{}>", garbled.problem)),
        });
    }
    Ok(Taken { records, next: page.next.expect("these sources say where to go on"), is_last: page.is_last })
}

/// All pages to the last, and the sizes asked for repeat.
pub(crate) async fn take_all(feed: &mut Box<dyn Feed>, sizes: &[u32]) -> Result<Vec<Taken>, SourceError> {
    let mut pages = Vec::new();
    for size in sizes.iter().cycle().take(1000) {
        pages.push(take(feed, *size).await?);
        if pages.last().is_some_and(|page| page.is_last) {
            return Ok(pages);
        }
    }
    panic!("no end after {} pages", pages.len())
}

/// The ids of all records.
pub(crate) fn ids(pages: &[Taken]) -> Vec<u64> {
    pages.iter().flat_map(|page| &page.records).map(|record| record["id"].as_u64().unwrap()).collect()
}
