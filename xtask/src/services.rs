//! `cargo xtask services`: the servers that tests need, private and thrown away afterwards.
//!
//! Everything lies in one temporary folder: a Postgres cluster on a free port, a PgBouncer in transaction mode in
//! front of it, an S3 server and a Temporal server. `run`, `test` and `bench` hold a [`Session`]: a second process, the guard, starts
//! the servers, waits for the end of a pipe that only the first one holds, and then cleans up. So nothing stays
//! behind whether the command ends well, fails, is interrupted or is killed. Programs come from Debian, and what
//! Debian does not have is kept in `target/services`.

mod account;
mod browser;
mod cache;
mod daemon;
mod npm;
mod packages;
mod pgboss;
mod pgbouncer;
mod pip;
mod postgres;
mod programs;
mod prometheus;
mod schemathesis;
mod seaweedfs;
mod taps;
mod temporal;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::process;
use account::Account;
use programs::{Programs, Servers};

/// Superuser URL of the database `postgres` of a private cluster.
const POSTGRES_URL: &str = "STARGATE_TEST_POSTGRES_URL";
/// The same server behind PgBouncer in transaction mode.
const PGBOUNCER_URL: &str = "STARGATE_TEST_PGBOUNCER_URL";
/// What every folder of ours is called, so that `stop` never removes another.
const FOLDER_PREFIX: &str = "stargate-services-";
/// What the guard says when the servers answer.
const READY: &str = "ready";

type Variables = BTreeMap<String, String>;

/// Runs the subcommand.
pub(crate) fn run(args: &[&str]) -> Result<ExitCode> {
    match args {
        ["start"] => start_in_background(),
        ["stop"] => stop_in_background(),
        ["run", "--", program, rest @ ..] => {
            let session = Session::start()?;
            let code = process::exit_code(process::command(program).args(rest).envs(session.variables()));
            session.stop()?;
            code
        }
        // Not for people: see `Session`.
        ["guard", weed, temporal] => guard(&Servers { weed: weed.into(), temporal: temporal.into() }),
        _ => bail!("usage: cargo xtask services start | stop | run -- COMMAND…"),
    }
}

/// Services that live as long as this value, or as long as this process if that is shorter.
pub(crate) struct Session {
    variables: Variables,
    guard: Child,
}

impl Session {
    /// Installs what is missing and starts the servers.
    pub(crate) fn start() -> Result<Self> {
        let programs = Programs::install()?;
        let mut guard = process::command(std::env::current_exe().context("cannot find this program")?)
            .args(["services", "guard"])
            .args([&programs.servers.weed, &programs.servers.temporal])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0) // out of reach of the terminal's Ctrl-C
            .spawn()
            .context("cannot start the guard of the services")?;
        let answer = guard.stdout.take().context("the guard has no output")?;
        let mut variables = programs.variables;
        for line in BufReader::new(answer).lines() {
            let line = line.context("cannot hear the guard of the services")?;
            if line == READY {
                return Ok(Self { variables, guard });
            }
            variables.extend(parse_variable(&line));
        }
        guard.wait().context("cannot wait for the guard of the services")?;
        bail!("the services could not be started")
    }

    /// What tests read.
    pub(crate) fn variables(&self) -> &Variables {
        &self.variables
    }

    /// Stops the servers and removes their data.
    pub(crate) fn stop(mut self) -> Result<()> {
        drop(self.guard.stdin.take());
        let status = self.guard.wait().context("cannot wait for the guard of the services")?;
        if !status.success() {
            bail!("the services could not be stopped");
        }
        Ok(())
    }
}

/// Starts the servers, tells the process that started us how to reach them, waits until that process is gone or
/// done, and cleans up. An interrupt while they are starting is therefore only heeded when they have started.
fn guard(programs: &Servers) -> Result<ExitCode> {
    let account = Account::for_servers()?;
    let folder = create_folder(&account)?;
    let started = start_servers(&folder, &account, programs).inspect(|variables| {
        let lines: String = variables.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        // Nobody may be there any more to read it, which is what the next line finds out.
        let _ = std::io::stdout().write_all(format!("{lines}{READY}\n").as_bytes());
        // Nothing is ever written to us: the end of the pipe is the message.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
    });
    stop_servers(&folder)?;
    started.map(|_| ExitCode::SUCCESS)
}

fn start_in_background() -> Result<ExitCode> {
    if let Some((folder, variables)) = read_note()? {
        if all_run(&folder) {
            eprintln!("already running in {}", folder.display());
            print_exports(&variables);
            return Ok(ExitCode::SUCCESS);
        }
        eprintln!("not all services in {} are alive: starting anew", folder.display());
        stop_and_forget(&folder)?;
    }
    let programs = Programs::install()?;
    let account = Account::for_servers()?;
    let folder = create_folder(&account)?;
    let mut variables = start_servers(&folder, &account, &programs.servers).or_else(|error| {
        stop_servers(&folder)?;
        Err(error)
    })?;
    variables.extend(programs.variables);
    write_note(&folder, &variables)?;
    eprintln!("running in {}; 'cargo xtask services stop' ends it", folder.display());
    print_exports(&variables);
    Ok(ExitCode::SUCCESS)
}

fn stop_in_background() -> Result<ExitCode> {
    match read_note()? {
        Some((folder, _)) => {
            stop_and_forget(&folder)?;
            eprintln!("stopped, {} removed", folder.display());
        }
        None => eprintln!("nothing is running"),
    }
    Ok(ExitCode::SUCCESS)
}

fn stop_and_forget(folder: &Path) -> Result<()> {
    stop_servers(folder)?;
    fs::remove_file(note_path()).context("cannot remove the note of the running services")
}

