//! A real remote over HTTP that wants a token: another Stargate.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use stargate_testkit::process::{Program, Running, get};

use crate::leader::until_leads;
use crate::stage::{MAIN, PATIENCE, Stage, eventually, executable};

/// From here on the text of a token is secret; what stands before it is its id, which lists show.
const SECRET_AT: usize = 16;
/// The longest file that is looked through.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The other side: a node with a repository `tools` that only a token opens.
pub(crate) struct Hub {
    pub(crate) program: Program,
    pub(crate) node: Running,
}

impl Hub {
    pub(crate) async fn start() -> Self {
        let program = Program::new(env!("CARGO_BIN_EXE_stargate"));
        let mut node = program.start_with(&["up"], &[("STARGATE_INSTANCE", "hub")]);
        node.ready().await;
        until_leads(&node).await;
        program.answer(&["repo", "create", "tools"]);
        Self { program, node }
    }

    pub(crate) fn repo(&self) -> PathBuf {
        self.program.home().join("repos/tools.git")
    }

    /// A token for pushing; from then on the repository is closed to everybody else.
    async fn token(&self) -> String {
        let token = self.program.answer(&["token", "add", "mirror", "--role", "write", "--repo", "tools"]);
        stargate_testkit::eventually(PATIENCE, "the door to close", || async {
            let path = "/git/tools.git/info/refs?service=git-upload-pack";
            match get(self.node.address(), path).await {
                Ok((401, _)) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        token
    }

    /// Takes watermarks too, which the hook of a Stargate keeps for its own mirror. While there is a file `hold`, a push is
    /// held up, and there is a file `held`.
    fn take_everything_unless_held(&self) -> [PathBuf; 2] {
        let [hold, held] = ["hold", "held"].map(|name| self.program.home().join(name));
        let each = format!("while test -e {}; do touch {}; sleep 0.05; done", hold.display(), held.display());
        // The hooks of every push that is served.
        let served = std::fs::read_dir(self.program.home().join("repos/.hooks")).unwrap().flatten();
        let written: Vec<()> = served
            .map(|dir| executable(&dir.path().join("pre-receive"), &format!("cat > /dev/null\n{each}")))
            .collect();
        assert!(!written.is_empty(), "the hub serves pushes without hooks");
        [hold, held]
    }
}

/// A repository `tools` whose remote is the hub, with the token of the environment variable `HUB_TOKEN`.
fn towards(hub: &Hub, token: &str) -> Stage {
    let stage = Stage::new();
    let url = format!("http://{}/git/tools.git", hub.node.address());
    let toml = format!(
        "[mirror]\nprotocols = [\"http\"]\nrescan_every = \"200ms\"\nreconcile_every = \"1h\"\ntoken = \"${{env:HUB_TOKEN}}\"\n\
         [mirror.remotes.\"tools\"]\nurl = \"{url}\"\n"
    );
    std::fs::write(stage.program.home().join("stargate.toml"), toml).unwrap();
    let stage = Stage { remote: hub.repo(), ..stage };
    with_token(stage, token)
}

fn with_token(stage: Stage, token: &str) -> Stage {
    Stage { program: stage.program.with("HUB_TOKEN", token), ..stage }
}

/// The forms in which a token could be written down: itself, and as it stands in a header.
fn forms(token: &str) -> Vec<String> {
    let header = BASE64_STANDARD.encode(format!("x-access-token:{token}"));
    // What stands before is the user and the id.
    vec![token[SECRET_AT..].to_owned(), header[32..].trim_end_matches('=').to_owned()]
}

fn contains(bytes: &[u8], secrets: &[String]) -> bool {
    secrets.iter().any(|secret| bytes.windows(secret.len()).any(|window| window == secret.as_bytes()))
}

/// How many files there are below a directory; none of them may hold a secret.
fn search(dir: &Path, secrets: &[String]) -> usize {
    let mut count = 0;
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        // Files come and go while nodes run.
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            count += search(&entry.path(), secrets);
        } else if kind.is_file() {
            let Ok(bytes) = std::fs::read(entry.path()) else { continue };
            assert!(bytes.len() as u64 <= FILE_BYTES_MAX, "{} is too long to search", entry.path().display());
            assert!(!contains(&bytes, secrets), "{} holds a token", entry.path().display());
            count += 1;
        }
    }
    count
}

/// The command lines of all processes.
fn command_lines() -> Vec<Vec<u8>> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok()).collect()
}

