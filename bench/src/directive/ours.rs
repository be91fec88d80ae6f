//! `stargate directive run` in a home of its own.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;

use super::data::Data;
use super::{Pair, Took, children_cpu, text};
use crate::git::client::program;
use crate::git::node::Home;

/// Where the rows go.
pub(super) const TABLE: &str = "people";
const SERVER: &str = include_str!("../../peers/directive/pages.py");
/// Claiming pauses on a busy machine. The peers know no such pause, and the load is their own.
const SETTINGS: &str = "[worker]\nload_threshold = 1000.0\n";
/// The columns that dlt makes of a row; the list, for which it makes a table, is JSON here.
const COLUMNS: &str = r#"
[item.map]
id = { from = "/id", type = "integer" }
name = "/name"
email = "/email"
age = { from = "/age", type = "integer" }
score = { from = "/score", type = "float" }
active = { from = "/active", type = "boolean" }
joined_at = { from = "/created_at", type = "timestamp" }
street = "/address/street"
city = "/address/city"
zip = "/address/zip"
tags = { from = "/tags", type = "json" }
note = "/note"
"#;

/// The program and what it loads.
pub(super) struct Ours<'a> {
    pub(super) stargate: PathBuf,
    pub(super) python: &'a Path,
    pub(super) data: &'a Data,
    pub(super) page_size: u32,
}

/// A home with the directive.
pub(super) struct Stage {
    home: Home,
    /// Killed when dropped.
    _server: Option<Child>,
}

/// What the command says at its end, as far as it is of interest here.
#[derive(Deserialize)]
struct Run {
    outcome: String,
    created: u64,
    unchanged: u64,
    started_at: Timestamp,
    ended_at: Timestamp,
}

impl Ours<'_> {
    /// The directive reads the lines.
    pub(super) fn with_file(&self, store: &str) -> Result<Stage> {
        let source = format!("type = \"file\"\npath = {:?}\n", text(&self.data.lines)?);
        self.stage(Some(store.to_owned()), &source, None)
    }

    /// The directive asks a server for pages of the lines.
    pub(super) async fn with_http(&self, store: &str) -> Result<Stage> {
        let mut command = program(self.python);
        command.args(["-c", SERVER]).arg(&self.data.lines).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot run {}", self.python.display()))?;
        let mut port = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut port).await?;
        let source = format!(
            "type = \"http\"\nurl = \"http://127.0.0.1:{}/\"\nrecords = \"/items\"\npage_size_param = \"limit\"\n\
             pagination = {{ type = \"offset\", param = \"offset\" }}\n",
            port.trim()
        );
        self.stage(Some(store.to_owned()), &source, Some(child))
    }

    /// Store and rows in a file of the home.
    pub(super) async fn sqlite(&self) -> Result<Pair> {
        let source = format!("type = \"file\"\npath = {:?}\n", text(&self.data.lines)?);
        let stage = self.stage(None, &source, None)?;
        let first = stage.load(self.data.rows, true).await?;
        let again = stage.load(self.data.rows, false).await?;
        let file = rusqlite::Connection::open(stage.home.dir().join("stargate.db"))?;
        let sum = format!("select count(*), sum(age) from {TABLE}");
        let found: (i64, i64) = file.query_row(&sum, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        ensure!(found == (i64::try_from(self.data.rows)?, self.data.ages), "count and sum are {found:?}");
        Ok(Pair { first, again })
    }

    fn stage(&self, store: Option<String>, source: &str, server: Option<Child>) -> Result<Stage> {
        let home = Home::with_store(&self.stargate, store)?;
        let directives = home.dir().join("directives");
        std::fs::create_dir(&directives)?;
        std::fs::write(home.dir().join("stargate.toml"), SETTINGS)?;
        let directive = format!(
            "name = \"people\"\nqueue = \"meta-py\"\ntenant = \"bench\"\nproject = \"bench\"\npage_size = {}\nconcurrency = 8\n\n\
             [source]\n{source}\n[item]\nkey = [\"/id\"]\n{COLUMNS}\n[sink]\ntable = \"{TABLE}\"\n",
            self.page_size
        );
        std::fs::write(directives.join("people.toml"), directive)?;
        Ok(Stage { home, _server: server })
    }
}

impl Stage {
    /// Runs the directive; all rows must be new the first time and unchanged the next.
    pub(super) async fn load(&self, rows: u64, is_first: bool) -> Result<Took> {
        let (began, cpu) = (Instant::now(), children_cpu()?);
        let said = self.home.answer(&["directive", "run", "people", "--json"]).await?;
        let (whole, cpu) = (began.elapsed().as_secs_f64(), children_cpu()? - cpu);
        let run: Run = serde_json::from_str(&said).with_context(|| said.clone())?;
        let expected = if is_first { (rows, 0) } else { (0, rows) };
        ensure!(run.outcome == "succeeded" && (run.created, run.unchanged) == expected, "{said}");
        let load = run.ended_at.duration_since(run.started_at).as_secs_f64();
        Ok(Took { whole, load, cpu })
    }
}
