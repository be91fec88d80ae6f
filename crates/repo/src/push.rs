//! Pushes as hooks report them, and the event each of their refs becomes.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stargate_base::Epoch;
use stargate_queue::{Error, Result};

use crate::repository::check_name;

/// Refs that one push may move.
pub const REFS_MAX: usize = 10_000;
/// How long the name of a ref may be.
pub const REF_BYTES_MAX: usize = 1024;
/// How long the number of a receive, and the name of a pusher, may be.
pub const LABEL_BYTES_MAX: usize = 200;

stargate_queue::id! {
    /// Names one ref of one push.
    PushEventId
}

/// A ref that a push moved. git writes an oid of zeros for "was not there" and "is gone".
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RefUpdate {
    /// The whole name, `refs/heads/main`.
    pub ref_name: String,
    /// Where it was.
    pub old_oid: String,
    /// Where it is.
    pub new_oid: String,
}

impl RefUpdate {
    /// Whether the ref was not there before.
    pub fn creates(&self) -> bool {
        is_zero(&self.old_oid)
    }

    /// Whether the ref is gone.
    pub fn deletes(&self) -> bool {
        is_zero(&self.new_oid)
    }

    fn check(&self) -> Result<()> {
        check_ref("ref", &self.ref_name)?;
        check_oid("old_oid", &self.old_oid)?;
        check_oid("new_oid", &self.new_oid)
    }
}

/// Whether git means "nothing" by this oid.
pub fn is_zero(oid: &str) -> bool {
    oid.bytes().all(|b| b == b'0')
}

/// A push that git has accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewPush {
    /// The repository's name, without `.git`.
    pub repo: String,
    /// Who pushed, if that is known.
    pub pusher: Option<String>,
    /// Names this receive: the same push reported again carries the same one, another push another.
    pub request_id: String,
    /// The epoch under which the push was admitted; none where there is no leadership.
    pub epoch: Option<Epoch>,
    /// What HEAD of the repository points to, if the reporter looked.
    pub default_branch: Option<String>,
    /// The refs it moved.
    pub updates: Vec<RefUpdate>,
    /// When it was received, by the receiver's clock. Shown, never compared.
    pub at: Timestamp,
    /// W3C trace context of the push, handed to the jobs.
    pub trace_id: Option<String>,
}

impl NewPush {
    /// Checks everything that can be checked without the store.
    pub fn check(&self) -> Result<()> {
        check_name(&self.repo)?;
        check_label("request_id", &self.request_id)?;
        if let Some(pusher) = &self.pusher {
            check_label("pusher", pusher)?;
        }
        if let Some(branch) = &self.default_branch {
            check_ref("default_branch", branch)?;
        }
        if !(1..=REFS_MAX).contains(&self.updates.len()) {
            let problem = format!("are {}; allowed are 1 to {REFS_MAX}", self.updates.len());
            return Err(Error::invalid("updates", problem));
        }
        self.updates.iter().try_for_each(RefUpdate::check)
    }
}

/// One ref of one push, as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushEvent {
    /// Its number.
    pub id: PushEventId,
    /// The repository.
    pub repo: String,
    /// What moved.
    pub update: RefUpdate,
    /// Who pushed, if that is known.
    pub pusher: Option<String>,
    /// Names the receive.
    pub request_id: String,
    /// The epoch under which it was admitted.
    pub epoch: Option<Epoch>,
    /// When it was received, by the receiver's clock.
    pub received_at: Timestamp,
    /// When it was recorded.
    pub created_at: Timestamp,
    /// When its follow-ups were written, if they were.
    pub processed_at: Option<Timestamp>,
}

/// Refuses what git would not take for the whole name of a ref. What matters here is that it can be kept and shown.
pub fn check_ref(field: &'static str, name: &str) -> Result<()> {
    let odd = |c: char| c.is_control() || " ~^:?*[\\".contains(c);
    let bad = !name.starts_with("refs/")
        || name.len() > REF_BYTES_MAX
        || name.contains("..")
        || name.contains("@{")
        || name.ends_with('.')
        || name.chars().any(odd)
        || name.split('/').any(|part| part.is_empty() || part.starts_with('.') || part.ends_with(".lock"));
    if bad {
        let shown: String = name.chars().take(80).collect();
        let problem = format!("{shown:?} is not the whole name of a ref, such as refs/heads/main");
        return Err(Error::invalid(field, problem));
    }
    Ok(())
}

fn check_oid(field: &'static str, oid: &str) -> Result<()> {
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if matches!(oid.len(), 40 | 64) && oid.bytes().all(hex) {
        return Ok(());
    }
    Err(Error::invalid(field, "is not an object id: 40 or 64 lower case hex digits"))
}

fn check_label(field: &'static str, text: &str) -> Result<()> {
    if !(1..=LABEL_BYTES_MAX).contains(&text.len()) || text.chars().any(char::is_control) {
        let problem = format!("is to have 1 to {LABEL_BYTES_MAX} bytes without control characters");
        return Err(Error::invalid(field, problem));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push() -> NewPush {
        NewPush {
            repo: "team/app".into(),
            pusher: Some("ann".into()),
            request_id: "r1".into(),
            epoch: None,
            default_branch: None,
            updates: vec![RefUpdate {
                ref_name: "refs/heads/main".into(),
                old_oid: "0".repeat(40),
                new_oid: "a".repeat(40),
            }],
            at: Timestamp::UNIX_EPOCH,
            trace_id: None,
        }
    }

    #[test]
    fn a_good_push_is_accepted_with_short_and_long_oids() {
        push().check().unwrap();
        let mut long = push();
        long.updates[0].old_oid = "0".repeat(64);
        long.updates[0].new_oid = "ab".repeat(32);
        long.check().unwrap();
        assert!(long.updates[0].creates() && !long.updates[0].deletes());
    }

    #[test]
    fn each_bad_field_is_refused_by_name() {
        type Change = fn(&mut NewPush);
        let refused = |change: Change| {
            let mut bad = push();
            change(&mut bad);
            bad.check().unwrap_err().to_string()
        };
        let cases: [(&str, Change); 16] = [
            ("repo", |p| p.repo = "../etc".into()),
            ("request_id", |p| p.request_id.clear()),
            ("request_id", |p| p.request_id = "x".repeat(LABEL_BYTES_MAX + 1)),
            ("pusher", |p| p.pusher = Some("a\nb".into())),
            ("default_branch", |p| p.default_branch = Some("main".into())),
            ("updates", |p| p.updates.clear()),
            ("updates", |p| p.updates = vec![p.updates[0].clone(); REFS_MAX + 1]),
            ("ref", |p| p.updates[0].ref_name = "HEAD".into()),
            ("ref", |p| p.updates[0].ref_name = "refs/heads/../x".into()),
            ("ref", |p| p.updates[0].ref_name = "refs/heads/a b".into()),
            ("ref", |p| p.updates[0].ref_name = "refs/heads/a\0".into()),
            ("ref", |p| p.updates[0].ref_name = "refs//a".into()),
            ("ref", |p| p.updates[0].ref_name = "refs/heads/x.lock".into()),
            ("ref", |p| p.updates[0].ref_name = format!("refs/{}", "x".repeat(REF_BYTES_MAX))),
            ("old_oid", |p| p.updates[0].old_oid = "A".repeat(40)),
            ("new_oid", |p| p.updates[0].new_oid = "a".repeat(39)),
        ];
        for (field, change) in cases {
            let message = refused(change);
            assert!(message.starts_with(&format!("{field} ")), "{field}: {message}");
            assert!(message.len() < 300, "{message}");
        }
    }
}
