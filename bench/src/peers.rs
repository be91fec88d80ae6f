//! Other queues on the same Postgres, one after the other, beside ours: what goes in, what is drained, how soon a job
//! starts, and what a job costs the server.
//!
//! Ours runs with default settings. A rival runs with its default settings and with those that its documentation
//! recommends for speed.
//!
//! All answer an enqueue, and end a job, with a synchronous commit. Our claims and heartbeats commit with
//! `synchronous_commit = off`: one that is lost in a crash of the server lets a job be given out again, and loses none that
//! was accepted. No rival sets it (their sources do not name it), so theirs are synchronous, as the server is set. So that the same
//! durability is compared as well, ours runs a second time with claims and heartbeats that wait for the disk (`synchronous.sql`).

mod install;
mod rival;

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use self::install::Installed;
use self::rival::{RIVALS, Rival, Run, STARTS_SEC};
use crate::report::{Goal, heading, line, line_against, median, percentile, remark};
use crate::throughput::{cost, cost_since, fresh_database, settle_tables};
use crate::{latency, noop, raw};

const DEFAULT: &str = "default";

#[derive(Args)]
pub(crate) struct Options {
    /// A server on which a database may be made.
    #[arg(long, env = "STARGATE_TEST_POSTGRES_URL")]
    url: String,
    /// Jobs in each run.
    #[arg(long, default_value_t = 50_000)]
    jobs: u64,
    /// Rounds; the median is reported.
    #[arg(long, default_value_t = 3)]
    repeats: usize,
    /// A drain that takes longer is broken off, and its rate is that of what was done.
    #[arg(long, default_value_t = 15)]
    bound_sec: u64,
    /// Only these rivals; repeatable [default: all]
    #[arg(long)]
    only: Vec<String>,
    /// The program Python that makes an environment for procrastinate.
    #[arg(long, default_value = "python3")]
    python: PathBuf,
}

/// What one round found.
struct Figures {
    insert: f64,
    drain: f64,
    /// Jobs that the drain got done.
    done: u64,
    wal: f64,
    commits: f64,
    p50: f64,
    p99: f64,
}

/// Whose queue is measured.
#[derive(Clone, Copy)]
enum Who {
    Ours(Claims),
    Rival(&'static Rival, &'static str),
}

/// How our claims and heartbeats commit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Claims {
    /// As users get them: without waiting for the disk.
    Default,
    /// As those of the rivals.
    Synchronous,
}

/// Has claims and heartbeats of the database wait for the disk, whatever their statements ask for.
const SYNCHRONOUS: &str = include_str!("peers/synchronous.sql");
/// Whether that has held back any statement, and how the database commits where nothing is asked for.
const HELD_BACK: &str = "select is_called, current_setting('synchronous_commit') from bench.held_back";

/// Ours or a rival with one of its settings, and what its rounds found.
struct Subject {
    who: Who,
    rounds: Vec<Figures>,
    failure: Option<String>,
}

/// Everybody, in rounds; then the lines and the goals.
pub(crate) async fn run(options: &Options) -> Result<()> {
    let installed = Installed::prepare(&options.python)?;
    let mut subjects =
        vec![Subject::of(Who::Ours(Claims::Default)), Subject::of(Who::Ours(Claims::Synchronous))];
    for rival in RIVALS.iter().filter(|rival| options.wants(rival.name)) {
        let failure = installed.install(rival).await.err().map(|error| reason(&error));
        for settings in rival.settings {
            let subject = Subject { failure: failure.clone(), ..Subject::of(Who::Rival(rival, settings)) };
            subjects.push(subject);
        }
    }
    for round in 0..options.repeats {
        // Whoever comes first finds the machine as the round before left it; that is somebody else each time.
        let count = subjects.len();
        for at in 0..count {
            let subject = &mut subjects[(round + at) % count];
            subject.measure(options, &installed, round).await?;
        }
    }
    heading(&format!(
        "queues on Postgres, {} no-op jobs, one worker process each, median of {}",
        options.jobs, options.repeats
    ));
    for subject in &subjects {
        subject.print(options);
    }
    for Comparison { what, rival, ratio, goal } in comparisons(&subjects) {
        line_against(what, &rival.name(), ratio, &goal);
    }
    Ok(())
}

