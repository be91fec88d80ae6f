//! `pre-receive`: the last word before refs move. It refuses a push whole or lets it pass whole.

use std::io::Write;
use std::time::Duration;

use async_trait::async_trait;
use stargate_git::{Oid, RefPattern};

use super::{Context, RefUpdate, read_updates};
use crate::claim;

/// Refs that one push may move, unless the rules say otherwise.
pub const REFS_MAX: usize = 1000;
/// Where the mirror notes how far it is.
pub const WATERMARKS: &str = "refs/kv-mirror/*";
/// How long the hook may take, unless the rules say otherwise.
pub const TIME_MAX: Duration = Duration::from_secs(60);
/// Reasons that a refused push is told.
const REASONS_MAX: usize = 20;

/// What a push may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Refs that only move forward: what they point to afterwards descends from what they pointed to before.
    pub fast_forward_only: Vec<RefPattern>,
    /// Refs that are not deleted.
    pub no_delete: Vec<RefPattern>,
    /// Refs that nobody pushes: they are kept by ourselves. Not by git's `receive.hideRefs`, which takes the rest of an
    /// atomic push although it refuses one ref of it.
    pub reserved: Vec<RefPattern>,
    /// Refs that one push may move.
    pub refs_max: usize,
    /// How long the hook may take in all.
    pub time_max: Duration,
}

impl Rules {
    /// The same patterns for "only forward" and "not deleted": what is mirrored can do neither (INV-4). The mirror's own
    /// watermarks are reserved.
    pub fn protecting(patterns: Vec<RefPattern>) -> Self {
        Self {
            reserved: vec![RefPattern::parse(WATERMARKS).expect("the constant is a pattern")],
            no_delete: patterns.clone(),
            fast_forward_only: patterns,
            refs_max: REFS_MAX,
            time_max: TIME_MAX,
        }
    }
}

/// Answers whether one commit descends from another, new ones of this push included.
#[async_trait]
pub trait Ancestry: Send + Sync {
    /// Whether `old` is `new` or an ancestor of it; an error is a text for the pusher.
    async fn is_ancestor(&self, old: &Oid, new: &Oid) -> Result<bool, String>;
}

/// Answers whether this node leads, at this moment.
#[async_trait]
pub trait Leadership: Send + Sync {
    /// Asked right before refs move. `epoch` is that of the term in which the push was admitted.
    async fn standing(&self, epoch: Option<u64>) -> Standing;
}

/// Whether this node leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It does, and in the same term.
    Leads,
    /// It does not, or another term has begun.
    NotLeader {
        /// The address of the leader, if it is known.
        leader: Option<String>,
    },
    /// Nobody can say; then it counts as not leading.
    Unknown {
        /// Why, without secrets.
        problem: String,
    },
}

/// What becomes of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Refs move.
    Accepted,
    /// Against the rules.
    Refused(Vec<String>),
    /// Another node takes pushes.
    NotLeader(String),
    /// It could not be decided.
    Failed(String),
}

impl Verdict {
    /// The exit code of the hook.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Accepted => 0,
            Self::Refused(_) => 1,
            Self::Failed(_) => 5,
            Self::NotLeader(_) => 9,
        }
    }

    /// What the pusher is told, a line each.
    pub fn lines(&self) -> Vec<String> {
        match self {
            Self::Accepted => Vec::new(),
            Self::Refused(reasons) => {
                let mut lines: Vec<String> = reasons
                    .iter()
                    .take(REASONS_MAX)
                    .map(|reason| format!("stargate: refused: {reason}"))
                    .collect();
                if reasons.len() > REASONS_MAX {
                    lines.push(format!("stargate: refused: … and {} more", reasons.len() - REASONS_MAX));
                }
                lines
            }
            Self::NotLeader(text) => vec![format!("stargate: not leader: {text}")],
            Self::Failed(text) => vec![format!("stargate: the push could not be checked: {text}")],
        }
    }
}

