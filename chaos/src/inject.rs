//! Bringing a fault about, and taking it back.

use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};
use stargate_testkit::proxy::Proxy;
use stargate_testkit::source_server::Fault as Broken;
use tokio::task::{JoinSet, block_in_place};
use tokio_postgres::NoTls;

use crate::crew::Part;
use crate::ledger::now_micros;
use crate::plan::Fault;
use crate::services::{Servers, Workflows};
use crate::site::Site;

/// How long to look for a process that is there for an instant only.
const HUNT: Duration = Duration::from_millis(1500);
/// Connections of a Postgres of this run, and some more; and so many that hardly one is left.
const CONNECTIONS: usize = 140;
const CONNECTIONS_MIN: usize = 90;

/// Brings it about, waits for as long as it lasts, takes it back. Whether it hit anything.
pub(crate) async fn inject(site: &Site, fault: &Fault) -> Result<bool> {
    let (target, _) = fault.name.split_once(':').unwrap_or((fault.name, ""));
    match (target, &site.servers, &site.workflows) {
        ("worker" | "node", ..) => Ok(process(site, fault).await),
        ("hook" | "git" | "handler", ..) => Ok(hunt(site, fault).await),
        ("postgres", Some(servers), _) => postgres(site, servers, fault).await,
        ("redis", Some(servers), _) => Ok(redis(servers, fault).await),
        ("s3", Some(servers), _) => s3(servers, fault).await,
        ("temporal", _, Some(workflows)) => Ok(temporal(workflows, fault).await),
        ("network", ..) => network(site, fault).await,
        ("sqlite", ..) => sqlite(&site.home.join("stargate.db"), fault),
        _ => surroundings(site, fault).await,
    }
}

/// Breaks the way to a server. Whether that hit anybody.
async fn hinder(proxy: &Proxy, fault: &Fault) -> bool {
    let before = proxy.harmed();
    if fault.name.ends_with(":cut") {
        proxy.cut();
    } else if fault.name.ends_with(":stall") {
        proxy.stall();
    } else {
        proxy.swallow();
    }
    tokio::time::sleep(fault.hold).await;
    let harmed = proxy.harmed() > before;
    proxy.forward();
    harmed
}

/// Waits for a while. Whether somebody wanted something of the server behind it.
async fn is_asked(proxy: &Proxy, time: Duration) -> bool {
    let before = proxy.asked();
    tokio::time::sleep(time).await;
    proxy.asked() > before
}

async fn temporal(workflows: &Workflows, fault: &Fault) -> bool {
    let server = || workflows.server.lock().unwrap_or_else(PoisonError::into_inner);
    match fault.name {
        "temporal:kill" => {
            block_in_place(|| {
                let mut server = server();
                server.kill();
                std::thread::sleep(fault.hold);
                server.up();
            });
            true
        }
        "temporal:stop" => {
            server().freeze();
            let asked = is_asked(&workflows.proxy, fault.hold).await;
            server().thaw();
            asked
        }
        _ => hinder(&workflows.proxy, fault).await,
    }
}

async fn process(site: &Site, fault: &Fault) -> bool {
    let part = if fault.name.starts_with("node") { Part::Node } else { Part::Worker };
    if fault.name.ends_with(":kill") {
        return site.crew().kill(part, fault.pick, fault.hold);
    }
    if fault.name.ends_with(":term") {
        return site.crew().terminate(part, fault.pick, fault.hold);
    }
    let Some(id) = site.crew().freeze(part, fault.pick) else { return false };
    tokio::time::sleep(fault.hold).await;
    site.crew().thaw(id);
    true
}

/// Kills or stops a process that is not ours to restart: one that works in a repository, or for a job.
async fn hunt(site: &Site, fault: &Fault) -> bool {
    let repos = site.home.join("repos");
    let effects = site.outside("effects.log").display().to_string();
    let home = site.home.display().to_string();
    let begin = Instant::now();
    while begin.elapsed() < HUNT {
        let found: Vec<u32> = processes()
            .filter(|(id, words)| match fault.name {
                "handler:kill" => words.contains(&effects) && !words.contains("stargate-chaos"),
                "hook:kill" | "hook:stop" => is_hook(words) && words.contains(&home),
                _ => words.contains("git") && !is_hook(words) && works_in(*id, &repos),
            })
            .map(|(id, _)| id)
            .collect();
        if !found.is_empty() {
            let id = found[fault.pick as usize % found.len()];
            let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) else { return false };
            if fault.name.ends_with(":kill") {
                return kill_process(pid, Signal::KILL).is_ok();
            }
            let stopped = kill_process(pid, Signal::STOP).is_ok();
            tokio::time::sleep(fault.hold).await;
            // Whoever waited for it may have given up on it meanwhile.
            let _ = kill_process(pid, Signal::CONT);
            return stopped;
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    false
}

/// Whether this is the product as a hook of git. Others have the word in an argument, too: the folder of all hooks is one.
fn is_hook(words: &str) -> bool {
    let is_named = ["pre-receive", "post-receive"].iter().any(|hook| words.trim_end().ends_with(hook));
    is_named && words.contains(" hook ")
}

/// All processes with their arguments.
pub(crate) fn processes() -> impl Iterator<Item = (u32, String)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let words = std::fs::read(entry.path().join("cmdline")).ok()?;
        Some((id, String::from_utf8_lossy(&words).replace('\0', " ")))
    })
}

