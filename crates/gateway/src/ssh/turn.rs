//! How many SSH connections are served at once, counted by the processes that serve them.
//!
//! There is a file for each that may run. Whoever has locked one has its turn; the system takes the lock away when the
//! process is gone, however it ended. HTTP has slots of its own.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::gate::Access;
use crate::settings::Settings;

/// How often somebody who waits looks again.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A turn; over when dropped.
#[derive(Debug)]
pub(super) struct Turn {
    _locked: File,
}

/// Takes a turn, at once or after a short wait.
pub(super) async fn take(dir: &Path, access: Access, settings: &Settings) -> Result<Turn> {
    let (what, max, setting) = match access {
        Access::Read => ("fetches", settings.fetches_max, "git.max_fetches"),
        Access::Write => ("pushes", settings.pushes_max, "git.max_pushes"),
    };
    let deadline = Instant::now() + settings.wait_max;
    loop {
        if let Some(turn) = try_take(dir, what, max)? {
            return Ok(turn);
        }
        if Instant::now() >= deadline {
            return Err(Error::Busy { what, max, setting });
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn try_take(dir: &Path, what: &str, max: usize) -> Result<Option<Turn>> {
    for n in 0..max {
        let path = dir.join(format!("{what}-{n}"));
        let opened = File::options().create(true).truncate(false).write(true).open(&path);
        let file = opened.map_err(Error::io("take a turn with", &path))?;
        match file.try_lock() {
            Ok(()) => return Ok(Some(Turn { _locked: file })),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(Error::io("take a turn with", &path)(error)),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_finds_no_turn_waits_and_is_refused_after_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings { fetches_max: 2, pushes_max: 1, ..Settings::default() };
        let take = |access| take(dir.path(), access, &settings);
        let first = take(Access::Read).await.unwrap();
        let _second = take(Access::Read).await.unwrap();
        let _push = take(Access::Write).await.unwrap();
        let refused = take(Access::Read).await.unwrap_err();
        assert_eq!(refused.code(), "BUSY");
        assert!(
            refused.to_string().contains("2 fetches over SSH run already (git.max_fetches)"),
            "{refused}"
        );
        let (third, ()) = tokio::join!(take(Access::Read), async { drop(first) });
        third.unwrap();
    }
}
