//! `post-receive`: refs have moved; write it down. The journal first, then the store in one transaction.
//!
//! git ignores how this hook ends, and the push is accepted already. So it never fails: it has five seconds, warns the
//! pusher about what it could not write, and leaves that to reconcile.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value};
use stargate_base::chain;
use stargate_git::RefPattern;
use stargate_mirror::journal::APPEND_ENTRIES_MAX;
use stargate_mirror::{Journal, NewEntry};
use tokio::time::Instant;

use super::pre_receive::REFS_MAX;
use super::{Context, RefUpdate, read_updates};

/// What the hook may take in all: the pusher waits for it.
pub const BUDGET: Duration = Duration::from_secs(5);
/// What our journal lines say in `source`.
pub const SOURCE: &str = "post-receive";
/// Refs of one push that are mirrored in one atomic push at most; more go one by one.
pub const TRANSACTION_REFS_MAX: usize = 100;

/// Which refs are journaled, and where.
#[derive(Debug, Clone)]
pub struct Journaling {
    /// The bare repository.
    pub repo_dir: PathBuf,
    /// Refs that are mirrored.
    pub patterns: Vec<RefPattern>,
}

/// A push that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushRecord {
    /// What the hook knows about it.
    pub context: Context,
    /// The refs that moved, mirrored or not.
    pub updates: Vec<RefUpdate>,
}

/// Why a push could not be recorded.
pub type SinkError = Box<dyn std::error::Error + Send + Sync>;

/// Where accepted pushes are recorded.
#[async_trait]
pub trait PushSink: Send + Sync {
    /// Does what can be done before there is something to record, while the journal is written. Trouble is told by
    /// [`PushSink::record`], which tries again.
    async fn prepare(&self) {}

    /// Records the push in one transaction: all of it, or nothing. May be dropped at any moment.
    async fn record(&self, push: &PushRecord) -> Result<(), SinkError>;
}

/// Runs the hook. Whatever happens, the exit code is 0.
///
/// After [`BUDGET`] the journal may still be waiting for its lock on a thread of its own: the caller ends its process
/// without waiting for that thread.
pub async fn run(
    input: impl BufRead,
    pusher: impl Write,
    context: &Context,
    journaling: &Journaling,
    sink: &dyn PushSink,
) {
    run_within(BUDGET, input, pusher, context, journaling, sink).await;
}

async fn run_within(
    budget: Duration,
    input: impl BufRead,
    mut pusher: impl Write,
    context: &Context,
    journaling: &Journaling,
    sink: &dyn PushSink,
) {
    let deadline = Instant::now() + budget;
    let mut warn = |what: &str, why: &str| {
        tracing::warn!(
            repo = context.repo.as_deref(),
            request = context.request_id.as_deref(),
            why,
            "{what}"
        );
        let _ = writeln!(pusher, "stargate: warning: {what}: {why}");
    };
    // pre-receive has seen the same list within its own limit, which may be set higher than the usual one.
    let updates = match read_updates(input, REFS_MAX.saturating_mul(1000)) {
        Ok(updates) => updates,
        Err(error) => return warn("the push was accepted but could not be recorded", &error.to_string()),
    };
    for update in updates.iter().filter(|update| update.is_delete() && is_mirrored(journaling, update)) {
        warn(&format!("{} was deleted here only", update.name), "the mirror never deletes");
    }
    let prepare = tokio::time::timeout_at(deadline, sink.prepare());
    let journal = journal(entries(&updates, context, journaling), journaling, deadline);
    let (journaled, _) = tokio::join!(journal, prepare);
    if let Err(why) = journaled {
        warn("the push was accepted but not journaled; the mirror will find it later", &why);
    }
    let record = PushRecord { context: context.clone(), updates };
    let recorded = tokio::time::timeout_at(deadline, sink.record(&record)).await;
    let why = match recorded {
        Ok(Ok(())) => return,
        Ok(Err(error)) => chain(error.as_ref()),
        Err(_) => "there was no time left".to_owned(),
    };
    warn("the push was accepted but its follow-up work was not recorded", &why);
}