impl Options {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}

impl Subject {
    fn of(who: Who) -> Self {
        Self { who, rounds: Vec::new(), failure: None }
    }

    fn name(&self) -> String {
        match self.who {
            Who::Ours(Claims::Default) => "stargate (default)".to_owned(),
            Who::Ours(Claims::Synchronous) => "stargate (all synchronous)".to_owned(),
            Who::Rival(rival, settings) => format!("peer {} ({settings})", rival.name),
        }
    }

    /// A rival that fails is not asked again; ours has to work.
    async fn measure(&mut self, options: &Options, installed: &Installed, round: usize) -> Result<()> {
        let (rival, settings) = match self.who {
            Who::Ours(claims) => {
                println!("round {}: {}", round + 1, self.name());
                self.rounds.push(measure_ours(options, claims).await?);
                return Ok(());
            }
            Who::Rival(rival, settings) => (rival, settings),
        };
        // Nor is one that is too slow for the bound: it would take most of the time, and its rate is known.
        let too_slow = self.rounds.last().is_some_and(|figures| figures.done < options.jobs);
        if self.failure.is_none() && !too_slow {
            println!("round {}: {}", round + 1, self.name());
            let url = fresh_database(&options.url).await?;
            let run = Run { rival, settings, url, bound_sec: options.bound_sec, installed };
            match measure_rival(options, &run).await {
                Ok(figures) => self.rounds.push(figures),
                Err(error) => self.failure = Some(reason(&error)),
            }
        }
        Ok(())
    }

    fn median(&self, what: impl Fn(&Figures) -> f64) -> f64 {
        median(self.rounds.iter().map(what).collect())
    }

    /// Whether jobs went in with one call each.
    fn singly(&self) -> bool {
        matches!(self.who, Who::Rival(_, DEFAULT))
    }

    fn print(&self, options: &Options) {
        let name = self.name();
        if let Some(failure) = &self.failure {
            remark(&format!("{name}: not run: {failure}"));
        }
        if self.rounds.is_empty() {
            return;
        }
        let say =
            |what: &str, value: f64, unit: &str| line(&format!("{name}: {what}"), value, unit, &Goal::None);
        let insert = if self.singly() { "insert, one a call" } else { "insert, 1000 a call" };
        say(insert, self.median(|figures| figures.insert), "jobs/s");
        say("drain", self.median(|figures| figures.drain), "jobs/s");
        let done = self.median(|figures| figures.done as f64);
        if (done as u64) < options.jobs {
            say(&format!("done within {} s", options.bound_sec), done, "jobs");
        }
        say("WAL per job", self.median(|figures| figures.wal), "bytes");
        say("commits per job", self.median(|figures| figures.commits), "");
        for (what, value) in [
            ("start p50", self.median(|figures| figures.p50)),
            ("start p99", self.median(|figures| figures.p99)),
        ] {
            if value.is_finite() {
                say(what, value, "ms");
            } else {
                remark(&format!("{name}: {what}: not in {STARTS_SEC} s"));
            }
        }
    }
}

/// The outer and the innermost cause, in one line.
fn reason(error: &anyhow::Error) -> String {
    let cause = error.root_cause().to_string();
    let cause = cause.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    format!("{}: {cause}", error.to_string().lines().next().unwrap_or_default())
}

/// A new database in which our claims commit in this way.
async fn database_of_ours(options: &Options, claims: Claims) -> Result<String> {
    let url = fresh_database(&options.url).await?;
    if claims == Claims::Synchronous {
        raw::connect(&url).await?.batch_execute(SYNCHRONOUS).await?;
    }
    Ok(url)
}