/// Runs the hook: reads the refs, decides, tells the pusher, and gives the exit code.
pub async fn run(
    input: impl std::io::BufRead,
    mut pusher: impl Write,
    context: &Context,
    rules: &Rules,
    ancestry: &dyn Ancestry,
    leadership: &dyn Leadership,
) -> u8 {
    let verdict = match read_updates(input, rules.refs_max) {
        Err(error) => Verdict::Refused(vec![error.to_string()]),
        Ok(updates) => {
            let judged = judge(&updates, context, rules, ancestry, leadership);
            match tokio::time::timeout(rules.time_max, judged).await {
                Ok(verdict) => verdict,
                Err(_) => Verdict::Failed(format!("it took longer than {:?}", rules.time_max)),
            }
        }
    };
    for line in verdict.lines() {
        // A pusher that hears nothing is still refused.
        let _ = writeln!(pusher, "{line}");
    }
    verdict.exit_code()
}

async fn judge(
    updates: &[RefUpdate],
    context: &Context,
    rules: &Rules,
    ancestry: &dyn Ancestry,
    leadership: &dyn Leadership,
) -> Verdict {
    let mut reasons = trespasses(updates, rules);
    reasons.extend(deletions(updates, rules));
    for update in moves(updates, rules) {
        match ancestry.is_ancestor(&update.old, &update.new).await {
            Ok(true) => {}
            Ok(false) => reasons.push(format!("{} moves forward only; fetch and merge first", update.name)),
            Err(problem) => return Verdict::Failed(problem),
        }
    }
    if !reasons.is_empty() {
        return Verdict::Refused(reasons);
    }
    // Last, because it is true for the shortest time.
    match leadership.standing(context.epoch).await {
        Standing::Leads => {}
        Standing::NotLeader { leader: Some(leader) } => {
            return Verdict::NotLeader(format!("push to {leader}"));
        }
        Standing::NotLeader { leader: None } => {
            return Verdict::NotLeader("no leader is known; try again in a moment".to_owned());
        }
        Standing::Unknown { problem } => return Verdict::Failed(problem),
    }
    // From here on the gateway lets the push finish, even if its client goes.
    match context.claim.as_deref().map(claim::go_on) {
        None | Some(Ok(true)) => Verdict::Accepted,
        Some(Ok(false)) => Verdict::Refused(vec!["the client has gone".to_owned()]),
        Some(Err(error)) => Verdict::Failed(format!("the gateway's claim cannot be taken: {error}")),
    }
}

fn trespasses(updates: &[RefUpdate], rules: &Rules) -> Vec<String> {
    let forbidden = updates.iter().filter(|update| is_any(&rules.reserved, update));
    forbidden
        .map(|update| format!("{} is moved by the mirror alone (git.take_watermarks)", update.name))
        .collect()
}

fn deletions(updates: &[RefUpdate], rules: &Rules) -> Vec<String> {
    let forbidden = updates.iter().filter(|update| update.is_delete() && is_any(&rules.no_delete, update));
    forbidden.map(|update| format!("{} may not be deleted", update.name)).collect()
}

/// The updates that must be shown to go forward.
fn moves<'a>(updates: &'a [RefUpdate], rules: &'a Rules) -> impl Iterator<Item = &'a RefUpdate> {
    let is_move = |update: &&RefUpdate| !update.is_create() && !update.is_delete();
    updates.iter().filter(is_move).filter(|update| is_any(&rules.fast_forward_only, update))
}

fn is_any(patterns: &[RefPattern], update: &RefUpdate) -> bool {
    patterns.iter().any(|pattern| pattern.matches(&update.name))
}

#[cfg(test)]
mod tests {
    use super::super::test_updates::update;
    use super::*;

    /// Ids descend from smaller ones; `f` cannot be read.
    struct Alphabet;

    #[async_trait]
    impl Ancestry for Alphabet {
        async fn is_ancestor(&self, old: &Oid, new: &Oid) -> Result<bool, String> {
            if new.as_str().starts_with('f') {
                Err("unreadable".into())
            } else {
                Ok(old.as_str() <= new.as_str())
            }
        }
    }

    #[async_trait]
    impl Leadership for Standing {
        async fn standing(&self, _: Option<u64>) -> Standing {
            self.clone()
        }
    }

