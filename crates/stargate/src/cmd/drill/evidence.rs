//! Whether each job of a drill has one end, and whether that is the end of an attempt that did its work.
//!
//! Three witnesses have to agree: the lines that handlers write into a file outside of the store, the result with which
//! an attempt was accepted, and the attempt that held the job according to the store. A store that takes an end from a
//! worker whose lease is gone keeps the result of one attempt with the number of another, or changes an end that was
//! already told.
//!
//! When jobs came back from a lost worker is read from their timelines.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stargate_queue::event::{Event, PROCESSING, REQUEUED_STALE};
use stargate_queue::{Job, JobId, State};

const BEGIN: &str = "begin";
const END: &str = "end";

/// The handler of a drill's jobs, for `sh`: it writes when it begins and when its work is finished, then reports which
/// attempt it is. In that order, so that an end without a finished attempt cannot be an honest one.
pub(super) fn script(effects: &str, work: &str) -> String {
    let write = |word| format!("echo {word} $STARGATE_JOB_ID $STARGATE_ATTEMPT >> '{effects}'");
    let result = r#"echo "{\"result\":{\"attempt\":$STARGATE_ATTEMPT}}""#;
    format!("set -e; {}; {work}; {}; {result}", write(BEGIN), write(END))
}

/// What handlers did, by their own account.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// The attempts that have begun, one entry for each execution.
    begun: BTreeMap<JobId, Vec<u16>>,
    finished: BTreeSet<(JobId, u16)>,
}

impl Effects {
    /// Reads what the handlers of these jobs wrote by [`script`].
    pub(super) fn read(text: &str, jobs: &[JobId]) -> Self {
        let mut effects = Self::default();
        let jobs: BTreeSet<JobId> = jobs.iter().copied().collect();
        for (word, job, attempt) in text.lines().filter_map(step).filter(|(_, job, _)| jobs.contains(job)) {
            match word {
                BEGIN => effects.begun.entry(job).or_default().push(attempt),
                END => drop(effects.finished.insert((job, attempt))),
                _ => {}
            }
        }
        effects
    }

    /// Whether this attempt has begun its work.
    pub(super) fn has_begun(&self, job: JobId, attempt: u16) -> bool {
        self.begun.get(&job).is_some_and(|attempts| attempts.contains(&attempt))
    }

    /// Whether this attempt has begun its work and not finished it.
    pub(super) fn is_running(&self, job: JobId, attempt: u16) -> bool {
        self.has_begun(job, attempt) && !self.finished.contains(&(job, attempt))
    }

    /// Executions beyond one for each job.
    pub(super) fn repeated(&self) -> usize {
        self.begun.values().map(|attempts| attempts.len().saturating_sub(1)).sum()
    }
}

fn step(line: &str) -> Option<(&str, JobId, u16)> {
    let mut words = line.split(' ');
    Some((words.next()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// How a job came back from a worker that was hit, by the store's clock.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Return {
    /// When the lease was over and others could have it.
    pub(super) free: Option<Timestamp>,
    /// When a worker began with it again.
    pub(super) running: Option<Timestamp>,
}

impl Return {
    /// Reads it off a timeline; what was before the hit is another story.
    pub(super) fn of(timeline: &[Event], struck: Timestamp) -> Self {
        let mut later =
            timeline.iter().skip_while(|event| event.at < struck || event.event != REQUEUED_STALE);
        let free = later.next().map(|event| event.at);
        let running = later.find(|event| event.event == PROCESSING).map(|event| event.at);
        Self { free, running }
    }
}

/// When the last of them had come so far; nothing if one has not.
pub(super) fn latest(returns: &[Return], so_far: impl Fn(&Return) -> Option<Timestamp>) -> Option<Timestamp> {
    let all: Option<Vec<Timestamp>> = returns.iter().map(so_far).collect();
    all?.into_iter().max()
}

/// How a job ended well, as the store tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct End {
    /// Which attempt held the job.
    held_by: u16,
    /// Which attempt spoke: it is in the result.
    told_by: Option<u16>,
    at: Option<Timestamp>,
}

impl End {
    /// The end of a job, if it is done.
    pub(super) fn of(job: &Job) -> Option<Self> {
        #[derive(Deserialize)]
        struct Told {
            attempt: u16,
        }
        let told = job.result.as_ref().and_then(|result| serde_json::from_str::<Told>(result.get()).ok());
        let told_by = told.map(|told| told.attempt);
        (job.state == State::Done).then_some(Self {
            held_by: job.attempt_count,
            told_by,
            at: job.finished_at,
        })
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempt {}", self.held_by)?;
        self.at.map_or(Ok(()), |at| write!(f, " at {at}"))
    }
}

/// The ends of a drill's jobs; one that is not done has none.
pub(super) type Ends = BTreeMap<JobId, End>;

/// An end that should not have been accepted.
#[derive(Debug, Serialize)]
pub(super) struct WrongEnd {
    job: JobId,
    problem: String,
}

impl fmt::Display for WrongEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {}: {}", self.job, self.problem)
    }
}

