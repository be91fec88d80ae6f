//! What a tap sees of secrets, and what others see (INV-8).

use serde_json::{Value, json};
use stargate_base::ErrorClass;
use stargate_directive::Pointer;

use crate::bench::{Bench, Log, page, read};

const LINES: &str = r#"
config = { user = "alice", password = "${env:DB_PASSWORD}", start = 7, headers = [{ auth = "Bearer ${env:API_WORD}" }], api_token = "written-out" }
env = { EXTRA = "x-${env:API_WORD}" }
"#;

fn bench(script: &str) -> Bench {
    Bench::with_script(script)
        .set("DB_PASSWORD", "hunter2hunter2")
        .set("API_WORD", "s3cr3t-word")
        .set("UNRELATED", "no")
}

/// Says what it was started with.
const SPY: &str = r#"tr '\0' '\n' < /proc/$$/environ > environ; exec python3 - "$@" <<'PY'
import json, os, stat, sys
path = sys.argv[sys.argv.index('--config') + 1]
mode = stat.S_IMODE(os.stat(path).st_mode), stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode)
said = {'config': json.load(open(path)), 'mode': [oct(m) for m in mode],
        'argv': open('/proc/self/cmdline').read(), 'cwd': os.getcwd()}
print(json.dumps({'type': 'RECORD', 'stream': 's', 'record': said}))
PY"#;

#[tokio::test]
async fn a_tap_finds_its_settings_in_a_private_file_and_a_small_environment() {
    let bench = bench(SPY);
    let (pages, error) = bench.read(LINES, 10).await;
    assert!(error.is_none(), "{error:?}");
    let said: Value = serde_json::from_str(&pages[0].records[0]).unwrap();
    assert_eq!(
        said["config"],
        json!({"user": "alice", "password": "hunter2hunter2", "start": 7,
               "headers": [{"auth": "Bearer s3cr3t-word"}], "api_token": "written-out"})
    );
    assert_eq!(said["mode"], json!(["0o600", "0o700"]));
    let environment = std::fs::read_to_string(bench.path("environ")).unwrap();
    let mut names: Vec<&str> = environment.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.sort_unstable();
    assert_eq!(names, ["EXTRA", "HOME", "PATH"]);
    assert!(environment.contains("EXTRA=x-s3cr3t-word\n"));
    for secret in ["hunter2", "s3cr3t", "written-out"] {
        assert!(!said["argv"].as_str().unwrap().contains(secret), "{said}");
    }
    let folder = bench.path("").canonicalize().unwrap();
    assert_eq!(std::path::Path::new(said["cwd"].as_str().unwrap()).canonicalize().unwrap(), folder);
}

#[tokio::test]
async fn secrets_that_a_tap_prints_are_seen_nowhere() {
    let log = Log::listen();
    let script = r#"
        echo "connecting as alice with hunter2hunter2" >&2
        echo "url: postgres://alice:hunter2hunter2@db?token=written-out" >&2
        echo "Authorization: Bearer s3cr3t-word" >&2
        echo "garbage with s3cr3t-word"
        echo '{"type":"RECORD","stream":"s","record":{}}'
        exit 1"#;
    let bench = bench(script);
    let mut feed = bench.open(LINES, &Pointer::Null).await.unwrap();
    let shown = format!("{feed:?}");
    let first = page(&mut *feed, 1).await.unwrap();
    let (_, error) = read(&mut *feed, 1).await;
    feed.close().await;
    assert!(first.records[0].starts_with("garbled: garbage with *** ("), "{first:?}");
    let message = error.unwrap().message;
    assert!(message.contains("connecting as alice with ***"), "{message}");
    let log = log.text();
    assert!(log.contains("INFO") && log.contains("connecting as alice with ***"), "{log}");
    assert!(log.contains("tap=\"sh\""), "{log}");
    for text in [&message, &log, &shown, &first.records[0]] {
        for secret in ["hunter2", "s3cr3t", "written-out"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
}

#[tokio::test]
async fn a_variable_that_is_not_set_is_named() {
    let error = Bench::with_script("").open(LINES, &Pointer::Null).await.unwrap_err();
    assert_eq!((error.class, error.code), (ErrorClass::Fatal, "SOURCE_SETTING"));
    assert!(error.message.contains("_"), "{}", error.message);
}

#[tokio::test]
async fn a_tap_that_talks_without_end_does_not_flood_the_log() {
    let log = Log::listen();
    let bench =
        Bench::with_script("i=0; while [ $i -lt 20000 ]; do echo \"line $i\" >&2; i=$((i+1)); done; exit 1");
    let (_, error) = bench.read("", 10).await;
    assert!(error.unwrap().message.ends_with("line 19999"), "the last words are known all the same");
    let (logged, skipped) =
        (log.text().matches("line ").count(), log.text().matches("more than is logged").count());
    println!("of 20000 lines {logged} were logged");
    assert!(logged < 20_000 && skipped > 0, "{logged} logged, {skipped} notes about others");
}
