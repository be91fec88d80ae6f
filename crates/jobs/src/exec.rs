//! Handlers that are programs.
//!
//! The payload is the program's stdin. Lines of its stdout that are JSON objects report back: `{"progress":40}`,
//! `{"event":"name","data":{}}`, `{"result":{}}`; other lines are ignored. Its exit code is the outcome: 0 is
//! well, 65 a validation failure, 75 transient, 78 fatal, anything else transient. The end of its stderr is kept
//! with a failure.
//!
//! Nothing a program does costs more than bounded memory: it may flood its outputs, leave its input unread, or
//! never end a line.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use async_trait::async_trait;
use stargate_artifact::scratch;
use stargate_base::ErrorClass;
use stargate_queue::context::Context;
use stargate_queue::handler::{Failure, Handler, HandlerResult};
use stargate_queue::job::Json;
use stargate_queue::trace;
use tokio::io::{AsyncRead, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use crate::execution::{Execution, Reports, stopped};
use crate::lines::{Said, Splitter};
use crate::pipes::{Reader, overhear};
use crate::process::{self, Pipes, Process, Spec, StartError};

/// The program failed.
pub const EXEC_FAILED: &str = "EXEC_FAILED";
/// The program or its working directory is not there, or it may not be run.
pub const EXEC_NOT_FOUND: &str = "EXEC_NOT_FOUND";
/// The program's result cannot be kept.
pub const RESULT_REFUSED: &str = "RESULT_REFUSED";

/// How long a program has between SIGTERM and SIGKILL by default.
pub const GRACE: Duration = Duration::from_secs(5);

/// How long the last reports of a stopped program may take.
const DRAIN_STOPPED: Duration = Duration::from_millis(500);

/// `sysexits.h`: the input data was incorrect.
const EX_DATAERR: i32 = 65;
/// `sysexits.h`: something was found in an unconfigured or misconfigured state.
const EX_CONFIG: i32 = 78;

/// A handler that starts a program for each execution.
#[derive(Clone)]
pub struct Exec {
    /// The program and its arguments; at least one element. A relative path counts from the working directory.
    pub command: Vec<String>,
    /// Where it runs; the directory of this process when absent.
    pub working_dir: Option<PathBuf>,
    /// What is added to its environment.
    pub env: BTreeMap<String, String>,
    /// What it keeps of this process' environment: see [`crate::process::inherited`].
    pub inherited: Vec<(OsString, OsString)>,
    /// Time between SIGTERM and SIGKILL. The engine drops a handler some time after it asked it to stop; a
    /// longer grace than that is cut short by it.
    pub grace: Duration,
    /// Each execution gets a fresh directory below this one, deleted when it succeeds.
    pub scratch: scratch::Root,
}

impl std::fmt::Debug for Exec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Values of the environment are often secrets (INV-8).
        f.debug_struct("Exec")
            .field("command", &self.command)
            .field("env", &self.env.keys())
            .finish_non_exhaustive()
    }
}

impl Exec {
    /// A program with an empty environment and its scratch directories below `scratch`.
    pub fn new(command: Vec<String>, scratch: scratch::Root) -> Self {
        Self {
            command,
            working_dir: None,
            env: BTreeMap::new(),
            inherited: Vec::new(),
            grace: GRACE,
            scratch,
        }
    }

    async fn execute<R: Reports>(&self, execution: &Execution<'_>, reports: &R) -> HandlerResult {
        let Some((program, args)) = self.command.split_first() else {
            return Err(Failure::new(
                EXEC_NOT_FOUND,
                ErrorClass::Fatal,
                "the command is empty; name a program",
            ));
        };
        let scratch = crate::execution::scratch(&self.scratch, execution).await?;
        let env = self.environment(execution, scratch.path());
        let spec = Spec { program, args, working_dir: self.working_dir.as_deref(), env };
        let result = self.run_program(&spec, execution, reports).await;
        match &result {
            Ok(_) => scratch.succeeded().await,
            Err(_) => drop(scratch.failed().await),
        }
        result
    }

    async fn run_program<R: Reports>(
        &self,
        spec: &Spec<'_>,
        execution: &Execution<'_>,
        reports: &R,
    ) -> HandlerResult {
        let (process, pipes) = process::start(spec).map_err(not_started)?;
        supervise(process, pipes, execution, self.grace, reports).await?.into_result()
    }

    /// Later entries win, so a configuration cannot pretend to be another job.
    fn environment(&self, execution: &Execution<'_>, scratch: &Path) -> Vec<(OsString, OsString)> {
        let mut env = self.inherited.clone();
        env.extend(self.env.iter().map(|(name, value)| (name.into(), value.into())));
        env.push(("STARGATE_JOB_ID".into(), execution.job.to_string().into()));
        env.push(("STARGATE_ATTEMPT".into(), execution.attempt.to_string().into()));
        env.push(("STARGATE_KIND".into(), execution.kind.into()));
        env.push(("STARGATE_QUEUE".into(), execution.queue.into()));
        env.push(("STARGATE_SCRATCH".into(), scratch.into()));
        if let Some(parent) = trace::context(execution.trace_id, execution.job, execution.attempt) {
            env.push(("TRACEPARENT".into(), parent.to_string().into()));
        }
        env
    }
}

