//! `clip`: cuts a part out of a recording and publishes it as `results/{job}/clip.mp4`.
//!
//! Payload `{"source": PATH | http(s) URL | s3://bucket/key, "start": TIME, "end": TIME}` with times in seconds or as
//! `HH:MM:SS.mmm`. An end beyond the recording means its end. The order of work:
//!
//! 1. A valid artifact of this job is there already: `uploaded`, done, with nothing further to do.
//! 2. The source is found or downloaded; `source:ready`.
//! 3. ffmpeg cuts, by copying where the cut allows it and by encoding where not; `progress`.
//! 4. ffprobe looks at the clip. One that is not what was asked for is never published.
//! 5. The clip is published, if this attempt still holds the job; `uploaded`.
//!
//! A copy that fails its check is followed by an exact cut, and that by one that does not seek: containers lie about
//! their key frames, and in some of them ffmpeg lands elsewhere.
//!
//! Nothing stays behind but the artifact; after a failure also what scratch holds, for somebody to look at. The
//! partial download of a source that failed is not kept.

mod cut;
mod payload;
mod plan;
mod probe;
mod publication;
mod settings;
mod source;
mod tool;
mod verify;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use stargate_artifact::s3::Sources;
use stargate_artifact::scratch::{self, Scratch};
use stargate_artifact::{Artifacts, Found, Key, Steps, Unobserved};
use stargate_base::ErrorClass;
use stargate_queue::context::Context;
use stargate_queue::handler::{Failure, Handler, HandlerResult};
use stargate_queue::kind::Profile;

use crate::execution::{Execution, Reports, stopped};
use crate::fetch::{Fetcher, IDLE_MAX, Partial, Reach};
use payload::{Request, Source};
use plan::{Part, Plan};
use probe::{Media, Packet, ProbeError};
use publication::{About, adopt, storage};
pub use settings::Settings;
use source::Located;
use tool::Tools;

/// The kind.
pub const KIND: &str = "clip";

/// The source is larger than allowed.
pub const INPUT_TOO_LARGE: &str = "INPUT_TOO_LARGE";
/// The clip would be longer than allowed.
pub const CLIP_TOO_LONG: &str = "CLIP_TOO_LONG";
/// There is no such source.
pub const SOURCE_NOT_FOUND: &str = "SOURCE_NOT_FOUND";
/// The source is there, but not a recording that can be read.
pub const SOURCE_UNREADABLE: &str = "SOURCE_UNREADABLE";
/// The source's server or storage does not answer now.
pub const SOURCE_UNAVAILABLE: &str = "SOURCE_UNAVAILABLE";
/// The source's address leads to a private network.
pub const SSRF_BLOCKED: &str = "SSRF_BLOCKED";
/// ffmpeg made a clip that is not what was asked for.
pub const OUTPUT_VERIFICATION_FAILED: &str = "OUTPUT_VERIFICATION_FAILED";
/// Where artifacts are kept does not work now.
pub const STORAGE_UNAVAILABLE: &str = "STORAGE_UNAVAILABLE";
/// ffmpeg died.
pub const CLIP_FAILED: &str = "CLIP_FAILED";
/// The key holds the result of another request.
pub const ARTIFACT_FOREIGN: &str = "ARTIFACT_FOREIGN";
/// ffmpeg or ffprobe is not installed.
pub const FFMPEG_MISSING: &str = "FFMPEG_MISSING";

/// The name of the artifact.
pub const ARTIFACT: &str = "clip.mp4";
/// The event that tells how long and how large the source is.
const SOURCE_READY: &str = "source:ready";
/// A recording that begins later than this does not begin at zero.
const ORIGIN_SEC: f64 = 0.001;

/// How clips are treated by default.
pub fn profile() -> Profile {
    Profile { max_attempts: 3, timeout: Duration::from_secs(600), ..Profile::default() }
}

/// The handler could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("the client for downloads could not be set up")]
pub struct SetupError(#[source] reqwest::Error);

/// The handler.
#[derive(Clone)]
pub struct Clip {
    settings: Settings,
    artifacts: Arc<dyn Artifacts>,
    scratch: scratch::Root,
    buckets: Option<Arc<Sources>>,
    fetcher: Fetcher,
    steps: Arc<dyn Steps>,
}

impl std::fmt::Debug for Clip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clip")
            .field("ffmpeg", &self.settings.ffmpeg)
            .field("artifacts", &self.artifacts)
            .field("scratch", &self.scratch)
            .finish_non_exhaustive()
    }
}

/// A finished clip in scratch.
struct Made {
    path: PathBuf,
    length: f64,
    mode: &'static str,
}

