//! One run: set up, break, heal, judge.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tokio::task::JoinSet;

use crate::check::{self, Violation};
use crate::inject::inject;
use crate::load::Load;
use crate::plan::{Lane, Plan, check_names};
use crate::report::{Looks, Part, Report, Struck};
use crate::site::{BRANCHES, Kind, Site, output};
use crate::watch::Watch;

/// How long everything may take to be done once nothing is in the way. Backoffs, leases and the waits of breakers are in it.
const HEALING: Duration = Duration::from_secs(150);
const TELL_EVERY: Duration = Duration::from_secs(15);

/// What to do.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program under test.
    pub binary: PathBuf,
    /// Decides the faults and what users do.
    pub seed: u64,
    /// How long faults go on, on each site.
    pub time: Duration,
    /// No more faults than these on each site.
    pub faults: Option<u64>,
    /// The installations.
    pub sites: Vec<Kind>,
    /// Only these faults, by name or target; empty means all.
    pub only: Vec<String>,
}

/// Runs the sites one after the other.
pub async fn run(options: &Options) -> Result<Report> {
    check_names(&options.only)?;
    let mut report = Report::new(options);
    for kind in &options.sites {
        println!("--- {kind:?}: setting up");
        let begin = Instant::now();
        let site = Site::open(&options.binary, *kind, options.seed).await?;
        println!("--- {kind:?}: all is well after {:.1} s", begin.elapsed().as_secs_f64());
        one(options, &site, &mut report).await?;
    }
    Ok(report)
}

