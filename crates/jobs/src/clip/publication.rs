//! How a clip becomes an artifact, and the artifact the result; also when an earlier attempt has published it.

use std::path::Path;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::json;
use stargate_artifact::{Error, Key, Manifest, Permit, Published, Publisher};
use stargate_base::{ErrorClass, chain};
use stargate_queue::handler::{Failure, HandlerResult};

use super::payload::Request;
use super::{ARTIFACT_FOREIGN, Clip, SOURCE_READY, STORAGE_UNAVAILABLE, is_cut_short, millis, until_stopped};
use crate::execution::{Execution, Reports, shortened};

/// What counts as the same end of a clip of which nothing is known but the request.
const ADOPTED_TOLERANCE_SEC: f64 = 0.2;

/// What the result tells of a clip besides its bytes. Kept in the manifest, for those who adopt it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct About {
    /// What was asked for ([`Request::digest`]). Jobs of two stores can have the same number, and so the same key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) request: Option<String>,
    /// In seconds.
    pub(super) duration: f64,
    /// How it was cut; not known of one whose manifest does not tell.
    pub(super) mode: Option<String>,
    /// The recording ended before the end that was asked for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) cut_short: bool,
}

/// Who made the artifact that is the result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Author {
    This,
    Another,
}

impl Clip {
    /// Publishes a clip, or takes the one that is there, and answers the result.
    pub(super) async fn publish<R: Reports>(
        &self,
        key: &Key,
        clip: &Path,
        about: About,
        execution: &Execution<'_>,
        reports: &R,
    ) -> HandlerResult {
        let attempt = format!("{}-{}", execution.job, execution.attempt);
        let kept = serde_json::to_value(&about)?;
        let by = Publisher {
            attempt: &attempt,
            permit: &Holder(reports),
            about: Some(&kept),
            steps: self.steps.as_ref(),
        };
        match until_stopped(execution, self.artifacts.publish(key, clip, by)).await? {
            Ok(Published::Stored(manifest)) => finish(&manifest, about, Author::This, reports).await,
            Ok(Published::Adopted(manifest)) => {
                let asked = about.request.clone().unwrap_or_default();
                let about = told(&manifest, &asked)?.unwrap_or(About { mode: None, ..about });
                finish(&manifest, about, Author::Another, reports).await
            }
            Err(error @ Error::Busy { .. }) => Err(self.give_back(execution, &error).await),
            Err(error) => Err(storage(&error)),
        }
    }

    /// The one that holds the place may belong to a process that stands still for long. That is not this job's fault:
    /// the attempt does not count, and the next one waits for the place again.
    async fn give_back(&self, execution: &Execution<'_>, error: &Error) -> Failure {
        let why = chain(error);
        tracing::warn!(job = %execution.job, attempt = execution.attempt, why, "a clip cannot be published yet");
        let _ = tokio::time::timeout(self.settings.busy_delay, execution.stopping.cancelled()).await;
        Failure::not_begun(why)
    }
}

/// Asks the store whether the attempt may still publish.
struct Holder<'a, R>(&'a R);

#[async_trait]
impl<R: Reports> Permit for Holder<'_, R> {
    async fn holds(&self) -> bool {
        self.0.holds().await
    }
}

/// An earlier attempt has published and then died: its clip is the result.
pub(super) async fn adopt<R: Reports>(manifest: &Manifest, request: &Request, reports: &R) -> HandlerResult {
    let about = match told(manifest, &request.digest())? {
        Some(about) => about,
        None => guessed(request, reports).await,
    };
    finish(manifest, about, Author::Another, reports).await
}

/// What the manifest tells of a clip. One that was asked for in other words is not ours to take, nor to replace.
fn told(manifest: &Manifest, asked: &str) -> Result<Option<About>, Failure> {
    let about = manifest.about.as_ref().and_then(|about| About::deserialize(about).ok());
    let request = about.as_ref().and_then(|about| about.request.as_deref());
    if request.is_some_and(|request| request != asked) {
        let message = format!(
            "{} holds the result of other work, so this store of jobs and this place for artifacts do not belong together; \
             name another place with artifacts.url or move that result away, then retry",
            manifest.key
        );
        return Err(Failure::new(ARTIFACT_FOREIGN, ErrorClass::Fatal, message));
    }
    Ok(about)
}

/// What a clip must be whose manifest tells nothing. How long the recording was its author may have reported.
async fn guessed<R: Reports>(request: &Request, reports: &R) -> About {
    let ready = reports.earlier(SOURCE_READY).await;
    let duration = ready.and_then(|data| data["durationSec"].as_f64());
    let end = duration.map_or(request.end.as_secs_f64(), |duration| duration.min(request.end.as_secs_f64()));
    About {
        request: None,
        duration: millis(end - request.start.as_secs_f64()),
        mode: None,
        cut_short: is_cut_short(request, duration, None, ADOPTED_TOLERANCE_SEC),
    }
}

/// Tells that the clip is there, and answers the result: the same for whoever published it.
async fn finish<R: Reports>(manifest: &Manifest, about: About, author: Author, reports: &R) -> HandlerResult {
    let mut event = json!({ "key": manifest.key, "size": manifest.size });
    let mut result = json!({
        "key": manifest.key,
        "size": manifest.size,
        "sha256": manifest.sha256,
        "duration": about.duration,
        "mode": about.mode,
    });
    if about.cut_short {
        result["cutShort"] = true.into();
    }
    if author == Author::Another {
        event["adopted"] = true.into();
        result["adopted"] = true.into();
    }
    reports.event("uploaded", &event).await;
    Ok(Some(serde_json::value::to_raw_value(&result)?))
}

/// What trouble with the place of artifacts means.
pub(super) fn storage(error: &Error) -> Failure {
    let code = match error {
        Error::Fenced => "LEASE_LOST",
        _ => STORAGE_UNAVAILABLE,
    };
    shortened(Failure::new(code, error.class(), chain(error)))
}
