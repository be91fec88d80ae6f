//! The first page: what needs somebody, how it goes, and where to look.

use askama::Template;

use super::call::{Answer, Failed};
use super::charts::{self, Chart};
use super::fields::Fields;
use super::frame::{Frame, Shown, Visit, ask};
use super::html::{self, count, counted};
use super::problems::{self, Known, Problem};
use crate::api::types::directives::Directives;
use crate::api::types::failures::{Activity, FailureGroup, Failures};
use crate::api::types::leader::Leader;
use crate::api::types::mirror::Mirrors;
use crate::api::types::{Kinds, Queue, Queues, Stats, Workers};

/// Times that can be looked at: value, words, stretches.
const WINDOWS: [(&str, &str, u32); 4] =
    [("15m", "15 minutes", 60), ("1h", "hour", 60), ("6h", "6 hours", 72), ("24h", "24 hours", 96)];
/// Causes that are shown.
const CAUSES_SHOWN: usize = 6;

/// A figure.
struct Card {
    label: &'static str,
    value: String,
    hint: String,
    path: &'static str,
    level: &'static str,
}

#[derive(Template)]
#[template(path = "overview.html")]
struct Overview {
    frame: Frame,
    announce: String,
    problems: Vec<Problem>,
    well: String,
    cards: Vec<Card>,
    window: &'static str,
    window_words: &'static str,
    windows: Vec<(&'static str, &'static str)>,
    charts: Vec<Chart>,
    depth_words: String,
    ready_now: u64,
    processing_now: u64,
    failures: Vec<FailureGroup>,
    queues: Vec<Queue>,
}

/// `GET /`
pub(crate) async fn show(visit: Visit, fields: Fields) -> Shown {
    let asked = fields.text("window");
    let (window, window_words, buckets) =
        WINDOWS.into_iter().find(|(value, ..)| *value == asked).unwrap_or(WINDOWS[1]);
    let activity_path = format!("/activity?window={window}&buckets={buckets}");
    let api = &visit.api;
    let (stats, queues, kinds, workers, activity, failures, mirrors, leader, directives) = futures::join!(
        api.get::<Stats>("/stats"),
        api.get::<Queues>("/queues"),
        api.get::<Kinds>("/kinds"),
        api.get::<Workers>("/workers"),
        api.get::<Activity>(&activity_path),
        api.get::<Failures>("/failures"),
        api.get::<Mirrors>("/mirror"),
        api.get::<Leader>("/leader?terms=20"),
        api.get::<Directives>("/directives"),
    );
    let stats = ask!(visit, stats);
    let queues = ask!(visit, queues).queues;
    let activity = ask!(visit, activity);
    let failures = ask!(visit, failures).failures;
    // What is beside the queue may be away without hiding the rest.
    let (kinds, workers) = (optional(kinds), optional(workers));
    let (mirrors, leader, directives) = (optional(mirrors), optional(leader), optional(directives));
    let known = Known {
        stats: Some(&stats),
        queues: &queues,
        kinds: kinds.as_ref().map_or(&[], |kinds| &kinds.kinds),
        workers: workers.as_ref().map_or(&[], |workers| &workers.workers),
        activity: Some(&activity),
        failures: &failures,
        mirrors: mirrors.as_ref().map_or(&[], |mirrors| &mirrors.mirrors),
        leader: leader.as_ref(),
        directives: directives.as_ref(),
    };
    let problems = problems::find(&known);
    let page = Overview {
        frame: visit.frame("Overview", "/"),
        announce: spoken(&problems),
        problems,
        well: format!(
            "{} alive, {} ready.",
            counted(stats.workers_alive, "worker is", "workers are"),
            counted(stats.jobs.ready, "job is", "jobs are")
        ),
        cards: cards(&stats, &activity),
        window,
        window_words,
        windows: WINDOWS.into_iter().map(|(value, words, _)| (value, words)).collect(),
        charts: vec![charts::throughput(&activity), charts::waits(&activity)],
        ready_now: stats.jobs.ready,
        processing_now: stats.jobs.processing,
        depth_words: format!("{} ready, {} running", count(stats.jobs.ready), count(stats.jobs.processing)),
        failures: failures.into_iter().take(CAUSES_SHOWN).collect(),
        queues,
    };
    visit.show(&page)
}

fn optional<T>(answer: Answer<T>) -> Option<T> {
    answer
        .map_err(|Failed { code, message, .. }| tracing::debug!(code, message, "left out of the overview"))
        .ok()
}

/// What a screen reader says when it changes.
fn spoken(problems: &[Problem]) -> String {
    match problems.first() {
        None => "No problems".to_owned(),
        Some(first) => format!("{}: {}", counted(problems.len(), "problem", "problems"), first.text),
    }
}

fn cards(stats: &Stats, activity: &Activity) -> Vec<Card> {
    let jobs = &stats.jobs;
    let recent: Vec<_> = activity.buckets.iter().rev().take(5).collect();
    let ended: u64 = recent.iter().map(|bucket| bucket.done).sum();
    #[expect(clippy::cast_precision_loss, reason = "a rate that is only shown")]
    let per_minute = ended as f64 * 60.0 / (activity.bucket_sec * recent.len().max(1) as f64).max(1.0);
    let p95 = activity.buckets.iter().rev().find_map(|bucket| bucket.wait_p95_ms);
    let full = stats.capacity > 0 && jobs.processing >= stats.capacity as u64;
    let oldest = stats.oldest_ready_sec;
    vec![
        Card {
            label: "Ready",
            value: count(jobs.ready),
            hint: "could run now".to_owned(),
            path: "/jobs?state=queued",
            level: "",
        },
        Card {
            label: "Oldest claimable",
            value: oldest.map_or_else(|| "–".to_owned(), html::span),
            hint: if oldest.is_some() { "has waited".to_owned() } else { "nothing waits".to_owned() },
            path: "/jobs?state=queued",
            level: match oldest {
                Some(seconds) if seconds >= 600.0 => "bad",
                Some(seconds) if seconds >= 60.0 => "warn",
                _ => "",
            },
        },
        Card {
            label: "Running",
            value: count(jobs.processing),
            hint: format!("of {}", counted(stats.capacity, "slot", "slots")),
            path: "/jobs?state=processing",
            level: if full && jobs.ready > 0 { "warn" } else { "" },
        },
        Card {
            label: "Done per minute",
            value: if per_minute >= 10.0 { format!("{per_minute:.0}") } else { format!("{per_minute:.1}") },
            hint: "lately".to_owned(),
            path: "/jobs?state=done",
            level: "",
        },
        Card {
            label: "Wait, 95 %",
            value: p95.map_or_else(|| "–".to_owned(), html::millis),
            hint: "of jobs at most".to_owned(),
            path: "/jobs?state=processing,done",
            level: "",
        },
        Card {
            label: "Delayed",
            value: count(jobs.delayed),
            hint: format!("{} blocked", count(jobs.blocked)),
            path: "/jobs?state=queued",
            level: "",
        },
        Card {
            label: "Failed",
            value: count(jobs.failed),
            hint: "kept, by cause".to_owned(),
            path: "/dead-letters",
            level: if jobs.failed > 0 { "bad" } else { "good" },
        },
        Card {
            label: "Workers",
            value: count(stats.workers_alive),
            hint: "alive".to_owned(),
            path: "/workers",
            level: if stats.workers_alive == 0 { "bad" } else { "" },
        },
    ]
}
