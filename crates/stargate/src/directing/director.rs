//! Directives for the API: what the commands do, done by a node that runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use stargate_base::Tasks;
use stargate_directive::file::{self, Directive};
use stargate_directive::kv::Keys;
use stargate_directive::quarantine::{QuarantineFilter, QuarantineId};
use stargate_directive::store::PAGE_MAX;
use stargate_directive::{RunId, SharedDirectives};
use stargate_queue::SharedStore;
use stargate_web::api::types::directives as types;
use stargate_web::{Answer, Directing, Refusal};

use super::steer::{self, Move};
use super::{Catalogue, view};
use crate::cmd::directive::found;
use crate::config::Settings;
use crate::config::directives::Engine;
use crate::failure::{Failure, Result};
use crate::{payload, temporal};

/// Knows the directives of this node and has them run.
pub(crate) struct Director {
    settings: Arc<Settings>,
    store: SharedDirectives,
    tasks: Tasks,
}

impl std::fmt::Debug for Director {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Director").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Director {
    pub(crate) fn new(settings: &Arc<Settings>, store: &SharedDirectives, tasks: &Tasks) -> Self {
        Self { settings: Arc::clone(settings), store: Arc::clone(store), tasks: tasks.clone() }
    }

    fn find(&self, name: &str) -> Result<Directive> {
        found(Catalogue::of(&self.settings).find(name))
    }

    fn keys(&self, name: &str) -> Result<Keys> {
        let directive = self.find(name)?;
        Ok(Keys::of(&directive.tenant, &directive.project, &directive.name)?)
    }
}

/// All directives of the configuration's directory, each with its newest workflow if there are some.
pub(crate) fn list(
    settings: &Settings,
    mut workflows: BTreeMap<String, temporal::WorkflowView>,
) -> Result<Vec<types::Directive>> {
    let given = &settings.directives;
    let files = match file::files(&given.dir) {
        Ok(files) => files,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            return Err(Failure::io(format!("cannot read the directory {}", given.dir.display()), &error));
        }
    };
    let views = files.iter().map(|path| match file::read(path, &given.queues) {
        Ok(directive) => view::directive(directive, given),
        Err(problems) => view::wrong(path, &problems),
    });
    let with_workflow = |mut directive: types::Directive| {
        directive.workflow = workflows.remove(&directive.name).map(view::workflow);
        directive
    };
    Ok(views.map(with_workflow).collect())
}

/// A directive with its cursor and its last runs.
pub(crate) async fn detail(
    store: &SharedDirectives,
    directive: Directive,
    runs: u32,
    workflow: Option<temporal::WorkflowView>,
) -> Result<types::DirectiveDetail> {
    let keys = Keys::of(&directive.tenant, &directive.project, &directive.name)?;
    let runs = store.runs(Some(&directive.name), None, runs).await?;
    let (cursor, partial) = (store.kv_get(&keys.cursor).await?, store.kv_get(&keys.partial).await?);
    let quarantined = steer::waiting(store.as_ref(), &directive.name).await?;
    let (schedule, time_zone) =
        directive.schedule.map(|schedule| (schedule.cron, schedule.time_zone)).unzip();
    Ok(types::DirectiveDetail {
        name: directive.name,
        queue: directive.queue,
        tenant_id: directive.tenant,
        project_id: directive.project,
        source: directive.source.kind().to_owned(),
        table: directive.sink.table.name,
        outbox: directive.sink.outbox,
        schedule,
        time_zone,
        path: directive.path.display().to_string(),
        cursor_version: cursor.as_ref().map(|entry| entry.version),
        cursor_updated_at: cursor.as_ref().map(|entry| entry.updated_at),
        cursor: cursor.map(|entry| entry.value),
        partial: partial.map(|entry| entry.value),
        quarantined,
        workflow: workflow.map(view::workflow),
        runs: runs.iter().map(view::run).collect(),
    })
}

#[async_trait]
impl Directing for Director {
    async fn list(&self) -> Answer<types::Directives> {
        let engine = self.settings.directives.engine;
        let workflows = match engine {
            Engine::Embedded => BTreeMap::new(),
            // What is in the files is told without the cluster.
            Engine::Temporal => temporal::states(&self.settings).await.unwrap_or_default(),
        };
        let directives = list(&self.settings, workflows)?;
        Ok(types::Directives { engine: engine.as_str().to_owned(), directives })
    }

    async fn show(&self, name: &str, runs: u32) -> Answer<types::DirectiveDetail> {
        let directive = self.find(name)?;
        let workflow = match self.settings.directives.engine {
            Engine::Embedded => None,
            Engine::Temporal => temporal::state(&self.settings, name).await.ok().flatten(),
        };
        Ok(detail(&self.store, directive, runs, workflow).await?)
    }

