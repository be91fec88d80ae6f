//! The systems that are compared: how each is filled and started, and how soon it rescues a dead worker's jobs.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use super::install::{Home, Installed, command, must};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum System {
    Stargate,
    GraphileWorker,
    PgBoss,
    Procrastinate,
    GraphileWorkerCrate,
    Apalis,
    Awa,
    Underway,
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
    installed: &'a Installed,
    url: String,
    home: TempDir,
}

impl System {
    const ALL: [Self; 8] = [
        Self::Stargate,
        Self::GraphileWorker,
        Self::PgBoss,
        Self::Procrastinate,
        Self::GraphileWorkerCrate,
        Self::Apalis,
        Self::Awa,
        Self::Underway,
    ];

    /// Those whose names begin so, or all.
    pub(super) fn chosen(only: &[String]) -> Result<Vec<Self>> {
        let wanted = |name: &str| only.is_empty() || only.iter().any(|only| name.starts_with(only.as_str()));
        let chosen: Vec<_> = Self::ALL.into_iter().filter(|system| wanted(system.name())).collect();
        let names = Self::ALL.map(Self::name).join(", ");
        ensure!(!chosen.is_empty(), "no name begins with {}: there are {names}", only.join(" or "));
        Ok(chosen)
    }

    /// With the version that is installed.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Stargate => "Stargate",
            Self::GraphileWorker => "graphile-worker 0.18.0",
            Self::PgBoss => "pg-boss 12.38.0",
            Self::Procrastinate => "procrastinate 3.10.0",
            Self::GraphileWorkerCrate => "graphile_worker 0.14.1",
            Self::Apalis => "apalis-postgres 1.0.0",
            Self::Awa => "awa 0.6.9",
            Self::Underway => "underway 0.2.0",
        }
    }

    /// None for ours.
    pub(super) fn home(self) -> Option<Home> {
        match self {
            Self::Stargate => None,
            Self::GraphileWorker => Some(Home::Npm("graphile-worker.mjs")),
            Self::PgBoss => Some(Home::Npm("pg-boss.mjs")),
            Self::Procrastinate => Some(Home::Pip("procrastinate_worker.py")),
            Self::GraphileWorkerCrate => Some(Home::Crate("peer-graphile-worker")),
            Self::Apalis => Some(Home::Crate("peer-apalis")),
            Self::Awa => Some(Home::Crate("peer-awa")),
            Self::Underway => Some(Home::Crate("peer-underway")),
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
            (Self::GraphileWorkerCrate, Rescue::Default) => "default: after 4 h",
            (Self::GraphileWorkerCrate, Rescue::Prompt) => "heartbeat 1 s, inactive after 3 s",
            (Self::Apalis, Rescue::Default) => "default: after 5 min",
            (Self::Apalis, Rescue::Prompt) => "heartbeat 1 s, 3 missed",
            (Self::Awa, Rescue::Default) => "default: stale after 90 s",
            (Self::Awa, Rescue::Prompt) => "heartbeat 1 s, stale after 3 s",
            (Self::Underway, Rescue::Default) => "default: stalled after 30 s, a look a minute",
            (Self::Underway, Rescue::Prompt) => "stalled after 3 s, a look a second",
        }
    }
}

impl<'a> Place<'a> {
    pub(super) fn new(
        binary: &'a Path,
        installed: &'a Installed,
        url: String,
        system: System,
        rescue: Rescue,
    ) -> Result<Self> {
        Ok(Self { system, rescue, binary, installed, url, home: tempfile::tempdir().context("a folder")? })
    }

    /// What jobs wrote.
    pub(super) fn effects(&self) -> String {
        std::fs::read_to_string(self.effects_path()).unwrap_or_default()
    }

    fn effects_path(&self) -> PathBuf {
        self.home.path().join("effects.log")
    }

    pub(super) fn prepare(&self) -> Result<()> {
        if let Some(home) = self.system.home() {
            return must(&mut self.program(home, &["setup"]));
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
        let Some(home) = self.system.home() else {
            // The first one makes the kind known, which a worker would do otherwise.
            must(&mut self.stargate(&["job", "enqueue", "step"]))?;
            let call = format!("select count(stargate.enqueue('step')) from generate_series(2, {jobs})");
            must(command("psql").args([&self.url, "-qAtc", &call]))?;
            return Ok(jobs);
        };
        let output =
            self.program(home, &["enqueue", &jobs.to_string()]).output().context("cannot enqueue")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cannot enqueue: {said}");
        Ok(String::from_utf8_lossy(&output.stdout).lines().count())
    }

    pub(super) fn work(&self) -> Result<Child> {
        let log =
            std::fs::OpenOptions::new().create(true).append(true).open(self.home.path().join("worker.log"));
        let log = log.context("a log")?;
        let mut program = match self.system.home() {
            None => self.stargate(&["worker", "--listen", "127.0.0.1:0"]),
            // Their `work` is the benchmark's, which ends after some jobs.
            Some(home @ Home::Crate(_)) => self.program(home, &["serve"]),
            Some(home) => self.program(home, &["work"]),
        };
        program.stdout(log.try_clone().context("a log")?).stderr(log).spawn().context("cannot start a worker")
    }

    fn stargate(&self, words: &[&str]) -> Command {
        let mut stargate = command(self.binary);
        stargate.args(words).current_dir(self.home.path());
        stargate.env("STARGATE_HOME", self.home.path().join("home")).env("STARGATE_STORE", &self.url);
        stargate
    }

    fn program(&self, home: Home, words: &[&str]) -> Command {
        let mut program = self.installed.command(home);
        program.args(words).stdin(Stdio::null());
        program.env("DATABASE_URL", &self.url).env("EFFECTS", self.effects_path());
        program.env("RESCUE", if self.rescue == Rescue::Prompt { "prompt" } else { "default" });
        program
    }
}

#[cfg(test)]
mod tests {
    use super::{Home, System};

    const PACKAGES: &str = include_str!("../../rivals/package.json");
    const REQUIREMENTS: &str = include_str!("../../rivals/requirements.txt");
    const CRATES: &str = include_str!("../../../bench/peers/queue/rust/Cargo.lock");

    #[test]
    fn each_is_named_with_the_version_that_is_installed() {
        for system in System::ALL {
            let (pinned, line) = match (system.home(), system.name().split_once(' ')) {
                (None, _) => continue,
                (Some(Home::Npm(_)), Some((name, version))) => {
                    (PACKAGES, format!("\"{name}\": \"{version}\""))
                }
                (Some(Home::Pip(_)), Some((name, version))) => (REQUIREMENTS, format!("{name}=={version}\n")),
                (Some(Home::Crate(_)), Some((name, version))) => {
                    (CRATES, format!("name = \"{name}\"\nversion = \"{version}\"\n"))
                }
                (Some(_), None) => panic!("{} says no version", system.name()),
            };
            assert!(pinned.contains(&line), "{line} is not what is installed");
        }
    }

    #[test]
    fn the_beginning_of_a_name_chooses() {
        let chosen = |only: &[&str]| {
            System::chosen(&only.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())
                .map_err(|error| error.to_string())
        };
        assert_eq!(chosen(&[]), Ok(System::ALL.to_vec()));
        // Two of them differ in one letter.
        assert_eq!(chosen(&["graphile_", "awa"]), Ok(vec![System::GraphileWorkerCrate, System::Awa]));
        let none = chosen(&["sidekiq"]).expect_err("there is no such system");
        assert!(none.contains("sidekiq") && none.contains("underway 0.2.0"), "{none}");
    }
}
