//! The same metrics in the other text form that Prometheus reads, which has room for exemplars: the trace of one sample
//! beside the bucket that it fell into.

use std::fmt::Write as _;

use stargate_queue::exemplar::Exemplar;

/// Rewrites what the exporter wrote. The forms differ in little: counters are named without `_total` in their
/// description, there are no empty lines, and the end is marked.
pub(crate) fn from_text(text: &str, prefix: &str, mut exemplars: Vec<Exemplar>) -> String {
    let mut out = String::with_capacity(text.len() + 1024);
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(description) = line.strip_prefix("# ") {
            describe(&mut out, description, text);
        } else {
            out.push_str(line);
            if let Some(exemplar) = taken(&mut exemplars, line, prefix) {
                // Writing to a string cannot fail.
                let _ = write!(
                    out,
                    " # {{trace_id=\"{}\"}} {} {:.3}",
                    exemplar.trace_id,
                    exemplar.value,
                    exemplar.at.as_millisecond() as f64 / 1000.0
                );
            }
            out.push('\n');
        }
    }
    out.push_str("# EOF\n");
    out
}

/// `HELP name text` and `TYPE name kind`.
fn describe(out: &mut String, description: &str, text: &str) {
    let mut words = description.splitn(3, ' ');
    let (Some(what), Some(name), Some(rest)) = (words.next(), words.next(), words.next()) else { return };
    let is_counter = match what {
        "TYPE" => rest == "counter",
        _ => text.contains(&format!("# TYPE {name} counter\n")),
    };
    let (name, rest) = match (is_counter, name.strip_suffix("_total")) {
        (true, Some(family)) => (family, rest),
        // Such a counter cannot be said in this form; those of the Temporal SDK are some.
        (true, None) if what == "TYPE" => (name, "unknown"),
        _ => (name, rest),
    };
    let _ = writeln!(out, "# {what} {name} {rest}");
}

/// The exemplar that belongs to a line, if it is the first bucket that the sample fits into.
fn taken(exemplars: &mut Vec<Exemplar>, line: &str, prefix: &str) -> Option<Exemplar> {
    let (name, labels) = line.split_once("_bucket{")?;
    let name = name.strip_prefix(prefix).unwrap_or(name);
    let (kind, le) = (label(labels, "kind")?, label(labels, "le")?);
    let le = if le == "+Inf" { f64::INFINITY } else { le.parse().ok()? };
    let fits =
        |exemplar: &Exemplar| exemplar.metric == name && *exemplar.kind == *kind && exemplar.value <= le;
    exemplars.iter().position(fits).map(|at| exemplars.swap_remove(at))
}

/// The value of a label; one with an escaped character is none that we look for.
fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let start = labels.find(&format!("{name}=\""))? + name.len() + 2;
    labels[start..].split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP a_total About a\n# TYPE a_total counter\na_total{x=\"1\"} 3\n\n\
        # HELP temporal_request Requests\n# TYPE temporal_request counter\ntemporal_request 1\n\n\
        # HELP d_seconds Took\n# TYPE d_seconds histogram\n\
        d_seconds_bucket{kind=\"k\",le=\"0.1\"} 0\nd_seconds_bucket{kind=\"k\",le=\"1\"} 1\n\
        d_seconds_bucket{kind=\"k\",le=\"+Inf\"} 1\nd_seconds_sum{kind=\"k\"} 0.5\nd_seconds_count{kind=\"k\"} 1\n";

    fn exemplar(kind: &str) -> Exemplar {
        Exemplar {
            metric: "d_seconds",
            kind: kind.into(),
            value: 0.5,
            trace_id: "4bf92f3577b34da6a3ce929d0e0e4736".to_owned(),
            at: "2026-01-01T00:00:00Z".parse().unwrap(),
        }
    }

    #[test]
    fn counters_lose_their_suffix_in_descriptions_only_and_the_end_is_marked() {
        let text = from_text(TEXT, "", Vec::new());
        assert!(text.starts_with("# HELP a About a\n# TYPE a counter\na_total{x=\"1\"} 3\n# HELP"), "{text}");
        assert!(text.contains("# TYPE temporal_request unknown\n"), "{text}");
        assert!(text.ends_with("\n# EOF\n") && !text.contains("\n\n"), "{text}");
    }

    #[test]
    fn an_exemplar_stands_beside_the_first_bucket_that_it_fits_into() {
        let text = from_text(TEXT, "", vec![exemplar("other"), exemplar("k")]);
        let expected = "d_seconds_bucket{kind=\"k\",le=\"1\"} 1 # {trace_id=\"4bf92f3577b34da6a3ce929d0e0e4736\"} 0.5 1767225600.000\n";
        assert!(text.contains(expected), "{text}");
        assert_eq!(text.matches("trace_id").count(), 1, "{text}");
        let prefixed = from_text(&TEXT.replace("d_seconds", "ns_d_seconds"), "ns_", vec![exemplar("k")]);
        assert_eq!(prefixed.matches("trace_id").count(), 1, "{prefixed}");
    }
}
