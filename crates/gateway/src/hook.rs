//! The hooks of a push, as functions: `stargate hook pre-receive` and `post-receive` only hand in what they need.
//!
//! git starts a hook as a process of its own, with the list of refs on its input. Who pushes, through which request
//! and in which term it learns from environment variables that the gateway (or `ssh-dispatch`) has set on
//! receive-pack, which passes them on. Nothing else of our environment gets there.
//!
//! | hook | does | if it dies |
//! | --- | --- | --- |
//! | `pre-receive` | asks the rules, who leads, and whether the client is still there | no ref moves |
//! | `post-receive` | journal first, then the store | refs have moved; reconcile finds what is missing |

mod ancestry;
pub mod post_receive;
pub mod pre_receive;

use std::ffi::OsString;
use std::io::{self, BufRead, Read as _};
use std::path::{Path, PathBuf};

use stargate_git::{Oid, RefName};

pub use self::ancestry::RepoAncestry;
pub use self::post_receive::{Journaling, PushRecord, PushSink, SinkError};
pub use self::pre_receive::{Ancestry, Leadership, Rules, Standing, Verdict};
use crate::error::{Error, Result};
use crate::gate::Admission;
use crate::name::RepoName;

/// The name of the repository.
pub const REPO: &str = "STARGATE_REPO";
/// Who pushes.
pub const PUSHER: &str = "STARGATE_PUSHER";
/// The request with which the push came, as the log names it.
pub const REQUEST_ID: &str = "STARGATE_REQUEST_ID";
/// The epoch of the term in which the push was admitted.
pub const EPOCH: &str = "STARGATE_EPOCH";
/// The file by which hook and gateway agree whether the push goes on (see `claim.rs`).
pub const CLAIM: &str = "STARGATE_PUSH_CLAIM";

/// How git tells a hook where the objects of a push are that is not accepted yet. A hook that starts git itself must
/// pass these on, or the new objects are not found.
pub const QUARANTINE: [&str; 2] = ["GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES"];

/// What hooks are told begins so.
const OURS: &str = "STARGATE_";
/// Bytes of the pusher's name that hooks are told: no more than the store takes.
const PUSHER_BYTES_MAX: usize = 200;
/// Bytes of one line of a hook's input at most: two ids, a ref, two spaces, a line feed.
const LINE_BYTES_MAX: u64 = 2048;

/// What a hook knows about the push.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Context {
    /// The name of the repository.
    pub repo: Option<String>,
    /// Who pushes.
    pub pusher: Option<String>,
    /// The request with which the push came.
    pub request_id: Option<String>,
    /// The epoch of the term in which it was admitted.
    pub epoch: Option<u64>,
    /// The file by which hook and gateway agree; none for a push that did not come through the gateway.
    pub claim: Option<PathBuf>,
    /// The variables of [`QUARANTINE`] that are set.
    pub quarantine: Vec<(String, OsString)>,
}

impl Context {
    /// Reads the variables; the caller passes its environment, libraries do not look at it.
    pub fn read(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let text =
            |name| variable(name).and_then(|value| value.into_string().ok()).filter(|text| !text.is_empty());
        Self {
            repo: text(REPO),
            pusher: text(PUSHER),
            request_id: text(REQUEST_ID),
            epoch: text(EPOCH).and_then(|epoch| epoch.parse().ok()),
            claim: variable(CLAIM).filter(|path| !path.is_empty()).map(PathBuf::from),
            quarantine: QUARANTINE
                .iter()
                .filter_map(|name| variable(name).map(|value| ((*name).to_owned(), value)))
                .collect(),
        }
    }
}

/// What the hooks of a push find in their environment: what the binary tells all of them, and what this push is.
pub(crate) fn environment(
    told: &[(OsString, OsString)],
    repo: &RepoName,
    admission: &Admission,
    request_id: &str,
    claim: Option<&Path>,
) -> Vec<(OsString, OsString)> {
    let mut env = told.to_vec();
    env.push((REPO.into(), repo.as_str().into()));
    env.push((REQUEST_ID.into(), request_id.into()));
    if let Some(claim) = claim {
        env.push((CLAIM.into(), claim.into()));
    }
    if let Some(pusher) = &admission.pusher {
        env.push((PUSHER.into(), plain(pusher).into()));
    }
    if let Some(epoch) = admission.epoch {
        env.push((EPOCH.into(), epoch.to_string().into()));
    }
    env
}

/// Refuses names that could mean something to git or to the shell of a hook.
pub(crate) fn check_environment(told: &[(OsString, OsString)]) -> Result<()> {
    let is_ours = |name: &OsString| name.to_str().is_some_and(|name| name.starts_with(OURS));
    match told.iter().find(|(name, _)| !is_ours(name)) {
        None => Ok(()),
        Some((name, _)) => {
            let problem = format!("has {name:?}; its names begin with {OURS}");
            Err(Error::Setting { setting: "hook environment", problem })
        }
    }
}

/// A name as it may stand in an environment variable and a log: without control characters, and not too long.
fn plain(text: &str) -> String {
    let mut plain: String = text.chars().filter(|c| !c.is_control()).take(PUSHER_BYTES_MAX).collect();
    plain.truncate(plain.floor_char_boundary(PUSHER_BYTES_MAX));
    plain
}

/// One ref that a push moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefUpdate {
    /// Where it was; all zeros if it is new.
    pub old: Oid,
    /// Where it goes; all zeros if it is deleted.
    pub new: Oid,
    /// The ref.
    pub name: RefName,
}

impl RefUpdate {
    /// Whether the ref is made.
    pub fn is_create(&self) -> bool {
        self.old.is_zero()
    }

    /// Whether the ref is removed.
    pub fn is_delete(&self) -> bool {
        self.new.is_zero()
    }
}

