//! Traces: spans that tell a collector what was done, and the W3C context that ties them together across processes.
//!
//! The crates say what a span is about; whether anybody collects it is the program's decision ([`install`]). While nobody
//! does, [`start`] answers nothing and costs one look. Log lines have spans of their own, by `tracing`.

use std::fmt;
use std::sync::OnceLock;

/// What a span is to the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Answers a request from outside.
    Server,
    /// Accepts work that is done later.
    Producer,
    /// Does work that was accepted before.
    Consumer,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A whole number.
    Number(i64),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

/// A span that begins now.
#[derive(Debug)]
pub struct Start {
    /// Few different ones: ids are attributes.
    pub name: String,
    /// What it is to the trace.
    pub kind: Kind,
    /// What it belongs to; without one it begins a trace.
    pub parent: Option<Context>,
    /// What it is about. Never a payload, never a secret (INV-8).
    pub attributes: Vec<(&'static str, Value)>,
}

/// Where spans go.
pub trait Tracer: Send + Sync {
    /// Begins a span.
    fn start(&self, start: Start) -> Box<dyn Span>;
}

/// A span that has begun. It ends when it is dropped.
pub trait Span: Send + Sync {
    /// Its place, for what belongs to it.
    fn context(&self) -> Context;
    /// Adds to what it is about.
    fn attribute(&mut self, name: &'static str, value: Value);
    /// Marks it as failed, with a code.
    fn failed(&mut self, code: &str);
}

static TRACER: OnceLock<Box<dyn Tracer>> = OnceLock::new();

/// Has spans collected from now on. To be called once; answers whether it was the first time.
pub fn install(tracer: Box<dyn Tracer>) -> bool {
    TRACER.set(tracer).is_ok()
}

/// Begins a span, if spans are collected.
pub fn start(describe: impl FnOnce() -> Start) -> Option<Box<dyn Span>> {
    TRACER.get().map(|tracer| tracer.start(describe()))
}

/// The place of a span in a trace: what the header `traceparent` says.
///
/// ```
/// # use stargate_base::trace::Context;
/// let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// let context = Context::parse(text).unwrap();
/// assert!(context.is_sampled());
/// assert_eq!(context.to_string(), text);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    /// Shared by all spans of a trace; never zero.
    pub trace: u128,
    /// Never zero.
    pub span: u64,
    /// Bit 0: somebody collects this trace.
    pub flags: u8,
}

impl Context {
    /// Reads a `traceparent`.
    pub fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('-').collect();
        let [version, trace, span, flags] = parts[..] else { return None };
        if !is_hex(version, 2) || version == "ff" || !is_hex(flags, 2) || !is_hex(span, 16) {
            return None;
        }
        let trace = Self::parse_trace(trace)?;
        let span = u64::from_str_radix(span, 16).ok().filter(|span| *span != 0)?;
        Some(Self { trace, span, flags: u8::from_str_radix(flags, 16).ok()? })
    }

    /// Reads the id of a trace: 32 hexadecimal digits, not all zero.
    pub fn parse_trace(text: &str) -> Option<u128> {
        let number = is_hex(text, 32).then(|| u128::from_str_radix(text, 16).ok())?;
        number.filter(|trace| *trace != 0)
    }

    /// Whether somebody collects this trace.
    pub fn is_sampled(self) -> bool {
        self.flags & 1 == 1
    }

    /// The id of the trace, as log lines and exemplars have it.
    pub fn trace_id(self) -> String {
        format!("{:032x}", self.trace)
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, self.flags)
    }
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_well_formed_context_is_read_and_written() {
        let context = Context::parse(WHOLE).unwrap();
        assert_eq!(context.to_string(), WHOLE);
        assert_eq!(context.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert!(!Context::parse(&WHOLE.replace("-01", "-00")).unwrap().is_sampled());
    }

    #[test]
    fn anything_else_is_none() {
        let zero_trace = format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32));
        let zero_span = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", "0".repeat(16));
        let newer = WHOLE.replacen("00", "ff", 1);
        let upper = WHOLE.to_uppercase();
        for text in ["", "x", "00-0-0-0", &zero_trace, &zero_span, &newer, &upper, &WHOLE[..54]] {
            assert_eq!(Context::parse(text), None, "{text:?}");
        }
        assert_eq!(Context::parse_trace("+bf92f3577b34da6a3ce929d0e0e4736"), None);
    }

    #[test]
    fn while_nobody_collects_nothing_is_described() {
        assert!(start(|| unreachable!("nobody asked")).is_none());
    }
}