async fn journal(entries: Vec<NewEntry>, journaling: &Journaling, deadline: Instant) -> Result<(), String> {
    if entries.is_empty() {
        return Ok(());
    }
    let dir = journaling.repo_dir.clone();
    let append = tokio::task::spawn_blocking(move || {
        let journal = Journal::open(&dir)?;
        entries.chunks(APPEND_ENTRIES_MAX).try_for_each(|entries| journal.append(entries).map(drop))
    });
    match tokio::time::timeout_at(deadline, append).await {
        Ok(Ok(Ok(()))) => Ok(()),
        Ok(Ok(Err(error))) => Err(chain(&error)),
        Ok(Err(_)) => Err("the journal panicked".to_owned()),
        Err(_) => Err("there was no time left".to_owned()),
    }
}

fn is_mirrored(journaling: &Journaling, update: &RefUpdate) -> bool {
    journaling.patterns.iter().any(|pattern| pattern.matches(&update.name))
}

/// The journal lines of a push: one for each mirrored ref, tied together if there are several.
fn entries(updates: &[RefUpdate], context: &Context, journaling: &Journaling) -> Vec<NewEntry> {
    let moved: Vec<&RefUpdate> =
        updates.iter().filter(|update| !update.is_delete() && is_mirrored(journaling, update)).collect();
    let mut meta = Map::new();
    if let Some(id) = &context.request_id {
        meta.insert("request_id".to_owned(), Value::from(id.as_str()));
    }
    if let Some(epoch) = context.epoch {
        meta.insert("epoch".to_owned(), Value::from(epoch));
    }
    if (2..=TRANSACTION_REFS_MAX).contains(&moved.len()) {
        // Random, not the request's id: a client may choose that one, and use it twice.
        meta.insert("txn_id".to_owned(), Value::from(format!("{:032x}", rand::random::<u128>())));
    }
    let entry = |update: &RefUpdate| NewEntry {
        ns: Some(update.name.last_part().to_owned()),
        ref_name: update.name.as_str().to_owned(),
        old_oid: (!update.is_create()).then(|| update.old.as_str().to_owned()),
        new_oid: update.new.as_str().to_owned(),
        pusher: context.pusher.clone(),
        repo: context.repo.clone(),
        source: SOURCE.to_owned(),
        meta: meta.clone(),
        ..NewEntry::default()
    };
    moved.into_iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::test_updates::update;
    use super::*;

    /// Keeps what was recorded, or fails, or hangs.
    #[derive(Default)]
    struct Kept {
        records: Mutex<Vec<PushRecord>>,
        trouble: Option<&'static str>,
    }

    #[async_trait]
    impl PushSink for Kept {
        async fn record(&self, push: &PushRecord) -> Result<(), SinkError> {
            match self.trouble {
                Some("hangs") => std::future::pending().await,
                Some(trouble) => return Err(trouble.into()),
                None => self.records.lock().unwrap().push(push.clone()),
            }
            Ok(())
        }
    }

    fn journaling(dir: &std::path::Path) -> Journaling {
        Journaling { repo_dir: dir.to_owned(), patterns: vec![RefPattern::parse("refs/kv/*").unwrap()] }
    }

    fn context() -> Context {
        Context {
            repo: Some("team/tools".into()),
            epoch: Some(7),
            request_id: Some("r".into()),
            ..Context::default()
        }
    }

    fn input(updates: &[RefUpdate]) -> String {
        updates.iter().map(|u| format!("{} {} {}\n", u.old.as_str(), u.new.as_str(), u.name)).collect()
    }

    async fn told(updates: &[RefUpdate], dir: &std::path::Path, sink: &Kept) -> String {
        let mut told = Vec::new();
        let budget = Duration::from_secs(5);
        run_within(budget, input(updates).as_bytes(), &mut told, &context(), &journaling(dir), sink).await;
        String::from_utf8(told).unwrap()
    }

    fn journal_lines(dir: &std::path::Path) -> Vec<Value> {
        let text = std::fs::read_to_string(dir.join(".stargate/mirror-journal.ndjson")).unwrap_or_default();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line.get("ref").is_some()).collect()
    }

    #[tokio::test]
    async fn mirrored_refs_are_journaled_and_every_ref_is_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let updates = [update('0', 'a', "refs/kv/main"), update('a', 'b', "refs/heads/x")];
        let sink = Kept::default();
        assert_eq!(told(&updates, dir.path(), &sink).await, "");
        let lines = journal_lines(dir.path());
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0]["ref"], "refs/kv/main");
        assert_eq!(lines[0]["ns"], "main");
        assert_eq!(lines[0]["old_oid"], Value::Null);
        assert_eq!(lines[0]["repo"], "team/tools");
        assert_eq!(lines[0]["meta"], serde_json::json!({"epoch": 7, "request_id": "r"}));
        let records = sink.records.lock().unwrap();
        assert_eq!((records.len(), &records[0].updates[..]), (1, &updates[..]));
    }

    #[test]
    fn refs_that_were_pushed_together_are_mirrored_together() {
        let journaling = journaling(std::path::Path::new("/"));
        let two = [update('0', 'a', "refs/kv/a"), update('0', 'a', "refs/kv/b")];
        let made = entries(&two, &context(), &journaling);
        assert!(made[0].meta["txn_id"].is_string());
        assert_eq!(made[0].meta["txn_id"], made[1].meta["txn_id"]);
        assert_ne!(made[0].meta["txn_id"], entries(&two, &context(), &journaling)[0].meta["txn_id"]);
        assert!(!entries(&two[..1], &context(), &journaling)[0].meta.contains_key("txn_id"));
        let many: Vec<RefUpdate> =
            (0..=TRANSACTION_REFS_MAX).map(|n| update('0', 'a', &format!("refs/kv/{n}"))).collect();
        assert!(!entries(&many, &context(), &journaling)[0].meta.contains_key("txn_id"));
    }

    #[tokio::test]
    async fn a_deleted_ref_is_not_journaled_and_the_pusher_hears_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let warned = told(&[update('a', '0', "refs/kv/main")], dir.path(), &Kept::default()).await;
        assert!(warned.contains("refs/kv/main was deleted here only"), "{warned}");
        assert_eq!(journal_lines(dir.path()), [] as [Value; 0]);
    }

    #[tokio::test]
    async fn trouble_with_one_place_does_not_keep_the_push_from_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let updates = [update('0', 'a', "refs/kv/main")];
        let failing = Kept { trouble: Some("the store is away"), ..Kept::default() };
        let warned = told(&updates, dir.path(), &failing).await;
        assert!(warned.contains("follow-up work was not recorded: the store is away"), "{warned}");
        assert_eq!(journal_lines(dir.path()).len(), 1);

        let file = dir.path().join("no-directory");
        std::fs::write(&file, "").unwrap();
        let sink = Kept::default();
        let warned = told(&updates, &file, &sink).await;
        assert!(warned.contains("not journaled"), "{warned}");
        assert_eq!(sink.records.lock().unwrap().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_does_not_answer_costs_no_more_than_the_budget() {
        let dir = tempfile::tempdir().unwrap();
        let hanging = Kept { trouble: Some("hangs"), ..Kept::default() };
        let warned = told(&[update('0', 'a', "refs/heads/x")], dir.path(), &hanging).await;
        assert!(warned.contains("no time left"), "{warned}");
    }

    #[tokio::test]
    async fn input_that_cannot_be_read_is_a_warning_too() {
        let dir = tempfile::tempdir().unwrap();
        let mut told = Vec::new();
        run(&b"garbage\n"[..], &mut told, &context(), &journaling(dir.path()), &Kept::default()).await;
        assert!(String::from_utf8(told).unwrap().contains("could not be recorded"));
    }
}