/// The processes that have a secret in their environment, by their names. Only the same user and the administrator can
/// look there.
fn who_is_told(secrets: &[String]) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let told = processes.filter(|process| {
        std::fs::read(process.path().join("environ")).is_ok_and(|environment| contains(&environment, secrets))
    });
    let name = |process: std::fs::DirEntry| std::fs::read_to_string(process.path().join("comm")).ok();
    told.filter_map(name).map(|name| name.trim().to_owned()).collect()
}

/// Everything that the commands and the API tell.
async fn told(stage: &Stage, node: &Running) -> String {
    let mut all = node.log();
    for words in [
        &["status"][..],
        &["status", "--json"],
        &["dead-letter", "list", "--all"],
        &["dead-letter", "list", "--all", "--json"],
        &["verify"],
        &["sync", "--json"],
        &["reconcile"],
        &["run", "--once"],
    ] {
        let output = stage.mirror(words);
        all += &String::from_utf8_lossy(&[output.stdout, output.stderr].concat());
    }
    all += &stage.program.answer(&["config", "show"]);
    for words in [&["doctor", "--json"][..], &["mirror", "status"], &["config", "show", "--json"]] {
        let output = stage.program.run(words);
        all += &String::from_utf8_lossy(&[output.stdout, output.stderr].concat());
    }
    for path in [
        "/healthz",
        "/readyz",
        "/metrics",
        "/api/v1/leader",
        "/api/v1/mirror",
        "/api/v1/mirror/dead-letters?repo=tools&state=all",
    ] {
        all += &get(node.address(), path).await.unwrap().1;
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_with_a_token_is_mirrored_to_and_nobody_sees_the_token() {
    let hub = Hub::start().await;
    let (token, [hold, held]) = (hub.token().await, hub.take_everything_unless_held());
    let (stage, secrets) = (towards(&hub, &token), forms(&token));
    let chain = stage.chain(4);
    let push =
        |n: usize| stage.push(&format!("e{n}"), MAIN, n.checked_sub(1).map(|n| chain[n].as_str()), &chain[n]);
    let node = stage.node("a").await;
    (0..3).for_each(push);
    eventually("three pushes to arrive", || stage.remote_ref(MAIN) == chain[2]).await;

    // In the middle of a push, when git and its helper have been told the token.
    std::fs::write(&hold, "").unwrap();
    push(3);
    let url = format!("http://{}/git/tools.git", hub.node.address());
    let looked_at = || {
        let lines = command_lines();
        assert!(!lines.iter().any(|line| contains(line, &secrets)), "a command line holds the token");
        held.exists() && lines.iter().any(|line| contains(line, std::slice::from_ref(&url)))
    };
    eventually("a push that the remote holds up", looked_at).await;
    // Only the node and the git that pushes for it have it in their environment; the helper of git inherits that.
    let told_to = who_is_told(&secrets);
    assert!(!told_to.is_empty(), "the search can find something");
    let ours = |name: &String| name.starts_with("git") || name.starts_with("stargate");
    assert!(told_to.iter().all(ours), "others were told: {told_to:?}");
    std::fs::remove_file(&hold).unwrap();
    eventually("the last push to arrive", || stage.remote_ref(MAIN) == chain[3]).await;
    let words = ["wait", "--oid", &chain[3], "--timeout", "60s"];
    assert_eq!(stage.answer(&words)["watermark"], chain[3].as_str());
    stage.assert_mirrored(&chain[3]);
    stage.answer(&["verify"]);

    let all = told(&stage, &node).await;
    assert!(all.contains("mirroring") && !contains(all.as_bytes(), &secrets), "a token is told:\n{all}");
    let files = search(stage.program.home(), &secrets) + search(hub.program.home(), &secrets);
    assert!(files > 20, "only {files} files were searched");
    // The search can find something: the id of the token is in the store of the hub.
    let id = [token[3..SECRET_AT - 1].to_owned()];
    let store = ["stargate.db", "stargate.db-wal"].map(|name| std::fs::read(hub.program.home().join(name)));
    assert!(store.iter().flatten().any(|bytes| contains(bytes, &id)), "not even the id is in the store");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_wrong_token_everything_waits_and_with_the_right_one_all_arrives() {
    let hub = Hub::start().await;
    let token = hub.token().await;
    hub.take_everything_unless_held();
    let wrong = format!("{}{}", &token[..SECRET_AT], token[SECRET_AT..].chars().rev().collect::<String>());
    let stage = towards(&hub, &wrong);
    let chain = stage.chain(5);
    let push =
        |n: usize| stage.push(&format!("e{n}"), MAIN, n.checked_sub(1).map(|n| chain[n].as_str()), &chain[n]);
    let mut node = stage.node("a").await;
    (0..4).for_each(push);
    eventually("the breaker to open", || stage.answer(&["status"])["worker"]["breaker"] == "open").await;
    let status = stage.answer(&["status"]);
    assert!(status["worker"]["error"].as_str().unwrap().contains("Authentication failed"), "{status}");
    assert!(status["backlog"].as_u64().unwrap() >= 3, "{status}");
    let letters = stage.letters();
    assert!(letters.len() <= 1, "{letters:?}");
    assert!(letters.iter().all(|letter| letter["reason"] == "auth"), "{letters:?}");
    let secrets = [forms(&wrong), forms(&token)].concat();
    let all = told(&stage, &node).await;
    assert!(all.contains("Authentication failed") && !contains(all.as_bytes(), &secrets), "{all}");
    assert_eq!(stage.remote_ref(MAIN), "");

    node.terminate();
    assert!(node.ended(PATIENCE).await.success(), "{}", node.log());
    let stage = with_token(stage, &token);
    let node = stage.node("b").await;
    let last = chain.len() - 1;
    stage.push(&format!("e{last}"), MAIN, Some(&chain[last - 1]), &chain[last]);
    eventually("everything to arrive", || stage.remote_ref(MAIN) == chain[last]).await;
    eventually("nothing to wait", || stage.answer(&["status"])["backlog"] == 0).await;
    eventually("the letter to be requeued", || stage.letters().is_empty()).await;
    stage.assert_mirrored(&chain[last]);
    stage.answer(&["verify"]);
    let once = stage.answer(&["dead-letter", "list", "--all"]);
    assert_eq!(once.as_array().unwrap().len(), letters.len(), "it was given up again: {once}");
    let all = told(&stage, &node).await;
    assert!(!contains(all.as_bytes(), &secrets), "{all}");
    search(stage.program.home(), &secrets);
    search(hub.program.home(), &secrets);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_given_up_over_a_revoked_token_is_requeued_by_itself_with_a_new_one() {
    let hub = Hub::start().await;
    let first = hub.token().await;
    hub.take_everything_unless_held();
    let stage = towards(&hub, &first);
    let chain = stage.chain(4);
    let push =
        |n: usize| stage.push(&format!("e{n}"), MAIN, n.checked_sub(1).map(|n| chain[n].as_str()), &chain[n]);
    let mut node = stage.node("a").await;
    push(0);
    eventually("the first entry", || stage.remote_ref(MAIN) == chain[0]).await;
    hub.program.answer(&["token", "revoke", &first[3..SECRET_AT - 1]]);
    eventually("the revocation to be felt", || !stage.mirror(&["verify"]).status.success()).await;
    (1..4).for_each(push);
    eventually("one entry to be given up", || stage.letters().len() == 1).await;
    eventually("the breaker to open", || stage.answer(&["status"])["worker"]["breaker"] == "open").await;
    let letters = stage.letters();
    assert_eq!((letters.len(), &letters[0]["reason"]), (1, &"auth".into()), "{letters:?}");
    let shown = stage.answer(&["dead-letter", "show", letters[0]["dead_letter_id"].as_str().unwrap()]);

    node.terminate();
    assert!(node.ended(PATIENCE).await.success(), "{}", node.log());
    let second = hub.token().await;
    let stage = with_token(stage, &second);
    let node = stage.node("b").await;
    eventually("everything to arrive", || stage.remote_ref(MAIN) == chain[3]).await;
    eventually("the letter to be requeued", || stage.letters().is_empty()).await;
    let all = stage.answer(&["dead-letter", "list", "--all"]);
    assert_eq!((all.as_array().unwrap().len(), &all[0]["state"]), (1, &"requeued".into()), "{all}");
    stage.assert_mirrored(&chain[3]);
    let secrets = [forms(&first), forms(&second)].concat();
    let told = format!("{shown}{}", told(&stage, &node).await);
    assert!(!contains(told.as_bytes(), &secrets), "{told}");
    search(stage.program.home(), &secrets);
    search(hub.program.home(), &secrets);
}
