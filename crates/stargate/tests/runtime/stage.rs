//! A store, a home and the workers of one test, and what can be asked about their jobs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use stargate_queue::event::Event;
use stargate_queue::store::JobFilter;
use stargate_queue::{Job, JobId, SharedStore, State};
use stargate_store::postgres::{self, Postgres};
use stargate_store::sqlite::{self, Sqlite};
use stargate_testkit::eventually;
use stargate_testkit::postgres::Database;
use stargate_testkit::process::{Program, Running, get};

use crate::{PATIENCE, video};

/// Short enough to wait for, long enough for a busy machine.
const WORKER: &str = "worker.heartbeat = \"300ms\"\nworker.lease = \"5s\"\n";

/// Stands before the real ffmpeg. `-re` has it read no faster than the video plays, so that a test can catch it in the
/// middle; the file `slow` asks for that. Writes down each run.
const FFMPEG: &str = r#"#!/bin/sh
echo "$$ $*" >> "HOME/ffmpeg.log"
if [ -e "HOME/slow" ]; then exec ffmpeg -re "$@"; fi
exec ffmpeg "$@"
"#;

/// One test's surroundings.
pub(crate) struct Stage {
    pub(crate) program: Program,
    pub(crate) store: SharedStore,
    database: Option<Database>,
}

impl Stage {
    /// On SQLite, with more settings: lines as `clip.max_length = "5s"`.
    pub(crate) async fn sqlite(toml: &str) -> Self {
        let program = program(toml);
        let path = program.home().join("stargate.db");
        let store = Arc::new(Sqlite::open(&path, sqlite::Options::default()).await.unwrap());
        Self { program, store, database: None }
    }

    /// On Postgres, with more settings; see [`Stage::sqlite`].
    pub(crate) async fn postgres(toml: &str) -> Self {
        let options = || postgres::Options { migrate: true, ..postgres::Options::default() };
        let database = Database::create(async |url: String| {
            Postgres::connect(&url, options()).await.unwrap();
        })
        .await;
        let program = program(toml).with("STARGATE_STORE", database.url());
        let store = Arc::new(Postgres::connect(database.url(), options()).await.unwrap());
        Self { program, store, database: Some(database) }
    }

