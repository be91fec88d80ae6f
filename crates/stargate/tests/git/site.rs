//! Where most tests begin: a node that leads, a repository, and a client that has cloned it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::thread::JoinHandle;

use stargate_testkit::eventually;
use stargate_testkit::process::{Program, Running};

use crate::client::{Client, ref_of};
use crate::{PATIENCE, json, leader, program};

/// Comparisons often enough that a test sees several.
pub(crate) const OFTEN: &str = "[mirror]\nreconcile_every = \"1s\"\n";

/// A node that leads, its repository `r`, and a client that has cloned it.
pub(crate) struct Site {
    pub(crate) client: Arc<Client>,
    pub(crate) node: Running,
    pub(crate) program: Program,
}

impl Site {
    /// With a configuration.
    pub(crate) async fn open(toml: &str) -> Self {
        Self::of(program(toml)).await
    }

    pub(crate) async fn of(program: Program) -> Self {
        let node = leader(&program, "a").await;
        program.answer(&["repo", "create", "r"]);
        let client = Client::new();
        client.clone_from(&format!("http://{}/git/r.git", node.address()));
        Self { client: Arc::new(client), node, program }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/git/r.git", self.node.address())
    }

    pub(crate) fn repo(&self) -> PathBuf {
        self.program.home().join("repos/r.git")
    }

    /// Starts the node anew, as another one, and has the client push there from now on.
    pub(crate) async fn restart(&mut self) {
        self.node = leader(&self.program, "b").await;
        self.client.must(&["remote", "set-url", "origin", &self.url()]);
    }

    /// A push on a thread of its own.
    pub(crate) fn pushing(&self, refspec: &str) -> JoinHandle<Output> {
        let (client, refspec) = (Arc::clone(&self.client), refspec.to_owned());
        std::thread::spawn(move || client.git(&["push", "origin", &refspec]))
    }

    pub(crate) fn ref_of(&self, name: &str) -> Option<String> {
        ref_of(&self.repo(), name)
    }

    /// What is in the journal.
    pub(crate) fn journal(&self) -> String {
        std::fs::read_to_string(self.repo().join(".stargate/mirror-journal.ndjson")).unwrap_or_default()
    }

    /// A hook as it is served: those in the repository itself are for pushes by path.
    pub(crate) fn hook(&self, name: &str) -> PathBuf {
        let mut all = std::fs::read_dir(self.program.home().join("repos/.hooks")).unwrap();
        let dir = all.next().unwrap().unwrap().path();
        assert!(all.next().is_none(), "hooks of another program");
        dir.join(name)
    }

    /// What pushes have left beside the objects of the repository, and beside the repositories.
    pub(crate) fn left_over(&self) -> Vec<String> {
        let names = |dir: PathBuf| {
            let names = std::fs::read_dir(dir).unwrap().flatten();
            names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        let mut left = names(self.repo().join("objects"));
        left.extend(names(self.repo().join("objects/pack")));
        left.retain(|name| name.contains("incoming") || name.starts_with("tmp"));
        left.extend(names(self.program.home().join("repos/.pushes")));
        left
    }

    /// Waits for so many pushes in the store, each with a job that is done, and no more.
    pub(crate) async fn recorded(&self, count: usize) -> Vec<String> {
        recorded(&self.program, count).await
    }
}

/// An event as `ref new_oid pusher`.
pub(crate) fn events(program: &Program) -> Vec<String> {
    let store = rusqlite::Connection::open(program.home().join("stargate.db")).unwrap();
    let text =
        "select ref_name || ' ' || new_oid || ' ' || coalesce(pusher, '-') from push_event order by id";
    let mut select = store.prepare(text).unwrap();
    let rows = select.query_map([], |row| row.get::<_, String>(0)).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

async fn recorded(program: &Program, count: usize) -> Vec<String> {
    eventually(PATIENCE, &format!("{count} recorded and processed pushes"), || {
        let jobs = json(program, &["job", "list", "--kind", "push:process", "--json"]);
        let events = events(program);
        async move {
            let all = jobs.as_array().unwrap();
            let done = all.iter().filter(|job| job["state"] == "done").count();
            if (done, all.len(), events.len()) == (count, count, count) {
                return Ok(events);
            }
            Err(format!("{events:?} {jobs}"))
        }
    })
    .await
}

/// Puts a script in the place of a hook, which it finds beside itself as `$0.real`.
pub(crate) fn replace(hook: &Path, script: &str) {
    let real = real(hook);
    if !real.exists() {
        std::fs::copy(hook, real).unwrap();
    }
    std::fs::write(hook, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(hook, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Puts a hook back that was replaced.
pub(crate) fn restore(hook: &Path) {
    std::fs::copy(real(hook), hook).unwrap();
}

fn real(hook: &Path) -> PathBuf {
    let mut name = hook.as_os_str().to_owned();
    name.push(".real");
    name.into()
}

/// A hook that says `there` when it is reached, and goes on when there is a file `go`.
pub(crate) fn hold(hook: &Path, dir: &Path) -> [PathBuf; 2] {
    let [there, go] = ["there", "go"].map(|name| dir.join(name));
    let script = format!(
        "touch '{}'\nwhile [ ! -e '{}' ]; do sleep 0.05; done\nexec \"$0.real\" \"$@\"",
        there.display(),
        go.display()
    );
    replace(hook, &script);
    [there, go]
}

/// Waits for a file.
pub(crate) async fn exists(path: &Path) {
    eventually(PATIENCE, &format!("{}", path.display()), || async {
        if path.exists() { Ok(()) } else { Err("not there".to_owned()) }
    })
    .await;
}
