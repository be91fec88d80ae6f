//! How long nobody leads: two nodes of the real program on one Redis, the leader killed, or asked to end.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use stargate_testkit::process::{Program, Running, get};
use stargate_testkit::redis::Redis;

use crate::report::{Goal, heading, line, percentile};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Changes of the leader in each way
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// The program under test [default: the one beside this one]
    #[arg(long)]
    stargate: Option<PathBuf>,
}

/// The shortest that is of use; the default is 30 s, and a takeover after a crash takes as long as is left of it.
const TTL_MS: f64 = 2000.0;
const CONFIG: &str =
    "[leader]\nttl = \"2s\"\nrenew_every = \"500ms\"\nretry_every = \"500ms\"\nretry_max = \"1s\"\n";
/// More than the time that is left when the leader died.
const SLACK_MS: f64 = 100.0;
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) async fn run(options: &Options) -> Result<()> {
    let beside = std::env::current_exe()?.with_file_name("stargate");
    let redis = Redis::start();
    let program = Program::new(options.stargate.as_ref().unwrap_or(&beside))
        .with("STARGATE_LEADER_BACKEND", "redis")
        .with("REDIS_URL", redis.url());
    std::fs::write(program.home().join("stargate.toml"), CONFIG).context("a configuration")?;
    let mut leading = program.start(&["up"]);
    leads(&leading).await?;
    let (mut crashes, mut handovers) = (Vec::new(), Vec::new());
    for round in 0..2 * options.rounds {
        let mut standby = program.start(&["up"]);
        standby.ready().await;
        let begin = Instant::now();
        let took = if round % 2 == 0 {
            leading.kill();
            leads(&standby).await?;
            &mut crashes
        } else {
            leading.terminate();
            leads(&standby).await?;
            &mut handovers
        };
        took.push(begin.elapsed().as_secs_f64() * 1000.0);
        leading.ended(PATIENCE).await;
        leading = standby;
    }
    heading(&format!("leadership, Redis, a lease of 2 s, {} changes in each way", options.rounds));
    line("killed: next leader, p50", percentile(&mut crashes, 50), "ms", &Goal::None);
    line(
        "killed: next leader, longest",
        percentile(&mut crashes, 100),
        "ms",
        &Goal::AtMost(TTL_MS + SLACK_MS),
    );
    line("asked to end: next leader, p50", percentile(&mut handovers, 50), "ms", &Goal::None);
    line("asked to end: next leader, longest", percentile(&mut handovers, 100), "ms", &Goal::AtMost(1000.0));
    Ok(())
}

/// Waits until a node leads, looking as often as it answers.
async fn leads(node: &Running) -> Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        if let Ok((200, _)) = get(node.address(), "/readyz?role=leader").await {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    bail!("it does not lead after {PATIENCE:?}:\n{}", node.log())
}
