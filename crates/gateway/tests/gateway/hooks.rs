//! The hooks of the tests: this program once more, started by git.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use stargate_gateway::hook::{
    Context, Journaling, Leadership, PushRecord, PushSink, RepoAncestry, Rules, SinkError, Standing,
    post_receive, pre_receive,
};
use stargate_git::{RefPattern, RepoDir};

use crate::fixture::{HOOK_DIR, PATIENCE, git};

/// The variable that makes a hook of this program.
pub(crate) const HOOK: &str = "STARGATE_TEST_HOOK";

/// What a test has put into the hooks' directory.
struct Told(PathBuf);

impl Told {
    fn to(&self, what: &str) -> bool {
        self.0.join(what).exists()
    }

    fn says(&self, what: &str) {
        std::fs::write(self.0.join(what), "").unwrap();
    }

    /// Says that it is there and waits until it may go on, if it was told to.
    async fn wait(&self, place: &str) {
        if !self.to(&format!("wait-{place}")) {
            return;
        }
        self.says(&format!("at-{place}"));
        let look = async {
            while !self.to("go") {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, look).await.expect("nobody says go");
    }
}

#[async_trait]
impl Leadership for Told {
    async fn standing(&self, epoch: Option<u64>) -> Standing {
        assert_eq!(epoch, Some(7), "the epoch of the admission");
        if self.to("not-leader") {
            Standing::NotLeader { leader: Some("http://other.example".into()) }
        } else {
            Standing::Leads
        }
    }
}

#[async_trait]
impl PushSink for Told {
    async fn record(&self, push: &PushRecord) -> Result<(), SinkError> {
        if self.to("die-after-journal") {
            std::process::abort();
        }
        let mut file = std::fs::File::options().create(true).append(true).open(self.0.join("recorded"))?;
        let refs: Vec<&str> = push.updates.iter().map(|update| update.name.as_str()).collect();
        let context = &push.context;
        let (repo, pusher) = (context.repo.as_deref().unwrap(), context.pusher.as_deref().unwrap());
        writeln!(file, "{repo} {pusher} {}", refs.join(","))?;
        Ok(())
    }
}

/// In a test run it is started without a hook's name, and says what a hook would see then: nothing.
#[test]
fn a_hook_is_a_program() {
    let Some(hook) = std::env::var_os(HOOK) else {
        assert_eq!(Context::read(|_| None), Context::default());
        return;
    };
    let code =
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(run(&hook));
    std::process::exit(code.into());
}

async fn run(hook: &OsString) -> u8 {
    let told = Told(std::env::var_os(HOOK_DIR).unwrap().into());
    let context = Context::read(|name| std::env::var_os(name));
    record_environment(&told);
    let patterns = vec![RefPattern::parse("refs/kv/*").unwrap()];
    let (input, pusher) = (std::io::stdin().lock(), std::io::stderr());
    if hook == "post-receive" {
        told.wait("post-receive").await;
        let journaling = Journaling { repo_dir: std::env::current_dir().unwrap(), patterns };
        post_receive::run(input, pusher, &context, &journaling, &told).await;
        return 0;
    }
    told.wait("before").await;
    let repo = RepoDir::open(Path::new(".")).unwrap();
    let ancestry = RepoAncestry::new(git(), repo, &context);
    let code =
        pre_receive::run(input, pusher, &context, &Rules::protecting(patterns), &ancestry, &told).await;
    told.wait("after").await;
    code
}

/// Leaves the names of all variables, so that a test can see what reached the hook.
fn record_environment(told: &Told) {
    let names: Vec<String> =
        std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
    std::fs::write(told.0.join("environment"), names.join("\n")).unwrap();
}
