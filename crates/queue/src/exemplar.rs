//! Exemplars: for each kind the slowest execution since somebody last looked, with its trace, so that a bar in a chart
//! leads to what it stands for. Only traces that are collected count.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use stargate_base::clock;
use stargate_base::trace::Context;

/// One sample of a histogram, with its trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Exemplar {
    /// Which histogram.
    pub metric: &'static str,
    /// The label `kind`.
    pub kind: Arc<str>,
    /// What was recorded.
    pub value: f64,
    /// The trace it belongs to.
    pub trace_id: String,
    /// When it was recorded.
    pub at: Timestamp,
}

/// At most one for each histogram and kind; kinds are those of the program.
static SLOWEST: Mutex<BTreeMap<(&'static str, Arc<str>), Exemplar>> = Mutex::new(BTreeMap::new());

/// Notes a sample of an execution.
pub(crate) fn note(metric: &'static str, kind: &Arc<str>, value: f64, context: Context) {
    if !context.is_sampled() {
        return;
    }
    let mut slowest = SLOWEST.lock().unwrap_or_else(PoisonError::into_inner);
    let there = slowest.get(&(metric, Arc::clone(kind))).map(|exemplar| exemplar.value);
    if there.is_none_or(|there| there < value) {
        let exemplar = Exemplar {
            metric,
            kind: Arc::clone(kind),
            value,
            trace_id: context.trace_id(),
            at: clock::wall(),
        };
        slowest.insert((metric, Arc::clone(kind)), exemplar);
    }
}

/// What was noted since the last call.
pub fn take() -> Vec<Exemplar> {
    let mut slowest = SLOWEST.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::take(&mut *slowest).into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_of_each_kind_is_kept_until_somebody_looks_and_only_if_it_is_collected() {
        let kind: Arc<str> = "exemplar-test".into();
        let context = |trace, flags| Context { trace, span: 1, flags };
        let ours = || take().into_iter().filter(|exemplar| exemplar.kind == kind).collect::<Vec<_>>();
        note("m", &kind, 1.0, context(1, 1));
        note("m", &kind, 3.0, context(2, 1));
        note("m", &kind, 2.0, context(3, 1));
        note("m", &kind, 9.0, context(4, 0));
        let found = ours();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].value, found[0].trace_id.as_str()), (3.0, &*format!("{:032x}", 2)));
        assert!(ours().is_empty());
    }
}
