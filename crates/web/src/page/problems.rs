//! What needs somebody, worst first. Pure: it decides from what the API told.

use super::html::{self, count, counted, encode};
use crate::api::types::directives::Directives;
use crate::api::types::failures::{Activity, FailureGroup};
use crate::api::types::leader::Leader;
use crate::api::types::mirror::Mirror;
use crate::api::types::{Kind, Queue, Stats, Worker};

/// Waiting for longer than this is worth a word, for longer than that wakes somebody.
const WAIT_WARN_SEC: f64 = 60.0;
const WAIT_BAD_SEC: f64 = 600.0;
/// The same for a mirror.
const LAG_WARN_SEC: f64 = 60.0;

/// How much it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Somebody should act.
    Bad,
    /// Somebody should know.
    Warn,
}

impl Level {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Bad => "bad",
            Self::Warn => "warn",
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Bad => "Problem",
            Self::Warn => "Notice",
        }
    }
}

/// Where to go about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) path: String,
    pub(crate) text: &'static str,
}

/// Something that needs somebody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) level: Level,
    pub(crate) text: String,
    pub(crate) more: Option<String>,
    pub(crate) link: Option<Link>,
}

impl Problem {
    fn new(level: Level, text: impl Into<String>) -> Self {
        Self { level, text: text.into(), more: None, link: None }
    }

    fn more(mut self, more: impl Into<String>) -> Self {
        self.more = Some(more.into());
        self
    }

    fn at(mut self, path: impl Into<String>, text: &'static str) -> Self {
        self.link = Some(Link { path: path.into(), text });
        self
    }
}

/// What is known; what could not be asked is absent.
#[derive(Debug, Default)]
pub(crate) struct Known<'a> {
    pub(crate) stats: Option<&'a Stats>,
    pub(crate) queues: &'a [Queue],
    pub(crate) kinds: &'a [Kind],
    pub(crate) workers: &'a [Worker],
    pub(crate) activity: Option<&'a Activity>,
    pub(crate) failures: &'a [FailureGroup],
    pub(crate) mirrors: &'a [Mirror],
    pub(crate) leader: Option<&'a Leader>,
    pub(crate) directives: Option<&'a Directives>,
}

/// What needs somebody, worst first.
pub(crate) fn find(known: &Known<'_>) -> Vec<Problem> {
    let mut found = Vec::new();
    workers(known, &mut found);
    waiting(known, &mut found);
    failing(known, &mut found);
    pauses(known, &mut found);
    for mirror in known.mirrors {
        mirrored(mirror, &mut found);
    }
    if let Some(leader) = known.leader {
        leading(leader, &mut found);
    }
    if let Some(directives) = known.directives {
        for directive in directives.directives.iter().filter(|directive| directive.problem.is_some()) {
            let text = format!("The directive {} cannot be read", directive.name);
            let link = format!("/directives/{}", encode(&directive.name));
            let problem = Problem::new(Level::Bad, text).more(directive.problem.clone().unwrap_or_default());
            found.push(problem.at(link, "Look"));
        }
    }
    // Stable: what is found first stays first among its likes.
    found.sort_by_key(|problem| problem.level);
    found
}

fn workers(known: &Known<'_>, found: &mut Vec<Problem>) {
    let Some(stats) = known.stats else { return };
    let waiting = stats.jobs.ready + stats.jobs.delayed;
    if stats.workers_alive == 0 {
        let level = if waiting > 0 { Level::Bad } else { Level::Warn };
        let text = if waiting > 0 {
            format!("No worker is alive, and {} wait", counted(waiting, "job", "jobs"))
        } else {
            "No worker is alive".to_owned()
        };
        found.push(Problem::new(level, text).more("Start one: stargate worker").at("/workers", "Workers"));
    }
    let lost: Vec<&Worker> =
        known.workers.iter().filter(|worker| !worker.alive && worker.holding > 0).collect();
    if let Some(first) = lost.first() {
        let holding: u64 = lost.iter().map(|worker| worker.holding).sum();
        let text = format!(
            "{} silent with {}",
            counted(lost.len(), "worker is", "workers are"),
            counted(holding, "job", "jobs")
        );
        let more = format!("{} was heard of last {}", first.name, html::instant(&first.beat_at));
        found.push(Problem::new(Level::Bad, text).more(more).at("/workers", "Workers"));
    }
}

fn waiting(known: &Known<'_>, found: &mut Vec<Problem>) {
    let Some(stats) = known.stats else { return };
    let Some(oldest) = stats.oldest_ready_sec.filter(|seconds| *seconds >= WAIT_WARN_SEC) else { return };
    let level = if oldest >= WAIT_BAD_SEC { Level::Bad } else { Level::Warn };
    let text = format!("The oldest job that could run has waited {}", html::span(oldest));
    let busy = stats.capacity > 0 && stats.jobs.processing >= stats.capacity as u64;
    let more = match busy {
        true => format!("All {} are taken", counted(stats.capacity, "slot", "slots")),
        false => format!("{} ready", count(stats.jobs.ready)),
    };
    found.push(Problem::new(level, text).more(more).at("/jobs?state=queued", "Look"));
}

