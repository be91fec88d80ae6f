//! The page in a real Chromium, served by the real binary. What is looked at: `browser.mjs`.
#![expect(clippy::unwrap_used, reason = "a panic is the report of a test")]

mod stage;

use serde_json::{Value, json};
use stage::{HOSTILE, Stage};

/// Name, address and status of every page.
async fn pages(stage: &Stage) -> Value {
    let bad = stage.get("/jobs?state=failed&kind=bad").await["jobs"][0]["id"].clone();
    let flaky = stage.get("/jobs?kind=flaky").await["jobs"][0]["id"].clone();
    let run = stage.get("/runs").await["runs"][0]["run_id"].as_str().unwrap().to_owned();
    let letters = stage.get("/mirror/dead-letters?repo=tools").await;
    let letter = letters["dead_letters"][0]["dead_letter_id"].as_str().unwrap().to_owned();
    json!([
        ["overview", "/", 200],
        ["jobs", "/jobs", 200],
        ["jobs-failed", "/jobs?state=failed", 200],
        ["jobs-none", "/jobs?kind=nothing", 200],
        ["job-failed", format!("/jobs/{bad}"), 200],
        ["job-waiting", format!("/jobs/{flaky}"), 200],
        ["job-edit", format!("/jobs/{bad}/retry"), 200],
        ["job-cancel", format!("/jobs/{flaky}/cancel"), 200],
        ["job-missing", "/jobs/999999", 404],
        ["job-new", "/jobs/new", 200],
        ["bulk", "/jobs/bulk?action=retry&all=1&state=failed", 200],
        ["queues", "/queues", 200],
        ["schedules", "/schedules", 200],
        ["dead-letters", "/dead-letters", 200],
        ["dead-letters-canary", "/dead-letters/requeue?canary=1&kind=bad&code=EXEC_FAILED", 200],
        ["mirror", "/mirror", 200],
        ["mirror-repo", "/mirror/tools", 200],
        ["mirror-letter", format!("/mirror/tools/letters/{letter}"), 200],
        ["leadership", "/leadership", 200],
        ["directives", "/directives", 200],
        ["directive", "/directives/issues", 200],
        ["cursor", "/directives/issues/cursor", 200],
        ["run", format!("/runs/{run}"), 200],
        ["workers", "/workers", 200],
        ["audit", "/audit", 200],
        ["api", "/api", 200],
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_clean_in_light_in_dark_and_on_a_phone() {
    let stage = Stage::filled().await;
    let facts = json!({ "pages": pages(&stage).await });
    stage.browse("pages", &facts);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_works_without_javascript() {
    let stage = Stage::filled().await;
    let facts = json!({ "pages": pages(&stage).await });
    stage.browse("plain", &facts);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_changes_by_itself_without_being_loaded_again() {
    let stage = Stage::with("", "").await;
    stage.browse("live", &json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_was_refused_at_first_is_asked_for_again() {
    let stage = Stage::with("", "").await;
    stage.browse("refused", &json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_retry_requeue_edit_pause_and_cancel() {
    let stage = Stage::filled().await;
    let poison = stage.hostile_job().await;
    stage.browse("actions", &json!({ "poison": poison }));
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_used_without_a_mouse() {
    let stage = Stage::filled().await;
    let poison = stage.hostile_job().await;
    stage.browse("keys", &json!({ "poison": poison }));
}

#[tokio::test(flavor = "multi_thread")]
async fn text_from_outside_is_shown_and_never_run() {
    let stage = Stage::filled().await;
    let id = stage.hostile_job().await;
    let text: String = url::form_urlencoded::byte_serialize(HOSTILE.as_bytes()).collect();
    let letters = stage.get("/mirror/dead-letters?repo=tools").await;
    let ids =
        letters["dead_letters"].as_array().unwrap().iter().map(|one| one["dead_letter_id"].as_str().unwrap());
    let mut pages = vec![
        format!("/jobs/{id}"),
        format!("/jobs/{id}/retry"),
        "/jobs?state=failed".to_owned(),
        format!("/jobs?q={text}"),
        format!("/jobs?kind={text}"),
        format!("/jobs?queue={text}&limit_key={text}&code={text}"),
        "/dead-letters".to_owned(),
        "/mirror/tools".to_owned(),
        "/directives/issues".to_owned(),
        format!("/jobs/bulk?action=retry&ids={id}"),
        format!("/audit?actor={text}"),
    ];
    pages.extend(ids.map(|letter| format!("/mirror/tools/letters/{letter}")));
    stage.browse("hostile", &json!({ "hostile": pages }));
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_decide_what_is_offered_and_the_server_what_is_done() {
    let stage = Stage::with("", "").await;
    stage.post("/jobs", &json!({ "kind": "echo", "payload": {} })).await;
    let create = |role: &str| stage.program.answer(&["token", "add", role, "--role", role]);
    let last = |text: String| text.lines().last().unwrap_or_default().trim().to_owned();
    let tokens = json!({ "read": last(create("read")), "operate": last(create("operate")) });
    stage.closed().await;
    stage.browse("access", &json!({ "tokens": tokens }));
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_found_below_a_sub_path() {
    let stage = Stage::with("[web]\nbase_path = \"/ops/stargate\"\n", "/ops/stargate").await;
    stage.post("/jobs", &json!({ "kind": "echo", "payload": {} })).await;
    stage.browse("subpath", &json!({ "path": "/ops/stargate" }));
}