impl Clip {
    /// A handler that publishes to `artifacts` and works in `scratch`. Without `buckets` it has no S3 sources.
    pub fn new(
        settings: Settings,
        artifacts: Arc<dyn Artifacts>,
        scratch: scratch::Root,
        buckets: Option<Arc<Sources>>,
    ) -> Result<Self, SetupError> {
        let reach = if settings.allow_private { Reach::Any } else { Reach::Public };
        let fetcher = Fetcher::new(reach, IDLE_MAX).map_err(SetupError)?;
        Ok(Self { settings, artifacts, scratch, buckets, fetcher, steps: Arc::new(Unobserved) })
    }

    /// Tells the steps of each publication.
    #[must_use]
    pub fn with_steps(mut self, steps: Arc<dyn Steps>) -> Self {
        self.steps = steps;
        self
    }

    async fn execute<R: Reports>(&self, execution: &Execution<'_>, reports: &R) -> HandlerResult {
        let request = payload::parse(execution.payload, self.settings.clip_max)?;
        let key = Key::result(execution.job, ARTIFACT).map_err(|error| storage(&error))?;
        let found = self.artifacts.find(&key);
        let found = until_stopped(execution, found).await?.map_err(|error| storage(&error))?;
        match found {
            Found::Valid(manifest) => return adopt(&manifest, &request, reports).await,
            Found::Damaged(why) => tracing::warn!(%key, why, "a damaged artifact is made anew"),
            Found::Absent => {}
        }
        let scratch = crate::execution::scratch(&self.scratch, execution).await?;
        let result = self.work(&request, &key, scratch.path(), execution, reports).await;
        // An attempt that is given back has not failed: there is nothing to be looked at.
        let is_well = result.as_ref().map_or_else(Failure::is_not_begun, |_| true);
        close(scratch, is_well).await;
        result
    }

    async fn work<R: Reports>(
        &self,
        request: &Request,
        key: &Key,
        scratch: &Path,
        execution: &Execution<'_>,
        reports: &R,
    ) -> HandlerResult {
        let tools = self.tools(execution);
        let located = until_stopped(execution, self.locate(&request.source, scratch)).await??;
        let (start, end) = (request.start.as_secs_f64(), request.end.as_secs_f64());
        // Most recordings begin at zero, so that both looks can be taken at once.
        let looks = (self.look(tools, &request.source, &located), self.frames(tools, &located, (start, end)));
        let (media, frames) = tokio::join!(looks.0, looks.1);
        let (media, mut frames) = (media?, frames?);
        let part = part(request, &media)?;
        reports.event(SOURCE_READY, &json!({ "durationSec": media.duration, "bytes": located.bytes })).await;
        if media.start.abs() > ORIGIN_SEC && plan::may_copy(&media) {
            frames = self.frames(tools, &located, (media.start + start, media.start + end)).await?;
        }
        let plan = plan::plan(&media, part, &frames);
        let made = self.make(tools, &media, (part, plan), &located, scratch, reports).await?;
        let is_cut_short =
            is_cut_short(request, media.duration, Some(made.length), verify::tolerance(&media));
        let about = About {
            request: Some(request.digest()),
            duration: millis(made.length),
            mode: Some(made.mode.to_owned()),
            cut_short: is_cut_short,
        };
        self.publish(key, &made.path, about, execution, reports).await
    }