    async fn start(&self, jobs: &SharedStore, name: &str) -> Answer<types::RunStarted> {
        let directive = self.find(name)?;
        let (run_id, existing) = steer::begin(&self.settings, jobs.as_ref(), &directive).await?;
        Ok(types::RunStarted { run_id, existing })
    }

    async fn runs(
        &self,
        directive: Option<&str>,
        before: Option<&str>,
        limit: u32,
    ) -> Answer<Vec<types::Run>> {
        let before = before.map(|id| RunId(id.to_owned()));
        let runs = self.store.runs(directive, before.as_ref(), limit).await?;
        Ok(runs.iter().map(view::run).collect())
    }

    async fn run(&self, id: &str) -> Answer<types::Run> {
        let found = self.store.run(&RunId(id.to_owned())).await?;
        found.as_ref().map(view::run).ok_or_else(|| Refusal::missing("run", cut(id)))
    }

    async fn cancel(&self, jobs: &SharedStore, id: &str) -> Answer<types::Run> {
        let run = self.store.run(&RunId(id.to_owned())).await?;
        let run = run.ok_or_else(|| Refusal::missing("run", cut(id)))?;
        if run.outcome.is_some() {
            let message = format!("run {} has ended", run.id);
            return Err(Refusal::new(stargate_web::Why::Conflict, "RUN_ENDED", message));
        }
        steer::ask_to_end(&self.settings, jobs.as_ref(), &self.store, &run).await?;
        self.run(id).await
    }

    async fn cursor(&self, name: &str) -> Answer<types::CursorDetail> {
        let keys = self.keys(name)?;
        let moves = self.store.kv_overrides(keys.cursor.as_str(), PAGE_MAX).await?;
        Ok(types::CursorDetail {
            cursor: self.store.kv_get(&keys.cursor).await?.map(view::entry),
            partial: self.store.kv_get(&keys.partial).await?.map(|entry| entry.value),
            moves: moves.into_iter().map(view::moved).collect(),
        })
    }

    async fn cursor_set(&self, name: &str, wanted: types::NewCursor) -> Answer<types::CursorMoved> {
        let keys = self.keys(name)?;
        let pointer = match &wanted.pointer {
            Some(pointer) => serde_json::from_str(pointer.get())
                .map_err(|error| Failure::input(format!("pointer is not one of a source: {error}")))?,
            None => stargate_directive::Pointer::Null,
        };
        let types::NewCursor { spec_ref, expected_version, .. } = wanted;
        let wanted = Move { pointer, spec_ref, expected_version };
        let (version, cursor) = steer::move_cursor(self.store.as_ref(), &keys, name, wanted).await?;
        Ok(types::CursorMoved { directive: name.to_owned(), version, cursor: payload::of(&cursor)? })
    }

    async fn quarantine(&self, asked: types::QuarantineAsked) -> Answer<Vec<types::Quarantined>> {
        let filter = QuarantineFilter {
            directive: asked.directive,
            resolved: asked.all,
            before: asked.before.map(QuarantineId),
            limit: asked.limit,
        };
        Ok(self.store.quarantine(filter).await?.into_iter().map(view::record).collect())
    }

    async fn quarantined(&self, id: i64) -> Answer<types::Quarantined> {
        Ok(view::record(steer::record(self.store.as_ref(), id).await?))
    }

    async fn quarantine_retry(&self, name: &str, ids: &[i64]) -> Answer<types::QuarantineRetried> {
        let (settings, store, tasks) =
            (Arc::clone(&self.settings), Arc::clone(&self.store), self.tasks.clone());
        let (name, ids) = (name.to_owned(), ids.to_vec());
        // A task of its own: a client that goes away must not leave it half done, with its lease taken.
        let retrying = self.tasks.spawn(async move {
            let retried = steer::retry_records(&settings, &store, &tasks, &name, &ids).await?;
            let (resolved, failed) = (retried.resolved, retried.unfit);
            Ok::<_, Failure>(types::QuarantineRetried { directive: name, resolved, failed })
        });
        let retried = retrying.await;
        Ok(retried.map_err(|error| Failure::failed("INTERNAL", format!("trying again ended: {error}")))??)
    }

    async fn quarantine_resolve(&self, id: i64) -> Answer<()> {
        Ok(steer::resolve(self.store.as_ref(), id).await?)
    }
}

/// A name that somebody sent, as far as it is worth repeating.
fn cut(name: &str) -> String {
    name.chars().take(100).collect()
}