/// Fails if our claims went past the function that has them wait: then they were not what the figures say.
async fn ensure_waited(url: &str, claims: Claims) -> Result<()> {
    if claims == Claims::Default {
        return Ok(());
    }
    let row = raw::connect(url).await?.query_one(HELD_BACK, &[]).await?;
    let (is_held_back, commits): (bool, String) = (row.get(0), row.get(1));
    ensure!(
        is_held_back,
        "claims did not wait for the disk: none of our connections has found bench.set_config"
    );
    ensure!(
        commits != "off",
        "claims did not wait for the disk: the server has synchronous_commit = {commits}"
    );
    Ok(())
}

async fn measure_ours(options: &Options, claims: Claims) -> Result<Figures> {
    let jobs = usize::try_from(options.jobs)?;
    let url = database_of_ours(options, claims).await?;
    let client = raw::connect(&url).await?;
    let store = noop::open(&url).await?;
    let insert = noop::insert(&store, jobs).await?;
    settle_tables(&client).await?;
    let before = cost(&client).await?;
    let drain = noop::drain(&store, jobs).await?;
    drop(store);
    let (wal, commits) = cost_since(&client, &before, options.jobs).await?;
    ensure_waited(&url, claims).await?;
    let url = database_of_ours(options, claims).await?;
    let mut waits = latency::measured_across_processes(&url).await?;
    ensure_waited(&url, claims).await?;
    let (p50, p99) = (percentile(&mut waits, 50), percentile(&mut waits, 99));
    Ok(Figures { insert, drain, done: options.jobs, wal, commits, p50, p99 })
}

async fn measure_rival(options: &Options, run: &Run<'_>) -> Result<Figures> {
    run.setup().await?;
    let insert = run.insert(options.jobs).await?;
    let client = raw::connect(&run.url).await?;
    let left: i64 = client.query_one(run.rival.left, &[]).await?.get(0);
    ensure!(u64::try_from(left)? == options.jobs, "{left} jobs are there after the insert");
    settle_tables(&client).await?;
    let before = cost(&client).await?;
    let drain = run.drain(options.jobs).await?;
    let (wal, commits) = cost_since(&client, &before, drain.jobs.max(1)).await?;
    drop(client);
    fresh_database(&options.url).await?;
    run.setup().await?;
    let mut waits = run.waits().await.context("starts")?;
    let (p50, p99) = (percentile(&mut waits, 50), percentile(&mut waits, 99));
    Ok(Figures { insert: insert.rate(), drain: drain.rate(), done: drain.jobs, wal, commits, p50, p99 })
}

/// Ours beside the fastest rival in one figure.
struct Comparison<'a> {
    what: &'static str,
    rival: &'a Subject,
    ratio: f64,
    goal: Goal,
}