/// Compares the ends as first told, the same when no worker can say anything any more, and what was done outside.
pub(super) fn wrong_ends(first: &Ends, last: &Ends, effects: &Effects) -> Vec<WrongEnd> {
    let judged = first.iter().filter_map(|(job, end)| {
        let problem = problem(*job, end, last.get(job), effects)?;
        Some(WrongEnd { job: *job, problem })
    });
    judged.collect()
}

fn problem(job: JobId, first: &End, last: Option<&End>, effects: &Effects) -> Option<String> {
    let Some(last) = last else {
        return Some(format!("was ended by {first} and is not done any more"));
    };
    if first != last {
        return Some(format!("ended twice: by {first}, then by {last}"));
    }
    match first.told_by {
        None => Some(format!("was ended by {first} without its result")),
        Some(told_by) if told_by != first.held_by => {
            Some(format!("attempt {told_by} was accepted while attempt {} held it", first.held_by))
        }
        Some(told_by) if !effects.finished.contains(&(job, told_by)) => {
            Some(format!("attempt {told_by} was accepted and has not finished its work"))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: JobId = JobId(7);

    fn end(held_by: u16, told_by: Option<u16>) -> End {
        End { held_by, told_by, at: None }
    }

    /// What is wrong with a job that was ended like this, then like that, while its handlers wrote these lines.
    fn judged(first: End, last: Option<End>, lines: &str) -> Vec<String> {
        let ends = |end: Option<End>| end.map(|end| (JOB, end)).into_iter().collect::<Ends>();
        let wrong = wrong_ends(&ends(Some(first)), &ends(last), &Effects::read(lines, &[JOB]));
        wrong.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_end_of_the_attempt_that_held_the_job_and_did_its_work_is_right_whatever_earlier_ones_did() {
        let lines = "begin 7 1\nbegin 7 2\nend 7 1\nend 7 2\n";
        assert_eq!(judged(end(2, Some(2)), Some(end(2, Some(2))), lines), [""; 0]);
        assert_eq!(Effects::read(lines, &[JOB]).repeated(), 1);
    }

    #[test]
    fn a_late_end_of_an_attempt_that_had_lost_its_lease_is_wrong() {
        let late = end(2, Some(1));
        let found = judged(late.clone(), Some(late), "begin 7 1\nbegin 7 2\nend 7 1\nend 7 2\n");
        assert_eq!(found, ["job 7: attempt 1 was accepted while attempt 2 held it"]);
    }

    #[test]
    fn an_end_without_work_is_wrong() {
        let found = judged(end(1, Some(1)), Some(end(1, Some(1))), "begin 7 1\nend 8 1\nend 7 2\n");
        assert_eq!(found, ["job 7: attempt 1 was accepted and has not finished its work"]);
        let found = judged(end(1, None), Some(end(1, None)), "begin 7 1\nend 7 1\n");
        assert_eq!(found, ["job 7: was ended by attempt 1 without its result"]);
    }

    #[test]
    fn an_end_that_changes_or_vanishes_later_is_wrong() {
        let lines = "begin 7 1\nbegin 7 2\nend 7 1\nend 7 2\n";
        let found = judged(end(2, Some(2)), Some(end(3, Some(3))), lines);
        assert_eq!(found, ["job 7: ended twice: by attempt 2, then by attempt 3"]);
        let found = judged(end(2, Some(2)), None, lines);
        assert_eq!(found, ["job 7: was ended by attempt 2 and is not done any more"]);
    }

    #[test]
    fn only_the_jobs_of_this_drill_count() {
        let lines = "begin 7 1\nbegin 8 1\nbegin 8 2\nend 8 2\nbegin 9 1\n";
        let effects = Effects::read(lines, &[JOB, JobId(9)]);
        assert_eq!(effects.repeated(), 0, "those of another drill are not ours to judge");
        assert!(
            effects.is_running(JOB, 1) && !effects.is_running(JOB, 2) && !effects.is_running(JobId(8), 1)
        );
    }

    fn timeline(events: &[(i64, &str)]) -> Vec<Event> {
        let event = |(seq, (second, name)): (usize, &(i64, &str))| Event {
            seq: u32::try_from(seq).unwrap() + 1,
            at: at(*second),
            event: (*name).to_owned(),
            data: serde_json::value::RawValue::NULL.to_owned(),
        };
        events.iter().enumerate().map(event).collect()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_job_is_free_when_its_lease_is_over_and_runs_again_when_a_worker_has_begun() {
        let lost = [(1, "created"), (2, PROCESSING), (13, REQUEUED_STALE)];
        let free = Return::of(&timeline(&lost), at(10));
        assert_eq!(free, Return { free: Some(at(13)), running: None });
        let again = [&lost[..], &[(15, PROCESSING), (16, "done")]].concat();
        let running = Return::of(&timeline(&again), at(10));
        assert_eq!(running, Return { free: Some(at(13)), running: Some(at(15)) });
        assert_eq!(Return::of(&timeline(&again), at(14)), Return::default(), "that was before the hit");
        let both = [free, running];
        assert_eq!(latest(&both, |job| job.free), Some(at(13)));
        assert_eq!(latest(&both, |job| job.running), None, "one of them waits");
    }
}
