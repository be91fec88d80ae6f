//! How an execution is part of a trace: what its enqueuer left, and the span that it is itself.

use stargate_base::trace::{self, Context, Kind, Span, Start};

use crate::job::{Fence, JobId};
use crate::store::{ClaimedJob, Outcome};

/// The place in a trace that an enqueuer left: a whole `traceparent`, or a bare trace id.
///
/// A bare trace id has no parent span; one is made of the job and the attempt, so that two attempts differ.
///
/// ```
/// # use stargate_queue::{JobId, trace::context};
/// let bare = context(Some("4bf92f3577b34da6a3ce929d0e0e4736"), JobId(7), 1).unwrap();
/// assert_eq!(bare.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
/// assert_eq!(context(Some("something else"), JobId(7), 1), None);
/// ```
pub fn context(trace_id: Option<&str>, job: JobId, attempt: u16) -> Option<Context> {
    let text = trace_id?;
    let made = || {
        let trace = Context::parse_trace(text)?;
        // The low bits are enough: span ids need to differ within a trace only, and must not be zero.
        let span = (job.0.cast_unsigned() << 16 | u64::from(attempt)).max(1);
        Some(Context { trace, span, flags: 1 })
    };
    Context::parse(text).or_else(made)
}

/// Begins the span of an execution, if spans are collected. What the handler sees and hands on is its own place.
pub(crate) fn begin(job: &mut ClaimedJob, worker: &str) -> Option<Box<dyn Span>> {
    let Fence { job: id, attempt, .. } = job.fence;
    let parent = context(job.trace_id.as_deref(), id, attempt);
    let span = trace::start(|| Start {
        name: format!("run {}", job.kind),
        kind: Kind::Consumer,
        parent,
        attributes: vec![
            ("messaging.system", "stargate".into()),
            ("messaging.operation.type", "process".into()),
            ("messaging.destination.name", (&*job.queue).into()),
            ("messaging.message.id", id.to_string().as_str().into()),
            ("stargate.kind", (&*job.kind).into()),
            ("stargate.attempt", i64::from(attempt).into()),
            ("stargate.wait_ms", i64::try_from(job.waited.as_millis()).unwrap_or(i64::MAX).into()),
            ("stargate.worker", worker.into()),
        ],
    })?;
    job.trace_id = Some(span.context().to_string());
    Some(span)
}

/// Ends the span of an execution with what became of it.
pub(crate) fn end(span: Option<Box<dyn Span>>, outcome: &Outcome) {
    let Some(mut span) = span else { return };
    let (word, code) = match outcome {
        Outcome::Done { .. } => ("done", None),
        Outcome::Failed { error } => ("failed", Some(error.code.as_str())),
        Outcome::Retry { error, .. } => ("retry", Some(error.code.as_str())),
        Outcome::Cancelled => ("cancelled", None),
        Outcome::Aborted => ("aborted", None),
        Outcome::Released => ("released", None),
    };
    span.attribute("stargate.outcome", word.into());
    if let Some(code) = code {
        span.failed(code);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_whole_traceparent_is_handed_on_as_it_is() {
        assert_eq!(context(Some(WHOLE), JobId(1), 1).unwrap().to_string(), WHOLE);
    }

    #[test]
    fn a_bare_trace_id_gets_a_span_of_its_own_for_each_attempt() {
        let of = |attempt| context(Some("4bf92f3577b34da6a3ce929d0e0e4736"), JobId(7), attempt).unwrap();
        assert_eq!(Context::parse(&of(1).to_string()), Some(of(1)));
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn anything_else_is_not_handed_on() {
        for text in
            ["", "abc", &WHOLE.to_uppercase(), &WHOLE[..54], "00000000000000000000000000000000", "a\nb"]
        {
            assert_eq!(context(Some(text), JobId(1), 1), None, "{text:?}");
        }
        assert_eq!(context(None, JobId(1), 1), None);
    }
}
