//! Other queues on Postgres under two of the faults, beside ours: workers killed again and again, the database restarted.
//!
//! Each with four jobs at once and a supervisor that starts its worker again whenever it has ended: once with its default
//! settings, once with its rescue of a dead worker's jobs set as prompt as its documentation allows. A job appends a line
//! when it begins and one when it ends, and those lines are all that is believed.

mod install;
mod system;

use std::collections::HashMap;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use stargate_testkit::cluster::Cluster;

use self::install::Installed;
use self::system::{Place, Rescue, System};

const JOBS: usize = 300;
const KILLS: u32 = 5;
const RESTARTS: u32 = 2;
/// How long jobs are run before the next fault.
const AT_WORK: Duration = Duration::from_millis(700);
/// A worker that has not begun a job after so long meets the fault nevertheless.
const START: Duration = Duration::from_secs(20);
/// More than any default that is a matter of seconds takes: 90 s of silence and 30 s until somebody looks, with awa.
const PATIENCE: Duration = Duration::from_secs(130);
/// A supervisor does not start a worker over and over without a breath.
const BREATH: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(100);
const GLANCE: Duration = Duration::from_millis(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    WorkerKilled,
    DatabaseRestarted,
}

/// A worker and who looks after it.
struct Supervised<'a> {
    place: &'a Place<'a>,
    worker: Child,
    /// Workers that ended without having been killed.
    ended: u32,
    /// Executions that workers left behind when they were killed, and that will not come to an end.
    cut: usize,
}

/// What the lines of jobs say.
#[derive(Debug, Default, PartialEq, Eq)]
struct Effects {
    /// Executions that began.
    begun: usize,
    /// Executions that began and did not come to their end.
    open: usize,
    /// Came to their end at least once.
    done: usize,
    /// Were begun more than once.
    begun_again: usize,
    /// Came to their end more than once.
    done_again: usize,
}

/// Runs all of them, or those whose names begin so, and prints a table.
pub fn rivals(binary: &Path, folder: &Path, only: &[String]) -> Result<()> {
    let systems = System::chosen(only)?;
    let homes: Vec<_> = systems.iter().filter_map(|system| system.home()).collect();
    let installed = Installed::bring(folder, &homes)?;
    println!(
        "| fault | system | rescue | accepted | done | not done | begun again | done again | last done | ended |"
    );
    println!("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for fault in [Fault::WorkerKilled, Fault::DatabaseRestarted] {
        for &system in &systems {
            for rescue in [Rescue::Default, Rescue::Prompt] {
                let cluster = Cluster::start();
                let place = Place::new(binary, &installed, cluster.url(), system, rescue)?;
                trial(&place, fault, &cluster)
                    .with_context(|| format!("{} {rescue:?} {fault:?}", system.name()))?;
            }
        }
    }
    println!(
        "\nnot done: {PATIENCE:?} after the last fault; last done: after the last fault; ended: workers, by themselves"
    );
    Ok(())
}

fn trial(place: &Place<'_>, fault: Fault, cluster: &Cluster) -> Result<()> {
    place.prepare()?;
    // All are there before the first worker is, so that every fault meets work.
    let accepted = place.enqueue(JOBS)?;
    let mut supervised = Supervised { place, worker: place.work()?, ended: 0, cut: 0 };
    let last_fault = match fault {
        Fault::WorkerKilled => supervised.kill_again_and_again()?,
        Fault::DatabaseRestarted => supervised.restart_the_database(cluster)?,
    };
    let last_done = supervised.wait_for(accepted, last_fault)?;
    supervised.kill()?;
    let Effects { done, begun_again, done_again, .. } = Effects::read(&place.effects());
    println!(
        "| {} | {} | {} | {accepted} | {done} | {} | {begun_again} | {done_again} | {:.1} s | {} |",
        match fault {
            Fault::WorkerKilled => "worker killed",
            Fault::DatabaseRestarted => "database restarted",
        },
        place.system.name(),
        place.system.rescue(place.rescue),
        accepted.saturating_sub(done),
        last_done.as_secs_f64(),
        supervised.ended,
    );
    Ok(())
}

