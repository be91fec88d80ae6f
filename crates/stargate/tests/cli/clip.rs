//! Clips, artifacts and scratch through the commands that people use.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use stargate_testkit::process::Program;

use crate::{code, configured, json, refusal, stderr};

const KINDS: &str = r#"
[worker]
heartbeat = "200ms"
[kinds."record"]
exec = ["ffmpeg", "-nostdin", "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=160x90:rate=25:duration=6", "-c:v", "mpeg4", "-g", "25", "a b.mp4"]
working_dir = "."
[kinds."messy"]
exec = ["sh", "-c", "head -c 100000 /dev/zero > $STARGATE_SCRATCH/left; exit 65"]
[kinds."stuck"]
exec = ["sh", "-c", "echo x > $STARGATE_SCRATCH/busy; echo '{\"progress\": 1}'; exec sleep 600"]
"#;

fn wait(program: &Program, arguments: &[&str]) -> Value {
    json(program, &[&["job", "enqueue"], arguments, &["--wait", "--timeout", "60s", "--json"]].concat())
}

fn directories(path: &Path) -> usize {
    std::fs::read_dir(path).map(Iterator::count).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_ffmpeg_leaves_clips_to_others() {
    let program = configured("[clip]\nffmpeg = \"/not/there/ffmpeg\"\n");
    let mut up = program.start(&["up"]);
    up.ready().await;
    assert!(up.log().contains("this worker makes no clips"), "{}", up.log());
    let cut = json!({ "source": "a.mp4", "start": 1, "end": 2 }).to_string();
    let id = program.answer(&["job", "enqueue", "clip", &cut]);
    let told = program.answer(&["explain", id.trim()]);
    assert!(told.contains("serves kind clip"), "{told}");
    assert_eq!(json(&program, &["job", "show", id.trim(), "--json"])["state"], json!("queued"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clip_is_cut_shown_with_its_place_and_told_in_order() {
    let program = configured(KINDS).with("KEEP_SCRATCH_ON_SUCCESS", "1");
    let mut up = program.start(&["up"]);
    up.ready().await;
    assert_eq!(wait(&program, &["record"])["state"], json!("done"));
    let cut = json!({ "source": program.home().join("a b.mp4"), "start": 1, "end": "00:00:03.500" });
    let clip = wait(&program, &["clip", &cut.to_string()]);
    assert_eq!((&clip["state"], &clip["max_attempts"]), (&json!("done"), &json!(3)), "{clip}");
    assert_eq!(clip["result"]["key"], json!("results/2/clip.mp4"));

    let path = program.home().join("artifacts/results/2/clip.mp4");
    let shown = program.answer(&["job", "show", "2"]);
    assert!(shown.contains(&format!("artifact      {}", path.display())), "{shown}");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), clip["result"]["size"].as_u64().unwrap());
    let manifest = std::fs::read(PathBuf::from(format!("{}.json", path.display()))).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    assert_eq!(manifest["sha256"], clip["result"]["sha256"]);

    let events = json(&program, &["job", "events", "2", "--json"]);
    let mut names: Vec<&str> =
        events.as_array().unwrap().iter().map(|event| event["event"].as_str().unwrap()).collect();
    names.dedup();
    assert_eq!(names, ["created", "processing", "source:ready", "progress", "uploaded", "done"]);
    let told = program.answer(&["job", "events", "2"]);
    assert!(told.contains("results/2/clip.mp4, "), "{told}");
    let scratch = program.home().join("scratch");
    assert_eq!(directories(&scratch), 2, "both successes are kept, as asked");

    let (code_of_gone, _) = {
        let output = program.run(&[
            "job",
            "enqueue",
            "clip",
            r#"{"source":"/nowhere.mp4","start":0,"end":1}"#,
            "--wait",
        ]);
        (code(&output), stderr(&output))
    };
    assert_eq!(code_of_gone, 1);
    let job = json(&program, &["job", "show", "3", "--json"]);
    assert_eq!(
        (&job["error"]["code"], &job["attempt_count"]),
        (&json!("SOURCE_NOT_FOUND"), &json!(1)),
        "{job}"
    );
    up.terminate();
    assert_eq!(up.ended(Duration::from_secs(20)).await.code(), Some(0), "{}", up.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn scratch_gc_makes_room_beside_a_running_worker_and_leaves_what_is_in_use() {
    let program = configured(KINDS);
    let nothing = json(&program, &["scratch", "gc", "--json"]);
    assert_eq!((&nothing["removed"], &nothing["kept"]), (&json!(0), &json!(0)), "{nothing}");
    let mut worker = program.start(&["worker"]);
    worker.ready().await;
    for _ in 0..3 {
        program.run(&["job", "enqueue", "messy", "--wait", "--timeout", "20s"]);
    }
    let stuck = program.answer(&["job", "enqueue", "stuck"]);
    stargate_testkit::eventually(Duration::from_secs(20), "the job to run", || {
        let job = json(&program, &["job", "show", &stuck, "--json"]);
        async move { if job["progress"] == 1 { Ok(()) } else { Err(job.to_string()) } }
    })
    .await;
    let kept = json(&program, &["scratch", "gc", "--json"]);
    assert_eq!(
        (&kept["removed"], &kept["kept"], &kept["in_use"]),
        (&json!(0), &json!(3), &json!(1)),
        "{kept}"
    );
    assert!(kept["kept_bytes"].as_u64().unwrap() >= 300_000, "{kept}");
    let one = json(&program, &["scratch", "gc", "--max-size", "250kB", "--json"]);
    assert_eq!((&one["removed"], &one["kept"]), (&json!(1), &json!(2)), "the oldest goes: {one}");
    let told = program.answer(&["scratch", "gc", "--max-age", "0s"]);
    assert!(told.contains("removed") && told.contains("in use"), "{told}");
    assert_eq!(directories(&program.home().join("scratch")), 1, "the running one is left alone");
    assert_eq!(refusal(&program, &["scratch", "gc", "--max-size", "much"]).0, 2);
    assert_eq!(refusal(&program, &["scratch", "gc", "--max-age", "old"]).0, 2);
}

#[test]
fn scratch_that_cannot_be_read_is_an_error_with_a_remedy() {
    let program = configured("[scratch]\ndir = \"stargate.toml\"\n");
    let (code, error) = refusal(&program, &["scratch", "gc"]);
    assert_eq!((code, &error["code"]), (5, &json!("IO")), "{error}");
    assert!(error["help"].as_str().unwrap().contains("scratch.dir"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_collects_scratch_by_itself() {
    let program = configured(&format!("{KINDS}\n[scratch]\nmax_size = \"150kB\"\ngc_interval = \"200ms\"\n"));
    let mut worker = program.start(&["worker"]);
    worker.ready().await;
    for _ in 0..3 {
        program.run(&["job", "enqueue", "messy", "--wait", "--timeout", "20s"]);
    }
    let scratch = program.home().join("scratch");
    stargate_testkit::eventually(Duration::from_secs(20), "only one directory to stay", || {
        let count = directories(&scratch);
        async move { if count == 1 { Ok(()) } else { Err(format!("{count} directories")) } }
    })
    .await;
}
