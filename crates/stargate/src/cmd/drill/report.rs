//! What came of a trial of a worker, beside what was promised.

use serde::Serialize;

use super::evidence::WrongEnd;
use crate::output;
use crate::run::App;

/// What came of it.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) drill: &'static str,
    /// What was done to the worker: `killed`, `cut_off` or `stopped`.
    pub(super) hit: &'static str,
    pub(super) store: String,
    pub(super) queue: &'static str,
    pub(super) lease_ms: u64,
    /// Jobs that were acknowledged.
    pub(super) accepted: usize,
    /// Jobs that the worker held when it was hit.
    pub(super) held: usize,
    /// Acknowledged and not done in the end.
    pub(super) lost: usize,
    /// Jobs that are done, but not by one end of an attempt that held them and finished its work.
    pub(super) wrong_ends: Vec<WrongEnd>,
    /// Executions beyond one a job: handlers run at least once.
    pub(super) repeated: usize,
    /// From the hit until the last of the held jobs was free for others, by the store's clock. This is what is promised.
    pub(super) free_for_others_ms: Option<u64>,
    pub(super) promised_ms: u64,
    /// From the hit until the last of the held jobs ran again. It takes a worker that has room, so nothing is promised.
    pub(super) running_again_ms: Option<u64>,
    /// From the hit until everything was done, or until nobody waited for it any longer.
    pub(super) done_ms: u64,
    pub(super) kept: bool,
}

impl Report {
    /// What was promised and not kept.
    pub(super) fn broken(&self) -> Vec<String> {
        let mut broken = Vec::new();
        if self.lost > 0 {
            broken.push(format!("{} of {} accepted jobs are not done", self.lost, self.accepted));
        }
        if let Some(first) = self.wrong_ends.first() {
            broken.push(format!("{} jobs ended wrongly ({first})", self.wrong_ends.len()));
        }
        match self.free_for_others_ms {
            Some(took) if took <= self.promised_ms => {}
            Some(took) => broken.push(format!(
                "the worker's jobs were free for others after {took} ms, promised are {} ms",
                self.promised_ms
            )),
            None if self.held > 0 => broken.push("the worker's jobs were never free for others".to_owned()),
            None => broken.push("the worker was hit between two jobs and held none; try again".to_owned()),
        }
        broken
    }

    /// Shows it.
    pub(super) fn print(&self, app: &App) {
        if app.out.json {
            app.out.json(self);
            return;
        }
        let after =
            |took: Option<u64>| took.map_or_else(|| "never".to_owned(), |took| format!("after {took} ms"));
        let wrong = self.wrong_ends.len();
        let free = after(self.free_for_others_ms);
        let lines = [
            ("accepted", self.accepted.to_string()),
            ("lost", format!("{}   (promised: 0)", self.lost)),
            (
                "ended wrongly",
                format!("{wrong}   (promised: 0; one end each, of an attempt that did the work)"),
            ),
            ("held by the worker", self.held.to_string()),
            (
                "free for others",
                format!("{free}   (promised: within {} ms, the lease and 2 s)", self.promised_ms),
            ),
            ("running again", format!("{}   (as soon as a worker has room)", after(self.running_again_ms))),
            ("executed again", format!("{}   (handlers run at least once)", self.repeated)),
            (
                "all done",
                format!("{} {} ms", if self.lost == 0 { "after" } else { "not after" }, self.done_ms),
            ),
        ];
        for (name, value) in lines {
            app.out.line(format!("{name:22}{value}"));
        }
        app.out.line(verdict(self.kept));
    }
}

/// The last line of a report.
pub(super) fn verdict(kept: bool) -> String {
    output::bold(if kept { "the promise was kept" } else { "THE PROMISE WAS NOT KEPT" })
}
