//! What an answer of git means for the entry that was pushed. Pure.
//!
//! git says per ref what became of it (exit code 1), or that it did not get that far (128), in words. The words are
//! those of git itself, with `LC_ALL=C`, and of the common hosts. Each is the remote's (nobody gets through), the
//! entry's own (the others go on), or unclear: it broke off in the middle, and only whether others get through tells
//! whose fault that was. An unknown refusal is about its ref, an unknown failure is unclear.

use stargate_git::{End, Flag, Line, PushAnswer, Update};

use crate::dead_letter::{PerRef, Reason};

/// What an answer means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The refs were moved.
    Done,
    /// All refs were there already.
    AlreadyThere,
    /// Nobody knows, or somebody else was faster: ask the remote, then try again.
    Recheck,
    /// It did not end in time; nobody knows what became of it.
    TimedOut,
    /// It broke off: because of what was sent, or because the remote cannot take anything.
    Unclear,
    /// The remote cannot be reached, or not for the moment.
    Outage,
    /// The remote does not let us in.
    Auth,
    /// The remote does not want this ref to be moved.
    Policy,
    /// The remote has something that we have not.
    Diverged,
    /// Something is wrong here: an object is missing or broken.
    Local,
    /// It cannot work as it is set up.
    Config,
}

impl Outcome {
    /// A word for metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::AlreadyThere => "already-there",
            Self::Recheck => "recheck",
            Self::TimedOut => "timeout",
            Self::Unclear => "unclear",
            Self::Outage => "outage",
            Self::Auth => "auth",
            Self::Policy => "rejected",
            Self::Diverged => "diverged",
            Self::Local => "local",
            Self::Config => "config",
        }
    }

    /// Whose fault a failure is.
    pub fn blame(self) -> Blame {
        match self {
            Self::Outage | Self::Auth | Self::Config => Blame::Remote,
            Self::Recheck | Self::TimedOut | Self::Unclear => Blame::Unclear,
            Self::Done | Self::AlreadyThere | Self::Policy | Self::Diverged | Self::Local => Blame::Entry,
        }
    }

    /// Whether the remote's refs tell more.
    pub fn asks(self) -> bool {
        matches!(self, Self::Recheck | Self::TimedOut | Self::Unclear | Self::Diverged)
    }

    fn reason(self) -> Reason {
        match self {
            Self::TimedOut => Reason::Timeout,
            Self::Outage | Self::Config | Self::Unclear => Reason::Outage,
            Self::Auth => Reason::Auth,
            Self::Diverged => Reason::Diverged,
            Self::Local => Reason::Local,
            Self::Done | Self::AlreadyThere | Self::Recheck | Self::Policy => Reason::Rejected,
        }
    }
}

/// Whose fault a failure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Blame {
    /// The remote's: all entries would fare the same, so that trying the next one is no use.
    Remote,
    /// The entry's: others fare better.
    Entry,
    /// It shows when others are tried.
    Unclear,
}

/// What an answer means, with what was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// What it means.
    pub outcome: Outcome,
    /// In words; already without secrets.
    pub error: String,
    /// git's exit code, if it had one.
    pub git_exit: Option<i32>,
    /// What was said about each ref.
    pub per_ref: Vec<PerRef>,
}

impl Verdict {
    /// What a dead letter says.
    pub fn reason(&self) -> Reason {
        // Nobody refused anything: our own git was killed or said nothing.
        match (self.outcome, self.per_ref.is_empty()) {
            (Outcome::Recheck, true) => Reason::Local,
            (Outcome::Unclear, false) => Reason::Rejected,
            (outcome, _) => outcome.reason(),
        }
    }

    /// One that comes from elsewhere than a push.
    pub fn new(outcome: Outcome, error: impl Into<String>) -> Self {
        Self { outcome, error: error.into(), git_exit: None, per_ref: Vec::new() }
    }
}

