//! The machine that figures belong to, and what else it did.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::raw;
use crate::report::median;

/// What was not asked for when a run was stored is empty.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Facts {
    pub(crate) date: String,
    pub(crate) commit: String,
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) memory_mib: u64,
    pub(crate) kernel: String,
    pub(crate) git: String,
    /// The compiler of today, which is that of the build unless the toolchain was changed between.
    #[serde(default)]
    pub(crate) rustc: String,
    /// The version of the server, and what it does for durability unless a session says otherwise.
    #[serde(default)]
    pub(crate) postgres: String,
    /// The file system of the folder for temporary files, where SQLite and the repositories are.
    #[serde(default)]
    pub(crate) temporary_files: String,
    /// The load averages of a minute before and after.
    pub(crate) load_before: f64,
    pub(crate) load_after: f64,
    /// What [`pace`] told before and after.
    #[serde(default)]
    pub(crate) pace_before: Option<f64>,
    #[serde(default)]
    pub(crate) pace_after: Option<f64>,
}

/// What has to be known of the machine of a run to compare absolute figures with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    processor: String,
    cores: usize,
    /// The load average of a minute before the run.
    pub(crate) load_before: f64,
    /// What [`pace`] told before the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pace: Option<f64>,
}

impl Machine {
    pub(crate) fn name(&self) -> String {
        format!("{}, {} cores", self.processor, self.cores)
    }
}

impl Facts {
    /// Also of the server, if there is one that answers.
    pub(crate) async fn of_this_machine(server: Option<&str>) -> Self {
        let memory = field(&file("/proc/meminfo"), "MemTotal");
        let memory_kib: u64 = memory.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0);
        let postgres = match server {
            Some(url) => settings(url).await.unwrap_or_default(),
            None => String::new(),
        };
        Self {
            date: stargate_base::clock::wall().strftime("%Y-%m-%d").to_string(),
            commit: commit(
                &said("git", &["rev-parse", "--short", "HEAD"]),
                &said("git", &["status", "--porcelain", "--untracked-files=no"]),
            ),
            processor: field(&file("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            memory_mib: memory_kib >> 10,
            kernel: file("/proc/sys/kernel/osrelease").trim().to_owned(),
            git: said("git", &["--version"]),
            rustc: said("rustc", &["--version"]),
            postgres,
            temporary_files: file_system(&file("/proc/self/mounts"), &std::env::temp_dir()),
            load_before: load(),
            load_after: 0.0,
            pace_before: Some(pace()),
            pace_after: None,
        }
    }

    pub(crate) fn machine(&self) -> Machine {
        Machine {
            processor: self.processor.clone(),
            cores: self.cores,
            load_before: self.load_before,
            pace: self.pace_before,
        }
    }

    /// For people: what it is called, and what it is.
    pub(crate) fn rows(&self) -> Vec<(&'static str, String)> {
        let version = |text: &str, program: &str| text.trim_start_matches(program).trim().to_owned();
        let mut rows = vec![
            ("run on", format!("{}, commit {}", self.date, self.commit)),
            ("processor", self.machine().name()),
            ("memory", format!("{} MiB", self.memory_mib)),
            ("kernel", self.kernel.clone()),
            ("folder for temporary files", self.temporary_files.clone()),
            ("Postgres", self.postgres.clone()),
            ("git", version(&self.git, "git version")),
            ("rustc", version(&self.rustc, "rustc")),
        ];
        rows.retain(|(_, fact)| !fact.is_empty());
        rows
    }
}

/// The load average of the last minute.
pub(crate) fn load() -> f64 {
    file("/proc/loadavg").split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0.0)
}

