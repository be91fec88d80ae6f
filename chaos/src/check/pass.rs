//! What lies before the cursor, looked at while the directive runs (INV-5).
//!
//! A pass over the source begins where the cursor is empty and ends where it is empty again. Whatever the pass has read was read
//! after it began, so no row before the cursor may be older than the source was then. A page that was passed over, or written from an
//! older reading, has rows that are: the source changes all the time.

use std::collections::HashMap;
use std::time::Instant;

/// An item of the source that was changed by then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Change {
    pub(crate) at: Instant,
    pub(crate) item: i64,
}

/// The cursor and the rows before it, of one instant after `sent`.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) sent: Instant,
    /// The last item before the cursor; none between two passes, when all are before it.
    pub(crate) pointer: Option<i64>,
    /// The rows before it, with the edition of the item that they hold.
    pub(crate) rows: Vec<(i64, i64)>,
}

/// What earlier looks have shown.
#[derive(Debug, Default)]
pub(crate) struct Passes {
    last: Option<(Option<i64>, Instant)>,
    /// The last look that showed another pointer than the last one: what the last one shows was written after it.
    before_last: Option<Instant>,
    /// Editions of the source at an instant before the pass began.
    least: HashMap<i64, i64>,
    /// Changes that are in these.
    counted: usize,
}

impl Passes {
    /// Judges a look; what is wrong with it.
    pub(crate) fn judge(&mut self, look: &Look, changes: &[Change]) -> Option<String> {
        self.follow(look, changes);
        let place = look.pointer.map_or("at the end".to_owned(), |pointer| format!("after item {pointer}"));
        // Items are never taken out of the source, and their numbers have no gaps.
        if look.pointer.is_some_and(|pointer| look.rows.len() as i64 <= pointer) {
            return Some(format!("the cursor stands {place}, and {} rows lie before it", look.rows.len()));
        }
        let old = |(item, edition): &&(i64, i64)| self.least.get(item).is_some_and(|least| edition < least);
        let (item, edition) = look.rows.iter().find(old)?;
        Some(format!(
            "the cursor stands {place}, and item {item} before it is edition {edition}; it was {} when the pass began",
            self.least[item]
        ))
    }

    fn follow(&mut self, look: &Look, changes: &[Change]) {
        if let Some((pointer, sent)) = self.last {
            let begins_anew = match (pointer, look.pointer) {
                (before, Some(now)) => before.is_none_or(|before| now < before),
                (_, None) => false,
            };
            // The pass before it had come to what the last look showed, so this one began after the look before that.
            if let Some(bound) = self.before_last.filter(|_| begins_anew) {
                self.count(changes, bound);
            }
            if pointer != look.pointer {
                self.before_last = Some(sent);
            }
        }
        self.last = Some((look.pointer, look.sent));
    }

    fn count(&mut self, changes: &[Change], bound: Instant) {
        while let Some(change) = changes.get(self.counted).filter(|change| change.at < bound) {
            *self.least.entry(change.item).or_default() += 1;
            self.counted += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Looks at three items, a second apart: the pointer, and the edition of item 1.
    fn judged(looks: &[(Option<i64>, i64)], changed_at: f64) -> Vec<Option<String>> {
        let begin = Instant::now();
        let at = |seconds: f64| begin + Duration::from_secs_f64(seconds);
        let changes = [Change { at: at(changed_at), item: 1 }];
        let mut passes = Passes::default();
        let looks = looks.iter().enumerate().map(|(n, (pointer, edition))| {
            let rows = vec![(0, 0), (1, *edition), (2, 0)];
            Look { sent: at(n as f64), pointer: *pointer, rows }
        });
        looks.map(|look| passes.judge(&look, &changes)).collect()
    }

    #[test]
    fn a_row_that_a_pass_has_skipped_is_found() {
        // Changed in the first pass, which may have read it before; the second must have it.
        let passes = [None, Some(2), None, None, Some(2), Some(2)].map(|pointer| (pointer, 0));
        let found = judged(&passes, 0.5);
        assert!(found[..4].iter().all(Option::is_none), "{found:?}");
        assert!(found[4].as_ref().is_some_and(|what| what.contains("item 1 before it is edition 0")));
        // Seen at its beginning and after its end.
        let passes = [None, Some(2), None, None, Some(0), None].map(|pointer| (pointer, 0));
        assert!(judged(&passes, 0.5)[5].as_ref().is_some_and(|what| what.contains("stands at the end")));
        let read = [(None, 0), (Some(2), 0), (None, 0), (None, 0), (Some(2), 1)];
        assert!(judged(&read, 0.5).iter().all(Option::is_none));
    }

    #[test]
    fn what_changed_after_a_pass_may_have_begun_need_not_be_in_it() {
        let passes = [None, Some(2), None, Some(2)].map(|pointer| (pointer, 0));
        assert!(judged(&passes, 1.5).iter().all(Option::is_none));
        // A pass of which no look showed the end.
        let passes = [(Some(1), 0), (Some(2), 0), (Some(1), 0)];
        assert!(judged(&passes, 0.5).iter().all(Option::is_none));
        let passes = [(Some(1), 0), (Some(2), 0), (Some(2), 0), (Some(1), 0)];
        assert!(judged(&passes, 0.5).iter().all(Option::is_none));
    }

    #[test]
    fn rows_that_are_missing_are_found() {
        let look = Look { sent: Instant::now(), pointer: Some(2), rows: vec![(0, 0), (1, 0)] };
        assert!(
            Passes::default().judge(&look, &[]).is_some_and(|what| what.contains("2 rows lie before it"))
        );
    }
}
