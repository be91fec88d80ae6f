//! A gateway that listens, with a root of its own and hooks that are this very test program.
//!
//! How the hooks behave is told by files in a directory: `not-leader`, `wait-before`, `wait-after` and so on.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use stargate_base::{Secret, Tasks};
use stargate_gateway::{
    Access, Admission, Credentials, Denied, Gate, Gateway, Hold, HookCommand, RepoName, Repositories,
    Settings,
};
use stargate_git::{Git, Oid, RefName, RefPattern, RepoDir};
use stargate_testkit::eventually;
use tempfile::TempDir;
use tokio::net::TcpListener;

/// How long anything may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The variable that tells hooks where their directory is.
pub(crate) const HOOK_DIR: &str = "STARGATE_TEST_HOOK_DIR";
/// The token that may do everything when tokens are asked for.
pub(crate) const TOKEN: &str = "s3cret-canary";

/// What the gate of a test says.
#[derive(Debug, Default)]
pub(crate) struct TestGate {
    /// Says no to everything, with this.
    pub(crate) deny: Mutex<Option<Denied>>,
    /// Asks for [`TOKEN`]; another token may read only.
    pub(crate) tokens: bool,
    /// The term in which pushes are admitted.
    pub(crate) hold: Mutex<Option<Hold>>,
}

#[async_trait]
impl Gate for TestGate {
    async fn admit(
        &self,
        _: &RepoName,
        access: Access,
        credentials: &Credentials,
    ) -> Result<Admission, Denied> {
        if let Some(denied) = &*self.deny.lock().unwrap() {
            return Err(denied.clone());
        }
        let admission = Admission {
            pusher: Some("tester".into()),
            epoch: Some(7),
            hold: self.hold.lock().unwrap().clone(),
        };
        match credentials {
            _ if !self.tokens => Ok(admission),
            Credentials::Basic { password, .. } | Credentials::Bearer(password) => {
                match (password.reveal(), access) {
                    (TOKEN, _) | ("reader", Access::Read) => Ok(admission),
                    ("reader", Access::Write) => Err(Denied::Forbidden("this token may only read".into())),
                    _ => Err(Denied::UnknownToken),
                }
            }
            Credentials::None | Credentials::Key(_) => Err(Denied::Unauthenticated),
        }
    }
}

/// A listening gateway.
#[derive(Debug)]
pub(crate) struct Fixture {
    home: TempDir,
    pub(crate) address: SocketAddr,
    pub(crate) repositories: Repositories,
    pub(crate) gate: Arc<TestGate>,
    pub(crate) tasks: Tasks,
}

impl Fixture {
    /// With the usual settings and a gate that lets everybody in.
    pub(crate) async fn start() -> Self {
        Self::start_with(Settings::default(), TestGate::default()).await
    }

    pub(crate) async fn start_with(settings: Settings, gate: TestGate) -> Self {
        let home = tempfile::Builder::new().prefix("gateway-").tempdir().unwrap();
        std::fs::create_dir(home.path().join("hook")).unwrap();
        let repositories = repositories(home.path());
        let (gate, tasks) = (Arc::new(gate), Tasks::new());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let gateway = Gateway::new(
            repositories.clone(),
            Arc::clone(&gate) as Arc<dyn Gate>,
            settings,
            hook_environment(home.path()),
            None,
            tasks.clone(),
        );
        let router = gateway.unwrap().router();
        let stop = tasks.stopping();
        tasks.spawn(async move {
            let serve = std::future::IntoFuture::into_future(axum::serve(listener, router));
            stop.run_until_cancelled(serve).await
        });
        Self { home, address, repositories, gate, tasks }
    }

    /// With a repository of that name.
    pub(crate) async fn repo(&self, name: &str) -> RepoDir {
        create(&self.repositories, name).await
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("http://{}/git/{name}.git", self.address)
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// A file by which a hook is told something, or tells something.
    pub(crate) fn hook_file(&self, name: &str) -> PathBuf {
        self.home.path().join("hook").join(name)
    }

    pub(crate) fn tell_hooks(&self, name: &str) {
        std::fs::write(self.hook_file(name), "").unwrap();
    }

    /// Waits for a hook to say something.
    pub(crate) async fn hook_says(&self, name: &str) {
        let path = self.hook_file(name);
        eventually(PATIENCE, &format!("the hook's {name}"), || {
            let there = path.exists();
            async move { there.then_some(()).ok_or_else(|| "nothing yet".to_owned()) }
        })
        .await;
    }

    /// Where a ref points to.
    pub(crate) async fn oid(&self, repo: &RepoDir, name: &str) -> Option<Oid> {
        let pattern = RefPattern::parse(name).unwrap();
        let mut refs = self.repositories.git().local_refs(repo, &[pattern]).await.unwrap();
        refs.remove(&RefName::parse(name).unwrap())
    }

    /// The pushes that `post-receive` recorded in the store, one line each.
    pub(crate) fn recorded(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.hook_file("recorded")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until no process has the root in its arguments, and no push has left its claim.
    pub(crate) async fn nothing_left(&self) {
        let root = self.home.path().to_str().unwrap().to_owned();
        eventually(PATIENCE, "the end of all processes", || {
            let mut left = processes(&root);
            left.extend(
                std::fs::read_dir(self.home.path().join("repos/.pushes"))
                    .unwrap()
                    .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()),
            );
            async move { if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) } }
        })
        .await;
    }
}

/// The repositories below a home, with hooks that are this program.
pub(crate) fn repositories(home: &Path) -> Repositories {
    let script = home.join("hook-program");
    let program = std::env::current_exe().unwrap();
    // What libtest prints is nothing for the pusher.
    let text = format!(
        "#!/bin/sh\n{}=\"$1\" exec '{}' --exact hooks::a_hook_is_a_program --nocapture >/dev/null\n",
        crate::hooks::HOOK,
        program.display()
    );
    if !script.exists() {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::write(&script, text).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let hooks = HookCommand::new(script, &[]).unwrap();
    Repositories::open(&home.join("repos"), git(), hooks).unwrap()
}

pub(crate) fn git() -> Git {
    Git::new("git", std::env::var_os("PATH").unwrap())
}

pub(crate) fn hook_environment(home: &Path) -> Vec<(OsString, OsString)> {
    vec![(HOOK_DIR.into(), home.join("hook").into())]
}

pub(crate) async fn create(repositories: &Repositories, name: &str) -> RepoDir {
    let branch = RefName::parse("refs/heads/main").unwrap();
    repositories.create(&RepoName::parse(name).unwrap(), &branch).await.unwrap()
}

/// Command lines of processes, zombies aside, that have a text in their arguments or work below it.
pub(crate) fn processes(text: &str) -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let arguments = std::fs::read(entry.path().join("cmdline")).ok()?;
        let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
        let works = std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(text));
        ((arguments.contains(text) || works) && pid != std::process::id()).then_some(arguments)
    })
    .collect()
}

/// A token as a client sends it.
pub(crate) fn basic(token: &str) -> String {
    use base64::Engine as _;
    let pair = format!("git:{}", Secret::new(token).reveal());
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair))
}