    /// Adds an environment variable for everything started from here.
    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.program = self.program.with(name, value);
        self
    }

    /// Removes what is kept outside the home.
    pub(crate) async fn close(self) {
        drop((self.program, self.store));
        if let Some(database) = self.database {
            database.remove().await;
        }
    }

    /// Where everything is kept.
    pub(crate) fn home(&self) -> &Path {
        self.program.home()
    }

    /// A worker that is ready.
    pub(crate) async fn worker(&self) -> Running {
        let mut worker = self.program.start(&["worker"]);
        worker.ready().await;
        worker
    }

    /// Whether the ffmpeg runs that begin from now on take as long as the video plays.
    pub(crate) fn set_slow(&self, slow: bool) {
        let file = self.home().join("slow");
        if slow {
            std::fs::write(file, "").unwrap();
        } else {
            std::fs::remove_file(file).unwrap();
        }
    }

    /// How often ffmpeg has been started to cut something.
    pub(crate) fn cuts(&self) -> usize {
        let log = std::fs::read_to_string(self.home().join("ffmpeg.log")).unwrap_or_default();
        log.lines().filter(|line| line.contains(" -i ")).count()
    }

    /// Hands in a job from the command line.
    pub(crate) fn enqueue(&self, kind: &str, payload: &Value) -> JobId {
        let id = self.program.answer(&["job", "enqueue", kind, &payload.to_string()]);
        id.parse().unwrap_or_else(|error| panic!("no id ({error}): {id}"))
    }

    /// The job as it is now.
    pub(crate) async fn job(&self, id: JobId) -> Job {
        let job = self.store.job(id).await.unwrap();
        job.unwrap_or_else(|| panic!("job {id} is gone"))
    }

    /// Its timeline.
    pub(crate) async fn events(&self, id: JobId) -> Vec<Event> {
        self.store.events(id, 0, 10_000).await.unwrap()
    }

    /// The names of its timeline; consecutive progress events are one.
    pub(crate) async fn story(&self, id: JobId) -> String {
        let mut names: Vec<String> = self.events(id).await.into_iter().map(|event| event.event).collect();
        names.dedup_by(|a, b| a == b && a == "progress");
        names.join(" ")
    }

    /// Waits for an end, which has to be this one.
    pub(crate) async fn ends(&self, id: JobId, state: State) -> Job {
        let job = eventually(PATIENCE, &format!("the end of job {id}"), || async {
            let job = self.job(id).await;
            if job.state.is_finished() { Ok(job) } else { Err(format!("{job:?}; {}", self.story(id).await)) }
        })
        .await;
        assert_eq!(job.state, state, "{job:?}; {}", self.story(id).await);
        job
    }

    /// Waits until no job is left to do.
    pub(crate) async fn is_idle(&self) {
        eventually(PATIENCE, "the end of all jobs", || async {
            let states = vec![State::Queued, State::Processing];
            let open =
                self.store.jobs(JobFilter { states, limit: 10, ..JobFilter::default() }).await.unwrap();
            if open.is_empty() { Ok(()) } else { Err(format!("{open:?}")) }
        })
        .await;
    }

    /// Waits until this worker runs the job.
    pub(crate) async fn runs_at(&self, id: JobId, worker: &Running) {
        eventually(PATIENCE, &format!("job {id} to run at process {}", worker.id()), || async {
            let job = self.job(id).await;
            let here =
                job.state == State::Processing && job.worker.as_deref().is_some_and(|name| is(name, worker));
            if here { Ok(()) } else { Err(format!("{job:?}")) }
        })
        .await;
    }

    /// Waits until the current attempt of a job has reported progress: its ffmpeg runs and writes.
    pub(crate) async fn is_being_cut(&self, id: JobId) {
        eventually(PATIENCE, &format!("progress of job {id}"), || async {
            let story = self.story(id).await;
            match story.ends_with("progress") {
                true => Ok(()),
                false => Err(format!("{story}; {:?}", self.job(id).await)),
            }
        })
        .await;
    }

    /// Where a job's results are, with artifacts in the default place.
    pub(crate) fn results(&self, id: JobId) -> PathBuf {
        self.home().join(format!("artifacts/results/{id}"))
    }

    /// What publications have on their way: temporary files and locks.
    pub(crate) fn partial(&self) -> PathBuf {
        self.home().join("artifacts/.partial")
    }

    /// The files among a job's results.
    pub(crate) fn result_names(&self, id: JobId) -> Vec<String> {
        let files = std::fs::read_dir(self.results(id)).into_iter().flatten().flatten();
        let mut names: Vec<String> = files.map(|file| file.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// One whole artifact of this length, and nothing beside it but its manifest. Answers its bytes.
    pub(crate) async fn check_artifact(&self, id: JobId, seconds: f64) -> Vec<u8> {
        assert_eq!(self.result_names(id), ["clip.mp4", "clip.mp4.json"], "job {id}");
        let file = self.results(id).join("clip.mp4");
        let bytes = std::fs::read(&file).unwrap();
        let manifest = std::fs::read(self.results(id).join("clip.mp4.json")).unwrap();
        let result: Value = serde_json::from_str(self.job(id).await.result.expect("a result").get()).unwrap();
        check_description(id, &bytes, &serde_json::from_slice(&manifest).unwrap(), &result);
        let length = video::seconds(&file);
        assert!((length - seconds).abs() < 0.2, "job {id}: {length} s instead of {seconds} s");
        bytes
    }

    /// The directories in the scratch space.
    pub(crate) fn scratch(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.home().join("scratch")).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    }
}

/// Manifest, result and bytes tell the same.
pub(crate) fn check_description(id: JobId, bytes: &[u8], manifest: &Value, result: &Value) {
    let sha256: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(manifest["key"], format!("results/{id}/clip.mp4"), "{manifest}");
    for described in [manifest, result] {
        assert_eq!(described["size"], bytes.len(), "job {id}: {described}");
        assert_eq!(described["sha256"], sha256, "job {id}: {described}");
    }
}

/// Whether a worker's name (`host:process:random`) belongs to this process.
pub(crate) fn is(name: &str, worker: &Running) -> bool {
    name.split(':').nth(1) == Some(&worker.id().to_string())
}

/// The sum of a metric over its labels.
pub(crate) async fn metric(worker: &Running, name: &str) -> f64 {
    let (_, body) = get(worker.address(), "/metrics").await.expect("metrics");
    let lines = body.lines().filter(|line| line.starts_with(name));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

fn program(toml: &str) -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_stargate"))
        // Several tests at once keep all cores busy; pausing under load is another test's business.
        .with("LOAD_THRESHOLD", "1000");
    let home = program.home().display().to_string();
    let ffmpeg = program.home().join("ffmpeg");
    std::fs::write(&ffmpeg, FFMPEG.replace("HOME", &home)).unwrap();
    std::fs::set_permissions(&ffmpeg, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let clip = format!("clip.ffmpeg = {ffmpeg:?}\n");
    std::fs::write(program.home().join("stargate.toml"), format!("{WORKER}{clip}{toml}")).unwrap();
    program
}
