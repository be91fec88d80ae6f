//! Jobs: nothing lost, nothing doubled, one end each, in the store's own time (INV-1, INV-2, INV-6, INV-9).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::PoisonError;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{Verdict, Violation};
use crate::evidence::{Reader, Row};
use crate::ledger::{Line, now_micros};
use crate::load::mark_digits;
use crate::site::{LEASE, Site};
use crate::watch::Seen;

/// What is worth knowing beside the verdict.
#[derive(Debug, Default, Clone)]
pub(crate) struct Figures {
    /// Acknowledged jobs.
    pub(crate) jobs: usize,
    /// Of these, lost.
    pub(crate) lost: usize,
    /// Requests that made more than one job.
    pub(crate) doubled: usize,
    /// Jobs that were there although their request was not answered.
    pub(crate) unknown: usize,
    /// Executions that began.
    pub(crate) executions: usize,
    /// Jobs that were taken over from a worker that was silent.
    pub(crate) recovered: usize,
    /// Of these, from a worker that had been seen to beat.
    pub(crate) watched: usize,
    /// Artifacts that were compared.
    pub(crate) clips: usize,
    /// Acknowledged pushes.
    pub(crate) pushes: usize,
    /// Commits that moved on the remote.
    pub(crate) moves: usize,
    /// Rows of the directive.
    pub(crate) rows: i64,
    /// Runs of the directive.
    pub(crate) runs: i64,
    /// Entries of the mirror's journal that have come to an end.
    pub(crate) entries: usize,
    /// How long a worker had been silent when a job was taken from it, in milliseconds: half of all, and the most.
    pub(crate) silence_ms: (i64, i64),
    /// Kinds of which a job has ended.
    pub(crate) kinds: BTreeSet<String>,
}

struct Ended {
    id: i64,
    kind: String,
    state: i64,
    attempt: i64,
    run_at: i64,
    last_seq: i64,
    started_seq: i64,
    mark: String,
    /// The code of the error, and its class.
    error: (String, String),
    /// Which execution told the result: its attempt, and the process that it was. An attempt that a shutdown gave back is
    /// counted again, so two executions may be of one number.
    told_by: Option<(i64, i64)>,
}

const HISTORY: &str = "select h.id, l.kind, h.state, h.attempt, µ(h.run_at), h.last_seq, h.started_seq, \
     h.payload, coalesce(h.error, '{}'), coalesce(h.result, '{}') from @job_history h join @lane l on l.id = h.lane_id \
     where l.kind in ('step', 'long', 'fails', 'refused', 'clip')";
const OPEN: &str = "select j.id, l.kind, j.stage, j.payload, coalesce(j.error, '{}'), j.attempt from @job j join @lane l on l.id = j.lane_id \
     where l.kind in ('step', 'long', 'fails', 'refused', 'clip')";
/// What follows from a push, which nobody asked for and everybody relies on.
const FOLLOWING: &str = "select j.id, l.kind, j.stage from @job j join @lane l on l.id = j.lane_id \
     where l.kind in ('push:process', 'repo:size_recalc')";
/// Pushes that were recorded, the jobs that were made of them, and how many of these are done.
const FOLLOWED: &str = "select (select count(*) from @push_event), count(*), \
     coalesce(sum(case when h.state = 2 then 1 else 0 end), 0) \
     from @job_history h join @lane l on l.id = h.lane_id where l.kind = 'push:process'";
const EVENTS: &str = "select job_id, seq, event, µ(at), data from @job_event order by job_id, seq";

/// What users asked for and is not done yet.
pub(crate) async fn unfinished(reader: &Reader) -> Result<Vec<String>> {
    let mut rows = reader.rows(OPEN).await?;
    rows.extend(reader.rows(FOLLOWING).await?);
    let events = "select count(*) from @push_event where processed_at is null";
    let mut open: Vec<String> = rows.iter().map(|row| format!("{row:?}")).collect();
    let pushes = reader.number(events).await?;
    if pushes > 0 {
        open.push(format!("{pushes} recorded pushes are not processed"));
    }
    Ok(open)
}