/// The commit of the project in this folder, and whether more has changed.
pub fn commit() -> Result<String> {
    let commit = output("git", &["rev-parse", "--short", "HEAD"])?;
    let changed = !output("git", &["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Ok(format!("{}{}", commit.trim(), if changed { ", with changes" } else { "" }))
}

async fn one(options: &Options, site: &Arc<Site>, report: &mut Report) -> Result<()> {
    let begin = Instant::now();
    let watch = Watch::start(site);
    let load = Load::start(site, options.seed);
    let stop = Arc::new(AtomicBool::new(false));
    let mut keeper = JoinSet::new();
    keeper.spawn(tend(Arc::clone(site), Arc::clone(&stop)));
    let struck = strike(options, site, begin).await?;
    load.until_pushed().await;
    let counts = load.stop().await?;
    println!("--- {:?}: healing after {:.1} s", site.kind, begin.elapsed().as_secs_f64());
    let mut violations = heal(site).await?;
    let healed = begin.elapsed();
    stop.store(true, Ordering::Relaxed);
    while keeper.join_next().await.is_some() {}
    let deaf = stop_all(site).await;
    let seen = watch.stop().await;
    let looks = Looks::of(&seen);
    let verdict = check::judge(site, seen).await?;
    violations.extend(verdict.violations);
    violations
        .extend(deaf.into_iter().map(|name| Violation::new(7, format!("{name} did not end when asked to"))));
    println!(
        "--- {:?}: judged after {:.1} s (healed after {:.1} s); {} requests and {} pushes not taken",
        site.kind,
        begin.elapsed().as_secs_f64(),
        healed.as_secs_f64(),
        counts.refused.load(Ordering::Relaxed),
        counts.failed_pushes.load(Ordering::Relaxed),
    );
    let ended = std::mem::take(&mut site.crew().ended_by_itself);
    // Whoever cannot begin may say so and end; whoever has begun stays, whatever is away.
    let gone = ended.iter().filter(|ended| ended.had_begun);
    violations.extend(gone.map(|ended| Violation::new(7, format!("ended by itself: {}", ended.what))));
    if !violations.is_empty() {
        // At once, too: whoever ends the run before its report would not hear of them.
        violations.iter().for_each(|violation| println!("--- {:?}: VIOLATION {violation}", site.kind));
        keep(site)?;
    }
    let ended = ended.into_iter().map(|ended| ended.what).collect();
    let left_out = Plan::left_out(site.kind, &options.only, |name| site.can(name));
    report.add(Part {
        kind: site.kind,
        struck,
        figures: verdict.figures,
        looks,
        requeued: counts.requeued.load(Ordering::Relaxed),
        violations,
        ended,
        left_out,
    });
    Ok(())
}

async fn tend(site: Arc<Site>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        site.crew().tend(&site.program);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// All lanes at once, until the time or the number of faults is over.
async fn strike(options: &Options, site: &Arc<Site>, begin: Instant) -> Result<Vec<Struck>> {
    let struck = Arc::new(Mutex::new(Vec::new()));
    let count = Arc::new(AtomicU64::new(0));
    let mut lanes = JoinSet::new();
    for lane in [Lane::Processes, Lane::Surroundings, Lane::Network] {
        let mut plan = Plan::new(options.seed, lane, site.kind, &options.only, |name| site.can(name));
        let (site, struck, count) = (Arc::clone(site), Arc::clone(&struck), Arc::clone(&count));
        let (time, most) = (options.time, options.faults.unwrap_or(u64::MAX));
        lanes.spawn(async move {
            while begin.elapsed() < time && count.load(Ordering::Relaxed) < most {
                let Some(fault) = plan.next() else { break };
                tokio::time::sleep(fault.pause).await;
                let at = begin.elapsed();
                let hit = inject(&site, &fault).await.with_context(|| fault.name)?;
                let took = begin.elapsed().saturating_sub(at);
                println!(
                    "{:8.3} {:15} {} for {:.3} s",
                    at.as_secs_f64(),
                    fault.name,
                    if hit { "hit" } else { "missed" },
                    took.as_secs_f64()
                );
                count.fetch_add(u64::from(hit), Ordering::Relaxed);
                struck.lock().unwrap_or_else(PoisonError::into_inner).push(Struck { name: fault.name, hit });
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = lanes.join_next().await {
        ended??;
    }
    let mut struck = struck.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(std::mem::take(&mut *struck))
}

/// Waits until everything that was asked for is done. What never comes is a violation.
async fn heal(site: &Arc<Site>) -> Result<Vec<Violation>> {
    if let Some(servers) = &site.servers {
        servers.s3.lock().await.answers().await?;
    }
    site.ready().await?;
    let begin = Instant::now();
    let mut open;
    let mut told = Duration::ZERO;
    loop {
        open = check::unfinished(&site.reader()).await.unwrap_or_else(|error| vec![format!("{error:#}")]);
        open.extend(unmirrored(site));
        open.extend(unrecorded(site).await.unwrap_or_else(|error| vec![format!("{error:#}")]));
        open.extend(locked(site));
        open.extend(check::pending(site));
        if open.is_empty() {
            break;
        }
        if begin.elapsed() > HEALING {
            break;
        }
        if begin.elapsed() > told + TELL_EVERY {
            told = begin.elapsed();
            println!(
                "--- {:?}: after {told:.0?} there are {} things to do, one is {}",
                site.kind,
                open.len(),
                open[0]
            );
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    open.truncate(10);
    let mut found: Vec<Violation> = open
        .into_iter()
        .map(|what| Violation::new(1, format!("not done {HEALING:?} after everything was healed: {what}")))
        .collect();
    // The first may join a run that began before the last change of the source.
    for _ in 0..2 {
        found.extend(last_run(site).await?);
    }
    Ok(found)
}

/// Locks that killed gits have left, here or in the remote: nobody could push past them.
fn locked(site: &Site) -> Vec<String> {
    let both = [site.home.join("repos/r.git"), site.outside("remote.git")];
    both.iter().flat_map(|repo| locks(repo)).map(|lock| format!("{} is left", lock.display())).collect()
}

fn locks(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(locks(&path));
        } else if path.extension().is_some_and(|end| end == "lock")
            && !path.ends_with(".stargate/worker.lock")
        {
            found.push(path);
        }
    }
    found
}

fn unmirrored(site: &Site) -> Vec<String> {
    let (here, remote) = (site.home.join("repos/r.git"), site.outside("remote.git"));
    BRANCHES
        .iter()
        .filter(|branch| head(site, &here, branch) != head(site, &remote, branch))
        .map(|branch| format!("{branch} is not mirrored"))
        .collect()
}

/// Branches whose head nobody has recorded: a hook that was killed between the journal and the store leaves that to the leader,
/// which looks from time to time.
async fn unrecorded(site: &Site) -> Result<Vec<String>> {
    let mut open = Vec::new();
    for branch in BRANCHES {
        let head = head(site, &site.home.join("repos/r.git"), branch);
        if !head.is_empty() && !check::recorded(&site.reader(), branch).await?.contains(&head) {
            open.push(format!("{head} of {branch} is not recorded"));
        }
    }
    Ok(open)
}

fn head(site: &Site, repo: &Path, branch: &str) -> String {
    site.git(repo, &["rev-parse", "--verify", "-q", &format!("refs/heads/{branch}")]).unwrap_or_default()
}

/// A run of the directive over the source as it is in the end.
async fn last_run(site: &Arc<Site>) -> Result<Option<Violation>> {
    let begin = Instant::now();
    loop {
        let worker = Arc::clone(site);
        let run = move || worker.program.run(&["directive", "run", "issues", "--json"]);
        let output = tokio::task::spawn_blocking(run).await?;
        if output.status.success() {
            return Ok(None);
        }
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if begin.elapsed() > HEALING {
            return Ok(Some(Violation::new(5, format!("no run of the directive succeeds any more: {said}"))));
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// Ends all; who did not when asked to, now or before.
async fn stop_all(site: &Site) -> Vec<String> {
    // Taken out, because waiting with the lock held would keep everybody else from looking.
    let mut crew = std::mem::replace(&mut *site.crew(), crate::crew::Crew::new());
    crew.stop().await;
    let deaf = std::mem::take(&mut crew.deaf);
    *site.crew() = crew;
    deaf
}

/// Keeps what there is for a look.
fn keep(site: &Site) -> Result<()> {
    let place = std::env::temp_dir().join(format!("stargate-chaos-{:?}-{}", site.kind, std::process::id()));
    let (from, to) = (site.program.home().display().to_string(), place.display().to_string());
    crate::site::run("cp", &["-a", &from, &to])?;
    println!("--- what is left of it is kept in {to}");
    Ok(())
}
