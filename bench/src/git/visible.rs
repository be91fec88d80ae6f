//! From the moment a push is accepted until the mirror shows it, both on this machine.
//!
//! Accepted is a push when its ref has moved in our repository, visible when the ref has moved in the remote. Both are
//! files that are looked at from outside, a thousand times a second.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::MIRRORED;
use super::client::Client;
use super::node::Home;
use crate::report::{Goal, heading, line, percentile};

const WARM_UP: usize = 3;
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// The first push waits for the mirror to begin; none may take longer.
const DEADLINE: Duration = Duration::from_secs(60);
/// Pushes come at any moment of whatever the mirror does periodically: 37 and 100 have no common factor.
const GAP_STEP_MS: u64 = 37;
const GAP_RANGE_MS: u64 = 100;

pub(crate) async fn run(client: &Client, stargate: &Path, pushes: usize) -> Result<()> {
    let home = Home::new(stargate)?;
    let node = home.up().await?;
    let remote = home.dir().join("remote.git");
    client.init_bare(&remote).await?;
    let repo = home.repository("mirrored").await?;
    let url = remote.to_str().context("the path of the remote is not text")?;
    client.git(&repo, &["remote", "add", "github-origin", url]).await?;
    let work = client.home().join("mirrored");
    client.init_bare(&work).await?;
    let chain = client.chain(&work, WARM_UP + pushes).await?;
    let (mut accepted, mut answered) = (vec![], vec![]);
    for (round, oid) in chain.iter().enumerate() {
        tokio::time::sleep(Duration::from_millis(round as u64 * GAP_STEP_MS % GAP_RANGE_MS)).await;
        let refs = format!("{oid}:{MIRRORED}");
        let push = client.command(&work, &["push", "--quiet", &home.url("mirrored"), &refs]);
        let moments = watch(push, &repo.join(MIRRORED), &remote.join(MIRRORED), oid).await?;
        if round >= WARM_UP {
            accepted.push(moments.visible - moments.accepted);
            answered.push(moments.visible - moments.answered);
        }
    }
    node.stop().await?;
    heading(&format!("visible on the mirror: {pushes} pushes of an empty commit"));
    line("accepted to visible, p50", percentile(&mut accepted, 50), "ms", &Goal::None);
    line("accepted to visible, p95", percentile(&mut accepted, 95), "ms", &Goal::AtMost(1000.0));
    line("accepted to visible, longest", percentile(&mut accepted, 100), "ms", &Goal::None);
    line("answered to visible, p50", percentile(&mut answered, 50), "ms", &Goal::None);
    line("answered to visible, p95", percentile(&mut answered, 95), "ms", &Goal::None);
    Ok(())
}

/// When what happened, in milliseconds.
struct Moments {
    /// The ref has moved in our repository.
    accepted: f64,
    /// The client knows.
    answered: f64,
    /// The ref has moved in the remote.
    visible: f64,
}

async fn watch(mut push: tokio::process::Command, ours: &Path, theirs: &Path, oid: &str) -> Result<Moments> {
    let mut child = push.spawn()?;
    let began = Instant::now();
    let (mut accepted, mut answered, mut visible) = (None, None, None);
    loop {
        // The remote first: what is seen there was here before.
        note(&mut visible, began, is_at(theirs, oid));
        note(&mut accepted, began, is_at(ours, oid));
        let ended = child.try_wait()?;
        if let Some(status) = ended {
            ensure!(status.success(), "the push ended with {status}");
        }
        note(&mut answered, began, ended.is_some());
        if let (Some(accepted), Some(answered), Some(visible)) = (accepted, answered, visible) {
            return Ok(Moments { accepted, answered, visible });
        }
        ensure!(began.elapsed() < DEADLINE, "not on the mirror after {DEADLINE:?}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn note(moment: &mut Option<f64>, began: Instant, happened: bool) {
    if happened && moment.is_none() {
        *moment = Some(began.elapsed().as_secs_f64() * 1e3);
    }
}

fn is_at(file: &Path, oid: &str) -> bool {
    std::fs::read_to_string(file).is_ok_and(|text| text.trim_end() == oid)
}