fn failing(known: &Known<'_>, found: &mut Vec<Problem>) {
    let Some(activity) = known.activity else { return };
    let failed: u64 = activity.buckets.iter().map(|bucket| bucket.failed).sum();
    if failed == 0 {
        return;
    }
    let done: u64 = activity.buckets.iter().map(|bucket| bucket.done).sum();
    let window = match activity.window_sec {
        3600.0 => "hour".to_owned(),
        seconds => html::span(seconds),
    };
    let text = format!("{} in the last {window}", counted(failed, "job failed", "jobs failed"));
    // One in ten of all that ended is more than bad luck.
    let level = if failed * 10 >= failed + done { Level::Bad } else { Level::Warn };
    let mut problem = Problem::new(level, text).at("/dead-letters", "By cause");
    if let Some(group) = known.failures.first() {
        problem = problem.more(format!("Most often {} in {}", group.code, group.kind));
    }
    found.push(problem);
}

fn pauses(known: &Known<'_>, found: &mut Vec<Problem>) {
    for queue in known.queues.iter().filter(|queue| queue.paused) {
        let text = format!(
            "The queue {} is paused, {} in it",
            queue.queue,
            counted(queue.ready, "job waits", "jobs wait")
        );
        found.push(Problem::new(Level::Warn, text).at("/queues", "Resume"));
    }
    for kind in known.kinds.iter().filter(|kind| kind.paused) {
        found.push(
            Problem::new(Level::Warn, format!("The kind {} is paused", kind.kind)).at("/queues", "Resume"),
        );
    }
}

fn mirrored(mirror: &Mirror, found: &mut Vec<Problem>) {
    let link = format!("/mirror/{}", encode(&mirror.repo));
    if matches!(mirror.breaker.as_deref(), Some("open" | "probing")) {
        let text = format!(
            "The mirror of {} is away, {}",
            mirror.repo,
            counted(mirror.backlog, "entry waits", "entries wait")
        );
        let more = mirror.error.clone().unwrap_or_default();
        found.push(Problem::new(Level::Bad, text).more(more).at(link.clone(), "Look"));
    } else if mirror.lag_seconds >= LAG_WARN_SEC {
        let text = format!("The mirror of {} is {} behind", mirror.repo, html::span(mirror.lag_seconds));
        found.push(Problem::new(Level::Warn, text).at(link.clone(), "Look"));
    }
    if mirror.dead_letters > 0 || !mirror.parked.is_empty() {
        let letters = counted(mirror.dead_letters, "dead letter", "dead letters");
        let text = format!("The mirror of {} gave up: {letters}", mirror.repo);
        let more = match mirror.parked.len() {
            0 => String::new(),
            parked => format!("{} parked", counted(parked, "ref is", "refs are")),
        };
        found.push(Problem::new(Level::Warn, text).more(more).at(link, "Look"));
    }
}

fn leading(leader: &Leader, found: &mut Vec<Problem>) {
    if let Some((earlier, later)) = leader.overlaps.first() {
        let text = format!("The terms {earlier} and {later} overlap: two nodes led at once");
        found.push(Problem::new(Level::Bad, text).at("/leadership", "Look"));
    }
    if leader.role.is_some() && leader.leader.is_none() {
        let text = "Nobody leads: changes are refused until somebody does";
        let more = leader.trouble.clone().unwrap_or_default();
        found.push(Problem::new(Level::Bad, text).more(more).at("/leadership", "Look"));
    } else if let Some(trouble) = &leader.trouble {
        let problem = Problem::new(Level::Warn, "The leader lock makes trouble").more(trouble.clone());
        found.push(problem.at("/leadership", "Look"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::types::JobCounts;

    fn stats(ready: u64, oldest: Option<f64>, workers_alive: usize) -> Stats {
        Stats {
            instance: "a".into(),
            version: "0".into(),
            store: "sqlite".into(),
            wake: "poll".into(),
            now: jiff::Timestamp::UNIX_EPOCH,
            jobs: JobCounts { ready, ..JobCounts::default() },
            oldest_ready_sec: oldest,
            workers_alive,
            capacity: 4,
        }
    }

    #[test]
    fn a_well_node_has_no_problems() {
        let stats = stats(3, Some(2.0), 1);
        assert_eq!(find(&Known { stats: Some(&stats), ..Known::default() }), []);
    }

    #[test]
    fn the_worst_comes_first() {
        let stats = stats(3, Some(61.0), 0);
        let paused = Queue {
            queue: "q".into(),
            paused: true,
            ready: 1,
            delayed: 0,
            blocked: 0,
            processing: 0,
            failed: 0,
        };
        let found = find(&Known { stats: Some(&stats), queues: &[paused], ..Known::default() });
        let levels: Vec<Level> = found.iter().map(|problem| problem.level).collect();
        assert_eq!(levels, [Level::Bad, Level::Warn, Level::Warn], "{found:?}");
        assert!(found[0].text.contains("No worker is alive, and 3 jobs wait"), "{found:?}");
    }
}
