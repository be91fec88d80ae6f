//! Proof, ref by ref, that the remote has what we have.

use serde::Serialize;
use stargate_git::{Git, RepoDir};

use crate::compare::{Pair, Standing, compare};
use crate::config::Config;
use crate::error::Result;

/// Every mirrored ref of both sides, and whether they agree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verification {
    /// All refs are equal, and so are the watermarks of ledgers.
    pub verified: bool,
    /// Refs that are equal.
    pub equal: usize,
    /// Refs that are not.
    pub different: usize,
    /// Ledgers whose watermark says something else than they do.
    pub stale_watermarks: Vec<String>,
    /// All of them.
    pub refs: Vec<Pair>,
}

/// Asks both sides for all refs and compares them.
pub async fn verify(git: &Git, repo: &RepoDir, config: &Config) -> Result<Verification> {
    let refs = compare(git, repo, config).await?;
    let equal = refs.iter().filter(|pair| pair.standing == Standing::Equal).count();
    let different = refs.len() - equal;
    let stale = |pair: &&Pair| {
        pair.standing == Standing::Equal && pair.watermark_ref.is_some() && pair.watermark != pair.remote
    };
    let stale_watermarks: Vec<String> = refs.iter().filter(stale).map(|pair| pair.name.to_string()).collect();
    let verified = different == 0 && stale_watermarks.is_empty();
    Ok(Verification { verified, equal, different, stale_watermarks, refs })
}