    fn tools<'a>(&'a self, execution: &'a Execution<'_>) -> Tools<'a> {
        let Settings { inherited, grace, .. } = &self.settings;
        Tools { environment: inherited, grace: *grace, stopping: &execution.stopping }
    }

    async fn locate(&self, source: &Source, scratch: &Path) -> Result<Located, Failure> {
        let to = scratch.join("source");
        let bytes_max = self.settings.input_bytes_max;
        match source {
            Source::Local(path) => return source::local(&self.settings, path, source).await,
            Source::Web(url) => {
                let fetched = self.fetcher.fetch(url, &to, bytes_max).await;
                fetched.map_err(|error| source::not_fetched(source, error))?;
            }
            Source::S3(address) => {
                let Some(buckets) = &self.buckets else {
                    let message = format!("{source} cannot be read: this worker has no access to S3");
                    return Err(Failure::new(SOURCE_UNAVAILABLE, ErrorClass::Fatal, message));
                };
                let partial = Partial(Some(&to));
                let fetched = buckets.download(address, &to, bytes_max).await;
                fetched.map_err(|error| source::not_downloaded(source, bytes_max, &error))?;
                partial.keep();
            }
        }
        let downloaded = to.to_string_lossy();
        source::local(&Settings { source_roots: Vec::new(), ..self.settings.clone() }, &downloaded, source)
            .await
    }

    /// What is in the source.
    async fn look(&self, tools: Tools<'_>, source: &Source, located: &Located) -> Result<Media, Failure> {
        let media = match probe::probe(tools, &self.settings.ffprobe, &located.path).await {
            Ok(media) => media,
            Err(ProbeError::Failed(failure)) => return Err(failure),
            Err(ProbeError::Unreadable(said)) => {
                let message =
                    format!("{source} is not a recording in one of these containers: {}", tool::FORMATS);
                let failure = source::unreadable(message);
                return Err(match said {
                    Some(said) => failure.with_detail(said),
                    None => failure,
                });
            }
        };
        if media.video.is_none() && media.audio.is_none() {
            return Err(source::unreadable(format!("{source} holds neither video nor sound")));
        }
        Ok(media)
    }

    /// Cuts and checks.
    async fn make<R: Reports>(
        &self,
        tools: Tools<'_>,
        media: &Media,
        (part, plan): (Part, Plan),
        located: &Located,
        scratch: &Path,
        reports: &R,
    ) -> Result<Made, Failure> {
        let path = scratch.join(ARTIFACT);
        let to = path.to_string_lossy();
        let mut problem = String::new();
        for plan in plan.with_fallbacks(part) {
            cut::cut(tools, &self.settings.ffmpeg, media, plan, (&located.path, &to), reports).await?;
            let clip = match probe::probe(tools, &self.settings.ffprobe, &to).await {
                Ok(clip) => verify::verify(media, part, &clip),
                Err(ProbeError::Failed(failure)) => return Err(failure),
                Err(ProbeError::Unreadable(said)) => {
                    Err(said.unwrap_or_else(|| "it cannot be read".to_owned()))
                }
            };
            match clip {
                Ok(length) => {
                    return Ok(Made { path, length, mode: plan.mode() });
                }
                Err(wrong) => problem = wrong,
            }
            tracing::debug!(problem, ?plan, "a clip failed its check");
        }
        let message = format!("the clip is not what was asked for: {problem}");
        Err(Failure::new(OUTPUT_VERIFICATION_FAILED, ErrorClass::ValidationFailure, message))
    }

    /// The frames around a part, if they can be told.
    async fn frames(
        &self,
        tools: Tools<'_>,
        located: &Located,
        range: (f64, f64),
    ) -> Result<Vec<Packet>, Failure> {
        match probe::packets(tools, &self.settings.ffprobe, &located.path, range).await {
            Ok(packets) => Ok(packets),
            Err(ProbeError::Failed(failure)) => Err(failure),
            Err(ProbeError::Unreadable(_)) => Ok(Vec::new()),
        }
    }
}

#[async_trait]
impl Handler for Clip {
    async fn run(&self, context: Context) -> HandlerResult {
        self.execute(&Execution::of(&context), &context).await
    }
}

async fn until_stopped<T>(execution: &Execution<'_>, work: impl Future<Output = T>) -> Result<T, Failure> {
    tokio::select! {
        done = work => Ok(done),
        () = execution.stopping.cancelled() => Err(stopped()),
    }
}

/// What of the recording is asked for. The end is moved to that of the recording.
fn part(request: &Request, media: &Media) -> Result<Part, Failure> {
    let (start, end) = (request.start.as_secs_f64(), request.end.as_secs_f64());
    let frame = media.video.as_ref().map_or(0.0, |video| video.frame);
    // Less than a frame holds no picture.
    let end = end.max(start + frame);
    let Some(duration) = media.duration else { return Ok(Part { start, length: end - start }) };
    if start + frame > duration || start >= duration {
        let message = format!("start is {start} s, but the source is only {} s long", millis(duration));
        return Err(Failure::invalid(message));
    }
    Ok(Part { start, length: end.min(duration) - start })
}

/// Whether the recording, or the clip of a recording of unknown length, ended before what was asked for.
fn is_cut_short(request: &Request, duration: Option<f64>, length: Option<f64>, tolerance: f64) -> bool {
    match (duration, length) {
        (Some(duration), _) => request.end.as_secs_f64() > duration + tolerance,
        (None, Some(length)) => length < request.length().as_secs_f64() - tolerance,
        (None, None) => false,
    }
}

fn millis(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}

/// A failure that left nothing has nothing to be looked at.
async fn close(scratch: Scratch, is_well: bool) {
    let path = scratch.path().to_owned();
    let is_empty = tokio::task::spawn_blocking(move || {
        std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
    });
    if is_well || is_empty.await.unwrap_or(false) {
        scratch.succeeded().await;
    } else {
        scratch.failed().await;
    }
}

#[cfg(test)]
mod tests;