pub(super) async fn judge(site: &Site, reader: &Reader, lines: &[Line], seen: &Seen) -> Result<Verdict> {
    let mut verdict = Verdict::default();
    let ended = reader.rows(HISTORY).await?.iter().map(ended).collect::<Result<Vec<Ended>>>()?;
    let open = reader.rows(OPEN).await?;
    let events = reader.rows(EVENTS).await?;
    ledgered(&mut verdict, lines, &ended, &open);
    followed(&mut verdict.violations, &reader.rows(FOLLOWED).await?);
    for job in &ended {
        as_expected(&mut verdict.violations, job);
        verdict.figures.kinds.insert(job.kind.clone());
    }
    timelines(&mut verdict, &ended, &events);
    let lapses = site.lapses.lock().unwrap_or_else(PoisonError::into_inner).clone();
    early(&mut verdict, &events, &seen.beats, &lapses);
    let effects = std::fs::read_to_string(site.outside("effects.log")).context("what handlers did")?;
    executed(&mut verdict, &ended, &effects, booted_at()?);
    Ok(verdict)
}

/// When the machine started, in microseconds by its clock. Handlers tell the time since then, because what they would be told
/// of the time of day may have been stepped.
fn booted_at() -> Result<i64> {
    let up = std::fs::read_to_string("/proc/uptime").context("the time since the machine started")?;
    let up = up.split(' ').next().and_then(seconds).context("not a time: /proc/uptime")?;
    Ok(now_micros()? - up)
}

/// Seconds with a fraction, in microseconds.
fn seconds(text: &str) -> Option<i64> {
    text.parse::<f64>().ok().map(|seconds| (seconds * 1e6) as i64)
}

fn ended(row: &Row) -> Result<Ended> {
    let text = |at: usize| row.get(at).and_then(Option::as_deref).context("a column is missing");
    let number = |at: usize| text(at)?.parse::<i64>().context("not a number");
    let error: Value = serde_json::from_str(text(8)?).unwrap_or_default();
    Ok(Ended {
        id: number(0)?,
        kind: text(1)?.to_owned(),
        state: number(2)?,
        attempt: number(3)?,
        run_at: number(4)?,
        last_seq: number(5)?,
        started_seq: number(6)?,
        mark: mark_of(text(7)?),
        error: ["code", "class"].map(|name| error[name].as_str().unwrap_or_default().to_owned()).into(),
        told_by: serde_json::from_str::<Value>(text(9)?)
            .ok()
            .and_then(|result| Some((result["attempt"].as_i64()?, result["by"].as_i64()?))),
    })
}

fn mark_of(payload: &str) -> String {
    let payload: Value = serde_json::from_str(payload).unwrap_or_default();
    let clip = || Some(format!("clip {}", payload["end"].as_str()?));
    payload["mark"].as_str().map(str::to_owned).or_else(clip).unwrap_or_default()
}

/// A mark as it stands in the payload.
fn as_written(mark: &str, kind: &str) -> String {
    if kind == "clip" { format!("clip 1.5{}", mark_digits(mark)) } else { mark.to_owned() }
}