fn start_servers(folder: &Path, account: &Account, programs: &Servers) -> Result<Variables> {
    let ports = free_ports::<{ 3 + seaweedfs::PORTS }>()?;
    let [postgres_port, pgbouncer_port, temporal_port, s3_ports @ ..] = ports;
    // The slowest first: it starts while the others do.
    let s3 = seaweedfs::start(folder, &programs.weed, s3_ports)?;
    postgres::start(folder, account, postgres_port)?;
    pgbouncer::start(folder, account, pgbouncer_port, postgres_port)?;
    let url = |port: u16| format!("postgres://postgres@127.0.0.1:{port}/postgres");
    let mut variables = Variables::from([
        (POSTGRES_URL.to_owned(), url(postgres_port)),
        (PGBOUNCER_URL.to_owned(), url(pgbouncer_port)),
    ]);
    variables.extend(s3.wait()?);
    variables.extend(temporal::start(folder, &programs.temporal, temporal_port)?);
    Ok(variables)
}

fn stop_servers(folder: &Path) -> Result<()> {
    let ours = folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with(FOLDER_PREFIX));
    if !ours {
        bail!("{} is not a folder of test services", folder.display());
    }
    if !folder.exists() {
        return Ok(());
    }
    let account = Account::for_servers()?;
    let stopped = [
        temporal::stop(folder),
        seaweedfs::stop(folder),
        pgbouncer::stop(folder),
        postgres::stop(folder, &account),
    ];
    let stopped: Result<()> = stopped.into_iter().collect();
    stopped.with_context(|| format!("the services in {} are still running", folder.display()))?;
    fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))
}

/// Whether what was started in a folder still runs, all of it.
fn all_run(folder: &Path) -> bool {
    [postgres::runs, pgbouncer::runs, seaweedfs::runs, temporal::runs].iter().all(|runs| runs(folder))
}

fn create_folder(account: &Account) -> Result<PathBuf> {
    // Without links: the folder that a process works in is compared with it.
    let folder = std::env::temp_dir().canonicalize().context("there is no temporary folder")?;
    let folder = folder.join(format!("{FOLDER_PREFIX}{}", std::process::id()));
    fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    account.own(&folder)?;
    Ok(folder)
}

/// Ports that nobody uses at this moment. All are held until all are known, so that they differ.
fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut ports = [0; N];
    let mut held = Vec::new();
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on 127.0.0.1")?;
        *port = listener.local_addr().context("a bound socket has no address")?.port();
        held.push(listener);
    }
    Ok(ports)
}

fn print_exports(variables: &Variables) {
    for (name, value) in variables {
        println!("export {name}='{value}'");
    }
}

/// Where `start` leaves for `stop` what it started: the folder on the first line, then the variables.
fn note_path() -> PathBuf {
    process::root().join("target/stargate-services")
}

fn write_note(folder: &Path, variables: &Variables) -> Result<()> {
    let path = note_path();
    fs::create_dir_all(process::root().join("target")).context("cannot create the target folder")?;
    fs::write(&path, note_text(folder, variables)).with_context(|| format!("cannot write {}", path.display()))
}

/// The folder and the variables of the services in the background, if they are still there.
fn read_note() -> Result<Option<(PathBuf, Variables)>> {
    let path = note_path();
    if !path.exists() {
        return Ok(None);
    }
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let note = parse_note(&text).with_context(|| format!("{} is damaged: remove it", path.display()))?;
    if note.0.exists() {
        return Ok(Some(note));
    }
    // The machine was restarted, or somebody cleaned the temporary folder.
    fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    Ok(None)
}

fn note_text(folder: &Path, variables: &Variables) -> String {
    let lines: String = variables.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    format!("{}\n{lines}", folder.display())
}

fn parse_note(text: &str) -> Option<(PathBuf, Variables)> {
    let mut lines = text.lines();
    let folder = PathBuf::from(lines.next()?);
    Some((folder, lines.map(parse_variable).collect::<Option<Variables>>()?))
}

fn parse_variable(line: &str) -> Option<(String, String)> {
    line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_start_notes_is_what_stop_reads() {
        let folder = PathBuf::from("/tmp/stargate-services-1");
        let variables = Variables::from([("A".to_owned(), "postgres://x?a=b".to_owned())]);
        assert_eq!(parse_note(&note_text(&folder, &variables)), Some((folder, variables)));
        assert_eq!(parse_note("folder\nnonsense\n"), None);
        assert_eq!(parse_note(""), None);
    }

    #[test]
    fn servers_that_have_died_are_seen_to_be_dead_and_cleaned_up_after() {
        let folder = std::env::temp_dir().join(format!("{FOLDER_PREFIX}dead-{}", std::process::id()));
        fs::create_dir_all(folder.join("data")).unwrap();
        let log = folder.join("gone.log");
        let gone = process::background(&mut process::command("true"), &log).unwrap();
        while process::is_running(gone) {
            std::thread::yield_now();
        }
        // As they stay behind when the machine goes down.
        for file in ["data/postmaster.pid", "pgbouncer.pid", "seaweedfs.pid", "temporal.pid"] {
            fs::write(folder.join(file), format!("{gone}\n")).unwrap();
        }
        assert!(!all_run(&folder));
        stop_servers(&folder).unwrap();
        assert!(!folder.exists());
    }

    #[test]
    fn a_folder_that_is_not_ours_is_never_removed() {
        let folder = std::env::temp_dir().join(format!("somebody-elses-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        assert!(stop_servers(&folder).is_err());
        assert!(folder.exists());
        fs::remove_dir(&folder).unwrap();
    }
}
