//! Cuts what a tap says into pages that end where the tap could go on.

use std::collections::{BTreeSet, VecDeque};

use stargate_directive::Pointer;
use stargate_directive::source::{Garbled, Record, SourceError};

use super::message::Message;
use crate::problem::shape;

/// A page ends with the record that brings it above this.
const PAGE_BYTES_MAX: usize = 8 << 20;
/// Streams that are remembered by name.
const STREAMS_MAX: usize = 1000;
/// Streams that an error names.
const NAMED_MAX: usize = 20;

/// Records that were read and not given out yet.
#[derive(Debug)]
pub(super) struct Collected {
    /// The stream whose records count.
    wanted: Option<String>,
    streams: BTreeSet<String>,
    passed_over: u64,
    records: VecDeque<Record>,
    bytes: usize,
    /// The last state among these records, and how many of them are before it.
    state: Option<(usize, Pointer)>,
    /// The last state of all.
    latest: Option<Pointer>,
}

impl Collected {
    pub(super) fn new(wanted: Option<String>) -> Self {
        Self {
            wanted,
            streams: BTreeSet::new(),
            passed_over: 0,
            records: VecDeque::new(),
            bytes: 0,
            state: None,
            latest: None,
        }
    }

    /// Takes what the tap said next.
    pub(super) fn take(&mut self, tap: &str, said: Result<Message, Garbled>) -> Result<(), SourceError> {
        match said {
            Err(garbled) => self.push(Err(garbled)),
            Ok(Message::Schema { stream, keys }) => {
                tracing::debug!(tap, stream, ?keys, "the tap announces a stream");
                self.meet(stream)?;
            }
            Ok(Message::Record { stream, record }) => {
                if self.wanted.as_ref().is_none_or(|wanted| *wanted == stream) {
                    self.push(Ok(record));
                } else {
                    self.pass_over(tap, &stream);
                }
                self.meet(stream)?;
            }
            Ok(Message::State(state)) => {
                self.latest = Some(state.clone());
                self.state = Some((self.records.len(), state));
            }
            Ok(Message::Batch { stream }) => {
                return Err(shape(format!(
                    "the tap gives stream {stream:?} as files (BATCH), which are not read; \
                     take batch_config out of its settings, so that it writes records"
                )));
            }
            Ok(Message::Other) => {}
        }
        Ok(())
    }

    /// Whether there is a record beyond the page. Without it nobody knows whether a state is to come.
    pub(super) fn is_full(&self, size: usize) -> bool {
        let last = self.records.back().map_or(0, weight);
        self.records.len() > size || self.bytes - last > PAGE_BYTES_MAX
    }

    /// Whether there are records with a state after them.
    pub(super) fn has_safe(&self) -> bool {
        self.state.as_ref().is_some_and(|(before, _)| *before > 0)
    }

    /// A page with something after it. It ends at the last state in it; if there is none, it says no pointer.
    pub(super) fn page(&mut self, size: usize) -> (Vec<Record>, Option<Pointer>) {
        match self.up_to_state(size) {
            Some((records, next)) => (records, Some(next)),
            None => (self.drain(self.fitting(size)), None),
        }
    }

    /// The records before the last state, if they are a page.
    pub(super) fn up_to_state(&mut self, size: usize) -> Option<(Vec<Record>, Pointer)> {
        let fitting = self.fitting(size);
        let (before, next) = self.state.take_if(|(before, _)| *before > 0 && *before <= fitting)?;
        Some((self.drain(before), next))
    }

    /// A page after the tap's end, and whether it is the last, which says the last state again.
    pub(super) fn rest(&mut self, size: usize) -> (Vec<Record>, Option<Pointer>, bool) {
        let all = self.records.len();
        if self.fitting(size) < all {
            let (records, next) = self.page(size);
            return (records, next, false);
        }
        (self.drain(all), self.latest.clone(), true)
    }

    /// A stream that was asked for and never came, although others did, is misspelt.
    pub(super) fn check_end(&self) -> Result<(), SourceError> {
        match &self.wanted {
            Some(wanted) if !self.streams.is_empty() && !self.streams.contains(wanted) => {
                Err(shape(format!(
                    "the tap has no stream {wanted:?}; it gives {}; mend \"stream\" of the directive, \
                 or select the stream in the tap's catalog",
                    self.names()
                )))
            }
            _ => Ok(()),
        }
    }

