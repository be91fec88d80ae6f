//! Real scripts, without an engine.

use std::sync::Mutex;
use std::time::Instant;

use serde_json::Value;
use stargate_queue::job::JobId;

use super::*;
use crate::pipes::STDERR_BYTES_MAX;

/// What a script reported.
#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Reports for Heard {
    async fn progress(&self, percent: u8) {
        self.0.lock().unwrap().push(format!("progress {percent}"));
    }

    async fn event(&self, name: &str, data: &Value) {
        self.0.lock().unwrap().push(format!("{name} {data}"));
    }

    async fn earlier(&self, _: &str) -> Option<Value> {
        None
    }

    async fn holds(&self) -> bool {
        true
    }
}

struct Ran {
    result: HandlerResult,
    heard: Vec<String>,
    scratch: tempfile::TempDir,
}

impl Ran {
    fn failure(&self) -> &Failure {
        self.result.as_ref().unwrap_err()
    }

    fn json(&self) -> Value {
        serde_json::from_str(self.result.as_ref().unwrap().as_ref().unwrap().get()).unwrap()
    }
}

fn shell(script: &str) -> Vec<String> {
    ["sh", "-c", script].map(str::to_owned).to_vec()
}

fn root(dir: &Path, keep_on_success: bool) -> scratch::Root {
    scratch::Root::new(dir.join("scratch"), scratch::Limits::default(), keep_on_success)
}

fn exec(command: Vec<String>, scratch: &Path) -> Exec {
    let mut exec = Exec::new(command, root(scratch, false));
    exec.inherited = vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())];
    exec.grace = Duration::from_millis(200);
    exec
}

fn execution(payload: &str) -> Execution<'_> {
    Execution {
        job: JobId(42),
        attempt: 3,
        kind: "thumbnail",
        queue: "images",
        payload,
        trace_id: Some("4bf92f3577b34da6a3ce929d0e0e4736"),
        timeout: Duration::from_secs(60),
        stopping: CancellationToken::new(),
    }
}

async fn run_with(command: Vec<String>, payload: &str, change: impl FnOnce(&mut Exec)) -> Ran {
    let scratch = tempfile::tempdir().unwrap();
    let mut exec = exec(command, scratch.path());
    change(&mut exec);
    let heard = Heard::default();
    let execution = execution(payload);
    let run = exec.execute(&execution, &heard);
    let result = tokio::time::timeout(Duration::from_secs(30), run).await.expect("the execution hangs");
    Ran { result, heard: heard.0.into_inner().unwrap(), scratch }
}

async fn run(script: &str) -> Ran {
    run_with(shell(script), "{}", |_| {}).await
}

fn scratch_entries(ran: &Ran) -> usize {
    std::fs::read_dir(ran.scratch.path().join("scratch")).map_or(0, Iterator::count)
}

