//! What people who watch cost those who work: the same backlog drained beside a node with and without open streams.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::git::node::Home;
use crate::git::{in_turn, program_of};
use crate::report::{Goal, heading, line, median};
use crate::{noop, scale};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Streams that are open at once
    #[arg(long, default_value_t = 200)]
    streams: usize,
    /// Jobs in each run
    #[arg(long, default_value_t = 50_000)]
    jobs: usize,
    /// Pairs of runs, with streams and without
    #[arg(long, default_value_t = 7)]
    repeats: usize,
    /// The program under test [default: the one beside this one]
    #[arg(long)]
    stargate: Option<PathBuf>,
}

/// Long enough for what streams are told to settle.
const SETTLE: Duration = Duration::from_secs(2);

pub(crate) async fn run(options: &Options) -> Result<()> {
    let home = Home::new(&program_of(options.stargate.as_deref())?)?;
    let node = home.up().await?;
    let store = noop::open(&format!("sqlite:{}", home.dir().join("stargate.db").display())).await?;
    let memory = || scale::memory(&node.id()?.to_string());
    let mut rates: [Vec<f64>; 2] = [vec![], vec![]];
    let (mut ratios, mut more) = (vec![], vec![]);
    for round in 0..options.repeats {
        let mut rate = [0.0; 2];
        for watched in in_turn(2, round) {
            let before = memory()?;
            let streams = open(home.address(), if watched == 1 { options.streams } else { 0 }).await?;
            tokio::time::sleep(SETTLE).await;
            noop::insert(&store, options.jobs).await?;
            rate[watched] = noop::drain(&store, options.jobs).await?;
            rates[watched].push(rate[watched]);
            if watched == 1 {
                more.push(memory()? - before);
            }
            ensure!(streams.len() == if watched == 1 { options.streams } else { 0 }, "a stream has ended");
        }
        ratios.push(rate[1] / rate[0]);
    }
    node.stop().await?;
    heading(&format!(
        "streams, {} of them beside a drain of {} jobs, SQLite, alternating",
        options.streams, options.jobs
    ));
    let [without, with] = rates.map(median);
    line("drain without streams", without, "jobs/s", &Goal::None);
    line("drain with streams", with, "jobs/s", &Goal::None);
    line("with / without, median of pairs", median(ratios), "", &Goal::AtLeast(0.97));
    line("more memory of the node with streams", median(more), "MiB", &Goal::AtMost(50.0));
    Ok(())
}

/// Opens streams that are read until they are dropped.
async fn open(address: &str, count: usize) -> Result<JoinSet<Result<()>>> {
    let mut streams = JoinSet::new();
    for _ in 0..count {
        let mut stream = TcpStream::connect(address).await?;
        let request =
            format!("GET /api/v1/events HTTP/1.1\r\nHost: {address}\r\nAccept: text/event-stream\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut buffer = vec![0; 16 << 10];
        let read = stream.read(&mut buffer).await?;
        ensure!(
            buffer[..read].starts_with(b"HTTP/1.1 200 "),
            "no stream: {}",
            String::from_utf8_lossy(&buffer[..read])
        );
        streams.spawn(async move {
            while stream.read(&mut buffer).await? > 0 {}
            Ok(())
        });
    }
    Ok(streams)
}
