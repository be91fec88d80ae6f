//! What a tap says on its stderr: logged line by line, without secrets, and the last lines kept for an error.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::process::ChildStderr;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::lines::{Line, Lines};
use super::redact::Secrets;

/// The longest line that is looked at; of a longer one the beginning.
const READ_BYTES_MAX: usize = 64 << 10;
/// What of a line is logged.
const LINE_BYTES_MAX: usize = 2000;
/// What of a line is kept for an error.
const KEPT_BYTES_MAX: usize = 300;
/// Lines that are kept for an error.
const KEPT_LINES_MAX: usize = 10;
/// Lines that are logged in a [`PERIOD`]; the others are counted.
const LOGGED_MAX: u32 = 100;
const PERIOD: Duration = Duration::from_secs(1);

/// The last lines.
#[derive(Debug, Clone, Default)]
pub(super) struct Last(Arc<Mutex<VecDeque<String>>>);

impl Last {
    fn push(&self, line: &str) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == KEPT_LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(cut(line, KEPT_BYTES_MAX));
    }

    /// All that are kept, one below the other; `None` if it said nothing.
    pub(super) fn text(&self) -> Option<String> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (!lines.is_empty()).then(|| lines.iter().cloned().collect::<Vec<_>>().join("\n"))
    }
}

/// Reads to the end, or until told to stop.
pub(super) async fn listen(
    stderr: ChildStderr,
    tap: String,
    secrets: Arc<Secrets>,
    last: Last,
    stop: CancellationToken,
) {
    let mut lines = Lines::new(stderr, READ_BYTES_MAX);
    let mut rate = Rate::new(Instant::now());
    loop {
        let line = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            line = lines.next() => line,
        };
        let line = match line {
            Ok(Some(Line::Whole(line) | Line::Over(line))) => String::from_utf8_lossy(line).into_owned(),
            Ok(None) | Err(_) => break,
        };
        let line = secrets.redact(line.trim_end());
        if line.is_empty() {
            continue;
        }
        last.push(&line);
        let (skipped, is_logged) = rate.count(Instant::now());
        if skipped > 0 {
            tracing::warn!(tap, skipped, "the tap says more than is logged");
        }
        if is_logged {
            tracing::info!(tap, "{}", cut(&line, LINE_BYTES_MAX));
        }
    }
    if rate.skipped > 0 {
        tracing::warn!(tap, skipped = rate.skipped, "the tap says more than is logged");
    }
}

fn cut(line: &str, bytes_max: usize) -> String {
    match line.len() > bytes_max {
        true => format!("{}…", &line[..line.floor_char_boundary(bytes_max)]),
        false => line.to_owned(),
    }
}

/// How many lines are logged in a period.
struct Rate {
    since: Instant,
    logged: u32,
    skipped: u64,
}

impl Rate {
    fn new(now: Instant) -> Self {
        Self { since: now, logged: 0, skipped: 0 }
    }

    /// Counts a line: how many before it were not logged, told once, and whether it is logged itself.
    fn count(&mut self, now: Instant) -> (u64, bool) {
        let mut told = 0;
        if now.duration_since(self.since) >= PERIOD {
            told = std::mem::take(&mut self.skipped);
            (self.since, self.logged) = (now, 0);
        }
        let is_logged = self.logged < LOGGED_MAX;
        self.logged += u32::from(is_logged);
        self.skipped += u64::from(!is_logged);
        (told, is_logged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_lines_are_logged_in_a_period_and_the_rest_is_counted() {
        let begin = Instant::now();
        let mut rate = Rate::new(begin);
        let logged = (0..1000).filter(|_| rate.count(begin).1).count();
        assert_eq!(logged, LOGGED_MAX as usize);
        assert_eq!(rate.count(begin + PERIOD), (1000 - u64::from(LOGGED_MAX), true));
        assert_eq!(rate.count(begin + PERIOD), (0, true));
    }

    #[test]
    fn only_the_last_lines_are_kept_and_long_ones_are_cut() {
        let last = Last::default();
        assert_eq!(last.text(), None);
        for n in 0..100 {
            last.push(&format!("{n} {}", "ä".repeat(1000)));
        }
        let text = last.text().unwrap();
        assert_eq!(text.lines().count(), KEPT_LINES_MAX);
        assert!(text.starts_with("90 ä") && text.len() < KEPT_LINES_MAX * (KEPT_BYTES_MAX + 10));
    }
}