/// Ours against the fastest rival in each figure, whichever that is and with whichever settings.
fn comparisons(subjects: &[Subject]) -> Vec<Comparison<'_>> {
    let is_measured = |subject: &&Subject| !subject.rounds.is_empty();
    let ours = |claims: Claims| {
        subjects.iter().filter(is_measured).find(|s| matches!(s.who, Who::Ours(of) if of == claims))
    };
    let Some(default) = ours(Claims::Default) else { return Vec::new() };
    let rivals: Vec<&Subject> =
        subjects.iter().filter(is_measured).filter(|subject| matches!(subject.who, Who::Rival(..))).collect();
    let best = |better: &dyn Fn(&Subject) -> f64| {
        rivals.iter().copied().max_by(|one, other| better(one).total_cmp(&better(other)))
    };
    let drain = |subject: &Subject| subject.median(|figures| figures.drain);
    // One call for a job is not compared with one for a thousand.
    let insert =
        |subject: &Subject| if subject.singly() { 0.0 } else { subject.median(|figures| figures.insert) };
    let p50 = |subject: &Subject| subject.median(|figures| figures.p50);
    // The same goal for both: how a claim commits is no excuse.
    let drains = |what, claims| {
        let (rival, ours) = best(&drain).zip(ours(claims))?;
        Some(Comparison { what, rival, ratio: drain(ours) / drain(rival), goal: Goal::AtLeast(1.5) })
    };
    let inserts = best(&insert).map(|rival| Comparison {
        what: "insert / fastest rival",
        rival,
        ratio: insert(default) / insert(rival),
        goal: Goal::AtLeast(2.0),
    });
    let starts = best(&|subject| -p50(subject)).map(|rival| Comparison {
        what: "start p50 / fastest rival",
        rival,
        // A start can come before the answer to the enqueue, and then counts as negative.
        ratio: p50(default) / p50(rival).max(0.001),
        goal: Goal::AtMost(1.0),
    });
    let by_default = drains("drain / fastest rival", Claims::Default);
    let synchronous = drains("drain, all synchronous / fastest rival", Claims::Synchronous);
    [by_default, synchronous, inserts, starts].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(who: Who, rate: f64) -> Subject {
        let round =
            Figures { insert: rate, drain: rate, done: 1, wal: 1.0, commits: 1.0, p50: 1.0 / rate, p99: 1.0 };
        Subject { rounds: vec![round], ..Subject::of(who) }
    }

    #[test]
    fn what_is_compared_has_the_same_name_whoever_is_the_fastest() {
        let found = |first: f64, second: f64| {
            let subjects = [
                subject(Who::Ours(Claims::Default), 8.0),
                subject(Who::Ours(Claims::Synchronous), 6.0),
                subject(Who::Rival(&RIVALS[0], "best"), first),
                subject(Who::Rival(&RIVALS[1], "best"), second),
            ];
            let of = |compared: Comparison<'_>| {
                (compared.what, compared.rival.name(), compared.ratio, compared.goal)
            };
            comparisons(&subjects).into_iter().map(of).collect::<Vec<_>>()
        };
        let expected = |rival: &str| {
            [
                ("drain / fastest rival", 2.0, Goal::AtLeast(1.5)),
                ("drain, all synchronous / fastest rival", 1.5, Goal::AtLeast(1.5)),
                ("insert / fastest rival", 2.0, Goal::AtLeast(2.0)),
                ("start p50 / fastest rival", 0.5, Goal::AtMost(1.0)),
            ]
            .map(|(what, ratio, goal)| (what, rival.to_owned(), ratio, goal))
        };
        assert_eq!(found(4.0, 2.0), expected("peer graphile-worker (best)"));
        assert_eq!(found(2.0, 4.0), expected("peer pg-boss (best)"));
    }

    #[test]
    fn nothing_is_compared_with_rivals_that_were_not_run() {
        let ours = subject(Who::Ours(Claims::Default), 8.0);
        let subjects = [ours, Subject::of(Who::Rival(&RIVALS[0], "best"))];
        assert!(comparisons(&subjects).is_empty());
    }

    #[tokio::test]
    async fn claims_that_did_not_wait_for_the_disk_are_not_measured_as_such() {
        let database = stargate_testkit::postgres::Database::create_empty().await;
        let (url, client) = (database.url(), database.client().await);
        client.batch_execute(SYNCHRONOUS).await.unwrap();
        let claimed = async || {
            let store = noop::open(url).await.unwrap();
            noop::insert(&store, 10).await.unwrap();
            noop::drain(&store, 10).await.unwrap();
            ensure_waited(url, Claims::Synchronous).await.map_err(|error| error.to_string())
        };
        assert_eq!(claimed().await, Ok(()));
        let past = "select setval('bench.held_back', 1, false);
                    do $$ begin execute format('alter database %I reset search_path', current_database()); end $$";
        client.batch_execute(past).await.unwrap();
        assert!(claimed().await.unwrap_err().contains("none of our connections"));
        database.remove().await;
    }
}
