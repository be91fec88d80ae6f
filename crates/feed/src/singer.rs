//! A Singer tap as a source: a child process that writes messages, one JSON a line.
//!
//! Promises:
//!
//! 1. A state is given out as the next pointer only when every record before it is in this page or an earlier one. A page
//!    with a state in it ends there: what comes after it waits for the next page.
//! 2. The tap is read only while a page is asked for, and one message beyond it, because states come after their records.
//! 3. The tap leads a process group of its own, and nothing of it is left when the feed is closed or dropped, or when this
//!    process is killed ([`warden`]).
//! 4. Secrets are in a file of this user's or in the tap's environment, and nowhere else: they are taken out of what is
//!    logged, quarantined or told in an error.

mod complaints;
mod lines;
mod message;
mod pages;
mod redact;
mod scratch;
mod settings;

use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use stargate_base::{Process, Tasks, warden};
use stargate_directive::Pointer;
use stargate_directive::file::SingerSource;
use stargate_directive::source::{Feed, Page, Record, Records, SourceError};
use tokio::process::{ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::Instrument as _;

use crate::{Surroundings, problem};
use complaints::Last;
use lines::{Line, Lines};
use pages::Collected;
use redact::Secrets;
use scratch::Scratch;
use settings::Settings;

/// A longer line is no record.
const LINE_BYTES_MAX: usize = 64 << 20;
/// What is safe to go on after is given out when the tap is silent for so long, although the page has room: a slow tap
/// may be ended before it has filled one.
const PAGE_QUIET: Duration = Duration::from_secs(5);
/// What a tap is given to end when it is told to.
const GRACE: Duration = Duration::from_secs(5);
/// Output that comes later than this after the tap's end is that of something that escaped its group.
const DRAIN_QUIET: Duration = Duration::from_secs(1);

/// Starts the tap where the cursor points to. `folder` is where the directive lies.
pub(crate) async fn open(
    source: &SingerSource,
    folder: &Path,
    from: &Pointer,
    around: &Surroundings,
) -> Result<Box<dyn Feed>, SourceError> {
    let name = Path::new(source.command.first().map_or("", String::as_str));
    let tap = name.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let Settings { program, args, env, folder, secrets, scratch } =
        Settings::new(source, folder, from, around)?;
    #[expect(clippy::disallowed_methods, reason = "the one place that starts taps")]
    let mut command = Command::new(&program);
    command.args(&args).env_clear().envs(env.iter().map(|(name, value)| (name, value.reveal())));
    command.current_dir(&folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let started = Process::start_with(command, warden::forget);
    let mut process = started.map_err(|error| not_started(name, &error))?;
    // A tap that never writes would not notice that its worker was killed.
    warden::watch(process.group());
    let pipes = process.child.stdout.take().zip(process.child.stderr.take());
    let (stdout, stderr) = pipes.ok_or_else(|| not_started(name, &io::Error::other("it has no pipes")))?;
    let (secrets, last, tasks) = (Arc::new(secrets), Last::default(), Tasks::new());
    let listen = complaints::listen(stderr, tap.clone(), secrets.clone(), last.clone(), tasks.stopping());
    let listener = tasks.spawn(listen.in_current_span());
    tracing::info!(tap, resumed = !from.is_null(), "started the tap");
    Ok(Box::new(Singer {
        lines: Lines::new(stdout, LINE_BYTES_MAX),
        collected: Collected::new(source.stream.clone()),
        tap,
        process,
        exit: None,
        ended: None,
        secrets,
        last,
        listener,
        tasks,
        _scratch: scratch,
    }))
}

/// A running tap.
#[derive(Debug)]
struct Singer {
    /// Its program's name, for the log.
    tap: String,
    lines: Lines<ChildStdout>,
    collected: Collected,
    process: Process,
    /// How it exited, once it has.
    exit: Option<ExitStatus>,
    /// Its output has come to an end: well, or with an error that is told once all that was safe has been given out.
    ended: Option<Result<(), SourceError>>,
    secrets: Arc<Secrets>,
    last: Last,
    /// Reads its stderr.
    listener: JoinHandle<()>,
    tasks: Tasks,
    _scratch: Scratch,
}

#[async_trait]
impl Feed for Singer {
    async fn page(&mut self, size: u32) -> Result<Page, SourceError> {
        let size = usize::try_from(size).unwrap_or(usize::MAX).max(1);
        while self.ended.is_none() && !self.collected.is_full(size) {
            if !self.collected.has_safe() {
                self.read().await?;
            } else if let Ok(read) = timeout(PAGE_QUIET, self.read()).await {
                read?;
            } else {
                break;
            }
        }
        match self.ended.take() {
            // What the tap said before it failed counts as far as it has said where to go on.
            Some(Err(error)) => match self.collected.up_to_state(size) {
                Some((records, next)) => {
                    self.ended = Some(Err(error));
                    Ok(page(records, Some(next), false))
                }
                None => Err(error),
            },
            Some(Ok(())) => {
                self.ended = Some(Ok(()));
                let (records, next, is_last) = self.collected.rest(size);
                Ok(page(records, next, is_last))
            }
            None => {
                let (records, next) = self.collected.page(size);
                Ok(page(records, next, false))
            }
        }
    }

    async fn close(mut self: Box<Self>) {
        self.collected.tell(&self.tap);
        if self.exit.is_none() {
            let Self { process, lines, .. } = &mut *self;
            // What it still has to say must not hold it up.
            let drained = async {
                while let Ok(Some(_)) = lines.next().await {}
                std::future::pending::<()>().await;
            };
            tokio::select! {
                ended = process.terminate(GRACE) => if let Err(error) = ended {
                    tracing::warn!(tap = self.tap, %error, "cannot learn how the tap ended");
                },
                () = drained => {}
            }
        }
        self.hear_out().await;
        self.tasks.join().await;
    }
}

fn page(records: Vec<Record>, next: Option<Pointer>, is_last: bool) -> Page {
    Page { records: Records::memory(records), next, is_last }
}

impl Singer {
    /// Reads one line, or notices the end. Safe to cancel.
    async fn read(&mut self) -> Result<(), SourceError> {
        let Self { lines, process, exit, secrets, .. } = self;
        let line = loop {
            if exit.is_some() {
                // Something that escaped the group may hold the pipe open for ever.
                break timeout(DRAIN_QUIET, lines.next()).await.unwrap_or(Ok(None));
            }
            tokio::select! {
                biased;
                line = lines.next() => break line,
                status = process.wait() => match status {
                    Ok(status) => *exit = Some(status),
                    Err(error) => break Err(error),
                },
            }
        };
        let message = match line {
            Ok(Some(Line::Whole(line))) if line.trim_ascii().is_empty() => return Ok(()),
            Ok(Some(Line::Whole(line))) => {
                message::read(line).map_err(|problem| secrets.garbled(line, &problem))
            }
            Ok(Some(Line::Over(line))) => {
                Err(secrets.garbled(line, &format!("has more than {LINE_BYTES_MAX} bytes")))
            }
            Ok(None) => {
                self.ended = Some(self.ending().await);
                return Ok(());
            }
            Err(error) => return Err(failed(format!("cannot read from the tap {}: {error}", self.tap))),
        };
        self.collected.take(&self.tap, message)
    }

    /// How it ended, once its output has.
    async fn ending(&mut self) -> Result<(), SourceError> {
        let status = match self.exit {
            Some(status) => status,
            None => match self.process.wait().await {
                Ok(status) => *self.exit.insert(status),
                Err(error) => {
                    return Err(failed(format!("cannot learn how the tap {} ended: {error}", self.tap)));
                }
            },
        };
        if status.success() {
            return self.collected.check_end();
        }
        self.hear_out().await;
        let said = self.last.text().map_or_else(
            || "; it said nothing on stderr".to_owned(),
            |lines| format!("; its last words on stderr:\n{lines}"),
        );
        Err(failed(format!("the tap {} ended with {status}{said}", self.tap)))
    }
}

impl Singer {
    /// Waits for its last words, but not for something that escaped the group and holds its stderr.
    async fn hear_out(&mut self) {
        if !self.listener.is_finished() {
            // Whoever listens longer is told to stop when the feed is closed.
            let _ = timeout(DRAIN_QUIET, &mut self.listener).await;
        }
    }
}

fn failed(message: String) -> SourceError {
    problem::transient("SOURCE_TAP", message)
}

fn not_started(program: &Path, error: &io::Error) -> SourceError {
    let is_passing = matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory | io::ErrorKind::Interrupted
    );
    let program = program.display();
    if is_passing {
        return failed(format!("the tap {program} could not be started: {error}"));
    }
    let remedy = "install it in a virtual environment of its own and name its program in full: \
                  command = [\"/opt/taps/tap-name/bin/tap-name\"]";
    let message = format!("the tap {program} could not be started: {error}; {remedy}");
    problem::fatal("SOURCE_TAP_MISSING", message)
}
