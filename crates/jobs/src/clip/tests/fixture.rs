//! A handler over fresh directories, and the recordings it cuts.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use stargate_artifact::local::Local;
use stargate_artifact::{Artifacts, Key, scratch};
use stargate_queue::handler::{Failure, HandlerResult};
use stargate_queue::job::JobId;
use tokio_util::sync::CancellationToken;

use super::super::tool::{Collected, Tools};
use super::super::{Clip, Settings};
use crate::execution::{Execution, Reports};

/// What was reported, and whether the job is still held.
pub(super) struct Heard {
    pub(super) lines: Mutex<Vec<String>>,
    pub(super) holds: AtomicBool,
}

impl Default for Heard {
    fn default() -> Self {
        Self { lines: Mutex::default(), holds: AtomicBool::new(true) }
    }
}

impl Heard {
    fn say(&self, line: String) {
        self.lines.lock().unwrap().push(line);
    }

    /// Names of events, repeated ones once.
    pub(super) fn names(&self) -> Vec<String> {
        let lines = self.lines.lock().unwrap();
        let mut names: Vec<String> =
            lines.iter().map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect();
        names.dedup();
        names
    }

    pub(super) fn percentages(&self) -> Vec<u8> {
        let lines = self.lines.lock().unwrap();
        lines.iter().filter_map(|line| line.strip_prefix("progress ")?.parse().ok()).collect()
    }
}

impl Reports for Heard {
    async fn progress(&self, percent: u8) {
        self.say(format!("progress {percent}"));
    }

    async fn event(&self, name: &str, data: &Value) {
        self.say(format!("{name} {data}"));
    }

    async fn earlier(&self, name: &str) -> Option<Value> {
        let lines = self.lines.lock().unwrap();
        let data = lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        Some(serde_json::from_str(data).unwrap())
    }

    async fn holds(&self) -> bool {
        self.holds.load(Ordering::SeqCst)
    }
}

/// Directories, and how the handler is set up.
pub(super) struct Bench {
    pub(super) dir: tempfile::TempDir,
    pub(super) settings: Settings,
    pub(super) heard: Heard,
    pub(super) stopping: CancellationToken,
}

impl Bench {
    pub(super) fn new() -> Self {
        let settings = Settings {
            inherited: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
            grace: Duration::from_millis(200),
            ..Settings::default()
        };
        let dir = tempfile::tempdir().unwrap();
        Self { dir, settings, heard: Heard::default(), stopping: CancellationToken::new() }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn artifacts(&self) -> Local {
        Local::new(self.path("artifacts"))
    }

    pub(super) fn artifact(&self) -> PathBuf {
        self.artifacts().path(&Key::result(42, "clip.mp4").unwrap())
    }

    pub(super) fn clip(&self) -> Clip {
        self.clip_to(Arc::new(self.artifacts()))
    }

    /// A handler that publishes elsewhere.
    pub(super) fn clip_to(&self, artifacts: Arc<dyn Artifacts>) -> Clip {
        let root = scratch::Root::new(self.path("scratch"), scratch::Limits::default(), false);
        Clip::new(self.settings.clone(), artifacts, root, None).unwrap()
    }

    pub(super) async fn run_with(&self, clip: &Clip, payload: &Value) -> HandlerResult {
        let payload = payload.to_string();
        let execution = Execution {
            job: JobId(42),
            attempt: 1,
            kind: super::super::KIND,
            queue: "default",
            payload: &payload,
            trace_id: None,
            timeout: Duration::from_secs(60),
            stopping: self.stopping.clone(),
        };
        let run = clip.execute(&execution, &self.heard);
        tokio::time::timeout(Duration::from_secs(60), run).await.expect("the execution hangs")
    }

    pub(super) async fn cut(&self, source: &str, start: f64, end: f64) -> HandlerResult {
        self.run_with(&self.clip(), &json!({ "source": source, "start": start, "end": end })).await
    }

    /// Cuts a file of this bench.
    pub(super) async fn cut_file(&self, name: &str, start: f64, end: f64) -> Value {
        let result = self.cut(self.path(name).to_str().unwrap(), start, end).await;
        serde_json::from_str(result.unwrap().unwrap().get()).unwrap()
    }

    pub(super) async fn failure(&self, source: &str) -> Failure {
        self.cut(source, 0.0, 1.0).await.unwrap_err()
    }

    /// What is left in scratch.
    pub(super) fn scratch(&self) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(self.path("scratch")) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// Runs ffmpeg and answers what it says on stdout.
    pub(super) async fn ffmpeg(&self, program: &str, args: &[&str]) -> String {
        String::from_utf8(self.ffmpeg_bytes(program, args).await).unwrap()
    }

    pub(super) async fn ffmpeg_bytes(&self, program: &str, args: &[&str]) -> Vec<u8> {
        let tools = Tools {
            environment: &self.settings.inherited,
            grace: Duration::from_secs(1),
            stopping: &CancellationToken::new(),
        };
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let mut said = Collected::new(1 << 20);
        let ended = tools.run(Path::new(program), &args, &mut said).await.unwrap().unwrap();
        assert!(ended.status.success(), "{program} {args:?}: {:?}", ended.stderr);
        said.bytes
    }

    /// Six seconds of pictures and sound at 25 frames a second, with a key frame every `gop` frames.
    pub(super) async fn video(&self, name: &str, gop: u32, options: &[&str]) -> PathBuf {
        let (path, gop) = (self.path(name), gop.to_string());
        let mut args: Vec<&str> = "-hide_banner -loglevel error -nostdin -y \
            -f lavfi -i testsrc2=size=160x120:rate=25:duration=6 -f lavfi -i sine=frequency=440:duration=6"
            .split_ascii_whitespace()
            .collect();
        args.extend(["-g", &gop, "-keyint_min", &gop, "-sc_threshold", "0"]);
        if !options.contains(&"-c:v") {
            args.extend(["-c:v", "libx264", "-preset", "veryfast", "-c:a", "aac"]);
        }
        args.extend(options);
        let address = format!("file:{}", path.display());
        args.push(&address);
        self.ffmpeg("ffmpeg", &args).await;
        path
    }

    /// Duration of a file, the number of its video frames and its streams.
    pub(super) async fn measure(&self, path: &Path) -> (f64, u32, String) {
        let address = format!("file:{}", path.display());
        let entries = "format=duration:stream=codec_type,codec_name,nb_frames";
        let args = ["-loglevel", "error", "-print_format", "json", "-show_entries", entries, &address];
        let answer: Value = serde_json::from_str(&self.ffmpeg("ffprobe", &args).await).unwrap();
        let streams = answer["streams"].as_array().unwrap();
        let video = streams.iter().find(|stream| stream["codec_type"] == "video");
        let frames = video.map_or(0, |stream| stream["nb_frames"].as_str().unwrap().parse().unwrap());
        let names: Vec<&str> = streams.iter().map(|stream| stream["codec_name"].as_str().unwrap()).collect();
        (answer["format"]["duration"].as_str().unwrap().parse().unwrap(), frames, names.join(" "))
    }
}

/// Asserts a failure's code and that it says what it must.
#[track_caller]
pub(super) fn assert_failure(failure: &Failure, code: &str, says: &str) {
    let error = &failure.error;
    assert_eq!(error.code, code, "{error:?}");
    assert!(error.message.contains(says), "{:?} does not say {says:?}", error.message);
}