#[async_trait]
impl Handler for Exec {
    async fn run(&self, context: Context) -> HandlerResult {
        self.execute(&Execution::of(&context), &context).await
    }
}

/// How a program ended by itself.
struct Ended {
    status: ExitStatus,
    output: Output,
    stderr: Option<String>,
}

/// What a program said on its stdout that decides the outcome.
#[derive(Default)]
struct Output {
    result: Option<Json>,
    refused: Option<String>,
}

impl Ended {
    fn into_result(self) -> HandlerResult {
        let failure = match (exit_failure(self.status), self.output.refused) {
            (Some(failure), _) => failure,
            (None, Some(problem)) => {
                let message = format!("the program's result {problem}");
                Failure::new(RESULT_REFUSED, ErrorClass::ValidationFailure, message)
            }
            (None, None) => return Ok(self.output.result),
        };
        Err(match self.stderr {
            Some(stderr) => failure.with_detail(stderr),
            None => failure,
        })
    }
}

/// What an exit status means. The code is the same for all of them; the class is what retry code looks at.
fn exit_failure(status: ExitStatus) -> Option<Failure> {
    let class = match status.code() {
        Some(0) => return None,
        Some(EX_DATAERR) => ErrorClass::ValidationFailure,
        Some(EX_CONFIG) => ErrorClass::Fatal,
        // 75 (EX_TEMPFAIL) and everything else, a signal included.
        _ => ErrorClass::RetryableTransient,
    };
    let message = match (status.code(), status.signal()) {
        (Some(code), _) => format!("the program exited with code {code}"),
        (None, Some(signal)) => format!("the program was killed by signal {signal}"),
        (None, None) => "the program ended in an unknown way".to_owned(),
    };
    Some(Failure::new(EXEC_FAILED, class, message))
}

fn not_started(error: StartError) -> Failure {
    let (code, class) = match error {
        StartError::System { .. } => (EXEC_FAILED, ErrorClass::RetryableTransient),
        _ => (EXEC_NOT_FOUND, ErrorClass::Fatal),
    };
    let message = match std::error::Error::source(&error) {
        Some(source) => format!("{error}: {source}"),
        None => format!("{error}; correct the kind's exec setting"),
    };
    Failure::new(code, class, message)
}

/// Feeds a program, listens to it and waits for its end.
async fn supervise<R: Reports>(
    mut process: Process,
    pipes: Pipes,
    execution: &Execution<'_>,
    grace: Duration,
    reports: &R,
) -> Result<Ended, Failure> {
    let Pipes { mut stdin, stdout, stderr } = pipes;
    let exited = CancellationToken::new();
    let feed = async {
        // A program need not read its input: a broken pipe is not an error, and its end ends the waiting.
        tokio::select! {
            _ = stdin.write_all(execution.payload.as_bytes()) => {}
            () = exited.cancelled() => {}
        }
        drop(stdin);
    };
    let mut conversation = std::pin::pin!(async {
        tokio::join!(feed, listen(stdout, &exited, reports), overhear(stderr, &exited))
    });
    let mut said = None;
    let status = loop {
        tokio::select! {
            status = process.wait() => break status?,
            all = &mut conversation, if said.is_none() => said = Some(all),
            () = execution.stopping.cancelled() => {
                let end = async {
                    let status = process.terminate(grace).await;
                    exited.cancel();
                    status
                };
                // Its last words are still worth hearing; a full pipe would also keep it from ending.
                tokio::join!(end, tokio::time::timeout(grace + DRAIN_STOPPED, async {
                    if said.is_none() { conversation.await; }
                })).0?;
                return Err(stopped());
            }
        }
    };
    exited.cancel();
    let ((), output, stderr) = match said {
        Some(all) => all,
        // The reports must get through, however slow the store is; only the order to stop cuts them off.
        None => tokio::select! {
            all = &mut conversation => all,
            () = execution.stopping.cancelled() => return Err(stopped()),
        },
    };
    Ok(Ended { status, output, stderr })
}

/// Reads reports until the stream ends and passes them on. A slow store slows the program down by its full pipe.
async fn listen<R: Reports>(
    mut stdout: impl AsyncRead + Unpin,
    exited: &CancellationToken,
    reports: &R,
) -> Output {
    let (mut splitter, mut said, mut output) = (Splitter::default(), Vec::new(), Output::default());
    let mut reader = Reader::default();
    while let Some(bytes) = reader.next(&mut stdout, exited).await {
        splitter.push(bytes, &mut said);
        report(&mut said, &mut output, reports).await;
    }
    splitter.finish(&mut said);
    report(&mut said, &mut output, reports).await;
    output
}

async fn report<R: Reports>(said: &mut Vec<Said>, output: &mut Output, reports: &R) {
    for said in said.drain(..) {
        match said {
            Said::Progress(percent) => reports.progress(percent).await,
            Said::Event(name, data) => reports.event(&name, &data).await,
            Said::Result(result) => *output = Output { result: Some(result), refused: None },
            Said::BadResult(problem) => *output = Output { result: None, refused: Some(problem) },
        }
    }
}

#[cfg(test)]
mod tests;
