//! Entries that want something else than a ref to be moved, and secrets that want to be seen.

use std::io::Write;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::SmallRng;
use stargate_base::Secret;
use stargate_git::{Credentials, Oid, Protocols};
use stargate_mirror::Round;
use stargate_testkit::git::Server;

use crate::fixture::{MAIN, World, gits};

const CANARY: &str = "ghp_cAnArY0815";

/// Pieces that matter to git, to a shell or to a path.
const PIECES: [&str; 30] = [
    "refs/kv/",
    "refs/kv-index/",
    "refs/heads/",
    "refs/",
    "main",
    "x",
    "--receive-pack=touch ",
    "--exec=touch ",
    "--mirror",
    "--force",
    "-f",
    "+",
    ":",
    "*",
    "..",
    "/",
    "//",
    ".lock",
    "@{",
    "~",
    "^",
    " ",
    "$(touch EXEC)",
    "`touch EXEC`",
    ";touch EXEC;",
    "|touch EXEC",
    "\\",
    "'",
    "ä",
    ".",
];

fn fuzzed(random: &mut SmallRng, oid: &Oid) -> String {
    let mut text = String::new();
    let beginning = ["", "refs/kv/", "refs/kv-index/", "refs/kv-mirror/", "refs/heads/"];
    text += beginning[random.random_range(0..beginning.len())];
    for _ in 0..random.random_range(1..5) {
        text += PIECES[random.random_range(0..PIECES.len())];
    }
    let mut piece = || PIECES[random.random_range(0..PIECES.len())].to_owned();
    let (ns, txn, odd) = (piece(), piece(), piece());
    let oids = [oid.to_string(), "0".repeat(40), format!("+{oid}"), odd, format!("{oid}:refs/heads/main")];
    let new = &oids[if random.random_range(0..4) > 0 { 0 } else { random.random_range(0..oids.len()) }];
    let mut entry = serde_json::json!({"ref": text, "new_oid": new, "old_oid": null});
    if random.random() {
        entry["ns"] = ns.into();
    }
    if random.random_range(0..10) == 0 {
        entry["meta"] = serde_json::json!({"txn_id": txn, "requeue_of": txn});
    }
    entry.to_string()
}

#[tokio::test]
async fn fuzzed_entries_run_nothing_and_move_nothing_but_mirrored_refs() {
    // 10,000 take some minutes.
    let count: usize = std::env::var("STARGATE_TEST_FUZZED").ok().and_then(|n| n.parse().ok()).unwrap_or(150);
    for git in gits() {
        let mut w = World::new(&git).await;
        w.config.push_tries = 1;
        w.config.malformed_rereads = 0;
        let seed: u64 = rand::random();
        println!("seed {seed}");
        let mut random = <SmallRng as rand::SeedableRng>::seed_from_u64(seed);
        let a = w.commit(None, "a");
        let mut bytes = Vec::new();
        for _ in 0..count {
            bytes.extend_from_slice(fuzzed(&mut random, &a).replace('\n', "").as_bytes());
            bytes.push(b'\n');
        }
        w.scribble(&bytes);
        let last = w.push(MAIN, None, &a);
        let drained = w.worker().drain(tokio_util::sync::CancellationToken::new()).await.unwrap();
        assert_eq!((drained.end, drained.left), (Round::Idle, 0));
        assert_eq!(w.records().len(), count + 1, "each has a record (INV-1)");
        w.record(&last);
        for r in w.remote_refs() {
            let allowed = ["refs/kv/", "refs/kv-index/", "refs/kv-mirror/"];
            assert!(allowed.iter().any(|folder| r.starts_with(folder)), "{r} was made");
        }
        for dir in [w.repo.path(), w.remote.path(), w.dir.path(), std::path::Path::new(".")] {
            assert!(!dir.join("EXEC").exists(), "something was executed");
        }
        println!("{count} entries: {} dead letters, {} refs", w.letters().len(), w.remote_refs().len());
    }
}

/// Keeps what is logged by this process.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn log() -> &'static Log {
    static LOG: OnceLock<Log> = OnceLock::new();
    LOG.get_or_init(|| {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
            .with_writer(move || writer.clone())
            .finish();
        // Another test of this process may have one; then there is nothing to look at.
        let _ = tracing_subscriber::util::SubscriberInitExt::try_init(subscriber);
        log
    })
}

/// Every byte below a directory.
fn content(dir: &std::path::Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        if entry.path().is_dir() {
            all.extend(content(&entry.path()));
        } else {
            all.extend(std::fs::read(entry.path()).unwrap_or_default());
        }
    }
    all
}

#[tokio::test]
async fn a_token_is_seen_in_no_record_letter_report_or_log() {
    for git in gits() {
        let log = log();
        let mut w = World::new(&git).await;
        w.config.push_tries = 2;
        w.config.push_timeout = Duration::from_secs(20);
        let server = Server::start(Some("401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\""));
        let git = git.with_protocols(Protocols::parse("http,git,file").unwrap());
        let token = || Credentials::token(&server.url, "robot", Secret::new(CANARY)).unwrap();
        // In the URL, which is the operator's doing, and as a token, which is ours.
        let with_user = server.url.replace("http://", &format!("http://robot:{CANARY}@"));
        let as_git = format!("git://robot:{CANARY}@127.0.0.1:9/x.git");
        for url in [server.url.clone(), with_user, as_git] {
            w.set_url(&url);
            w.git = git.clone().with_credentials(token());
            w.push(MAIN, None, &w.commit(None, &url.replace(CANARY, "")));
            let drained = w.drain().await;
            assert!(matches!(drained.end, Round::Waiting(_)), "{drained:?}");
        }
        assert!(server.heard().contains("Authorization: Basic"), "the token was used");
        // Another side that repeats what it was told.
        w.set_url(w.remote.path().to_str().unwrap());
        w.remote_hook("pre-receive", &format!("echo 'your token is {CANARY}' >&2; exit 1"));
        w.drain().await;
        let letters = w.letters();
        assert!(
            letters.iter().any(|stored| stored.letter.error.contains("your token is ***")),
            "{letters:?}"
        );
        let files = content(&w.repo.path().join(".stargate"));
        let report = format!("{:?}", stargate_mirror::Report::of(w.repo.path()).unwrap());
        let logged = log.0.lock().unwrap().clone();
        println!("looked at {} bytes of files and {} of logs", files.len(), logged.len());
        for (what, bytes) in [("files", files), ("report", report.into_bytes()), ("log", logged)] {
            let found = bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes());
            assert!(!found, "the token is in the {what}");
        }
    }
}
