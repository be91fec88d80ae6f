//! What a `clip` job takes beyond the bare ffmpeg that makes the same cut.
//!
//! A first job is run with a script in ffmpeg's place that notes the arguments; the bare runs use the same ones. Then
//! jobs and bare runs take turns. A job counts from the call that enqueues it until the store says that it is done: the
//! claim, both looks at the files, the check, the published artifact with its sync, and the outcome are all in it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;
use stargate_artifact::{Local, scratch};
use stargate_base::Tasks;
use stargate_jobs::clip::{self, Clip, Settings};
use stargate_queue::{NewJob, Pool, Registry, SharedStore, State};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use crate::noop;
use crate::report::{Goal, heading, line, median};

/// The recording is so long, in seconds, with a key frame every ten.
const SOURCE_SECONDS: u32 = 90;

pub(crate) async fn run(ffmpeg: &str, ffprobe: &str, repeats: usize) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let source = folder.path().join("source.mp4");
    make_source(ffmpeg, &source).await?;
    let programs = Programs { ffmpeg: ffmpeg.into(), ffprobe: ffprobe.into() };
    heading(&format!("clip, beside the bare ffmpeg run of the same cut, alternating, median of {repeats}"));
    // Between key frames it has to be encoded, from one to another it is copied.
    compare(folder.path(), &programs, &source, Cut { name: "encode", start: 12.34, end: 42.34 }, repeats)
        .await?;
    compare(folder.path(), &programs, &source, Cut { name: "copy", start: 10.0, end: 40.0 }, repeats).await
}

struct Programs {
    ffmpeg: PathBuf,
    ffprobe: PathBuf,
}

struct Cut {
    /// How it is to be made.
    name: &'static str,
    start: f64,
    end: f64,
}

async fn compare(folder: &Path, programs: &Programs, source: &Path, cut: Cut, repeats: usize) -> Result<()> {
    let noted = folder.join(format!("{}.arguments", cut.name));
    let script = noting(folder, &cut, &programs.ffmpeg, &noted)?;
    let worker = Worker::start(folder, &script, &programs.ffprobe).await?;
    worker.run(source, &cut).await?;
    worker.stop().await;
    let arguments = std::fs::read_to_string(&noted).context("the script noted nothing")?;
    let mut arguments: Vec<String> = arguments.lines().map(ToOwned::to_owned).collect();
    let bare = folder.join(format!("{}.mp4", cut.name));
    *arguments.last_mut().context("ffmpeg had no arguments")? = format!("file:{}", bare.display());

    let worker = Worker::start(folder, &programs.ffmpeg, &programs.ffprobe).await?;
    worker.run(source, &cut).await?;
    let (mut jobs, mut bares, mut ratios) = (vec![], vec![], vec![]);
    for round in 0..repeats {
        // Whoever comes second finds the machine as the first left it, so they take turns in that too.
        let (job, alone) = if round % 2 == 0 {
            let job = worker.run(source, &cut).await?;
            (job, run_bare(&programs.ffmpeg, &arguments).await?)
        } else {
            let alone = run_bare(&programs.ffmpeg, &arguments).await?;
            (worker.run(source, &cut).await?, alone)
        };
        jobs.push(job);
        bares.push(alone);
        ratios.push(job / alone);
    }
    worker.stop().await;
    let (job, alone, name) = (median(jobs), median(bares), cut.name);
    line(&format!("{name}: bare ffmpeg"), alone * 1e3, "ms", &Goal::None);
    line(&format!("{name}: job"), job * 1e3, "ms", &Goal::None);
    line(&format!("{name}: job - ffmpeg"), (job - alone) * 1e3, "ms", &Goal::None);
    line(&format!("{name}: job / ffmpeg, median of pairs"), median(ratios), "", &Goal::AtMost(1.05));
    Ok(())
}