impl Supervised<'_> {
    fn kill(&mut self) -> Result<()> {
        // One that has just ended by itself cannot be killed any more.
        let _ = self.worker.kill();
        self.worker.wait().context("a worker").map(drop)
    }

    /// Answers when the last one was killed.
    fn kill_again_and_again(&mut self) -> Result<Instant> {
        let mut last = Instant::now();
        for _ in 0..KILLS {
            self.look_after_work()?;
            last = Instant::now();
            self.kill()?;
            self.cut = Effects::read(&self.place.effects()).open;
            self.worker = self.place.work()?;
        }
        Ok(last)
    }

    /// Answers when it was there again for the last time.
    fn restart_the_database(&mut self, cluster: &Cluster) -> Result<Instant> {
        for _ in 0..RESTARTS {
            self.look_after_work()?;
            cluster.crash();
            cluster.up();
        }
        Ok(Instant::now())
    }

    /// A fault is to meet jobs, and programs need different times to start: they are waited for.
    fn look_after_work(&mut self) -> Result<()> {
        let (begin, before) = (Instant::now(), Effects::read(&self.place.effects()).begun);
        while Effects::read(&self.place.effects()).begun == before && begin.elapsed() < START {
            self.look_after(LOOK)?;
        }
        self.look_after(AT_WORK)?;
        // One that polls does nothing for most of the time: it is caught while jobs run.
        let (begin, idle) = (Instant::now(), Effects::read(&self.place.effects()).open.min(self.cut));
        while Effects::read(&self.place.effects()).open <= idle && begin.elapsed() < START {
            std::thread::sleep(GLANCE);
        }
        Ok(())
    }

    fn look_after(&mut self, time: Duration) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < time {
            self.look()?;
            std::thread::sleep(LOOK.min(time.saturating_sub(begin.elapsed())));
        }
        Ok(())
    }

    fn look(&mut self) -> Result<()> {
        if self.worker.try_wait().context("a worker")?.is_some() {
            self.ended += 1;
            std::thread::sleep(BREATH);
            self.worker = self.place.work()?;
        }
        Ok(())
    }

    /// Until everything is done or nobody would wait any longer; how long after the fault the last job was done.
    fn wait_for(&mut self, accepted: usize, fault: Instant) -> Result<Duration> {
        let mut last = (Effects::read(&self.place.effects()).done, Duration::ZERO);
        while last.0 < accepted && fault.elapsed() < PATIENCE {
            self.look_after(LOOK)?;
            let done = Effects::read(&self.place.effects()).done;
            if done > last.0 {
                last = (done, fault.elapsed());
            }
        }
        Ok(last.1)
    }
}

impl Effects {
    /// A line is `b JOB` or `e JOB`. The last one may be torn, when its writer was killed.
    fn read(lines: &str) -> Self {
        let mut jobs: HashMap<&str, (usize, usize)> = HashMap::new();
        for line in lines.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            match line.split_once(' ') {
                Some(("b", job)) => jobs.entry(job).or_default().0 += 1,
                Some(("e", job)) => jobs.entry(job).or_default().1 += 1,
                _ => (),
            }
        }
        let count = |wanted: fn(&(usize, usize)) -> bool| jobs.values().filter(|job| wanted(job)).count();
        Self {
            begun: jobs.values().map(|job| job.0).sum(),
            open: jobs.values().map(|job| job.0.saturating_sub(job.1)).sum(),
            done: count(|job| job.1 > 0),
            begun_again: count(|job| job.0 > 1),
            done_again: count(|job| job.1 > 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Effects;

    #[test]
    fn a_job_counts_once_however_often_it_ran() {
        let read = Effects::read("b 1\nb 2\nb 1\ne 1\nb 3\ne 3\nb 3\ne 3\ne");
        assert_eq!(read, Effects { begun: 5, open: 2, done: 2, begun_again: 2, done_again: 1 });
    }
}