/// How long a core takes for the same piece of work, which is no part of the product, in ms. Two runs on what is called the same
/// machine may have had other neighbours.
pub(crate) fn pace() -> f64 {
    const RECORDS: u32 = 20_000;
    const ROUNDS: usize = 5;
    let record = |id| serde_json::json!({ "id": id, "name": format!("record {id}"), "tags": ["a", "b"] });
    let text = serde_json::Value::Array((0..RECORDS).map(record).collect()).to_string();
    let times = (0..ROUNDS).map(|_| {
        let began = Instant::now();
        std::hint::black_box(serde_json::from_str::<serde_json::Value>(&text).ok());
        began.elapsed().as_secs_f64() * 1e3
    });
    median(times.collect())
}

/// A commit, and whether more has changed since it.
fn commit(commit: &str, changes: &str) -> String {
    format!("{commit}{}", if changes.is_empty() { "" } else { ", with changes" })
}

fn file(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn field(text: &str, name: &str) -> String {
    let line = text.lines().find(|line| line.starts_with(name));
    line.and_then(|line| Some(line.split_once(':')?.1.trim().to_owned())).unwrap_or_default()
}

fn said(program: &str, arguments: &[&str]) -> String {
    #[expect(clippy::disallowed_methods, reason = "asks for versions")]
    let output = std::process::Command::new(program).args(arguments).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

async fn settings(url: &str) -> Result<String> {
    let client = raw::connect(url).await?;
    let mut values = Vec::new();
    for name in ["server_version", "fsync", "synchronous_commit"] {
        let value: String = client.query_one("select current_setting($1)", &[&name]).await?.get(0);
        values.push(value);
    }
    Ok(format!("{}, fsync {}, synchronous_commit {}", values[0], values[1], values[2]))
}

/// The type of the file system that a folder is on, and its device, from a table of mounts.
fn file_system(mounts: &str, folder: &Path) -> String {
    let mount = |line: &str| {
        let mut words = line.split(' ').map(str::to_owned);
        Some((words.next()?, words.next()?, words.next()?))
    };
    let around = mounts.lines().filter_map(mount).filter(|(_, point, _)| folder.starts_with(point));
    // Of two on the same point the later one hides the other, and is the one that is found.
    let nearest = around.max_by_key(|(_, point, _)| Path::new(point).components().count());
    nearest.map_or_else(String::new, |(device, _, kind)| format!("{kind} on {device}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_on_the_nearest_file_system_around_it() {
        let mounts = "overlay / overlay rw 0 0\n/dev/vda /tmp ext4 rw 0 0\ntmpfs /tmp/fast tmpfs rw 0 0\n\
                      tmpfs /tm tmpfs rw 0 0\n/dev/vdb /tmp xfs rw 0 0\n";
        assert_eq!(file_system(mounts, Path::new("/tmp/x")), "xfs on /dev/vdb");
        assert_eq!(file_system(mounts, Path::new("/tmp/fast")), "tmpfs on tmpfs");
        assert_eq!(file_system(mounts, Path::new("/var")), "overlay on overlay");
        assert_eq!(file_system("", Path::new("/var")), "");
    }

    #[test]
    fn a_tree_that_is_not_that_of_its_commit_is_marked() {
        assert_eq!(commit("abc1234", ""), "abc1234");
        assert_eq!(commit("abc1234", "M bench/src/facts.rs"), "abc1234, with changes");
    }

    #[tokio::test]
    async fn a_server_tells_its_version_and_how_it_commits() {
        let database = stargate_testkit::postgres::Database::create_empty().await;
        let told = settings(database.url()).await.unwrap();
        database.remove().await;
        assert!(told.starts_with(|first: char| first.is_ascii_digit()), "{told}");
        assert!(told.contains(", fsync ") && told.contains(", synchronous_commit "), "{told}");
    }

    #[tokio::test]
    async fn the_machine_is_told_without_a_server() {
        let facts = Facts::of_this_machine(None).await;
        assert_eq!(facts.postgres, "");
        assert!(facts.temporary_files.contains(" on "), "{facts:?}");
        assert!(facts.rows().iter().all(|(name, fact)| *name != "Postgres" && !fact.is_empty()), "{facts:?}");
    }
}
