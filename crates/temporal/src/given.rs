//! A page that was fetched by an activity elsewhere, as a source of the steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use stargate_directive::Pointer;
use stargate_directive::file::Directive;
use stargate_directive::source::{Feed, ForeignSink, Page, Records, SourceError, Sources};
use tokio_util::sync::CancellationToken;

use crate::plan::Given;

/// Gives one page, to whom it belongs.
#[derive(Debug)]
pub(crate) struct GivenSources {
    given: Arc<Given>,
    /// For the sink.
    inner: Arc<dyn Sources>,
    /// Ends the execution.
    stopping: CancellationToken,
    past: AtomicBool,
}

impl GivenSources {
    pub(crate) fn new(given: Given, inner: Arc<dyn Sources>, stopping: CancellationToken) -> Self {
        Self { given: Arc::new(given), inner, stopping, past: AtomicBool::new(false) }
    }

    /// Whether the cursor is somewhere else than where the page begins: it was written before, or the source begins
    /// anew. Then nothing is written, and the workflow asks for the page that is wanted.
    pub(crate) fn is_past(&self) -> bool {
        self.past.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Sources for GivenSources {
    async fn open(&self, _: &Directive, from: &Pointer) -> Result<Box<dyn Feed>, SourceError> {
        if *from != self.given.from {
            self.past.store(true, Ordering::Relaxed);
            self.stopping.cancel();
            std::future::pending::<()>().await;
        }
        Ok(Box::new(GivenFeed { given: Some(self.given.clone()) }))
    }

    async fn sink(&self, directive: &Directive) -> Result<Option<Box<dyn ForeignSink>>, SourceError> {
        self.inner.sink(directive).await
    }
}

#[derive(Debug)]
struct GivenFeed {
    given: Option<Arc<Given>>,
}

#[async_trait]
impl Feed for GivenFeed {
    /// The page; what comes after it is not ours to give, and nobody waits for it.
    async fn page(&mut self, _: u32) -> Result<Page, SourceError> {
        let Some(given) = self.given.take() else { return std::future::pending().await };
        let records = given.page.records.iter().cloned().map(Ok).collect();
        Ok(Page {
            records: Records::memory(records),
            next: given.page.next.clone(),
            is_last: given.page.is_last,
        })
    }

    async fn close(self: Box<Self>) {}
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;
    use stargate_base::Tasks;
    use stargate_directive::file;
    use stargate_directive::steps::{self, Assignment, Ended};
    use stargate_directive::{RunId, SharedDirectives};
    use stargate_store::sqlite::{Options, Sqlite};

    use super::*;
    use crate::plan::Fetched;

    #[derive(Debug)]
    struct Nothing;

    #[async_trait]
    impl Sources for Nothing {
        async fn open(&self, _: &Directive, _: &Pointer) -> Result<Box<dyn Feed>, SourceError> {
            unreachable!("the page is given")
        }

        async fn sink(&self, _: &Directive) -> Result<Option<Box<dyn ForeignSink>>, SourceError> {
            Ok(None)
        }
    }

    const DIRECTIVE: &str = r#"
        name = "issues"
        queue = "meta-py"
        tenant = "acme"
        project = "core"
        [source]
        type = "activity"
        activity = "page"
        task_queue = "meta-py"
        [item]
        key = ["/id"]
        [sink]
        table = "items"
    "#;

    async fn execute(store: &SharedDirectives, given: Given) -> (Ended, bool) {
        let directive = file::parse(Path::new("issues.toml"), DIRECTIVE, &["meta-py".to_owned()]).unwrap();
        let stopping = CancellationToken::new();
        let sources = Arc::new(GivenSources::new(given, Arc::new(Nothing), stopping.clone()));
        let assignment = Assignment {
            mapping: Arc::new(directive.mapping().unwrap()),
            directive: Arc::new(directive),
            store: store.clone(),
            sources: sources.clone(),
            run: RunId("one".to_owned()),
            workflow_id: "directive:issues".to_owned(),
            engine: crate::ENGINE,
            worker: "here".to_owned(),
            attempt: 1,
            tasks: Tasks::new(),
            watch: None,
            is_last_try: false,
            pages_max: Some(1),
            page_size: None,
            progress: None,
        };
        (steps::execute(assignment, &stopping, &|| false).await, sources.is_past())
    }

    fn page(from: serde_json::Value, next: u64, is_last: bool) -> Given {
        let records = vec![serde_json::value::to_raw_value(&json!({ "id": next })).unwrap()];
        Given { from, page: Fetched { records, next: Some(json!(next)), is_last } }
    }

    #[tokio::test]
    async fn a_page_that_was_written_before_is_not_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = Sqlite::open(&folder.path().join("stargate.db"), Options::default()).await.unwrap();
        let store: SharedDirectives = Arc::new(store);
        let run = RunId("one".to_owned());
        let (ended, is_past) = execute(&store, page(json!(null), 1, false)).await;
        assert!(matches!(&ended, Ended::More(progress) if progress.pages == 1), "{ended:?}");
        assert!(!is_past);
        // The answer to it was lost, so the same page comes again.
        let (ended, is_past) = execute(&store, page(json!(null), 1, false)).await;
        assert_eq!((ended, is_past), (Ended::Stopped, true));
        let kept = store.run(&run).await.unwrap().unwrap();
        assert_eq!((kept.pages, kept.counts.created, kept.counts.unchanged), (1, 1, 0));
        // The last page ends the run; coming again it finds the run ended.
        for _ in 0..2 {
            let (ended, is_past) = execute(&store, page(json!(1), 2, true)).await;
            assert!(matches!(&ended, Ended::Finished(run) if run.pages == 2), "{ended:?}");
            assert!(!is_past);
        }
    }
}