/// A script that notes its arguments and does what ffmpeg does.
fn noting(folder: &Path, cut: &Cut, ffmpeg: &Path, noted: &Path) -> Result<PathBuf> {
    let path = folder.join(format!("{}.sh", cut.name));
    let text = format!(
        "#!/bin/sh\nprintf '%s\\n' \"$@\" >'{}'\nexec '{}' \"$@\"\n",
        noted.display(),
        ffmpeg.display()
    );
    std::fs::write(&path, text)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// A test picture that moves, with a tone.
async fn make_source(ffmpeg: &str, to: &Path) -> Result<()> {
    let video = format!("testsrc2=size=1280x720:rate=30:duration={SOURCE_SECONDS}");
    let audio = format!("sine=frequency=440:duration={SOURCE_SECONDS}");
    let arguments = ["-hide_banner", "-nostdin", "-loglevel", "error", "-y", "-f", "lavfi", "-i", &video]
        .into_iter()
        .chain(["-f", "lavfi", "-i", &audio, "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt"])
        .chain(["yuv420p", "-g", "300", "-bf", "0", "-sc_threshold", "0", "-c:a", "aac"])
        .map(ToOwned::to_owned)
        .chain([format!("file:{}", to.display())])
        .collect::<Vec<_>>();
    run_bare(Path::new(ffmpeg), &arguments).await.map(drop)
}

/// Runs ffmpeg alone; answers seconds.
async fn run_bare(ffmpeg: &Path, arguments: &[String]) -> Result<f64> {
    let began = Instant::now();
    #[expect(clippy::disallowed_methods, reason = "the bare program is what clip is measured against")]
    let status = Command::new(ffmpeg).args(arguments).stdout(Stdio::null()).status().await?;
    ensure!(status.success(), "{} {arguments:?}: {status}", ffmpeg.display());
    Ok(began.elapsed().as_secs_f64())
}

/// A worker with default settings that cuts clips.
struct Worker {
    store: SharedStore,
    stop: CancellationToken,
    tasks: Tasks,
}

impl Worker {
    async fn start(folder: &Path, ffmpeg: &Path, ffprobe: &Path) -> Result<Self> {
        let store = noop::open(&format!("sqlite:{}", folder.join("bench.db").display())).await?;
        let settings = Settings {
            ffmpeg: ffmpeg.to_owned(),
            ffprobe: ffprobe.to_owned(),
            inherited: stargate_jobs::process::inherited(std::env::vars_os()),
            ..Settings::default()
        };
        let artifacts = Arc::new(Local::new(folder.join("artifacts")));
        let limits = scratch::Limits { age_max: Duration::from_secs(3600), bytes_max: 10 << 30 };
        let scratch = scratch::Root::new(folder.join("scratch"), limits, false);
        let mut registry = Registry::new();
        let clip = Clip::new(settings, artifacts, scratch, None)?;
        registry.register(clip::KIND, clip::profile(), Arc::new(clip))?;
        let pool = Pool::start(store.clone(), registry, noop::config()).await?;
        let (stop, tasks) = (CancellationToken::new(), Tasks::new());
        tasks.spawn(pool.run(stop.clone()));
        Ok(Self { store, stop, tasks })
    }

    /// Runs one job; answers seconds.
    async fn run(&self, source: &Path, cut: &Cut) -> Result<f64> {
        let payload = json!({ "source": source, "start": cut.start, "end": cut.end });
        let began = Instant::now();
        let id = self.store.enqueue(vec![NewJob::of(clip::KIND, &payload)?]).await?[0].id;
        let job = loop {
            let job = self.store.job(id).await?.context("the job is gone")?;
            if job.state.is_finished() {
                break job;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        };
        let took = began.elapsed().as_secs_f64();
        let result = job.result.as_ref().map_or("", |result| result.get());
        if job.state != State::Done || !result.contains(cut.name) {
            bail!("the clip was not made by {}: {job:?}", cut.name);
        }
        Ok(took)
    }

    async fn stop(self) {
        self.stop.cancel();
        self.tasks.join().await;
    }
}