/// Judges the answer to a push of `updates`.
pub fn judge(answer: &PushAnswer, updates: &[Update]) -> Verdict {
    let outcome = match answer.end {
        End::TimedOut => Outcome::TimedOut,
        End::Killed(_) => Outcome::Recheck,
        End::Exited(0) => accepted(&answer.lines, updates),
        End::Exited(_) => {
            let refused = answer.lines.iter().filter(|line| line.flag == Flag::Rejected);
            let worst = refused.filter_map(|line| refusal(line, &answer.stderr)).min_by_key(weight);
            worst.unwrap_or_else(|| failure(&answer.stderr))
        }
    };
    Verdict {
        outcome,
        error: words(answer, outcome),
        git_exit: answer.end.code(),
        per_ref: answer
            .lines
            .iter()
            .map(|line| PerRef { ref_name: line.to.to_string(), status: status(line) })
            .collect(),
    }
}

/// Success must be said of every ref, not only by the exit code.
fn accepted(lines: &[Line], updates: &[Update]) -> Outcome {
    let mut moved = false;
    for update in updates {
        let mut said = lines.iter().filter(|line| line.to == update.to).map(|line| line.flag).peekable();
        if said.peek().is_none() {
            return Outcome::Recheck;
        }
        for flag in said {
            match flag {
                Flag::UpToDate => {}
                Flag::FastForward | Flag::New | Flag::Forced => moved = true,
                Flag::Rejected | Flag::Deleted => return Outcome::Recheck,
            }
        }
    }
    if moved { Outcome::Done } else { Outcome::AlreadyThere }
}

/// Of several refusals the one that says most about what to do.
fn weight(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::Policy => 0,
        Outcome::Diverged => 1,
        Outcome::Local => 2,
        Outcome::Unclear => 3,
        _ => 4,
    }
}

/// Why a ref was refused; nothing for one that only shared the fate of another.
fn refusal(line: &Line, stderr: &str) -> Option<Outcome> {
    let reason = line.reason.as_deref().unwrap_or_default();
    // The first is how this side calls it, the second how the other side does.
    if reason == "atomic push failed" || reason == "atomic push failure" {
        return None;
    }
    if reason.contains("unpacker error") && is_ours(stderr) {
        // Our side broke off in the middle of the pack.
        return Some(Outcome::Local);
    }
    if reason.contains("unpacker error") && UNWANTED.iter().any(|words| stderr.contains(words)) {
        return Some(Outcome::Policy);
    }
    let table = if line.summary.contains("[rejected]") { &REFUSED_HERE[..] } else { &REFUSED_THERE[..] };
    let fits = |words: &[&str]| words.iter().any(|word| reason.contains(word));
    let known = table.iter().find(|(words, _)| fits(words));
    // hook declined, protected branch, hidden ref, funny name, and what we do not know.
    Some(known.map_or(Outcome::Policy, |(_, outcome)| *outcome))
}

/// What the other side says of objects that it never takes. If it has no room, it may have some for others.
const UNWANTED: [&str; 2] = ["fsck error", "pack exceeds maximum allowed size"];

/// What this side refuses, because of what the other side has said about its refs.
const REFUSED_HERE: [(&[&str], Outcome); 3] = [
    (&["non-fast-forward", "fetch first"], Outcome::Diverged),
    (&["stale info", "remote ref updated since checkout"], Outcome::Recheck),
    // That is also what git says when it does not have the object.
    (&["needs force", "already exists"], Outcome::Local),
];

/// What the other side refuses. What it says about a ref is not about others: also not that it is denied.
const REFUSED_THERE: [(&[&str], Outcome); 5] = [
    (&["declined", "hidden ref", "protected"], Outcome::Policy),
    (&["non-fast-forward"], Outcome::Diverged),
    (
        // Somebody else is moving the ref, or did; or nobody knows.
        &[
            "lock",
            "expected",
            "atomic transaction failed",
            "incorrect old value",
            "already exists",
            "failed to update ref",
            "failed to write",
            "failed to report status",
        ],
        Outcome::Recheck,
    ),
    (
        // An object that it never takes, or no room for any.
        &[
            "unpacker error",
            "Internal Server Error",
            "internal error",
            "timeout",
            "temporar",
            "try again",
            "unavailable",
            "unable to migrate objects",
        ],
        Outcome::Unclear,
    ),
    (&["missing necessary objects", "bad pack", "inconsistent"], Outcome::Local),
];