fn ledgered(verdict: &mut Verdict, lines: &[Line], ended: &[Ended], open: &[Row]) {
    let mut asked: HashMap<String, &str> = HashMap::new();
    let mut kinds: HashMap<&str, &str> = HashMap::new();
    for line in lines {
        if let Line::Asked { mark, kind } = line {
            asked.insert(as_written(mark, kind), mark);
            kinds.insert(mark, kind);
        }
    }
    let by_id: HashMap<i64, &Ended> = ended.iter().map(|job| (job.id, job)).collect();
    let column = |row: &Row, at: usize| row.get(at).and_then(Option::clone).unwrap_or_default();
    let open: HashMap<i64, &Row> =
        open.iter().map(|row| (column(row, 0).parse().unwrap_or(0), row)).collect();
    let mut acknowledged: HashSet<i64> = HashSet::new();
    let found = &mut verdict.violations;
    for line in lines {
        let Line::Job { mark, id, via, .. } = line else { continue };
        acknowledged.insert(*id);
        let kind = kinds.get(mark.as_str()).copied().unwrap_or_default();
        match (by_id.get(id), open.get(id)) {
            (Some(job), None) if job.mark == as_written(mark, kind) && job.kind == kind => {}
            (Some(job), None) => found.push(Violation::new(
                1,
                format!(
                    "job {id} was acknowledged by {via} for {mark} ({kind}) and is {} ({})",
                    job.mark, job.kind
                ),
            )),
            (None, Some(row)) => {
                found.push(Violation::new(1, format!("job {id} ({mark}) never ends: {row:?}")))
            }
            (Some(_), Some(_)) => found.push(Violation::new(2, format!("job {id} has ended and waits"))),
            (None, None) => {
                verdict.figures.lost += 1;
                found.push(Violation::new(1, format!("job {id} ({mark}), acknowledged by {via}, is gone")));
            }
        }
    }
    let mut jobs: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for job in ended {
        jobs.entry(&job.mark).or_default().push(job.id);
        if !asked.contains_key(&job.mark) {
            found.push(Violation::new(1, format!("nobody asked for job {}: {}", job.id, job.mark)));
        }
    }
    for (mark, ids) in jobs.iter().filter(|(_, ids)| ids.len() > 1) {
        verdict.figures.doubled += 1;
        found.push(Violation::new(1, format!("one request, {mark}, made jobs {ids:?}")));
    }
    verdict.figures.jobs = acknowledged.len();
    verdict.figures.unknown = ended.iter().filter(|job| !acknowledged.contains(&job.id)).count();
}

/// Each recorded push has made one job, and that is done.
fn followed(found: &mut Vec<Violation>, rows: &[Row]) {
    let counts: Vec<&str> = rows.iter().flatten().flatten().map(String::as_str).collect();
    let all_same = counts.len() == 3 && counts.iter().all(|count| *count == counts[0]);
    if !all_same {
        let what = "pushes recorded, their jobs, those done";
        found.push(Violation::new(1, format!("{what}: {counts:?} should be the same number")));
    }
}

/// How a job has to end is decided by its kind, on every store alike (INV-9).
fn as_expected(found: &mut Vec<Violation>, job: &Ended) {
    const DONE: i64 = 2;
    const FAILED: i64 = 3;
    let (code, class) = (job.error.0.as_str(), job.error.1.as_str());
    let right = match (job.kind.as_str(), job.state) {
        ("step" | "long" | "clip", DONE) => true,
        // A clip may lose three workers, which is its limit.
        ("clip", FAILED) => code == "WORKER_LOST",
        ("fails", FAILED) => job.attempt == 3 && code == "RETRIES_EXHAUSTED",
        ("refused", FAILED) => (code, class) == ("EXEC_FAILED", "ValidationFailure"),
        _ => false,
    };
    if !right {
        let Ended { id, kind, state, attempt, .. } = job;
        let what =
            format!("job {id} of kind {kind} ended in state {state} at attempt {attempt}: {code} {class}");
        found.push(Violation::new(9, what));
    }
}

/// How a timeline ends.
const ENDS: [&str; 3] = ["done", "failed", "cancelled"];

fn timelines(verdict: &mut Verdict, ended: &[Ended], events: &[Row]) {
    let mut rows: HashMap<i64, Vec<(i64, &str, i64)>> = HashMap::new();
    for row in events {
        let column = |at: usize| row.get(at).and_then(Option::as_deref).unwrap_or_default();
        let number = |at: usize| column(at).parse().unwrap_or(0);
        rows.entry(number(0)).or_default().push((number(1), column(2), number(3)));
    }
    for job in ended {
        let own = rows.get(&job.id).map(Vec::as_slice).unwrap_or_default();
        // Nor is the one end that a job may have; nobody has these run again.
        if let Some((seq, event, _)) = own.iter().find(|(_, event, _)| ENDS.contains(event)) {
            let what = format!("job {} has {event} at {seq}, and went on to {}", job.id, job.last_seq);
            verdict.violations.push(Violation::new(2, what));
        }
        // The first, the last and the begin of the last attempt are no rows.
        let mut numbers: Vec<i64> = own.iter().map(|(seq, ..)| *seq).chain([1, job.last_seq]).collect();
        numbers.extend((job.started_seq > 0).then_some(job.started_seq));
        numbers.sort_unstable();
        if !numbers.iter().copied().eq(1..=job.last_seq) {
            let what = format!("the timeline of job {} has {numbers:?} of {}", job.id, job.last_seq);
            verdict.violations.push(Violation::new(2, what));
        }
    }
}

