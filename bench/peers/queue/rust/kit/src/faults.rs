//! What `cargo xtask chaos rivals` asks of a peer: jobs that leave lines in a file, and a worker that runs until it is
//! killed.
//!
//! The environment says where the lines go (`EFFECTS`) and how soon a dead worker's jobs come back: `RESCUE` is `default`
//! or `prompt`. The scripts of the other rivals, in `chaos/rivals`, do the same.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::Result;

/// Jobs at once, for everybody the same.
pub const AT_ONCE: usize = 4;
/// With a prompt rescue: how often a worker says that it is there, and looks for workers that do not.
pub const BEAT: Duration = Duration::from_secs(1);
/// With a prompt rescue: silence after which a worker counts as dead.
pub const SILENCE: Duration = Duration::from_secs(3);
const JOB: Duration = Duration::from_millis(100);

/// Where jobs leave their lines; nowhere in the benchmark.
static EFFECTS: OnceLock<PathBuf> = OnceLock::new();

/// Whether the rescue is to be as prompt as the documentation allows.
pub fn rescue_is_prompt() -> bool {
    super::variable("RESCUE").is_ok_and(|rescue| rescue == "prompt")
}

/// Runs a worker for as long as it runs by itself.
pub async fn serve(worker: impl Future<Output = Result<()>>) -> Result<()> {
    let effects = PathBuf::from(super::variable("EFFECTS")?);
    EFFECTS.get_or_init(|| effects);
    worker.await
}

/// Enqueues jobs one by one and says which have been acknowledged.
pub async fn enqueue<F: Future<Output = Result<()>>>(jobs: u64, mut one: impl FnMut(u64) -> F) -> Result<()> {
    for id in 0..jobs {
        one(id).await?;
        println!("{id}");
    }
    Ok(())
}

/// Where the job has to leave its lines, if this is not the benchmark.
pub(super) fn effects() -> Option<&'static Path> {
    EFFECTS.get().map(PathBuf::as_path)
}

/// A line when the job begins, one when it ends: all that is believed about it.
pub(super) async fn step(effects: &Path, id: u64) {
    append(effects, &format!("b {id}\n"));
    tokio::time::sleep(JOB).await;
    append(effects, &format!("e {id}\n"));
}

/// In one write, so that lines of jobs beside it are not torn.
fn append(effects: &Path, line: &str) {
    let file = std::fs::OpenOptions::new().create(true).append(true).open(effects);
    file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the file of effects can be written");
}
