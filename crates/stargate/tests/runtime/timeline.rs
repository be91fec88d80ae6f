//! The timeline of a clip that simply succeeds, and its progress (SPEC 4.7).

use std::time::Duration;

use serde_json::{Value, json};
use stargate_queue::State;
use stargate_queue::event::Event;
use stargate_testkit::eventually;

use crate::stage::Stage;
use crate::{PATIENCE, on_both_stores, processes, video};

/// After so long a report is passed on even if the percentage did not rise. The store's clock is read when the report is
/// written, which may be a little later for one than for the next.
const QUIET: Duration = Duration::from_millis(500);
/// Repeats more than that, because the first record may have come late.
const SLACK: f64 = 2.0;

on_both_stores! {
    a_clip_tells_its_whole_story: "",
    a_copied_clip_tells_the_same_story: "",
}

async fn a_clip_tells_its_whole_story(stage: &Stage) {
    stage.set_slow(true);
    let _worker = stage.worker().await;
    let id = stage.enqueue("clip", &video::encoded(5.0));
    // The last value is stored while it runs.
    eventually(PATIENCE, "a stored percentage", || async {
        let (job, events) = (stage.job(id).await, stage.events(id).await);
        let last = percentages(&events).last().map(|(pct, _)| *pct);
        match last {
            Some(pct) if job.state == State::Processing && pct > 0 && u64::from(job.progress) >= pct => {
                Ok(())
            }
            _ => Err(format!("{job:?}, {last:?}")),
        }
    })
    .await;
    let job = stage.ends(id, State::Done).await;
    assert_eq!(job.percent(), 100, "{job:?}");
    let shown: Value =
        serde_json::from_str(&stage.program.answer(&["job", "show", &id.to_string(), "--json"])).unwrap();
    assert_eq!(shown["progress"], 100);
    let events = stage.events(id).await;
    let names = check_story(&events);
    check_progress(&events);
    assert!(names.iter().filter(|name| *name == "progress").count() > 3, "{names:?}");
    let data = |name: &str| -> Value {
        let event = events.iter().find(|event| event.event == name).unwrap();
        serde_json::from_str(event.data.get()).unwrap()
    };
    let ready = data("source:ready");
    assert!((ready["durationSec"].as_f64().unwrap() - 40.0).abs() < 0.5, "{ready}");
    assert_eq!(ready["bytes"], std::fs::metadata(video::plain()).unwrap().len(), "{ready}");
    let bytes = stage.check_artifact(id, 5.0).await;
    let uploaded = data("uploaded");
    assert_eq!(
        (&uploaded["key"], &uploaded["size"]),
        (&json!(format!("results/{id}/clip.mp4")), &json!(bytes.len()))
    );
    let result: Value = serde_json::from_str(job.result.expect("a result").get()).unwrap();
    assert_eq!((&result["key"], &result["mode"]), (&uploaded["key"], &json!("encode")), "{result}");
    assert!((result["duration"].as_f64().unwrap() - 5.0).abs() < 0.2, "{result}");
    assert_eq!(stage.scratch().len(), 0, "{:?}", stage.scratch());
    processes::all_gone(stage.home()).await;
}

async fn a_copied_clip_tells_the_same_story(stage: &Stage) {
    let _worker = stage.worker().await;
    // Key frames are two seconds apart.
    let id = stage
        .enqueue("clip", &json!({ "source": video::plain(), "start": "00:00:04", "end": "00:00:10.000" }));
    let job = stage.ends(id, State::Done).await;
    let result: Value = serde_json::from_str(job.result.as_ref().expect("a result").get()).unwrap();
    assert_eq!(result["mode"], "copy", "{result}");
    let events = stage.events(id).await;
    check_story(&events);
    check_progress(&events);
    stage.check_artifact(id, 6.0).await;
}

/// `created → processing → source:ready → progress* → uploaded → done`, numbered without a gap.
fn check_story(events: &[Event]) -> Vec<String> {
    assert!(events.iter().map(|event| event.seq).eq(1..=events.len() as u32), "{events:?}");
    assert!(events.is_sorted_by_key(|event| event.at), "{events:?}");
    let names: Vec<String> = events.iter().map(|event| event.event.clone()).collect();
    let rest: Vec<&str> = names.iter().map(String::as_str).filter(|name| *name != "progress").collect();
    assert_eq!(rest, ["created", "processing", "source:ready", "uploaded", "done"], "{names:?}");
    let progress = names.iter().filter(|name| *name == "progress").count();
    assert!(names[3..3 + progress].iter().all(|name| name == "progress"), "{names:?}");
    names
}

/// Rises by one at least or comes half a second later; never falls; below 100 until published.
fn check_progress(events: &[Event]) {
    let reports = percentages(events);
    assert!(reports.is_sorted_by_key(|(percent, _)| *percent), "it fell: {reports:?}");
    // The store's times are those of the record, which may come late and several at once. So not each step is looked at,
    // but how many repeats there are for the time it took.
    let repeats = reports.windows(2).filter(|pair| pair[0].0 == pair[1].0).count();
    if let (Some((_, first)), Some((_, last))) = (reports.first(), reports.last()) {
        let most = last.duration_since(*first).unsigned_abs().div_duration_f64(QUIET) + SLACK;
        assert!(repeats as f64 <= most, "{repeats} repeats, at most {most}: {reports:?}");
    }
    assert!(reports.iter().all(|(percent, _)| *percent <= 99), "{reports:?}");
}

fn percentages(events: &[Event]) -> Vec<(u64, jiff::Timestamp)> {
    let progress = events.iter().filter(|event| event.event == "progress");
    let percent = |event: &Event| {
        let data: Value = serde_json::from_str(event.data.get()).unwrap();
        (data["pct"].as_u64().unwrap_or_else(|| panic!("no percentage: {data}")), event.at)
    };
    progress.map(percent).collect()
}