/// A worker that comes back finds its own loss with its next beat, in one instant of the store.
const OWN_BEAT_MICROS: i64 = 5_000;

/// The lease is the silence of the worker: whoever was taken from was not seen to beat for so long, by the store's clock. A beat does
/// not wait for the disk; one that the database lost in a crash is none.
fn early(
    verdict: &mut Verdict,
    events: &[Row],
    beats: &HashMap<String, BTreeSet<i64>>,
    lapses: &[(i64, i64)],
) {
    let is_kept = |beat: &&i64| !lapses.iter().any(|(from, to)| (from..=to).contains(beat));
    let column = |row: &Row, at: usize| row.get(at).and_then(Option::clone).unwrap_or_default();
    let lease = i64::try_from(LEASE.as_micros()).unwrap_or(i64::MAX);
    let mut silences = Vec::new();
    for row in events.iter().filter(|row| column(row, 2) == "requeued:stale") {
        verdict.figures.recovered += 1;
        let data: Value = serde_json::from_str(&column(row, 4)).unwrap_or_default();
        let at: i64 = column(row, 3).parse().unwrap_or(0);
        let beats = data["worker"].as_str().and_then(|worker| beats.get(worker));
        verdict.figures.watched += usize::from(beats.is_some());
        let last = beats.and_then(|beats| beats.range(..at - OWN_BEAT_MICROS).next_back());
        silences.extend(last.map(|last| (at - last) / 1000));
        let beat = beats.and_then(|beats| beats.range(at - lease + 1..at - OWN_BEAT_MICROS).find(is_kept));
        if let Some(beat) = beat {
            let what =
                format!("job {} was taken over {} ms after a beat", column(row, 0), (at - beat) / 1000);
            verdict.violations.push(Violation::new(6, what));
        }
    }
    silences.sort_unstable();
    let half = silences.get(silences.len() / 2).copied();
    verdict.figures.silence_ms = (half.unwrap_or(0), silences.last().copied().unwrap_or(0));
}

/// Handlers tell hundredths of a second.
const TOLD_MICROS: i64 = 20_000;

/// A job that is done was executed to its end, in the attempt that counts; that one did not begin before it was due, and none
/// began after it.
fn executed(verdict: &mut Verdict, ended: &[Ended], effects: &str, booted_at: i64) {
    let whole: HashSet<&str> = effects.lines().collect();
    let begun = begun(effects, booted_at);
    verdict.figures.executions = begun.len();
    let mut last: HashMap<i64, i64> = HashMap::new();
    for Begun { job, attempt, .. } in &begun {
        let last = last.entry(*job).or_default();
        *last = (*last).max(*attempt);
    }
    let at: HashMap<(i64, i64), i64> =
        begun.iter().map(|begun| ((begun.job, begun.attempt), begun.at)).collect();
    let by: HashSet<(i64, i64, i64)> =
        begun.iter().map(|begun| (begun.job, begun.attempt, begun.by)).collect();
    let mut violated = |invariant, what| verdict.violations.push(Violation::new(invariant, what));
    for job in ended.iter().filter(|job| job.kind != "clip") {
        let Ended { id, attempt, .. } = job;
        match job.told_by {
            Some((told, process)) if told == *attempt => {
                let ended = whole.contains(format!("e {id} {attempt} {process}").as_str());
                if !ended || !by.contains(&(*id, *attempt, process)) {
                    let what = format!("job {id} is done by attempt {attempt}, whose process {process}");
                    violated(2, format!("{what} has not ended its work"));
                }
            }
            told if job.state == 2 => {
                violated(2, format!("job {id} is done by attempt {attempt} with the result of {told:?}"));
            }
            _ => {}
        }
        if let Some(later) = last.get(id).filter(|last| *last > attempt) {
            violated(2, format!("job {id} has ended with attempt {attempt}, and attempt {later} was begun"));
        }
        let early = at.get(&(*id, *attempt)).map(|at| job.run_at - at).filter(|early| *early > TOLD_MICROS);
        if let Some(early) = early {
            violated(6, format!("job {id} began {} ms before it was due", early / 1000));
        }
    }
}

