//! `stargate up` that runs a directive, on either engine, with store and rows in SQLite.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use super::server::{NAMESPACE, Server};
use crate::git::node::Home;

/// What is measured.
const MEASURED: &str = "people";
/// One page, so that what is measured finds a worker that works already.
const WARM: &str = "warm";

pub(super) struct Ours<'a> {
    stargate: &'a Path,
    server: &'a Server,
    pages: u32,
    page_size: u32,
    /// The records of all pages.
    many: PathBuf,
    /// Those of one page.
    few: PathBuf,
}

/// What the command says at its end, as far as it is of interest here.
#[derive(Deserialize)]
struct Run {
    run_id: String,
    workflow_id: String,
    outcome: String,
    pages: u64,
    created: u64,
    started_at: Timestamp,
    ended_at: Timestamp,
}

impl<'a> Ours<'a> {
    pub(super) fn new(
        stargate: &'a Path,
        server: &'a Server,
        folder: &Path,
        pages: u32,
        page_size: u32,
    ) -> Result<Self> {
        let (many, few) = (folder.join("many.jsonl"), folder.join("few.jsonl"));
        write_records(&many, u64::from(pages) * u64::from(page_size))?;
        write_records(&few, u64::from(page_size))?;
        Ok(Self { stargate, server, pages, page_size, many, few })
    }

    /// Seconds of a run on the embedded engine, as the run tells them.
    pub(super) async fn embedded(&self) -> Result<f64> {
        let run = self.run("").await?;
        Ok(run.ended_at.duration_since(run.started_at).as_secs_f64())
    }

    /// Seconds of a run's workflow, as the cluster tells them. What comes before and after the run is in it.
    pub(super) async fn temporal(&self, pages_per_activity: Option<u64>) -> Result<f64> {
        let stretch = pages_per_activity.map(|pages| format!("pages_per_activity = {pages}\n"));
        let settings = format!(
            "[directives]\nengine = \"temporal\"\n[temporal]\naddress = {:?}\nnamespace = {NAMESPACE:?}\n{}",
            self.server.address,
            stretch.unwrap_or_default()
        );
        let run = self.run(&settings).await?;
        self.server.took(&run.workflow_id, &run.run_id).await
    }

    /// A run in a home of its own, by a worker that has run another before.
    async fn run(&self, settings: &str) -> Result<Run> {
        let home = Home::with_store(self.stargate, None)?;
        let directives = home.dir().join("directives");
        std::fs::create_dir(&directives)?;
        // Claiming pauses on a busy machine, and the load is the benchmark's own.
        let settings = format!("[worker]\nload_threshold = 1000.0\n{settings}");
        std::fs::write(home.dir().join("stargate.toml"), settings)?;
        for (name, records) in [(WARM, &self.few), (MEASURED, &self.many)] {
            std::fs::write(directives.join(format!("{name}.toml")), self.directive(name, records)?)?;
        }
        let node = home.up().await?;
        let ran = async {
            self.answer(&home, WARM, 1).await?;
            self.answer(&home, MEASURED, self.pages).await
        }
        .await;
        if ran.is_err() {
            println!("{}", std::fs::read_to_string(home.dir().join("log.txt")).unwrap_or_default());
        }
        node.stop().await?;
        let run = ran?;
        let file = rusqlite::Connection::open(home.dir().join("stargate.db"))?;
        let count = format!("select count(*) from {MEASURED}");
        let rows: i64 = file.query_row(&count, [], |row| row.get(0))?;
        ensure!(rows == i64::from(self.pages) * i64::from(self.page_size), "{rows} rows were written");
        Ok(run)
    }

    /// Runs a directive; all its rows must be new.
    async fn answer(&self, home: &Home, name: &str, pages: u32) -> Result<Run> {
        let said = home.answer(&["directive", "run", name, "--json"]).await?;
        let run: Run = serde_json::from_str(&said).with_context(|| said.clone())?;
        let rows = u64::from(pages) * u64::from(self.page_size);
        ensure!(run.outcome == "succeeded" && run.created == rows && run.pages >= u64::from(pages), "{said}");
        Ok(run)
    }

    fn directive(&self, name: &str, records: &Path) -> Result<String> {
        Ok(format!(
            "name = \"{name}\"\nqueue = \"meta-py\"\ntenant = \"bench\"\nproject = \"bench\"\npage_size = {}\n\n\
             [source]\ntype = \"file\"\npath = {:?}\n\n[item]\nkey = [\"/id\"]\n\n[item.map]\n\
             id = {{ from = \"/id\", type = \"integer\" }}\nname = \"/name\"\nemail = \"/email\"\n\n\
             [sink]\ntable = \"{name}\"\n",
            self.page_size,
            records.to_str().context("the folder's name is not text")?
        ))
    }
}

fn write_records(path: &Path, count: u64) -> Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for id in 0..count {
        let record = json!({ "id": id, "name": format!("name {id}"), "email": format!("{id}@example.org") });
        writeln!(file, "{record}")?;
    }
    file.flush()?;
    Ok(())
}