/// Each list of words with what they mean; the first that fits counts. What is certain comes first: ssh says "access
/// rights" also when the connection broke.
const FAILURES: [(&[&str], Outcome); 6] = [
    (&BROKEN_OFF, Outcome::Unclear),
    (&CONNECTION, Outcome::Outage),
    (
        &[
            "does not support --atomic",
            "not allowed",
            "No such remote",
            "No configured push destination",
            "invalid refspec",
            "Unable to find remote helper",
            "is not a valid remote name",
            "remote error: service not enabled",
        ],
        Outcome::Config,
    ),
    (
        &[
            "Authentication failed",
            "could not read Username",
            "could not read Password",
            "error: 401",
            "error: 403",
            "error: 404",
            "ermission denied",
            "Permission to ",
            "Access denied",
            "access denied",
            "Host key verification failed",
            "epository not found",
            "/' not found",
            "Invalid username or",
            "Write access to repository not granted",
            "access rights",
        ],
        Outcome::Auth,
    ),
    (&["cannot lock ref", "Unable to create '", "reference already exists"], Outcome::Recheck),
    // Before anything was sent: servers that are down, rate limits, certificates.
    (&["unable to access '"], Outcome::Outage),
];

/// Words about objects of ours. A pack-objects that died may have been killed.
const LOCAL: [&str; 5] = ["bad object", "missing object", "is corrupt", "object file", "unable to read"];

/// Whether it is our side that complains about objects. What the other side says stands after `remote:`.
fn is_ours(stderr: &str) -> bool {
    let ours = stderr.lines().filter(|line| !line.starts_with("remote:") && !line.contains("askpass"));
    ours.into_iter().any(|line| LOCAL.iter().any(|words| line.contains(words)))
}

/// Words of connections that were not made.
const CONNECTION: [&str; 7] = [
    "Could not resolve host",
    "Connection refused",
    "Connection timed out",
    "Network is unreachable",
    "No route to host",
    "Temporary failure in name resolution",
    "does not appear to be a git repository",
];

/// Words of connections that broke while something was sent: HTTP answers to the pack itself (413, 500 and the like),
/// and ends without a word. Some servers do that with what is too large for them.
const BROKEN_OFF: [&str; 4] = ["RPC failed", "Connection reset", "Connection closed", "pack-objects died"];

/// Why git did not get as far as refs.
fn failure(stderr: &str) -> Outcome {
    if is_ours(stderr) {
        return Outcome::Local;
    }
    let fits = |words: &[&str]| words.iter().any(|word| stderr.contains(word));
    FAILURES.iter().find(|(words, _)| fits(words)).map_or(Outcome::Unclear, |(_, outcome)| *outcome)
}

/// What an error of another command than push means: the remote did not answer.
pub fn judge_error(error: &stargate_git::Error) -> Outcome {
    match error {
        stargate_git::Error::Failed { answer, .. } => match failure(&answer.stderr) {
            outcome @ (Outcome::Auth | Outcome::Config) => outcome,
            _ => Outcome::Outage,
        },
        stargate_git::Error::Start { .. } | stargate_git::Error::Invalid { .. } => Outcome::Config,
        _ => Outcome::Outage,
    }
}

fn status(line: &Line) -> String {
    match &line.reason {
        Some(reason) => format!("{} ({reason})", line.summary),
        None => line.summary.clone(),
    }
}

/// The most telling words of an answer: what was refused, else the end of what git said.
fn words(answer: &PushAnswer, outcome: Outcome) -> String {
    if matches!(outcome, Outcome::Done | Outcome::AlreadyThere) {
        return String::new();
    }
    let refused: Vec<String> = answer
        .lines
        .iter()
        .filter(|line| line.flag == Flag::Rejected)
        .map(|line| format!("{} {}", line.to, status(line)))
        .collect();
    let said: Vec<&str> = answer.stderr.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let said = said[said.len().saturating_sub(SAID_LINES_MAX)..].join("; ");
    match (refused.is_empty(), said.is_empty()) {
        (true, true) => format!("git push: {}", answer.end),
        (true, false) => format!("git push: {}: {said}", answer.end),
        (false, true) => refused.join("; "),
        (false, false) => format!("{}; {said}", refused.join("; ")),
    }
}

/// How many lines of what git said are kept in an error.
const SAID_LINES_MAX: usize = 12;

#[cfg(test)]
#[path = "classify_tests.rs"]
mod tests;