/// An execution that began: of which attempt, when, and as which process.
struct Begun {
    job: i64,
    attempt: i64,
    at: i64,
    by: i64,
}

fn begun(effects: &str, booted_at: i64) -> Vec<Begun> {
    let read = |line: &str| {
        let [job, attempt, up, by] = line.strip_prefix("b ")?.split(' ').collect::<Vec<_>>()[..] else {
            return None;
        };
        let number = |text: &str| text.parse::<i64>().ok();
        let at = booted_at + seconds(up)?;
        Some(Begun { job: number(job)?, attempt: number(attempt)?, at, by: number(by)? })
    };
    effects.lines().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: i64, mark: &str) -> Ended {
        let (kind, error) = ("step".to_owned(), (String::new(), String::new()));
        let mark = mark.to_owned();
        Ended {
            id,
            kind,
            state: 2,
            attempt: 1,
            run_at: 3_000_000,
            last_seq: 3,
            started_seq: 2,
            mark,
            error,
            told_by: Some((1, 7)),
        }
    }

    fn lines(ids: &[(i64, &str)]) -> Vec<Line> {
        let asked = |mark: &str| Line::Asked { mark: mark.to_owned(), kind: "step".to_owned() };
        let got =
            |id, mark: &str| Line::Job { mark: mark.to_owned(), id, via: "http".to_owned(), answer: None };
        ids.iter().flat_map(|(id, mark)| [asked(mark), got(*id, mark)]).collect()
    }

    fn found(lines: &[Line], ended: &[Ended], effects: &str) -> Vec<String> {
        let mut verdict = Verdict::default();
        ledgered(&mut verdict, lines, ended, &[]);
        timelines(&mut verdict, ended, &[]);
        executed(&mut verdict, ended, effects, 1_000_000);
        verdict.violations.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_well_is_let_pass_and_each_way_to_go_wrong_is_found() {
        let effects = "b 1 1 2.01 7\ne 1 1 7\nb 2 1 2.01 7\ne 2 1 7\n";
        let two = lines(&[(1, "h1"), (2, "h2")]);
        assert_eq!(found(&two, &[job(1, "h1"), job(2, "h2")], effects), [""; 0]);
        assert!(
            found(&two, &[job(1, "h1")], effects)[0].contains("job 2 (h2), acknowledged by http, is gone")
        );
        assert!(
            found(&two, &[job(1, "h1"), job(2, "h1")], effects)
                .iter()
                .any(|f| f.contains("made jobs [1, 2]"))
        );
        assert!(
            found(&two, &[job(1, "h1"), job(2, "x")], effects).iter().any(|f| f.contains("nobody asked"))
        );
        for unlike in ["b 1 1 2.01 7\nb 2 1 2.01 7\ne 2 1 7\n", "e 1 1 7\nb 2 1 2.01 7\ne 2 1 7\n"] {
            let found = found(&two, &[job(1, "h1"), job(2, "h2")], unlike);
            assert_eq!(found, ["INV-2: job 1 is done by attempt 1, whose process 7 has not ended its work"]);
        }
        let torn = Ended { last_seq: 5, ..job(2, "h2") };
        assert!(found(&two, &[job(1, "h1"), torn], effects)[0].starts_with("INV-2: the timeline of job 2"));
        let twice = ["1", "2", "done", "9", "{}"].map(|column| Some(column.to_owned())).to_vec();
        let mut verdict = Verdict::default();
        timelines(&mut verdict, &[Ended { started_seq: 0, ..job(1, "h1") }], &[twice]);
        assert_eq!(verdict.violations[0].to_string(), "INV-2: job 1 has done at 2, and went on to 3");
    }

    #[test]
    fn a_push_that_made_no_job_or_two_or_one_that_failed_is_found() {
        let found = |counts: [&str; 3]| {
            let mut found = Vec::new();
            followed(&mut found, &[counts.map(|count| Some(count.to_owned())).to_vec()]);
            found.len()
        };
        assert_eq!(found(["3", "3", "3"]), 0);
        for wrong in [["3", "2", "2"], ["3", "4", "4"], ["3", "3", "2"]] {
            assert_eq!(found(wrong), 1, "{wrong:?}");
        }
    }

    #[test]
    fn a_job_that_was_taken_over_too_early_is_found() {
        let row = |at: i64| {
            ["1", "3", "requeued:stale", &at.to_string(), r#"{"worker":"w"}"#]
                .map(|c| Some(c.to_owned()))
                .to_vec()
        };
        let beats = HashMap::from([("w".to_owned(), BTreeSet::from([1000, 9_000_000]))]);
        let mut verdict = Verdict::default();
        early(&mut verdict, &[row(2_001_000)], &beats, &[]);
        assert_eq!((verdict.violations.len(), verdict.figures.recovered), (0, 1));
        assert_eq!(verdict.figures.silence_ms, (2000, 2000));
        early(&mut verdict, &[row(2_000_000)], &beats, &[(2000, 3000)]);
        assert_eq!(verdict.violations.len(), 1);
        early(&mut verdict, &[row(2_000_000)], &beats, &[(500, 1500)]);
        assert_eq!(verdict.violations.len(), 1, "the crash of the database has undone the beat");
    }

    #[test]
    fn an_end_that_its_kind_cannot_have_is_found() {
        let mut violations = Vec::new();
        as_expected(&mut violations, &Ended { state: 3, ..job(1, "m") });
        as_expected(&mut violations, &job(1, "m"));
        assert_eq!(violations.iter().map(|v| v.invariant).collect::<Vec<_>>(), [9]);
        let wrong = |kind: &str, attempt, code: &str, class: &str| {
            let error = (code.to_owned(), class.to_owned());
            let mut violations = Vec::new();
            as_expected(
                &mut violations,
                &Ended { kind: kind.to_owned(), state: 3, attempt, error, ..job(1, "m") },
            );
            !violations.is_empty()
        };
        assert!(!wrong("fails", 3, "RETRIES_EXHAUSTED", "RetryableTransient"));
        assert!(wrong("fails", 2, "RETRIES_EXHAUSTED", "RetryableTransient"));
        assert!(wrong("fails", 3, "EXEC_FAILED", "Fatal"));
        assert!(!wrong("refused", 1, "EXEC_FAILED", "ValidationFailure"));
        assert!(wrong("refused", 1, "EXEC_FAILED", "RetryableTransient"));
        assert!(!wrong("clip", 3, "WORKER_LOST", "Fatal") && wrong("clip", 3, "CLIP_FAILED", "Fatal"));
    }

    #[test]
    fn executions_that_do_not_fit_the_end_of_their_job_are_found() {
        let one = lines(&[(1, "h1")]);
        let early = found(&one, &[job(1, "h1")], "b 1 1 1.90 7\ne 1 1 7\n");
        assert_eq!(early, ["INV-6: job 1 began 100 ms before it was due"]);
        let effects = "b 1 1 2.01 7\ne 1 1 7\n";
        let late = found(&one, &[Ended { told_by: Some((2, 7)), ..job(1, "h1") }], effects);
        assert_eq!(late, ["INV-2: job 1 is done by attempt 1 with the result of Some((2, 7))"]);
        // The attempt that a shutdown gave back was begun again, and what was recorded is the end of neither.
        let other = found(&one, &[Ended { told_by: Some((1, 8)), ..job(1, "h1") }], effects);
        assert_eq!(other, ["INV-2: job 1 is done by attempt 1, whose process 8 has not ended its work"]);
        let again = found(&one, &[job(1, "h1")], "b 1 1 2.01 7\ne 1 1 7\nb 1 2 2.50 9\n");
        assert_eq!(again, ["INV-2: job 1 has ended with attempt 1, and attempt 2 was begun"]);
    }
}
