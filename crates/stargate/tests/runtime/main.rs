//! The worker runtime on the real binary, with real ffmpeg and a real video: crashes, pauses, shutdown, publication,
//! hostile sources, scratch space.

#![expect(clippy::print_stdout, reason = "the figures of the run")]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod bucket;
mod crash;
mod hostile;
mod pause;
mod pgboss;
mod processes;
mod publish;
mod redirect;
mod scratch;
mod server;
mod shutdown;
mod stage;
mod timeline;
mod video;

use std::time::Duration;

/// For everything that has to happen sooner or later.
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes one test for each store of every case listed. A case is an async function that is given a
/// [`stage::Stage`].
macro_rules! on_both_stores {
    ($($case:ident: $toml:expr),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                let stage = crate::stage::Stage::sqlite($toml).await;
                super::$case(&stage).await;
                stage.close().await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                let stage = crate::stage::Stage::postgres($toml).await;
                super::$case(&stage).await;
                stage.close().await;
            })*
        }
    };
}
use on_both_stores;