    fn rules() -> Rules {
        Rules::protecting(vec![RefPattern::parse("refs/kv/*").unwrap()])
    }

    async fn verdict(updates: &[RefUpdate], standing: Standing) -> Verdict {
        judge(updates, &Context::default(), &rules(), &Alphabet, &standing).await
    }

    #[tokio::test]
    async fn protected_refs_move_forward_only_and_stay() {
        let leads = || Standing::Leads;
        let accepted = [
            update('0', 'a', "refs/kv/x"),
            update('a', 'b', "refs/kv/x"),
            update('b', 'a', "refs/heads/x"),
            update('b', '0', "refs/heads/x"),
        ];
        assert_eq!(verdict(&accepted, leads()).await, Verdict::Accepted);
        for (refused, reason) in [
            (update('b', 'a', "refs/kv/x"), "forward only"),
            (update('b', '0', "refs/kv/a/b"), "may not be deleted"),
            (update('0', 'a', "refs/kv-mirror/main"), "by the mirror alone"),
        ] {
            let answer = verdict(&[accepted[0].clone(), refused], leads()).await;
            assert!(matches!(&answer, Verdict::Refused(why) if why[0].contains(reason)), "{answer:?}");
            assert_eq!(answer.exit_code(), 1);
        }
    }

    #[tokio::test]
    async fn only_the_leader_takes_pushes_and_doubt_counts_as_no() {
        let updates = [update('0', 'a', "refs/kv/x")];
        let elsewhere = Standing::NotLeader { leader: Some("http://b".into()) };
        let answer = verdict(&updates, elsewhere).await;
        assert_eq!((answer.exit_code(), answer.lines()[0].contains("http://b")), (9, true));
        assert_eq!(verdict(&updates, Standing::NotLeader { leader: None }).await.exit_code(), 9);
        assert_eq!(verdict(&updates, Standing::Unknown { problem: "x".into() }).await.exit_code(), 5);
        assert_eq!(verdict(&[update('a', 'f', "refs/kv/x")], Standing::Leads).await.exit_code(), 5);
    }

    #[tokio::test]
    async fn a_push_whose_client_has_gone_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let claim = claim::Claim::create(dir.path()).unwrap();
        let context = Context { claim: Some(claim.path().to_owned()), ..Context::default() };
        let updates = [update('0', 'a', "refs/heads/x")];
        let rules = rules();
        let judge = || judge(&updates, &context, &rules, &Alphabet, &Standing::Leads);
        assert_eq!(judge().await, Verdict::Accepted);
        assert!(!claim.revoke(), "the gateway could still kill it");
        assert!(matches!(judge().await, Verdict::Refused(_)));
    }

    #[tokio::test]
    async fn a_refused_push_does_not_pass_the_point_of_no_return() {
        let dir = tempfile::tempdir().unwrap();
        let claim = claim::Claim::create(dir.path()).unwrap();
        let context = Context { claim: Some(claim.path().to_owned()), ..Context::default() };
        let updates = [update('b', 'a', "refs/kv/x")];
        let answer = judge(&updates, &context, &rules(), &Alphabet, &Standing::Leads).await;
        assert!(matches!(answer, Verdict::Refused(_)));
        assert!(claim.revoke());
    }

    #[tokio::test(start_paused = true)]
    async fn a_check_that_does_not_end_refuses_the_push() {
        struct Never;
        #[async_trait]
        impl Leadership for Never {
            async fn standing(&self, _: Option<u64>) -> Standing {
                std::future::pending().await
            }
        }
        let input = format!("{} {} refs/heads/x\n", "0".repeat(40), "a".repeat(40));
        let mut told = Vec::new();
        let context = Context::default();
        let code = run(input.as_bytes(), &mut told, &context, &rules(), &Alphabet, &Never).await;
        assert_eq!(code, 5);
        assert!(String::from_utf8(told).unwrap().contains("longer than"));
    }

    #[test]
    fn a_pusher_is_not_told_a_thousand_reasons() {
        let many = Verdict::Refused(vec!["x".into(); 1000]);
        assert_eq!(many.lines().len(), REASONS_MAX + 1);
    }
}