#[tokio::test]
async fn the_payload_is_the_input_and_the_result_line_is_the_result() {
    let script = "import sys, json; print(json.dumps({'result': {'twice': json.load(sys.stdin)['n'] * 2}}))";
    let command = ["python3", "-c", script].map(str::to_owned).to_vec();
    let ran = run_with(command, r#"{"n":21}"#, |_| {}).await;
    assert_eq!(ran.json()["twice"], 42);
}

#[tokio::test]
async fn reports_arrive_in_order_and_other_lines_do_not() {
    let ran = run(r#"echo hello; echo '{"progress":10}'; echo '{"event":"source:ready","data":{"a":1}}'; echo '{"progress":90}'"#).await;
    assert!(ran.result.as_ref().unwrap().is_none());
    assert_eq!(ran.heard, ["progress 10", r#"source:ready {"a":1}"#, "progress 90"]);
}

#[tokio::test]
async fn the_environment_is_what_was_promised_and_nothing_else() {
    let ran = run_with(
        ["python3", "-c", "import os, json; print(json.dumps({'result': dict(os.environ)}))"]
            .map(str::to_owned)
            .to_vec(),
        "{}",
        |exec| {
            exec.env.insert("COLOUR".into(), "green".into());
            exec.env.insert("STARGATE_JOB_ID".into(), "forged".into());
        },
    )
    .await;
    let env = ran.json();
    let mut names: Vec<&str> = env.as_object().unwrap().keys().map(String::as_str).collect();
    // Python itself may set LC_CTYPE.
    names.retain(|name| *name != "LC_CTYPE");
    assert_eq!(
        names,
        [
            "COLOUR",
            "PATH",
            "STARGATE_ATTEMPT",
            "STARGATE_JOB_ID",
            "STARGATE_KIND",
            "STARGATE_QUEUE",
            "STARGATE_SCRATCH",
            "TRACEPARENT"
        ]
    );
    assert_eq!(env["STARGATE_JOB_ID"], "42");
    assert_eq!(env["STARGATE_ATTEMPT"], "3");
    assert!(env["TRACEPARENT"].as_str().unwrap().starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-"));
}

#[tokio::test]
async fn exit_codes_have_their_classes_and_stderr_is_kept() {
    for (code, class) in [
        (1, ErrorClass::RetryableTransient),
        (65, ErrorClass::ValidationFailure),
        (75, ErrorClass::RetryableTransient),
        (78, ErrorClass::Fatal),
        (127, ErrorClass::RetryableTransient),
    ] {
        let ran = run(&format!("echo why >&2; exit {code}")).await;
        let error = &ran.failure().error;
        assert_eq!((error.code.as_str(), error.class), (EXEC_FAILED, class), "exit {code}");
        assert!(error.message.contains(&code.to_string()), "{}", error.message);
        assert_eq!(error.detail.as_deref(), Some("why\n"));
    }
}

#[tokio::test]
async fn a_signal_is_transient() {
    let ran = run("kill -9 $$").await;
    assert_eq!(ran.failure().error.class, ErrorClass::RetryableTransient);
    assert!(ran.failure().error.message.contains("signal 9"));
}

#[tokio::test]
async fn a_missing_program_is_fatal_and_says_so() {
    let ran = run_with(vec!["no-such-program-here".into()], "{}", |_| {}).await;
    let error = &ran.failure().error;
    assert_eq!((error.code.as_str(), error.class), (EXEC_NOT_FOUND, ErrorClass::Fatal));
    assert!(error.message.contains("no-such-program-here"));
    let ran = run_with(Vec::new(), "{}", |_| {}).await;
    assert_eq!(ran.failure().error.class, ErrorClass::Fatal);
}

#[tokio::test]
async fn a_relative_program_is_found_in_the_working_directory() {
    let dir = tempfile::tempdir().unwrap();
    // A link rather than a new script: a file that is still being written cannot be executed, and another test's
    // child may hold it open for a moment.
    std::os::unix::fs::symlink("/bin/echo", dir.path().join("thumb")).unwrap();
    let command = ["./thumb", r#"{"result":"found"}"#].map(str::to_owned).to_vec();
    let ran = run_with(command, "{}", |exec| exec.working_dir = Some(dir.path().into())).await;
    assert_eq!(ran.json(), "found");
}

#[tokio::test]
async fn scratch_is_deleted_on_success_and_kept_on_failure() {
    let script = r#"test -d "$STARGATE_SCRATCH" && echo data > "$STARGATE_SCRATCH/file" || exit 78"#;
    let ran = run(script).await;
    assert!(ran.result.is_ok(), "{:?}", ran.result);
    assert_eq!(scratch_entries(&ran), 0);
    let ran = run(&format!("{script}; exit 1")).await;
    assert_eq!(scratch_entries(&ran), 1);
}

#[tokio::test]
async fn scratch_is_kept_on_success_when_asked_for() {
    let script = r#"echo data > "$STARGATE_SCRATCH/file""#;
    let ran = run_with(shell(script), "{}", |exec| {
        let dir = exec.scratch.path().parent().unwrap().to_owned();
        exec.scratch = root(&dir, true);
    })
    .await;
    assert!(ran.result.is_ok(), "{:?}", ran.result);
    assert_eq!(scratch_entries(&ran), 1);
}

#[tokio::test]
async fn unread_input_and_flooded_outputs_block_nobody() {
    let payload = format!("\"{}\"", "x".repeat(1 << 20));
    let flood = "yes 0123456789 | head -c 3000000; yes abcdefghi | head -c 3000000 >&2; exit 1";
    let ran = run_with(shell(flood), &payload, |_| {}).await;
    let detail = ran.failure().error.detail.as_ref().unwrap();
    assert!(detail.len() <= STDERR_BYTES_MAX && detail.len() > STDERR_BYTES_MAX - 16, "{}", detail.len());
    assert!(detail.ends_with("abcdefghi\n"));
    assert!(run_with(shell("exec <&-; sleep 0.1"), &payload, |_| {}).await.result.is_ok());
}

#[tokio::test]
async fn output_held_open_by_something_that_escaped_does_not_hang_the_job() {
    let started = Instant::now();
    let ran = run(r#"setsid sleep 20 & echo '{"result":1}'"#).await;
    assert_eq!(ran.json(), 1);
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn a_result_that_cannot_be_kept_fails_the_job() {
    let ran = run(r#"printf '{"result":"a\\u0000"}\n'"#).await;
    assert_eq!(ran.failure().error.code, RESULT_REFUSED);
    assert_eq!(ran.failure().error.class, ErrorClass::ValidationFailure);
}

#[tokio::test]
async fn stopping_ends_the_program_even_when_it_ignores_the_request() {
    let scratch = tempfile::tempdir().unwrap();
    let exec =
        exec(shell("trap '' TERM; echo '{\"event\":\"up\"}'; while :; do sleep 600; done"), scratch.path());
    let (execution, heard) = (execution("{}"), Heard::default());
    let stop = execution.stopping.clone();
    let stopper = async {
        while heard.0.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stop.cancel();
    };
    let both = async { tokio::join!(exec.execute(&execution, &heard), stopper) };
    let (result, ()) = tokio::time::timeout(Duration::from_secs(30), both).await.expect("not stopped");
    let failure = result.unwrap_err();
    assert_eq!(failure.error.class, ErrorClass::RetryableTransient);
    assert_eq!(failure.error.message, "stopped");
}

#[tokio::test]
async fn a_dropped_execution_leaves_no_process_behind() {
    let scratch = tempfile::tempdir().unwrap();
    let exec = exec(shell("echo \"{\\\"event\\\":\\\"$$\\\"}\"; sleep 600 & wait"), scratch.path());
    let (execution, heard) = (execution("{}"), Heard::default());
    let seen = async {
        while heard.0.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        result = exec.execute(&execution, &heard) => panic!("ended: {result:?}"),
        () = seen => {}
    }
    let group: i32 = heard.0.lock().unwrap()[0].split(' ').next().unwrap().parse().unwrap();
    let group = rustix::process::Pid::from_raw(group).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while rustix::process::test_kill_process_group(group).is_ok() {
        assert!(Instant::now() < deadline, "the group {group:?} is still there");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