    /// Logs what was passed over.
    pub(super) fn tell(&self, tap: &str) {
        if self.passed_over > 0 {
            tracing::info!(tap, records = self.passed_over, "records of other streams were passed over");
        }
    }

    /// Remembers a stream. Records of two streams cannot be told apart in one table.
    fn meet(&mut self, stream: String) -> Result<(), SourceError> {
        if self.streams.len() < STREAMS_MAX && !self.streams.contains(&stream) {
            self.streams.insert(stream);
        }
        if self.wanted.is_none() && self.streams.len() > 1 {
            return Err(shape(format!(
                "the tap gives several streams: {}; name one as \"stream\" of the directive, \
                 and write a directive for each",
                self.names()
            )));
        }
        Ok(())
    }

    fn names(&self) -> String {
        let names: Vec<String> =
            self.streams.iter().take(NAMED_MAX).map(|name| format!("{name:?}")).collect();
        let more = self.streams.len().saturating_sub(NAMED_MAX);
        if more > 0 { format!("{} and {more} more", names.join(", ")) } else { names.join(", ") }
    }

    fn pass_over(&mut self, tap: &str, stream: &str) {
        if self.passed_over == 0 {
            let wanted = self.wanted.as_deref().unwrap_or_default();
            tracing::warn!(
                tap,
                stream,
                wanted,
                "the tap gives other streams too; their records are passed over: \
                 leave them out of its catalog to save the work"
            );
        }
        self.passed_over += 1;
    }

    fn push(&mut self, record: Record) {
        self.bytes += weight(&record);
        self.records.push_back(record);
    }

    /// How many records make the next page.
    fn fitting(&self, size: usize) -> usize {
        let mut bytes = 0;
        let within = self.records.iter().take(size).take_while(|record| {
            let fits = bytes <= PAGE_BYTES_MAX;
            bytes += weight(record);
            fits
        });
        within.count()
    }

    fn drain(&mut self, count: usize) -> Vec<Record> {
        let records: Vec<Record> = self.records.drain(..count).collect();
        self.bytes -= records.iter().map(weight).sum::<usize>();
        // A state before all of them is where the tap began.
        self.state = self.state.take().and_then(|(before, state)| Some((before.checked_sub(count)?, state)));
        records
    }
}

