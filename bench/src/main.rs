//! Benchmarks of the queue: throughput, latency, cost per job, growth with the backlog; of clips, of the git side, of pages,
//! and of directives on both engines.
//!
//! Every figure stands beside the raw limit of the same database or the bare program, taken in the same run on the same
//! machine, and what counts is the ratio. `README.md` in this folder says how to read the output.
#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on should stop where it is")]

mod all;
mod chart;
mod clip;
mod compare;
mod directive;
mod facts;
mod git;
mod growth;
mod heartbeat;
mod latency;
mod leader;
mod noop;
mod page;
mod pages;
mod peers;
mod raw;
mod report;
mod results;
mod scale;
mod single;
mod streams;
mod temporal;
mod throughput;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Benchmarks, beside the raw limit of the same database or the bare program")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Everything, one part after the other, compared with the stored run.
    All(all::Options),
    /// docs/benchmarks.md of the stored run, written anew.
    Page {
        /// The folder of the project.
        #[arg(long, default_value = ".")]
        project: std::path::PathBuf,
    },
    /// Throughput, cost and latency on Postgres, beside the smallest possible client.
    Postgres {
        /// A database that may be filled and emptied.
        #[arg(long, env = "STARGATE_TEST_POSTGRES_URL")]
        url: String,
        /// Jobs in each run.
        #[arg(long, default_value_t = 50_000)]
        jobs: usize,
        /// Runs; the median is reported.
        #[arg(long, default_value_t = 3)]
        repeats: usize,
    },
    /// Throughput and latency on SQLite with full durability.
    Sqlite {
        /// Jobs in each run.
        #[arg(long, default_value_t = 50_000)]
        jobs: usize,
        /// Runs; the median is reported.
        #[arg(long, default_value_t = 3)]
        repeats: usize,
    },
    /// What a claim and a page of a listing cost with 10,000 and with 1,000,000 jobs.
    Growth {
        /// `sqlite`, or the URL of a Postgres server, where it makes a database.
        #[arg(long, default_value = "sqlite")]
        store: String,
        /// The large backlog.
        #[arg(long, default_value_t = 1_000_000)]
        jobs: usize,
    },
    /// The same backlog drained by one, two and four workers, and the memory that takes.
    Scale {
        /// `sqlite`, or the URL of a Postgres database that may be filled.
        #[arg(long, default_value = "sqlite")]
        store: String,
        /// Jobs in each run.
        #[arg(long, default_value_t = 50_000)]
        jobs: usize,
    },
    /// One beat of a worker with many jobs in flight, on both stores.
    Heartbeat {
        /// A server on which a database may be made.
        #[arg(long, env = "STARGATE_TEST_POSTGRES_URL")]
        url: String,
        /// Jobs in flight.
        #[arg(long, default_value_t = 1000)]
        jobs: usize,
        /// Beats in each run.
        #[arg(long, default_value_t = 1000)]
        beats: usize,
    },
    /// A clip job beside the bare ffmpeg run of the same cut.
    Clip {
        /// The program ffmpeg.
        #[arg(long, env = "STARGATE_TEST_FFMPEG", default_value = "ffmpeg")]
        ffmpeg: String,
        /// The program ffprobe.
        #[arg(long, env = "STARGATE_TEST_FFPROBE", default_value = "ffprobe")]
        ffprobe: String,
        /// Runs; the median is reported.
        #[arg(long, default_value_t = 9)]
        repeats: usize,
    },
    /// How long nobody leads when the leader is killed or ends.
    Leader(leader::Options),
    /// Other queues on the same Postgres, from their registries, beside ours.
    Peers(peers::Options),
    /// Gateway, hooks and mirror of the real binary, beside git http-backend and git push.
    Git(git::Options),
    /// A directive that loads rows into Postgres, beside dlt and a Singer target.
    Directive(directive::Options),
    /// A directive on a Temporal server of its own, beside the embedded engine and a bare loop of the SDK.
    Temporal(temporal::Options),
    /// Every page and listing of a node with 1,000,000 jobs, and how long its answer takes.
    Pages(pages::Options),
    /// A drain beside a node with 200 open streams, and without.
    Streams(streams::Options),
    /// Used by the latency runs: enqueues single jobs from a process of its own.
    #[command(hide = true)]
    Producer { store: String, jobs: usize },
}

#[tokio::main]
async fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::All(options) => all::run(&options).await,
        Command::Page { project } => all::write_page(&project),
        Command::Leader(options) => leader::run(&options).await,
        Command::Postgres { url, jobs, repeats } => throughput::postgres(&url, jobs, repeats).await,
        Command::Sqlite { jobs, repeats } => throughput::sqlite(jobs, repeats).await,
        Command::Growth { store, jobs } => growth::run(&store, jobs).await,
        Command::Scale { store, jobs } => scale::run(&store, jobs).await,
        Command::Heartbeat { url, jobs, beats } => heartbeat::run(&url, jobs, beats).await,
        Command::Clip { ffmpeg, ffprobe, repeats } => clip::run(&ffmpeg, &ffprobe, repeats).await,
        Command::Peers(options) => peers::run(&options).await,
        Command::Git(options) => git::run(&options).await,
        Command::Directive(options) => directive::run(&options).await,
        Command::Temporal(options) => temporal::run(&options).await,
        Command::Pages(options) => pages::run(&options).await,
        Command::Streams(options) => streams::run(&options).await,
        Command::Producer { store, jobs } => latency::produce(&store, jobs).await,
    }
}