fn works_in(id: u32, folder: &Path) -> bool {
    std::fs::read_link(format!("/proc/{id}/cwd")).is_ok_and(|there| there.starts_with(folder))
}

async fn postgres(site: &Site, servers: &Servers, fault: &Fault) -> Result<bool> {
    let (cluster, proxy) = (&servers.postgres, &servers.postgres_proxy);
    match fault.name {
        "postgres:crash" => {
            let begin = now_micros()?;
            block_in_place(|| {
                cluster.crash();
                std::thread::sleep(fault.hold);
                cluster.up();
            });
            lapse(site, begin)?;
        }
        "postgres:restart" => block_in_place(|| {
            cluster.shut_down();
            std::thread::sleep(fault.hold);
            cluster.up();
        }),
        "postgres:stop" => {
            let stopped = cluster.freeze();
            let asked = is_asked(proxy, fault.hold).await;
            cluster.thaw(&stopped);
            return Ok(asked);
        }
        "postgres:disk" => {
            let begin = now_micros()?;
            let ballast = Ballast::fill(servers.disk.path())?;
            tokio::time::sleep(fault.hold).await;
            let was_full = ballast.is_full();
            drop(ballast);
            // Without room for its log it may have crashed.
            block_in_place(|| cluster.revive());
            lapse(site, begin)?;
            return Ok(was_full);
        }
        "postgres:drop" => {
            let (client, connection) = tokio_postgres::connect(&cluster.url(), NoTls).await?;
            let mut tasks = JoinSet::new();
            tasks.spawn(connection);
            let end = "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and usename is not null";
            client.simple_query(end).await?;
        }
        "postgres:full" => {
            // Those who are connected would stay, and only who has to connect anew is refused. So ours are sent away first.
            proxy.cut();
            let mut taken = Vec::new();
            let mut tasks = JoinSet::new();
            for _ in 0..CONNECTIONS {
                let Ok((client, connection)) = tokio_postgres::connect(&cluster.url(), NoTls).await else {
                    // The sessions of those who were sent away may end a moment later than their connections.
                    if taken.len() >= CONNECTIONS_MIN {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                };
                tasks.spawn(connection);
                taken.push(client);
            }
            proxy.forward();
            let url = servers.postgres_url(&site.secrets);
            let refused = tokio_postgres::connect(&url, NoTls).await.is_err_and(|error| {
                error.code() == Some(&tokio_postgres::error::SqlState::TOO_MANY_CONNECTIONS)
            });
            tokio::time::sleep(fault.hold).await;
            return Ok(refused);
        }
        _ => return Ok(hinder(proxy, fault).await),
    }
    Ok(true)
}

/// Whether a node answers with a time of day that is far from ours.
async fn tells_another_time(site: &Site) -> bool {
    const FAR: Duration = Duration::from_secs(1800);
    let Ok(client) = reqwest::Client::builder().timeout(Duration::from_secs(2)).build() else { return false };
    let nodes = site.crew().nodes();
    for node in nodes {
        let Ok(answer) = client.get(format!("http://{}/healthz", node.address)).send().await else {
            continue;
        };
        let told = answer.headers().get("date").and_then(|date| date.to_str().ok());
        let told = told.and_then(|date| jiff::fmt::rfc2822::parse(date).ok());
        let Ok(now) = now_micros() else { continue };
        if told.is_some_and(|told| told.timestamp().as_microsecond().abs_diff(now) > FAR.as_micros() as u64) {
            return true;
        }
    }
    false
}

/// Notes that a crash of the database, no sooner than `begin`, may have undone commits that did not wait for its disk: those of the
/// last three rounds of its log writer, a fifth of a second each, and some more.
fn lapse(site: &Site, begin: i64) -> Result<()> {
    const UNSYNCED_MICROS: i64 = 1_000_000;
    let lapse = (begin - UNSYNCED_MICROS, now_micros()?);
    site.lapses.lock().unwrap_or_else(PoisonError::into_inner).push(lapse);
    Ok(())
}

async fn redis(servers: &Servers, fault: &Fault) -> bool {
    let proxy = &servers.redis_proxy;
    let redis = || servers.redis.lock().unwrap_or_else(PoisonError::into_inner);
    match fault.name {
        "redis:kill" => {
            block_in_place(|| {
                let mut redis = redis();
                redis.kill();
                std::thread::sleep(fault.hold);
                redis.up();
            });
            true
        }
        "redis:stop" => {
            redis().freeze();
            let asked = is_asked(proxy, fault.hold).await;
            redis().thaw();
            asked
        }
        _ => hinder(proxy, fault).await,
    }
}

async fn s3(servers: &Servers, fault: &Fault) -> Result<bool> {
    let proxy = &servers.s3_proxy;
    match fault.name {
        "s3:kill" => {
            let mut s3 = servers.s3.lock().await;
            block_in_place(|| s3.restart(fault.hold))?;
        }
        "s3:stop" => {
            let s3 = servers.s3.lock().await;
            s3.signal(Signal::STOP);
            let asked = is_asked(proxy, fault.hold).await;
            s3.signal(Signal::CONT);
            return Ok(asked);
        }
        _ => return Ok(hinder(proxy, fault).await),
    }
    Ok(true)
}

async fn network(site: &Site, fault: &Fault) -> Result<bool> {
    let Some(network) = &site.network else { return Ok(false) };
    network.lose(fault.name == "network:gone")?;
    tokio::time::sleep(fault.hold).await;
    Ok(network.heal()? > 0)
}

fn sqlite(path: &Path, fault: &Fault) -> Result<bool> {
    block_in_place(|| {
        let connection = rusqlite::Connection::open(path).context("cannot open the store")?;
        connection.busy_timeout(Duration::from_secs(5))?;
        let begin =
            if fault.name == "sqlite:locked" { "begin immediate" } else { "begin; select count(*) from job" };
        if connection.execute_batch(begin).is_err() {
            return Ok(false);
        }
        std::thread::sleep(fault.hold);
        // What it would have written does not matter: it has written nothing.
        let _ = connection.execute_batch("rollback");
        Ok(true)
    })
}

/// All the room there is on a disk, until it is dropped.
struct Ballast(PathBuf);

impl Ballast {
    fn fill(disk: &Path) -> Result<Self> {
        let ballast = Self(disk.join("ballast"));
        let file = std::fs::File::create(&ballast.0).context("the ballast")?;
        block_in_place(|| {
            for block in [1 << 20, 512] {
                let zeros = vec![0; block];
                while std::io::Write::write_all(&mut &file, &zeros).is_ok() {}
            }
        });
        Ok(ballast)
    }

    /// Whether there is still no room for anybody.
    fn is_full(&self) -> bool {
        let probe = self.0.with_extension("probe");
        let written = std::fs::write(&probe, [0; 64 << 10]);
        let _ = std::fs::remove_file(probe);
        written.is_err()
    }
}

impl Drop for Ballast {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

async fn surroundings(site: &Site, fault: &Fault) -> Result<bool> {
    match fault.name {
        "disk:full" => {
            let ballast = Ballast::fill(&site.home)?;
            tokio::time::sleep(fault.hold).await;
            return Ok(ballast.is_full());
        }
        "clock:ahead" | "clock:back" => {
            let Some(clock) = &site.clock else { return Ok(false) };
            clock.step(if fault.name == "clock:ahead" { "+3600" } else { "-3600" })?;
            tokio::time::sleep(fault.hold).await;
            let stepped = tells_another_time(site).await;
            clock.step("+0")?;
            return Ok(stepped);
        }
        "remote:away" => {
            // Without it there is no repository. The folder itself stays: a git that is at work in it would find
            // neither its locks nor what they protect, which no remote that goes away does to anybody.
            let [here, away] = ["remote.git/HEAD", "remote.git/HEAD.away"].map(|name| site.outside(name));
            #[expect(
                clippy::disallowed_methods,
                reason = "moved out of the way and back; nothing durable about it"
            )]
            let moved = |from, to| std::fs::rename(from, to);
            moved(&here, &away)?;
            tokio::time::sleep(fault.hold).await;
            moved(&away, &here)?;
        }
        _ => {
            let which = fault.pick;
            site.source.script(move |request| {
                Some(match (which as u64 + request.number) % 4 {
                    0 => Broken::status(500),
                    1 => Broken::Truncate,
                    2 => Broken::Close,
                    _ => Broken::html(),
                })
            });
            let before = site.source.request_count();
            tokio::time::sleep(fault.hold).await;
            let asked = site.source.request_count() > before;
            site.heal_source();
            return Ok(asked);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_is_told_from_a_git_that_names_the_folder_of_hooks() {
        assert!(is_hook("/bin/stargate --config /h/stargate.toml --home /h/disk hook --in /h post-receive "));
        assert!(!is_hook("git -c core.hooksPath=/h/disk/.hooks/1 receive-pack --stateless-rpc . "));
        assert!(!is_hook("/bin/sh /h/disk/.hooks/1/post-receive "));
    }
}
