//! dlt and the Singer target, each in a Python environment of its own, with the versions their lists name.
//!
//! The environments are kept in the target folder. They have no pip of their own, which Debian would want a further
//! package for; the one that is there installs into them.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::json;
use tokio::process::Command;
use tokio_postgres::config::Host;

use super::data::Data;
use super::{Loader, Took, children_cpu, text};
use crate::git::client::{answer, program};

/// Where the rows go.
pub(super) const TABLE: &str = "peer.rows";
const SCRIPT: &str = include_str!("../../peers/directive/dlt_load.py");
const DLT: Peer = Peer {
    folder: "dlt",
    package: "dlt[postgres]==1.31.0",
    versions: include_str!("../../peers/directive/dlt.txt"),
};
const TARGET: Peer = Peer {
    folder: "target-postgres",
    package: "meltanolabs-target-postgres==0.8.1",
    versions: include_str!("../../peers/directive/target-postgres.txt"),
};
/// Written last: an installation that was interrupted starts over.
const STAMP: &str = ".installed";

pub(crate) struct Peer {
    pub(crate) folder: &'static str,
    /// What is asked for, by name and version.
    pub(crate) package: &'static str,
    /// Everything that is installed, as `pip freeze` lists it.
    pub(crate) versions: &'static str,
}

/// The installed peers and what they load.
pub(super) struct Peers<'a> {
    environments: PathBuf,
    folder: &'a Path,
    data: &'a Data,
}

/// A peer that is ready to load.
pub(super) struct Stage<'a> {
    loader: Loader,
    url: String,
    /// Its files.
    folder: PathBuf,
    peers: &'a Peers<'a>,
}

/// What the script for dlt says.
#[derive(Deserialize)]
struct Said {
    seconds: f64,
}

impl<'a> Peers<'a> {
    /// Installs those that are wanted and not there.
    pub(super) async fn install(
        python: &Path,
        data: &'a Data,
        folder: &'a Path,
        loaders: &[Loader],
    ) -> Result<Self> {
        let environments = environments()?;
        let wants = |wanted: &[Loader]| loaders.iter().any(|loader| wanted.contains(loader));
        if wants(&[Loader::Dlt, Loader::DltArrow]) {
            DLT.install(python, &environments).await?;
        }
        if wants(&[Loader::SingerTarget]) {
            TARGET.install(python, &environments).await?;
        }
        Ok(Self { environments, folder, data })
    }

    /// A peer that has never loaded into this database.
    pub(super) fn prepare(&'a self, loader: Loader, url: &str) -> Result<Stage<'a>> {
        let folder = self.folder.join("peer");
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir(&folder)?;
        std::fs::write(folder.join("load.py"), SCRIPT)?;
        if loader == Loader::SingerTarget {
            std::fs::write(folder.join("config.json"), target_config(url)?)?;
        }
        Ok(Stage { loader, url: url.to_owned(), folder, peers: self })
    }
}

impl Stage<'_> {
    /// Loads the rows.
    pub(super) async fn load(&self) -> Result<Took> {
        let command = self.command()?;
        let (began, cpu) = (Instant::now(), children_cpu()?);
        let said = answer(command).await?;
        let (whole, cpu) = (began.elapsed().as_secs_f64(), children_cpu()? - cpu);
        let load = match self.loader {
            // It does not tell its start from the load.
            Loader::SingerTarget => whole,
            _ => serde_json::from_str::<Said>(said.lines().last().unwrap_or(""))?.seconds,
        };
        Ok(Took { whole, load, cpu })
    }

    fn command(&self) -> Result<Command> {
        let data = self.peers.data;
        let mut command = match self.loader {
            Loader::SingerTarget => {
                let mut command =
                    program(self.peers.environments.join("target-postgres/bin/target-postgres"));
                command.args(["--config", "config.json"]);
                command.stdin(Stdio::from(std::fs::File::open(&data.singer)?));
                command
            }
            loader => {
                let mut command = program(self.peers.environments.join("dlt/bin/python"));
                let kind = if loader == Loader::DltArrow { "arrow" } else { "rows" };
                command.args(["load.py", kind, text(&data.lines)?, "state"]);
                command.env("DESTINATION_URL", &self.url).env("RUNTIME__DLTHUB_TELEMETRY", "false");
                command
            }
        };
        command.current_dir(&self.folder).env("HOME", &self.folder);
        Ok(command)
    }
}

/// The target's settings: where to write, and nothing else.
fn target_config(url: &str) -> Result<String> {
    let server: tokio_postgres::Config = url.parse()?;
    let host = match server.get_hosts() {
        [Host::Tcp(host)] => host,
        _ => anyhow::bail!("the Singer target needs one server, reached by TCP"),
    };
    // It wants a password even where the server asks for none.
    let password = server.get_password().map_or("unused".into(), String::from_utf8_lossy);
    let config = json!({
        "host": host,
        "port": server.get_ports().first().unwrap_or(&5432),
        "user": server.get_user(),
        "password": password,
        "database": server.get_dbname(),
        "default_target_schema": "peer",
    });
    Ok(config.to_string())
}

/// Where peers are kept.
pub(crate) fn environments() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let target = program.parent().and_then(Path::parent).context("this program is in no target folder")?;
    Ok(target.join("bench-peers"))
}

impl Peer {
    pub(crate) async fn install(&self, python: &Path, environments: &Path) -> Result<()> {
        let folder = environments.join(self.folder);
        let mut version = program(python);
        version.args(["-c", "import sys; print(sys.version, sys.executable)"]);
        // An environment names the Python it was made with, and its programs name the folder they are in.
        let stamp = format!("{}\n{}\n{}", answer(version).await?, folder.display(), self.versions);
        if std::fs::read_to_string(folder.join(STAMP)).is_ok_and(|there| there == stamp) {
            return Ok(());
        }
        println!("installing {} with pip", self.package);
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder)?;
        let mut venv = program(python);
        venv.args(["-m", "venv", "--without-pip"]).arg(&folder);
        answer(venv).await.context("cannot make an environment")?;
        let constraints = folder.join("constraints.txt");
        std::fs::write(&constraints, self.versions)?;
        let mut pip = program(python);
        pip.args(["-m", "pip", "--python"]).arg(folder.join("bin/python"));
        pip.args(["install", "--quiet", "--only-binary=:all:", "--constraint"]).arg(&constraints);
        pip.args(self.packages());
        // Where packages come from is set there.
        pip.envs(std::env::vars_os()).env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
        answer(pip).await.with_context(|| format!("cannot install {}", self.package))?;
        std::fs::write(folder.join(STAMP), stamp)?;
        Ok(())
    }

    /// The package and, where it does not bring it along, what feeds it.
    fn packages(&self) -> Vec<&str> {
        let arrow = self.versions.lines().filter(|line| line.starts_with("pyarrow=="));
        self.package.split_whitespace().chain(arrow).collect()
    }
}
