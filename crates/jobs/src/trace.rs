//! W3C trace context: how the enqueuer's trace reaches programs and servers.

use stargate_queue::job::JobId;

/// The `traceparent` to hand on, from what the enqueuer left: a whole `traceparent`, or a bare trace id.
///
/// A bare trace id has no parent span; one is made of the job and the attempt, so that two attempts differ.
pub(crate) fn traceparent(trace_id: Option<&str>, job: JobId, attempt: u16) -> Option<String> {
    let text = trace_id?;
    if is_traceparent(text) {
        return Some(text.to_owned());
    }
    if !is_id(text, 32) {
        return None;
    }
    // The low bits are enough: span ids need to differ within a trace only, and must not be zero.
    let span = (job.0.cast_unsigned() << 16 | u64::from(attempt)).max(1);
    Some(format!("00-{text}-{span:016x}-01"))
}

fn is_traceparent(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    matches!(parts[..], [version, trace, span, flags]
        if is_hex(version, 2) && version != "ff" && is_id(trace, 32) && is_id(span, 16) && is_hex(flags, 2))
}

fn is_id(text: &str, digits: usize) -> bool {
    is_hex(text, digits) && text.bytes().any(|b| b != b'0')
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_whole_traceparent_is_handed_on_as_it_is() {
        assert_eq!(traceparent(Some(WHOLE), JobId(1), 1).as_deref(), Some(WHOLE));
    }

    #[test]
    fn a_bare_trace_id_gets_a_span_of_its_own_for_each_attempt() {
        let of = |attempt| traceparent(Some("4bf92f3577b34da6a3ce929d0e0e4736"), JobId(7), attempt).unwrap();
        assert!(is_traceparent(&of(1)), "{}", of(1));
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn anything_else_is_not_handed_on() {
        for text in
            ["", "abc", &WHOLE.to_uppercase(), &WHOLE[..54], "00000000000000000000000000000000", "a\nb"]
        {
            assert_eq!(traceparent(Some(text), JobId(1), 1), None, "{text:?}");
        }
        assert_eq!(traceparent(None, JobId(1), 1), None);
    }
}