/// Why the list of refs could not be read.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// More refs than one push may move.
    #[error("more than {max} refs in one push; push them in several")]
    TooMany {
        /// The limit.
        max: usize,
    },
    /// Not `old new ref`.
    #[error("cannot understand the line {line:?}: {problem}")]
    Line {
        /// The line, cut off.
        line: String,
        /// What is wrong.
        problem: String,
    },
    /// The input broke.
    #[error("cannot read the list of refs")]
    Read(#[from] io::Error),
}

/// Reads what git writes to a hook: `old new ref` lines, at most `refs_max` of them.
pub fn read_updates(mut input: impl BufRead, refs_max: usize) -> Result<Vec<RefUpdate>, InputError> {
    let mut updates = Vec::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
            return Ok(updates);
        }
        if updates.len() == refs_max {
            return Err(InputError::TooMany { max: refs_max });
        }
        updates.push(read_update(&line)?);
    }
}

fn read_update(line: &[u8]) -> Result<RefUpdate, InputError> {
    let bad = |problem: String| {
        let line = String::from_utf8_lossy(line).chars().take(200).collect();
        InputError::Line { line, problem }
    };
    let text = line.strip_suffix(b"\n").ok_or_else(|| bad("it has no end".to_owned()))?;
    let text = std::str::from_utf8(text).map_err(|_| bad("it is not UTF-8".to_owned()))?;
    let mut parts = text.splitn(3, ' ');
    let (Some(old), Some(new), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(bad("it does not have three parts".to_owned()));
    };
    Ok(RefUpdate {
        old: Oid::parse(old).map_err(|error| bad(error.to_string()))?,
        new: Oid::parse(new).map_err(|error| bad(error.to_string()))?,
        name: RefName::parse(name).map_err(|error| bad(error.to_string()))?,
    })
}

#[cfg(test)]
pub(crate) mod test_updates {
    use super::*;

    /// An update of `refs/…`; ids are written as one digit, `0` for none.
    pub(crate) fn update(old: char, new: char, name: &str) -> RefUpdate {
        let oid = |digit: char| Oid::parse(&digit.to_string().repeat(40)).unwrap();
        RefUpdate { old: oid(old), new: oid(new), name: RefName::parse(name).unwrap() }
    }
}

#[cfg(test)]
mod tests {
    use super::test_updates::update;
    use super::*;

    fn line(old: char, new: char, name: &str) -> String {
        format!("{} {} {name}\n", old.to_string().repeat(40), new.to_string().repeat(40))
    }

    #[test]
    fn lines_become_updates() {
        let input = line('0', 'a', "refs/heads/main") + &line('a', '0', "refs/kv/x");
        let updates = read_updates(input.as_bytes(), 2).unwrap();
        assert_eq!(updates, [update('0', 'a', "refs/heads/main"), update('a', '0', "refs/kv/x")]);
        assert!(updates[0].is_create() && updates[1].is_delete());
        assert!(matches!(read_updates(input.as_bytes(), 1), Err(InputError::TooMany { max: 1 })));
        assert_eq!(read_updates(&b""[..], 1).unwrap(), []);
    }

    #[test]
    fn lines_of_any_other_form_are_refused() {
        let whole = line('0', 'a', "refs/heads/main");
        let endless = vec![b'a'; 1 << 20];
        for bad in [
            &b"\n"[..],
            b"a b c\n",
            b"\xff\xfe\n",
            whole.trim_end().as_bytes(),
            line('0', 'a', "refs/heads/../x").as_bytes(),
            line('0', 'a', "--all").as_bytes(),
            &endless,
        ] {
            let answer = read_updates(bad, 10);
            assert!(matches!(answer, Err(InputError::Line { .. })), "{answer:?}");
        }
    }

    #[test]
    fn what_a_hook_is_told_it_reads_again() {
        let admission = Admission { pusher: Some("A\nB\0".into()), epoch: Some(7), hold: None };
        let repo = RepoName::parse("team/tools").unwrap();
        let told = [("STARGATE_HOME".into(), "/h".into())];
        check_environment(&told).unwrap();
        let env = environment(&told, &repo, &admission, "r", Some(Path::new("/c")));
        let context =
            Context::read(|name| env.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone()));
        assert_eq!(context.repo.as_deref(), Some("team/tools"));
        assert_eq!((context.pusher.as_deref(), context.epoch), (Some("AB"), Some(7)));
        assert_eq!((context.request_id.as_deref(), context.claim), (Some("r"), Some("/c".into())));
        assert!(env.contains(&told[0]));
        assert!(check_environment(&[("LD_PRELOAD".into(), "x".into())]).is_err());
    }

    #[test]
    fn a_long_name_is_cut_where_the_store_would_refuse_it() {
        assert_eq!(plain(&"a".repeat(300)), "a".repeat(200));
        assert_eq!(plain(&"é".repeat(200)), "é".repeat(100));
        assert_eq!(plain(&format!("a{}", "é".repeat(200))), format!("a{}", "é".repeat(99)));
    }

    #[test]
    fn the_context_is_read_from_the_variables_that_are_set() {
        let context = Context::read(|name| match name {
            REPO => Some("team/tools".into()),
            EPOCH => Some("7".into()),
            PUSHER => Some("".into()),
            "GIT_OBJECT_DIRECTORY" => Some("/q".into()),
            _ => None,
        });
        assert_eq!(
            (context.repo.as_deref(), context.epoch, context.pusher),
            (Some("team/tools"), Some(7), None)
        );
        assert_eq!(context.quarantine, [("GIT_OBJECT_DIRECTORY".to_owned(), "/q".into())]);
        assert_eq!(Context::read(|_| None), Context::default());
    }
}
