//! The same backlog drained by one, two and four workers, and the memory that takes.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use stargate_base::Tasks;
use stargate_queue::Pool;
use tokio_util::sync::CancellationToken;

use crate::noop;
use crate::report::{Goal, line};

/// Each worker has a store handle of its own, as it would have in a process of its own.
pub(crate) async fn run(store: &str, jobs: usize) -> Result<()> {
    for workers in [1, 2, 4] {
        let folder = tempfile::tempdir()?;
        let path = format!("sqlite:{}", folder.path().join("bench.db").display());
        let url = if store == "sqlite" { &path } else { store };
        let watcher = noop::open(url).await?;
        noop::insert(&watcher, jobs).await?;
        let (stop, tasks) = (CancellationToken::new(), Tasks::new());
        let began = Instant::now();
        for _ in 0..workers {
            let pool = Pool::start(noop::open(url).await?, noop::registry(|_| ())?, noop::config()).await?;
            tasks.spawn(pool.run(stop.clone()));
        }
        while noop::unfinished(&watcher).await? > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let rate = jobs as f64 / began.elapsed().as_secs_f64();
        stop.cancel();
        tasks.join().await;
        line(&format!("{}: drain by {workers} workers", watcher.facts().name), rate, "jobs/s", &Goal::None);
    }
    line("peak memory of this process", peak_memory("self")?, "MiB", &Goal::None);
    Ok(())
}

/// The largest resident size of a process so far, in MiB.
pub(crate) fn peak_memory(process: &str) -> Result<f64> {
    memory_of(process, "VmHWM:")
}

/// The resident size of a process now, in MiB.
pub(crate) fn memory(process: &str) -> Result<f64> {
    memory_of(process, "VmRSS:")
}

fn memory_of(process: &str, field: &'static str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let size = status.lines().find_map(|line| line.strip_prefix(field)).context(field)?;
    let kibibytes: f64 = size.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kibibytes / 1024.0)
}
