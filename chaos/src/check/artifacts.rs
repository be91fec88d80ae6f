//! Artifacts: what lies at the key is what the record says, byte for byte (INV-2).

use anyhow::{Context as _, Result};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::Violation;
use crate::evidence::Reader;
use crate::site::Site;

const CLIPS: &str = "select h.id, h.result from @job_history h join @lane l on l.id = h.lane_id \
     where l.kind = 'clip' and h.state = 2";

/// How many there were.
pub(super) async fn judge(site: &Site, reader: &Reader, found: &mut Vec<Violation>) -> Result<usize> {
    let clips = reader.rows(CLIPS).await?;
    for row in &clips {
        let column = |at: usize| row.get(at).and_then(Option::as_deref).unwrap_or_default();
        let result: Value = serde_json::from_str(column(1)).context("a clip without a result")?;
        let key = result["key"].as_str().unwrap_or_default();
        let sha256 = match read(site, key).await {
            Ok(bytes) => Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
            Err(error) => format!("{error:#}"),
        };
        let manifest = read(site, &format!("{key}.json")).await.unwrap_or_default();
        let manifest: Value = serde_json::from_slice(&manifest).unwrap_or_default();
        if result["sha256"] != sha256.as_str() || manifest["sha256"] != sha256.as_str() {
            let what = format!(
                "the artifact of job {} is {sha256}, its record {result}, its manifest {manifest}",
                column(0)
            );
            found.push(Violation::new(2, what));
        }
    }
    Ok(clips.len())
}

async fn read(site: &Site, key: &str) -> Result<Vec<u8>> {
    match &site.servers {
        None => std::fs::read(site.home.join("artifacts").join(key)).context("no such file"),
        Some(servers) => {
            let url = format!("{}/files/{key}", servers.s3.lock().await.filer());
            let answer = reqwest::get(url).await?.error_for_status()?;
            Ok(answer.bytes().await?.to_vec())
        }
    }
}