/// What a record takes in memory.
fn weight(record: &Record) -> usize {
    match record {
        Ok(json) => json.get().len(),
        Err(garbled) => garbled.text.len() + garbled.problem.len(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stargate_base::ErrorClass;

    use super::*;

    fn record(n: usize) -> Result<Message, Garbled> {
        record_of("s", n)
    }

    fn record_of(stream: &str, n: usize) -> Result<Message, Garbled> {
        let record = serde_json::value::to_raw_value(&n).unwrap();
        Ok(Message::Record { stream: stream.to_owned(), record })
    }

    fn state(n: usize) -> Result<Message, Garbled> {
        Ok(Message::State(json!(n)))
    }

    /// The pages of a tap that says this, as "records>next", the last with a full stop.
    fn pages(size: usize, said: Vec<Result<Message, Garbled>>) -> Vec<String> {
        let (mut collected, mut pages) = (Collected::new(None), Vec::new());
        let show = |records: Vec<Record>, next: Option<Pointer>| {
            let records: Vec<String> =
                records.into_iter().map(|record| record.unwrap().get().to_owned()).collect();
            format!("{}>{}", records.join(" "), next.map_or_else(String::new, |next| next.to_string()))
        };
        for message in said {
            while collected.is_full(size) {
                let (records, next) = collected.page(size);
                pages.push(show(records, next));
            }
            collected.take("tap", message).unwrap();
        }
        loop {
            let (records, next, is_last) = collected.rest(size);
            pages.push(format!("{}{}", show(records, next), if is_last { "." } else { "" }));
            if is_last {
                return pages;
            }
        }
    }

    #[test]
    fn a_page_ends_at_the_last_state_in_it_and_says_it() {
        let said =
            || vec![record(1), record(2), state(2), record(3), record(4), record(5), state(5), record(6)];
        assert_eq!(pages(4, said()), ["1 2>2", "3 4 5 6>5."]);
        assert_eq!(pages(3, said()), ["1 2>2", "3 4 5>5", "6>5."]);
        assert_eq!(pages(2, said()), ["1 2>2", "3 4>", "5 6>5."]);
        assert_eq!(
            pages(100, said()),
            ["1 2 3 4 5 6>5."],
            "at the end the last state is said, wherever it was"
        );
    }

    #[test]
    fn the_end_right_after_a_page_makes_it_the_last() {
        assert_eq!(pages(2, vec![record(1), record(2), state(2)]), ["1 2>2."]);
        assert_eq!(pages(2, vec![record(1), record(2)]), ["1 2>."], "a tap without a state says none");
        assert_eq!(pages(2, vec![]), [">."]);
    }

    #[test]
    fn a_state_before_all_records_says_nothing_about_them() {
        assert_eq!(pages(1, vec![state(0), record(1), record(2)]), ["1>", "2>0."]);
        assert_eq!(pages(1, vec![state(0)]), [">0."], "but it is the state of a tap with nothing new");
    }

    #[test]
    fn a_page_of_large_records_is_short() {
        let large = || {
            record_of("s", 1).map(|_| Message::Record {
                stream: "s".to_owned(),
                record: serde_json::value::to_raw_value(&"x".repeat(3 << 20)).unwrap(),
            })
        };
        let mut collected = Collected::new(None);
        for _ in 0..3 {
            collected.take("tap", large()).unwrap();
            assert!(!collected.is_full(100));
        }
        collected.take("tap", large()).unwrap();
        assert!(collected.is_full(100));
        assert_eq!(collected.page(100).0.len(), 3);
        assert_eq!((collected.records.len(), collected.bytes), (1, (3 << 20) + 2));
    }

    #[test]
    fn pages_that_shrink_lose_nothing() {
        let mut collected = Collected::new(None);
        for n in [record(1), state(1), record(2), record(3), record(4)] {
            collected.take("tap", n).unwrap();
        }
        assert!(collected.is_full(3));
        assert_eq!(collected.page(3).1, Some(json!(1)));
        assert!(collected.is_full(2) && collected.is_full(1));
        let (records, next) = collected.page(1);
        assert_eq!((records.len(), next), (1, None));
        assert_eq!(collected.page(1).0.len(), 1);
        collected.take("tap", state(4)).unwrap();
        assert_eq!(collected.rest(1).1, Some(json!(4)));
    }

    #[test]
    fn what_was_safe_before_a_failure_is_given_out() {
        let mut collected = Collected::new(None);
        for n in [record(1), state(1), record(2)] {
            collected.take("tap", n).unwrap();
        }
        let (records, next) = collected.up_to_state(100).unwrap();
        assert_eq!((records.len(), next), (1, json!(1)));
        assert!(collected.up_to_state(100).is_none());
    }

    #[test]
    fn two_streams_need_a_choice_and_a_choice_needs_its_stream() {
        let mut any = Collected::new(None);
        any.take("tap", record_of("b", 1)).unwrap();
        let error = any.take("tap", Ok(Message::Schema { stream: "a".into(), keys: vec![] })).unwrap_err();
        assert_eq!((error.class, error.code), (ErrorClass::ValidationFailure, "SOURCE_SHAPE"));
        assert!(error.message.contains(r#""a", "b""#), "{}", error.message);

        let mut chosen = Collected::new(Some("a".into()));
        for said in [record_of("b", 1), record_of("a", 2), record_of("b", 3)] {
            chosen.take("tap", said).unwrap();
        }
        assert_eq!((chosen.records.len(), chosen.passed_over), (1, 2));
        chosen.check_end().unwrap();

        let mut misspelt = Collected::new(Some("A".into()));
        misspelt.check_end().unwrap();
        misspelt.take("tap", record_of("a", 1)).unwrap();
        assert!(misspelt.check_end().unwrap_err().message.contains(r#"no stream "A""#));
    }

    #[test]
    fn records_in_files_are_refused_with_a_remedy() {
        let said = Ok(Message::Batch { stream: "a".into() });
        assert!(Collected::new(None).take("tap", said).unwrap_err().message.contains("batch_config"));
    }
}
